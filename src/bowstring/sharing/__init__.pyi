from bowstring.sharing.agent.publications import PublishedSummary as PublishedSummary
from bowstring.sharing.client.dataset_reader import DatasetReader as DatasetReader
from bowstring.sharing.dataset_locations import DatasetLocations as DatasetLocations
from bowstring.sharing.device_tables import DeviceTable as DeviceTable, device_table as device_table
from bowstring.sharing.recording.recorder import (
    Recorder as Recorder,
    read_entries as read_entries,
    read_recording as read_recording,
)
from bowstring.sharing.server.options import ServerOptions as ServerOptions
from bowstring.sharing.server.server import Server as Server
from bowstring.sharing.server.stats import ServerStats as ServerStats
from bowstring.sharing.share import SharedTableHandle as SharedTableHandle
from bowstring.sharing.shared_writer import SharedTableWriter as SharedTableWriter, new_shared_table as new_shared_table

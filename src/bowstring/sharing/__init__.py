"""Tables shared between processes.

`share`, `attach`, `serve` and `connect` are in `bowstring` itself. This package exports the classes that they return,
the options of a server, recordings, and `new_shared`, which writes directly into shared memory.
"""

from typing import TYPE_CHECKING

from bowstring._lazy_exports import lazy_exports

if TYPE_CHECKING:
    from bowstring.sharing.client import Dataset as Dataset
    from bowstring.sharing.flight_server import FlightServer as FlightServer
    from bowstring.sharing.locations import Locations as Locations
    from bowstring.sharing.recording import (
        Recorder as Recorder,
        read_entries as read_entries,
        read_recording as read_recording,
    )
    from bowstring.sharing.server import Server as Server, ServerOptions as ServerOptions
    from bowstring.sharing.server_stats import ServerStats as ServerStats
    from bowstring.sharing.share import Handle as Handle
    from bowstring.sharing.shared_writer import SharedWriter as SharedWriter, new_shared as new_shared
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "client": ("Dataset",),
            "flight_server": ("FlightServer",),
            "locations": ("Locations",),
            "recording": ("Recorder", "read_entries", "read_recording"),
            "server": ("Server", "ServerOptions"),
            "server_stats": ("ServerStats",),
            "share": ("Handle",),
            "shared_writer": ("SharedWriter", "new_shared"),
        },
    )

from bowstring.arrays.table import RecordBatchReader as RecordBatchReader
from bowstring.ipc.api import (
    new_file as new_file,
    new_stream as new_stream,
    open_file as open_file,
    open_stream as open_stream,
    read_schema as read_schema,
    serialize_schema as serialize_schema,
)
from bowstring.ipc.coalescing import CoalescingWriter as CoalescingWriter
from bowstring.ipc.file import FileReader as FileReader
from bowstring.ipc.file_statistics import ColumnStatistics as ColumnStatistics, FileStatistics as FileStatistics
from bowstring.ipc.limits import ReadLimits as ReadLimits
from bowstring.ipc.message import MessageCounts as MessageCounts
from bowstring.ipc.stream import StreamReader as StreamReader
from bowstring.ipc.tools.append import AppendWriter as AppendWriter, append_to_file as append_to_file
from bowstring.ipc.tools.concat import ConcatReport as ConcatReport, concat_files as concat_files
from bowstring.ipc.tools.message_search import DroppedRange as DroppedRange
from bowstring.ipc.tools.recover import (
    DamagedColumn as DamagedColumn,
    RecoveryReport as RecoveryReport,
    recover as recover,
)
from bowstring.ipc.write_options import IpcWriteOptions as IpcWriteOptions
from bowstring.ipc.writers import FileWriter as FileWriter, StreamWriter as StreamWriter

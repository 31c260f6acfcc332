from bowstring.ipc.coalescing import CoalescingWriter as CoalescingWriter
from bowstring.ipc.file import FileReader as FileReader
from bowstring.ipc.file_statistics import ColumnStatistics as ColumnStatistics, FileStatistics as FileStatistics
from bowstring.ipc.limits import ReadLimits as ReadLimits
from bowstring.ipc.stream import StreamReader as StreamReader
from bowstring.ipc.tools.append import AppendWriter as AppendWriter, append_to_file as append_to_file
from bowstring.ipc.tools.concat import ConcatReport as ConcatReport, concat_files as concat_files
from bowstring.ipc.tools.message_search import DroppedRange as DroppedRange
from bowstring.ipc.tools.recover import RecoveryReport as RecoveryReport, recover as recover
from bowstring.ipc.write_options import IpcWriteOptions as IpcWriteOptions
from bowstring.ipc.writers import FileWriter as FileWriter, StreamWriter as StreamWriter

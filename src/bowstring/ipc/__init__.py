"""Arrow IPC: streams and files («Serialization and Interprocess Communication (IPC)»).

`open_file`, `open_stream`, `new_file` and `new_stream` are in `bowstring` itself. This package exports the classes of
readers and writers, options, limits, and tools for whole files.
"""

from typing import TYPE_CHECKING

from bowstring._lazy_exports import lazy_exports

if TYPE_CHECKING:
    from bowstring.ipc.coalescing import CoalescingWriter as CoalescingWriter
    from bowstring.ipc.file import FileReader as FileReader
    from bowstring.ipc.limits import ReadLimits as ReadLimits
    from bowstring.ipc.options import IpcWriteOptions as IpcWriteOptions
    from bowstring.ipc.statistics import ColumnStatistics as ColumnStatistics, FileStatistics as FileStatistics
    from bowstring.ipc.stream import StreamReader as StreamReader
    from bowstring.ipc.tools.append import AppendWriter as AppendWriter, append_file as append_file
    from bowstring.ipc.tools.concat import ConcatReport as ConcatReport, concat_files as concat_files
    from bowstring.ipc.tools.recover import RecoveryReport as RecoveryReport, recover as recover
    from bowstring.ipc.tools.salvage import DroppedRange as DroppedRange
    from bowstring.ipc.writers import FileWriter as FileWriter, StreamWriter as StreamWriter
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "coalescing": ("CoalescingWriter",),
            "file": ("FileReader",),
            "limits": ("ReadLimits",),
            "options": ("IpcWriteOptions",),
            "statistics": ("ColumnStatistics", "FileStatistics"),
            "stream": ("StreamReader",),
            "tools.append": ("AppendWriter", "append_file"),
            "tools.concat": ("ConcatReport", "concat_files"),
            "tools.recover": ("RecoveryReport", "recover"),
            "tools.salvage": ("DroppedRange",),
            "writers": ("FileWriter", "StreamWriter"),
        },
    )

"""Bowstring: Arrow in pure Python and NumPy, tables shared between processes, and Spark results published to them.

- Between processes: `share` and `attach` for one table; `serve` and `connect` for tables by name.
- From Spark: `bowstring.spark.publish`, then `connect` in any process of the host.
- Files and streams: `open_file`, `open_stream`, `new_file`, `new_stream`; `inspect` and `anatomy_page` describe one.
- Whole files: `append_file`, `concat_files`, `recover`.
- In memory: `table`, `record_batch`, `array`, `schema`, `field`, and a function for each type, such as `int32()`.
- Exceptions: `bowstring.errors`.

`import bowstring` loads nothing, not even NumPy: a name's module is imported when the name is first used (PEP 562).

A public name has a line in two places below: `_EXPORTS` for the interpreter, and the imports under `TYPE_CHECKING` for
type checkers and editors. tests/test_exports.py checks that they agree.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bowstring import (
        errors as errors,
        spark as spark,
    )
    from bowstring.arrays.chunked_array import (
        ChunkedArray as ChunkedArray,
    )
    from bowstring.arrays.construction import (
        array as array,
        record_batch as record_batch,
        table as table,
    )
    from bowstring.arrays.record_batch import (
        RecordBatch as RecordBatch,
    )
    from bowstring.arrays.table import (
        Table as Table,
        concat_arrays as concat_arrays,
        concat_tables as concat_tables,
    )
    from bowstring.datatypes.canonical.bool8 import (
        bool8 as bool8,
    )
    from bowstring.datatypes.canonical.json import (
        json_ as json_,
    )
    from bowstring.datatypes.canonical.opaque import (
        opaque as opaque,
    )
    from bowstring.datatypes.canonical.parquet_variant import (
        parquet_variant as parquet_variant,
    )
    from bowstring.datatypes.canonical.tensors import (
        fixed_shape_tensor as fixed_shape_tensor,
        variable_shape_tensor as variable_shape_tensor,
    )
    from bowstring.datatypes.canonical.timestamp_with_offset import (
        OffsetMoment as OffsetMoment,
        timestamp_with_offset as timestamp_with_offset,
    )
    from bowstring.datatypes.canonical.uuid import (
        uuid as uuid,
    )
    from bowstring.datatypes.extension import (
        ExtensionType as ExtensionType,
        register_extension_type as register_extension_type,
        unregister_extension_type as unregister_extension_type,
    )
    from bowstring.datatypes.field import (
        Field as Field,
        Schema as Schema,
        field as field,
        schema as schema,
    )
    from bowstring.datatypes.types import (
        DataType as DataType,
        binary as binary,
        binary_view as binary_view,
        bool_ as bool_,
        date32 as date32,
        date64 as date64,
        day_time_interval as day_time_interval,
        decimal32 as decimal32,
        decimal64 as decimal64,
        decimal128 as decimal128,
        decimal256 as decimal256,
        dense_union as dense_union,
        dictionary as dictionary,
        duration as duration,
        float16 as float16,
        float32 as float32,
        float64 as float64,
        int8 as int8,
        int16 as int16,
        int32 as int32,
        int64 as int64,
        large_binary as large_binary,
        large_list as large_list,
        large_list_view as large_list_view,
        large_string as large_string,
        large_utf8 as large_utf8,
        list_ as list_,
        list_view as list_view,
        map_ as map_,
        month_day_nano_interval as month_day_nano_interval,
        month_interval as month_interval,
        null as null,
        run_end_encoded as run_end_encoded,
        sparse_union as sparse_union,
        string as string,
        string_view as string_view,
        struct as struct,
        time32 as time32,
        time64 as time64,
        timestamp as timestamp,
        uint8 as uint8,
        uint16 as uint16,
        uint32 as uint32,
        uint64 as uint64,
        union as union,
        utf8 as utf8,
    )
    from bowstring.errors import (
        BowstringError as BowstringError,
    )
    from bowstring.inspection.anatomy.builder import (
        anatomy as anatomy,
    )
    from bowstring.inspection.anatomy.page import (
        anatomy_page as anatomy_page,
    )
    from bowstring.inspection.inspector import (
        inspect as inspect,
    )
    from bowstring.interop.dlpack import (
        from_dlpack as from_dlpack,
    )
    from bowstring.ipc.api import (
        new_file as new_file,
        new_stream as new_stream,
        open_file as open_file,
        open_stream as open_stream,
    )
    from bowstring.ipc.coalescing import CoalescingWriter as CoalescingWriter
    from bowstring.ipc.file import (
        FileReader as FileReader,
    )
    from bowstring.ipc.limits import (
        ReadLimits as ReadLimits,
    )
    from bowstring.ipc.options import (
        IpcWriteOptions as IpcWriteOptions,
    )
    from bowstring.ipc.statistics import (
        ColumnStatistics as ColumnStatistics,
        FileStatistics as FileStatistics,
    )
    from bowstring.ipc.stream import (
        StreamReader as StreamReader,
    )
    from bowstring.ipc.tools.append import (
        AppendWriter as AppendWriter,
        append_file as append_file,
    )
    from bowstring.ipc.tools.concat import (
        ConcatReport as ConcatReport,
        concat_files as concat_files,
    )
    from bowstring.ipc.tools.recover import (
        RecoveryReport as RecoveryReport,
        recover as recover,
    )
    from bowstring.ipc.tools.salvage import (
        DroppedRange as DroppedRange,
    )
    from bowstring.ipc.writers import (
        FileWriter as FileWriter,
        StreamWriter as StreamWriter,
    )
    from bowstring.layouts.array import (
        Array as Array,
    )
    from bowstring.memory.buffer import (
        Buffer as Buffer,
    )
    from bowstring.memory.pool import (
        release_unused_memory as release_unused_memory,
    )
    from bowstring.sharing.client import (
        Dataset as Dataset,
        connect as connect,
    )
    from bowstring.sharing.server import (
        Server as Server,
        serve as serve,
    )
    from bowstring.sharing.share import (
        Handle as Handle,
        attach as attach,
        share as share,
    )
    from bowstring.tensors.csf import (
        SparseCSFTensor as SparseCSFTensor,
    )
    from bowstring.tensors.dense import (
        Tensor as Tensor,
    )
    from bowstring.tensors.reader_writer import (
        TensorReader as TensorReader,
        TensorWriter as TensorWriter,
        get_tensor_size as get_tensor_size,
        new_tensors as new_tensors,
        open_tensors as open_tensors,
        read_tensor as read_tensor,
        write_tensor as write_tensor,
    )
    from bowstring.tensors.sparse import (
        SparseCOOTensor as SparseCOOTensor,
        SparseCSCMatrix as SparseCSCMatrix,
        SparseCSRMatrix as SparseCSRMatrix,
    )

__version__ = "0.1.0"

_SUBPACKAGES = (
    "errors",
    "spark",
)

_EXPORTS = {
    "bowstring.datatypes.canonical.timestamp_with_offset": ("OffsetMoment", "timestamp_with_offset"),
    "bowstring.datatypes.canonical.bool8": ("bool8",),
    "bowstring.datatypes.canonical.json": ("json_",),
    "bowstring.datatypes.canonical.opaque": ("opaque",),
    "bowstring.datatypes.canonical.uuid": ("uuid",),
    "bowstring.datatypes.canonical.tensors": ("fixed_shape_tensor", "variable_shape_tensor"),
    "bowstring.datatypes.canonical.parquet_variant": ("parquet_variant",),
    "bowstring.datatypes.extension": (
        "ExtensionType",
        "register_extension_type",
        "unregister_extension_type",
    ),
    "bowstring.datatypes.field": (
        "Field",
        "Schema",
        "field",
        "schema",
    ),
    "bowstring.datatypes.types": (
        "null",
        "bool_",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "float32",
        "float64",
        "decimal32",
        "decimal64",
        "decimal128",
        "decimal256",
        "date32",
        "date64",
        "time32",
        "time64",
        "timestamp",
        "duration",
        "month_interval",
        "day_time_interval",
        "month_day_nano_interval",
        "binary",
        "large_binary",
        "binary_view",
        "string",
        "large_string",
        "string_view",
        "utf8",
        "large_utf8",
        "list_",
        "large_list",
        "list_view",
        "large_list_view",
        "struct",
        "map_",
        "dense_union",
        "sparse_union",
        "union",
        "dictionary",
        "run_end_encoded",
        "DataType",
    ),
    "bowstring.errors": ("BowstringError",),
    "bowstring.interop.dlpack": ("from_dlpack",),
    "bowstring.inspection.anatomy.builder": ("anatomy",),
    "bowstring.inspection.anatomy.page": ("anatomy_page",),
    "bowstring.inspection.inspector": ("inspect",),
    "bowstring.layouts.array": ("Array",),
    "bowstring.memory.buffer": ("Buffer",),
    "bowstring.memory.pool": ("release_unused_memory",),
    "bowstring.ipc.api": ("open_file", "open_stream", "new_file", "new_stream"),
    "bowstring.ipc.tools.append": ("AppendWriter", "append_file"),
    "bowstring.ipc.tools.concat": ("ConcatReport", "concat_files"),
    "bowstring.ipc.coalescing": ("CoalescingWriter",),
    "bowstring.ipc.file": ("FileReader",),
    "bowstring.ipc.options": ("IpcWriteOptions",),
    "bowstring.ipc.limits": ("ReadLimits",),
    "bowstring.ipc.tools.recover": ("RecoveryReport", "recover"),
    "bowstring.ipc.tools.salvage": ("DroppedRange",),
    "bowstring.ipc.statistics": ("ColumnStatistics", "FileStatistics"),
    "bowstring.ipc.stream": ("StreamReader",),
    "bowstring.ipc.writers": ("FileWriter", "StreamWriter"),
    "bowstring.sharing.client": ("Dataset", "connect"),
    "bowstring.sharing.server": ("Server", "serve"),
    "bowstring.sharing.share": ("Handle", "attach", "share"),
    "bowstring.arrays.record_batch": ("RecordBatch",),
    "bowstring.arrays.construction": ("array", "record_batch", "table"),
    "bowstring.arrays.chunked_array": ("ChunkedArray",),
    "bowstring.arrays.table": ("Table", "concat_arrays", "concat_tables"),
    "bowstring.tensors.reader_writer": (
        "TensorReader",
        "TensorWriter",
        "get_tensor_size",
        "new_tensors",
        "open_tensors",
        "read_tensor",
        "write_tensor",
    ),
    "bowstring.tensors.dense": ("Tensor",),
    "bowstring.tensors.csf": ("SparseCSFTensor",),
    "bowstring.tensors.sparse": ("SparseCOOTensor", "SparseCSCMatrix", "SparseCSRMatrix"),
}

_HOME = {name: module for module, names in _EXPORTS.items() for name in names}

if not TYPE_CHECKING:  # a type checker would take any name at all for public
    __all__ = sorted(_HOME)  # noqa: PLE0605 - a list of what there is, for help() and `import *`

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name in _SUBPACKAGES:
            return import_module(f"bowstring.{name}")
        if name not in _HOME:
            raise AttributeError(f"module 'bowstring' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_HOME[name]), name)
        return value

    def __dir__() -> list[str]:
        return sorted(["__version__", *_SUBPACKAGES, *_HOME])

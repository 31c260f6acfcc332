"""The names of pyarrow that Bowstring does not have, or has in another place, and what to write instead.

Classes and modules raise `missing_attribute_error` for an attribute that they lack.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # to import `typing` takes several times as long as `import bowstring`
if TYPE_CHECKING:
    from typing import TypeVar

    _T = TypeVar("_T")

_QUERY = 'table.group_by("city").aggregate([("amount", "sum")]) and table.join(…), or DuckDB for other queries'
_PARQUET = "bs.read_table and bs.write_table read and write .parquet"
_FILES = "paths, URLs and binary file objects are sources and sinks: bs.open_file(path), bs.new_file(path, schema)"
_COMPUTE = "call bs.compute.{name}(column)"

ALTERNATIVES: dict[str, dict[str, str]] = {
    "bowstring": {
        "parquet": _PARQUET,
        "csv": "bs.read_table and bs.write_table read and write .csv",
        "json": "bs.read_table and bs.write_table read and write .json and .jsonl",
        "orc": "read ORC with pyarrow.orc: bs.table(pyarrow.orc.read_table(path))",
        "flight": "bs.serve and bs.connect, or bowstring.sharing's FlightServer for Flight clients",
        "fs": "paths and URLs are sources and sinks: bs.open_file('s3://bucket/file.arrow')",
        "acero": _QUERY,
        "substrait": _QUERY,
        "memory_map": "bs.open_file(path) maps the file",
        "OSFile": _FILES,
        "BufferOutputStream": "io.BytesIO() is a sink: bs.new_file(io.BytesIO(), schema)",
        "BufferReader": "bytes are a source: bs.open_file(file_bytes)",
        "PythonFile": _FILES,
        "input_stream": _FILES,
        "output_stream": _FILES,
        "py_buffer": "anything with the buffer protocol is a source: bs.open_file(file_bytes)",
        "compress": "bs.new_file(path, schema, compression='zstd') compresses the buffers of a file",
        "decompress": "bs.open_file(path) decompresses the buffers of a file",
        "Codec": "bs.new_file(path, schema, compression='zstd') compresses the buffers of a file",
        "default_memory_pool": "memory is NumPy's; bs.memory lists what readers and writers keep",
        "total_allocated_bytes": "memory is NumPy's; use table.get_total_buffer_size() for a table",
        "cpu_count": "os.cpu_count(): apart from decompression, Bowstring has no threads of its own",
        "set_cpu_count": "apart from decompression, Bowstring has no threads of its own",
        "Tensor": "bs.tensors has dense and sparse tensors",
        "ExtensionType": "bs.datatypes.ExtensionType",
        "register_extension_type": "bs.datatypes.register_extension_type",
        "ArrowInvalid": "errors are in bs.errors: bs.errors.InvalidArgumentError, which is a ValueError",
        "ArrowException": "the base class of all errors is bs.BowstringError",
    },
    "Table": {
        "to_tensor": "numpy.asarray(table) has the shape (rows, columns)",
        "value_counts": 'count the values of a column: bs.compute.value_counts(table["city"])',
        "unique": 'a column has distinct values: table["city"].unique()',
        "write_csv": "write CSV with DuckDB, Polars or pandas: table.to_pandas().to_csv(path)",
        "iterrows": "for row in table.to_pylist(): …",
        "collect": "a table is in memory already",
    },
    "RecordBatch": {
        "to_batches": "[batch], or bs.table(batch)",
        "serialize": "with bs.new_stream(sink, batch.schema) as writer: writer.write_batch(batch)",
        "to_tensor": "numpy.asarray(batch) has the shape (rows, columns)",
        **dict.fromkeys(("group_by", "join", "join_asof"), "bs.table(batch).{name}(…)"),
    },
    "Array": {
        **dict.fromkeys(("sum", "mean", "min", "max", "value_counts", "count", "min_max", "is_in"), _COMPUTE),
        "diff": "bowstring diff compares files; array.equals(other) arrays",
        "format": "str(array.to_pylist())",
        "to_string": "str(array.to_pylist())",
        "view": "array.cast(type)",
    },
    "Schema": {
        "empty_table": "bs.table([], schema)",
        "serialize": "bs.ipc.serialize_schema(schema)",
        "from_pandas": "bs.Table.from_pandas(frame).schema",
    },
    "ChunkedArray": {
        **dict.fromkeys(("sum", "mean", "min", "max", "value_counts", "count", "min_max", "is_in"), _COMPUTE),
        "to_string": "str(column.to_pylist())",
    },
}
"""What to write instead of a name, by the module or class of pyarrow. ``{name}`` is replaced by the name."""


def missing_attribute_error(owner: str, name: str, what: str) -> AttributeError:
    """Return the error for a name that `owner`, a key of `ALTERNATIVES`, lacks.

    `what` describes the owner in the message.
    """
    alternative = ALTERNATIVES.get(owner, {}).get(name)
    if alternative:
        return AttributeError(f"{what} has no attribute {name!r}: {alternative.format(name=name)}")
    # With these, Python adds "Did you mean" and the most similar name to a traceback.
    return AttributeError(f"{what} has no attribute {name!r}", name=name, obj=sys.modules.get(owner))


def explain_missing_attributes(cls: type[_T]) -> type[_T]:
    """Make the names that a class lacks raise an error with what to write instead. A class decorator.

    A class with `__getattr__` would be shorter, but Python 3.11 then looks up each attribute in the general way: 52 ns
    instead of 9, for every access to any array.
    """
    for name in ALTERNATIVES[cls.__name__]:
        if not hasattr(cls, name):
            setattr(cls, name, _MissingAttribute(cls.__name__, name))
    cls.__dir__ = _list_existing_names  # type: ignore[method-assign]
    return cls


class _MissingAttribute:
    """An attribute that does not exist: neither `hasattr` nor `dir` finds it, and its error names the alternative."""

    def __init__(self, owner: str, name: str) -> None:
        self._owner, self._name = owner, name

    def __get__(self, instance: object, owner: type | None = None) -> object:
        raise missing_attribute_error(self._owner, self._name, f"{self._owner!r} object")

    def __repr__(self) -> str:
        return f"<missing: {ALTERNATIVES[self._owner][self._name].format(name=self._name)}>"  # in `help`


def _list_existing_names(self: object) -> list[str]:
    members = {name: member for cls in reversed(type(self).__mro__) for name, member in vars(cls).items()}
    return [name for name in object.__dir__(self) if not isinstance(members.get(name), _MissingAttribute)]

"""Public names, the names of pyarrow that Bowstring does not have, or has in another place, and what to write instead.

Classes and modules raise `missing_attribute_error` for an attribute that they lack.
"""

from __future__ import annotations

import sys
from functools import cache

TYPE_CHECKING = False  # to import `typing` takes several times as long as `import bowstring`
if TYPE_CHECKING:
    from typing import TypeVar

    _T = TypeVar("_T")

_QUERY = 'table.group_by("city").aggregate([("amount", "sum")]) and table.join(…), or DuckDB for other queries'
_PARQUET = "bs.read_table and bs.write_table read and write .parquet"
_FILES = "paths, URLs and binary file objects are sources and sinks: bs.open_file(path), bs.new_file(path, schema)"
_COMPUTE = "call bs.compute.{name}(column)"
_FUNCTIONS = ("sum", "mean", "min", "max", "value_counts", "count", "min_max", "is_in", "is_nan", "index", "replace")
_MEMORY = "memory is NumPy's; bs.memory lists what readers and writers keep"
_FRAMES = {
    "to_polars": "polars.DataFrame(table) shares the memory",
    "to_duckdb": "duckdb.sql('SELECT * FROM table') reads the variable",
    "to_arrow": "pyarrow.table(table) shares the memory",
    "to_csv": "bs.write_table(table, 'table.csv')",
    "to_parquet": "bs.write_table(table, 'table.parquet')",
    "to_string": "str(table)",
    "is_cpu": "table.to_host() copies memory of a GPU",
}

ALTERNATIVES: dict[str, dict[str, str]] = {
    "bowstring": {
        "parquet": _PARQUET,
        "csv": "bs.read_table and bs.write_table read and write .csv",
        "json": "bs.read_table and bs.write_table read and write .json and .jsonl",
        "orc": "read ORC with pyarrow.orc: bs.table(pyarrow.orc.read_table(path))",
        "flight": "bs.serve and bs.connect, or FlightServer of bowstring_networks.flight for Flight clients",
        "fs": "paths and URLs are sources and sinks: bs.open_file('s3://bucket/file.arrow')",
        "acero": _QUERY,
        "substrait": _QUERY,
        "memory_map": "bs.open_file(path) maps the file",
        "BufferOutputStream": "io.BytesIO() is a sink: bs.new_file(io.BytesIO(), schema)",
        "BufferReader": "bytes are a source: bs.open_file(file_bytes)",
        "py_buffer": "anything with the buffer protocol is a source: bs.open_file(file_bytes)",
        "compress": "bs.new_file(path, schema, compression='zstd') compresses the buffers of a file",
        "decompress": "bs.open_file(path) decompresses the buffers of a file",
        "Codec": "bs.new_file(path, schema, compression='zstd') compresses the buffers of a file",
        "total_allocated_bytes": "memory is NumPy's; use table.get_total_buffer_size() for a table",
        "type_for_alias": "bs.datatypes.as_type('int64')",
        "cpu_count": "os.cpu_count(): apart from decompression, Bowstring has no threads of its own",
        "set_cpu_count": "apart from decompression, Bowstring has no threads of its own",
    },
    "Table": {
        **_FRAMES,
        "to_tensor": "numpy.asarray(table) has the shape (rows, columns)",
        "value_counts": 'count the values of a column: bs.compute.value_counts(table["city"])',
        "unique": 'a column has distinct values: table["city"].unique()',
        "write_csv": "bs.write_table(table, 'table.csv')",
        "iterrows": "for row in table.to_pylist(): …",
        "collect": "a table is in memory already",
    },
    "RecordBatch": {
        **_FRAMES,
        "to_batches": "[batch], or bs.table(batch)",
        "serialize": "with bs.new_stream(sink, batch.schema) as writer: writer.write_batch(batch)",
        "to_tensor": "numpy.asarray(batch) has the shape (rows, columns)",
        **dict.fromkeys(("group_by", "join", "join_asof"), "bs.table(batch).{name}(…)"),
    },
    "Array": {
        **dict.fromkeys(_FUNCTIONS, _COMPUTE),
        "diff": "bowstring diff compares files; array.equals(other) arrays",
        "format": "str(array.to_pylist())",
        "to_string": "str(array.to_pylist())",
        "view": "array.cast(type)",
        "to_tensor": "bs.tensors.Tensor.from_numpy(array.to_numpy())",
        "from_dlpack": "bs.from_dlpack(values)",
        **dict.fromkeys(("copy_to", "device_type", "is_cpu"), "array.to_host() copies memory of a GPU"),
    },
    "Schema": {
        "empty_table": "bs.table([], schema)",
        "serialize": "bs.ipc.serialize_schema(schema)",
        "from_pandas": "bs.Table.from_pandas(frame).schema",
        "add_metadata": "schema.with_metadata({**schema.metadata, b'key': b'value'})",
        "field_by_name": "schema.field(name)",
    },
    "ChunkedArray": {
        **dict.fromkeys(_FUNCTIONS, _COMPUTE),
        "to_string": "str(column.to_pylist())",
        "flatten": "[chunk.flatten() for chunk in column.chunks]",
    },
    "Field": {"flatten": "table.flatten() replaces columns of structs by their fields"},
    "DataType": {
        "id": "bs.types.is_string(type) and its like, or isinstance with the classes in bs.datatypes",
        "num_buffers": "len(array.buffers())",
    },
    "RecordBatchReader": {
        "cast": "bs.RecordBatchReader.from_batches(schema, (batch.cast(schema) for batch in reader))",
        "iter_batches_with_custom_metadata": "batch.custom_metadata, of each batch of the reader",
        "read_next_batch_with_custom_metadata": "reader.read_next_batch().custom_metadata",
    },
}
"""What to write instead of a name, by the module or class of pyarrow. ``{name}`` is replaced by the name."""

KINDS = (
    ("Arrow*", "errors are in bs.errors: bs.errors.InvalidArgumentError is a ValueError, bs.BowstringError their base"),
    ("*Scalar", "all scalars are bs.Scalar"),
    ("*Array", "all arrays are bs.Array; bs.types.is_string(array.type) and its like test the type"),
    ("*Type", "the classes of types are in bs.datatypes, such as bs.datatypes.Timestamp"),
    ("read_*", "bs.read_table(path) reads Arrow, Parquet, CSV and JSON files"),
    ("scan_*", "bs.dataset(path) describes files and folders"),
    ("write_*", "bs.write_table(table, path) writes Arrow, Parquet, CSV and JSON files"),
    ("from_*", "bs.table(data) and bs.array(values) take those of pandas, Polars and any other Arrow library"),
    ("*RecordBatch*er", "bs.open_file, bs.open_stream, bs.new_file and bs.new_stream return readers and writers"),
    ("*emory_[pm]*", _MEMORY),
    ("*Memory[PM]*", _MEMORY),
    ("*_stream", _FILES),
    ("*Stream", _FILES),
    ("*File", _FILES),
)
"""What to write instead of names of a kind, by their pattern."""


def missing_attribute_error(owner: str, name: str, what: str) -> AttributeError:
    """Return the error for a name that `owner`, a package or a class of `ALTERNATIVES`, lacks.

    `what` describes the owner in the message.
    """
    alternative = ALTERNATIVES.get(owner, {}).get(name, "").replace("{name}", name)
    if not alternative and owner.startswith("bowstring"):
        alternative = _find_alternative(owner, name)
    if alternative:
        return AttributeError(f"{what} has no attribute {name!r}: {alternative}")
    # With these, Python adds "Did you mean" and the most similar name to a traceback.
    return AttributeError(f"{what} has no attribute {name!r}", name=name, obj=sys.modules.get(owner))


@cache
def read_public_names(package: str) -> dict[str, str]:
    """Return the module from which the stub of a package imports each name; a subpackage is imported from the package.

    A function or class that a stub or a module defines itself is its own.
    """
    # Imported on the first use of a name: `import bowstring` alone must stay fast.
    import ast
    import pkgutil

    root, _, path = package.partition(".")
    path = path.replace(".", "/")
    try:
        source = pkgutil.get_data(root, f"{path}/__init__.pyi".lstrip("/"))
    except FileNotFoundError:  # a module
        source = pkgutil.get_data(root, f"{path}.py")
    assert source is not None
    names: dict[str, str] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.ImportFrom):
            names.update({alias.name: node.module or "" for alias in node.names if alias.asname})
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names[node.name] = package
        elif isinstance(node, ast.Assign):
            names.update({target.id: package for target in node.targets if isinstance(target, ast.Name)})
    return names


def _find_alternative(package: str, name: str) -> str:
    """Return what to write instead of a name that a package lacks: its place in another package, a class with that
    method, what its kind has become, or a similar name; "" if there is nothing.
    """
    from difflib import get_close_matches
    from fnmatch import fnmatchcase

    if name.startswith("_"):
        return ""
    root, *_ = package.split(".")
    subpackages = [each for each, module in read_public_names(root).items() if module == root]
    for each in (root, *(f"{root}.{subpackage}" for subpackage in subpackages)):
        if name in read_public_names(each):
            return f"it is {each.replace(root, 'bs', 1)}.{name}"
    for pattern, alternative in KINDS:
        if fnmatchcase(name, pattern):
            return alternative
    if hasattr(sys.modules.get("pyarrow"), name):
        return f"use pyarrow.{name}; pyarrow.table(table) and bs.table(pa_table) do not copy"
    similar = get_close_matches(name, read_public_names(package), 1)
    return f"did you mean {similar[0]!r}?" if similar else ""


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
        return f"<missing: {ALTERNATIVES[self._owner][self._name].replace('{name}', self._name)}>"  # in `help`


def _list_existing_names(self: object) -> list[str]:
    members = {name: member for cls in reversed(type(self).__mro__) for name, member in vars(cls).items()}
    return [name for name in object.__dir__(self) if not isinstance(members.get(name), _MissingAttribute)]

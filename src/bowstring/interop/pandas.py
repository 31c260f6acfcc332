"""Conversion to and from pandas by pyarrow, with a guard for labels that pyarrow would confuse.

pyarrow describes a frame's index, labels and dtypes in the `pandas` metadata of the schema («Storing pandas DataFrame
objects in Apache Parquet format» in pandas' developer guide). It finds a level of the index by its name, and takes a
number for a position: levels with the names 1 and 0 would exchange values. It finds a column by the text of its label.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from bowstring.datatypes.conversion import TypeLike, as_type
from bowstring.datatypes.field import Field
from bowstring.datatypes.schema import Schema, SchemaLike, as_schema
from bowstring.datatypes.types import (
    BaseList,
    DataType,
    LargeList,
    LargeListView,
    ListView,
    Map,
    RunEndEncoded,
    Struct,
)
from bowstring.errors import (
    BowstringError,
    InvalidArgumentError,
    InvalidDataError,
    MissingExtraError,
    ResourceError,
    TypeMismatchError,
    UnsupportedTypeError,
    WouldCopyError,
    prefix_errors,
)
from bowstring.interop import c_data
from bowstring.interop.c_array import AbstractRecordBatch, ColumnarBatch
from bowstring.kernels.cast import cast
from bowstring.kernels.chunked_array_data import ChunkedArrayData, cast_chunks
from bowstring.layouts.base import ArrayData, check_expanded_array
from bowstring.layouts.binary_view import BinaryViewLayout
from bowstring.layouts.validation import validate

PANDAS_KEY = b"pandas"
_MAX_LABEL_LENGTH = 10_000
"""Maximum length of a label of several levels that is parsed: Python's parser takes much memory for each character."""


def is_pandas_object(source: object) -> bool:
    """Whether an object is a frame, series, index or array of pandas."""
    return type(source).__module__.partition(".")[0] == "pandas" and (
        hasattr(source, "dtype") or hasattr(source, "dtypes")
    )


# To pandas


def to_series(column: ArrayData | ChunkedArrayData, options: Mapping[str, Any]) -> Any:
    """Convert a column to a series with the options of pyarrow's `to_pandas`. Raises as `to_frame`."""
    pa = _import_pyarrow()
    chunks, type_ = column.chunks if isinstance(column, ChunkedArrayData) else [column], _plain_type(column.type)
    checked = ChunkedArrayData([_check_values(chunk, type_) for chunk in chunks], type_)
    with _translated_errors("to_pandas", options):
        return pa.chunked_array(c_data.StreamExporter(c_data.export_chunked_array(checked))).to_pandas(**options)


def to_frame(schema: Schema, batches: Iterable[AbstractRecordBatch], options: Mapping[str, Any]) -> Any:
    """Convert record batches to a frame with the options of pyarrow's `to_pandas`. The index, labels and dtypes are
    as in the schema's `pandas` metadata, if any.

    Raises `InvalidDataError` for invalid values and malformed metadata, `UnsupportedTypeError` for types that pandas
    can't have, `WouldCopyError` if `zero_copy_only` is not possible, and `TypeMismatchError` for unknown options.
    """
    _import_pyarrow()
    schema = Schema(tuple(map(_with_plain_type, schema.fields)), schema.pairs)
    checked = []
    for batch_index, batch in enumerate(batches):
        columns = []
        for field, column in zip(schema.fields, batch.columns, strict=True):
            with prefix_errors(f"record batch {batch_index}, column {field.name!r}"):
                columns.append(_check_values(column, field.type))
        checked.append(ColumnarBatch(batch.num_rows, columns))
    if options.get("ignore_metadata") or PANDAS_KEY not in schema.metadata:
        with _translated_errors("to_pandas", options):  # pyarrow parses even metadata that it ignores
            return _to_pa_table(schema.remove_metadata(), checked).to_pandas(**options)
    try:
        with _translated_errors("to_pandas", options):
            return _to_pa_table(_with_boolean_labels(schema), checked).to_pandas(**options)
    except BowstringError:
        with _translated_errors("can't restore the labels of pandas' metadata, which ignore_metadata=True ignores"):
            _to_pa_table(_with_boolean_labels(schema), ()).to_pandas()
        raise


def _to_pa_table(schema: Schema, batches: Iterable[AbstractRecordBatch]) -> Any:
    return _import_pyarrow().table(c_data.StreamExporter(c_data.export_stream(schema, batches)))


def _plain_type(type_: DataType) -> DataType:
    """Return a type with large lists in place of list views, of which pyarrow takes wrong slots for null, and values in
    place of runs: those of timestamps with a time zone end the process.
    """
    if isinstance(type_, RunEndEncoded):
        return _plain_type(type_.value_type)
    if isinstance(type_, ListView | LargeListView):
        return LargeList(_with_plain_type(type_.value_field))
    if isinstance(type_, BaseList):
        return replace(type_, value_field=_with_plain_type(type_.value_field))
    if isinstance(type_, Struct):
        return Struct(tuple(map(_with_plain_type, type_.fields)))
    return replace(type_, entries_field=_with_plain_type(type_.entries_field)) if isinstance(type_, Map) else type_


def _with_plain_type(field: Field) -> Field:
    return field.with_type(_plain_type(field.type))


def _check_values(array: ArrayData, type_: DataType) -> ArrayData:
    """Check an array, whose offsets and indices pyarrow and pandas use unchecked, and cast it. Views of nulls, whose
    lengths they add up, become empty.
    """
    check_expanded_array(array)
    validate(array, full=True)
    array = cast(array, type_)
    layout = array.layout
    if isinstance(layout, BinaryViewLayout):
        array = layout.with_empty_nulls(array)
        layout.checked_lengths(array, layout.views(array))
    return array


def _with_boolean_labels(schema: Schema) -> Schema:
    """Return the schema with boolean column labels as such in the `pandas` metadata.

    pyarrow writes them as the texts "True" and "False", and reads both as True, as NumPy converts text.
    """
    document = json.loads(schema.metadata[PANDAS_KEY])
    levels = document.get("column_indexes") or ()
    is_boolean = [level["pandas_type"] in ("bool", "boolean") for level in levels]
    if not any(is_boolean):
        return schema
    labels = {"True": True, "False": False}
    columns = [entry for entry in document["columns"] if entry["field_name"] not in document["index_columns"]]
    for entry in columns:
        parts = [entry["name"]] if len(levels) == 1 else _parse_label(entry["name"])
        parts = [labels.get(part, part) if boolean else part for part, boolean in zip(parts, is_boolean, strict=True)]
        entry["name"] = parts[0] if len(levels) == 1 else str(tuple(parts))
    are_all = {entry["field_name"] for entry in document["columns"]}.issuperset(schema.names)
    for level, boolean in zip(levels, is_boolean, strict=True):
        if boolean and are_all:
            level["pandas_type"] = "bool"  # NumPy does not have pandas' "boolean"
        elif boolean:  # a column that was added later has another label
            level["pandas_type"], level["numpy_type"] = "mixed", "object"
    return _with_document(schema, document)


def _parse_label(text: str) -> Sequence[Any]:
    """Parse a label of several levels."""
    if len(text) > _MAX_LABEL_LENGTH:
        raise InvalidDataError(f"a column label of {len(text)} characters exceeds the limit of {_MAX_LABEL_LENGTH}")
    parts: Sequence[Any] = ast.literal_eval(text)
    return parts


def _with_document(schema: Schema, document: object) -> Schema:
    pairs = (pair for pair in schema.pairs if pair[0] != PANDAS_KEY)
    return schema.with_metadata([*pairs, (PANDAS_KEY, json.dumps(document).encode())])


# From pandas


def series_to_column(values: Any, type_: TypeLike | None, options: Mapping[str, Any]) -> ChunkedArrayData:
    """Convert a series, an index or an array to a column of one chunk, or of several if pandas has several.

    `options` are as in pyarrow's `Array.from_pandas`. Raises `TypeMismatchError` if the values do not have one type
    or the requested one, and for values without an Arrow type.
    """
    pa = _import_pyarrow()
    if getattr(values, "ndim", 1) != 1:
        raise InvalidArgumentError(f"from_pandas: expected one column, found a {type(values).__name__}")
    target = None if type_ is None else as_type(type_, "from_pandas")
    with _translated_errors("from_pandas", kind=TypeMismatchError):
        pa_type = None if target is None else pa.schema(Schema((Field("", target),))).field(0).type
        pa_column = pa.Array.from_pandas(values, type=pa_type, **options)
        column = c_data.import_chunked_array(pa.chunked_array(pa_column))
    return column if target in (None, column.type) else cast_chunks(column, target)


def frame_to_batches(
    frame: Any, schema: SchemaLike | None, options: Mapping[str, Any]
) -> tuple[Schema, list[ColumnarBatch]]:
    """Convert a frame to a schema and record batches, one unless a column has several chunks.

    `options` are as in pyarrow's `Table.from_pandas`. Raises `TypeMismatchError`, naming the column, for values that
    do not have one type or the schema's, and `InvalidArgumentError` for columns of the schema that the frame does
    not have, and for labels of equal text.
    """
    pa = _import_pyarrow()
    names = list(getattr(getattr(frame, "index", None), "names", ()))
    texts = [_to_text(name) for name in names]
    if any(text is not name for text, name in zip(texts, names, strict=True)):
        frame = frame.copy(deep=False)
        frame.index = frame.index.set_names(texts)
    with _translated_errors("from_pandas", kind=TypeMismatchError):
        pa_schema = None if schema is None else pa.schema(as_schema(schema, "from_pandas"))
        pa_table = pa.Table.from_pandas(frame, pa_schema, **options)
    fields = pa_table.column_names
    if len(set(fields)) < len(fields):
        text = next(text for text in fields if fields.count(text) > 1)
        raise InvalidArgumentError(f"from_pandas: two columns or index levels have the label {text!r}: rename one")
    pa_batches = pa_table.to_batches()
    if not pa_batches:  # no rows, but perhaps dictionaries, which become categories
        columns = [column.combine_chunks() for column in pa_table.columns]
        pa_batches = [pa.RecordBatch.from_arrays(columns, schema=pa_table.schema)]
    imported = [c_data.import_batch(batch) for batch in pa_batches]
    numbers = {
        text: name for text, name in zip(texts, names, strict=True) if text is not None and texts.count(text) == 1
    }
    return _with_index_names(imported[0][0], numbers), [batch for _, batch in imported]


def _to_text(name: Any) -> Any:
    """Return a name of an index level that pyarrow can't take for a position."""
    import pandas as pd

    if name is None or isinstance(name, (str, bytes, tuple)):
        return name
    return None if pd.isna(name) else str(name)


def _with_index_names(schema: Schema, names: Mapping[Any, Any]) -> Schema:
    """Return the schema with numbers as names of index levels in the `pandas` metadata, instead of their text."""
    numbers = {text: getattr(name, "item", lambda name=name: name)() for text, name in names.items()}
    numbers = {text: name for text, name in numbers.items() if isinstance(name, (int, float))}
    if not numbers:
        return schema
    document = json.loads(schema.metadata[PANDAS_KEY])
    fields = [entry for entry in document["index_columns"] if isinstance(entry, str)]
    ranges = [entry for entry in document["index_columns"] if isinstance(entry, dict)]
    for entry in [*ranges, *(entry for entry in document["columns"] if entry["field_name"] in fields)]:
        entry["name"] = numbers.get(entry["name"], entry["name"])
    return _with_document(schema, document)


# pyarrow


def _import_pyarrow() -> Any:
    """Import pyarrow. Raises `MissingExtraError` if it or pandas is not installed."""
    try:
        import pandas as pd  # noqa: F401
        import pyarrow as pa
    except ImportError as error:
        raise MissingExtraError.for_package(error.name or "pandas", "pandas") from None
    return pa


@contextmanager
def _translated_errors(
    what: str, options: Mapping[str, Any] | None = None, kind: type[BowstringError] = InvalidDataError
) -> Iterator[None]:
    """Raise errors of pyarrow and pandas as `kind`, or as Bowstring's for wrong `options` or types."""
    pa = _import_pyarrow()
    try:
        yield
    except BowstringError:
        raise
    except MemoryError as error:
        raise ResourceError(f"{what}: {error}") from error
    except Exception as error:
        if options is not None and isinstance(error, NotImplementedError):
            kind = UnsupportedTypeError
        elif options is not None and isinstance(error, TypeError):
            kind = TypeMismatchError
        elif options is not None and isinstance(error, pa.ArrowInvalid) and options.get("zero_copy_only"):
            kind = WouldCopyError
        raise kind(f"{what}: {'; '.join(map(str, error.args))}") from error

"""Record batches: «an ordered collection of arrays, each having the same length», with a schema."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TypeAlias, TypeVar

import numpy as np

from bowstring.arrays.array import Array, as_array, as_arrays
from bowstring.arrays.chunked_array import ChunkedArray, LazyArrays, as_chunked_array, combine_if_chunked
from bowstring.arrays.column_container import ColumnContainer, get_distinct_names
from bowstring.arrays.construction import array
from bowstring.arrays.preview import describe_shape, preview_as_text
from bowstring.datatypes import types
from bowstring.datatypes.conversion import as_type
from bowstring.datatypes.field import Field, Metadata, MetadataLike, as_metadata, check_field_name
from bowstring.datatypes.schema import Schema, SchemaLike, as_schema
from bowstring.errors import InvalidArgumentError, InvalidDataError, TypeMismatchError, prefix_errors
from bowstring.interop import c_data
from bowstring.interop.c_array import ColumnarBatch
from bowstring.interop.pandas import PANDAS_KEY, is_pandas_object
from bowstring.interop.pyarrow_arrays import find_expression, import_pyarrow
from bowstring.kernels.cast import replace_fields
from bowstring.kernels.chunked_array_data import ChunkedArrayData
from bowstring.kernels.filter import MaskLike, NullSelection, mask_to_indices, mask_to_nullable_indices
from bowstring.kernels.filters import Filters, FiltersLike, is_filters, parse_filters
from bowstring.kernels.nulls import check_no_nulls
from bowstring.layouts.base import ArrayData, Indices, check_expanded_containers
from bowstring.layouts.indexing import clip_slice
from bowstring.layouts.registry import layout_of, layout_of_class
from bowstring.layouts.struct_ import StructLayout, columns_to_rows
from bowstring.pyarrow_names import explain_missing_attributes

TableLike: TypeAlias = "Mapping[str, Any] | Iterable[Any] | c_data.SupportsArrowStream | c_data.SupportsArrowArray"
"""Columns by name, columns, rows, or a table of any library."""


@explain_missing_attributes
class RecordBatch(ColumnContainer[Array]):
    """Columns of one length, with a schema; immutable.

    `columns` can be any sequence; a reader's creates each array on first access. `pairs` is the custom metadata
    of the batch's message.

    >>> batch = bs.record_batch({"city": ["Riga", "Lima"], "people": [605_273, 10_092_000]})
    >>> batch.num_rows, batch["city"].to_pylist()
    (2, ['Riga', 'Lima'])
    >>> batch.filter([("people", ">", 1_000_000)])
    <bowstring.RecordBatch 1 row × 2 columns>
    ┌────────┬──────────┐
    │ city   ┆   people │
    │ string ┆    int64 │
    ╞════════╪══════════╡
    │ "Lima" ┆ 10092000 │
    └────────┴──────────┘
    """

    __slots__ = ("lazy_columns", "num_rows", "pairs", "schema")

    schema: Schema

    def __init__(self, schema: Schema, num_rows: int = 0, columns: Sequence[Array] = (), pairs: Metadata = ()) -> None:
        check_is_schema(schema, "bowstring.record_batch")
        if len(columns) != len(schema):
            raise InvalidArgumentError(f"a schema of {len(schema)} fields does not fit {len(columns)} columns")
        # Other sequences come from readers and slices; to check their columns would create them.
        if columns.__class__ in (list, tuple) and not {Array}.issuperset(map(type, columns)):
            columns = [as_array(column) for column in columns]
        self.schema = schema
        self.num_rows = num_rows
        self.lazy_columns = columns
        """The sequence of columns, which may create them on first access."""
        self.pairs = pairs

    @classmethod
    def from_lazy_columns(cls, schema: Schema, num_rows: int, columns: Sequence[Array], pairs: Metadata) -> RecordBatch:
        """Create a batch of the lazy columns of a reader, which have the number and types of the schema.

        Checking that takes a tenth of the time of reading a header.
        """
        batch = cls.__new__(cls)
        batch.schema, batch.num_rows, batch.lazy_columns, batch.pairs = schema, num_rows, columns, pairs
        return batch

    @classmethod
    def from_arrays(
        cls,
        arrays: Sequence[Any],
        names: Sequence[str] | None = None,
        schema: SchemaLike | None = None,
        metadata: MetadataLike = None,
    ) -> RecordBatch:
        """Create a batch of arrays, or of anything else that `array` accepts, with names or a schema. Arrays are cast
        to its types, and not copied if they have them.

        Raises `InvalidArgumentError` if lengths, number or types do not agree.

        >>> bs.RecordBatch.from_arrays([bs.array([1, 2])], names=["n"]).to_pydict()
        {'n': [1, 2]}
        """
        columns, batch_schema = convert_columns(arrays, schema, names, metadata)
        return cls(batch_schema, len(columns[0]) if columns else 0, tuple(map(combine_if_chunked, columns)))

    @classmethod
    def _from_columns_or_rows(cls, data: Any, schema: SchemaLike | None, metadata: MetadataLike) -> RecordBatch:
        return record_batch(data, schema, metadata=metadata)

    @classmethod
    def _from_columnar_batches(cls, schema: Schema, batches: Sequence[ColumnarBatch]) -> RecordBatch:
        columns = [
            ChunkedArrayData([batch.columns[index] for batch in batches], field.type).combine_chunks()
            for index, field in enumerate(schema.fields)
        ]
        return cls(schema, sum(batch.num_rows for batch in batches), as_arrays(columns))

    @classmethod
    def from_struct_array(cls, struct_array: Array) -> RecordBatch:
        """Create a batch of the fields of an array of structs; a null struct becomes nulls in all columns.

        >>> bs.RecordBatch.from_struct_array(bs.array([{"n": 1}, {"n": 2}])).to_pydict()
        {'n': [1, 2]}
        """
        structs = as_array(struct_array)
        if not isinstance(structs.type, types.Struct):
            raise TypeMismatchError(f"expected an array of structs, found {structs.type}")
        return cls(Schema(structs.type.fields), len(structs), structs.flatten())

    def to_struct_array(self) -> Array:
        """Return the rows as an array of structs without nulls; nothing is copied.

        >>> bs.record_batch({"n": [1, 2]}).to_struct_array()
        <bowstring.Array struct<n: int64>[2]>
        [{n: 1}, {n: 2}]
        """
        layout = layout_of_class(types.Struct(self.schema.fields), StructLayout)
        return Array.from_array_data(layout.create_array(self.columns, self.num_rows))

    @property
    def columns(self) -> list[Array]:
        return list(self.lazy_columns)

    @property
    def custom_metadata(self) -> dict[bytes, bytes]:
        """The custom metadata of the batch's message."""
        return dict(self.pairs)

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self.lazy_columns)

    def column(self, key: int | str) -> Array:
        return self.lazy_columns[self.schema.index(key)]

    def with_metadata(self, metadata: MetadataLike) -> RecordBatch:
        """Replace the custom metadata of the batch's message: a mapping or pairs of strings or bytes.

        Raises `InvalidArgumentError` for anything else.

        >>> bs.record_batch({"n": [1]}).with_metadata({"sensor": "7"}).custom_metadata
        {b'sensor': b'7'}
        """
        return RecordBatch(self.schema, self.num_rows, self.lazy_columns, as_metadata(metadata))

    def select(self, keys: str | int | Iterable[str | int]) -> RecordBatch:
        indices = self.schema.resolve_indices(keys)
        return self._select_columns(self.schema.select(indices), indices)

    def _select_columns(self, schema: Schema, indices: list[int]) -> RecordBatch:
        lazy_columns = self.lazy_columns
        columns = LazyArrays(len(indices), lambda index: lazy_columns[indices[index]])
        return RecordBatch(schema, self.num_rows, columns, self.pairs)

    def slice(self, offset: int = 0, length: int | None = None) -> RecordBatch:
        offset, length = clip_slice(offset, length, self.num_rows)
        lazy_columns = self.lazy_columns
        columns = LazyArrays(len(lazy_columns), lambda index: lazy_columns[index].slice(offset, length))
        return RecordBatch(self.schema, length, columns, self.pairs)

    def filter(
        self, mask: MaskLike | ChunkedArray | FiltersLike | Any, *, null_selection_behavior: NullSelection = "drop"
    ) -> RecordBatch:
        """Return the rows at which `mask` is true, copied, as `Array.filter`. With "emit_null", the row of a null has
        only nulls.

        In place of a mask, filters are a list such as ``[("a", ">", 5), ("b", "in", ["x", "y"])]``, all of which must
        be true, or a list of such lists, one of which must be; see `bowstring.kernels.filters`. An expression of
        pyarrow, such as ``bs.compute.field("n") > 1``, is evaluated by pyarrow, and its errors are pyarrow's.

        >>> bs.record_batch({"n": [1, 2, 3], "s": ["a", "b", None]}).filter([("n", ">", 1)]).to_pydict()
        {'n': [2, 3], 's': ['b', None]}
        """
        expression = find_expression(mask)
        if expression is not None:
            filtered = record_batch(import_pyarrow().record_batch(self).filter(expression))
            return RecordBatch(filtered.schema, filtered.num_rows, filtered.lazy_columns, self.pairs)
        if is_filters(mask):
            (batch,) = filter_batches([self], parse_filters(mask, self.schema), keeps_empty=True)
            return batch
        mask = combine_if_chunked(mask)
        indices = mask_to_nullable_indices(mask, self.num_rows, null_selection_behavior)
        if indices is not None:
            return self.take(Array.from_array_data(indices))
        return self._take_rows(mask_to_indices(mask, self.num_rows))

    def cast(self, target_schema: SchemaLike, safe: bool = True) -> RecordBatch:
        """Cast the columns to the types of a schema with the same names, as `Array.cast`. Errors name the column.

        A mapping such as ``{"a": "int64"}`` casts some columns. Raises `InvalidArgumentError` if the names differ.

        >>> bs.record_batch({"n": ["1", None]}).cast({"n": "int64"}).to_pydict()
        {'n': [1, None]}
        """
        target_schema = resolve_cast_schema(self.schema, target_schema)
        columns = []
        for field, column in zip(target_schema, self.lazy_columns, strict=True):
            with prefix_errors(f"column {field.name!r}"):
                columns.append(column.cast(field.type, safe))
                if not field.nullable:
                    check_no_nulls(columns[-1])
        return RecordBatch(target_schema, self.num_rows, columns, self.pairs)

    def _from_columns(self, columns: list[Array]) -> RecordBatch:
        return RecordBatch(self.schema, columns[0].length, columns, self.pairs)

    def _take_rows(self, indices: Indices) -> RecordBatch:
        columns = [Array.from_array_data(column.layout.take(column, indices)) for column in self.lazy_columns]
        return RecordBatch(self.schema, len(indices), columns, self.pairs)

    def _with_schema(self, schema: Schema) -> RecordBatch:
        return RecordBatch(schema, self.num_rows, self.lazy_columns, self.pairs)

    def _splice_column(self, schema: Schema, index: int, num_dropped: int, column: Array | ChunkedArray) -> RecordBatch:
        lazy_columns, new_column = self.lazy_columns, combine_if_chunked(column)

        # After the new column, column i was column i - 1 before, or column i if one was dropped.
        def column_at(i: int) -> Array:
            return new_column if i == index else lazy_columns[i if i < index else i - 1 + num_dropped]

        return RecordBatch(schema, len(column), LazyArrays(len(schema), column_at), self.pairs)

    def to_host(self) -> RecordBatch:
        """Copy memory of a GPU to the CPU. As `Array.to_host`."""
        return RecordBatch(self.schema, self.num_rows, [column.to_host() for column in self.columns], self.pairs)

    def to_pylist(self) -> list[dict[str, Any]]:
        """Convert to rows, as dictionaries of Python values.

        Raises `InvalidArgumentError` if two columns share a name, `LimitError` if there are far more rows than bytes.

        >>> bs.record_batch({"n": [1, None], "s": ["a", "b"]}).to_pylist()
        [{'n': 1, 's': 'a'}, {'n': None, 's': 'b'}]
        """
        names = get_distinct_names(self.schema)
        check_expanded_containers(self.lazy_columns, self.num_rows)
        return columns_to_rows(names, [column.to_pylist() for column in self.lazy_columns], self.num_rows)

    def equals(self, other: object, check_metadata: bool = False, nans_equal: bool = False) -> bool:
        """Return whether schemas and values are equal. `other` may be a batch of another library.

        >>> bs.record_batch({"n": [1, None]}).equals(bs.record_batch({"n": [1, None]}))
        True
        """
        other = as_batch(other)
        return (
            self.num_rows == other.num_rows
            and self.schema.equals(other.schema, check_metadata)
            and all(a.equals(b, nans_equal) for a, b in zip(self.lazy_columns, other.lazy_columns, strict=True))
        )

    def validate(self, full: bool = False) -> None:
        """Check every column, as `Array.validate`. The `InvalidDataError` names the column.

        >>> bs.record_batch({"s": ["a", None]}).validate(full=True)
        """
        for index, field in enumerate(self.schema):
            with prefix_errors(f"column {field.name!r}"):
                column = self.lazy_columns[index]
                if column.length != self.num_rows or column.type != field.type:
                    raise InvalidDataError(
                        f"expected {field.type}[{self.num_rows}], found {column.type}[{column.length}]"
                    )
                column.validate(full)

    def _record_batches(self) -> list[RecordBatch]:
        return [self]

    def __repr__(self) -> str:
        return preview_as_text(f"<bowstring.RecordBatch {describe_shape(self)}>", self)

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return c_data.export_batch(self.schema, self, requested_schema)

    def __arrow_c_device_array__(self, requested_schema: object = None, **options: object) -> tuple[object, object]:
        return c_data.export_batch(self.schema, self, requested_schema, options)

    def __reduce__(self) -> tuple[Any, ...]:
        return RecordBatch, (self.schema, self.num_rows, self.columns, self.pairs)


def with_nullability(batch: RecordBatch, schema: Schema) -> RecordBatch:
    """Return a batch with a schema that differs at most in which fields, at any depth, may have nulls; nothing is
    copied.
    """
    if batch.schema is schema:
        return batch
    lazy_columns, types_by_index = batch.lazy_columns, schema.types
    if batch.schema.types == types_by_index:
        return RecordBatch(schema, batch.num_rows, lazy_columns, batch.pairs)
    columns = LazyArrays(
        len(types_by_index),
        lambda index: Array.from_array_data(replace_fields(lazy_columns[index], layout_of(types_by_index[index]))),
    )
    return RecordBatch(schema, batch.num_rows, columns, batch.pairs)


def filter_batches(
    batches: Iterable[RecordBatch], filters: Filters, num_columns: int | None = None, keeps_empty: bool = False
) -> Iterator[RecordBatch]:
    """Yield the first `num_columns` columns (default: all) of the rows that match, copied batch by batch.

    If all rows of a batch match, they are not copied. A batch without such rows is left out, unless `keeps_empty`. The
    filters may use columns after the first `num_columns`.
    """
    for batch in batches:
        rows = np.flatnonzero(filters.evaluate(batch.lazy_columns))
        if len(rows) or keeps_empty:
            selected = batch if num_columns is None else batch.select(range(num_columns))
            yield selected if len(rows) == batch.num_rows else selected._take_rows(rows)


def check_is_schema(schema: object, function: str) -> None:
    """Raise `InvalidArgumentError` for anything but a schema, naming the function that accepts columns."""
    if schema.__class__ is not Schema:
        raise InvalidArgumentError(
            f"expected a Schema, found {type(schema).__name__}: {function} creates one of columns"
        )


def resolve_cast_schema(schema: Schema, target: SchemaLike) -> Schema:
    """Return the target schema of a cast: the given one, or with a mapping the schema with other types by name.

    Raises `InvalidArgumentError` if its names differ or it is not a schema, and `NotFoundError` for an unknown name.
    """
    if isinstance(target, Mapping):
        types_by_index = {schema.index(name): as_type(type_, f"cast: {name!r}") for name, type_ in target.items()}
        fields = enumerate(schema.fields)
        return Schema(tuple(f.with_type(types_by_index.get(index, f.type)) for index, f in fields), schema.pairs)
    target = as_schema(target, "cast")
    if schema.names != target.names:
        raise InvalidArgumentError(f"cast: the columns are {schema.names}, the schema has {target.names}")
    return target


def record_batch(
    data: TableLike,
    names: Sequence[str] | SchemaLike | None = None,
    schema: SchemaLike | None = None,
    metadata: MetadataLike = None,
) -> RecordBatch:
    """Create a record batch of columns by name, a sequence of columns with `names` or a `schema`, or rows; or import
    one.

    The arguments are as in `table`. Raises `InvalidArgumentError` if lengths, types or arguments do not agree.

    >>> bs.record_batch({"city": ["Riga", None], "people": [605_273, 7]})
    <bowstring.RecordBatch 2 rows × 2 columns>
    ┌────────┬────────┐
    │ city   ┆ people │
    │ string ┆  int64 │
    ╞════════╪════════╡
    │ "Riga" ┆ 605273 │
    │ null   ┆      7 │
    └────────┴────────┘
    """
    names, schema = separate_names_and_schema(names, schema)
    check_names_fit(data, names)
    if data.__class__ not in (dict, list, tuple):  # these have no protocols, which take time to test
        batch = None
        if isinstance(data, RecordBatch):
            batch = data
        elif is_pandas_object(data):
            batch, schema = RecordBatch.from_pandas(data, schema), None
        elif c_data.has_c_array(data):
            batch = import_batch(data)
        if batch is not None:
            return adapt_columns(batch, schema, metadata)
        if c_data.has_c_stream(data):
            raise TypeMismatchError(
                f"expected one record batch, found a {type(data).__name__}, which can have several: use bowstring.table"
            )
    if is_sequence_of_rows(data, has_schema=schema is not None):
        return rows_to_batch(data, schema, metadata)
    columns, batch_schema = build_columns_and_schema(data, schema, names, metadata)
    arrays = tuple([c.combine_chunks() if isinstance(c, ChunkedArray) else c for c in columns])
    return RecordBatch(batch_schema, arrays[0].length if arrays else 0, arrays)


Columns = TypeVar("Columns", bound=ColumnContainer[Any])


def adapt_columns(columns: Columns, schema: SchemaLike | None, metadata: MetadataLike) -> Columns:
    """Return a batch or a table with the columns and types of a schema, and with other custom metadata.

    The metadata of pandas is kept. Raises `InvalidArgumentError` for columns of the schema that are missing.
    """
    if schema is not None:
        schema = as_schema(schema)
        if schema.names != columns.schema.names:
            _check_no_column_is_missing(schema, columns.schema)
            columns = columns.select(schema.names)
        columns = columns._with_schema(schema) if columns.schema == schema else columns.cast(schema)
    if metadata is not None:
        pandas_pairs = tuple(pair for pair in columns.schema.pairs if pair[0] == PANDAS_KEY)
        columns = columns._with_schema(columns.schema.with_metadata((*as_metadata(metadata), *pandas_pairs)))
    return columns


def separate_names_and_schema(names: Any, schema: SchemaLike | None) -> tuple[Sequence[str] | None, SchemaLike | None]:
    """Return names, and the schema, which may be in their place, as in pyarrow."""
    if names is None or schema is not None:
        return names, schema
    is_schema = isinstance(names, str | Mapping) or hasattr(names, "__arrow_c_schema__")
    if not is_schema and isinstance(names, Iterable):
        names = list(names)
        if all(isinstance(name, str) for name in names):
            return names, None
    return None, names


def check_names_fit(data: Any, names: Sequence[str] | None) -> None:
    """Raise `InvalidArgumentError` if there are `names` for columns that already have names. A stream is not read."""
    if names is None:
        return
    is_table = isinstance(data, Mapping) or is_pandas_object(data) or c_data.has_c_array(data)
    if is_table or c_data.has_c_stream(data) or is_sequence_of_rows(data):
        raise InvalidArgumentError(
            "`names` are for a sequence of columns; these columns have names: rename them with rename_columns, or "
            "select them by `schema`"
        )


def _check_no_column_is_missing(schema: Schema, names: Container[str]) -> None:
    missing = [name for name in schema.names if name not in names]
    if missing:
        raise InvalidArgumentError(f"the data lacks columns of the schema: {missing}")


def is_sequence_of_rows(data: Any, *, has_schema: bool = False) -> bool:
    """Whether data is a list or tuple of rows, which are mappings. With a schema, it may be empty."""
    if not isinstance(data, (list, tuple)) or not data:
        return isinstance(data, (list, tuple)) and has_schema
    return {dict}.issuperset(map(type, data)) or all(isinstance(row, Mapping) for row in data)


def rows_to_batch(rows: Any, schema: SchemaLike | None, metadata: MetadataLike) -> RecordBatch:
    """Convert rows to a batch. Raises `TypeMismatchError` if a value does not fit its type."""
    schema = None if schema is None else as_schema(schema)
    if schema is not None and not set(schema.names).issuperset(chain.from_iterable(rows)):
        rows = [{name: row.get(name) for name in schema.names} for row in rows]
    structs = array(rows, None if schema is None else types.Struct(schema.fields))
    row_schema = schema or Schema(tuple(Field(f.name, f.type) for f in structs.type.fields))
    if metadata is not None:
        row_schema = row_schema.with_metadata(metadata)
    _check_required_columns(row_schema, structs.children)
    return RecordBatch(row_schema, len(rows), structs.children)


def build_columns_and_schema(
    data: Any, schema: SchemaLike | None, names: Sequence[str] | None, metadata: MetadataLike = None
) -> tuple[list[Any], Schema]:
    """Create columns of a mapping, or of a sequence with names or a schema; return them and their schema."""
    if schema is not None:
        schema = as_schema(schema)
    if isinstance(data, str | bytes) or not hasattr(data, "__len__"):
        raise TypeMismatchError(f"expected columns by name, or a sequence of columns, not {type(data).__name__}")
    if isinstance(data, np.ndarray):
        raise TypeMismatchError(
            f"expected a sequence of columns, found a NumPy array of shape {data.shape} and dtype {data.dtype}: a "
            "matrix has the columns list(matrix.T), and bowstring.array converts a structured array"
        )
    if isinstance(data, Mapping):
        if schema is not None:
            _check_no_column_is_missing(schema, data)
            data = [data[name] for name in schema.names]
        else:
            names, data = list(data), list(data.values())
    columns, schema = convert_columns(data, schema, names, metadata)
    _check_required_columns(schema, columns)
    return columns, schema


def convert_columns(
    data: Sequence[Any], schema: SchemaLike | None, names: Sequence[str] | None, metadata: MetadataLike = None
) -> tuple[list[Any], Schema]:
    """Create columns of a sequence with names or a schema; return them and their schema. Raises as `table`."""
    if isinstance(data, str | bytes) or not isinstance(data, Iterable):
        raise TypeMismatchError(f"expected a sequence of columns, not {type(data).__name__}")
    data = [as_chunked_array(each) if _has_chunks(each) else each for each in data]
    if schema is not None:
        if names is not None:
            raise InvalidArgumentError("expected `names` or a `schema`, found both")
        schema = as_schema(schema)
        if len(schema) != len(data):
            raise InvalidArgumentError(f"a schema of {len(schema)} fields does not fit {len(data)} columns")
        names = schema.names
    elif names is None or len(names) != len(data):
        raise InvalidArgumentError(f"{len(data)} columns need as many names, or a schema")
    columns: list[Any] = []
    for name, values, type_ in zip(names, data, [None] * len(data) if schema is None else schema.types, strict=True):
        check_field_name(name)
        if isinstance(values, Array | ChunkedArray) and type_ in (None, values.type):
            columns.append(values)
            continue
        with prefix_errors(f"column {name!r}"):
            if isinstance(values, ChunkedArray) and type_ is not None:
                columns.append(values.cast(type_))
            else:
                columns.append(array(values, type_))
    for name, column in zip(names, columns, strict=True):
        if len(column) != len(columns[0]):
            raise InvalidArgumentError(
                f"column {name!r} has {len(column)} values, the first column has {len(columns[0])}"
            )
    if schema is None:
        schema = Schema(tuple(Field(name, column.type) for name, column in zip(names, columns, strict=True)))
    return columns, schema if metadata is None else schema.with_metadata(metadata)


def _has_chunks(values: Any) -> bool:
    """Whether values are a column of another library that may have several chunks."""
    if isinstance(values, list | tuple | np.ndarray | ArrayData | ChunkedArray) or is_pandas_object(values):
        return False
    return c_data.has_c_stream(values)


def _check_required_columns(schema: Schema, columns: Sequence[Array | ChunkedArray]) -> None:
    """Raise `TypeMismatchError` if a column of a field that is not nullable has nulls."""
    for field, column in zip(schema.fields, columns, strict=True):
        if not field.nullable:
            with prefix_errors(f"column {field.name!r}"):
                for chunk in column.chunks if isinstance(column, ChunkedArray) else (column,):
                    check_no_nulls(chunk)


def as_batch(source: object) -> RecordBatch:
    """Return a record batch unchanged, or import one of another library.

    Raises `TypeMismatchError` for any other object.
    """
    if isinstance(source, RecordBatch):
        return source
    if c_data.has_c_array(source):
        return import_batch(source)
    raise TypeMismatchError(
        f"expected a record batch, or an object with __arrow_c_array__, found {type(source).__name__}"
    )


def import_batch(source: object) -> RecordBatch:
    """Import a record batch of another library. Raises as `c_data.import_batch`."""
    schema, (num_rows, columns) = c_data.import_batch(source)
    return RecordBatch(schema, num_rows, as_arrays(columns))


def import_stream(source: object) -> tuple[Schema, Iterator[RecordBatch]]:
    """Import the schema and the batches of a stream of another library. Raises as `c_data.import_stream`."""
    schema, batches = c_data.import_stream(source)
    return schema, (RecordBatch(schema, num_rows, as_arrays(columns)) for num_rows, columns in batches)

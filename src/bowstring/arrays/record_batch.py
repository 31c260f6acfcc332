"""Record batches: «an ordered collection of arrays, each having the same length», with a schema."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

from bowstring.arrays import display
from bowstring.arrays.column_container import ColumnContainer
from bowstring.compute.filter import MaskLike, mask_to_indices
from bowstring.compute.nulls import check_no_nulls
from bowstring.compute.sort import NullPlacement, Order, sort_rows
from bowstring.datatypes.field import (
    Field,
    Metadata,
    MetadataLike,
    Schema,
    SchemaLike,
    as_metadata,
    as_schema,
    check_name,
)
from bowstring.errors import InvalidDataError, UsageError
from bowstring.layouts.array import Array, as_array
from bowstring.layouts.base import Indices, Values, error_context
from bowstring.layouts.indexing import check_indices, clip_slice
from bowstring.layouts.struct_ import columns_to_rows

if TYPE_CHECKING:
    from bowstring.arrays.chunked_array import ChunkedArray


class RecordBatch(ColumnContainer):
    """Columns of one length, with a schema; immutable.

    `columns` may be any sequence: a reader hands in one that makes an array when it is asked for. `pairs` is the custom
    metadata of the message that the batch came in or will go out with.
    """

    __slots__ = ("num_rows", "pairs", "schema", "source")

    schema: Schema

    def __init__(self, schema: Schema, num_rows: int, columns: Sequence[Array], pairs: Metadata = ()) -> None:
        self.schema = schema
        self.num_rows = num_rows
        self.source = columns
        """The sequence of columns; that of a reader creates arrays on first access."""
        self.pairs = pairs

    @classmethod
    def from_arrays(
        cls, arrays: Sequence[Array], names: Sequence[str] | None = None, schema: SchemaLike | None = None
    ) -> RecordBatch:
        """Create a batch of arrays with names or a schema; nothing is copied.

        Raises `UsageError` if lengths, number or types do not agree.
        """
        arrays = [as_array(array) for array in arrays]
        schema = resolve_schema(arrays, names, schema)
        return cls(schema, arrays[0].length if arrays else 0, tuple(arrays))

    @classmethod
    def from_pandas(cls, df: Any, schema: SchemaLike | None = None, preserve_index: bool | None = None) -> RecordBatch:
        """Convert a pandas DataFrame. The schema's metadata describes index, labels and dtypes.

        The index becomes the last columns; a RangeIndex is stored as metadata only (`preserve_index=True` stores it as
        a column, False drops the index). A `schema` selects columns and their types. Shares the memory of numbers and
        timestamps. Raises `DataTypeError`, naming the column, for values that do not fit one type,
        `UsageError` where the schema wants other columns.
        """
        from bowstring.interop.pandas.from_pandas import batch_from_frame

        return batch_from_frame(df, schema, preserve_index)

    @property
    def num_columns(self) -> int:
        """The number of columns."""
        return len(self.source)

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        return self.num_rows, self.num_columns

    @property
    def column_names(self) -> list[str]:
        """The names of the columns."""
        return self.schema.names

    @property
    def columns(self) -> list[Array]:
        """All columns."""
        return list(self.source)

    @property
    def custom_metadata(self) -> dict[bytes, bytes]:
        """The custom metadata of the batch's message."""
        return dict(self.pairs)

    @property
    def nbytes(self) -> int:
        """The size of the values in bytes, like `Array.nbytes`."""
        return sum(column.nbytes for column in self.source)

    def column(self, key: int | str) -> Array:
        """Return a column by index or name. Raises `NotFoundError`."""
        return self.source[self.schema.index(key)]

    def with_metadata(self, metadata: MetadataLike) -> RecordBatch:
        """Replace the custom metadata of the batch's message: a mapping or pairs of strings or bytes.

        Raises `UsageError` for anything else.
        """
        return RecordBatch(self.schema, self.num_rows, self.source, as_metadata(metadata))

    def select(self, keys: str | int | Iterable[str | int]) -> RecordBatch:
        """Select columns by name or index, in this order; nothing is copied."""
        indices = self.schema.indices(keys)
        return self._select_columns(self.schema.select(indices), indices)

    def _select_columns(self, schema: Schema, indices: list[int]) -> RecordBatch:
        return RecordBatch(schema, self.num_rows, _SelectedColumns(self.source, indices), self.pairs)

    def slice(self, offset: int = 0, length: int | None = None) -> RecordBatch:
        """Select `length` rows from row `offset` (default: to the end); nothing is copied."""
        offset, length = clip_slice(offset, length, self.num_rows)
        return RecordBatch(self.schema, length, _SlicedColumns(self.source, offset, length), self.pairs)

    def take(self, indices: Sequence[int] | Values | Array) -> RecordBatch:
        """The rows at `indices`, copied, like `Array.take`."""
        return self._take_rows(check_indices(indices, self.num_rows))

    def filter(self, mask: MaskLike | ChunkedArray) -> RecordBatch:
        """The rows at which `mask` is true, copied, like `Array.filter`."""
        return self._take_rows(mask_to_indices(combine_if_chunked(mask), self.num_rows))

    def sort_by(
        self, sorting: str | Sequence[tuple[str, Order]], null_placement: NullPlacement = "at_end"
    ) -> RecordBatch:
        """Sort rows by one column, or by (name, "ascending" or "descending") pairs; stable. Copies.

        Raises `NotFoundError` for an unknown column, `DataTypeError` for one whose type has no order.
        """
        keys = [(self.column(name), order) for name, order in parse_sorting(sorting)]
        return self._take_rows(sort_rows(keys, null_placement))

    def cast(self, target_schema: SchemaLike, safe: bool = True) -> RecordBatch:
        """The columns as those of another schema with the same names, like `Array.cast`; the error names the column.

        Raises `UsageError` if the names differ.
        """
        target_schema = check_target_schema(self.schema, target_schema)
        columns = []
        for field, column in zip(target_schema, self.source, strict=True):
            with error_context(f"column {field.name!r}"):
                columns.append(column.cast(field.type, safe))
                if not field.nullable:
                    check_no_nulls(columns[-1])
        return RecordBatch(target_schema, self.num_rows, columns, self.pairs)

    def _take_rows(self, indices: Indices) -> RecordBatch:
        columns = [column.layout.take(column, indices) for column in self.source]
        return RecordBatch(self.schema, len(indices), columns, self.pairs)

    def _with_schema(self, schema: Schema) -> RecordBatch:
        return RecordBatch(schema, self.num_rows, self.source, self.pairs)

    def _splice_column(self, schema: Schema, index: int, num_dropped: int, column: Array | ChunkedArray) -> RecordBatch:
        columns = _SplicedColumns(self.source, index, num_dropped, combine_if_chunked(column))
        return RecordBatch(schema, len(column), columns, self.pairs)

    def to_pydict(self) -> dict[str, list[Any]]:
        """Convert to lists of Python values by column name. Raises `UsageError` if two columns share a name."""
        names = distinct_names(self.schema)
        return {name: column.to_pylist() for name, column in zip(names, self.source, strict=True)}

    def to_pylist(self) -> list[dict[str, Any]]:
        """Convert to rows, as dictionaries of Python values. Raises `UsageError` if two columns share a name."""
        names = distinct_names(self.schema)
        return columns_to_rows(names, [column.to_pylist() for column in self.source], self.num_rows)

    def equals(self, other: Any, check_metadata: bool = False, nans_equal: bool = False) -> bool:
        """Whether schemas and values are the same. The other may be one of another library (PyCapsule interface)."""
        from bowstring.arrays.construction import as_batch

        other = as_batch(other)
        return (
            self.num_rows == other.num_rows
            and self.schema.equals(other.schema, check_metadata)
            and all(a.equals(b, nans_equal) for a, b in zip(self.source, other.source, strict=True))
        )

    def __eq__(self, other: object) -> bool:
        return self.equals(other) if isinstance(other, RecordBatch) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def validate(self, full: bool = False) -> None:
        """Check every column, like `Array.validate`; the message of the `InvalidDataError` names the column."""
        for index, field in enumerate(self.schema):
            with error_context(f"column {field.name!r}"):
                column = self.source[index]
                if column.length != self.num_rows or column.type != field.type:
                    raise InvalidDataError(
                        f"is {column.type}[{column.length}], the batch says {field.type}[{self.num_rows}]"
                    )
                column.validate(full)

    def __len__(self) -> int:
        return self.num_rows

    def __getitem__(self, key: int | str) -> Array:
        return self.column(key)

    def __repr__(self) -> str:
        return f"<bowstring.RecordBatch {self.num_rows} rows x {self.num_columns} columns>\n{self.schema}"

    def _repr_html_(self) -> str:
        return display.html(self)

    def __arrow_c_schema__(self) -> object:
        from bowstring.interop import c_data

        return c_data.export_schema(self.schema)

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        from bowstring.interop import c_data

        return c_data.export_batch(self, requested_schema)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        from bowstring.interop import c_data

        return c_data.export_stream(self.schema, [self], requested_schema)

    def __arrow_c_device_array__(self, requested_schema: object = None, **options: object) -> tuple[object, object]:
        from bowstring.interop import c_data

        return c_data.export_device_batch(self, requested_schema, options)

    def __arrow_c_device_stream__(self, requested_schema: object = None, **options: object) -> object:
        from bowstring.interop import c_data

        return c_data.export_device_stream(self.schema, [self], requested_schema, options)

    def __reduce__(self) -> tuple[Any, ...]:
        return RecordBatch, (self.schema, self.num_rows, self.columns, self.pairs)


def combine_if_chunked(values: Any) -> Any:
    """Combine a chunked array into one array; return anything else unchanged."""
    from bowstring.arrays.chunked_array import ChunkedArray

    return values.combine_chunks() if isinstance(values, ChunkedArray) else values


def parse_sorting(sorting: str | Sequence[tuple[str, Order]]) -> Sequence[tuple[str, Order]]:
    """Return (name, order) pairs; a single name sorts ascending. Raises `UsageError` for anything else."""
    try:
        return [(sorting, "ascending")] if isinstance(sorting, str) else [(name, order) for name, order in sorting]
    except (TypeError, ValueError):
        raise UsageError(f"sort_by: a column's name, or pairs of names and orders, not {sorting!r:.100}") from None


def check_target_schema(schema: Schema, target: SchemaLike) -> Schema:
    """The schema that columns are cast to; raises `UsageError` if their names differ, or it is none."""
    target = as_schema(target, "cast")
    if schema.names != target.names:
        raise UsageError(f"cast: the columns are {schema.names}, the schema has {target.names}")
    return target


def distinct_names(schema: Schema) -> list[str]:
    """Return the column names. Raises `UsageError` if two columns have the same name."""
    names = schema.names
    if len(set(names)) < len(names):
        duplicate = next(name for name in names if names.count(name) > 1)
        raise UsageError(f"{names.count(duplicate)} columns are called {duplicate!r}: take them by index")
    return names


def resolve_schema(
    columns: Sequence[Array | ChunkedArray], names: Sequence[str] | None, schema: SchemaLike | None
) -> Schema:
    """The schema for columns, which is given or made of names; raises `UsageError` if it does not fit them, or they
    are not of one length.
    """
    if schema is None:
        if names is None or len(names) != len(columns):
            raise UsageError(f"{len(columns)} columns need as many names, or a schema")
        for name in names:
            check_name(name)
        schema = Schema(tuple(Field(name, column.type) for name, column in zip(names, columns, strict=True)))
    schema = as_schema(schema)
    if len(schema) != len(columns):
        raise UsageError(f"a schema of {len(schema)} fields does not fit {len(columns)} columns")
    rows = len(columns[0]) if columns else 0
    for field, column in zip(schema.fields, columns, strict=True):
        if len(column) != rows:
            raise UsageError(f"column {field.name!r} has {len(column)} values, the first column has {rows}")
        actual, expected = column.type, field.type
        if actual is not expected and actual != expected:
            raise UsageError(f"column {field.name!r} is {actual}, its field says {expected}")
    return schema


class _LazyColumns(Sequence["Array"]):
    """Columns derived from other columns on access."""

    __slots__ = ("_base",)

    def __init__(self, base: Sequence[Array]) -> None:
        self._base = base

    def __len__(self) -> int:
        return len(self._base)

    def _column_at(self, index: int) -> Array:
        return self._base[index]

    @overload
    def __getitem__(self, index: int) -> Array: ...
    @overload
    def __getitem__(self, index: slice) -> list[Array]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self._column_at(i) for i in range(*index.indices(len(self)))]
        return self._column_at(range(len(self))[index])

    def __iter__(self) -> Iterator[Array]:
        return (self._column_at(index) for index in range(len(self)))


class _SelectedColumns(_LazyColumns):
    __slots__ = ("_indices",)

    def __init__(self, base: Sequence[Array], indices: list[int]) -> None:
        super().__init__(base)
        self._indices = indices

    def __len__(self) -> int:
        return len(self._indices)

    def _column_at(self, index: int) -> Array:
        return self._base[self._indices[index]]


class _SlicedColumns(_LazyColumns):
    __slots__ = ("_length", "_offset")

    def __init__(self, base: Sequence[Array], offset: int, length: int) -> None:
        super().__init__(base)
        self._offset = offset
        self._length = length

    def _column_at(self, index: int) -> Array:
        return self._base[index].slice(self._offset, self._length)


class _SplicedColumns(_LazyColumns):
    __slots__ = ("_added", "_at_index", "_dropped")

    def __init__(self, base: Sequence[Array], at: int, dropped: int, added: Array) -> None:
        super().__init__(base)
        self._at_index = at
        self._dropped = dropped
        self._added = added

    def __len__(self) -> int:
        return len(self._base) + 1 - self._dropped

    def _column_at(self, index: int) -> Array:
        if index == self._at_index:
            return self._added
        return self._base[index if index < self._at_index else index - 1 + self._dropped]

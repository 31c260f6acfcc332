"""The methods shared by record batches and tables: adding, removing and renaming columns, without copying."""

from __future__ import annotations

import builtins
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, Self, TypeAlias, TypeVar, overload

import numpy as np

from bowstring.arrays.array import Array, as_nullable_indices
from bowstring.arrays.chunked_array import ChunkedArray, as_chunked_array, combine_if_chunked
from bowstring.arrays.construction import array
from bowstring.arrays.preview import preview_as_html
from bowstring.datatypes.conversion import import_field_if_foreign
from bowstring.datatypes.field import Field, MetadataLike, check_field_name
from bowstring.datatypes.schema import Schema, SchemaLike
from bowstring.datatypes.types import Struct
from bowstring.errors import InvalidArgumentError, NotFoundError, TypeMismatchError, WouldCopyError
from bowstring.interop import c_data
from bowstring.interop.c_array import AbstractRecordBatch, ColumnarBatch
from bowstring.interop.pandas import frame_to_batches, to_frame
from bowstring.interop.pyarrow_arrays import to_interchange_frame, to_narwhals_frame
from bowstring.kernels.chunked_array_data import combine_with_wider_indices
from bowstring.kernels.filter import MaskLike, NullSelection
from bowstring.kernels.sort import NullPlacement, Order, lexsort_to_indices
from bowstring.layouts.base import Indices, Values, to_object_array, total_buffer_size
from bowstring.layouts.expansion_limits import check_expanded_values
from bowstring.layouts.indexing import to_integer

SortKey: TypeAlias = tuple[str, Order] | tuple[str, Order, NullPlacement]
"""The name of a column, its order and the place of its nulls."""


Column_co = TypeVar("Column_co", bound=Array | ChunkedArray, covariant=True)


class ColumnContainer(ABC, Generic[Column_co]):
    """Columns of equal length, with a schema."""

    __slots__ = ("__weakref__",)

    num_rows: int

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """The names and types of the columns."""

    @abstractmethod
    def select(self, keys: str | int | Iterable[str | int]) -> Self:
        """Select columns by name or index, in this order; nothing is copied.

        >>> bs.table({"a": [1], "b": [2], "c": [3]}).select(["c", "a"]).column_names
        ['c', 'a']
        """

    @classmethod
    def from_pydict(
        cls, mapping: Mapping[str, Any], schema: SchemaLike | None = None, metadata: MetadataLike = None
    ) -> Self:
        """Create columns by name, as `bowstring.table` and `bowstring.record_batch`.

        >>> bs.Table.from_pydict({"n": [1, None]}, schema=bs.schema({"n": "int8"})).schema
        Schema(n: int8)
        """
        if not isinstance(mapping, Mapping):
            raise TypeMismatchError(f"from_pydict: expected columns by name, found {type(mapping).__name__}")
        return cls._from_columns_or_rows(mapping, schema, metadata)

    @classmethod
    def from_pylist(
        cls, mapping: Sequence[Mapping[str, Any]], schema: SchemaLike | None = None, metadata: MetadataLike = None
    ) -> Self:
        """Convert rows, as `bowstring.table` and `bowstring.record_batch`.

        Without rows and a schema, there are no columns.

        >>> bs.Table.from_pylist([{"n": 1, "s": "a"}, {"n": 2}]).to_pydict()
        {'n': [1, 2], 's': ['a', None]}
        """
        rows = list(mapping)
        if not all(isinstance(row, Mapping) for row in rows):
            raise TypeMismatchError("from_pylist: expected a sequence of mappings")
        return cls._from_columns_or_rows(rows, Schema(()) if schema is None and not rows else schema, metadata)

    @classmethod
    def from_pandas(
        cls, df: Any, schema: SchemaLike | None = None, preserve_index: bool | None = None, **options: Any
    ) -> Self:
        """Convert a pandas DataFrame by pyarrow, with the options of its `Table.from_pandas`, such as `safe=False`.

        The schema's metadata describes index, labels and dtypes. The index becomes the last columns; a RangeIndex is
        stored as metadata only (`preserve_index=True` stores it as a column, False drops the index). A `schema` selects
        columns and their types. Shares the memory of numbers and timestamps. Raises `TypeMismatchError`, naming the
        column, if its values do not fit one type, and `InvalidArgumentError` if the frame lacks columns of the schema,
        or has labels of equal text.

        >>> import pandas as pd
        >>> bs.Table.from_pandas(pd.DataFrame({"n": [1, 2]})).to_pydict()
        {'n': [1, 2]}
        >>> bs.RecordBatch.from_pandas(pd.DataFrame({"n": [1, 2]})).to_pydict()
        {'n': [1, 2]}
        """
        options["preserve_index"] = preserve_index
        return cls._from_columnar_batches(*frame_to_batches(df, schema, options))

    @classmethod
    @abstractmethod
    def _from_columnar_batches(cls, schema: Schema, batches: Sequence[ColumnarBatch]) -> Self:
        """Create a container of one or more imported batches."""

    @classmethod
    @abstractmethod
    def _from_columns_or_rows(cls, data: Any, schema: SchemaLike | None, metadata: MetadataLike) -> Self:
        """Create a container of columns by name, or of rows."""

    @abstractmethod
    def cast(self, target_schema: SchemaLike, safe: bool = True) -> Self:
        """Cast the columns to the types of a schema with the same names. Errors name the column."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """The size of the values in bytes, as `Array.nbytes`."""

    @property
    @abstractmethod
    def columns(self) -> Sequence[Column_co]:
        """All columns."""

    @abstractmethod
    def column(self, key: int | str) -> Column_co:
        """Return a column by index or name. Raises `NotFoundError`.

        >>> bs.record_batch({"n": [1, None]}).column("n")
        <bowstring.Array int64[2]>
        [1, null]
        """

    @abstractmethod
    def slice(self, offset: int = 0, length: int | None = None) -> Self:
        """Select `length` rows from row `offset` (default: to the end); nothing is copied.

        >>> bs.table({"n": [1, 2, 3]}).slice(1, 1)["n"].to_pylist()
        [2]
        """

    @abstractmethod
    def equals(self, other: object, check_metadata: bool = False, nans_equal: bool = False) -> bool:
        """Return whether schemas and values are equal."""

    @property
    def num_columns(self) -> int:
        """The number of columns."""
        return len(self.schema)

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        return self.num_rows, self.num_columns

    @property
    def column_names(self) -> list[str]:
        """The names of the columns."""
        return self.schema.names

    def itercolumns(self) -> Iterator[Column_co]:
        """Iterate over the columns.

        >>> [column.to_pylist() for column in bs.table({"a": [1, 2], "b": ["x", None]}).itercolumns()]
        [[1, 2], ['x', None]]
        """
        return iter(self.columns)

    def head(self, n: int = 5) -> Self:
        """Select the first `n` rows; nothing is copied.

        >>> bs.table({"n": range(100)}).head(3)["n"].to_pylist()
        [0, 1, 2]
        """
        return self.slice(0, max(to_integer("head: the number of rows", n), 0))

    def tail(self, n: int = 5) -> Self:
        """Select the last `n` rows; nothing is copied.

        >>> bs.table({"n": range(100)}).tail(2)["n"].to_pylist()
        [98, 99]
        """
        count = min(max(to_integer("tail: the number of rows", n), 0), self.num_rows)
        return self.slice(self.num_rows - count, count)

    def drop_null(self) -> Self:
        """Return the rows without a null in any column, copied. Nulls are as in `Array.is_null`.

        >>> bs.table({"n": [1, None, 3], "s": ["a", "b", None]}).drop_null().to_pydict()
        {'n': [1], 's': ['a']}
        """
        valid = np.ones(self.num_rows, np.bool_)
        for column in self.columns:
            valid &= np.asarray(column.is_valid(), np.bool_)
        return self._take_rows(np.flatnonzero(valid))

    def flatten(self) -> Self:
        """Replace each column of structs by its fields, named ``column.field``; a null struct has null fields.

        Fields that are structs are not flattened.

        >>> bs.table({"point": [{"x": 1, "y": 2}, None]}).flatten().to_pydict()
        {'point.x': [1, None], 'point.y': [2, None]}
        """
        flattened = self
        # From the last column on, so that the indices of the columns before it stay the same.
        for index in reversed(range(self.num_columns)):
            field = self.schema.field(index)
            if not isinstance(field.type, Struct):
                continue
            column = as_chunked_array(self.column(index))
            chunks = [chunk.flatten() for chunk in column.chunks]
            flattened = flattened.remove_column(index)
            for position, child in enumerate(field.type.fields):
                values = ChunkedArray([fields[position] for fields in chunks], child.type)
                name = f"{field.name}.{child.name}"
                new_field = Field(name, child.type, child.nullable or field.nullable, child.pairs)
                flattened = flattened.add_column(index + position, new_field, values)
        return flattened

    def field(self, i: int | str) -> Field:
        """Return the field of a column by index or name. Raises `NotFoundError`.

        >>> bs.table({"n": [1]}).field("n")
        Field(n: int64)
        """
        return self.schema.field(i)

    def get_total_buffer_size(self) -> int:
        """Return the size of all buffers in bytes. A slice counts its whole buffers; shared buffers count once.

        >>> bs.table({"n": [1, 2, 3, 4]}).slice(2).get_total_buffer_size()
        32
        """
        columns = map(as_chunked_array, self.columns)
        return total_buffer_size(chunk for column in columns for chunk in column.chunks)

    def to_pydict(self) -> dict[str, list[Any]]:
        """Convert to lists of Python values by column name.

        Raises `InvalidArgumentError` if two columns share a name.

        >>> bs.table({"n": [1, None], "s": ["a", "b"]}).to_pydict()
        {'n': [1, None], 's': ['a', 'b']}
        """
        names = get_distinct_names(self.schema)
        return {name: column.to_pylist() for name, column in zip(names, self.columns, strict=True)}

    def __eq__(self, other: object) -> bool:
        return self.equals(other) if isinstance(other, type(self)) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        return self.num_rows

    def __iter__(self) -> Iterator[Column_co]:
        """Iterate over the columns."""
        return iter(self.columns)

    def __contains__(self, column: object) -> bool:
        """Whether a column is equal to this one. Raises `InvalidArgumentError` for a name."""
        if isinstance(column, str):
            raise InvalidArgumentError(f"the elements are columns, not names: use {column!r} in column_names")
        return column in self.columns

    def to_pandas(self, **options: Any) -> Any:
        """Return the columns as a pandas frame. pyarrow converts them, with the options of its `to_pandas`.

        Index, labels and dtypes are restored if the schema's metadata describes them. Raises as `Array.to_pandas`, and
        `InvalidDataError` for malformed metadata, which `ignore_metadata=True` ignores.

        >>> bs.table({"n": [1, 2]}).to_pandas()["n"].sum().item()
        3
        """
        return to_frame(self.schema, self._record_batches(), options)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Values:
        """Return the values as a NumPy array of shape (rows, columns), copied; nulls as by `Array.__array__`.

        Its type is `dtype`, or NumPy's common type of all columns, or Python objects if there is none. Raises
        `WouldCopyError` with `copy=False`.
        """
        if copy is False:
            raise WouldCopyError("columns can't be converted to one NumPy array without a copy")
        parts = [np.asarray(column, dtype) for column in self.columns]
        # NumPy arrays of fixed-size lists and tensors have more dimensions: here each element is one object.
        parts = [
            part if part.ndim == 1 else to_object_array(column.to_pylist())
            for part, column in zip(parts, self.columns, strict=True)
        ]
        out = np.empty((self.num_rows, len(parts)), np.dtype(dtype) if dtype is not None else _common_dtype(parts))
        for index, part in enumerate(parts):
            out[:, index] = part
        return out

    def __dataframe__(self, nan_as_null: bool = False, allow_copy: bool = True) -> Any:
        """Return the rows by the protocol that plotting libraries use (`bowstring.interop.pyarrow_arrays`)."""
        return to_interchange_frame(self, nan_as_null, allow_copy)

    def __narwhals_dataframe__(self) -> Any:
        return to_narwhals_frame(self)

    def _repr_html_(self) -> str:
        return preview_as_html(self)

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return c_data.export_stream(self.schema, self._record_batches(), requested_schema)

    def __arrow_c_device_stream__(self, requested_schema: object = None, **options: object) -> object:
        return c_data.export_stream(self.schema, self._record_batches(), requested_schema, options)

    def take(self, indices: Sequence[int | None] | Values | Array | ChunkedArray) -> Self:
        """Return the rows at `indices`, copied, in one batch, as `Array.take`. The row of a null has only nulls.

        >>> bs.table({"s": ["a", "b", "c"]}).take([2, 0])["s"].to_pylist()
        ['c', 'a']
        """
        checked_indices, is_null = as_nullable_indices(combine_if_chunked(indices), self.num_rows)
        if is_null is None:
            return self._take_rows(checked_indices)
        nullable_indices = array(checked_indices, mask=is_null)
        return self._from_columns([column.take(nullable_indices) for column in self.columns])

    def sort_by(self, sorting: str | Sequence[SortKey], null_placement: NullPlacement = "at_end") -> Self:
        """Sort rows by one column, or by (name, "ascending" or "descending") pairs; stable. Copies into one batch.

        A third member of a pair, "at_start" or "at_end", places the nulls of its column.

        Raises `NotFoundError` for an unknown column, and `TypeMismatchError` if its type has no order.

        >>> table = bs.table({"s": ["b", "a", "a"], "n": [1, 2, 3]})
        >>> table.sort_by([("s", "ascending"), ("n", "descending")]).to_pydict()
        {'s': ['a', 'a', 'b'], 'n': [3, 2, 1]}
        """
        keys = [
            (combine_with_wider_indices(as_chunked_array(self.column(name))), order, placement)
            for name, order, placement in _parse_sorting(sorting, null_placement)
        ]
        return self._take_rows(lexsort_to_indices(keys))

    @abstractmethod
    def _record_batches(self) -> Sequence[AbstractRecordBatch]:
        """Return the record batches."""

    @overload
    def __getitem__(self, key: int | str) -> Column_co: ...
    @overload
    def __getitem__(self, key: builtins.slice | list[str] | MaskLike | ChunkedArray) -> Self: ...
    def __getitem__(self, key: Any) -> Column_co | Self:
        """Return a column by index or name, the columns of a list of names, or the rows of a slice or boolean mask."""
        if isinstance(key, builtins.slice):
            start, stop, step = key.indices(self.num_rows)
            if step == 1:
                return self.slice(start, max(stop - start, 0))
            check_expanded_values(len(range(start, stop, step)), self.nbytes * 8)
            return self._take_rows(np.arange(start, stop, step, dtype=np.int64))
        if isinstance(key, list) and all(isinstance(name, str) for name in key):
            return self.select(key)
        is_mask = isinstance(key, list) or (hasattr(key, "__array__") and not isinstance(key, np.generic))
        return self.filter(key) if is_mask else self.column(key)

    @abstractmethod
    def filter(self, mask: Any, *, null_selection_behavior: NullSelection = "drop") -> Self:
        """Return the rows at which `mask` is true, or that match filters, copied."""

    @abstractmethod
    def _from_columns(self, columns: list[Any]) -> Self:
        """Create a container of this schema with other columns."""

    @abstractmethod
    def _take_rows(self, indices: Indices) -> Self:
        """Return the rows at checked indices, copied, in one batch."""

    @abstractmethod
    def _with_schema(self, schema: Schema) -> Self:
        """Return the columns with another schema of the same types."""

    def replace_schema_metadata(self, metadata: MetadataLike = None) -> Self:
        """Return the columns with other custom metadata in the schema.

        >>> bs.table({"n": [1]}).replace_schema_metadata({"unit": "m"}).schema.metadata
        {b'unit': b'm'}
        """
        return self._with_schema(self.schema.with_metadata(metadata))

    @abstractmethod
    def _splice_column(self, schema: Schema, index: int, num_dropped: int, column: Array | ChunkedArray) -> Self:
        """Replace `num_dropped` columns from column `index` on by `column`."""

    def rename_columns(self, names: Sequence[str] | Mapping[str, str]) -> Self:
        """Rename all columns by a sequence of names, or some by a mapping from old to new names.

        Raises `InvalidArgumentError` for a different number of names than columns, and `NotFoundError` unless exactly
        one column has an old name.

        >>> bs.table({"a": [1], "b": [2]}).rename_columns({"a": "first"}).column_names
        ['first', 'b']
        """
        fields = list(self.schema)
        if isinstance(names, Mapping):
            new_name_by_index = {self.schema.index(old): new for old, new in names.items()}
            new_names = [new_name_by_index.get(index, f.name) for index, f in enumerate(fields)]
        else:
            new_names = [names] if isinstance(names, str) else list(names)
        if len(new_names) != len(fields):
            raise InvalidArgumentError(f"rename_columns: {len(new_names)} names for {len(fields)} columns")
        for name in new_names:
            check_field_name(name)
        new_fields = tuple(f.with_name(name) for f, name in zip(fields, new_names, strict=True))
        return self._with_schema(Schema(new_fields, self.schema.pairs))

    # `column` has a default so that a call without it, or without the index, is rejected by a message about columns.

    def add_column(self, i: int, field_: str | Field, column: Any = None) -> Self:
        """Insert `column` before column `i`: an array, a chunked array, or anything that `bowstring.array` accepts.

        The field may be one of another library. Raises `InvalidArgumentError` if the length or type does not fit, and
        `NotFoundError` if `i` is out of range.

        >>> bs.table({"b": [1, 2]}).add_column(0, "a", ["x", None]).to_pydict()
        {'a': ['x', None], 'b': [1, 2]}
        """
        count = len(self.schema)
        i = to_integer("add_column: the index of a column", i)
        if not -count <= i <= count:
            raise NotFoundError(f"add_column: index {i} is out of range for {count} columns")
        return self._add_or_replace_column(i + count if i < 0 else i, 0, field_, column)

    def append_column(self, field_: str | Field, column: Any = None) -> Self:
        """Append `column`, like `add_column`.

        >>> bs.table({"a": [1, 2]}).append_column("b", ["x", None]).to_pydict()
        {'a': [1, 2], 'b': ['x', None]}
        """
        return self._add_or_replace_column(len(self.schema), 0, field_, column)

    def set_column(self, i: int | str, field_: str | Field, column: Any = None) -> Self:
        """Replace column `i`, like `add_column`.

        >>> bs.table({"a": [1, 2]}).set_column("a", "a", ["x", None]).to_pydict()
        {'a': ['x', None]}
        """
        return self._add_or_replace_column(self.schema.index(i), 1, field_, column)

    def remove_column(self, i: int | str) -> Self:
        """Remove a column by index or name. Raises `NotFoundError`.

        >>> bs.table({"a": [1], "b": [2]}).remove_column("a").column_names
        ['b']
        """
        index = self.schema.index(i)
        return self.select([other for other in range(len(self.schema)) if other != index])

    def drop_columns(self, columns: str | Sequence[str]) -> Self:
        """Remove columns by name. Raises `NotFoundError`.

        >>> bs.table({"a": [1], "b": [2], "c": [3]}).drop_columns(["a", "c"]).column_names
        ['b']
        """
        dropped = set(self.schema.resolve_indices(columns))
        return self.select([index for index in range(len(self.schema)) if index not in dropped])

    drop = drop_columns

    def _add_or_replace_column(self, index: int, num_dropped: int, field_: str | Field, column: Any) -> Self:
        field_ = import_field_if_foreign(field_)
        type_ = field_.type if isinstance(field_, Field) else None
        values = column if isinstance(column, (Array, ChunkedArray)) else array(column, type_)
        if not isinstance(field_, Field):
            check_field_name(field_)
            field_ = Field(field_, values.type)
        if values.type != field_.type:
            raise InvalidArgumentError(f"column {field_.name!r} has type {values.type}, expected {field_.type}")
        # Without columns and rows, the first column determines the number of rows.
        if len(values) != self.num_rows and (self.schema.fields or self.num_rows):
            raise InvalidArgumentError(f"column {field_.name!r} has {len(values)} values for {self.num_rows} rows")
        fields = self.schema.fields
        schema = Schema((*fields[:index], field_, *fields[index + num_dropped :]), self.schema.pairs)
        return self._splice_column(schema, index, num_dropped, values)


def _parse_sorting(sorting: Any, null_placement: NullPlacement) -> list[tuple[str, Order, NullPlacement]]:
    """Return names, orders and null placements; a name alone means ascending. Raises `InvalidArgumentError` for
    anything else.
    """
    if isinstance(sorting, str):
        return [(sorting, "ascending", null_placement)]
    try:
        keys = [(*key, null_placement) if len(key) == 2 else tuple(key) for key in sorting]
        return [(name, order, placement) for name, order, placement in keys]
    except (TypeError, ValueError):
        raise InvalidArgumentError(
            f"sort_by: a column's name, or pairs of names and orders, not {sorting!r:.100}"
        ) from None


def _common_dtype(columns: Sequence[Values]) -> np.dtype[Any]:
    try:
        return np.result_type(*columns) if columns else np.dtype(np.float64)
    except TypeError:  # such as a date and a number
        return np.dtype(object)


def get_distinct_names(schema: Schema) -> list[str]:
    """Return the column names. Raises `InvalidArgumentError` if two columns have the same name."""
    names = schema.names
    if len(set(names)) < len(names):
        duplicate = next(name for name in names if names.count(name) > 1)
        raise InvalidArgumentError(f"{names.count(duplicate)} columns are called {duplicate!r}: select them by index")
    return names

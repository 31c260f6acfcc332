"""The columns of a batch as NumPy arrays for a model.

`ArrayConverter` chooses for each column of a data set what it becomes (`bowstring.datasets.column_arrays`), once, from
the schema, the lengths of lists in all rows, and the options. Then all batches, in all workers, are converted alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from math import prod
from numbers import Number
from typing import Any, Literal, TypeAlias, TypedDict

import numpy as np

from bowstring.arrays.array import Array
from bowstring.arrays.column_container import get_distinct_names
from bowstring.arrays.construction import array
from bowstring.arrays.record_batch import RecordBatch
from bowstring.datasets.column_arrays import (
    CategoryColumn,
    Column,
    ColumnValues,
    NumberColumn,
    ObjectColumn,
    RaggedArray,
    RowError,
    SparseRows,
    VectorColumn,
    cast_numbers,
    get_number_dtype,
    is_number_by_option,
    split_list_type,
)
from bowstring.datasets.order import RowIndices
from bowstring.datasets.part_tables import PartTables, RowSelection
from bowstring.datatypes import types as t
from bowstring.datatypes.canonical.tensors import FixedShapeTensorType
from bowstring.datatypes.field import Field
from bowstring.errors import (
    BowstringError,
    InvalidArgumentError,
    InvalidDataError,
    NotFoundError,
    TypeMismatchError,
    check_count,
    suggest,
)
from bowstring.kernels.ml_vectors import is_vector
from bowstring.layouts.base import Values

# Small enough for the processor's cache, where the next steps find it, and large enough for the calls to take less time
# than the copies.
_BLOCK_BYTES = 1 << 18
_OPTIONS_BY_COLUMN = ("features", "dtypes", "shapes", "fill_null", "pad", "categories")

Arrays: TypeAlias = "dict[str, ColumnValues]"
Padding: TypeAlias = "float | tuple[float, int]"
"""The value to pad with, or it and the length to pad or cut to."""


class ArrayOptions(TypedDict, total=False):
    """The options of batches of arrays and tensors, all by the names of columns.

    >>> options = bs.datasets.ArrayOptions(columns=["x"], dtypes="float32")
    >>> reader = bs.datasets.EpochReader(bs.table({"x": [1, 2], "y": ["a", "b"]}), batch_rows=2)
    >>> [batch["x"].tolist() for batch in reader.to_numpy(**options)]
    [[1.0, 2.0]]
    """

    columns: Sequence[str]
    """The columns and `features` in a batch; only what they need is read. By default all columns that are not part of
    `features`, and these.
    """
    dtypes: Any
    """A NumPy or PyTorch type, or its name, of all numbers and booleans; or a dictionary of types by column or feature.
    Only with a dictionary, dates and times become numbers: days, or the type's units, since 1970 or midnight.
    """
    features: Mapping[str, Sequence[str]]
    """Matrices of the shape (rows, width), each of several columns side by side: numbers, lists of one length, dense
    vectors.
    """
    shapes: Mapping[str, tuple[int, ...]]
    """The shape of the elements of each row, of lists and vectors: (64,) or (3, 224, 224). Rows with another number of
    elements are an error.
    """
    fill_null: Any
    """The value of nulls in numbers, lists and vectors: one for all columns, or a dictionary."""
    validity_suffix: str
    """Adds for each nullable column of numbers an array of booleans, true for values that are not null, under the
    column's name and this suffix. Nulls without another value become 0.
    """
    pad: Mapping[str, Padding]
    """Pads lists of different lengths to a matrix: with this value to the longest row of the batch, or, if it is a pair
    of a value and a length, to that length, and cuts longer rows. Their lengths are in the column "<name>_length".
    """
    categories: Mapping[str, Sequence[Any] | Literal["auto"]]
    """Columns that become int64 codes: the indices of their values in these sequences, or with "auto" in the sorted
    values that the data set has. All other values and nulls have one more code, the number of categories.
    """
    transform: Callable[[Any], Any]
    """A function of the batch, called in the worker; the loop receives what it returns."""


@dataclass(frozen=True, slots=True)
class _Feature:
    """Columns side by side in one matrix."""

    widths: Mapping[str, int]
    """The columns, and the number of elements of each in a row."""
    dtype: np.dtype[Any]


class ArrayConverter:
    """Converts the record batches of a data set to arrays by name; can be pickled.

    Raises `InvalidArgumentError` and `TypeMismatchError` for options that do not fit the columns, `NotFoundError` for
    unknown columns, and as reading the data set, if that is necessary.
    """

    def __init__(self, tables: PartTables, options: ArrayOptions) -> None:
        planner = _Planner(tables, options)
        self._transform = options.get("transform")
        if self._transform is not None and not callable(self._transform):
            raise InvalidArgumentError(f"transform: expected a function, found {self._transform!r:.60}")
        self._outputs = planner.outputs
        self._columns = planner.columns
        self._features = planner.features
        self._padding = planner.padding
        self._validity_names = planner.validity_names

    @property
    def column_names(self) -> tuple[str, ...]:
        """The columns that are read."""
        return tuple(self._columns)

    @property
    def categories(self) -> dict[str, list[Any]]:
        """The categories of each column that has codes, in the order of the codes."""
        return {
            name: column.categories.to_pylist()
            for name, column in self._columns.items()
            if isinstance(column, CategoryColumn)
        }

    @property
    def signature(self) -> dict[str, tuple[tuple[int | None, ...], np.dtype[Any]]]:
        """The shape and type of each array of a batch, None for the number of rows and for the longest row.

        Lists of Python values, ragged arrays and sparse rows are left out, and `transform` is not considered.
        """
        signature: dict[str, tuple[tuple[int | None, ...], np.dtype[Any]]] = {}
        for name in self._outputs:
            if name in self._features:
                signature[name] = (None, sum(self._features[name].widths.values())), self._features[name].dtype
                continue
            column = self._columns[name]
            if name in self._padding:
                assert isinstance(column, NumberColumn)
                inner = tuple(size for size in column.dims[1:] if size is not None)
                signature[name] = (None, self._padding[name][1], *inner), column.dtype
                signature[f"{name}_length"] = (None,), np.dtype(np.int64)
            elif column.row_shape is not None and column.dtype is not None:
                signature[name] = (None, *column.row_shape), column.dtype
            else:
                continue
            if name in self._validity_names:
                signature[self._validity_names[name]] = signature[name][0], np.dtype(np.bool_)
        return signature

    # Conversion

    def convert(self, batch: RecordBatch) -> Arrays:
        """Return the columns of any number of rows; arrays may share the memory of the batch. Raises `RowError`."""
        values, valid = self._convert_columns(batch, self._columns)
        return self._join(values, valid, batch.num_rows)

    def gather(self, selection: RowSelection, batches: Sequence[RowIndices]) -> Iterator[Arrays]:
        """Yield the columns of batches of rows, by their indices in the data set; copied. Raises `RowError`.

        Rows of one width are copied for a few batches at once, so that they are in the processor's cache when they are
        used; all others for all batches, since each call takes long.
        """
        rows = np.concatenate(batches)
        fixed = {
            name: (column, fixed_rows)
            for name, column in self._columns.items()
            if isinstance(column, NumberColumn)
            and (fixed_rows := selection.find_fixed_width_rows(name, column)) is not None
        }
        others = [name for name in self._columns if name not in fixed]
        values, valid = self._convert_columns(selection.take(rows, others), others) if others else ({}, {})
        row_bytes = max((fixed_rows.row_bytes for _, fixed_rows in fixed.values()), default=0) + 1
        batches_per_block = max(_BLOCK_BYTES // (row_bytes * max(len(batches[0]), 1)), 1)
        stops = list(accumulate(map(len, batches), initial=0))
        for edges in (
            stops[first : first + batches_per_block + 1] for first in range(0, len(batches), batches_per_block)
        ):
            first, last = edges[0], edges[-1]
            block = {name: each[first:last] for name, each in values.items()}
            block_valid = {name: None if each is None else each[first:last] for name, each in valid.items()}
            table_rows = selection.find_table_rows(rows[first:last])
            for name, (column, fixed_rows) in fixed.items():
                try:
                    block[name] = column.convert_view(fixed_rows.take(table_rows))
                except RowError as error:
                    raise RowError(first + error.index, error.text, name) from None
            try:
                arrays = self._join(block, block_valid, last - first)
            except RowError as error:
                raise RowError(first + error.index, error.text, error.column) from None
            for start, stop in pairwise(edges):
                yield {name: each[start - first : stop - first] for name, each in arrays.items()}

    def _convert_columns(
        self, batch: RecordBatch, names: Iterable[str]
    ) -> tuple[dict[str, ColumnValues], dict[str, Any]]:
        """Return the values of columns, and which are valid, None if all are."""
        values: dict[str, ColumnValues] = {}
        valid: dict[str, Any] = {}
        for name in names:
            try:
                values[name], valid[name] = self._columns[name].convert(batch.column(name))
            except RowError as error:
                raise RowError(error.index, error.text, name) from None
        return values, valid

    def _join(self, values: Mapping[str, ColumnValues], valid: Mapping[str, Any], num_rows: int) -> Arrays:
        """Return the arrays of a batch by name: columns, features and which values are valid."""
        arrays: Arrays = {}
        for name in self._outputs:
            feature = self._features.get(name)
            arrays[name] = values[name] if feature is None else _join_columns(feature, values, num_rows)
            for member in (name,) if feature is None else feature.widths:
                if member in self._validity_names:
                    arrays[self._validity_names[member]] = _to_validity(values[member], valid.get(member))
        return arrays

    def finish(self, arrays: Arrays) -> Any:
        """Return a batch of arrays as the loop receives it: padded, or what `transform` returns."""
        batch = self.to_batch(self._pad_lists(arrays))
        return batch if self._transform is None else self._transform(batch)

    def to_batch(self, arrays: Arrays) -> dict[str, Any]:
        """Return arrays as other libraries know them: sparse rows as SciPy's."""
        return {
            name: values.to_scipy() if isinstance(values, SparseRows) else values for name, values in arrays.items()
        }

    def _pad_lists(self, arrays: Arrays) -> Arrays:
        """Pad the lists of a batch."""
        if not self._padding:
            return arrays
        padded = dict(arrays)
        for name, (value, length) in self._padding.items():
            rows = arrays[name]
            assert isinstance(rows, RaggedArray)
            padded[name] = _pad(rows, value, length)
            padded[f"{name}_length"] = rows.lengths if length is None else np.minimum(rows.lengths, length)
            if name in self._validity_names:
                is_valid = arrays[self._validity_names[name]]
                assert isinstance(is_valid, RaggedArray)
                padded[self._validity_names[name]] = _pad(is_valid, False, length)
        return padded


class _Planner:
    """Chooses what each column becomes."""

    def __init__(self, tables: PartTables, options: ArrayOptions) -> None:
        for option in options:
            _check_name("options", option, list(ArrayOptions.__annotations__))
        self._tables, self._options, schema = tables, options, tables.schema
        self._schema = schema
        self._names = get_distinct_names(schema)
        self._by_column = {option: self._read_by_column(option) for option in _OPTIONS_BY_COLUMN}
        members = self._read_features()
        self.outputs = self._choose_outputs(members)
        for option in _OPTIONS_BY_COLUMN[1:]:
            for name in self._by_column[option]:
                _check_name(option, name, [*self._names, *self.outputs] if option == "dtypes" else self._names)
        names = dict.fromkeys(column for name in self.outputs for column in members.get(name, (name,)))
        self.columns = {name: self._plan_column(schema.field(name)) for name in names}
        self.features = {name: self._plan_feature(name, members[name]) for name in self.outputs if name in members}
        self.padding = {name: self._plan_padding(name, value) for name, value in self._by_column["pad"].items()}
        suffix: Any = options.get("validity_suffix")
        if suffix is not None and not isinstance(suffix, str):
            raise InvalidArgumentError(f"validity_suffix: expected a string, found {suffix!r:.60}")
        self.validity_names = {
            name: name + suffix
            for name, column in self.columns.items()
            if suffix is not None and schema.field(name).nullable and isinstance(column, NumberColumn | VectorColumn)
        }
        names_of_arrays = [*self.outputs, *(f"{name}_length" for name in self.padding), *self.validity_names.values()]
        duplicate = next((name for name in names_of_arrays if names_of_arrays.count(name) > 1), None)
        if duplicate is not None:
            raise InvalidArgumentError(f"a batch would have {names_of_arrays.count(duplicate)} columns {duplicate!r}")

    def _read_by_column(self, option: str) -> Mapping[str, Any]:
        """Return an option's values by column; none if it has one value for all."""
        value: Any = self._options.get(option)
        if isinstance(value, Mapping):
            return value
        if value is not None and option not in ("dtypes", "fill_null"):
            raise InvalidArgumentError(f"{option}: expected a dictionary by column, found {value!r:.60}")
        return {}

    def _read_features(self) -> dict[str, tuple[str, ...]]:
        columns: dict[str, tuple[str, ...]] = {}
        for name, members in self._by_column["features"].items():
            columns[name] = _read_names(f"features: {name!r}", members, self._names)
            if not columns[name]:
                raise InvalidArgumentError(f"features: {name!r} has no columns")
        return columns

    def _choose_outputs(self, features: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
        columns: Any = self._options.get("columns")
        if columns is None:
            members = {member for each in features.values() for member in each}
            return (*(name for name in self._names if name not in members), *features)
        return _read_names("columns", columns, [*self._names, *features])

    def _get_dtype(self, name: str) -> np.dtype[Any] | None:
        """Return the dtype that the options give a column or feature."""
        dtypes: Any = self._options.get("dtypes")
        if isinstance(dtypes, Mapping):
            dtypes = dtypes.get(name)
        if dtypes is None:
            return None
        dtype: np.dtype[Any] | None = None
        with suppress(TypeError):
            dtype = np.dtype(dtypes)
        # Types of other packages, such as bfloat16 of ml_dtypes, are of the kind V, as structures and bytes are.
        if dtype is None or dtype.kind not in "biufmMV" or issubclass(dtype.type, np.void):
            raise InvalidArgumentError(f"dtypes: column {name!r}: {dtypes!r} is not a type of numbers")
        return dtype

    def _plan_column(self, field: Field) -> Column:
        name, options = field.name, self._options
        if name in self._by_column["categories"]:
            self._reject_options(field, "has categories")
            return CategoryColumn(categories=self._plan_categories(field))
        levels, element_type = split_list_type(field.type)
        dtype, own_dtype = self._get_dtype(name), get_number_dtype(element_type)
        if own_dtype is None and is_number_by_option(element_type):
            is_named = isinstance(options.get("dtypes"), Mapping) or isinstance(element_type, t.Decimal)
            own_dtype = dtype if is_named else None
        if dtype is not None and dtype.kind in "mM" and _get_time_kind(element_type) != dtype.kind:
            raise TypeMismatchError(f"dtypes: column {name!r}: {field.type} is not converted to {dtype}")
        if is_vector(field.type):
            return self._plan_vectors(field, dtype or np.dtype(np.float64))
        shape = self._by_column["shapes"].get(name)
        if own_dtype is None:
            self._reject_options(field, f"is {field.type}, not numbers or lists of numbers")
            return ObjectColumn()
        dtype = dtype or own_dtype
        column = NumberColumn(dtype=dtype, fill=self._get_fill(field, dtype))
        if not levels:
            if shape is not None:
                raise InvalidArgumentError(f"shapes: column {name!r}: {field.type} is not a list of numbers")
            return column
        return self._plan_lists(field, column, levels, shape)

    def _reject_options(self, field: Field, reason: str) -> None:
        """Raise `InvalidArgumentError` if an option for numbers names this column."""
        for option in ("dtypes", "fill_null", "shapes", "pad"):
            # Features may have the name of a column.
            is_feature = option == "dtypes" and field.name in self._by_column["features"]
            if field.name in self._by_column[option] and not is_feature:
                raise InvalidArgumentError(f"{option}: column {field.name!r} {reason}")

    def _plan_lists(self, field: Field, column: NumberColumn, levels: Sequence[t.BaseList], shape: Any) -> Column:
        dims = self._find_list_lengths(field, levels)
        axes: tuple[int, ...] = ()
        tensor = field.type
        shape = None if shape is None else _check_shape(field.name, shape)
        if isinstance(tensor, FixedShapeTensorType):
            axes = tensor.permutation or ()
            logical_shape = tuple(tensor.shape[axis] for axis in axes or range(len(tensor.shape)))
            if shape not in (None, logical_shape):
                raise InvalidArgumentError(
                    f"shapes: column {field.name!r}: the shape of {tensor} is {logical_shape}, not {shape}"
                )
            shape = tensor.shape
        elif shape is not None:
            if len(levels) > 1 and len(shape) == len(levels):
                dims = shape
            elif len(levels) == 1:
                dims = (prod(shape),)
            else:
                raise InvalidArgumentError(
                    f"shapes: column {field.name!r}: expected {len(levels)} dimensions, found {shape}"
                )
        elif None in dims:
            # A ragged level makes all levels outside of it ragged, too.
            ragged = max(level for level, size in enumerate(dims) if size is None)
            return replace(column, dims=(*[None] * (ragged + 1), *dims[ragged + 1 :]))
        else:
            shape = dims
        if prod(max(size, 1) for size in dims if size is not None) >= 1 << 48:
            raise InvalidDataError(f"column {field.name!r}: lists of {dims} elements are too long")
        return replace(column, dims=dims, shape=tuple(shape), axes=axes)

    def _find_list_lengths(self, field: Field, levels: Sequence[t.BaseList]) -> tuple[int | None, ...]:
        """Return the length of the lists of each level in all rows, None if they differ or are not known."""
        sizes = [level.list_size if isinstance(level, t.FixedSizeList) else None for level in levels]
        if None not in sizes or field.name in self._by_column["pad"]:
            return tuple(sizes)
        bounds = self._tables.find_list_bounds(field.name)
        if bounds is None:
            return tuple(sizes)
        # Without lists, the longest is shorter than the shortest.
        lengths = [shortest if shortest == longest else None for shortest, longest in bounds]
        return tuple(length if size is None else size for size, length in zip(sizes, lengths, strict=True))

    def _plan_vectors(self, field: Field, dtype: np.dtype[Any]) -> Column:
        shape = self._by_column["shapes"].get(field.name)
        bounds = self._tables.find_list_bounds(field.name)
        size = bounds[0][0] if bounds is not None and bounds[0][0] == bounds[0][1] else None
        if shape is not None:
            shape = _check_shape(field.name, shape)
            if len(shape) != 1:
                raise InvalidArgumentError(f"shapes: column {field.name!r}: vectors have 1 dimension, not {len(shape)}")
            size = shape[0]
        is_dense = shape is not None or (size is not None and self._tables.has_dense_vectors(field.name))
        fill = self._get_fill(field, dtype)
        return VectorColumn(dtype=dtype, fill=fill, size=size, is_dense=is_dense)

    def _plan_categories(self, field: Field) -> Array:
        values = self._by_column["categories"][field.name]
        value_type: t.DataType = field.type
        while isinstance(value_type, t.Dictionary | t.RunEndEncoded):
            value_type = value_type.value_type
        if isinstance(values, str) and values == "auto":
            try:
                return self._tables.find_distinct_values(field.name)
            except TypeMismatchError as error:
                raise TypeMismatchError(f"categories: column {field.name!r}: {error}") from None
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise InvalidArgumentError(
                f'categories: column {field.name!r}: expected a list of values or "auto", found {values!r:.60}'
            )
        try:
            categories = array(list(values), value_type)
        except BowstringError as error:
            raise TypeMismatchError(f"categories: column {field.name!r}: {error}") from None
        if categories.null_count or len(categories.unique()) < len(categories):
            raise InvalidArgumentError(f"categories: column {field.name!r}: expected distinct values without None")
        return categories

    def _plan_feature(self, name: str, members: Sequence[str]) -> _Feature:
        widths, dtypes = {}, []
        for member in members:
            column = self.columns[member]
            if column.dtype is None or column.row_shape is None:
                raise InvalidArgumentError(
                    f"features: {name!r}: column {member!r} is {self._schema.field(member).type}: expected numbers, or "
                    f"lists that are equally long in all rows (`shapes` states their length)"
                )
            widths[member] = prod(column.row_shape)
            dtypes.append(column.dtype)
        return _Feature(widths, self._get_dtype(name) or np.result_type(*dtypes))

    def _plan_padding(self, name: str, padding: Any) -> tuple[Any, int | None]:
        column = self.columns.get(name)
        if column is None:
            raise InvalidArgumentError(f"pad: column {name!r} is not among the columns of a batch")
        if not isinstance(column, NumberColumn) or column.row_shape is not None or None in column.dims[1:]:
            raise InvalidArgumentError(
                f"pad: column {name!r} is {self._schema.field(name).type}: expected lists of different lengths"
            )
        value, length = padding if isinstance(padding, tuple) and len(padding) == 2 else (padding, None)
        return (
            _check_fill("pad", name, value, column.dtype),
            None if length is None else check_count(f"pad: column {name!r}", length),
        )

    def _get_fill(self, field: Field, dtype: np.dtype[Any]) -> Any:
        value: Any = self._options.get("fill_null")
        value = value.get(field.name) if isinstance(value, Mapping) else value
        if value is None:
            has_validity = self._options.get("validity_suffix") is not None and field.nullable
            return np.zeros((), dtype)[()] if has_validity else None
        return _check_fill("fill_null", field.name, value, dtype)


def _check_name(option: str, name: Any, names: Sequence[str]) -> None:
    if name not in names:
        noun = "option" if option == "options" else "column"
        raise NotFoundError(f"{option}: there is no {noun} {name!r}{suggest(str(name), names)}")


def _read_names(option: str, value: Any, names: Sequence[str]) -> tuple[str, ...]:
    """Return an option that lists some of these names. Raises an error if it does not, or one of them twice."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidArgumentError(f"{option}: expected a list of names, found {value!r:.60}")
    listed = tuple(value)
    for index, name in enumerate(listed):
        _check_name(option, name, names)
        if name in listed[:index]:
            raise InvalidArgumentError(f"{option}: column {name!r} is named twice")
    return listed


def _get_time_kind(data_type: t.DataType) -> str | None:
    """Return the kind of the NumPy type of dates and times."""
    if isinstance(data_type, t.Date | t.Timestamp):
        return "M"
    return "m" if isinstance(data_type, t.Time | t.Duration) else None


def _check_shape(name: str, shape: Any) -> tuple[int, ...]:
    sizes = (shape,) if isinstance(shape, int) else shape
    if not isinstance(sizes, Sequence) or isinstance(sizes, str) or not sizes:
        raise InvalidArgumentError(f"shapes: column {name!r}: expected a tuple of lengths, found {shape!r:.60}")
    return tuple(check_count(f"shapes: column {name!r}", size) for size in sizes)


def _check_fill(option: str, name: str, value: Any, dtype: np.dtype[Any]) -> Any:
    """Return a value that replaces others, as `dtype`. Raises `TypeMismatchError` if it does not fit."""
    value = value.as_py() if hasattr(value, "as_py") else value
    try:
        if not isinstance(value, Number | np.bool_) and dtype.kind not in "mM":
            raise TypeError
        if dtype.kind == "b":
            return np.bool_(value)
        return cast_numbers(np.atleast_1d(np.asarray(value)), dtype)[0]
    except (RowError, TypeError, ValueError, OverflowError, IndexError):
        raise TypeMismatchError(f"{option}: column {name!r}: {value!r:.60} is not within {dtype}") from None


def _join_columns(feature: _Feature, values: Mapping[str, ColumnValues], num_rows: int) -> Values:
    """Return a matrix of columns side by side, each converted as it is written."""
    matrix, stop = np.empty((num_rows, sum(feature.widths.values())), feature.dtype), 0
    for name, width in feature.widths.items():
        column = values[name]
        assert isinstance(column, np.ndarray)
        start, stop = stop, stop + width
        try:
            matrix[:, start:stop] = cast_numbers(column, feature.dtype).reshape(num_rows, width)
        except RowError as error:
            raise RowError(error.index // width, error.text, name) from None
    return matrix


def _to_validity(values: ColumnValues, valid: Any) -> ColumnValues:
    """Return the booleans of a column without nulls in the form of its values."""
    if valid is not None:
        return valid  # type: ignore[no-any-return]
    if isinstance(values, RaggedArray):
        return RaggedArray(_to_validity(values.values, None), values.offsets)
    return np.ones(len(values) if isinstance(values, SparseRows) else np.shape(values), np.bool_)


def _pad(rows: RaggedArray, value: Any, length: int | None) -> ColumnValues:
    """Return a matrix of rows, padded or cut to a length, by default the length of the longest."""
    lengths = rows.lengths
    width = int(lengths.max(initial=0)) if length is None else length
    matrix = np.full((len(rows), width, *rows.values.shape[1:]), value, rows.values.dtype)
    is_element = np.arange(width) < lengths[:, None]
    if width < lengths.max(initial=0):
        is_within_width = np.arange(len(rows.values)) - np.repeat(rows.offsets[:-1], lengths) < width
        matrix[is_element] = rows.values[is_within_width]
    else:
        matrix[is_element] = rows.values
    return matrix

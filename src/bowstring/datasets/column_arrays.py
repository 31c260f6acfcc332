"""How one column becomes a NumPy array for a model.

| column | array |
|---|---|
| numbers and booleans | (rows,) |
| lists of them, equally long in the whole data set | (rows, n, …) |
| other lists of them | `RaggedArray` |
| vectors of Spark ML | `SparseRows`, or (rows, n) |
| values with categories | codes, (rows,) |
| all others | a list of Python values |

A column class converts the rows of one column, in any number, so that the conversion does not depend on the batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bowstring.arrays.array import Array, concat_arrays
from bowstring.datatypes import types as t
from bowstring.datatypes.canonical.bool8 import Bool8Type
from bowstring.datatypes.extension import get_storage_type
from bowstring.errors import InvalidArgumentError, InvalidDataError, LimitError, TypeMismatchError, require_package
from bowstring.kernels.cast import cast
from bowstring.kernels.encode import run_end_decode
from bowstring.kernels.ml_vectors import MalformedRowError, read_vectors
from bowstring.layouts.base import ArrayData, Indices, Values, find_first_true
from bowstring.layouts.boolean import BooleanLayout
from bowstring.layouts.dictionary import DictionaryLayout, decode_dictionary
from bowstring.layouts.expansion_limits import check_expanded_values
from bowstring.layouts.gather import take_ranges
from bowstring.layouts.list_ import AnyListLayout
from bowstring.layouts.primitive import PrimitiveLayout
from bowstring.layouts.registry import layout_of
from bowstring.memory.bitmap import Mask

ColumnValues: TypeAlias = "Values | RaggedArray | SparseRows | list[Any]"
_Elements: TypeAlias = "Values | RaggedArray"
_INT64 = np.dtype(np.int64)


class RowError(InvalidDataError):
    """A value that can't be in an array. Whoever has read the rows adds where the row is (`locate`)."""

    def __init__(self, index: int, text: str, column: str = "") -> None:
        super().__init__(f"column {column!r}: row {index}: {text}")
        self.index = index
        """The index of the row among those converted."""
        self.text = text
        self.column = column

    def locate(self, location: str, row: int) -> InvalidDataError:
        """Return the error for a row of what `location` names."""
        return InvalidDataError(f"{location}column {self.column!r}: row {row:,}: {self.text}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.index, self.text, self.column), {**vars(self), "args": self.args}


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class RaggedArray:
    """Rows of different lengths: row *i* is ``values[offsets[i]:offsets[i + 1]]``.

    >>> from bowstring.datasets import RaggedArray
    >>> tokens = RaggedArray(np.array([1, 2, 3]), np.array([0, 2, 3]))
    >>> len(tokens), tokens[1].tolist()
    (2, [3])
    """

    values: Any
    """The elements of all rows, shape (elements, …): a NumPy array, or a `RaggedArray` for lists of lists."""
    offsets: npt.NDArray[np.int64]
    """Shape (rows + 1,)."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """The number of elements of each row, shape (rows,)."""
        return np.diff(self.offsets)

    def __getitem__(self, key: int | slice) -> Any:
        """Return the elements of a row, or adjacent rows; without copying. Raises `IndexError`."""
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            if step != 1:
                raise InvalidArgumentError(f"a ragged array: expected a slice of adjacent rows, found {key}")
            offsets = self.offsets[start : max(start, stop) + 1]
            return RaggedArray(self.values[int(offsets[0]) : int(offsets[-1])], offsets - offsets[0])
        row = range(len(self))[key]
        return self.values[int(self.offsets[row]) : int(self.offsets[row + 1])]

    def tolist(self) -> list[Any]:
        """Return the rows as lists."""
        return [self[row].tolist() for row in range(len(self))]


@dataclass(frozen=True, slots=True, eq=False)
class SparseRows:
    """Rows of a sparse matrix, compressed (CSR): row *i* has `values` in the columns `indices`, both from
    ``offsets[i]`` to ``offsets[i + 1]``; all others are 0.
    """

    values: Values
    indices: Indices
    offsets: Indices
    num_columns: int

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, rows: slice) -> SparseRows:
        start, stop, _ = rows.indices(len(self))
        offsets = self.offsets[start : max(start, stop) + 1]
        elements = slice(int(offsets[0]), int(offsets[-1]))
        return SparseRows(self.values[elements], self.indices[elements], offsets - offsets[0], self.num_columns)

    def to_scipy(self) -> Any:
        """Return a `scipy.sparse.csr_array`, sharing the memory. Needs SciPy."""
        with require_package("sparse rows", "sparse"):
            from scipy.sparse import csr_array

        return csr_array((self.values, self.indices, self.offsets), shape=(len(self), self.num_columns))


@dataclass(frozen=True, slots=True, kw_only=True)
class Column(ABC):
    """A column, and how its rows are converted."""

    dtype: np.dtype[Any] | None = None
    """The type of the numbers; None for Python values."""

    @abstractmethod
    def convert(self, array: Array) -> tuple[ColumnValues, _Elements | None]:
        """Return the values, and which are valid: in the same form, or None if all are. Raises `RowError`."""

    @property
    def row_shape(self) -> tuple[int, ...] | None:
        """The shape of the array of each row; None if rows have no array of one shape."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectColumn(Column):
    """Values that stay Python objects, None for null."""

    def convert(self, array: Array) -> tuple[ColumnValues, None]:
        return array.to_pylist(), None


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberColumn(Column):
    """Numbers, or lists of numbers, which become elements of `dtype`; nulls become `fill`."""

    dtype: np.dtype[Any]
    fill: Any = None
    """None if nulls are an error."""
    dims: tuple[int | None, ...] = ()
    """The length of the lists of each level, outermost first; None, also for all levels outside, if they differ."""
    shape: tuple[int, ...] = ()
    """The shape of the elements of each row if all lists are equally long."""
    axes: tuple[int, ...] = ()
    """The order of the axes of `shape`, if not ascending."""

    @property
    def row_shape(self) -> tuple[int, ...] | None:
        if None in self.dims:
            return None
        return tuple(self.shape[axis] for axis in self.axes) if self.axes else self.shape

    def view(self, array: Array) -> Values | None:
        """Return the rows of an array without nulls as they are in memory, shape (rows, …); None if rows have to be
        converted in another way.
        """
        data = array.storage
        for size in self.dims:
            layout, valid = data.layout, data.validity_mask()
            if valid is not None or size is None or not isinstance(layout, AnyListLayout):
                return None
            starts, sizes = layout.offsets_and_sizes(data)
            if (sizes != size).any() or (len(starts) and (np.diff(starts) != size).any()):
                return None
            start = int(starts[0]) if len(starts) else 0
            data = data.children[0].slice(start, len(starts) * size).storage
        if data.null_count or not isinstance(data.layout, PrimitiveLayout) or isinstance(data.type, t.Decimal):
            return None
        return data.buffer_values(1).reshape(len(array), *self.shape) if self.dtype.kind not in "bmM" else None

    def convert_view(self, values: Values) -> Values:
        """Return copied rows of a `view` as elements of `dtype`. Raises `RowError`."""
        try:
            rows = cast_numbers(values, self.dtype)
        except RowError as error:
            raise RowError(error.index // max(prod(self.shape), 1), error.text) from None
        return rows.transpose(0, *(axis + 1 for axis in self.axes)) if self.axes else rows

    def convert(self, array: Array) -> tuple[ColumnValues, _Elements | None]:
        values, valid = self._convert_lists(decode(array.storage), self.dims)
        return self._reshape(values, len(array)), None if valid is None else self._reshape(valid, len(array))

    def _reshape(self, values: _Elements, num_rows: int) -> _Elements:
        if isinstance(values, RaggedArray):
            return values
        values = values.reshape(num_rows, *self.shape)
        return values.transpose(0, *(axis + 1 for axis in self.axes)) if self.axes else values

    def _convert_lists(self, array: ArrayData, dims: tuple[int | None, ...]) -> tuple[_Elements, _Elements | None]:
        """Return the values of an array, of the shape (length, *dims) or ragged, and which are valid."""
        if not dims:
            return self._convert_numbers(array)
        layout, size = array.layout, dims[0]
        assert isinstance(layout, AnyListLayout)
        starts, sizes = layout.offsets_and_sizes(array)
        valid, rows = array.validity_mask(), None
        if valid is not None:
            if self.fill is None:
                raise RowError(find_first_true(~valid), _NULL)
            rows = np.flatnonzero(valid)
            starts, sizes = starts[rows], sizes[rows]
        if size is not None and (sizes != size).any():
            index = find_first_true(sizes != size)
            raise RowError(index if rows is None else int(rows[index]), _length_text(size, int(sizes[index])))
        ends = np.cumsum(sizes)
        child = array.children[0]
        if len(starts) and (starts - starts[0] == ends - sizes).all():
            elements = child.slice(int(starts[0]), int(ends[-1]))
        else:
            elements = take_ranges(child, starts, sizes)
        try:
            values, mask = self._convert_lists(decode(elements.storage), dims[1:])
        except RowError as error:
            index = int(np.searchsorted(ends, error.index, "right"))
            raise RowError(index if rows is None else int(rows[index]), error.text) from None
        if size is None:
            if rows is not None:
                lengths = np.zeros(len(array), np.int64)
                lengths[rows] = sizes
                ends = np.cumsum(lengths)
            offsets = np.concatenate((np.zeros(1, np.int64), ends))
            return RaggedArray(values, offsets), None if mask is None else RaggedArray(mask, offsets)
        assert not isinstance(values, RaggedArray)
        assert not isinstance(mask, RaggedArray)
        row_shape = (size, *values.shape[1:])
        values = values.reshape(len(starts), *row_shape)
        mask = None if mask is None else mask.reshape(values.shape)
        if rows is None or valid is None:
            return values, mask
        # A null list of a fixed length has that many nulls.
        _check_nulls(valid, prod(row_shape))
        out = np.full((len(array), *row_shape), self.fill, self.dtype)
        out_mask = np.zeros(out.shape, np.bool_)
        out[rows], out_mask[rows] = values, True if mask is None else mask
        return out, out_mask

    def _convert_numbers(self, array: ArrayData) -> tuple[Values, Mask | None]:
        """Return the elements, and which are valid."""
        valid = array.layout.logical_validity_mask(array)
        if valid is None:
            return cast_numbers(_view_numbers(array, self.dtype), self.dtype), None
        if self.fill is None:
            raise RowError(find_first_true(~valid), _NULL)
        values, slots = np.full(array.length, self.fill, self.dtype), np.flatnonzero(valid)
        numbers = _view_numbers(array, self.dtype)
        try:
            values[slots] = cast_numbers(numbers[slots], self.dtype)
        except RowError as error:
            raise RowError(int(slots[error.index]), error.text) from None
        return values, valid


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorColumn(Column):
    """Vectors of Spark ML, as `SparseRows` of `dtype`, or with `is_dense` of the shape (rows, size)."""

    dtype: np.dtype[Any]
    fill: Any = None
    """None if null vectors are an error; otherwise they are zeros, or filled with this value if dense."""
    size: int | None = None
    """The number of elements; None for the length of the first vector of a batch."""
    is_dense: bool = False

    @property
    def row_shape(self) -> tuple[int, ...] | None:
        return (self.size,) if self.is_dense and self.size is not None else None

    def convert(self, array: Array) -> tuple[ColumnValues, _Elements | None]:
        valid = array.validity_mask()
        if valid is not None and self.fill is None:
            raise RowError(find_first_true(~valid), _NULL)
        try:
            stored = read_vectors(array)
        except MalformedRowError as error:
            raise RowError(error.row, error.text) from None
        sizes, size = stored.sizes if valid is None else stored.sizes[valid], self.size
        if size is None:
            size = int(sizes[0]) if len(sizes) else 0
        if (sizes != size).any():
            is_other = stored.sizes != size if valid is None else valid & (stored.sizes != size)
            row = find_first_true(is_other)
            raise RowError(row, _length_text(size, int(stored.sizes[row])))
        try:
            values = cast_numbers(stored.values, self.dtype)
        except RowError as error:
            raise RowError(int(stored.rows[error.index]), error.text) from None
        if not self.is_dense:
            offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(stored.counts)))
            return SparseRows(values, stored.indices, offsets, size), valid
        if valid is not None:
            _check_nulls(valid, size)
        matrix = np.zeros((len(array), size), self.dtype)
        matrix[stored.rows, stored.indices] = values
        if valid is not None:
            matrix[~valid] = self.fill
        return matrix, valid


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoryColumn(Column):
    """Codes of values: their indices in `categories`, whose number is the code of all others and of nulls."""

    dtype: np.dtype[Any] = _INT64
    categories: Array

    @property
    def row_shape(self) -> tuple[int, ...]:
        return ()

    def convert(self, array: Array) -> tuple[ColumnValues, None]:
        data = _decode_runs(array)
        if not isinstance(data.layout.storage, DictionaryLayout):
            return self._encode(data), None
        data = data.storage
        assert isinstance(data.layout, DictionaryLayout)
        codes = np.append(self._encode(data.require_dictionary()), len(self.categories))
        valid, indices = data.validity_mask(), data.layout.indices(data)
        return codes[indices if valid is None else np.where(valid, indices, len(codes) - 1)], None

    def _encode(self, array: ArrayData) -> npt.NDArray[np.int64]:
        count = len(self.categories)
        values = Array.from_array_data(array)
        # Codes are numbered by first appearance, so the categories, which are distinct, have the first codes.
        encoded = concat_arrays([self.categories, values]).dictionary_encode().slice(count)
        codes = np.minimum(encoded.layout.indices(encoded).astype(np.int64), count)  # type: ignore[attr-defined]
        valid = encoded.validity_mask()
        return codes if valid is None else np.where(valid, codes, count)


_NULL = "found null: use fill_null or validity_suffix"


def _length_text(expected: int, found: int) -> str:
    return f"expected {expected} elements, found {found}"


def _check_nulls(valid: Mask, row_values: int) -> None:
    """Raise `RowError` if filling the null rows exceeds the limit on values: descriptions may record any length."""
    try:
        check_expanded_values(int(np.count_nonzero(~valid)) * row_values, 0)
    except LimitError as error:
        raise RowError(find_first_true(~valid), str(error)) from None


def _decode_runs(array: ArrayData) -> ArrayData:
    return run_end_decode(array.storage) if isinstance(array.storage.type, t.RunEndEncoded) else array


def decode(array: ArrayData) -> ArrayData:
    """Decode dictionaries and runs."""
    while isinstance(array.type, t.RunEndEncoded | t.Dictionary):
        array = decode_dictionary(run_end_decode(array)).storage
    return array


def _view_numbers(array: ArrayData, dtype: np.dtype[Any]) -> Values:
    """Return the elements as NumPy stores them: dates and times as integers unless `dtype` is a time."""
    if isinstance(array.layout, BooleanLayout):
        return array.layout.unpack_values(array)
    if isinstance(array.type, t.Decimal):
        is_integer = dtype.kind in "iu"
        integer_or_float = t.Int(64, dtype.kind == "i") if is_integer else t.FloatingPoint(64)
        try:
            array = cast(array, integer_or_float, safe=is_integer)
        except TypeMismatchError:
            raise _find_fraction(array, np.iinfo(dtype)) from None
    if dtype.kind in "mM":
        times: Values = array.to_numpy(zero_copy_only=False)
        return times
    return array.buffer_values(1)


def _find_fraction(array: ArrayData, limits: np.iinfo[Any]) -> RowError:
    """Return the error for the first decimal that is not an integer within these limits."""
    values = array.to_pylist()
    index, value = next(
        (index, value)
        for index, value in enumerate(values)
        if value is not None and (value != value.to_integral_value() or not limits.min <= value <= limits.max)
    )
    return RowError(index, f"{value} is not within {limits.dtype}")


def cast_numbers(values: Values, dtype: np.dtype[Any]) -> Values:
    """Convert numbers to another NumPy type; floats are rounded to the nearest. Returns `values` if they have it.

    Raises `RowError` for a value that the type does not have: beyond its range, or with a fraction.
    """
    if values.dtype == dtype:
        return values
    if dtype.kind == "f":
        try:
            with np.errstate(over="raise"):
                return values.astype(dtype)
        except FloatingPointError:
            with np.errstate(over="ignore"):
                is_valid = np.isfinite(values.astype(dtype)) | ~np.isfinite(values)
            raise _create_row_error(values, is_valid, f"is beyond {dtype}") from None
    is_valid = np.True_
    if dtype.kind in "iu" and values.dtype.kind == "f":
        # As float64, which has both bounds: the largest int64 is not one, but 2.0**63 is.
        floats, limits = values.astype(np.float64), np.iinfo(dtype)
        is_valid = (floats >= limits.min) & (floats < float(limits.max) + 1) & (np.trunc(floats) == floats)
    elif dtype.kind in "iu" and values.dtype.kind in "iu" and not np.can_cast(values.dtype, dtype):
        # With Python integers, which NumPy compares exactly, unlike int64 with uint64.
        limits = np.iinfo(dtype)
        is_valid = (values >= int(limits.min)) & (values <= int(limits.max))
    elif dtype.kind in "mM" and values.dtype.kind == dtype.kind:
        is_valid = values.astype(dtype).astype(values.dtype) == values
    if not np.all(is_valid):
        raise _create_row_error(values, is_valid, f"is not within {dtype}")
    return values.astype(dtype)


def _create_row_error(values: Values, is_valid: Mask, problem: str) -> RowError:
    """Return the error for the first value that is not valid."""
    index = find_first_true(~is_valid)
    value = values.reshape(-1)[index]
    return RowError(index, f"{value if value.dtype.kind in 'mM' else repr(value.item())} {problem}")


# Types


def split_list_type(data_type: t.DataType) -> tuple[list[t.BaseList], t.DataType]:
    """Return the types of lists, outermost first, and the type of the innermost elements."""
    levels: list[t.BaseList] = []
    while isinstance(storage := get_storage_type(data_type), t.BaseList):
        levels.append(storage)
        data_type = storage.value_type
    return levels, data_type


def get_number_dtype(data_type: t.DataType) -> np.dtype[Any] | None:
    """Return the NumPy type of numbers and booleans; None for other types."""
    match data_type:
        case Bool8Type() | t.Bool():
            return np.dtype(np.bool_)
        case t.Dictionary() | t.RunEndEncoded():
            return get_number_dtype(data_type.value_type)
        case t.Int() | t.FloatingPoint():
            layout = layout_of(data_type)
            assert isinstance(layout, PrimitiveLayout)
            return layout.dtype
    return None


def is_number_by_option(data_type: t.DataType) -> bool:
    """Whether values become numbers if a dtype is given: decimals, dates and times."""
    return isinstance(data_type, t.Decimal | t.Date | t.Time | t.Timestamp | t.Duration)

"""Arrays: «a sequence of values with known length all having the same type».

An `Array` has a type, a length, a null count, buffers, child arrays and, for the dictionary-encoded layout, a
dictionary. As in the C data interface it also has an offset, so that slicing does not copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Unpack, overload

import numpy as np

from bowstring.datatypes.base import as_type
from bowstring.errors import DataTypeError, NotFoundError
from bowstring.layouts import array_methods
from bowstring.layouts.base import Layout, Values
from bowstring.layouts.gather import check_count, check_length
from bowstring.layouts.indexing import check_indices, clip_slice, normalize_index, to_integer
from bowstring.layouts.numpy_conversion import convert_dtype
from bowstring.memory import bitmap
from bowstring.memory.bitmap import Mask
from bowstring.memory.buffer import Buffer

if TYPE_CHECKING:
    from bowstring.datatypes.base import TypeLike
    from bowstring.datatypes.types import DataType
    from bowstring.interop.pandas.to_pandas import ToPandasOptions


class Array:
    """A sequence of `length` values of one data type; immutable.

    Created by `bowstring.array`, by readers, or from buffers by `Array.from_buffers`. Indexing returns Python values;
    slicing returns arrays that share the memory. The constructor checks nothing; call `validate` for that.
    """

    __slots__ = ("_null_count", "buffers", "children", "dictionary", "layout", "length", "offset")

    def __init__(  # noqa: PLR0913 -- an array has this many parts
        self,
        layout: Layout,
        length: int,
        buffers: tuple[Buffer | None, ...],
        children: tuple[Array, ...] = (),
        dictionary: Array | None = None,
        null_count: int = -1,
        offset: int = 0,
    ) -> None:
        self.layout = layout
        self.length = length
        self.buffers = buffers
        self.children = children
        self.dictionary = dictionary
        self.offset = offset
        self._null_count = null_count

    @classmethod
    def from_buffers(  # noqa: PLR0913 -- an array has this many parts
        cls,
        type: TypeLike,
        length: int,
        buffers: Sequence[Buffer | bytes | Values | None],
        children: Sequence[Array] = (),
        dictionary: Array | None = None,
        null_count: int = -1,
        offset: int = 0,
    ) -> Array:
        """Create an array over existing memory, without copying.

        `buffers` follow «Buffer Listing for Each Layout», with None for an absent validity bitmap. The array consists
        of the slots from `offset` to `offset + length`. A negative null count is computed on first use. The structure
        is checked (`validate()`), the values are not (`validate(full=True)`).
        """
        from bowstring.layouts import registry  # a cycle: it imports every layout, and layouts import this module

        array = cls(
            registry.layout_of(as_type(type, "Array.from_buffers")),
            length,
            tuple(b if b is None or isinstance(b, Buffer) else Buffer.of(b) for b in buffers),
            tuple(children),
            dictionary,
            null_count,
            offset,
        )
        array.validate()
        return array

    @property
    def type(self) -> DataType:
        """The data type."""
        return self.layout.type

    @property
    def null_count(self) -> int:
        """The number of null slots, counted on first use."""
        if self._null_count < 0:
            self._null_count = self.layout.null_count(self)
        return self._null_count

    @property
    def nbytes(self) -> int:
        """The size of the slots in bytes, including the dictionary, without padding and bytes outside the slice."""
        array = self.compact()
        size = sum(b.size for b in array.buffers if b is not None) + sum(child.nbytes for child in array.children)
        return size + (0 if array.dictionary is None else array.dictionary.nbytes)

    @property
    def storage(self) -> Array:
        """The array as the extension's storage type, sharing the memory; the array itself for any other type."""
        return self.with_layout(self.layout.storage)

    def with_layout(self, layout: Layout) -> Array:
        """Return the array under another layout with the same buffers and children, without copying."""
        if layout is self.layout:
            return self
        return Array(layout, self.length, self.buffers, self.children, self.dictionary, self._null_count, self.offset)

    def values(self, index: int) -> Values:
        """Return the elements of buffer `index` for the slots of this array, as a read-only NumPy view."""
        spec = self.layout.buffers[index]
        buffer = self.buffers[index]
        assert spec.dtype is not None
        if buffer is None or (buffer.size == 0 and self.offset + self.length == 0):
            return np.zeros(self.length + spec.extra, spec.dtype)
        return buffer.view(spec.dtype, self.offset, self.length + spec.extra)

    @property
    def validity(self) -> Buffer | None:
        """The validity bitmap, with the first slot at bit `offset`; None if no slot is null."""
        return None if not self.layout.has_validity or self.null_count == 0 else self.buffers[0]

    def mask(self) -> Mask | None:
        """Return the validity bitmap as booleans of shape (length,), True for valid; None if no slot is null."""
        validity = self.validity
        return None if validity is None else bitmap.unpack(validity, self.offset, self.length)

    @overload
    def is_valid(self, index: int) -> bool: ...
    @overload
    def is_valid(self) -> Array: ...
    def is_valid(self, index: int | None = None) -> bool | Array:
        """Return whether slot `index` is valid by the array's validity bitmap.

        Without an index, return a boolean array with one element per slot, which also regards nulls in dictionaries,
        runs and union children (`bowstring.compute.nulls`). Raises `IndexError` if the index is out of range.
        """
        if index is None:
            from bowstring.compute import nulls

            return nulls.is_valid(self)
        validity = self.buffers[0] if self.layout.has_validity else None
        index = normalize_index(index, self.length)
        if validity is None:
            return self.null_count == 0
        return bitmap.get(validity, self.offset + index)

    def field(self, key: int | str) -> Array:
        """Return a child array by index or field name, limited to the slots of this array.

        Raises `NotFoundError` if there is no such child or the name is ambiguous.
        """
        names = [f.name for f in self.type.fields]
        if isinstance(key, str):
            if names.count(key) != 1:
                raise NotFoundError(
                    f"{self.type} has {names.count(key)} children named {key!r}; its children are {names}"
                )
            key = names.index(key)
        key = to_integer("a child index", key)
        if not -len(names) <= key < len(names):
            raise NotFoundError(f"child index {key} is out of range for {self.type} with {len(names)} children")
        return self.compact().children[key]

    # Values

    def to_pylist(self) -> list[Any]:
        """Return the values as Python objects, None for null.

        Timestamps, dates, times and durations become `datetime` objects if these represent them exactly, else NumPy's
        `datetime64` or `timedelta64`. Decimals become `Decimal`, structs dictionaries, maps lists of pairs. Raises
        `InvalidDataError` if the buffers are malformed, and `LimitError` if there are far more values than the array
        has bytes (`bowstring.layouts.gather`).
        """
        if self.length == 1:
            return [self.layout.value_at(self, 0)]
        check_length(self)
        return self.layout.to_pylist(self)

    def to_numpy(self, zero_copy_only: bool = True) -> Values:
        """Return the values as a NumPy array of shape (length,), or (length, list_size) for fixed-size lists.

        The result shares the memory, read-only, if the layout allows. Otherwise raises `WouldCopyError`, or copies with
        `zero_copy_only=False`: nulls become NaN, NaT or None, and integers with nulls become float64.
        """
        if not zero_copy_only:
            check_length(self)
        return self.layout.to_numpy(self, not zero_copy_only)

    def to_pandas(self, **options: Unpack[ToPandasOptions]) -> Any:
        """Return the values as a pandas series. `bowstring.interop.pandas.to_pandas` lists the options.

        The series owns its memory. With `copy=False` or `zero_copy_only=True` it shares the array's memory, read-only,
        if there are no nulls and NumPy has the type. Raises `MissingExtraError` if pandas is not installed, and
        `WouldCopyError` if `zero_copy_only` is not possible.
        """
        from bowstring.interop.pandas.to_pandas import to_series

        return to_series(self, options)

    @classmethod
    def from_pandas(cls, values: Any, type: TypeLike | None = None) -> Array:
        """Create an array from a pandas series, index or array. Missing values become null.

        Shares the memory of numbers, dates and times. Raises `DataTypeError` if the values do not fit one type or the
        requested one, and for periods, intervals and sparse values.
        """
        from bowstring.interop.pandas.from_pandas import column_from_series

        return column_from_series(values, type).combine_chunks()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Values:
        """Return the values as `to_numpy` does, copied only if necessary.

        `copy=False` raises `WouldCopyError` instead of copying. Raises `DataTypeError` if there are nulls and `dtype`
        cannot represent them.
        """
        return convert_dtype(self.to_numpy(zero_copy_only=copy is False), self, dtype, copy)

    def __buffer__(self, flags: int) -> memoryview:
        """Support `memoryview(array)` from Python 3.12 on (`bowstring.interop.dlpack`)."""
        from bowstring.interop import dlpack

        return dlpack.array_buffer(self)

    def __dlpack__(self, **options: Any) -> Any:
        """Return the values as a DLPack capsule: a copy, or with `copy=False` the read-only memory itself.

        `options` are those of the array API standard (`bowstring.interop.dlpack`). Raises `NotShareableError` (a
        `BufferError`) for nulls and for layouts without primitive elements.
        """
        from bowstring.interop import dlpack

        return dlpack.array_capsule(self, options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """The DLPack device of the values: the CPU."""
        from bowstring.interop import dlpack

        return dlpack.CPU_DEVICE

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Any]:
        return iter(self.to_pylist())

    @overload
    def __getitem__(self, key: int) -> Any: ...
    @overload
    def __getitem__(self, key: slice) -> Array: ...
    def __getitem__(self, key: int | slice) -> Any:
        if isinstance(key, slice):
            start, stop, step = key.indices(self.length)
            if step == 1:
                return self.slice(start, max(stop - start, 0))
            check_count(self, len(range(start, stop, step)))
            return self.take(np.arange(start, stop, step, dtype=np.int64))
        return self.layout.value_at(self, normalize_index(key, self.length))

    # Structure

    def slice(self, offset: int = 0, length: int | None = None) -> Array:
        """Return up to `length` slots from slot `offset` on (by default all remaining ones), without copying."""
        offset, length = clip_slice(offset, length, self.length)
        if length == self.length:
            return self
        null_count = 0 if self._null_count == 0 else (length if self._null_count == self.length else -1)
        return Array(
            self.layout, length, self.buffers, self.children, self.dictionary, null_count, self.offset + offset
        )

    def compact(self) -> Array:
        """Return an equal array with offset 0 and no elements outside its slots; copies only if necessary."""
        return self.layout.compact(self)

    def take(self, indices: Sequence[int] | Values | Array) -> Array:
        """Return the slots at `indices` (non-negative integers without nulls), copied.

        Raises `UsageError` if an index is out of range or not an integer.
        """
        return self.layout.take(self, check_indices(indices, self.length))

    # Compute (`bowstring.layouts.array_methods`)

    filter = array_methods.filter
    is_null = array_methods.is_null
    drop_null = array_methods.drop_null
    fill_null = array_methods.fill_null
    sort_indices = array_methods.sort_indices
    sort = array_methods.sort
    cast = array_methods.cast
    unique = array_methods.unique
    dictionary_encode = array_methods.dictionary_encode
    run_end_encode = array_methods.run_end_encode
    run_end_decode = array_methods.run_end_decode
    dictionary_decode = array_methods.dictionary_decode

    # Comparison, validation, display

    def equals(self, other: Any, nans_equal: bool = False) -> bool:
        """Return whether types, lengths, nulls and values are equal. Memory under nulls is ignored.

        `other` may be an array of another library with `__arrow_c_array__`.
        """
        from bowstring.layouts.equality import arrays_equal

        return arrays_equal(self, as_array(other), nans_equal)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Array):
            return NotImplemented
        return self.equals(other)

    __hash__ = None  # type: ignore[assignment]

    def validate(self, full: bool = False) -> None:
        """Check buffer sizes, counts and children; with `full` also every offset, index, string and run end.

        Raises `InvalidDataError`; the message names the array, the buffer and the element.
        """
        from bowstring.layouts.validation import validate

        validate(self, full)

    def __repr__(self) -> str:
        from bowstring.layouts.display import array_repr

        return array_repr(self)

    # Arrow C data interface

    def __arrow_c_schema__(self) -> object:
        from bowstring.interop import c_data

        return c_data.export_type(self.type)

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        from bowstring.interop import c_data

        return c_data.export_array(self, requested_schema)

    def __arrow_c_device_array__(self, requested_schema: object = None, **options: object) -> tuple[object, object]:
        from bowstring.interop import c_data

        return c_data.export_device_array(self, requested_schema, options)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Pickle the slots of the array only; from protocol 5 on with out-of-band buffers, not copied (PEP 574).

        Unpickling shares the out-of-band buffers and checks the structure.
        """
        array = self.compact()
        buffers = tuple(None if b is None else b.pickled(protocol) for b in array.buffers)
        return _restore, (array.type, array.length, buffers, array.children, array.dictionary)


def _restore(*args: Any) -> Array:
    return Array.from_buffers(*args)


def as_array(values: object) -> Array:
    """Return an Array as it is and import an array of another library that has `__arrow_c_array__`.

    Raises `DataTypeError` for any other object.
    """
    if isinstance(values, Array):
        return values
    if hasattr(values, "__arrow_c_array__"):
        from bowstring.interop import c_data

        return c_data.import_array(values)
    raise DataTypeError(f"expected an array, found {type(values).__name__}; create one with bowstring.array")

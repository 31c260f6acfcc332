"""The data of arrays, and the base class of physical layouts («Buffer Listing for Each Layout»).

A `Layout` belongs to one data type. It declares its buffers as a tuple of `BufferSpec`s and its children as the type's
fields. All code that traverses arrays (IPC, the C data interface, validation, display, inspection) uses that
declaration. The module of each layout implements conversion, take, concatenation and comparison. `ArrayData` has the
memory of one array and refers to its layout, which implements the operations on it.
"""

# ruff: noqa: PLC0414 -- other modules import the types of NumPy arrays from here
from __future__ import annotations

import reprlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from types import NoneType
from typing import Any, ClassVar, Self

import numpy as np

from bowstring.datatypes.types import DataType
from bowstring.display.values import array_to_html, format_preview, format_type
from bowstring.errors import InvalidDataError, WouldCopyError
from bowstring.layouts import expansion_limits
from bowstring.layouts.expansion_limits import check_expanded_values
from bowstring.layouts.indexing import Indices as Indices, as_indices, clip_slice
from bowstring.layouts.value_codecs.base import Values as Values, not_none_mask
from bowstring.memory import bitmap
from bowstring.memory.bitmap import Mask
from bowstring.memory.buffer import EMPTY, Buffer

# A Python dictionary or list with a few entries takes about as much memory as eight numbers.
_VALUES_PER_CONTAINER = 8


class BufferRole(Enum):
    """The purpose of a buffer."""

    VALIDITY = "validity"
    OFFSETS = "offsets"
    SIZES = "sizes"
    TYPE_IDS = "type ids"
    VIEWS = "views"
    DATA = "data"


@dataclass(frozen=True, slots=True)
class BufferSpec:
    """The declaration of one buffer of a layout.

    `dtype` is the NumPy type of an element, None for bits. A buffer has one element per slot plus `num_extra` elements.
    If it is not `per_slot`, its size depends on the contents of the other buffers. Elements with `is_opaque` are byte
    strings and have no byte order.
    """

    role: BufferRole
    dtype: np.dtype[Any] | None = None
    num_extra: int = 0
    per_slot: bool = True
    is_opaque: bool = False

    @property
    def is_validity(self) -> bool:
        """Whether the buffer is a validity bitmap, which may be absent."""
        return self.role is BufferRole.VALIDITY

    def size_bytes(self, slots: int) -> int:
        """The minimum size in bytes for this number of slots."""
        if not self.per_slot:
            return 0
        return bitmap.size_bytes(slots) if self.dtype is None else (slots + self.num_extra) * self.dtype.itemsize


VALIDITY = BufferSpec(BufferRole.VALIDITY)


class Layout(ABC):
    """The physical layout of one data type.

    `buffers` and `children` declare the structure, with one child layout for each field of the type. Instances are
    stateless and shared by all arrays of the type. `bowstring.layouts.registry.layout_of` returns them.
    """

    __slots__ = ("buffers", "children", "type")

    VARIADIC: ClassVar[bool] = False
    """Whether a variable number of data buffers follows the declared ones."""
    CHECKS_CHILD_VALUES: ClassVar[bool] = False
    """Whether `check_full` reads the children's values, which must be valid for that."""
    CHILD_NAMES: ClassVar[tuple[str, ...]] = ()
    """The names of the children in messages, if not the names of their fields."""

    def __init__(self, type: DataType, buffers: Sequence[BufferSpec], children: Sequence[Layout] = ()) -> None:
        self.type = type
        self.buffers = tuple(buffers)
        self.children = tuple(children)

    @property
    def dictionary(self) -> Layout | None:
        """The layout of the dictionary, for the dictionary-encoded layout."""
        return None

    def child_name(self, index: int) -> str:
        """The name of a child in messages."""
        return self.CHILD_NAMES[index] if self.CHILD_NAMES else f"field {self.type.fields[index].name!r}"

    @property
    def storage(self) -> Layout:
        """The layout of an extension type's storage; the layout itself for any other type."""
        return self

    @property
    def has_validity(self) -> bool:
        """Whether arrays have a validity bitmap of their own."""
        return bool(self.buffers) and self.buffers[0].is_validity

    def buffer_size_error(self, index: int, buffer: Buffer | None, slots: int) -> InvalidDataError | None:
        """Return the error for a declared buffer that is too small for this number of slots, or absent; None if it is
        not. A validity bitmap may be absent, and without slots every buffer.
        """
        spec = self.buffers[index]
        needed, size = spec.size_bytes(slots), 0 if buffer is None else buffer.size
        if size >= needed or not (slots or size) or (buffer is None and spec.is_validity):
            return None
        found = "is absent" if buffer is None else f"has {size} bytes"
        return InvalidDataError(f"the {spec.role.value} buffer {found}, {slots} slots need {needed} ({self.type})")

    def count_nulls(self, array: ArrayData) -> int:
        """Count the null slots by the validity bitmap."""
        validity = array.own_buffers[0] if self.has_validity else None
        return 0 if validity is None else array.length - bitmap.count_set_bits(validity, array.offset, array.length)

    def logical_validity_mask(self, array: ArrayData, in_unions: bool = True) -> Mask | None:
        """Return which slots are logically valid, shape (length,); None if all are.

        Nulls in dictionaries and runs count as null, with `in_unions` also those in children of unions. Without, these
        are the slots that `identity_keys` distinguishes: a null of a union belongs to one of its children, all other
        nulls are one value.
        """
        return array.validity_mask()

    def fill_null(self, array: ArrayData, valid: Mask, filler: ArrayData) -> ArrayData:
        """Replace the slots that are not `valid` by the single slot of `filler`; copies."""
        candidates = self.concat([array, filler])
        return self.take(candidates, np.where(valid, np.arange(array.length), array.length))

    # Values

    @abstractmethod
    def from_pylist(self, values: Sequence[Any]) -> ArrayData:
        """Create an array of Python values, None for null.

        Raises `TypeMismatchError` naming the first value that does not fit the type.
        """

    def from_pylist_of_types(self, values: Sequence[Any], python_types: set[type]) -> ArrayData:
        """As `from_pylist`, for values whose Python types, including NoneType, are `python_types`."""
        return self.from_pylist(values)

    def from_numpy(self, array: Values, mask: Values | None = None) -> ArrayData:
        """Create an array of the rows of a NumPy array, null where `mask` is False (None if all are valid).

        Raises `TypeMismatchError` if a value does not fit the type.
        """
        values = list(array) if array.ndim > 1 or array.dtype.kind in "mM" else array.tolist()
        if array.dtype.kind == "T" and array.ndim == 1:
            values = [value if isinstance(value, str) else None for value in values]
        if mask is not None:
            values = [value if is_valid else None for value, is_valid in zip(values, mask.tolist(), strict=True)]
        return self.from_pylist(values)

    def nulls(self, length: int) -> ArrayData:
        """Create an array of `length` nulls."""
        return self.from_pylist([None] * length)

    @abstractmethod
    def to_pylist(self, array: ArrayData) -> list[Any]:
        """Return the values as Python objects, None for null."""

    def value_at(self, array: ArrayData, index: int, max_elements: int | None = None) -> Any:
        """Return the value at a non-negative index as a Python object, None for null.

        With `max_elements` as a preview: of each list in it at most the first elements, as a `repr` shows few and lists
        may have millions, and floats of 16 and 32 bits as NumPy's, whose text has the fewest digits.
        """
        return self.to_pylist(array.slice(index, 1))[0]

    def view_as_numpy(self, array: ArrayData) -> Values | None:
        """Return the values as `copy_to_numpy` does, without copying; None if that is not possible."""
        return None

    def copy_to_numpy(self, array: ArrayData) -> Values:
        """Return the values as a NumPy array, rows first, of objects if NumPy has no such type."""
        return to_object_array(self.to_pylist(array))

    # Structure

    @abstractmethod
    def compact(self, array: ArrayData) -> ArrayData:
        """Return an equal array with offset 0 and no elements outside its slots; copies only if necessary."""

    @abstractmethod
    def take(self, array: ArrayData, indices: Indices) -> ArrayData:
        """Return the slots at `indices`, which are within range, copied."""

    @abstractmethod
    def concat(self, arrays: Sequence[ArrayData]) -> ArrayData:
        """Concatenate one or more arrays of this layout; copies."""

    @abstractmethod
    def have_equal_values(self, left: ArrayData, right: ArrayData, nans_equal: bool) -> bool:
        """Return whether two arrays of this type, of equal length and without nulls, have equal values."""

    def have_equal_valid_values(self, left: ArrayData, right: ArrayData, nans_equal: bool) -> bool:
        """Return whether two arrays of this type, of equal length and with the same nulls (not all), are equal.

        `have_equal_values`, which also compares memory under nulls, has returned False.
        """
        indices = np.flatnonzero(bitmap.unpack(left.own_buffers[0] or EMPTY, left.offset, left.length))
        return self.have_equal_values(self.take(left, indices), self.take(right, indices), nans_equal)

    def sort_keys(self, array: ArrayData) -> tuple[Values, ...] | None:
        """Return NumPy arrays of shape (length,) that order the slots of an array without nulls.

        The most significant key is first. Returns None if the type has no order.
        """
        return None

    def identity_keys(self, array: ArrayData) -> tuple[Values, ...]:
        """Return NumPy arrays of shape (length,) that are all equal at two slots if and only if these are identical.

        By default these are the `sort_keys`. NaN is identical to NaN; 0.0 and -0.0 differ. `logical_validity_mask`
        must select all slots of the array.
        """
        keys = self.sort_keys(array)
        assert keys is not None
        return keys

    # Validation; `bowstring.layouts.validation` checks the declared structure

    def check(self, array: ArrayData) -> None:
        """Check the structure, without reading every value. Raises `InvalidDataError`."""

    def check_full(self, array: ArrayData) -> None:
        """Check every value after `check` has passed; raises `InvalidDataError`."""


class ArrayData:
    """The layout, length, null count, offset, own buffers, children and dictionary of an array; immutable.

    The slots are those from `offset` to `offset + length` of the buffers, so that slicing does not copy, as in the C
    data interface. `known_null_count` is negative until the null slots are counted. The constructor checks nothing;
    call `validate` for that.
    """

    __slots__ = (
        "__weakref__",
        "children",
        "dictionary",
        "known_null_count",
        "layout",
        "length",
        "offset",
        "own_buffers",
    )

    def __init__(  # noqa: PLR0913 -- an array has this many parts
        self,
        layout: Layout,
        length: int,
        buffers: tuple[Buffer | None, ...],
        children: tuple[Self, ...] = (),
        dictionary: Self | None = None,
        null_count: int = -1,
        offset: int = 0,
    ) -> None:
        self.layout = layout
        self.length = length
        self.own_buffers = buffers
        self.children = children
        self.dictionary = dictionary
        self.offset = offset
        self.known_null_count = null_count

    @property
    def type(self) -> DataType:
        """The data type."""
        return self.layout.type

    @property
    def null_count(self) -> int:
        """The number of null slots, counted on first use."""
        if self.known_null_count < 0:
            self.known_null_count = self.layout.count_nulls(self)
        return self.known_null_count

    @property
    def nbytes(self) -> int:
        """The size of the slots in bytes, including the dictionary, without padding and bytes outside the slice."""
        array = self.compact()
        size = sum(b.size for b in array.own_buffers if b is not None) + sum(child.nbytes for child in array.children)
        return size + (0 if array.dictionary is None else array.dictionary.nbytes)

    @property
    def storage(self) -> Self:
        """The array as the extension's storage type, sharing the memory; the array itself for any other type."""
        return self.with_layout(self.layout.storage)

    def with_layout(self, layout: Layout) -> Self:
        """Return the array under another layout with the same buffers and children, without copying."""
        if layout is self.layout:
            return self
        return self.__class__(
            layout, self.length, self.own_buffers, self.children, self.dictionary, self.known_null_count, self.offset
        )

    def buffer_values(self, index: int) -> Values:
        """Return the elements of buffer `index` for the slots of this array, as a read-only NumPy view."""
        spec = self.layout.buffers[index]
        buffer = self.own_buffers[index]
        assert spec.dtype is not None
        if buffer is None or (buffer.size == 0 and self.offset + self.length == 0):
            return np.zeros(self.length + spec.num_extra, spec.dtype)
        return buffer.view(spec.dtype, self.offset, self.length + spec.num_extra)

    def slice_buffer(self, index: int) -> Buffer:
        """Return the bytes of buffer `index` for the slots of this array, without copying. Raises `InvalidDataError` if
        it is too short.
        """
        spec, buffer, slots = self.layout.buffers[index], self.own_buffers[index] or EMPTY, self.offset + self.length
        assert spec.dtype is not None
        error = self.layout.buffer_size_error(index, buffer, slots)
        if error is not None:
            raise error
        start = self.offset * spec.dtype.itemsize
        return buffer.slice(start, spec.size_bytes(slots) - start)

    @property
    def validity(self) -> Buffer | None:
        """The validity bitmap, with the first slot at bit `offset`; None if no slot is null."""
        return None if not self.layout.has_validity or self.null_count == 0 else self.own_buffers[0]

    def require_dictionary(self) -> Self:
        """Return the dictionary of a dictionary-encoded array. Raises `InvalidDataError` if it is missing."""
        if self.dictionary is None:
            raise InvalidDataError(f"the array of {self.type} has no dictionary")
        return self.dictionary

    def validity_mask(self) -> Mask | None:
        """Return the validity bitmap as booleans of shape (length,), True for valid; None if no slot is null."""
        validity = self.validity
        return None if validity is None else bitmap.unpack(validity, self.offset, self.length)

    def is_null_at(self, index: int) -> bool:
        """Return whether a slot is null by the validity bitmap, which the layout must have."""
        validity = self.own_buffers[0]
        return validity is not None and self.known_null_count != 0 and not bitmap.get(validity, self.offset + index)

    def compact_validity(self) -> Buffer | None:
        """Return the validity bitmap with the first slot at bit 0; None if no slot is null."""
        validity = self.validity
        return None if validity is None else bitmap.realign_zero_padded(validity, self.offset, self.length)

    def take_validity(self, indices: Indices) -> Buffer | None:
        """Return the validity bitmap of the slots at `indices`; None if none of them is null."""
        mask = self.validity_mask()
        return None if mask is None else pack_validity(mask[indices])

    def slice(self, offset: int = 0, length: int | None = None) -> Self:
        """Return up to `length` slots from slot `offset` on (by default all remaining ones), without copying.

        >>> bs.array([1, 2, 3]).slice(1)
        <bowstring.Array int64[2]>
        [2, 3]
        """
        offset, length = clip_slice(offset, length, self.length)
        if length == self.length:
            return self
        null_count = 0 if self.known_null_count == 0 else (length if self.known_null_count == self.length else -1)
        return self.__class__(
            self.layout, length, self.own_buffers, self.children, self.dictionary, null_count, self.offset + offset
        )

    def compact(self) -> ArrayData:
        """Return an equal array with offset 0 and no elements outside its slots; copies only if necessary."""
        return self.layout.compact(self)

    def take(self, indices: Sequence[int] | Values | ArrayData) -> ArrayData:
        """Return the slots at `indices` (non-negative integers without nulls), copied.

        Raises `InvalidArgumentError` if an index is out of range or not an integer.

        >>> bs.array(["a", "b", "c"]).take([2, 0])
        <bowstring.Array string[2]>
        ["c", "a"]
        """
        return self.layout.take(self, as_indices(indices, self.length))

    def to_pylist(self) -> list[Any]:
        """Return the values as Python objects, None for null.

        Timestamps, dates, times and durations become `datetime` objects if these represent them exactly, else NumPy's
        `datetime64` or `timedelta64`. Decimals become `Decimal`, structs dictionaries, maps lists of pairs. Raises
        `InvalidDataError` if the buffers are malformed, and `LimitError` if there are far more values than the array
        has bytes (`bowstring.layouts.expansion_limits`).

        >>> bs.array([{"x": 1}, None]).to_pylist()
        [{'x': 1}, None]
        """
        if self.length == 1:
            return [self.layout.value_at(self, 0)]
        check_expanded_array(self)
        return self.layout.to_pylist(self)

    tolist = to_pylist  # the name in NumPy

    def to_numpy(self, zero_copy_only: bool = True) -> Values:
        """Return the values as a NumPy array of shape (length,), or (length, list_size) for fixed-size lists.

        The result shares the memory, read-only, if the layout allows. Otherwise raises `WouldCopyError`, or copies with
        `zero_copy_only=False`: nulls become NaN, NaT or None, integers with nulls float64, and lists NumPy arrays.

        >>> bs.array([1.5, 2.5]).to_numpy()
        array([1.5, 2.5])
        >>> bs.array([1, None]).to_numpy(zero_copy_only=False)
        array([ 1., nan])
        """
        if not zero_copy_only:
            check_expanded_array(self)
        view = self.layout.view_as_numpy(self)
        if view is not None:
            return view
        if zero_copy_only:
            self.validity_mask()  # fails for memory of a device, which no copy could read either
            has_nulls = self.null_count or any(child.null_count for child in self.children)
            nulls = " with nulls" if has_nulls else ""
            raise WouldCopyError(
                f"an array of {self.type}{nulls} cannot be converted to NumPy without copying; allow the copy with "
                "zero_copy_only=False"
            )
        return self.layout.copy_to_numpy(self)

    def __len__(self) -> int:
        return self.length

    def __repr__(self) -> str:
        title = f"<bowstring.{type(self).__name__} {format_type(self.type)}[{self.length:,}]>"
        return f"{title}\n{format_preview(self, self.length)}"

    def _repr_html_(self) -> str:
        return array_to_html(self, self.length)


# Functions for several layouts


def pack_validity(mask: Mask | None) -> Buffer | None:
    """Pack a mask (True for valid) into a validity bitmap; None if nothing is null."""
    return None if mask is None or mask.all() else bitmap.pack(mask)


def replace_none(values: Sequence[Any], filler: Any) -> tuple[Sequence[Any], Mask | None]:
    """Replace None by `filler`; return the values, and the mask of those that are not None (None if all are valid)."""
    if NoneType not in map(type, values):
        return values, None
    return [filler if value is None else value for value in values], not_none_mask(values)


def set_nulls_to_none(values: list[Any], mask: Mask | None) -> list[Any]:
    """Set the elements of a list to None where the mask is False, in place; return the list."""
    if mask is not None:
        for index in np.flatnonzero(~mask).tolist():
            values[index] = None
    return values


def to_object_array(values: Sequence[Any]) -> Values:
    """Convert Python objects to a NumPy array of objects, shape (length,), also if they are sequences."""
    return np.fromiter(values, np.dtype(object), len(values))


def to_buffer(values: Values) -> Buffer:
    """Return a buffer over a NumPy array, copied only if it is not contiguous."""
    return Buffer.of(np.ascontiguousarray(values)) if values.size else EMPTY


def find_first_true(mask: Mask) -> int:
    """Return the index of the first True."""
    return int(np.argmax(mask))


def short_repr(value: Any) -> str:
    """Return the `repr` of a value, truncated for messages."""
    return reprlib.repr(value)


def join_reprs(values: Iterable[Any]) -> str:
    """Join the `repr`s of up to eight values for a message."""
    reprs = [repr(value) for _, value in zip(range(9), values, strict=False)]
    return ", ".join(reprs[:8]) + (", …" if len(reprs) > 8 else "")


# Sizes


def total_buffer_size(arrays: Iterable[ArrayData]) -> int:
    """Return the size of the buffers of arrays at every depth in bytes; shared buffers count once."""
    # By address, because `Buffer`s of the same memory are different objects, one for each array that is imported.
    sizes: dict[tuple[int, int], int] = {}
    remaining = list(arrays)
    while remaining:
        array = remaining.pop()
        sizes |= {(b.address, b.size): b.size for b in array.own_buffers if b is not None}
        remaining += [*array.children, *([] if array.dictionary is None else [array.dictionary])]
    return sum(sizes.values())


def sum_buffer_sizes(array: ArrayData, *, with_dictionaries: bool = True) -> int:
    """Return the sum of the sizes of an array's buffers at every depth in bytes.

    Shared buffers count each time: to find them takes about as long again. Without dictionaries, the sum is the
    memory for the slots.
    """
    size = sum([0 if buffer is None else buffer.size for buffer in array.own_buffers])
    for child in array.children:
        size += sum_buffer_sizes(child, with_dictionaries=with_dictionaries)
    if with_dictionaries and array.dictionary is not None:
        size += sum_buffer_sizes(array.dictionary)
    return size


def check_expanded_array(array: ArrayData) -> None:
    """Raise `LimitError` if an array has more values than bits of memory, and more than the limit."""
    check_expanded_arrays([array], array.length)


def check_expanded_arrays(arrays: Sequence[ArrayData], num_values: int) -> None:
    """Raise `LimitError` if `num_values` exceed both the limit and the number of bits in the memory of arrays."""
    if num_values > expansion_limits.MAX_VALUES:
        check_expanded_values(num_values, sum(map(sum_buffer_sizes, arrays)) * 8)


def check_expanded_containers(arrays: Iterable[ArrayData], num_containers: int) -> None:
    """Raise `LimitError` if Python dictionaries or lists of the values of arrays exceed the limit and the number of
    bits in their memory; each takes as much memory as several values.
    """
    if num_containers * _VALUES_PER_CONTAINER > expansion_limits.MAX_VALUES:
        source_bits = sum(map(sum_buffer_sizes, arrays)) * 8
        check_expanded_values(num_containers * _VALUES_PER_CONTAINER, source_bits * _VALUES_PER_CONTAINER)

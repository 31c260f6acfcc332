"""The base class of physical layouts («Buffer Listing for Each Layout»).

A `Layout` belongs to one data type. It declares its buffers as a tuple of `BufferSpec`s and its children as the type's
fields. All code that traverses arrays (IPC, the C data interface, validation, display, inspection) uses that
declaration. The module of each layout implements conversion, take, concatenation and comparison.
"""

from __future__ import annotations

import reprlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from types import NoneType
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from bowstring.errors import InvalidDataError, TypeMismatchError, WouldCopyError
from bowstring.layouts.value_codecs.base import not_none_mask
from bowstring.memory import bitmap
from bowstring.memory.bitmap import Mask
from bowstring.memory.buffer import EMPTY, Buffer

if TYPE_CHECKING:
    from bowstring.datatypes.types import DataType
    from bowstring.layouts.array_data import ArrayData
    from bowstring.layouts.interleave import SlotSelection

Indices: TypeAlias = npt.NDArray[np.int64]
Values: TypeAlias = npt.NDArray[Any]


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
        return bool(self.buffers) and self.buffers[0].role is BufferRole.VALIDITY

    def count_nulls(self, array: ArrayData) -> int:
        """Count the null slots by the validity bitmap."""
        validity = array.buffers[0] if self.has_validity else None
        return 0 if validity is None else array.length - bitmap.count_set_bits(validity, array.offset, array.length)

    def logical_validity_mask(self, array: ArrayData) -> Mask | None:
        """Return which slots are logically valid, shape (length,); None if all are.

        Nulls in dictionaries, runs and union children count as null.
        """
        return array.validity_mask()

    def identity_validity_mask(self, array: ArrayData) -> Mask | None:
        """Return which slots `identity_keys` distinguishes, shape (length,); None for all.

        These are the valid slots, and the nulls of a union, which belong to one of its children. All other nulls are
        one value.
        """
        return self.logical_validity_mask(array)

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

    def value_at(self, array: ArrayData, index: int) -> Any:
        """Return the value at a non-negative index as a Python object, None for null."""
        return self.to_pylist(array.slice(index, 1))[0]

    def to_numpy(self, array: ArrayData, allow_copy: bool) -> Values:
        """Return the values as a NumPy array of shape (length,), of objects if NumPy has no such type."""
        if not allow_copy:
            raise self.would_copy_error()
        return to_object_array(self.to_pylist(array))

    def would_copy_error(self) -> WouldCopyError:
        """Return the error for a conversion to NumPy that has to copy, but is not allowed to."""
        return WouldCopyError(
            f"{self.type} cannot be converted to NumPy without copying; allow the copy with zero_copy_only=False"
        )

    # Structure

    @abstractmethod
    def compact(self, array: ArrayData) -> ArrayData:
        """Return an equal array with offset 0 and no elements outside its slots; copies only if necessary."""

    @abstractmethod
    def take(self, array: ArrayData, indices: Indices) -> ArrayData:
        """Return the slots at `indices`, which are within range, copied."""

    def interleave(self, slots: SlotSelection) -> ArrayData | None:
        """Return the selected slots, copied; None if the layout does not support this in one step."""
        return None

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
        indices = np.flatnonzero(bitmap.unpack(left.buffers[0] or EMPTY, left.offset, left.length))
        return self.have_equal_values(self.take(left, indices), self.take(right, indices), nans_equal)

    def sort_keys(self, array: ArrayData) -> tuple[Values, ...] | None:
        """Return NumPy arrays of shape (length,) that order the slots of an array without nulls.

        The most significant key is first. Returns None if the type has no order.
        """
        return None

    def identity_keys(self, array: ArrayData) -> tuple[Values, ...]:
        """Return NumPy arrays of shape (length,) that are all equal at two slots if and only if these are identical.

        By default these are the `sort_keys`. NaN is identical to NaN; 0.0 and -0.0 differ. `identity_validity_mask`
        must select all slots of the array.
        """
        keys = self.sort_keys(array)
        assert keys is not None
        return keys

    # Validation; `bowstring.layouts.validation` checks the declared structure

    def check(self, array: ArrayData) -> None:
        """Check what does not require reading every value; raises `InvalidDataError`."""

    def check_full(self, array: ArrayData) -> None:
        """Check every value after `check` has passed; raises `InvalidDataError`."""


# Functions for several layouts


def pack_validity(mask: npt.NDArray[np.bool_] | None) -> Buffer | None:
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


def find_first_true(mask: npt.NDArray[np.bool_]) -> int:
    """Return the index of the first True."""
    return int(np.argmax(mask))


@contextmanager
def prefix_errors(location: str) -> Iterator[None]:
    """Prefix the message of an `InvalidDataError` or a `TypeMismatchError` from the block with a location."""
    try:
        yield
    except (InvalidDataError, TypeMismatchError) as error:
        raise type(error)(f"{location}: {error}") from None


def short_repr(value: Any) -> str:
    """Return the `repr` of a value, truncated for messages."""
    return reprlib.repr(value)


def join_reprs(values: Iterable[Any]) -> str:
    """Join the `repr`s of up to eight values for a message."""
    reprs = [repr(value) for _, value in zip(range(9), values, strict=False)]
    return ", ".join(reprs[:8]) + (", …" if len(reprs) > 8 else "")

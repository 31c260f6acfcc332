"""What every layout declares, and what follows from the declaration («Buffer Listing for Each Layout»).

A `Layout` belongs to one data type. It declares its buffers as a tuple of `BufferSpec`s and its children as the type's
fields; everything that walks arrays (IPC, the C data interface, validation, printing, the inspector) walks that
declaration. What a layout's bytes *mean* (values, taking, joining, comparing) is its own module's part.
"""

from __future__ import annotations

import reprlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from bowstring.errors import DataTypeError, InvalidDataError, WouldCopyError
from bowstring.layouts.python_conversion import fill_nulls_in_place, list_to_object_array
from bowstring.memory import bitmap
from bowstring.memory.bitmap import Mask
from bowstring.memory.buffer import EMPTY, Buffer

if TYPE_CHECKING:
    from bowstring.datatypes.types import DataType
    from bowstring.layouts.array import Array
    from bowstring.layouts.interleave import SlotSelection

Indices: TypeAlias = npt.NDArray[np.int64]
Values: TypeAlias = npt.NDArray[Any]


class Role(Enum):
    """What a buffer is for."""

    VALIDITY = "validity"
    OFFSETS = "offsets"
    SIZES = "sizes"
    TYPE_IDS = "type ids"
    VIEWS = "views"
    DATA = "data"


@dataclass(frozen=True, slots=True)
class BufferSpec:
    """One buffer of a layout: what it is for and what it is made of.

    `dtype` is the NumPy type of an element, None where an element is a bit. A buffer has an element for each slot and
    `extra` ones; one that is not `per_slot` has as many as the other buffers refer to. Elements that are `is_opaque`
    are strings of bytes: they have no byte order, whatever their width.
    """

    role: Role
    dtype: np.dtype[Any] | None = None
    extra: int = 0
    per_slot: bool = True
    is_opaque: bool = False

    def size_bytes(self, slots: int) -> int:
        """The least size for so many slots."""
        if not self.per_slot:
            return 0
        return bitmap.size_bytes(slots) if self.dtype is None else (slots + self.extra) * self.dtype.itemsize


VALIDITY = BufferSpec(Role.VALIDITY)


class Layout(ABC):
    """How the values of one data type lie in memory.

    `buffers` and `children` are the declaration: a child layout for each of the type's fields. Instances are stateless,
    shared by all arrays of the type, and come from `bowstring.layouts.registry.layout_of`.
    """

    __slots__ = ("buffers", "children", "type")

    VARIADIC: ClassVar[bool] = False
    """Whether any number of data buffers follows the declared ones."""
    HAS_CHEAP_SLICES: ClassVar[bool] = False
    """Whether the cost of a slice is proportional to its length, apart from the children (`has_cheap_slices`)."""
    CHECKS_CHILD_VALUES: ClassVar[bool] = False
    """Whether `check_full` looks at the children's values, which have to be sound for that."""
    CHILD_NAMES: ClassVar[tuple[str, ...]] = ()
    """What messages call the children, where it is not their fields' names that tell them apart."""

    def __init__(self, type: DataType, buffers: Sequence[BufferSpec], children: Sequence[Layout] = ()) -> None:
        self.type = type
        self.buffers = tuple(buffers)
        self.children = tuple(children)

    @property
    def has_cheap_slices(self) -> bool:
        """Whether work on a slice of an array is in proportion to it, so that slices may be worked on in turn."""
        return self.HAS_CHEAP_SLICES and all(child.has_cheap_slices for child in self.children)

    @property
    def dictionary(self) -> Layout | None:
        """The layout of the dictionary, for the dictionary-encoded layout."""
        return None

    def child_name(self, index: int) -> str:
        """What a message calls a child."""
        return self.CHILD_NAMES[index] if self.CHILD_NAMES else f"field {self.type.fields[index].name!r}"

    @property
    def storage(self) -> Layout:
        """The layout of an extension type's storage; the layout itself for any other type."""
        return self

    @property
    def has_validity(self) -> bool:
        """Whether arrays have a validity bitmap of their own."""
        return bool(self.buffers) and self.buffers[0].role is Role.VALIDITY

    def null_count(self, array: Array) -> int:
        """The number of null slots, by the array's own buffers."""
        validity = array.buffers[0] if self.has_validity else None
        return 0 if validity is None else array.length - bitmap.count(validity, array.offset, array.length)

    def valid_mask(self, array: Array) -> Mask | None:
        """Which slots hold a value, shape (length,), nulls in dictionaries, runs and members of unions found as well;
        None where all do.
        """
        return array.mask()

    def identity_mask(self, array: Array) -> Mask | None:
        """Which slots `identity` tells apart, shape (length,): those that hold a value, and nulls of a union, each of
        which belongs to one of its children; None where all do. All other nulls are one value.
        """
        return self.valid_mask(array)

    def fill(self, array: Array, valid: Mask, filler: Array) -> Array:
        """The slots that are `valid`, and in the place of the others the one slot of `filler`; copies."""
        joined = self.concat([array, filler])
        return self.take(joined, np.where(valid, np.arange(array.length), array.length))

    # Values

    @abstractmethod
    def build(self, values: Sequence[Any]) -> Array:
        """An array of Python values, None for null; raises `DataTypeError` naming the first value that does not fit."""

    def build_fast(self, values: Sequence[Any]) -> Array | None:
        """As `build`, but in the quickest way, and None where that does not do: for values of other Python types than
        the layout's own, and such as do not fit.
        """
        return None

    @abstractmethod
    def to_pylist(self, array: Array) -> list[Any]:
        """The values as Python objects, None for null."""

    def value_at(self, array: Array, index: int) -> Any:
        """The value of one slot, counted from the first of the array, as a Python object; None for null."""
        return self.to_pylist(array.slice(index, 1))[0]

    def numbers(self, array: Array) -> Values | None:
        """The slots as NumPy's numbers or booleans, shape (length,), whatever lies in null ones; None where values are
        no such.
        """
        return None

    def to_numpy(self, array: Array, allow_copy: bool) -> Values:
        """The values as a NumPy array of shape (length,); an object array where NumPy has no such type."""
        if not allow_copy:
            raise WouldCopyError(f"{self.type} has no NumPy form that shares its memory: allow the copy")
        return list_to_object_array(self.to_pylist(array))

    # Structure

    @abstractmethod
    def compact(self, array: Array) -> Array:
        """An equal array with offset 0 whose buffers and children hold nothing beyond it; copies only where it must."""

    @abstractmethod
    def take(self, array: Array, indices: Indices) -> Array:
        """The slots at `indices` (each within the array), copied."""

    def interleave(self, slots: SlotSelection) -> Array | None:
        """The slots, copied; None where arrays of this layout have to be taken from and joined one by one."""
        return None

    @abstractmethod
    def concat(self, arrays: Sequence[Array]) -> Array:
        """Arrays of this layout, at least one, end to end; copies."""

    @abstractmethod
    def equal(self, left: Array, right: Array, nans_equal: bool) -> bool:
        """Whether two arrays of this type, equal length and without nulls have equal values."""

    def equal_where_valid(self, left: Array, right: Array, nans_equal: bool) -> bool:
        """Whether two arrays of this type, equal length and with the same nulls, not all of them, have equal values."""
        kept = np.flatnonzero(bitmap.unpack(left.buffers[0] or EMPTY, left.offset, left.length))
        return self.equal(self.take(left, kept), self.take(right, kept), nans_equal)

    def sort_keys(self, array: Array) -> tuple[Values, ...] | None:
        """NumPy arrays of shape (length,), the most significant first, that compare as the values of an array without
        nulls do; None where values have no order.
        """
        return None

    def identity_keys(self, array: Array) -> tuple[Values, ...]:
        """NumPy arrays of shape (length,) that are all equal at two slots exactly where the values are stored alike; by
        default those of `order`. NaN is NaN, and 0.0 is not -0.0. All slots of the array must have an identity
        (`identity_mask`).
        """
        found = self.sort_keys(array)
        assert found is not None
        return found

    # Validation: the general part is `bowstring.layouts.validation`

    def check(self, array: Array) -> None:
        """What can be checked without looking at every value; raises `InvalidDataError`."""

    def check_full(self, array: Array) -> None:
        """Every value; `check` has passed. Raises `InvalidDataError`."""


# What layouts share


def pack_validity(mask: npt.NDArray[np.bool_] | None) -> Buffer | None:
    """The bitmap of a mask (True: valid), or None where nothing is null."""
    return None if mask is None or mask.all() else bitmap.pack(mask)


def fill_nulls(values: Sequence[Any], fill: Any) -> tuple[Sequence[Any], Mask | None]:
    """Values with `fill` in the place of None, and the mask of those that are not None (None where all are)."""
    return fill_nulls_in_place(list(values), fill)


def is_null_at(array: Array, index: int) -> bool:
    """Whether a slot is null, by the validity bitmap of an array that may have one."""
    validity = array.buffers[0]
    return validity is not None and array._null_count != 0 and not bitmap.get(validity, array.offset + index)


def compact_validity(array: Array) -> Buffer | None:
    """The validity bitmap from bit 0 on; None where nothing is null."""
    validity = array.buffers[0]
    if validity is None or array.null_count == 0:
        return None
    return bitmap.realign(validity, array.offset, array.length)


def take_validity(array: Array, indices: Indices) -> Buffer | None:
    """The validity bitmap of the slots at `indices`."""
    mask = array.mask()
    return None if mask is None else pack_validity(mask[indices])


def decode_with_nulls(array: Array, decode: Callable[[Array], list[Any]]) -> list[Any]:
    """What `decode` makes of an array, with None at the null slots; where most are null it is given only the others."""
    mask = array.mask()
    if mask is None:
        return decode(array)
    kept = np.flatnonzero(mask)
    if 2 * len(kept) >= len(mask):
        return set_nulls(decode(array), mask)
    try:
        return scatter_to_list(decode(array.layout.take(array, kept)), kept, len(mask))
    except InvalidDataError:
        array.validate(full=True)  # counts from the first slot
        raise


def set_nulls(values: list[Any], mask: Mask) -> list[Any]:
    """The list with None put where the mask is not True, in place."""
    for index in np.flatnonzero(~mask).tolist():
        values[index] = None
    return values


def scatter_to_list(values: list[Any], places: Indices, length: int) -> list[Any]:
    """So many values: the given ones at their places, and None elsewhere."""
    if _SPARSE * len(values) < length:
        found: list[Any] = [None] * length
        for index, value in zip(places.tolist(), values, strict=True):
            found[index] = value
        return found
    room = np.empty(length, np.dtype(object))
    room[places] = list_to_object_array(values)
    return room.tolist()  # type: ignore[no-any-return]


_SPARSE = 8
_MANY_NULLS = 4
_BLOCK_NUMBERS = 1 << 13


def numbers_to_pylist(numbers: Values, mask: Mask | None) -> list[Any]:
    """NumPy's numbers or booleans as Python's, None where the mask is not True."""
    if mask is None:
        return numbers.tolist()  # type: ignore[no-any-return]
    return decode_in_blocks(len(mask), mask, lambda where: numbers[where].tolist(), _BLOCK_NUMBERS)


def decode_in_blocks(
    length: int, mask: Mask | None, make: Callable[[slice | Indices], list[Any]], size: int
) -> list[Any]:
    """So many values, None where the mask is not True.

    `make` is given the slots of a block that fits the processor's cache, or where many are null only the others: one at
    least.
    """
    found: list[Any] = []
    for first in range(0, length, size):
        block = slice(first, min(first + size, length))
        if mask is None:
            found += make(block)
            continue
        valid = mask[block]
        if _MANY_NULLS * np.count_nonzero(valid) >= (_MANY_NULLS - 1) * len(valid):
            found += set_nulls(make(block), valid)
        else:
            kept = valid.nonzero()[0]
            found += scatter_to_list(make(first + kept) if kept.size else [], kept, len(valid))
    return found


def object_array(values: Sequence[Any]) -> Values:
    """Python objects as a NumPy array of shape (length,), whatever they are."""
    return np.fromiter(values, np.dtype(object), len(values))


def to_buffer(values: Values) -> Buffer:
    """A buffer over a NumPy array, made contiguous if it is not."""
    return Buffer.of(np.ascontiguousarray(values)) if values.size else EMPTY


def first_true(bad: npt.NDArray[np.bool_]) -> int:
    """The position of the first True."""
    return int(np.argmax(bad))


@contextmanager
def error_context(where: str) -> Iterator[None]:
    """Put `where` before the message of an `InvalidDataError` or a `DataTypeError` that is raised inside."""
    try:
        yield
    except (InvalidDataError, DataTypeError) as error:
        raise type(error)(f"{where}: {error}") from None


def short_repr(value: Any) -> str:
    """A value for a message: its `repr`, cut where it is long."""
    return reprlib.repr(value)


def join_reprs(names: Iterable[Any]) -> str:
    """Values for a message, no more than eight."""
    some = [repr(name) for _, name in zip(range(9), names, strict=False)]
    return ", ".join(some[:8]) + (", …" if len(some) > 8 else "")

"""Python values told apart many at a time, without a step of Python for each.

An array of objects holds their addresses, so that None, True and False are found by comparing numbers. The module
`struct` takes whatever gives itself as a number, by one call. Pickling writes each value behind a letter of its type,
in C, and floats as they are: it takes only these. Whoever calls has a careful way for all other values.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from pickle import Pickler, PicklingError
from types import NoneType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from bowstring.memory.bitmap import pack_bools

if TYPE_CHECKING:
    from bowstring.layouts.base import Indices, Values
    from bowstring.memory.bitmap import Mask
    from bowstring.memory.buffer import Buffer

_OBJECT = np.dtype(object)
_BLOCK_VALUES = 1 << 15
FEW_VALUES = 64
"""For so few values the steps that make many quick take longer than they do."""
_RARE = 4
"""Nulls are replaced in a list, one by one, where they are no more than one in so many."""
_HARDLY_ANY = 8
"""Where they are no more than one in so many, that is quicker than to take them out."""


def iter_blocks(values: Sequence[Any], size: int = _BLOCK_VALUES) -> Iterator[tuple[slice, list[Any]]]:
    """So many values after the other, for as long as they are in the processor's cache, and where they stand among all.

    Nobody else has the lists.
    """
    for first in range(0, len(values), size):
        some = values[first : first + size]
        yield slice(first, first + len(some)), some if type(some) is list else list(some)


def unsigned_integers(values: Iterable[int]) -> Values:
    """Whole numbers from 0 on, such as lengths; as bytes where all of them fit, in less time."""
    found = list(values)
    try:
        return np.frombuffer(bytearray(found), np.uint8)
    except ValueError:
        return np.array(found, np.int64)


def value_lengths(values: Sequence[Any]) -> Values:
    """The lengths of values."""
    return unsigned_integers(map(len, values))


def list_to_object_array(values: list[Any]) -> Values:
    """The objects of a list that nobody else changes meanwhile, shape (length,).

    The array is filled as unpickling fills it, in half the time of any other way, and by the length that is said.
    """
    filled = np.empty(0, _OBJECT)
    state: Any = (1, (len(values),), _OBJECT, False, values)
    filled.__setstate__(state)
    return filled


def _addresses(filled: Values) -> Indices:
    return np.ndarray((len(filled),), np.intp, filled)


_NONE, _TRUE, _FALSE = _addresses(list_to_object_array([None, True, False])).tolist()


def drop_nulls(values: list[Any], fill: Any = None) -> tuple[list[Any], Mask | None]:
    """The values that are not None, and the mask of them (None where all are). Where hardly any is None and a `fill` is
    given, all values come back with that in its place: the list is changed, as that takes less time.

    Nobody else changes the list meanwhile.
    """
    return _apart(values, list_to_object_array(values), fill)


def drop_nulls_of_numbers(values: list[Any], fill: Any) -> tuple[list[Any], Mask | None] | None:
    """As `drop_nulls`, but None altogether where truth values are there: to others than us, they are numbers."""
    filled = list_to_object_array(values)
    addresses = _addresses(filled)
    if (addresses == _TRUE).any() or (addresses == _FALSE).any():
        return None
    return _apart(values, filled, fill)


def _apart(values: list[Any], filled: Values, fill: Any) -> tuple[list[Any], Mask | None]:
    mask: Mask = _addresses(filled) != _NONE
    nulls = np.flatnonzero(~mask)
    if not nulls.size:
        return values, None
    if fill is None or nulls.size * _HARDLY_ANY > len(values):
        return filled[mask].tolist(), mask
    for index in nulls.tolist():
        values[index] = fill
    return values, mask


def put_valid(found: Values, mask: Mask | None, out: Values) -> None:
    """Put what was found for the values that are `drop_nulls` to their places among zeros."""
    if mask is None or len(found) == len(out):
        out[:] = found
    else:
        out[np.flatnonzero(mask)] = found


def fill_nulls_in_place(values: list[Any], fill: Any) -> tuple[list[Any], Mask | None]:
    """Values with `fill` in the place of None, and the mask of those that are not None (None where all are).

    The list is changed, and nobody else changes it meanwhile.
    """
    if len(values) < FEW_VALUES and NoneType not in set(map(type, values)):
        return values, None
    filled = list_to_object_array(values)
    mask: Mask = _addresses(filled) != _NONE
    nulls = np.flatnonzero(~mask)
    if not nulls.size:
        return values, None
    if nulls.size * _RARE > len(values):
        filled[nulls] = list_to_object_array([fill])
        return filled.tolist(), mask
    for index in nulls.tolist():
        values[index] = fill
    return values, mask


def fill_few_nulls(values: Sequence[Any], fill: Any) -> tuple[Sequence[Any], Buffer | None]:
    """As `fill_nulls_in_place` for few values, none of which is changed, with a bitmap for the mask."""
    if NoneType not in set(map(type, values)):
        return values, None
    return [fill if value is None else value for value in values], pack_bools([value is not None for value in values])


def parse_booleans(values: list[Any]) -> tuple[Mask, Mask] | None:
    """Which values are True, and which are not None; None where others than those and False are among them.

    Nobody else changes the list meanwhile.
    """
    addresses = _addresses(list_to_object_array(values))
    true, valid = addresses == _TRUE, addresses != _NONE
    known = true | (addresses == _FALSE)
    return (true, valid) if (known == valid).all() else None


def are_all_of_type(values: list[Any], kind: type) -> bool:
    """Whether all values are of exactly one type."""
    return list(map(type, values)).count(kind) == len(values)


def attribute_arrays(values: list[Any], *names: str) -> list[Values]:
    """Attributes that are whole numbers of 64 bits, an array for each."""
    return [np.fromiter(map(attrgetter(name), values), np.int64, len(values)) for name in names]


def parse_numbers(values: list[Any], dtype: np.dtype[Any]) -> Values | None:
    """Whatever gives itself as a number as those of a machine; None where other values are among them, and such as do
    not fit.
    """
    try:
        return np.frombuffer(struct.pack(f"{len(values)}{dtype.char}", *values), dtype)
    except (struct.error, TypeError, ValueError, OverflowError):
        return None


def pack_few_numbers(values: Sequence[Any], kind: type, dtype: np.dtype[Any]) -> bytes | None:
    """Few Python numbers of exactly one type as those of a machine, end to end; None where others are among them, and
    such as do not fit.
    """
    if not {kind}.issuperset(map(type, values)):
        return None
    try:
        return struct.pack(f"{len(values)}{dtype.char}", *values)
    except (struct.error, OverflowError):
        return None


_FLOAT = np.dtype([("letter", "u1"), ("value", ">f8")])
_LETTER = ord("G")
_HEAD = b"\x80\x03("


class _Pickler(Pickler):
    """Writes what is built in only, and runs nobody's code. It writes a container once, however often it is found."""

    def reducer_override(self, value: Any) -> NoReturn:
        raise PicklingError


class _Parts:
    """A file that keeps what is written, and does not copy it."""

    __slots__ = ("kept", "write")

    def __init__(self) -> None:
        self.kept: list[bytes] = []
        self.write = self.kept.append


def parse_floats(values: list[Any]) -> Values | None:
    """Python floats as 64-bit ones, of any byte order; None where other values are among them."""
    count = len(values)
    if count < FEW_VALUES:
        return np.array(values, np.float64) if {float}.issuperset(map(type, values)) else None
    if type(values[0]) is not float:
        return None
    written = _Parts()
    try:
        _Pickler(written, 3).dump(tuple(values))
    except (PicklingError, RuntimeError):
        return None
    data = written.kept[0]
    if len(data) < len(_HEAD) + count * _FLOAT.itemsize:
        return None
    records = np.frombuffer(data, _FLOAT, count, len(_HEAD))
    if not (records["letter"] == _LETTER).all():
        return None
    return records["value"]

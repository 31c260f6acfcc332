"""Fast conversion of many Python values at a time, without Python code for each value.

A NumPy array of objects stores their addresses, so that comparing integers finds None, True and False. `struct.pack`
converts all values that support `__index__` or `__float__` in one call. Pickling writes each value after a letter for
its type, in C, so that floats can be recognized and read. Callers have a slower path for all other values.
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
"""Up to this number of values, plain Python code is faster than NumPy."""
_MIN_VALUES_PER_NULL_TO_FILL = 4
"""Nulls are replaced one by one in the list if at most one in this number of values is null."""
_MIN_VALUES_PER_NULL_TO_KEEP = 8
"""Replacing nulls is faster than dropping them if at most one in this number of values is null."""


def iter_blocks(values: Sequence[Any], size: int = _BLOCK_VALUES) -> Iterator[tuple[slice, list[Any]]]:
    """Split values into blocks that fit the processor's cache; yield the slice and a new list of each block."""
    for first in range(0, len(values), size):
        block = values[first : first + size]
        yield slice(first, first + len(block)), block if type(block) is list else list(block)


def unsigned_integers(values: Iterable[int]) -> Values:
    """Convert non-negative integers such as lengths to an array, of uint8 if they fit, which is faster."""
    integers = list(values)
    try:
        return np.frombuffer(bytearray(integers), np.uint8)
    except ValueError:
        return np.array(integers, np.int64)


def value_lengths(values: Sequence[Any]) -> Values:
    """Return the lengths of values."""
    return unsigned_integers(map(len, values))


def list_to_object_array(values: list[Any]) -> Values:
    """Convert a list, which no other thread may modify meanwhile, to an array of objects, shape (length,).

    `__setstate__`, as in unpickling, takes half the time of any other way.
    """
    objects = np.empty(0, _OBJECT)
    state: Any = (1, (len(values),), _OBJECT, False, values)
    objects.__setstate__(state)
    return objects


def _addresses(objects: Values) -> Indices:
    return np.ndarray((len(objects),), np.intp, objects)


_NONE, _TRUE, _FALSE = _addresses(list_to_object_array([None, True, False])).tolist()


def drop_nulls(values: list[Any], fill: Any = None) -> tuple[list[Any], Mask | None]:
    """Return the values that are not None, and the mask of the valid ones (None if all are valid).

    With a `fill`, if few values are None, these are replaced in the list instead, because that is faster, and the
    whole list is returned. No other thread may modify the list meanwhile.
    """
    return _drop_nulls(values, list_to_object_array(values), fill)


def drop_nulls_of_numbers(values: list[Any], fill: Any) -> tuple[list[Any], Mask | None] | None:
    """As `drop_nulls`, but return None if there are booleans, which `struct` and NumPy accept as numbers."""
    objects = list_to_object_array(values)
    addresses = _addresses(objects)
    if (addresses == _TRUE).any() or (addresses == _FALSE).any():
        return None
    return _drop_nulls(values, objects, fill)


def _drop_nulls(values: list[Any], objects: Values, fill: Any) -> tuple[list[Any], Mask | None]:
    mask: Mask = _addresses(objects) != _NONE
    nulls = np.flatnonzero(~mask)
    if not nulls.size:
        return values, None
    if fill is None or nulls.size * _MIN_VALUES_PER_NULL_TO_KEEP > len(values):
        return objects[mask].tolist(), mask
    for index in nulls.tolist():
        values[index] = fill
    return values, mask


def put_valid(values: Values, mask: Mask | None, out: Values) -> None:
    """Write the values that `drop_nulls` returned to their slots of `out`."""
    if mask is None or len(values) == len(out):
        out[:] = values
    else:
        out[np.flatnonzero(mask)] = values


def fill_nulls_in_place(values: list[Any], fill: Any) -> tuple[list[Any], Mask | None]:
    """Replace None by `fill`; return the values and the mask of the valid ones (None if all are valid).

    May modify the list, which no other thread may modify meanwhile.
    """
    if len(values) < FEW_VALUES and NoneType not in set(map(type, values)):
        return values, None
    objects = list_to_object_array(values)
    mask: Mask = _addresses(objects) != _NONE
    nulls = np.flatnonzero(~mask)
    if not nulls.size:
        return values, None
    if nulls.size * _MIN_VALUES_PER_NULL_TO_FILL > len(values):
        objects[nulls] = list_to_object_array([fill])
        return objects.tolist(), mask
    for index in nulls.tolist():
        values[index] = fill
    return values, mask


def fill_few_nulls(values: Sequence[Any], fill: Any) -> tuple[Sequence[Any], Buffer | None]:
    """As `fill_nulls_in_place` for few values, without modifying them, and with a validity bitmap."""
    if NoneType not in set(map(type, values)):
        return values, None
    return [fill if value is None else value for value in values], pack_bools([value is not None for value in values])


def parse_booleans(values: list[Any]) -> tuple[Mask, Mask] | None:
    """Return which values are True and which are not None; None if there are values other than True, False and None.

    No other thread may modify the list meanwhile.
    """
    addresses = _addresses(list_to_object_array(values))
    is_true, is_valid = addresses == _TRUE, addresses != _NONE
    is_bool = is_true | (addresses == _FALSE)
    return (is_true, is_valid) if (is_bool == is_valid).all() else None


def are_all_of_type(values: list[Any], kind: type) -> bool:
    """Return whether the type of every value is exactly `kind`."""
    return list(map(type, values)).count(kind) == len(values)


def attribute_arrays(values: list[Any], *names: str) -> list[Values]:
    """Return an int64 array for each of some integer attributes of the values."""
    return [np.fromiter(map(attrgetter(name), values), np.int64, len(values)) for name in names]


def parse_numbers(values: list[Any], dtype: np.dtype[Any]) -> Values | None:
    """Convert values that support `__index__` or `__float__` to a NumPy type; None if one does not, or does not fit."""
    try:
        return np.frombuffer(struct.pack(f"{len(values)}{dtype.char}", *values), dtype)
    except (struct.error, TypeError, ValueError, OverflowError):
        return None


def pack_few_numbers(values: Sequence[Any], kind: type, dtype: np.dtype[Any]) -> bytes | None:
    """Pack a few Python numbers of exactly one type; None if there are others, or if one does not fit."""
    if not {kind}.issuperset(map(type, values)):
        return None
    try:
        return struct.pack(f"{len(values)}{dtype.char}", *values)
    except (struct.error, OverflowError):
        return None


_PICKLED_FLOAT = np.dtype([("opcode", "u1"), ("value", ">f8")])
_BINFLOAT = ord("G")
_PICKLE_HEADER = b"\x80\x03("


class _Pickler(Pickler):
    """A pickler of built-in types only, which runs no user code."""

    def reducer_override(self, value: Any) -> NoReturn:
        raise PicklingError


class _Sink:
    """A writable file that collects what is written, without copying it."""

    __slots__ = ("chunks", "write")

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.write = self.chunks.append


def parse_floats(values: list[Any]) -> Values | None:
    """Convert Python floats to a float64 array of any byte order; None if there are other values."""
    count = len(values)
    if count < FEW_VALUES:
        return np.array(values, np.float64) if {float}.issuperset(map(type, values)) else None
    if type(values[0]) is not float:
        return None
    sink = _Sink()
    try:
        _Pickler(sink, 3).dump(tuple(values))
    except (PicklingError, RuntimeError):
        return None
    pickled = sink.chunks[0]
    if len(pickled) < len(_PICKLE_HEADER) + count * _PICKLED_FLOAT.itemsize:
        return None
    records = np.frombuffer(pickled, _PICKLED_FLOAT, count, len(_PICKLE_HEADER))
    if not (records["opcode"] == _BINFLOAT).all():
        return None
    return records["value"]

"""Python values told apart many at a time, without a step of Python for each.

An array of objects holds their addresses, so that None, True and False are found by comparing numbers. Pickling writes
each value behind a letter of its type, in C, and floats as they are: it tells their types and takes them in one pass.
Only values of exactly one type are taken; whoever calls has a careful way for all others.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from io import BytesIO
from pickle import Pickler, PicklingError
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

if TYPE_CHECKING:
    from bowstring.layouts.base import Indices, Values
    from bowstring.memory.bitmap import Mask

_OBJECT = np.dtype(object)


def _objects(values: list[Any]) -> Values:
    """The objects of a list that nobody else changes meanwhile, shape (length,).

    The array is filled as unpickling fills it, in half the time of any other way, and by the length that is said.
    """
    filled = np.empty(0, _OBJECT)
    state: Any = (1, (len(values),), _OBJECT, False, values)
    filled.__setstate__(state)
    return filled


def _addresses(filled: Values) -> Indices:
    return np.ndarray((len(filled),), np.intp, filled)


_NONE, _TRUE, _FALSE = _addresses(_objects([None, True, False])).tolist()


def nulls_filled(values: list[Any], fill: Any) -> tuple[list[Any], Mask | None]:
    """Values with `fill` in the place of None, and the mask of those that are not None (None where all are).

    Nobody else changes the list meanwhile.
    """
    filled = _objects(values)
    mask: Mask = _addresses(filled) != _NONE
    if mask.all():
        return values, None
    filled[~mask] = _objects([fill])
    return filled.tolist(), mask


def booleans(values: list[Any]) -> tuple[Values, Mask | None] | None:
    """Truth values (False for None), and the mask of those that are not None (None where all are); None where others
    are among them. Nobody else changes the list meanwhile.
    """
    addresses = _addresses(_objects(values))
    true, mask = addresses == _TRUE, addresses != _NONE
    if not np.array_equal(true | (addresses == _FALSE), mask):
        return None
    return true, None if mask.all() else mask


def integers(values: Sequence[Any], dtype: np.dtype[Any]) -> Values | None:
    """Python integers as those of a machine; None where others are among them, and such as do not fit."""
    if list(map(type, values)).count(int) < len(values):
        return None
    try:
        return np.frombuffer(struct.pack(f"{len(values)}{dtype.char}", *values), dtype)
    except struct.error:
        return None


_FLOAT = np.dtype([("letter", "u1"), ("value", ">f8")])
_LETTER = ord("G")
_HEAD = b"\x80\x03("
_FEW = 64


class _Pickler(Pickler):
    """Writes what is built in only, and runs nobody's code. It writes a container once, however often it is found."""

    def reducer_override(self, value: Any) -> NoReturn:
        raise PicklingError


def floats(values: Sequence[Any]) -> Values | None:
    """Python floats as 64-bit floats; None where others are among them."""
    count = len(values)
    if count < _FEW:
        return np.array(values, np.float64) if {float}.issuperset(map(type, values)) else None
    if type(values[0]) is not float:
        return None
    written = BytesIO()
    try:
        _Pickler(written, 3).dump(tuple(values))
    except (PicklingError, RuntimeError):
        return None
    records = np.frombuffer(written.getbuffer(), _FLOAT, min(count, (written.tell() - len(_HEAD)) // 9), len(_HEAD))
    if len(records) < count or not (records["letter"] == _LETTER).all():
        return None
    return records["value"].astype(np.float64)

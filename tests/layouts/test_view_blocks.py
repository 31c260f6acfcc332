"""Views are validated a block at a time: a fault is named by its place among all, and only strings have to be text."""

from __future__ import annotations

import re

import numpy as np
import pytest

import bowstring as bs
from bowstring.errors import InvalidDataError
from bowstring.layouts.binary_view import VIEW

BLOCK = 1 << 15
COUNT = 2 * BLOCK + 100
PLACES = [0, BLOCK - 1, BLOCK, COUNT - 1]
WORD = "größer als zwölf"
DATA = WORD.encode()


def views(count: int = COUNT) -> np.ndarray:
    """So many views of the word, every second one's own first two characters instead, inline."""
    made = np.zeros(count, VIEW)
    made["length"] = len(DATA)
    made["prefix"] = np.void(DATA[:4])
    made["length"][1::2] = 2
    made["prefix"][1::2] = np.void(b"gr\0\0")
    return made


def array_of(made: np.ndarray, *data: bytes, valid: np.ndarray | None = None) -> bs.Array:
    bits = None if valid is None else np.packbits(valid, bitorder="little")
    return bs.Array.from_buffers(bs.string_view(), len(made), [bits, made, *data])


def test_sound_views_are_accepted() -> None:
    array = array_of(views(), DATA)
    array.validate(full=True)
    assert array[:3].to_pylist() == [WORD, "gr", WORD]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("view", "message"),
    [
        ((-3, b"gr\xc3\xb6", 0, 0), "views[{}] has the negative length -3"),
        ((len(DATA), b"gr\xc3\xb6", 1, 0), "views[{}] points to data buffer 1 of 1"),
        ((len(DATA), b"gr\xc3\xb6", 0, 1), "views[{}] points to bytes 1 to"),
        ((len(DATA), b"gros", 0, 0), "views[{}] has the prefix b'gros'"),
        ((3, b"gros", 0, 0), "views[{}] is inline, but"),
        ((4, b"gros", 0, 7), "views[{}] is inline, but"),
        ((12, b"gros", 0, 0xFF), "values[{}] is not valid UTF-8"),
        ((3, b"gr\xc3\0", 0, 0), "values[{}] is not valid UTF-8"),
        ((14, b"\xb6\xc3\x9fe", 0, 3), "values[{}] is not valid UTF-8"),
        ((13, b"r\xc3\xb6\xc3", 0, 1), None),
        ((15, b"gr\xc3\xb6", 0, 0), "values[{}] is not valid UTF-8"),
    ],
)
def test_a_fault_is_named_by_its_place(place: int, view: tuple[int, bytes, int, int], message: str | None) -> None:
    data = DATA if message is None or view[0] != 15 else b"gr\xc3\xb6" + b"x" * 10 + b"\xc3\xb6z"
    made = views()
    if data is not DATA:
        made["length"][::2] = len(data)
    made[place] = (view[0], np.void(view[1]), *view[2:])
    array = array_of(made, data)
    if message is None:
        array.validate(full=True)
        return
    with pytest.raises(InvalidDataError, match=re.escape(message.format(place))):
        array.validate(full=True)
    valid = np.arange(COUNT) != place
    array_of(made, data, valid=valid).validate(full=True)


def test_bytes_between_strings_do_not_count() -> None:
    made = views()
    made["offset"][::2] = np.arange(0, COUNT, 2) % 1000 * (len(DATA) + 1)
    garbled = (DATA + b"\xff") * 1000
    array_of(made, garbled).validate(full=True)
    made["length"][BLOCK] += 1
    with pytest.raises(InvalidDataError, match=rf"values\[{BLOCK}\] is not valid UTF-8"):
        array_of(made, garbled).validate(full=True)


def test_a_string_may_end_before_garbage() -> None:
    array_of(views(), DATA + b"\x80").validate(full=True)


def test_every_data_buffer_is_looked_at() -> None:
    made = views()
    made["buffer"][::2] = np.arange(len(made[::2])) % 3
    array_of(made, DATA, DATA, DATA).validate(full=True)
    broken = DATA[:-1] + b"\xff"
    with pytest.raises(InvalidDataError, match=r"values\[4\] is not valid UTF-8"):
        array_of(made, DATA, DATA, broken).validate(full=True)


def test_a_few_strings_of_much_data_are_looked_at_by_themselves() -> None:
    data = DATA + b"\xff" * 10_000 + DATA
    made = views(3)
    made["offset"][2] = len(data) - len(DATA)
    array_of(made, data).validate(full=True)
    assert array_of(made, data).to_pylist() == [WORD, "gr", WORD]

"""Views are validated by block: an error has the index in the whole array, and only referenced bytes must be UTF-8."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest

import bowstring as bs
from bowstring.errors import InvalidDataError
from bowstring.layouts.binary_view import VIEW

BLOCK = 1 << 15
COUNT = 2 * BLOCK + 100
INDICES = [0, BLOCK - 1, BLOCK, COUNT - 1]
WORD = "größer als zwölf"
DATA = WORD.encode()


def alternating_views(count: int = COUNT) -> np.ndarray:
    """Return views of the word; every second one has its first two characters inline instead."""
    view_records = np.zeros(count, VIEW)
    view_records["length"] = len(DATA)
    view_records["prefix"] = np.void(DATA[:4])
    view_records["length"][1::2] = 2
    view_records["prefix"][1::2] = np.void(b"gr\0\0")
    return view_records


def array_of(view_records: np.ndarray, *data: bytes, valid: np.ndarray | None = None) -> bs.Array:
    bits = None if valid is None else np.packbits(valid, bitorder="little")
    return bs.Array.from_buffers(bs.string_view(), len(view_records), [bits, view_records, *data])


def test_valid_views_are_accepted() -> None:
    array = array_of(alternating_views(), DATA)
    array.validate(full=True)
    assert array[:3].to_pylist() == [WORD, "gr", WORD]


@pytest.mark.parametrize("index", INDICES)
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
def test_an_error_is_named_by_its_index(index: int, view: tuple[int, bytes, int, int], message: str | None) -> None:
    data = DATA if message is None or view[0] != 15 else b"gr\xc3\xb6" + b"x" * 10 + b"\xc3\xb6z"
    view_records = alternating_views()
    if data is not DATA:
        view_records["length"][::2] = len(data)
    view_records[index] = (view[0], np.void(view[1]), *view[2:])
    array = array_of(view_records, data)
    if message is None:
        array.validate(full=True)
        return
    with pytest.raises(InvalidDataError, match=re.escape(message.format(index))):
        array.validate(full=True)
    valid = np.arange(COUNT) != index
    array_of(view_records, data, valid=valid).validate(full=True)


def test_bytes_between_strings_are_ignored() -> None:
    view_records = alternating_views()
    view_records["offset"][::2] = np.arange(0, COUNT, 2) % 1000 * (len(DATA) + 1)
    garbled = (DATA + b"\xff") * 1000
    array_of(view_records, garbled).validate(full=True)
    view_records["length"][BLOCK] += 1
    with pytest.raises(InvalidDataError, match=rf"values\[{BLOCK}\] is not valid UTF-8"):
        array_of(view_records, garbled).validate(full=True)


def test_a_string_may_end_before_garbage() -> None:
    array_of(alternating_views(), DATA + b"\x80").validate(full=True)


def test_every_data_buffer_is_validated() -> None:
    view_records = alternating_views()
    view_records["buffer"][::2] = np.arange(len(view_records[::2])) % 3
    array_of(view_records, DATA, DATA, DATA).validate(full=True)
    truncated_text = DATA[:-1] + b"\xff"
    with pytest.raises(InvalidDataError, match=r"values\[4\] is not valid UTF-8"):
        array_of(view_records, DATA, DATA, truncated_text).validate(full=True)


def test_the_first_of_many_missing_data_buffers_is_reported_at_once() -> None:
    view_records = np.zeros(300_000, VIEW)
    view_records["length"] = len(DATA)
    view_records["prefix"] = np.void(DATA[:4])
    view_records["buffer"] = np.arange(len(view_records))
    start = time.process_time()
    with pytest.raises(InvalidDataError, match=r"views\[1\] points to data buffer 1 of 1"):
        array_of(view_records, DATA).validate(full=True)
    assert time.process_time() - start < 0.5  # 2 s if all buffers are looked at


def test_a_few_strings_in_much_data_are_validated_one_by_one() -> None:
    data = DATA + b"\xff" * 10_000 + DATA
    view_records = alternating_views(3)
    view_records["offset"][2] = len(data) - len(DATA)
    array_of(view_records, data).validate(full=True)
    assert array_of(view_records, data).to_pylist() == [WORD, "gr", WORD]

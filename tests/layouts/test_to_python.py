"""Conversion to Python values: by block, with nulls, of any length and from any offset."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import bowstring as bs
from bowstring.errors import InvalidDataError
from bowstring.layouts.gather import gather_bytes
from bowstring.memory.buffer import UINT8

ROWS = 9000
"""More than a block of anything."""
NULL_FRACTIONS = (0.0, 0.02, 0.2, 0.5, 0.8, 0.99, 1.0)
"""How many values are null: there are different ways for few, many and nearly all."""


def random_lengths(random: np.random.Generator, most: int) -> list[int]:
    return list(random.integers(0, most, ROWS).tolist())


def random_words(random: np.random.Generator) -> list[str]:
    letters = "aé春👍\0 z"
    return [letters[n % 7] * n for n in random_lengths(random, 20)]


def random_lists(random: np.random.Generator) -> list[list[int]]:
    return [list(range(n)) for n in random_lengths(random, 6)]


KINDS: dict[str, tuple[Any, Callable[[np.random.Generator], list[Any]]]] = {
    "integers": (bs.int64(), lambda random: random.integers(-9, 9, ROWS).tolist()),
    "unsigned bytes": (bs.uint8(), lambda random: random.integers(0, 256, ROWS).tolist()),
    "floats": (bs.float32(), lambda random: random.integers(0, 9, ROWS).astype(float).tolist()),
    "booleans": (bs.bool_(), lambda random: (random.random(ROWS) < 0.5).tolist()),
    "strings": (bs.string(), random_words),
    "large strings": (bs.large_string(), random_words),
    "string views": (bs.string_view(), random_words),
    "binary": (bs.binary(), lambda random: [word.encode() for word in random_words(random)]),
    "binary views": (bs.binary_view(), lambda random: [word.encode() for word in random_words(random)]),
    "lists of integers": (bs.list_(bs.int16()), random_lists),
    "lists of strings": (
        bs.list_(bs.string()),
        lambda random: [["x" * n] * (n % 4) for n in random_lengths(random, 9)],
    ),
    "lists with nulls": (bs.list_(bs.int8()), lambda random: [[n, None] * (n % 3) for n in random_lengths(random, 9)]),
    "lists of lists": (
        bs.list_(bs.list_(bs.bool_())),
        lambda random: [[[n > 3] * n] * 2 for n in random_lengths(random, 5)],
    ),
    "list views": (bs.list_view(bs.int32()), random_lists),
    "pairs": (bs.list_(bs.float64(), 2), lambda random: [[float(n), 0.5] for n in random_lengths(random, 9)]),
    "pairs of strings": (bs.list_(bs.string(), 2), lambda random: [[str(n), ""] for n in random_lengths(random, 9)]),
    "maps": (
        bs.map_(bs.string(), bs.int32()),
        lambda random: [[(str(n), n)] * (n % 3) for n in random_lengths(random, 9)],
    ),
    "structs": (
        bs.struct({"n": bs.int32(), "s": bs.string()}),
        lambda random: [{"n": n, "s": "x" * n} for n in random_lengths(random, 9)],
    ),
    "dates": (bs.date32(), lambda random: (np.datetime64("2026-11-21") + random.integers(0, 9, ROWS)).tolist()),
    "dictionaries": (
        bs.dictionary(bs.int16(), bs.string()),
        lambda random: [str(n) for n in random_lengths(random, 99)],
    ),
}


@pytest.mark.parametrize("null_fraction", NULL_FRACTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_values_are_preserved_among_any_share_of_nulls(kind: str, null_fraction: float) -> None:
    own_type, make = KINDS[kind]
    random = np.random.default_rng(7)
    values = [
        None if is_null else v
        for v, is_null in zip(make(random), (random.random(ROWS) < null_fraction).tolist(), strict=True)
    ]
    array = bs.array(values, own_type)
    assert array.to_pylist() == values
    assert array.slice(4099, 4500).to_pylist() == values[4099 : 4099 + 4500]


def strings(values: Sequence[bytes], valid: Any = None, type: Any = None) -> bs.Array:
    offsets = np.cumsum([0, *map(len, values)], dtype=np.int32)
    mask = None if valid is None else np.packbits(valid, bitorder="little")
    return bs.Array.from_buffers(type or bs.string(), len(values), [mask, offsets, b"".join(values)])


@pytest.mark.parametrize("null_fraction", NULL_FRACTIONS[1:])
@pytest.mark.parametrize("type", [bs.string(), bs.binary()])
def test_bytes_under_nulls_are_not_read(type: Any, null_fraction: float) -> None:
    is_null = np.random.default_rng(8).random(ROWS) < null_fraction
    is_null[0] = True
    array = strings([b"\xff" * 3 if null else b"word" for null in is_null.tolist()], ~is_null, type)
    word = "word" if type == bs.string() else b"word"
    assert array.to_pylist() == [None if null else word for null in is_null.tolist()]


@pytest.mark.parametrize("most", [1, 20, 64, 66, 300, 3000])
@pytest.mark.parametrize("letter", ["a", "ß"])
@pytest.mark.parametrize("type", [bs.string(), bs.string_view()])
def test_short_and_long_strings_are_preserved(type: Any, letter: str, most: int) -> None:
    random = np.random.default_rng(9)
    sizes = np.where(
        random.random(ROWS) < 0.02, random.integers(0, most, ROWS), random.integers(0, min(most, 16), ROWS)
    )
    for values in ([letter * n for n in sizes.tolist()], [letter * n for n in sizes[sizes > most // 2].tolist()]):
        assert bs.array(values, type).to_pylist() == values


@pytest.mark.parametrize("most", [0, 1, 12, 13, 63, 65, 254, 255, 256, 700])
@pytest.mark.parametrize("type", [bs.binary(), bs.large_binary(), bs.binary_view()])
def test_byte_strings_of_any_bytes_and_lengths_are_preserved(type: Any, most: int) -> None:
    random = np.random.default_rng(11)
    noise = random.integers(0, 256, most + 256, np.uint8).tobytes()
    long, short = (
        random.integers(0, most + 1, 700).tolist(),
        [*random.integers(0, min(most, 9) + 1, 700).tolist(), most],
    )
    for sizes in (long, short, short[::-1], [most], [most] * 300, [0] * 300):
        values = [noise[n % 256 : n % 256 + size] for n, size in enumerate(sizes)]
        assert bs.array(values, type).to_pylist() == values
        with_nulls = [None if n % 7 == 0 else value for n, value in enumerate(values)]
        assert bs.array(with_nulls, type).slice(1).to_pylist() == with_nulls[1:]


@pytest.mark.parametrize("type", [bs.binary(), bs.string()])
def test_values_far_apart_in_the_data_are_read_among_nulls(type: Any) -> None:
    valid = np.arange(400) % 5 == 0
    array = strings([b"word" if is_valid else b"\xff" * 3000 for is_valid in valid.tolist()], valid, type)
    word = "word" if type == bs.string() else b"word"
    assert array.to_pylist() == [word if is_valid else None for is_valid in valid.tolist()]


@pytest.mark.parametrize("length", [3, 300])
@pytest.mark.parametrize("type", [bs.string(), bs.string_view()])
def test_nulls_are_preserved_between_strings_of_any_length(type: Any, length: int) -> None:
    for letters in ("a", "aé", "👍"):
        values = [None if n % 9 == 0 else letters * (length + n % 3) for n in range(400)]
        assert bs.array([*values, None], type).to_pylist() == [*values, None]
        assert bs.array(values, type).slice(1, 8).to_pylist() == values[1:9]


def test_a_view_that_is_not_utf8_is_named_by_its_index() -> None:
    for bad in (3, 20_000):
        values = [b"ok", b"a word of more than twelve bytes"] * 10_001
        values[bad] = b"\xc3"
        array = bs.array(values, bs.binary_view())
        views = bs.Array.from_buffers(bs.string_view(), len(values), array.own_buffers)
        with pytest.raises(InvalidDataError, match=rf"values\[{bad}\] is not valid UTF-8"):
            views.to_pylist()


@pytest.mark.parametrize("letter", ["a", "é"])
def test_strings_with_every_separator_are_preserved(letter: str) -> None:
    values = [chr(n % 40) + letter * (n % 3) for n in range(ROWS)]
    assert bs.array(values).to_pylist() == values


def test_a_value_that_ends_within_a_character_is_named_among_nulls() -> None:
    words = [b"ok"] * ROWS
    words[8000], words[8001] = b"\xc3", b"\xa9"
    for few in (1, 2, 100):
        valid = np.arange(ROWS) % few == 0
        valid[8000] = True
        with pytest.raises(InvalidDataError, match=r"values\[8000\] is not valid UTF-8"):
            strings(words, valid).to_pylist()


def test_an_invalid_value_in_mostly_null_lists_is_named_by_its_index() -> None:
    words = [b"ok"] * ROWS
    words[8000] = b"\xff"
    mask = np.packbits(np.arange(ROWS) % 100 == 0, bitorder="little")
    lists = bs.Array.from_buffers(
        bs.list_(bs.string()), ROWS, [mask, np.arange(ROWS + 1, dtype=np.int32)], [strings(words)]
    )
    with pytest.raises(InvalidDataError, match=r"values\[8000\] is not valid UTF-8"):
        lists.to_pylist()


@pytest.mark.parametrize("most", [0, 5, 60, 400])
def test_bytes_are_gathered_from_any_offset(most: int) -> None:
    random = np.random.default_rng(10)
    data = random.integers(0, 256, 500, np.uint8).astype(UINT8)
    sizes = random.integers(0, most + 1, 5000)
    starts = random.integers(0, 501 - sizes)
    pieces = [data[a:b].tobytes() for a, b in zip(starts.tolist(), (starts + sizes).tolist(), strict=True)]
    assert gather_bytes(data, starts, sizes).tobytes() == b"".join(pieces)


@pytest.mark.parametrize("type", [bs.int32(), bs.bool_(), bs.string()])
def test_lists_of_many_lengths_are_preserved(type: Any) -> None:
    make: Any = {"bool": lambda n: n % 3 == 0, "string": str}.get(str(type), int)
    sizes = [*range(140), *[3] * 50, *[0] * 20, 127, 128, 129, 500]
    values = [[make(n + at) for at in range(n)] for n in sizes]
    for expected in (values, values[::-1], values * 45):
        assert bs.array(expected, bs.list_(type)).to_pylist() == expected


def test_unordered_and_overlapping_list_views_are_read() -> None:
    starts, sizes = [4, 0, 6, 2, 0] * 20, [2, 3, 0, 4, 6] * 20
    buffers = [None, np.array(starts, np.int32), np.array(sizes, np.int32)]
    array = bs.Array.from_buffers(bs.list_view(bs.int64()), 100, buffers, [bs.array([10, 11, 12, 13, 14, 15])])
    assert array.to_pylist()[:5] == [[14, 15], [10, 11, 12], [], [12, 13, 14, 15], [10, 11, 12, 13, 14, 15]]
    assert array.slice(5, 95).to_pylist() == array.to_pylist()[:95]


@pytest.mark.parametrize("fields", range(11))
def test_structs_become_dictionaries_in_field_order(fields: int) -> None:
    names = [f"field {at}" for at in range(fields)]
    rows = [{name: row * at for at, name in enumerate(names)} for row in range(2500)]
    rows_read = bs.array(rows, bs.struct({name: bs.int64() for name in names})).to_pylist()
    assert rows_read == rows
    assert [list(row) for row in rows_read] == [names] * 2500


@pytest.mark.parametrize("rows", [1, 2100])
def test_an_invalid_value_in_nested_lists_fails_at_once(rows: int) -> None:
    array = strings([b"ok"] * (rows - 1) + [b"\xff"])
    for _ in range(40):
        offsets = np.arange(rows + 1, dtype=np.int32)
        array = bs.Array.from_buffers(bs.list_(array.type), rows, [None, offsets], [array])
    start = time.monotonic()
    with pytest.raises(InvalidDataError, match=rf"values\[{rows - 1}\] is not valid UTF-8"):
        array.to_pylist()
    assert time.monotonic() - start < 60


@pytest.mark.parametrize("type", [bs.string(), bs.large_string(), bs.string_view(), bs.binary(), bs.binary_view()])
@pytest.mark.parametrize("null_fraction", NULL_FRACTIONS[:4])
def test_a_few_long_values_among_many_short_ones_are_preserved(type: Any, null_fraction: float) -> None:
    random = np.random.default_rng(12)
    values: list[Any] = ["x" * n for n in random.integers(0, 20, 40_000).tolist()]
    for index, size in ((0, 65), (1, 64), (2, 255), (16_383, 256), (16_384, 70_000), (-2, 257), (-1, 300)):
        values[index] = "long" + "y" * (size - 4)
    if "binary" in str(type):
        values = [value.encode() + b"\xff\0" for value in values]
    values = [
        None if is_null else v
        for v, is_null in zip(values, (random.random(40_000) < null_fraction).tolist(), strict=True)
    ]
    array = bs.array(values, type)
    assert array.to_pylist() == values
    assert array.slice(1, 39_998).to_pylist() == values[1:-1]


@pytest.mark.parametrize("type", [bs.string(), bs.string_view()])
def test_non_ascii_strings_after_many_ascii_strings_are_preserved(type: Any) -> None:
    plain = [f"word {n}" for n in range(40_000)]
    for last in ("é", "x" * 300 + "é", "\ud7ff", "a\0é\x1f"):
        assert bs.array([*plain, last], type).to_pylist() == [*plain, last]


def test_byte_strings_of_any_length_are_read_from_views() -> None:
    values = [None if n % 11 == 0 else b"\xff" * (n % 90) for n in range(70_000)]
    array = bs.array(values, bs.binary())
    assert array.to_pylist() == values
    assert array.cast(bs.binary_view()).to_pylist() == values


@pytest.mark.parametrize("bad", [b"\xff", b"\xed\xa0\x80", b"x" * 300 + b"\xc3"])
@pytest.mark.parametrize("at", [5, 30_000])
def test_invalid_text_is_named_among_many_short_strings(bad: bytes, at: int) -> None:
    words = [b"word"] * 40_000
    words[at] = bad
    with pytest.raises(InvalidDataError, match=rf"values\[{at}\] is not valid UTF-8"):
        strings(words).to_pylist()


@pytest.mark.parametrize("type", [bs.string_view(), bs.binary_view()])
@pytest.mark.parametrize(
    ("column", "value", "what"), [(0, -90_000, "length"), (2, 1, "buffer 1 of 1"), (3, -1, "bytes -1 to")]
)
def test_a_view_outside_its_data_is_named_among_many(type: Any, column: int, value: int, what: str) -> None:
    views_array = bs.array(["a word of more than twelve bytes"] * 40_000, bs.string_view())
    views = views_array.buffer_values(1).view(np.int32).reshape(-1, 4).copy()
    views[30_000, column] = value
    for mask in (None, np.packbits(np.arange(40_000) % 3 == 0, bitorder="little")):
        array = bs.Array.from_buffers(type, 40_000, [mask, views.reshape(-1), *views_array.own_buffers[2:]])
        with pytest.raises(InvalidDataError, match=rf"views\[30000\].*{what}"):
            array.to_pylist()
    hidden = np.packbits(np.arange(40_000) != 30_000, bitorder="little")
    array = bs.Array.from_buffers(type, 40_000, [hidden, views.reshape(-1), *views_array.own_buffers[2:]])
    assert array.to_pylist().count(None) == 1

"""Broken arrays of each layout, made by hand: validation says what is wrong and where, nothing crashes, all print.

`validate()` finds what sizes and counts give away; `validate(full=True)` finds every wrong value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bs
from bowstring.layouts.registry import layout_of
from bowstring.layouts.validation import find_faults

I8, I16, I32, I64 = np.int8, np.int16, np.int32, np.int64


def made(
    type_: bs.DataType,
    length: int,
    buffers: Sequence[Any] = (),
    children: Sequence[bs.Array] = (),
    dictionary: bs.Array | None = None,
    **counts: int,
) -> bs.Array:
    """An array of anything, unchecked."""
    held = tuple(None if b is None else bs.Buffer.of(b) for b in buffers)
    return bs.Array(layout_of(type_), length, held, tuple(children), dictionary, **counts)


def ints(*values: int, dtype: Any = I32) -> Any:
    return np.array(values, dtype)


def view(length: int, prefix: bytes, buffer: int, offset: int) -> bytes:
    return bytes(ints(length).tobytes() + prefix + ints(buffer, offset).tobytes())


def text(cuts: list[int], data: bytes, validity: bytes | None = None, type_: bs.DataType | None = None) -> bs.Array:
    return made(type_ or bs.string(), len(cuts) - 1, [validity, ints(*cuts), data])


@dataclass(frozen=True)
class Broken:
    """An array, what validation says of it, and whether the cheap one finds it."""

    name: str
    array: bs.Array
    message: str
    cheap: bool = False

    def __str__(self) -> str:
        return self.name


TEN = bs.array(range(10), bs.int8())
E_ACUTE = "é".encode()
LONG = b"0123456789abcdef"
LIST = bs.list_(bs.int8())
VIEWS = bs.list_view(bs.int8())
REE = bs.run_end_encoded(bs.int16(), bs.int8())
DENSE = bs.dense_union([("a", bs.int8()), ("b", bs.int8())], [3, 5])
SPARSE = bs.sparse_union([("a", bs.int8()), ("b", bs.int8())], [3, 5])
WORDS = bs.dictionary(bs.int8(), bs.string())
MAP = bs.map_(bs.string(), bs.int8())
ENTRIES = MAP.fields[0].type


def entries(keys: list[Any], validity: bytes | None = None) -> bs.Array:
    key, item = bs.array(keys, bs.string()), bs.array([1] * len(keys), bs.int8())
    return made(ENTRIES, len(keys), [validity], [key, item])


def ree(ends: list[int | None], length: int, values: int = 9, offset: int = 0) -> bs.Array:
    return made(REE, length, [], [bs.array(ends, bs.int16()), TEN.slice(0, values)], offset=offset)


BROKEN = [
    # every layout's buffers and counts
    Broken("negative length", made(bs.int8(), -1, [None, b""]), "length -1", cheap=True),
    Broken("negative offset", made(bs.int8(), 1, [None, b"12"], offset=-1), "offset -1", cheap=True),
    Broken(
        "data too small", made(bs.int32(), 3, [None, b"12345678"]), "data buffer has 8 bytes, 3 slots need 12", True
    ),
    Broken("data too small for the offset", made(bs.int8(), 3, [None, b"123"], offset=1), "4 slots need 4", True),
    Broken("bits too few", made(bs.bool_(), 9, [None, b"1"]), "data buffer has 1 bytes, 9 slots need 2", cheap=True),
    Broken("validity too small", made(bs.int8(), 9, [b"1", b"123456789"]), "validity buffer has 1 bytes", cheap=True),
    Broken("data absent", made(bs.int8(), 1, [None, None]), "data buffer is absent", cheap=True),
    Broken("a buffer missing", made(bs.int8(), 1, [None]), "requires 2 buffers, found 1", cheap=True),
    Broken("a buffer too many", made(bs.int8(), 1, [None, b"1", b"1"]), "requires 2 buffers, found 3", cheap=True),
    Broken("lengths beyond 63 bits", made(bs.int64(), 1 << 63, [None, b""]), "slots need", cheap=True),
    Broken("null count beyond length", made(bs.int8(), 1, [b"\0", b"1"], null_count=2), "null count of 2", cheap=True),
    Broken("nulls without a bitmap", made(bs.int8(), 1, [None, b"1"], null_count=1), "no validity bitmap", cheap=True),
    Broken("nulls in a union", made(DENSE, 1, [b"\3", ints(0)], [TEN, TEN], null_count=1), "no validity bitmap", True),
    Broken("null count too small", made(bs.int8(), 2, [b"\1", b"12"], null_count=0), "bitmap has 1 nulls"),
    Broken("null count too large", made(bs.int8(), 2, [b"\1", b"12"], null_count=2), "bitmap has 1 nulls"),
    # primitive values
    Broken("decimal beyond its precision", made(bs.decimal32(3, 1), 2, [None, ints(999, 1000)]), r"values\[1\]: 1000"),
    Broken(
        "negative decimal too long", made(bs.decimal64(3), 1, [None, ints(-1000, dtype=I64)]), r"values\[0\]: -1000"
    ),
    Broken(
        "wide decimal too long",
        made(bs.decimal128(38), 1, [None, (10**38).to_bytes(16, "little")]),
        rf"values\[0\]: 1{'0' * 38} has more digits",
    ),
    Broken(
        "very wide decimal too long",
        made(bs.decimal256(76), 1, [None, (-(10**76)).to_bytes(32, "little", signed=True)]),
        "more digits than the precision",
    ),
    Broken(
        "time beyond midnight", made(bs.time32("s"), 2, [None, ints(86399, 86400)]), r"values\[1\]: 86400 is not a time"
    ),
    Broken("negative time", made(bs.time64("ns"), 1, [None, ints(-1, dtype=I64)]), r"values\[0\]: -1 is not a time"),
    Broken("date64 within a day", made(bs.date64(), 1, [None, ints(5, dtype=I64)]), r"values\[0\]: 5 ms is not"),
    # binary
    Broken("offsets missing", made(bs.binary(), 2, [None, ints(0, 0), b""]), "offsets buffer has 8 bytes", cheap=True),
    Broken("offset before the data", made(bs.binary(), 1, [None, ints(-1, 1), b"1"]), "run from -1 to 1", cheap=True),
    Broken(
        "offset beyond the data", made(bs.binary(), 1, [None, ints(0, 2), b"1"]), "from 0 to 2, not within", cheap=True
    ),
    Broken("offsets falling", text([0, 2, 1, 3], b"abc"), r"offsets\[2\] = 1 is less than offsets\[1\] = 2"),
    Broken("offset in the middle beyond", text([0, 9, 3], b"abc"), r"offsets\[2\] = 3 is less than"),
    Broken(
        "large offset beyond",
        made(bs.large_string(), 1, [None, ints(0, 1 << 40, dtype=I64), b"x"]),
        "0 to 1099511627776",
        cheap=True,
    ),
    Broken("no UTF-8", text([0, 2, 4], b"ab\xff!"), r"values\[1\] is not valid UTF-8: b'\\xff!'"),
    Broken("a surrogate", text([0, 3], b"\xed\xa0\x80"), r"values\[0\] is not valid UTF-8"),
    Broken("an overlong form", text([0, 2], b"\xc0\x80"), r"values\[0\] is not valid UTF-8"),
    Broken(
        "a character split across values", text([0, 2, 3], b"a" + E_ACUTE), r"values\[0\] is not valid UTF-8: b'a\\xc3'"
    ),
    Broken("a character cut off at the end", text([0, 1, 2], b"a" + E_ACUTE), r"values\[1\] is not valid UTF-8"),
    Broken("a character begun in a null", text([0, 1, 2], E_ACUTE, b"\2"), r"values\[1\] is not valid UTF-8: b'\\xa9'"),
    Broken(
        "a character that ends in a null", text([0, 1, 2], E_ACUTE, b"\1"), r"values\[0\] is not valid UTF-8: b'\\xc3'"
    ),
    # views
    Broken(
        "views too few", made(bs.binary_view(), 2, [None, view(0, b"\0" * 4, 0, 0)]), "views buffer has 16", cheap=True
    ),
    Broken("negative view", made(bs.binary_view(), 1, [None, view(-1, b"0123", 0, 0)]), r"views\[0\] has the negative"),
    Broken(
        "wrong prefix", made(bs.binary_view(), 1, [None, view(16, b"0124", 0, 0), LONG]), r"views\[0\] has the prefix"
    ),
    Broken("no such buffer", made(bs.binary_view(), 1, [None, view(16, b"0123", 1, 0), LONG]), "data buffer 1 of 1"),
    Broken("negative buffer", made(bs.binary_view(), 1, [None, view(16, b"0123", -1, 0), LONG]), "data buffer -1 of 1"),
    Broken(
        "view beyond",
        made(bs.binary_view(), 1, [None, view(16, b"1234", 0, 1), LONG]),
        r"bytes 1 to 17 of a data buffer of 16",
    ),
    Broken("view before", made(bs.binary_view(), 1, [None, view(16, b"1234", 0, -1), LONG]), "bytes -1 to 15"),
    Broken("absent buffer", made(bs.binary_view(), 1, [None, view(16, b"0123", 0, 0), None]), "data buffer of 0 bytes"),
    Broken("stray padding", made(bs.binary_view(), 1, [None, view(1, b"a\0\0\1", 0, 0)]), r"views\[0\] is inline, but"),
    Broken(
        "no UTF-8 inline",
        made(bs.string_view(), 1, [None, view(1, b"\xff\0\0\0", 0, 0)]),
        r"values\[0\] is not valid UTF-8",
    ),
    Broken(
        "split inline",
        made(bs.string_view(), 1, [None, view(1, b"\xc3\0\0\0", 0, 0)]),
        r"values\[0\] is not valid UTF-8",
    ),
    Broken(
        "view ends within a character",
        made(
            bs.string_view(),
            2,
            [None, view(15, b"01\xc3\xa9", 0, 0) + view(18, b"01\xc3\xa9", 0, 0), b"01" + E_ACUTE * 8],
        ),
        r"values\[0\] is not valid UTF-8",
    ),
    Broken(
        "view begins within a character",
        made(
            bs.string_view(),
            2,
            [None, view(18, b"01\xc3\xa9", 0, 0) + view(13, b"\xa9\xc3\xa9\xc3", 0, 3), b"01" + E_ACUTE * 8],
        ),
        r"values\[1\] is not valid UTF-8",
    ),
    # lists
    Broken(
        "child too short",
        made(LIST, 1, [None, ints(0, 11)], [TEN]),
        "from 0 to 11, not within the child's length of 10",
        True,
    ),
    Broken("negative list offset", made(LIST, 1, [None, ints(-1, 1)], [TEN]), "run from -1", cheap=True),
    Broken("falling list offsets", made(LIST, 3, [None, ints(0, 5, 4, 6)], [TEN]), r"offsets\[2\] = 4 is less than"),
    Broken("a child missing", made(LIST, 1, [None, ints(0, 1)]), "requires 1 children, found 0", cheap=True),
    Broken(
        "a child of another type",
        made(LIST, 1, [None, ints(0, 1)], [bs.array([1])]),
        "item: the type is int64, expected int8",
        True,
    ),
    Broken(
        "a broken child",
        made(bs.list_(bs.string()), 1, [None, ints(0, 1)], [text([0, 1], b"\xff")]),
        r"item: values\[0\] is not valid UTF-8",
    ),
    Broken(
        "view beyond the child", made(VIEWS, 1, [None, ints(9), ints(2)], [TEN]), r"offsets\[0\] = 9 and sizes\[0\] = 2"
    ),
    Broken("view before the child", made(VIEWS, 1, [None, ints(-1), ints(1)], [TEN]), r"offsets\[0\] = -1"),
    Broken("negative size", made(VIEWS, 1, [None, ints(1), ints(-1)], [TEN]), r"sizes\[0\] = -1"),
    Broken("empty view beyond", made(VIEWS, 1, [None, ints(11), ints(0)], [TEN]), r"offsets\[0\] = 11"),
    Broken("null view beyond", made(VIEWS, 1, [b"\0", ints(11), ints(0)], [TEN]), r"offsets\[0\] = 11"),
    Broken(
        "view whose end overflows",
        made(bs.large_list_view(bs.int8()), 1, [None, ints(5, dtype=I64), ints((1 << 63) - 1, dtype=I64)], [TEN]),
        r"sizes\[0\] = 9223372036854775807",
    ),
    Broken(
        "fixed child too short", made(bs.list_(bs.int8(), 3), 4, [None], [TEN]), "4 lists of 3 need 12 elements", True
    ),
    Broken(
        "fixed child too short for the offset",
        made(bs.list_(bs.int8(), 3), 3, [None], [TEN], offset=1),
        "4 lists of 3 need 12 elements",
        cheap=True,
    ),
    Broken("null key", made(MAP, 1, [None, ints(0, 2)], [entries(["a", None])]), "1 null keys"),
    Broken("null entry", made(MAP, 1, [None, ints(0, 2)], [entries(["a", "b"], b"\1")]), "1 null entries"),
    # struct and union
    Broken(
        "field too short",
        made(bs.struct({"a": bs.int8()}), 11, [None], [TEN]),
        "child 'a' has 10 values, the struct has 11",
        True,
    ),
    Broken("no such type id", made(DENSE, 2, [b"\3\4", ints(0, 0)], [TEN, TEN]), r"type_ids\[1\] = 4 is none of"),
    Broken("negative type id", made(SPARSE, 1, [b"\xff"], [TEN, TEN]), r"type_ids\[0\] = -1 is none of"),
    Broken(
        "offset beyond the member",
        made(DENSE, 1, [b"\5", ints(10)], [TEN, TEN]),
        r"offsets\[0\] = 10 is not within child 'b'",
    ),
    Broken(
        "negative member offset",
        made(DENSE, 1, [b"\3", ints(-1)], [TEN, TEN]),
        r"offsets\[0\] = -1 is not within child 'a'",
    ),
    Broken(
        "member offsets fall",
        made(DENSE, 3, [b"\3\5\3", ints(4, 0, 3)], [TEN, TEN]),
        "child 'a': the offsets into it fall from 4 to 3",
    ),
    Broken(
        "sparse member too short", made(SPARSE, 10, [b"\3" * 10], [TEN, TEN.slice(1)]), "child 'b' has 9 values", True
    ),
    Broken(
        "type ids too few", made(DENSE, 2, [b"\3", ints(0, 0)], [TEN, TEN]), "type ids buffer has 1 bytes", cheap=True
    ),
    # dictionary
    Broken("no dictionary", made(WORDS, 1, [None, b"\0"]), "has no dictionary", cheap=True),
    Broken(
        "a dictionary of another type",
        made(WORDS, 1, [None, b"\0"], dictionary=TEN),
        "cannot have a dictionary of int8",
        cheap=True,
    ),
    Broken(
        "a dictionary where none belongs",
        made(bs.int8(), 1, [None, b"\0"], dictionary=TEN),
        "cannot have a dictionary of",
        True,
    ),
    Broken(
        "index beyond",
        made(WORDS, 2, [None, b"\0\1"], dictionary=bs.array(["x"])),
        r"indices\[1\] = 1 is not within the dictionary of 1",
    ),
    Broken("negative index", made(WORDS, 1, [None, b"\xff"], dictionary=bs.array(["x"])), r"indices\[0\] = -1"),
    Broken(
        "unsigned index beyond 63 bits",
        made(bs.dictionary(bs.uint64(), bs.string()), 1, [None, b"\xff" * 8], dictionary=bs.array(["x"])),
        r"indices\[0\] = 18446744073709551615",
    ),
    Broken(
        "a broken dictionary", made(WORDS, 1, [None, b"\0"], dictionary=text([0, 1], b"\xff")), "dictionary: values"
    ),
    # runs
    Broken("run ends level", ree([2, 2, 3], 3), r"run_ends\[1\] = 2 is not greater than run_ends\[0\] = 2"),
    Broken("run ends falling", ree([2, 1], 2), r"run_ends\[1\] = 1 is not greater"),
    Broken("run end zero", ree([0, 2], 2), r"run_ends\[0\] = 0 is not positive"),
    Broken("run end negative", ree([-5, 2], 2), r"run_ends\[0\] = -5 is not positive"),
    Broken("run end null", ree([1, None, 3], 3), "1 run ends are null"),
    Broken("runs too short", ree([2, 3], 4), "the last run ends at 3, before slot 4"),
    Broken("runs too short for the offset", ree([2, 3], 3, offset=1), "the last run ends at 3, before slot 4"),
    Broken("no runs", ree([], 1), "the last run ends at 0"),
    Broken("run values too few", ree([1, 2, 3], 3, values=2), "3 run ends have only 2 values", cheap=True),
]


@pytest.mark.parametrize("broken", BROKEN, ids=str)
def test_validation_names_what_is_wrong_and_where(broken: Broken) -> None:
    if broken.cheap:
        with pytest.raises(bs.errors.InvalidDataError, match=broken.message):
            broken.array.validate()
    else:
        broken.array.validate()
    with pytest.raises(bs.errors.InvalidDataError, match=broken.message):
        broken.array.validate(full=True)


@pytest.mark.parametrize("broken", BROKEN, ids=str)
def test_broken_arrays_print(broken: Broken) -> None:
    assert repr(broken.array).startswith("<bowstring.Array ")
    assert repr(bs.Table(bs.schema({"x": broken.array.type}), [])).startswith("<bowstring.Table")


CHEAPLY_SOUND = [broken for broken in BROKEN if not broken.cheap]


@pytest.mark.parametrize("broken", CHEAPLY_SOUND, ids=str)
def test_what_passes_the_cheap_check_gives_values_or_a_clean_error(broken: Broken) -> None:
    array = broken.array
    for attempt in (
        array.to_pylist,
        lambda: array.to_numpy(zero_copy_only=False),
        lambda: array[array.length - 1],
        lambda: array.take([0]),
        lambda: bs.concat_arrays([array, array]).to_pylist(),
        lambda: array.equals(array),
        lambda: array.compact().to_pylist(),
        lambda: array.nbytes,
    ):
        try:
            attempt()
        except bs.errors.InvalidDataError:
            pass


@pytest.mark.parametrize(
    ("name", "array", "values"),
    [
        ("garbage text in a null", text([0, 1, 3], b"a\xff\xff", b"\1"), ["a", None]),
        ("half a character in a null", text([0, 2, 3, 4], E_ACUTE + b"\xa9b", b"\5"), ["é", None, "b"]),
        ("text that does not begin at 0", text([1, 3], b"\xff" + E_ACUTE + b"\xff"), ["é"]),
        ("garbage index in a null", made(WORDS, 2, [b"\1", b"\0\x7f"], dictionary=bs.array(["x"])), ["x", None]),
        ("garbage view in a null", made(bs.string_view(), 1, [b"\0", view(-5, b"????", 9, -9)]), [None]),
        ("time beyond the day in a null", made(bs.time32("s"), 1, [b"\0", ints(-1)]), [None]),
        ("null keys in a null map", made(MAP, 2, [b"\1", ints(0, 1, 2)], [entries(["a", None])]), [[("a", 1)], None]),
        ("overlapping list views", made(VIEWS, 2, [None, ints(0, 1), ints(3, 3)], [TEN]), [[0, 1, 2], [1, 2, 3]]),
        (
            "overlapping views of text",
            made(
                bs.string_view(),
                2,
                [
                    None,
                    view(15, b"0\xc3\xa9\xc3", 0, 1) + view(14, b"\xc3\xa9\xc3\xa9", 0, 2),
                    b"\xff0" + E_ACUTE * 7 + b"\xa9",
                ],
            ),
            ["0ééééééé", "ééééééé"],
        ),
        ("runs beyond the array", ree([2, 300], 3), [0, 0, 1]),
        ("bitmaps and data longer than needed", made(bs.int8(), 1, [b"\xff" * 9, b"\1\2\3"]), [1]),
        ("no offsets for no values", made(bs.string(), 0, [None, b"", b""]), []),
        ("no offsets at all for no values", made(LIST, 0, [None, None], [TEN]), []),
    ],
    ids=lambda it: it if isinstance(it, str) else "",
)
def test_unusual_arrays_are_sound(name: str, array: bs.Array, values: list[Any]) -> None:
    array.validate(full=True)
    assert array.to_pylist() == values


def test_batches_name_the_column_and_tables_the_batch() -> None:
    schema = bs.schema({"n": bs.list_(bs.string())})
    broken = made(schema.types[0], 1, [None, ints(0, 1)], [text([0, 1], b"\xff")])
    batch = bs.RecordBatch(schema, 1, [broken])
    batch.validate()
    with pytest.raises(bs.errors.InvalidDataError, match=r"^column 'n': item: values\[0\] is not valid UTF-8"):
        batch.validate(full=True)
    table = bs.Table(schema, [bs.record_batch([[["x"]]], schema), batch])
    with pytest.raises(bs.errors.InvalidDataError, match=r"^record batch 1: column 'n': item: values\[0\]"):
        table.validate(full=True)
    with pytest.raises(bs.errors.InvalidDataError, match="column 'n': is"):
        bs.RecordBatch(schema, 2, [broken]).validate()
    assert "not valid UTF-8" in batch._repr_html_()


PAIRS = bs.map_(bs.int8(), bs.int8())
SHORT = made(bs.struct({"a": bs.int8()}), 11, [None], [TEN])


@pytest.mark.parametrize(
    "array",
    [
        SHORT,
        SHORT.slice(5),
        made(bs.struct([("a", bs.int8()), ("a", bs.int8())]), 11, [None], [bs.array(range(11), bs.int8()), TEN]),
        made(bs.list_(SHORT.type), 1, [None, ints(0, 11)], [SHORT]),
        made(bs.list_(SHORT.type, 11), 1, [None], [SHORT]),
        made(bs.struct({"b": SHORT.type}), 11, [None], [SHORT]),
    ],
    ids=["as it is", "sliced", "of two fields of one name", "in a list", "in a fixed-size list", "in a struct"],
)
def test_a_struct_whose_field_is_too_short_gives_no_values_and_says_which_field(array: bs.Array) -> None:
    for attempt in (array.to_pylist, lambda: array.take([0]), array.compact, lambda: bs.concat_arrays([array, array])):
        with pytest.raises(bs.errors.InvalidDataError, match="child 'a' has 10 values, the struct has 11"):
            attempt()


def test_rows_of_a_batch_whose_column_is_too_short_are_refused_by_its_name() -> None:
    batch = bs.RecordBatch(bs.schema({"a": bs.int8()}), 11, [TEN])
    with pytest.raises(bs.errors.InvalidDataError, match="column 'a' has 10 values, not 11"):
        batch.to_pylist()


@pytest.mark.parametrize(
    "array",
    [
        made(bs.string(), 0, [None, ints(-5), b""]),
        made(bs.large_binary(), 0, [None, ints(1 << 60, dtype=I64), b"abc"]),
        made(bs.list_(bs.int8()), 0, [None, ints(99)], [TEN]),
        made(PAIRS, 0, [None, ints(-1)], bs.array([], PAIRS).children),
        made(bs.string(), 0, [None, b"", b""]),
    ],
    ids=["negative", "far beyond", "of a list", "of a map", "absent"],
)
def test_what_an_offset_says_does_not_count_where_there_are_no_slots(array: bs.Array) -> None:
    array.validate(full=True)
    assert array.to_pylist() == []
    assert array.equals(bs.array([], array.type))
    assert array.take([]).to_pylist() == []
    assert bs.concat_arrays([array, array]).to_pylist() == []
    array.compact().validate(full=True)
    outside = pa.array(array)
    outside.validate(full=True)
    assert bs.array(outside).to_pylist() == []


def test_a_map_of_broken_keys_tells_of_the_keys_and_of_its_own_offsets() -> None:
    entries = layout_of(PAIRS).children[0]
    keys = made(bs.int8(), 3, [b"\1", bytes(3)], null_count=1)
    pairs = bs.Array(entries, 3, (None,), (keys, bs.array([1, 2, 3], bs.int8())))
    broken = made(PAIRS, 3, [None, ints(0, 2, 3, 9)], [pairs])
    found = [str(fault) for fault in find_faults(broken, full=True)]
    assert found == [
        "entries → field 'key': the null count is 1, but the validity bitmap has 2 nulls",
        "the offsets run from 0 to 9, not within the child's length of 3",
    ]


@pytest.mark.parametrize("place", [0, 8191, 8192, 19_998])
def test_a_time_beyond_the_day_is_named_by_its_place_unless_it_is_null(place: int) -> None:
    slots, valid = np.zeros(20_000, np.int32), np.ones(20_000, bool)
    slots[[place, -1]] = 86_400
    valid[-1] = False

    def times() -> bs.Array:
        return bs.Array.from_buffers(bs.time32("s"), 20_000, [np.packbits(valid, bitorder="little"), slots])

    with pytest.raises(bs.errors.InvalidDataError, match=rf"values\[{place}\]: 86400 is not a time of day"):
        times().validate(full=True)
    valid[place] = False
    times().validate(full=True)

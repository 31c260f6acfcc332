"""Malformed arrays of each layout: validation names the problem and its position, and nothing crashes.

`validate()` checks sizes and counts; `validate(full=True)` checks every value.
"""

from __future__ import annotations

import gc
import weakref
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


def new_array(
    type_: bs.DataType,
    length: int,
    buffers: Sequence[Any] = (),
    children: Sequence[bs.Array] = (),
    dictionary: bs.Array | None = None,
    **counts: int,
) -> bs.Array:
    """Return an array without any check."""
    buffers_ = tuple(None if b is None else bs.memory.Buffer.of(b) for b in buffers)
    return bs.Array(layout_of(type_), length, buffers_, tuple(children), dictionary, **counts)


def ints(*values: int, dtype: Any = I32) -> Any:
    return np.array(values, dtype)


def view(length: int, prefix: bytes, buffer: int, offset: int) -> bytes:
    return bytes(ints(length).tobytes() + prefix + ints(buffer, offset).tobytes())


def string_array(
    cuts: list[int], data: bytes, validity: bytes | None = None, type_: bs.DataType | None = None
) -> bs.Array:
    return new_array(type_ or bs.string(), len(cuts) - 1, [validity, ints(*cuts), data])


@dataclass(frozen=True)
class InvalidArray:
    """An invalid array, the expected message, and whether the cheap validation finds it."""

    name: str
    array: bs.Array
    message: str
    cheap: bool = False

    def __str__(self) -> str:
        return self.name


INT8S = bs.array(range(10), bs.int8())
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
    return new_array(ENTRIES, len(keys), [validity], [key, item])


def run_end_array(ends: list[int | None], length: int, values: int = 9, offset: int = 0) -> bs.Array:
    return new_array(REE, length, [], [bs.array(ends, bs.int16()), INT8S.slice(0, values)], offset=offset)


INVALID_ARRAYS = [
    # every layout's buffers and counts
    InvalidArray("negative length", new_array(bs.int8(), -1, [None, b""]), "length -1", cheap=True),
    InvalidArray("negative offset", new_array(bs.int8(), 1, [None, b"12"], offset=-1), "offset -1", cheap=True),
    InvalidArray(
        "data too small",
        new_array(bs.int32(), 3, [None, b"12345678"]),
        "data buffer has 8 bytes, 3 slots need 12",
        True,
    ),
    InvalidArray(
        "data too small for the offset", new_array(bs.int8(), 3, [None, b"123"], offset=1), "4 slots need 4", True
    ),
    InvalidArray(
        "bits too few", new_array(bs.bool_(), 9, [None, b"1"]), "data buffer has 1 bytes, 9 slots need 2", cheap=True
    ),
    InvalidArray(
        "validity too small", new_array(bs.int8(), 9, [b"1", b"123456789"]), "validity buffer has 1 bytes", cheap=True
    ),
    InvalidArray("data absent", new_array(bs.int8(), 1, [None, None]), "data buffer is absent", cheap=True),
    InvalidArray("a buffer missing", new_array(bs.int8(), 1, [None]), "requires 2 buffers, found 1", cheap=True),
    InvalidArray(
        "a buffer too many", new_array(bs.int8(), 1, [None, b"1", b"1"]), "requires 2 buffers, found 3", cheap=True
    ),
    InvalidArray("lengths beyond 63 bits", new_array(bs.int64(), 1 << 63, [None, b""]), "slots need", cheap=True),
    InvalidArray(
        "null count beyond length", new_array(bs.int8(), 1, [b"\0", b"1"], null_count=2), "null count of 2", cheap=True
    ),
    InvalidArray(
        "nulls without a bitmap", new_array(bs.int8(), 1, [None, b"1"], null_count=1), "no validity bitmap", cheap=True
    ),
    InvalidArray(
        "nulls in a union",
        new_array(DENSE, 1, [b"\3", ints(0)], [INT8S, INT8S], null_count=1),
        "no validity bitmap",
        True,
    ),
    InvalidArray("null count too small", new_array(bs.int8(), 2, [b"\1", b"12"], null_count=0), "bitmap has 1 nulls"),
    InvalidArray("null count too large", new_array(bs.int8(), 2, [b"\1", b"12"], null_count=2), "bitmap has 1 nulls"),
    # primitive values
    InvalidArray(
        "decimal beyond its precision", new_array(bs.decimal32(3, 1), 2, [None, ints(999, 1000)]), r"values\[1\]: 1000"
    ),
    InvalidArray(
        "negative decimal too long",
        new_array(bs.decimal64(3), 1, [None, ints(-1000, dtype=I64)]),
        r"values\[0\]: -1000",
    ),
    InvalidArray(
        "wide decimal too long",
        new_array(bs.decimal128(38), 1, [None, (10**38).to_bytes(16, "little")]),
        rf"values\[0\]: 1{'0' * 38} has more digits",
    ),
    InvalidArray(
        "very wide decimal too long",
        new_array(bs.decimal256(76), 1, [None, (-(10**76)).to_bytes(32, "little", signed=True)]),
        "more digits than the precision",
    ),
    InvalidArray(
        "time beyond midnight",
        new_array(bs.time32("s"), 2, [None, ints(86399, 86400)]),
        r"values\[1\]: 86400 is not a time",
    ),
    InvalidArray(
        "negative time", new_array(bs.time64("ns"), 1, [None, ints(-1, dtype=I64)]), r"values\[0\]: -1 is not a time"
    ),
    InvalidArray(
        "date64 within a day", new_array(bs.date64(), 1, [None, ints(5, dtype=I64)]), r"values\[0\]: 5 ms is not"
    ),
    # binary
    InvalidArray(
        "offsets missing", new_array(bs.binary(), 2, [None, ints(0, 0), b""]), "offsets buffer has 8 bytes", cheap=True
    ),
    InvalidArray(
        "offset before the data", new_array(bs.binary(), 1, [None, ints(-1, 1), b"1"]), "run from -1 to 1", cheap=True
    ),
    InvalidArray(
        "offset beyond the data",
        new_array(bs.binary(), 1, [None, ints(0, 2), b"1"]),
        "from 0 to 2, not within",
        cheap=True,
    ),
    InvalidArray(
        "offsets falling", string_array([0, 2, 1, 3], b"abc"), r"offsets\[2\] = 1 is less than offsets\[1\] = 2"
    ),
    InvalidArray("offset in the middle beyond", string_array([0, 9, 3], b"abc"), r"offsets\[2\] = 3 is less than"),
    InvalidArray(
        "large offset beyond",
        new_array(bs.large_string(), 1, [None, ints(0, 1 << 40, dtype=I64), b"x"]),
        "0 to 1099511627776",
        cheap=True,
    ),
    InvalidArray("no UTF-8", string_array([0, 2, 4], b"ab\xff!"), r"values\[1\] is not valid UTF-8: b'\\xff!'"),
    InvalidArray("a surrogate", string_array([0, 3], b"\xed\xa0\x80"), r"values\[0\] is not valid UTF-8"),
    InvalidArray("an overlong form", string_array([0, 2], b"\xc0\x80"), r"values\[0\] is not valid UTF-8"),
    InvalidArray(
        "a character split across values",
        string_array([0, 2, 3], b"a" + E_ACUTE),
        r"values\[0\] is not valid UTF-8: b'a\\xc3'",
    ),
    InvalidArray(
        "a character cut off at the end", string_array([0, 1, 2], b"a" + E_ACUTE), r"values\[1\] is not valid UTF-8"
    ),
    InvalidArray(
        "a character begun in a null",
        string_array([0, 1, 2], E_ACUTE, b"\2"),
        r"values\[1\] is not valid UTF-8: b'\\xa9'",
    ),
    InvalidArray(
        "a character that ends in a null",
        string_array([0, 1, 2], E_ACUTE, b"\1"),
        r"values\[0\] is not valid UTF-8: b'\\xc3'",
    ),
    # views
    InvalidArray(
        "views too few",
        new_array(bs.binary_view(), 2, [None, view(0, b"\0" * 4, 0, 0)]),
        "views buffer has 16",
        cheap=True,
    ),
    InvalidArray(
        "negative view", new_array(bs.binary_view(), 1, [None, view(-1, b"0123", 0, 0)]), r"views\[0\] has the negative"
    ),
    InvalidArray(
        "wrong prefix",
        new_array(bs.binary_view(), 1, [None, view(16, b"0124", 0, 0), LONG]),
        r"views\[0\] has the prefix",
    ),
    InvalidArray(
        "no such buffer", new_array(bs.binary_view(), 1, [None, view(16, b"0123", 1, 0), LONG]), "data buffer 1 of 1"
    ),
    InvalidArray(
        "negative buffer", new_array(bs.binary_view(), 1, [None, view(16, b"0123", -1, 0), LONG]), "data buffer -1 of 1"
    ),
    InvalidArray(
        "view beyond",
        new_array(bs.binary_view(), 1, [None, view(16, b"1234", 0, 1), LONG]),
        r"bytes 1 to 17 of a data buffer of 16",
    ),
    InvalidArray(
        "view before", new_array(bs.binary_view(), 1, [None, view(16, b"1234", 0, -1), LONG]), "bytes -1 to 15"
    ),
    InvalidArray(
        "absent buffer", new_array(bs.binary_view(), 1, [None, view(16, b"0123", 0, 0), None]), "data buffer of 0 bytes"
    ),
    InvalidArray(
        "stray padding", new_array(bs.binary_view(), 1, [None, view(1, b"a\0\0\1", 0, 0)]), r"views\[0\] is inline, but"
    ),
    InvalidArray(
        "no UTF-8 inline",
        new_array(bs.string_view(), 1, [None, view(1, b"\xff\0\0\0", 0, 0)]),
        r"values\[0\] is not valid UTF-8",
    ),
    InvalidArray(
        "split inline",
        new_array(bs.string_view(), 1, [None, view(1, b"\xc3\0\0\0", 0, 0)]),
        r"values\[0\] is not valid UTF-8",
    ),
    InvalidArray(
        "view ends within a character",
        new_array(
            bs.string_view(),
            2,
            [None, view(15, b"01\xc3\xa9", 0, 0) + view(18, b"01\xc3\xa9", 0, 0), b"01" + E_ACUTE * 8],
        ),
        r"values\[0\] is not valid UTF-8",
    ),
    InvalidArray(
        "view begins within a character",
        new_array(
            bs.string_view(),
            2,
            [None, view(18, b"01\xc3\xa9", 0, 0) + view(13, b"\xa9\xc3\xa9\xc3", 0, 3), b"01" + E_ACUTE * 8],
        ),
        r"values\[1\] is not valid UTF-8",
    ),
    # lists
    InvalidArray(
        "child too short",
        new_array(LIST, 1, [None, ints(0, 11)], [INT8S]),
        "from 0 to 11, not within the child's length of 10",
        True,
    ),
    InvalidArray("negative list offset", new_array(LIST, 1, [None, ints(-1, 1)], [INT8S]), "run from -1", cheap=True),
    InvalidArray(
        "falling list offsets", new_array(LIST, 3, [None, ints(0, 5, 4, 6)], [INT8S]), r"offsets\[2\] = 4 is less than"
    ),
    InvalidArray("a child missing", new_array(LIST, 1, [None, ints(0, 1)]), "requires 1 children, found 0", cheap=True),
    InvalidArray(
        "a child of another type",
        new_array(LIST, 1, [None, ints(0, 1)], [bs.array([1])]),
        "item: the type is int64, expected int8",
        True,
    ),
    InvalidArray(
        "a broken child",
        new_array(bs.list_(bs.string()), 1, [None, ints(0, 1)], [string_array([0, 1], b"\xff")]),
        r"item: values\[0\] is not valid UTF-8",
    ),
    InvalidArray(
        "view beyond the child",
        new_array(VIEWS, 1, [None, ints(9), ints(2)], [INT8S]),
        r"offsets\[0\] = 9 and sizes\[0\] = 2",
    ),
    InvalidArray(
        "view before the child", new_array(VIEWS, 1, [None, ints(-1), ints(1)], [INT8S]), r"offsets\[0\] = -1"
    ),
    InvalidArray("negative size", new_array(VIEWS, 1, [None, ints(1), ints(-1)], [INT8S]), r"sizes\[0\] = -1"),
    InvalidArray("empty view beyond", new_array(VIEWS, 1, [None, ints(11), ints(0)], [INT8S]), r"offsets\[0\] = 11"),
    InvalidArray("null view beyond", new_array(VIEWS, 1, [b"\0", ints(11), ints(0)], [INT8S]), r"offsets\[0\] = 11"),
    InvalidArray(
        "view whose end overflows",
        new_array(
            bs.large_list_view(bs.int8()), 1, [None, ints(5, dtype=I64), ints((1 << 63) - 1, dtype=I64)], [INT8S]
        ),
        r"sizes\[0\] = 9223372036854775807",
    ),
    InvalidArray(
        "fixed child too short",
        new_array(bs.list_(bs.int8(), 3), 4, [None], [INT8S]),
        "4 lists of 3 need 12 elements",
        True,
    ),
    InvalidArray(
        "fixed child too short for the offset",
        new_array(bs.list_(bs.int8(), 3), 3, [None], [INT8S], offset=1),
        "4 lists of 3 need 12 elements",
        cheap=True,
    ),
    InvalidArray("null key", new_array(MAP, 1, [None, ints(0, 2)], [entries(["a", None])]), "1 null keys"),
    InvalidArray(
        "falling map offsets at a null",
        new_array(MAP, 3, [b"\5", ints(0, 2, 1, 2)], [entries(["a", "b"])]),
        r"offsets\[2\] = 1 is less than offsets\[1\] = 2",
    ),
    InvalidArray("null entry", new_array(MAP, 1, [None, ints(0, 2)], [entries(["a", "b"], b"\1")]), "1 null entries"),
    # struct and union
    InvalidArray(
        "field too short",
        new_array(bs.struct({"a": bs.int8()}), 11, [None], [INT8S]),
        "child 'a' has 10 values, the struct has 11",
        True,
    ),
    InvalidArray(
        "no such type id",
        new_array(DENSE, 2, [b"\3\4", ints(0, 0)], [INT8S, INT8S]),
        r"type_ids\[1\] = 4 is not one of",
    ),
    InvalidArray(
        "negative type id", new_array(SPARSE, 1, [b"\xff"], [INT8S, INT8S]), r"type_ids\[0\] = -1 is not one of"
    ),
    InvalidArray(
        "offset beyond the member",
        new_array(DENSE, 1, [b"\5", ints(10)], [INT8S, INT8S]),
        r"offsets\[0\] = 10 is not within child 'b'",
    ),
    InvalidArray(
        "negative member offset",
        new_array(DENSE, 1, [b"\3", ints(-1)], [INT8S, INT8S]),
        r"offsets\[0\] = -1 is not within child 'a'",
    ),
    InvalidArray(
        "member offsets fall",
        new_array(DENSE, 3, [b"\3\5\3", ints(4, 0, 3)], [INT8S, INT8S]),
        "child 'a': its offsets decrease from 4 to 3",
    ),
    InvalidArray(
        "sparse member too short",
        new_array(SPARSE, 10, [b"\3" * 10], [INT8S, INT8S.slice(1)]),
        "child 'b' has 9 values",
        True,
    ),
    InvalidArray(
        "type ids too few",
        new_array(DENSE, 2, [b"\3", ints(0, 0)], [INT8S, INT8S]),
        "type ids buffer has 1 bytes",
        cheap=True,
    ),
    # dictionary
    InvalidArray("no dictionary", new_array(WORDS, 1, [None, b"\0"]), "has no dictionary", cheap=True),
    InvalidArray(
        "a dictionary of another type",
        new_array(WORDS, 1, [None, b"\0"], dictionary=INT8S),
        "cannot have a dictionary of int8",
        cheap=True,
    ),
    InvalidArray(
        "a dictionary where none belongs",
        new_array(bs.int8(), 1, [None, b"\0"], dictionary=INT8S),
        "cannot have a dictionary of",
        True,
    ),
    InvalidArray(
        "index beyond",
        new_array(WORDS, 2, [None, b"\0\1"], dictionary=bs.array(["x"])),
        r"indices\[1\] = 1 is not within the dictionary of 1",
    ),
    InvalidArray(
        "negative index", new_array(WORDS, 1, [None, b"\xff"], dictionary=bs.array(["x"])), r"indices\[0\] = -1"
    ),
    InvalidArray(
        "unsigned index beyond 63 bits",
        new_array(bs.dictionary(bs.uint64(), bs.string()), 1, [None, b"\xff" * 8], dictionary=bs.array(["x"])),
        r"indices\[0\] = 18446744073709551615",
    ),
    InvalidArray(
        "a broken dictionary",
        new_array(WORDS, 1, [None, b"\0"], dictionary=string_array([0, 1], b"\xff")),
        "dictionary: values",
    ),
    # runs
    InvalidArray(
        "run ends level", run_end_array([2, 2, 3], 3), r"run_ends\[1\] = 2 is not greater than run_ends\[0\] = 2"
    ),
    InvalidArray("run ends falling", run_end_array([2, 1], 2), r"run_ends\[1\] = 1 is not greater"),
    InvalidArray("run end zero", run_end_array([0, 2], 2), r"run_ends\[0\] = 0 is not positive"),
    InvalidArray("run end negative", run_end_array([-5, 2], 2), r"run_ends\[0\] = -5 is not positive"),
    InvalidArray("run end null", run_end_array([1, None, 3], 3), "1 run ends are null"),
    InvalidArray("runs too short", run_end_array([2, 3], 4), "the last run ends at 3, before slot 4"),
    InvalidArray(
        "runs too short for the offset", run_end_array([2, 3], 3, offset=1), "the last run ends at 3, before slot 4"
    ),
    InvalidArray("no runs", run_end_array([], 1), "the last run ends at 0"),
    InvalidArray(
        "run values too few", run_end_array([1, 2, 3], 3, values=2), "3 run ends have only 2 values", cheap=True
    ),
]


@pytest.mark.parametrize("case", INVALID_ARRAYS, ids=str)
def test_validation_names_the_problem_and_its_position(case: InvalidArray) -> None:
    if case.cheap:
        with pytest.raises(bs.errors.InvalidDataError, match=case.message):
            case.array.validate()
    else:
        case.array.validate()
    with pytest.raises(bs.errors.InvalidDataError, match=case.message):
        case.array.validate(full=True)


@pytest.mark.parametrize("case", INVALID_ARRAYS, ids=str)
def test_invalid_arrays_have_a_repr(case: InvalidArray) -> None:
    assert repr(case.array).startswith("<bowstring.Array ")
    assert repr(bs.Table(bs.schema({"x": case.array.type}), [])).startswith("<bowstring.Table")


PASSING_CHEAP_VALIDATION = [broken for broken in INVALID_ARRAYS if not broken.cheap]


@pytest.mark.parametrize("case", PASSING_CHEAP_VALIDATION, ids=str)
def test_arrays_that_pass_the_cheap_validation_give_values_or_a_bowstring_error(case: InvalidArray) -> None:
    array = case.array
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
        ("garbage text in a null", string_array([0, 1, 3], b"a\xff\xff", b"\1"), ["a", None]),
        ("half a character in a null", string_array([0, 2, 3, 4], E_ACUTE + b"\xa9b", b"\5"), ["é", None, "b"]),
        ("text that does not begin at 0", string_array([1, 3], b"\xff" + E_ACUTE + b"\xff"), ["é"]),
        ("garbage index in a null", new_array(WORDS, 2, [b"\1", b"\0\x7f"], dictionary=bs.array(["x"])), ["x", None]),
        ("garbage view in a null", new_array(bs.string_view(), 1, [b"\0", view(-5, b"????", 9, -9)]), [None]),
        ("time beyond the day in a null", new_array(bs.time32("s"), 1, [b"\0", ints(-1)]), [None]),
        (
            "null keys in a null map",
            new_array(MAP, 2, [b"\1", ints(0, 1, 2)], [entries(["a", None])]),
            [[("a", 1)], None],
        ),
        (
            "overlapping list views",
            new_array(VIEWS, 2, [None, ints(0, 1), ints(3, 3)], [INT8S]),
            [[0, 1, 2], [1, 2, 3]],
        ),
        (
            "overlapping views of text",
            new_array(
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
        ("runs beyond the array", run_end_array([2, 300], 3), [0, 0, 1]),
        ("bitmaps and data longer than needed", new_array(bs.int8(), 1, [b"\xff" * 9, b"\1\2\3"]), [1]),
        ("no offsets for no values", new_array(bs.string(), 0, [None, b"", b""]), []),
        ("no offsets at all for no values", new_array(LIST, 0, [None, None], [INT8S]), []),
    ],
    ids=lambda it: it if isinstance(it, str) else "",
)
def test_unusual_arrays_are_valid(name: str, array: bs.Array, values: list[Any]) -> None:
    array.validate(full=True)
    assert array.to_pylist() == values


def test_batches_name_the_column_and_tables_the_batch() -> None:
    schema = bs.schema({"n": bs.list_(bs.string())})
    column = new_array(schema.types[0], 1, [None, ints(0, 1)], [string_array([0, 1], b"\xff")])
    batch = bs.RecordBatch(schema, 1, [column])
    batch.validate()
    with pytest.raises(bs.errors.InvalidDataError, match=r"^column 'n': item: values\[0\] is not valid UTF-8"):
        batch.validate(full=True)
    table = bs.Table(schema, [bs.record_batch([[["x"]]], schema), batch])
    with pytest.raises(bs.errors.InvalidDataError, match=r"^record batch 1: column 'n': item: values\[0\]"):
        table.validate(full=True)
    with pytest.raises(bs.errors.InvalidDataError, match="column 'n': expected"):
        bs.RecordBatch(schema, 2, [column]).validate()
    assert "not valid UTF-8" in batch._repr_html_()


MAP_OF_INTS = bs.map_(bs.int8(), bs.int8())
RUNS_OF_INTS = bs.run_end_encoded(bs.int32(), bs.int8())
STRUCT_WITH_SHORT_FIELD = new_array(bs.struct({"a": bs.int8()}), 11, [None], [INT8S])


@pytest.mark.parametrize(
    "array",
    [
        STRUCT_WITH_SHORT_FIELD,
        STRUCT_WITH_SHORT_FIELD.slice(5),
        new_array(bs.struct([("a", bs.int8()), ("a", bs.int8())]), 11, [None], [bs.array(range(11), bs.int8()), INT8S]),
        new_array(bs.list_(STRUCT_WITH_SHORT_FIELD.type), 1, [None, ints(0, 11)], [STRUCT_WITH_SHORT_FIELD]),
        new_array(bs.list_(STRUCT_WITH_SHORT_FIELD.type, 11), 1, [None], [STRUCT_WITH_SHORT_FIELD]),
        new_array(bs.struct({"b": STRUCT_WITH_SHORT_FIELD.type}), 11, [None], [STRUCT_WITH_SHORT_FIELD]),
    ],
    ids=["unchanged", "sliced", "two fields with one name", "in a list", "in a fixed-size list", "in a struct"],
)
def test_reading_a_struct_with_a_too_short_field_names_the_field(array: bs.Array) -> None:
    for attempt in (array.to_pylist, lambda: array.take([0]), array.compact, lambda: bs.concat_arrays([array, array])):
        with pytest.raises(bs.errors.InvalidDataError, match="child 'a' has 10 values, the struct has 11"):
            attempt()


def test_reading_rows_of_a_batch_with_a_too_short_column_names_the_column() -> None:
    batch = bs.RecordBatch(bs.schema({"a": bs.int8()}), 11, [INT8S])
    with pytest.raises(bs.errors.InvalidDataError, match="column 'a' has 10 values, not 11"):
        batch.to_pylist()


@pytest.mark.parametrize(
    ("array", "problem"),
    [
        (new_array(bs.string(), 0, [None, ints(-5), b""]), "offsets run from -5 to -5"),
        (new_array(bs.large_binary(), 0, [None, ints(1 << 60, dtype=I64), b"abc"]), "offsets run from 1152921504606"),
        (new_array(bs.list_(bs.int8()), 0, [None, ints(99)], [INT8S]), "offsets run from 99 to 99"),
        (new_array(MAP_OF_INTS, 0, [None, ints(-1)], bs.array([], MAP_OF_INTS).children), "offsets run from -1 to -1"),
        (new_array(RUNS_OF_INTS, 0, [], [bs.array([3, 2], bs.int32()), INT8S]), r"run_ends\[1\] = 2 is not greater"),
        (new_array(RUNS_OF_INTS, 0, [], [bs.array([-1, 4], bs.int32()), INT8S]), r"run_ends\[0\] = -1"),
        (new_array(RUNS_OF_INTS, 0, [], [bs.array([1, None], bs.int32()), INT8S]), "1 run ends are null"),
        (new_array(RUNS_OF_INTS, 0, [], [bs.array([1, 2], bs.int32()), INT8S.slice(0, 1)]), "2 run ends have only 1"),
        (new_array(bs.string(), 0, [None, b"", b""]), None),
    ],
    ids=[
        "negative",
        "far beyond",
        "of a list",
        "of a map",
        "descending runs",
        "negative runs",
        "null runs",
        "runs without values",
        "absent",
    ],
)
def test_reading_an_empty_array_ignores_its_offsets_and_runs_and_validation_checks_them(
    array: bs.Array, problem: str | None
) -> None:
    array.validate()
    for checked, location in ((array, ""), (new_array(bs.struct({"a": array.type}), 0, [None], [array]), "field 'a'")):
        if problem is None:
            checked.validate(full=True)
        else:
            with pytest.raises(bs.errors.InvalidDataError, match=f"{location}.*{problem}"):
                checked.validate(full=True)
    assert array.to_pylist() == []
    assert array.equals(bs.array([], array.type))
    assert array.take([]).to_pylist() == []
    assert bs.concat_arrays([array, array]).to_pylist() == []
    compact = array.compact()
    compact.validate(full=True)
    outside = pa.array(compact)
    outside.validate(full=True)
    assert bs.array(outside).to_pylist() == []


def test_a_map_reports_invalid_keys_and_invalid_offsets() -> None:
    entries = layout_of(MAP_OF_INTS).children[0]
    keys = new_array(bs.int8(), 3, [b"\1", bytes(3)], null_count=1)
    pairs = bs.Array(entries, 3, (None,), (keys, bs.array([1, 2, 3], bs.int8())))
    column = new_array(MAP_OF_INTS, 3, [None, ints(0, 2, 3, 9)], [pairs])
    messages = [str(fault) for fault in find_faults(column, full=True)]
    assert messages == [
        "entries → field 'key': the null count is 1, but the validity bitmap has 2 nulls",
        "the offsets run from 0 to 9, not within the child's length of 3",
    ]


@pytest.mark.parametrize("index", [0, 8191, 8192, 19_998])
def test_a_time_beyond_the_day_is_named_by_its_index_unless_it_is_null(index: int) -> None:
    slots, valid = np.zeros(20_000, np.int32), np.ones(20_000, bool)
    slots[[index, -1]] = 86_400
    valid[-1] = False

    def times() -> bs.Array:
        return bs.Array.from_buffers(bs.time32("s"), 20_000, [np.packbits(valid, bitorder="little"), slots])

    with pytest.raises(bs.errors.InvalidDataError, match=rf"values\[{index}\]: 86400 is not a time of day"):
        times().validate(full=True)
    valid[index] = False
    times().validate(full=True)


def test_an_invalid_array_is_released_without_garbage_collection() -> None:
    offsets = np.array([0, 1], np.int32)
    array = bs.Array.from_buffers(bs.string(), 1, [None, offsets, b"\xff"])
    reference = weakref.ref(array)
    gc.disable()
    try:
        with pytest.raises(bs.errors.InvalidDataError, match="not valid UTF-8"):
            array.validate(full=True)
        del array
        assert reference() is None
    finally:
        gc.enable()

"""Arrow's integration JSON: round trips of every type, and errors of malformed documents with their location."""

from __future__ import annotations

import copy
import gzip
import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import bowstring as bs
from bowstring import errors
from bowstring_testing import strategies
from tests import integration_json
from tests.cases import CASES, LONG, Case

Document = dict[str, Any]


def read(document: Document) -> bs.Table:
    return integration_json.read(json.dumps(document).encode())


def differences(schema: bs.Schema, batches: list[bs.RecordBatch], table: bs.Table) -> list[str]:
    return list(integration_json.find_differences(schema, batches, table.schema, table.to_batches()))


def batch_of(*columns: bs.Array) -> bs.RecordBatch:
    return bs.record_batch({f"c{number}": column for number, column in enumerate(columns)})


def round_trip(*batches: bs.RecordBatch) -> Document:
    """The document of these batches, which reads as they are."""
    schema = batches[0].schema
    document = integration_json.build_document(schema, batches)
    assert differences(schema, list(batches), read(document)) == []
    return document


def one_column_document(
    type: Document, column: Document, children: list[Document] | None = None, **extra: Any
) -> Document:
    """A document of one batch of one column "x"."""
    field_json = {"name": "x", "nullable": True, "type": type, "children": children or [], **extra}
    batch = {"count": column["count"], "columns": [{"name": "x", **column}]}
    return {"schema": {"fields": [field_json]}, "batches": [batch]}


# There and back


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_type_survives_a_round_trip(case: Case) -> None:
    whole = case.array()
    round_trip(batch_of(whole), batch_of(whole.slice(1)), batch_of(whole.slice(0, 0)))


@given(strategies.batches())
@settings(max_examples=40)
def test_any_batch_survives_a_round_trip(batch: bs.RecordBatch) -> None:
    round_trip(batch, batch)


def test_a_schema_without_batches_survives_a_round_trip() -> None:
    schema = bs.schema({f"c{number}": case.type for number, case in enumerate(CASES)})
    assert differences(schema, [], read(integration_json.build_document(schema, []))) == []


def test_rows_without_columns_survive_a_round_trip() -> None:
    round_trip(bs.RecordBatch(bs.schema([]), 7, []))


def test_names_nullability_and_metadata_survive_at_every_level() -> None:
    item = bs.field("thing", bs.int8(), nullable=False, metadata={"a": "1"})
    schema = bs.schema([bs.field("x", bs.list_(item), nullable=False, metadata={"b": "ü"})], metadata={"c": ""})
    batch = bs.RecordBatch.from_arrays([bs.array([[1]], schema.field("x").type)], schema=schema)
    actual = read(round_trip(batch)).schema
    assert actual.equals(schema, check_metadata=True)
    assert actual.field("x").type.fields[0].metadata == {b"a": b"1"}


def test_duplicate_metadata_keys_are_kept() -> None:
    schema = bs.schema({"x": bs.null()}, metadata=[("k", "1"), ("k", "2")])
    assert read(integration_json.build_document(schema, [])).schema.pairs == ((b"k", b"1"), (b"k", b"2"))


def test_a_document_is_read_from_a_path_a_file_object_and_gzip(tmp_path: Path) -> None:
    batch = batch_of(bs.array(["ü", None]))
    path = tmp_path / "truth.json"
    integration_json.write(path, integration_json.build_document(batch.schema, [batch]))
    for source in (path, str(path), io.BytesIO(path.read_bytes()), gzip.compress(path.read_bytes())):
        assert differences(batch.schema, [batch], integration_json.read(source)) == []


class LimitedFile(io.RawIOBase):
    """Takes a few bytes at a time, as standard output without a buffer may, and no more than fit."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__()
        self.max_bytes = max_bytes
        self.content = b""

    def write(self, data: Any) -> int:
        part = bytes(data[: min(7, self.max_bytes - len(self.content))])
        self.content += part
        return len(part)


def test_a_file_object_with_partial_writes_receives_all_bytes() -> None:
    batch = batch_of(bs.array(["ü", None]))
    document = integration_json.build_document(batch.schema, [batch])
    sink = LimitedFile(100_000)
    integration_json.write(sink, document)
    assert json.loads(sink.content) == document
    with pytest.raises(errors.ResourceError, match="bytes remaining"):
        integration_json.write(LimitedFile(50), document)


def test_nan_and_infinities_survive_a_round_trip() -> None:
    numbers = [float("nan"), float("inf"), float("-inf"), -0.0]
    for width in (bs.float16(), bs.float32(), bs.float64()):
        round_trip(batch_of(bs.array(numbers, width)))


# The format


@pytest.mark.parametrize(
    ("precision", "number", "expected"),
    [("SINGLE", 3.4028235e38, np.finfo(np.float32).max), ("HALF", 65519.5, 65504.0), ("SINGLE", 1, 1.0)],
)
def test_digits_are_rounded_to_the_nearest_number_of_the_type(precision: str, number: float, expected: float) -> None:
    column = {"count": 2, "VALIDITY": [1, 1], "DATA": [number, -number]}
    array = read(one_column_document({"name": "floatingpoint", "precision": precision}, column))["x"]
    assert array.to_pylist() == [expected, -expected]


@pytest.mark.parametrize(("precision", "number"), [("SINGLE", 3.4028236e38), ("HALF", 65520), ("DOUBLE", 10**309)])
def test_a_number_that_would_be_rounded_to_infinity_is_rejected(precision: str, number: float) -> None:
    column = {"count": 1, "VALIDITY": [1], "DATA": [number]}
    with pytest.raises(errors.InvalidDataError, match=r"DATA\[0\]"):
        read(one_column_document({"name": "floatingpoint", "precision": precision}, column))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_empty_members_may_be_absent(case: Case) -> None:
    empty = batch_of(case.array().slice(0, 0))
    document = integration_json.build_document(empty.schema, [empty])

    def leave_out(column: Document) -> None:
        for key in ("VALIDITY", "OFFSET", "SIZE", "TYPE_ID", "VIEWS", "DATA", "VARIADIC_DATA_BUFFERS"):
            column.pop(key, None)
        for child in column.get("children", []):
            if child["count"] == 0:
                leave_out(child)

    for column in document["batches"][0]["columns"]:
        leave_out(column)
    assert differences(empty.schema, [empty], read(document)) == []


def test_an_int32_column_reads_as_the_format_describes_it() -> None:
    int32 = {"name": "int", "isSigned": True, "bitWidth": 32}
    table = read(one_column_document(int32, {"count": 3, "VALIDITY": [1, 0, 1], "DATA": [1, 99, -3]}))
    assert table.schema == bs.schema({"x": bs.int32()})
    assert table["x"].to_pylist() == [1, None, -3]


def test_values_are_written_as_the_format_describes_them() -> None:
    columns = (
        bs.array([1, None], bs.int64()),
        bs.array([b"\xab\xcd", b"ignored"], bs.binary()),
        bs.array([Decimal("-1.5"), Decimal("0.2")], bs.decimal128(5, 1)),
        bs.array([True, False]),
        bs.array([(1, 2, 3), None], bs.month_day_nano_interval()),
        bs.array([None, LONG], bs.string_view()),
        bs.array([["a"], []], bs.large_list(bs.string())),
    )
    document = round_trip(batch_of(*columns))
    columns = document["batches"][0]["columns"]
    assert columns[0] == {"name": "c0", "count": 2, "VALIDITY": [1, 0], "DATA": ["1", "0"]}
    assert columns[1]["DATA"] == ["ABCD", "69676E6F726564"]
    assert columns[1]["OFFSET"] == [0, 2, 9]
    assert columns[2]["DATA"] == ["-15", "2"]
    assert columns[3]["DATA"] == [True, False]
    assert columns[4]["DATA"][0] == {"months": 1, "days": 2, "nanoseconds": 3}
    size = len(LONG.encode())
    views = [{"SIZE": 0, "INLINED": ""}, {"SIZE": size, "PREFIX_HEX": "6D6F7265", "BUFFER_INDEX": 0, "OFFSET": 0}]
    assert columns[5]["VIEWS"] == views
    assert columns[5]["VARIADIC_DATA_BUFFERS"] == [LONG.encode().hex().upper()]
    assert columns[6]["OFFSET"] == ["0", "1", "1"]
    assert columns[6]["children"][0]["name"] == "item"


def test_values_of_null_slots_are_ignored() -> None:
    # As Arrow C++ writes them: an empty object, a zero with a NUL behind it.
    interval = one_column_document(
        {"name": "interval", "unit": "DAY_TIME"}, {"count": 1, "VALIDITY": [0], "DATA": [{}]}
    )
    number = {"name": "decimal", "precision": 3, "scale": 0}
    for document in (interval, one_column_document(number, {"count": 1, "VALIDITY": [0], "DATA": ["0\0"]})):
        assert read(document)["x"].to_pylist() == [None]


def test_the_bytes_of_a_null_string_may_be_absent() -> None:
    column = {"count": 3, "VALIDITY": [1, 0, 1], "OFFSET": [0, 1, 5, 6], "DATA": ["a", "", "b"]}
    assert read(one_column_document({"name": "utf8"}, column))["x"].to_pylist() == ["a", None, "b"]


def test_null_slots_are_written_as_zero_or_empty() -> None:
    def under_nulls(array: bs.Array) -> Document:
        hidden = bs.Array.from_buffers(array.type, len(array), [np.zeros(1, np.uint8), *array.own_buffers[1:]])
        column: Document = round_trip(batch_of(hidden))["batches"][0]["columns"][0]
        return column

    assert under_nulls(bs.array([7, 8], bs.int16()))["DATA"] == [0, 0]
    assert under_nulls(bs.array([b"ab"], bs.binary(2)))["DATA"] == ["0000"]
    assert under_nulls(bs.array([True]))["DATA"] == [False]
    assert under_nulls(bs.array([LONG], bs.string_view()))["VIEWS"] == [{"SIZE": 0, "INLINED": ""}]
    text = under_nulls(bs.array([LONG]))
    assert (text["OFFSET"], text["DATA"]) == ([0, 0], [""])


@pytest.mark.parametrize(
    ("name", "extra", "expected"),
    [
        ("decimal", {}, bs.decimal128(5, 2)),
        ("decimal", {"bitWidth": 256}, bs.decimal256(5, 2)),
        ("decimal32", {}, bs.decimal32(5, 2)),
        ("decimal64", {}, bs.decimal64(5, 2)),
        ("decimal256", {}, bs.decimal256(5, 2)),
    ],
)
def test_a_decimal_type_is_read_from_its_name_or_its_width(name: str, extra: Document, expected: bs.DataType) -> None:
    type_json = {"name": name, "precision": 5, "scale": 2, **extra}
    assert (
        read(one_column_document(type_json, {"count": 0, "VALIDITY": [], "DATA": []})).schema.field("x").type
        == expected
    )


def test_a_decimal_beyond_its_precision_is_rejected_only_by_full_validation() -> None:
    number = {"name": "decimal", "precision": 3, "scale": 0}
    batch = read(one_column_document(number, {"count": 1, "VALIDITY": [1], "DATA": ["12345"]})).to_batches()[0]
    assert batch.column("x").to_pylist() == [Decimal(12345)]
    with pytest.raises(errors.InvalidDataError, match="precision"):
        batch.validate(full=True)


def test_a_registered_extension_type_survives_a_round_trip() -> None:
    @bs.datatypes.register_extension_type
    class Celsius(bs.datatypes.ExtensionType):
        EXTENSION_NAME = "tests.celsius"

    try:
        round_trip(batch_of(bs.array([1.5, None], Celsius(bs.float64()))))
    finally:
        bs.datatypes.unregister_extension_type("tests.celsius")


def test_an_unregistered_extension_type_remains_metadata() -> None:
    pairs = [{"key": "ARROW:extension:name", "value": "?"}, {"key": "ARROW:extension:metadata", "value": "!"}]
    schema = read(one_column_document({"name": "null"}, {"count": 1}, metadata=pairs)).schema
    assert schema.field("x").metadata == {b"ARROW:extension:name": b"?", b"ARROW:extension:metadata": b"!"}


def test_names_inside_a_map_are_not_compared() -> None:
    def map_batch(entries: str, key: str, item: str) -> bs.RecordBatch:
        pair = bs.struct([bs.field(key, bs.int8(), nullable=False), bs.field(item, bs.string())])
        type_ = bs.map_(bs.int8(), bs.string()).__class__(bs.field(entries, pair, nullable=False))
        return batch_of(bs.array([[(1, "a")], None], type_), bs.array([[[(1, "a")]]] * 2, bs.list_(type_)))

    left, right = map_batch("entries", "key", "value"), map_batch("pairs", "k", "v")
    assert not left.schema.equals(right.schema, check_metadata=True)
    assert list(integration_json.find_differences(left.schema, [left], right.schema, [right])) == []
    assert read(integration_json.build_document(right.schema, [right])).schema == right.schema


# Dictionaries

WORDS = bs.dictionary(bs.int8(), bs.string())


def dictionary_array(indices: list[int | None], words: list[str]) -> bs.Array:
    index_array = bs.array(indices, bs.int8())
    return bs.Array.from_buffers(WORDS, len(index_array), index_array.own_buffers, (), bs.array(words, bs.string()))


def test_a_growing_dictionary_is_written_once_with_all_values() -> None:
    document = round_trip(batch_of(dictionary_array([0, None], ["a"])), batch_of(dictionary_array([1, 0], ["a", "b"])))
    assert [d["data"]["columns"][0]["DATA"] for d in document["dictionaries"]] == [["a", "b"]]


def test_conflicting_dictionaries_are_concatenated() -> None:
    document = round_trip(
        batch_of(dictionary_array([0], ["a"])),
        batch_of(dictionary_array([0, None], ["b"])),
        batch_of(dictionary_array([], [])),
    )
    assert [d["data"]["columns"][0]["DATA"] for d in document["dictionaries"]] == [["a", "b"]]


def test_columns_that_share_a_dictionary_share_its_id() -> None:
    left = dictionary_array([0, 1], ["a", "b"])
    right = bs.Array(left.layout, 2, bs.array([1, 1], bs.int8()).own_buffers, (), left.dictionary)
    document = round_trip(batch_of(left, right, dictionary_array([0, 0], ["c"])))
    assert [field["dictionary"]["id"] for field in document["schema"]["fields"]] == [0, 0, 1]


def test_a_nested_dictionary_precedes_its_parent() -> None:
    type_ = bs.dictionary(bs.int8(), bs.list_(bs.field("w", WORDS)))
    column = bs.array([["a"], ["b", None], None, ["a"]], type_)
    document = round_trip(batch_of(column), batch_of(column.slice(1, 2)), batch_of(bs.array([["c"]], type_)))
    field = document["schema"]["fields"][0]
    assert (field["children"][0]["dictionary"]["id"], field["dictionary"]["id"]) == (0, 1)


def test_a_dictionary_may_have_several_batches_in_any_order() -> None:
    document = integration_json.build_document(
        bs.schema({"c0": WORDS}),
        [batch_of(dictionary_array([0, 1], ["a", "b"])), batch_of(dictionary_array([1], ["a", "b"]))],
    )
    dictionary = document["dictionaries"][0]
    first, second = copy.deepcopy(dictionary["data"]), copy.deepcopy(dictionary["data"])
    for part, word in ((first, "a"), (second, "b")):
        part["count"] = 1
        part["columns"][0].update(count=1, VALIDITY=[1], OFFSET=[0, 1], DATA=[word])
    dictionary["data"] = [first, second]
    assert [b.column(0).to_pylist() for b in read(document).to_batches()] == [["a", "b"], ["b"]]


# Malformed documents


def nested_document() -> Document:
    points = bs.list_(bs.struct({"at": bs.int32(), "tag": WORDS}))
    columns = (
        bs.array([[{"at": 1, "tag": "a"}], None], points),
        bs.array(["x", LONG], bs.string_view()),
        bs.array([1, "s"], bs.dense_union([("i", bs.int64()), ("s", bs.string())])),
        bs.array([2.5, None], bs.run_end_encoded(bs.int32(), bs.float32())),
        bs.array([b"12", None], bs.binary(2)),
        bs.array([(1, 2), None], bs.day_time_interval()),
        bs.array([{1: True}, None], bs.map_(bs.uint8(), bs.bool_())),
        bs.array([Decimal("1.5"), None], bs.decimal64(3, 1)),
        bs.array([[1, 2], [3, 4]], bs.list_(bs.int8(), 2)),
        bs.array([[1], None], bs.large_list_view(bs.uint64())),
        bs.array([None, None], bs.null()),
    )
    return integration_json.build_document(batch_of(*columns).schema, [batch_of(*columns)])


def replace_value(document: Document, path: str, value: Any) -> Document:
    """The document with the member at a path of keys and indices changed, or taken out where the value is ...."""
    changed = copy.deepcopy(document)
    *parents, last = (int(step) if step.isdigit() else step for step in path.split("/"))
    parent: Any = changed
    for step in parents:
        parent = parent[step]
    if value is ...:
        del parent[last]
    else:
        parent[last] = value
    return changed


COLUMNS_PATH = "batches/0/columns"
INVALID_MEMBERS: list[tuple[str, Any, str]] = [
    ("schema", ..., "expected a member 'schema'"),
    ("batches", {}, "expected 'batches' to be a list"),
    ("schema/fields/0/type/name", "lost", "field 'c0': unknown type 'lost'"),
    ("schema/fields/0/children", [], "field 'c0': type 'list': expected 1 children, found 0"),
    ("schema/fields/4/type/byteWidth", -1, "field 'c4': .*byte width"),
    ("schema/fields/7/type/precision", 99, "field 'c7': .*precision"),
    ("schema/fields/7/type/precision", "3", "field 'c7': expected 'precision' to be an integer, found '3'"),
    ("schema/fields/2/type/mode", "THICK", "field 'c2': expected 'mode' to be one of SPARSE, DENSE"),
    ("schema/fields/3/children/0/type/bitWidth", 8, "field 'c3': .*run ends"),
    (f"{COLUMNS_PATH}", [], "batch 0: the schema has 11 fields, found 0 columns"),
    ("batches/0/count", 3, "batch 0: column 'c0' has 2 values, the batch 3"),
    ("batches/0/count", -1, "batch 0: expected a count of 0 or more, found -1"),
    (f"{COLUMNS_PATH}/0/name", "other", "batch 0: column 'c0': expected the column of field 'c0', found 'other'"),
    (f"{COLUMNS_PATH}/0/VALIDITY", ..., "column 'c0': expected a member 'VALIDITY'"),
    (f"{COLUMNS_PATH}/0/VALIDITY", [1], "column 'c0': expected 2 elements of 'VALIDITY', found 1"),
    (f"{COLUMNS_PATH}/0/VALIDITY", [1, 2], r"column 'c0': VALIDITY\[1\] = 2"),
    (f"{COLUMNS_PATH}/0/OFFSET", [0, 1, 9], "column 'c0': .*offsets"),
    (
        f"{COLUMNS_PATH}/0/OFFSET",
        [0, 1, 1 << 40],
        r"column 'c0': OFFSET\[2\] = 1099511627776: expected an integer from",
    ),
    (f"{COLUMNS_PATH}/0/children/0/children/0/DATA/0", 1 << 31, r"child 'item': child 'at': DATA\[0\] = 2147483648"),
    (f"{COLUMNS_PATH}/0/children/0/children/0/DATA/0", 1.5, r"child 'at': DATA\[0\] = 1.5: expected an integer"),
    (f"{COLUMNS_PATH}/0/children/0/children/0/DATA/0", True, r"child 'at': DATA\[0\] = True: expected an integer"),
    (
        f"{COLUMNS_PATH}/0/children/0/children/0/count",
        1 << 40,
        "child 'at': expected 1099511627776 elements of 'VALIDITY'",
    ),
    ("dictionaries", ..., "child 'tag': dictionary 0 is missing"),
    ("dictionaries/0/data/columns", [], "dictionary 0: expected one column, found 0"),
    ("dictionaries/0/data/columns/0/DATA/0", "longer", r"dictionary 0: OFFSET\[0\] and OFFSET\[1\] do not match"),
    (
        f"{COLUMNS_PATH}/1/VIEWS/0/SIZE",
        2,
        r"column 'c1': VIEWS\[0\] = .*expected INLINED to have 2 bytes",
    ),
    (f"{COLUMNS_PATH}/1/VIEWS/1/PREFIX_HEX", "6D", r"column 'c1': VIEWS\[1\] = .*PREFIX_HEX"),
    (f"{COLUMNS_PATH}/1/VIEWS/1/OFFSET", ..., r"column 'c1': VIEWS\[1\] = .*expected a member 'OFFSET'"),
    (f"{COLUMNS_PATH}/1/VARIADIC_DATA_BUFFERS/0", "6", r"VARIADIC_DATA_BUFFERS\[0\] = '6': expected pairs"),
    (f"{COLUMNS_PATH}/2/TYPE_ID/0", 300, r"column 'c2': TYPE_ID\[0\] = 300"),
    (f"{COLUMNS_PATH}/2/VALIDITY", [1, 0], "column 'c2': a union of metadata version 4 with top-level nulls"),
    (f"{COLUMNS_PATH}/3/children/1/DATA/0", 1e300, r"child 'values': DATA\[0\] = 1e\+300: expected a number of up to"),
    (f"{COLUMNS_PATH}/4/DATA/0", "313233", r"column 'c4': DATA\[0\] = '313233': expected 2 bytes"),
    (f"{COLUMNS_PATH}/5/DATA/0", {"days": 1}, r"column 'c5': DATA\[0\] = .*expected an object of days, milliseconds"),
    (f"{COLUMNS_PATH}/7/DATA/0", str(1 << 70), r"column 'c7': DATA\[0\] = '1180591620717411303424'"),
    (f"{COLUMNS_PATH}/7/DATA/0", "1_0", r"column 'c7': DATA\[0\] = '1_0': expected an integer"),
    (f"{COLUMNS_PATH}/8/children/0/count", 3, "child 'item': expected 3 elements of 'VALIDITY', found 4"),
    (f"{COLUMNS_PATH}/9/children", [], "column 'c9': .* has 1 children, found 0"),
    (f"{COLUMNS_PATH}/10/count", 1 << 80, "column 'c10': expected a count of 0 or more"),
]


@pytest.mark.parametrize(
    ("path", "value", "message"), INVALID_MEMBERS, ids=[f"{p}-{str(v)[:20]}" for p, v, _ in INVALID_MEMBERS]
)
def test_an_invalid_value_is_reported_with_its_path(path: str, value: Any, message: str) -> None:
    with pytest.raises(errors.InvalidDataError, match=message):
        read(replace_value(nested_document(), path, value))


def test_a_dictionary_has_one_type_and_appears_once() -> None:
    document = round_trip(batch_of(dictionary_array([0], ["a"]), dictionary_array([0], ["b"])))
    document["schema"]["fields"][1]["dictionary"]["id"] = 0
    document["schema"]["fields"][1]["type"] = {"name": "binary"}
    with pytest.raises(errors.InvalidDataError, match="dictionary 0 has conflicting types string and binary"):
        read(document)
    document["dictionaries"].append(document["dictionaries"][0])
    document["schema"]["fields"][1]["type"] = {"name": "utf8"}
    with pytest.raises(errors.InvalidDataError, match="duplicate dictionary ID 0"):
        read(document)


@pytest.mark.parametrize(
    "raw", [b"", b"ARROW1\0\0", b'{"schema": ', b"[]", b"\xff\xfe{", b"1" * 5000, b"\x1f\x8b\x08junk"]
)
def test_bytes_that_are_not_json_are_rejected(raw: bytes) -> None:
    with pytest.raises(errors.InvalidDataError):
        integration_json.read(raw)


def test_text_that_utf8_cannot_encode_is_rejected() -> None:
    column = {"count": 1, "VALIDITY": [1], "OFFSET": [0, 3], "DATA": ["\ud800"]}
    with pytest.raises(errors.InvalidDataError, match=r"DATA\[0\]"):
        read(one_column_document({"name": "utf8"}, column))


def test_the_messages_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_text("{}")
    with pytest.raises(errors.InvalidDataError, match=r"broken\.json: expected a member 'schema'"):
        integration_json.read(path)
    with pytest.raises(errors.NotFoundError, match=r"gone\.json"):
        integration_json.read(tmp_path / "gone.json")


def test_an_object_that_is_not_a_file_is_a_bowstring_error(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="is a directory"):
        integration_json.read(tmp_path)
    (tmp_path / "loop.json").symlink_to("loop.json")
    with pytest.raises(errors.ResourceError, match=r"loop\.json: cannot be opened: "):
        integration_json.read(tmp_path / "loop.json")


def test_metadata_that_is_not_text_can_not_be_written() -> None:
    schema = bs.schema([bs.field("x", bs.struct([bs.field("y", bs.null(), metadata={b"k": b"\xff"})]))])
    with pytest.raises(errors.UnsupportedTypeError, match=r"column x\.y: custom metadata"):
        integration_json.build_document(schema, [])


# Limits


def test_a_document_beyond_the_limit_is_rejected_unless_the_option_raises_it() -> None:
    batch = batch_of(bs.array([1, 2]))
    raw = json.dumps(integration_json.build_document(batch.schema, [batch])).encode()
    limits = integration_json.DocumentLimits(max_bytes=len(raw) - 1)
    for source in (raw, gzip.compress(raw), io.BytesIO(raw)):
        with pytest.raises(errors.LimitError, match="exceeds the limit"):
            integration_json.read(source, limits)
    limits = integration_json.DocumentLimits(max_bytes=len(raw))
    assert integration_json.read(gzip.compress(raw), limits).to_batches()[0].num_rows == 2


def test_a_gzip_bomb_is_not_decompressed() -> None:
    bomb = gzip.compress(bytes(1 << 24))
    with pytest.raises(errors.LimitError, match="exceeds the limit of 1048576 bytes"):
        integration_json.read(bomb, integration_json.DocumentLimits(max_bytes=1 << 20))


def test_types_nested_beyond_the_limit_are_rejected_unless_the_option_raises_it() -> None:
    type_: bs.DataType = bs.int8()
    for _ in range(70):
        type_ = bs.list_(type_)
    document = integration_json.build_document(bs.schema({"x": type_}), [])
    with pytest.raises(errors.LimitError, match="nested deeper than the limit of 64"):
        read(document)
    raw = json.dumps(document).encode()
    assert integration_json.read(raw, integration_json.DocumentLimits(max_nesting=100)).schema.field("x").type == type_


def test_json_of_ten_thousand_levels_is_rejected() -> None:
    for raw in (b"[" * 10_000 + b"]" * 10_000, b'{"schema":' * 10_000 + b"1" + b"}" * 10_000):
        with pytest.raises(errors.InvalidDataError):
            integration_json.read(raw)


INVALID_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 5),
    st.sampled_from([1 << 31, 1 << 63, -(1 << 63), 1 << 200, 1.5, float("nan"), "", "0", "-1", "FF", "utf8", "int"]),
    st.sampled_from([[], {}, [0], [[]], {"name": "null"}]),
)


@pytest.mark.thorough
@given(st.data())
@settings(max_examples=400)
def test_a_damaged_document_is_a_bowstring_error_or_valid(data: st.DataObject) -> None:
    document = copy.deepcopy(NESTED_DOCUMENT)
    for _ in range(data.draw(st.integers(1, 3))):
        parent: Any = document
        while True:
            keys = list(parent) if isinstance(parent, dict) else list(range(len(parent)))
            if not keys:
                break
            key = data.draw(st.sampled_from(keys))
            if isinstance(parent[key], (dict, list)) and parent[key] and data.draw(st.integers(0, 9)):
                parent = parent[key]
                continue
            parent[key] = copy.deepcopy(data.draw(INVALID_VALUES))
            break
    try:
        table = read(document)
        for batch in table.to_batches():
            batch.validate(full=True)
            batch.to_pydict()
        integration_json.build_document(table.schema, table.to_batches())
    except errors.BowstringError:
        pass


NESTED_DOCUMENT = nested_document()


def test_differences_name_the_location_and_both_values() -> None:
    left = batch_of(bs.array([1, 2, 3]), bs.array(["a", "b", "c"]))
    right = batch_of(bs.array([1, 2, 4]), bs.array(["a", "b", "c"]))
    assert list(integration_json.find_differences(left.schema, [left], right.schema, [right])) == [
        "record batch 0: column 0 ('c0') differs from row 2 on"
    ]
    strict = bs.schema([bs.field("c0", bs.int64(), nullable=False), bs.field("c1", bs.string(), metadata={"k": "v"})])
    assert list(integration_json.find_differences(strict, [], left.schema, [])) == [
        "field 0 ('c0'): expected it not to be nullable",
        "field 1 ('c1'): expected custom metadata ((b'k', b'v'),), found ()",
    ]
    other = batch_of(bs.array(np.array([1], np.int8)))
    assert list(integration_json.find_differences(left.schema, [left], other.schema, [other])) == [
        "schema: expected 2 fields, found 1",
        "field 0 ('c0'): expected type int64, found int8",
    ]


@pytest.mark.parametrize(("count", "is_read"), [(0, True), (2, False)])
def test_nulls_of_a_huge_width_are_not_expanded(count: int, is_read: bool) -> None:
    kind = {"name": "fixedsizebinary", "byteWidth": (1 << 31) - 1}
    field = {"name": "x", "type": kind, "nullable": True, "children": []}
    column = {"name": "x", "count": count, "VALIDITY": [0] * count, "DATA": [""] * count}
    document = {"schema": {"fields": [field]}, "batches": [{"count": count, "columns": [column]}]}
    text = json.dumps(document).encode()
    if is_read:
        assert [batch.num_rows for batch in integration_json.read(text).to_batches()] == [0]
    else:
        with pytest.raises(errors.LimitError, match="4294967294 bytes"):
            integration_json.read(text)


def test_a_document_is_written_to_and_read_from_a_url() -> None:
    batch = bs.record_batch({"n": bs.array([1, None], bs.int32())})
    integration_json.write("memory://document.json", integration_json.build_document(batch.schema, [batch]))
    (batch_read,) = integration_json.read("memory://document.json").to_batches()
    assert batch_read.to_pydict() == {"n": [1, None]}

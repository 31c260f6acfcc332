"""Counting nodes and buffers of all fields in one pass gives the same as reading the fields one by one."""

from __future__ import annotations

import struct
import time
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

import bowstring as bs
from bowstring.datatypes.extension import NAME_KEY
from bowstring.datatypes.field import Field
from bowstring.errors import BowstringError, InvalidDataError, LimitError
from bowstring.flatbuf.reader import FlatTable
from bowstring.flatbuf.tables import read_root
from bowstring.ipc.limits import DEFAULT_LIMITS, ReadLimits
from bowstring.ipc.metadata.field import DictionaryDeclaration, read_field
from bowstring.ipc.metadata.field_tables import FieldTables
from bowstring.ipc.metadata.schema import V5, IpcFields, IpcSchema
from bowstring.layouts.base import Layout
from bowstring.layouts.dictionary import DictionaryLayout
from bowstring.layouts.registry import layout_of
from bowstring_testing import strategies
from fuzz.editable_stream import parse_stream
from tests.ipc import samples
from tests.ipc.flatbuffer_assembler import FlatbufferAssembler, number

_FLAT = [
    bs.int32(), bs.uint8(), bs.float16(), bs.string(), bs.string_view(), bs.binary(), bs.null(), bs.bool_(),
    bs.decimal128(7, 2), bs.decimal256(40, -3), bs.date32(), bs.date64(), bs.time32("ms"), bs.time64("ns"),
    bs.timestamp("us"), bs.timestamp("us", "UTC"), bs.timestamp("us", "Europe/Oslo"), bs.timestamp("ns", "UTC"),
    bs.duration("s"), bs.month_interval(), bs.binary(7), bs.binary(8), bs.large_string(), bs.large_binary(),
]  # fmt: skip


_NESTED = [
    bs.list_(bs.int8()), bs.struct({"p": bs.int8(), "q": bs.large_list(bs.string())}), bs.map_(bs.string(), bs.int64()),
    bs.list_(bs.float32(), 2), bs.list_view(bs.string()), bs.dictionary(bs.int16(), bs.string()),
    bs.dictionary(bs.int8(), bs.list_(bs.dictionary(bs.uint32(), bs.string()))),
    bs.list_(bs.dictionary(bs.int8(), bs.date32())),
]  # fmt: skip


def schema_table(raw: bytes, max_tables: int = 1_000_000) -> FlatTable:
    start = len(raw) - 10 - int.from_bytes(raw[-10:-6], "little")
    table = read_root("Footer", raw[start:-10], "footer", max_tables)["schema"]
    if table is None:
        raise InvalidDataError("the footer has no schema")
    assert isinstance(table, FlatTable)
    return table


def encode_footer(schema: bs.Schema) -> bytes:
    return samples.as_file(bs.RecordBatch(schema, 0, [bs.array([], field.type) for field in schema]))


def encode_footer_with_pyarrow(schema: pa.Schema) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema):
        pass
    return bytes(sink.getvalue())


def read_fields_one_by_one(raw: bytes) -> list[tuple[Field, tuple[DictionaryDeclaration, ...]]]:
    table = schema_table(raw)
    count = table.locate_elements("fields")[1]
    return [read_field(table.get_element_table("fields", index), 64) for index in range(count)]


def counts_of_layout(layout: Layout) -> tuple[int, int, int]:
    """The nodes, buffers and variadic counts of a column, by a walk over its layout."""
    if isinstance(layout, DictionaryLayout):
        return 1, 2, 0
    own = (1, len(layout.buffers), int(layout.VARIADIC))
    nodes, buffers, variadic = np.sum([own, *map(counts_of_layout, layout.children)], axis=0).tolist()
    return nodes, buffers, variadic


def test_columns_of_every_type_are_counted_in_one_pass() -> None:
    types = [*_FLAT, *_NESTED]
    schema = bs.schema([bs.field(f"c{i} ø", types[i % len(types)], nullable=i % 3 > 0) for i in range(300)])
    for raw in (encode_footer(schema), encode_footer_with_pyarrow(pa.schema(schema))):
        tables = FieldTables.from_schema_table(schema_table(raw))
        assert tables.names() == schema.names
        expected = [counts_of_layout(layout_of(field.type)) for field in schema]
        assert tables.header_entry_counts.tolist() == [list(counts) for counts in expected]
        read = IpcSchema.from_table(schema_table(raw), DEFAULT_LIMITS)
        assert read.schema == schema
        eager = IpcSchema(read.schema, IpcFields(read.fields.all_with_dictionaries())).column_positions(V5)
        lazy = read.column_positions(V5)
        assert [(c.first_node, c.first_buffer) for c in lazy] == [(c.first_node, c.first_buffer) for c in eager]


@settings(max_examples=100)
@given(st.lists(st.tuples(st.text(max_size=4), strategies.types(), st.booleans(), strategies.metadata()), max_size=8))
def test_counts_in_one_pass_equal_those_of_fields(columns: list[tuple[str, bs.DataType, bool, Any]]) -> None:
    schema = bs.schema([Field(*column) for column in columns])
    raw = encode_footer(schema)
    counts = FieldTables.from_schema_table(schema_table(raw)).header_entry_counts.tolist()
    for found, (expected, _) in zip(counts, read_fields_one_by_one(raw), strict=True):
        assert found in ([-1, -1, -1], list(counts_of_layout(layout_of(expected.type))))


@pytest.mark.thorough
def test_flipped_bytes_give_the_same_counts_or_errors() -> None:
    kinds = [*_FLAT, *_NESTED]
    schema = bs.schema([bs.field(f"c{i}", kinds[i % len(kinds)], metadata={"k": str(i)}) for i in range(60)])
    raw, random = encode_footer_with_pyarrow(pa.schema(schema)), np.random.default_rng(11)
    start, stop = len(raw) - 10 - int.from_bytes(raw[-10:-6], "little"), len(raw) - 10
    num_equal = num_unknown = 0
    for _ in range(300):
        flipped = bytearray(raw)
        for at in random.integers(start, stop, 2).tolist():
            flipped[at] = int(random.integers(256))
        try:
            table = schema_table(bytes(flipped))
            counts = FieldTables.from_schema_table(table).header_entry_counts.tolist()
        except BowstringError:
            continue
        for index, found in enumerate(counts):
            if found[0] < 0:
                num_unknown += 1
                continue
            with suppress(BowstringError):  # of a type's parameters, or of its text: not needed for counting
                field, _ = read_field(table.get_element_table("fields", index), 64)
                assert found == list(counts_of_layout(layout_of(field.type)))
                num_equal += 1
    assert num_equal > 1000
    assert num_unknown > 5


def test_a_schema_of_many_fields_is_read_in_bounded_time() -> None:
    raw = encode_footer_with_pyarrow(pa.schema([(f"column_{i}", pa.int64()) for i in range(200_000)]))
    start = time.process_time()
    assert len(IpcSchema.from_table(schema_table(raw), DEFAULT_LIMITS).schema) == 200_000
    assert time.process_time() - start < 20


def test_a_schema_of_a_million_fields_is_rejected_unless_a_limit_is_raised() -> None:
    count = 1_000_000
    raw = _schema_of_shared_field(count)
    start = time.process_time()
    with pytest.raises(LimitError, match="max_tables"):
        IpcSchema.from_table(read_root("Schema", raw, "footer"), DEFAULT_LIMITS)
    limits = ReadLimits(max_tables=4 * count)
    with pytest.raises(LimitError):  # all fields share one table
        _ = IpcSchema.from_table(read_root("Schema", raw, "footer", limits.max_tables), limits).schema
    assert time.process_time() - start < 20


def _schema_of_shared_field(count: int) -> bytes:
    """Return a `Schema` whose fields are all the same table."""
    head = struct.pack("<I", 20) + struct.pack("<HHHHHH", 8, 8, 0, 4, 0, 0) + bytes(4)
    head += struct.pack("<iI", 20 - 4, 8 - 4) + struct.pack("<I", count)
    first = len(head)
    at = first + 4 * count
    offsets = (at + 16 - (first + 4 * np.arange(count, dtype=np.int64))).astype("<u4").tobytes()
    vtable = struct.pack("<HHHHHH", 12, 16, 4, 0, 8, 12) + bytes(4)
    field = struct.pack("<iIB3xI", 16, 12 + 8, 1, 12) + bytes(16)
    return head + offsets + vtable + field


def test_a_dictionary_field_of_an_unknown_type_is_an_error() -> None:
    structure = parse_stream(samples.as_stream(samples.batch("dictionary")))
    assert structure is not None
    assert structure.messages[0].header is not None
    structure.messages[0].header.slots["fields"][0].slots["type_type"] = 200
    with pytest.raises(InvalidDataError, match=r"Field\.type_type below 27, found 200"):
        _ = bs.open_stream(structure.encode()).schema


def test_a_key_beyond_the_end_of_the_message_is_an_error() -> None:
    assembly = FlatbufferAssembler()
    assembly.schema_message("fields")
    assembly.offsets("fields", "field")
    assembly.table("field", "Field", type_type=number("Null"), type="null", name="name", custom_metadata="pairs")
    assembly.table("null", "Null")
    assembly.text("name", b"x")
    assembly.offsets("pairs", "pair")
    assembly.table("pair", "KeyValue", key="key")
    assembly.text("key", b"abcd", len(NAME_KEY))
    with pytest.raises(InvalidDataError, match=r"KeyValue\.key has 20 elements"):
        _ = bs.open_stream(assembly.to_message()).schema


def test_a_dictionary_list_with_two_children_is_an_error() -> None:
    assembly = FlatbufferAssembler()
    assembly.schema_message("fields")
    assembly.offsets("fields", "field")
    assembly.table(
        "field", "Field", type_type=number("List"), type="list", dictionary="code", children="children", name="name"
    )
    assembly.table("list", "List")
    assembly.table("code", "DictionaryEncoding", id=0)
    assembly.offsets("children", "child", "child")
    assembly.table("child", "Field", type_type=number("Null"), type="null", name="name")
    assembly.table("null", "Null")
    assembly.text("name", b"x")
    with pytest.raises(InvalidDataError, match="expected 1 children, found 2"):
        _ = bs.open_stream(assembly.to_message()).schema


def test_a_long_time_zone_that_many_fields_share_is_rejected_in_bounded_memory() -> None:
    assembly = FlatbufferAssembler()
    assembly.schema_message("fields")
    assembly.repeated("fields", "field", 100_000)
    assembly.table("field", "Field", type_type=number("Timestamp"), type="timestamp", name="name")
    assembly.table("timestamp", "Timestamp", unit=1, timezone="zone")
    assembly.text("name", b"x")
    assembly.text("zone", b"Z" * 1_000_000)
    with pytest.raises(LimitError, match="text of more than 5600"):
        _ = bs.open_stream(assembly.to_message()).schema


def test_names_that_occur_elsewhere_in_a_message_are_found_as_names() -> None:
    schema = bs.schema(
        [bs.field("name", bs.int8(), metadata={"name": "name"}), *((f"c{i}", bs.int8()) for i in range(9))]
    )
    twice = bs.schema([bs.field("name", bs.int8(), metadata={"name": "name"}) for _ in range(9)])
    raw = encode_footer(schema)
    assert IpcSchema.from_table(schema_table(raw), DEFAULT_LIMITS).fields.indices_of("name") == [0]
    raw = encode_footer_with_pyarrow(pa.schema(twice))
    assert raw.count(struct.pack("<I", 4) + b"name") > 9
    assert IpcSchema.from_table(schema_table(raw), DEFAULT_LIMITS).fields.indices_of("name") == list(range(9))


@pytest.mark.parametrize("length", [0, 3, 40])
def test_a_name_of_another_length_is_left_to_reading_its_field(length: int) -> None:
    raw = bytearray(encode_footer(bs.schema([("first", bs.int8()), ("name", bs.int8()), ("", bs.int8())])))
    intact = FieldTables.from_schema_table(schema_table(bytes(raw)))
    assert intact.names() == ["first", "name", ""]
    assert intact.indices_of(b"name") == [1]
    at = raw.rindex(b"name\0")  # in the footer
    raw[at - 4 : at] = length.to_bytes(4, "little")
    damaged = FieldTables.from_schema_table(schema_table(bytes(raw)))
    assert damaged.names() is None
    assert damaged.indices_of(b"name") is None
    with pytest.raises(InvalidDataError, match=r"Field\.name is not followed by a zero byte"):
        read_fields_one_by_one(bytes(raw))

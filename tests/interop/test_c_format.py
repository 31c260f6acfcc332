"""Format strings and schemas, exported and imported as in the specification."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pytest

import bowstring as bs
from bowstring.arrays.array import import_array
from bowstring.datatypes import c_schema, extension, types as t
from bowstring.datatypes.c_format import SIMPLE_TYPES_BY_FORMAT, parse_format_string
from bowstring.datatypes.conversion import field
from bowstring.datatypes.field import Field
from bowstring.memory import c_abi
from tests.interop.c_producer import SchemaCapsule

EXAMPLES: list[tuple[bytes, t.DataType]] = [
    (b"d:19,10", bs.decimal128(19, 10)),
    (b"d:9,2,32", bs.decimal32(9, 2)),
    (b"d:18,-2,64", bs.decimal64(18, -2)),
    (b"d:70,0,256", bs.decimal256(70)),
    (b"w:42", bs.binary(42)),
    (b"tss:", bs.timestamp("s")),
    (b"tsm:", bs.timestamp("ms")),
    (b"tsu:Europe/Paris", bs.timestamp("us", "Europe/Paris")),
    (b"tsn:+02:30", bs.timestamp("ns", "+02:30")),
    (b"+l", bs.list_(bs.uint64())),
    (b"+L", bs.large_list(bs.uint64())),
    (b"+vl", bs.list_view(bs.uint64())),
    (b"+vL", bs.large_list_view(bs.uint64())),
    (b"+w:123", bs.list_(bs.int8(), 123)),
    (b"+s", bs.struct({"ints": bs.int32(), "floats": bs.float32()})),
    (b"+s", bs.struct({})),
    (b"+m", bs.map_(bs.string(), bs.float64())),
    (b"+us:4,5", bs.sparse_union([("ints", bs.int32()), ("floats", bs.float32())], [4, 5])),
    (b"+ud:0,1", bs.dense_union([("ints", bs.int32()), ("floats", bs.float32())])),
    (b"+ud:", bs.dense_union({})),
    (b"+r", bs.run_end_encoded(bs.int32(), bs.float32())),
]


@pytest.mark.parametrize(("text", "type"), [*EXAMPLES, *SIMPLE_TYPES_BY_FORMAT.items()])
def test_types_are_written_as_in_the_specification_and_read_back(text: bytes, type: t.DataType) -> None:
    assert type.c_format() == text
    assert parse_format_string(text, type.fields, 0) == type


def test_pyarrow_reads_every_plain_format_as_the_same_type() -> None:
    for plain in SIMPLE_TYPES_BY_FORMAT.values():
        if str(plain) not in ("month_interval", "day_time_interval"):  # not supported by pyarrow
            peer = pa.field(SchemaCapsule(plain.__arrow_c_schema__())).type
            assert c_schema.import_field(peer).type == plain


def schema_fields(capsule: object) -> list[int]:
    return c_abi.SchemaStruct.from_address(c_abi.capsule_pointer(capsule, c_abi.SCHEMA_CAPSULE))[:]


def test_flags_are_nullable_ordered_and_sorted() -> None:
    def flags(field: Field) -> int:
        return schema_fields(field.__arrow_c_schema__())[c_abi.FLAGS]

    assert flags(field("a", bs.int8())) == 2
    assert flags(field("a", bs.int8(), nullable=False)) == 0
    assert flags(field("a", bs.dictionary(bs.int8(), bs.string(), ordered=True))) == 3
    assert flags(field("a", bs.map_(bs.string(), bs.int8(), keys_sorted=True))) == 6


def test_metadata_is_encoded_as_in_the_specifications_example() -> None:
    capsule = field("a", bs.int8(), metadata=[("key1", "value1")]).__arrow_c_schema__()
    text = ctypes.string_at(schema_fields(capsule)[c_abi.METADATA], 22 + 4)
    assert text[:18] == b"\x01\0\0\0\x04\0\0\0key1\x06\0\0\0va"
    assert c_schema.import_field(capsule).metadata == {b"key1": b"value1"}


def test_absent_metadata_is_a_null_pointer() -> None:
    assert schema_fields(bs.int8().__arrow_c_schema__())[c_abi.METADATA] == 0


def test_duplicate_metadata_keys_are_kept() -> None:
    pairs = ((b"k", b"1"), (b"k", b"2"), (b"", b""))
    assert c_schema.import_field(Field("a", bs.int8(), True, pairs).__arrow_c_schema__()).pairs == pairs


@pytest.mark.parametrize(
    "type", [example for _, example in EXAMPLES] + [bs.dictionary(bs.uint16(), bs.list_(bs.string()), True)]
)
def test_nested_types_survive_a_round_trip(type: t.DataType) -> None:
    deep = field("outer", bs.list_(field("inner", type, metadata=[("k", "v")])), nullable=False)
    again = c_schema.import_field(deep.__arrow_c_schema__())
    assert again.equals(deep, check_metadata=True)


@extension.register_extension_type
@dataclass(frozen=True, slots=True, repr=False)
class Celsius(extension.ExtensionType):
    """An extension type of temperatures."""

    EXTENSION_NAME: ClassVar[str] = "tests.interop.celsius"


def test_an_extension_type_travels_in_the_metadata_of_its_storage() -> None:
    import bowstring as bs

    degrees = bs.array([20.5, None], Celsius(bs.float64()))
    peer = pa.array(degrees)
    assert peer.type == pa.float64()
    assert pa.field(degrees).metadata[b"ARROW:extension:name"] == b"tests.interop.celsius"
    again = import_array(degrees)
    assert again.type == degrees.type
    assert again.to_pylist() == [20.5, None]
    within = bs.array([[20.5], None], bs.list_(Celsius(bs.float64())))
    assert import_array(within).type == within.type


def test_an_unregistered_extension_type_keeps_its_metadata() -> None:
    peer = pa.field("id", pa.uuid())
    imported = c_schema.import_field(peer)
    if imported.type == bs.binary(16):
        assert imported.metadata[b"ARROW:extension:name"] == b"arrow.uuid"
    assert pa.field(SchemaCapsule(imported.__arrow_c_schema__())).equals(peer)


@pytest.fixture(autouse=True)
def assert_no_leaks() -> Iterator[None]:
    before = len(c_abi.private_data)
    yield
    assert len(c_abi.private_data) == before


def test_a_schema_at_the_depth_limit_is_imported() -> None:
    deep: t.DataType = bs.int8()
    for _ in range(c_schema.MAX_NESTING - 1):
        deep = bs.list_(deep)
    assert c_schema.import_field(deep.__arrow_c_schema__()).type == deep

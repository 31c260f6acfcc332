"""Data types are values: they compare, hash, print like pyarrow's, and refuse invalid parameters."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import bowstring as bs
from bowstring.datatypes import types as t
from tests.cases import CASES

TYPES = list({str(case.type): case.type for case in CASES}.values())


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_types_are_immutable_values_that_can_be_pickled(type_: bs.DataType) -> None:
    copy = pickle.loads(pickle.dumps(type_))
    assert copy == type_
    assert hash(copy) == hash(type_)
    assert type_.equals(copy)
    assert repr(type_) == f"DataType({type_})"
    assert type_.num_fields == len(type_.fields)
    with pytest.raises((AttributeError, TypeError)):  # depends on the Python version
        type_.anything = 1  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "make",
    [
        lambda: bs.list_(bs.int8(), 2.5),  # type: ignore[arg-type]
        lambda: bs.binary(2.5),  # type: ignore[arg-type]
        lambda: bs.binary("3"),  # type: ignore[arg-type]
        lambda: t.Int(8.0),  # type: ignore[arg-type]
        lambda: t.FloatingPoint("32"),  # type: ignore[arg-type]
        lambda: bs.timestamp("s", 5),  # type: ignore[arg-type]
        lambda: bs.timestamp(["s"]),  # type: ignore[arg-type]
        lambda: bs.dictionary(bs.int8(), str),  # type: ignore[arg-type]
        lambda: bs.dense_union([("a", bs.int8())], [1.0]),  # type: ignore[list-item]
        lambda: bs.sparse_union([("a", bs.int8())], ["x"]),  # type: ignore[list-item]
        lambda: bs.datatypes.opaque(8, "name", "vendor"),  # type: ignore[arg-type]
        lambda: bs.datatypes.opaque(bs.int8(), 5, "vendor"),  # type: ignore[arg-type]
        lambda: bs.datatypes.fixed_shape_tensor(bs.int8(), (2.5, 2)),  # type: ignore[arg-type]
        lambda: bs.field("a", bs.int8()).with_name(5),  # type: ignore[arg-type]
        lambda: bs.field("a", bs.int8()).with_type(int),  # type: ignore[arg-type]
        lambda: bs.array([1]).cast(int),  # type: ignore[arg-type]
    ],
)
def test_a_parameter_of_another_type_is_rejected(make: Callable[[], Any]) -> None:
    with pytest.raises(bs.errors.InvalidArgumentError):
        make()


def test_all_types_are_different() -> None:
    assert len(set(TYPES)) == len(TYPES)
    assert sum(a == b for a in TYPES for b in TYPES) == len(TYPES)
    assert not bs.int8().equals(8)
    assert bs.int8().equals("i1", check_metadata=True)


NAMES = "null bool_ int8 int64 uint16 float16 float32 float64 date32 date64 string large_string string_view binary "
NAMES += "large_binary binary_view month_day_nano_interval"


@pytest.mark.parametrize("name", NAMES.split())
def test_names_and_strings_equal_pyarrow_s(name: str) -> None:
    assert str(getattr(bs, name)()) == str(getattr(pa, name)())


def strings_of_both(make: Callable[[Any], Any]) -> tuple[str, str]:
    return str(make(bs)), str(make(pa))


@pytest.mark.parametrize(
    "make",
    [
        lambda m: m.decimal128(5, 2),
        lambda m: m.decimal256(70, -2),
        lambda m: m.decimal32(9),
        lambda m: m.time32("ms"),
        lambda m: m.time64("ns"),
        lambda m: m.timestamp("us"),
        lambda m: m.timestamp("ns", tz="Europe/Paris"),
        lambda m: m.duration("s"),
        lambda m: m.binary(3),
        lambda m: m.list_(m.int8()),
        lambda m: m.list_(m.field("x", m.int8(), nullable=False)),
        lambda m: m.large_list(m.string()),
        lambda m: m.list_view(m.string()),
        lambda m: m.large_list_view(m.string()),
        lambda m: m.list_(m.int8(), 4),
        lambda m: m.struct([("a", m.int8()), m.field("b", m.string(), nullable=False)]),
        lambda m: m.struct({"a": m.int8()}),
        lambda m: m.map_(m.string(), m.int8()),
        lambda m: m.dictionary(m.int8(), m.string(), ordered=True),
        lambda m: m.run_end_encoded(m.int16(), m.float64()),
        lambda m: m.dense_union([m.field("a", m.int8()), m.field("b", m.string())], [3, 5]),
        lambda m: m.sparse_union([m.field("a", m.int8())]),
    ],
)
def test_parameters_are_passed_and_printed_like_pyarrow_s(make: Callable[[Any], Any]) -> None:
    type_, pyarrow_type = strings_of_both(make)
    assert type_ == pyarrow_type


@pytest.mark.parametrize(
    "make",
    [
        lambda: t.Int(12),
        lambda: t.FloatingPoint(80),
        lambda: bs.decimal32(10),
        lambda: bs.decimal128(0),
        lambda: bs.decimal256(77),
        lambda: bs.decimal64(3, 1 << 31),
        lambda: t.Decimal(1, 0, 16),
        lambda: bs.time32("us"),
        lambda: bs.time64("s"),
        lambda: bs.timestamp("m"),  # type: ignore[arg-type]
        lambda: bs.duration("D"),  # type: ignore[arg-type]
        lambda: t.Interval("week"),  # type: ignore[arg-type]
        lambda: bs.binary(-2),
        lambda: bs.list_(bs.int8(), -2),
        lambda: bs.list_(bs.int8(), 1 << 31),
        lambda: bs.list_(int),  # type: ignore[arg-type]
        lambda: bs.struct({"a": int}),  # type: ignore[arg-type]
        lambda: bs.struct([(1, bs.int8())]),  # type: ignore[list-item]
        lambda: t.Map(bs.field("entries", bs.struct({"a": bs.int8()}))),
        lambda: bs.dictionary(bs.string(), bs.string()),
        lambda: bs.run_end_encoded(bs.int8(), bs.string()),
        lambda: bs.run_end_encoded(bs.uint16(), bs.string()),
        lambda: bs.dense_union([("a", bs.int8())], [128]),
        lambda: bs.dense_union([("a", bs.int8())], [-1]),
        lambda: bs.dense_union([("a", bs.int8()), ("b", bs.int8())], [1, 1]),
        lambda: bs.dense_union([("a", bs.int8())], [1, 2]),
        lambda: t.Union("thin", (bs.field("a", bs.int8()),), (0,)),  # type: ignore[arg-type]
        lambda: bs.array([1], int),  # type: ignore[arg-type]
    ],
)
def test_invalid_parameters_are_rejected(make: Callable[[], object]) -> None:
    with pytest.raises(bs.errors.InvalidArgumentError):
        make()


def test_children_of_nested_types_have_names() -> None:
    list_type = bs.list_(bs.field("x", bs.int8()))
    assert isinstance(list_type, t.List)
    assert (list_type.value_field.name, list_type.value_type) == ("x", bs.int8())
    map_type = bs.map_(bs.string(), bs.int8())
    assert (map_type.key_field.name, map_type.key_field.nullable, map_type.item_field.type) == ("key", False, bs.int8())
    runs = bs.run_end_encoded(bs.int32(), bs.string())
    assert (runs.run_end_type, runs.value_type) == (bs.int32(), bs.string())
    assert [field.name for field in runs.fields] == ["run_ends", "values"]


def test_keys_and_entries_of_maps_are_not_nullable() -> None:
    map_type = bs.map_(bs.field("k", "string", metadata={"a": "b"}), bs.field("v", "int8"))
    assert (map_type.key_field.name, map_type.key_field.nullable, map_type.item_field.nullable) == ("k", False, True)
    assert map_type.key_field.metadata == {b"a": b"b"}
    pair = bs.struct([bs.field("k", "string"), bs.field("v", "int8", nullable=False)])
    read = t.Map(bs.field("pairs", pair))  # as readers create it from a file that declares nullable keys
    assert (read.entries_field.name, read.entries_field.nullable) == ("pairs", False)
    assert (read.key_field.nullable, read.item_field.nullable) == (False, False)


def test_metadata_of_fields_is_compared_only_on_request() -> None:
    plain, marked = (bs.list_(bs.field("item", bs.int8(), metadata=m)) for m in (None, {"a": "b"}))
    assert plain == marked
    assert not plain.equals(marked, check_metadata=True)
    deep = [bs.dictionary(bs.int8(), bs.struct([("x", inner)])) for inner in (plain, marked)]
    assert deep[0].equals(deep[1])
    assert not deep[0].equals(deep[1], check_metadata=True)
    assert deep[1].equals(bs.dictionary(bs.int8(), bs.struct([("x", marked)])), check_metadata=True)


@pytest.mark.parametrize(
    ("type_", "renamed"),
    [
        (bs.list_("int8"), bs.list_(bs.field("l", "int8"))),
        (bs.large_list("int8"), bs.large_list(bs.field("l", "int8"))),
        (bs.list_view("int8"), bs.list_view(bs.field("l", "int8"))),
        (bs.large_list_view("int8"), bs.large_list_view(bs.field("l", "int8"))),
        (bs.list_("int8", 2), bs.list_(bs.field("l", "int8"), 2)),
        (bs.map_("string", "int8"), bs.map_(bs.field("k", "string"), bs.field("v", "int8"))),
        (bs.run_end_encoded("int32", "int8"), bs.run_end_encoded("int32", bs.field("v", "int8"))),
        (bs.struct([("x", bs.list_("int8"))]), bs.struct([("x", bs.list_(bs.field("l", "int8")))])),
    ],
    ids=str,
)
def test_names_of_the_children_of_lists_maps_and_runs_are_kept_but_not_compared(
    type_: bs.DataType, renamed: bs.DataType
) -> None:
    assert type_ == renamed
    assert hash(type_) == hash(renamed)
    assert type_.equals(renamed)
    assert not type_.equals(renamed, check_metadata=True)
    pa_types = [pa.field(bs.field("", each)).type for each in (type_, renamed)]
    assert pa_types[0] == pa_types[1]
    arrays = [bs.nulls(1, each) for each in (type_, renamed)]  # of both types, though one is cached
    assert [str(array.type) for array in arrays] == [str(type_), str(renamed)]
    assert arrays[0] == arrays[1]
    assert str(arrays[0].cast(renamed).type) == str(renamed)
    assert bs.concat_arrays(arrays).null_count + (2 * isinstance(type_, t.RunEndEncoded)) == 2


@pytest.mark.parametrize(
    "other",
    [
        bs.list_("int16"),
        bs.list_(bs.field("item", "int8", nullable=False)),
        bs.large_list("int8"),
        bs.list_view("int8"),
        bs.list_("int8", 2),
        bs.struct({"item": "int8"}),
    ],
    ids=str,
)
def test_lists_of_other_kinds_types_sizes_and_nullability_differ(other: bs.DataType) -> None:
    assert bs.list_("int8") != other
    assert bs.list_("int8", 3) != other
    assert bs.struct({"i": "int8"}) != other


def test_maps_whose_keys_have_other_names_have_equal_values() -> None:
    types = bs.map_("string", "int8"), bs.map_(bs.field("k", "string"), bs.field("v", "int8"))
    plain, renamed = (bs.array([{"a": 1}, None, {"b": 2, "c": 3}], type_) for type_ in types)
    assert plain == renamed
    assert plain != bs.array([{"a": 1}, None, {"b": 2, "c": 4}], types[1])
    assert bs.chunked_array([plain, renamed]).unique().to_pylist() == plain.to_pylist()
    lists = [bs.array([[{"a": 1}]], bs.list_(type_)) for type_ in types]
    assert lists[0] == lists[1]
    assert bs.table({"m": plain}) == bs.table({"m": renamed})

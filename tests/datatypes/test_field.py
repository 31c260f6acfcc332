"""Fields and schemas: immutable, selected by name or index, compared with or without custom metadata."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import bowstring as bs
from bowstring.errors import InvalidArgumentError

SCHEMA = bs.schema([("a", bs.int8()), bs.field("b", bs.string(), nullable=False), ("a", bs.bool_())], {"k": "v"})


def test_a_schema_contains_its_names_and_fields() -> None:
    schema = bs.schema({"a": bs.int8(), "b": bs.string()})
    assert "a" in schema
    assert "c" not in schema
    assert bs.field("b", bs.string()) in schema
    assert bs.field("b", bs.int8()) not in schema


def test_changed_fields_are_new_objects() -> None:
    field = bs.field("a", bs.int8(), metadata={"k": b"v"})
    assert (field.name, field.type, field.nullable, field.metadata) == ("a", bs.int8(), True, {b"k": b"v"})
    assert field.with_name("b") == bs.field("b", bs.int8())
    assert field.with_type(bs.string()).type == bs.string()
    assert not field.with_nullable(False).nullable
    assert field.with_metadata([("x", "y"), ("x", "z")]).pairs == ((b"x", b"y"), (b"x", b"z"))
    assert field.remove_metadata().metadata == {}
    assert field.metadata == {b"k": b"v"}
    assert repr(field.with_nullable(False)) == "Field(a: int8 not null)"


def test_fields_compare_by_name_type_and_nullability() -> None:
    field = bs.field("a", bs.int8())
    for other in (bs.field("b", bs.int8()), bs.field("a", bs.int16()), bs.field("a", bs.int8(), nullable=False)):
        assert field != other
        assert not field.equals(other)
    marked = field.with_metadata({"k": "v"})
    assert field.equals(marked)
    assert hash(field) == hash(marked)
    assert not field.equals(marked, check_metadata=True)
    assert marked.equals(field.with_metadata({b"k": b"v"}), check_metadata=True)


@pytest.mark.parametrize(("name", "type_"), [(1, bs.int8()), ("a", 8), ("a", int), (None, None)])
def test_fields_have_a_name_and_a_type(name: Any, type_: Any) -> None:
    for make in (lambda: bs.field(name, type_), lambda: bs.schema([(name, type_)])):
        with pytest.raises(bs.errors.InvalidArgumentError):
            make()


def test_columns_are_selected_by_name_and_index() -> None:
    assert SCHEMA.names == ["a", "b", "a"]
    assert SCHEMA.types == [bs.int8(), bs.string(), bs.bool_()]
    assert SCHEMA.index("b") == SCHEMA.index(-2) == 1
    assert SCHEMA["b"] is SCHEMA.field(1)
    assert [field.name for field in SCHEMA] == SCHEMA.names
    assert len(SCHEMA) == 3
    assert SCHEMA.select(["b", 0]).names == ["b", "a"]
    assert SCHEMA.select(["b"]).metadata == {b"k": b"v"}


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("c", "no column is called 'c'; there are 'a', 'b', 'a'"),
        ("a", r"2 columns are called 'a' \(at \[0, 2\]\)"),
        (3, "column index 3 is out of range for a schema of length 3"),
        (-4, "column index -4 is out of range"),
    ],
)
def test_missing_columns_are_named(key: Any, message: str) -> None:
    with pytest.raises(bs.errors.NotFoundError, match=message):
        SCHEMA.index(key)
    with pytest.raises(KeyError):
        SCHEMA.field(key)


def test_schemas_compare_with_and_without_metadata() -> None:
    plain = SCHEMA.remove_metadata()
    assert plain == SCHEMA
    assert SCHEMA.equals(plain)
    assert not SCHEMA.equals(plain, check_metadata=True)
    assert SCHEMA.equals(plain.with_metadata({"k": "v"}), check_metadata=True)
    inner = bs.schema([plain[1].with_metadata({"x": "y"})])
    assert not inner.equals(plain.select(["b"]), check_metadata=True)
    assert bs.schema([("a", bs.int8())]) != SCHEMA


def test_schemas_are_built_from_mappings_and_printed() -> None:
    schema = bs.schema({"x": bs.int8(), "y": bs.list_(bs.string())})
    assert str(schema) == "x: int8\ny: list<item: string>"
    assert repr(schema) == "Schema(x: int8, y: list<item: string>)"
    assert hash(schema) == hash(bs.schema(list(schema)))


@pytest.mark.parametrize("key", [None, 1.5, slice(0, 1), ("a",), b"a"], ids=repr)
def test_a_field_is_selected_only_by_name_or_integer(key: Any) -> None:
    with pytest.raises(bs.errors.InvalidArgumentError, match="the name or the index of a column"):
        SCHEMA.index(key)
    with pytest.raises(bs.errors.InvalidArgumentError, match="the name or the index of a column"):
        bs.record_batch({"a": [1]}).column(key)


def test_a_name_that_utf8_cannot_encode_is_rejected() -> None:
    for make in (
        lambda: bs.field("\ud800", bs.int8()),
        lambda: bs.schema({"\ud800": bs.int8()}),
        lambda: bs.record_batch({"\ud800": [1]}),
    ):
        with pytest.raises(InvalidArgumentError, match="surrogates"):
            make()


def test_a_schema_of_another_library_is_accepted() -> None:
    pyarrow_schema = pa.schema([pa.field("n", pa.int32(), nullable=False)], {"from": "elsewhere"})
    schema = bs.schema([bs.field("n", bs.int32(), nullable=False)])
    assert bs.schema(pyarrow_schema).equals(bs.schema(schema, {"from": "elsewhere"}), check_metadata=True)
    assert bs.schema(pyarrow_schema, {"kept": "no"}).metadata == {b"kept": b"no"}
    assert bs.schema(bs.record_batch({"n": [1]})) == bs.record_batch({"n": [1]}).schema

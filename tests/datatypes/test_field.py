"""Fields and schemas: immutable, selected by name or index, compared with or without custom metadata."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import bowstring as bs
from bowstring.datatypes.schema import LazyFields, Schema
from bowstring.errors import InvalidArgumentError, NotFoundError

SCHEMA = bs.schema([("a", bs.int8()), bs.field("b", bs.string(), nullable=False), ("a", bs.bool_())], {"k": "v"})


def test_a_schema_contains_its_names_and_fields() -> None:
    schema = bs.schema({"a": bs.int8(), "b": bs.string()})
    assert "a" in schema
    assert "c" not in schema
    assert bs.field("b", bs.string()) in schema
    assert bs.field("b", bs.int8()) not in schema


class CountingFields(LazyFields):
    """Fields that count the searches for a name, each of which may take as long as reading all names."""

    def __init__(self, names: list[str]) -> None:
        self._names = names
        self.num_searches = 0

    def __len__(self) -> int:
        return len(self._names)

    @property
    def names(self) -> list[str]:
        return self._names

    def indices_of(self, name: str) -> list[int]:
        self.num_searches += 1
        return [index for index, other in enumerate(self._names) if other == name]

    def field_at(self, index: int) -> bs.Field:
        return bs.field(self._names[index], "int8")

    def all_fields(self) -> tuple[bs.Field, ...]:
        return tuple(map(self.field_at, range(len(self))))


@pytest.mark.parametrize(
    "look_up_all",
    [
        lambda schema, names: schema.select(names),
        lambda schema, names: [schema.field(name) for name in names],
        lambda schema, names: [schema.get_field_index(name) for name in names],
        lambda schema, names: [schema.get_all_field_indices(name) for name in names],
        lambda schema, names: [name in schema for name in names],
        lambda schema, names: [f"no {name}" in schema for name in names],
        lambda schema, names: [schema.get_all_field_indices("twice") for _ in names],
    ],
)
def test_looking_up_many_names_does_not_search_for_each(look_up_all: Callable[[bs.Schema, list[str]], object]) -> None:
    names = [f"c{i}" for i in range(1000)]
    fields = CountingFields([*names, "twice", "twice"])
    look_up_all(Schema(fields), names)
    assert fields.num_searches < 20


def test_names_are_found_the_same_after_many_others() -> None:
    names = [f"c{i}" for i in range(100)]
    schema = bs.schema([(name, "int8") for name in ["twice", *names, "twice", ""]])
    assert schema.resolve_indices(names) == list(range(1, 101))
    assert (schema.get_all_field_indices("twice"), schema.get_all_field_indices("none")) == ([0, 101], [])
    assert (schema.get_field_index("twice"), schema.get_field_index("none"), schema.index("")) == (-1, -1, 102)
    assert "none" not in schema
    schema.get_all_field_indices("twice").clear()  # a list of its own
    with pytest.raises(NotFoundError, match=r"2 columns are called 'twice' \(at \[0, 101\]\)"):
        schema.index("twice")
    with pytest.raises(NotFoundError, match="no column is called 'none'"):
        schema.index("none")


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

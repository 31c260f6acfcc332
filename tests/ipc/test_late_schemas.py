"""The schema of a file of many columns: each field is read when it is asked for, and it counts as if all had been."""

from __future__ import annotations

import copy
import io
import pickle
import threading
import time
from collections.abc import Callable

import pyarrow as pa
import pytest

import bowstring as bs
from bowstring.errors import InvalidDataError, LimitError, NotFoundError
from bowstring.flatbuf.reader import Message, Table
from bowstring.flatbuf.tables import SPECS
from bowstring.inspection.validation import Validator
from bowstring.ipc import schema_cache
from bowstring.ipc.limits import DEFAULT_LIMITS
from bowstring.ipc.metadata.lazy_schema import LazySchema
from tests.ipc.assembly import Assembly, number

_TYPES = [
    bs.int32(),
    bs.string(),
    bs.list_(bs.int8()),
    bs.dictionary(bs.int8(), bs.string()),
    bs.timestamp("us", "UTC"),
]
_MANY = 300


@pytest.fixture(autouse=True)
def _nothing_met() -> None:
    schema_cache._cache.clear()


def pickled(schema: bs.Schema) -> object:
    return pickle.loads(pickle.dumps(schema))


def made(count: int = _MANY) -> bs.Schema:
    return bs.schema(
        [
            bs.field(
                f"c{i} ø", _TYPES[i % len(_TYPES)], nullable=i % 3 > 0, metadata={"k": str(i)} if i % 7 == 0 else None
            )
            for i in range(count)
        ],
        metadata={"of": "all"},
    )


def written(schema: bs.Schema) -> bytearray:
    sink = io.BytesIO()
    with bs.new_file(sink, schema):
        pass
    return bytearray(sink.getvalue())


def footer_at(raw: bytearray) -> int:
    return len(raw) - 10 - int.from_bytes(raw[-10:-6], "little")


def broken(schema: bs.Schema, index: int) -> bytes:
    """A file with a timestamp of no unit at this position."""
    raw = written(schema)
    table = (
        Message(bytes(raw[footer_at(raw) : -10]), SPECS, "footer").root("Footer")["schema"].child_at("fields", index)
    )
    raw[footer_at(raw) + table.union("type", "Timestamp").span("unit")[0]] = 77
    return bytes(raw)


def test_fields_that_are_asked_for_are_those_of_the_schema_that_was_written() -> None:
    schema = made()
    with bs.open_file(bytes(written(schema))) as reader:
        read = reader.schema
    assert len(read) == _MANY
    assert read.field(7) == schema.field(7)
    assert read.field(7).metadata == {b"k": b"7"}
    assert read.field(-1) == schema.field(-1)
    assert read["c33 ø"] == schema["c33 ø"]
    assert read.index("c299 ø") == 299
    assert "c0 ø" in read
    assert "c300 ø" not in read
    assert schema.field(5) in read
    assert read.names == schema.names
    assert read.types == schema.types
    assert read.metadata == {b"of": b"all"}
    assert read.fields[2:4] == schema.fields[2:4]
    assert read.fields[-1] == schema.fields[-1]
    with pytest.raises(NotFoundError, match=r"no column is called 'x'; there are 'c0 ø', .* and 290 more"):
        read.index("x")
    with pytest.raises(NotFoundError, match="there is no column 300: the schema has 300"):
        read.field(300)
    with pytest.raises(IndexError):
        _ = read.fields[300]


_USES: list[Callable[[bs.Schema], object]] = [
    hash, repr, str, list, pickled, lambda schema: schema == made(), lambda schema: schema.equals(made(), True),
    lambda schema: schema.types, lambda schema: schema.fields[:1], copy.deepcopy, pa.schema,
]  # fmt: skip


@pytest.mark.parametrize("use", _USES)
def test_what_needs_all_fields_gives_what_it_gives_of_any_schema(use: Callable[[bs.Schema], object]) -> None:
    with bs.open_file(bytes(written(made()))) as reader:
        assert use(reader.schema) == use(made())


def test_it_is_equal_both_ways_and_is_found_in_a_set() -> None:
    with bs.open_file(bytes(written(made()))) as reader, bs.open_file(bytes(written(made(301)))) as other:
        assert made() == reader.schema
        assert reader.schema == made()
        assert len({made(), reader.schema, reader.schema}) == 1
        assert reader.schema != other.schema
        assert reader.schema != made().fields


def test_all_fields_are_a_tuple_as_of_any_schema() -> None:
    with bs.open_file(bytes(written(made()))) as reader:
        assert isinstance(reader.schema.fields, tuple)
        assert (*reader.schema.fields, bs.field("more", bs.int8())) == (*made().fields, bs.field("more", bs.int8()))


def test_it_is_pickled_with_all_of_its_fields() -> None:
    with bs.open_file(bytes(written(made()))) as reader:
        again = pickled(reader.schema)
    assert isinstance(again, bs.Schema)
    assert again.equals(made(), check_metadata=True)
    assert isinstance(again.fields, tuple)


def test_schemas_that_are_made_of_it_are_as_of_any_other() -> None:
    with bs.open_file(bytes(written(made()))) as reader:
        assert reader.schema.select(["c4 ø", 2]) == made().select([4, 2])
        assert reader.schema.remove_metadata().equals(made().remove_metadata(), check_metadata=True)
        assert reader.schema.with_metadata({"a": "b"}).metadata == {b"a": b"b"}


def test_a_field_is_the_same_object_however_it_is_asked_for() -> None:
    with bs.open_file(bytes(written(made()))) as reader:
        early = reader.schema.field(3)
        fields = [reader.schema.field(index) for index in range(_MANY)]
        assert fields == list(made())
        assert list(map(id, reader.schema)) == list(map(id, fields))
        assert reader.schema.field("c3 ø") is early
        assert reader.schema.fields[3] is early


def test_a_broken_field_among_many_breaks_only_itself_and_what_needs_all() -> None:
    with bs.open_file(broken(made(), 104)) as reader:
        schema = reader.schema
        assert len(schema) == _MANY
        assert schema.names == made().names
        assert schema.field("c103 ø") == made().field(103)
        others = [index for index in range(_MANY) if index != 104]
        assert [schema.field(index) for index in others] == [made().field(index) for index in others]
        for key in (104, "c104 ø"):
            with pytest.raises(InvalidDataError, match="field 'c104 ø': time unit 77"):
                schema.field(key)


@pytest.mark.parametrize("use", _USES)
def test_what_needs_all_fields_names_the_broken_one(use: Callable[[bs.Schema], object]) -> None:
    with (
        bs.open_file(broken(made(), 104)) as reader,
        pytest.raises(InvalidDataError, match="field 'c104 ø': time unit"),
    ):
        use(reader.schema)


def test_a_broken_field_among_few_is_told_when_the_schema_is_asked_for() -> None:
    with bs.open_file(broken(made(256), 104)) as reader, pytest.raises(InvalidDataError, match="field 'c104 ø'"):
        _ = reader.schema


def test_a_broken_field_that_is_chosen_is_told_when_the_schema_is_asked_for() -> None:
    raw = broken(made(), 104)
    with bs.open_file(raw, columns=[104]) as reader, pytest.raises(InvalidDataError, match="field 'c104 ø'"):
        _ = reader.schema
    with bs.open_file(raw, columns=["c3 ø", "c105 ø"]) as reader:
        assert reader.schema.names == ["c3 ø", "c105 ø"]


def test_validating_reports_a_broken_field_among_many() -> None:
    faults = list(Validator(broken(made(), 104)).faults())
    assert [fault.message for fault in faults] == ["field 'c104 ø': time unit 77 is out of range: there are 4"]


def test_a_name_that_is_no_text_is_told_when_it_or_all_names_are_asked_for() -> None:
    raw = written(made())
    raw[bytes(raw).rindex(b"c104 ") + 5] = 0xFF
    with bs.open_file(bytes(raw)) as reader:
        schema = reader.schema
        assert schema.field(103) == made().field(103)
        assert schema.index("c103 ø") == 103
        for use in (lambda: schema.names, lambda: schema.field(104), lambda: schema.index("c104 ø")):
            with pytest.raises(InvalidDataError, match=r"Field\.name is not valid UTF-8"):
                use()


def deferred(made: Assembly) -> LazySchema:
    table = Message(made.built(), SPECS, "message").root("Message").union("header", "Schema")
    assert isinstance(table, Table)
    return LazySchema(table, DEFAULT_LIMITS)


def test_fields_without_a_name_have_an_empty_one() -> None:
    made = Assembly()
    made.schema_message("fields")
    made.repeated("fields", "field", 2)
    made.table("field", "Field", type_type=number("Null"), type="null")
    made.table("null", "Null")
    assert deferred(made).late().names == ["", ""]
    assert deferred(made).late().fields[1].name == ""


def test_a_long_name_that_many_fields_share_is_refused_in_bounded_time() -> None:
    made = Assembly()
    made.schema_message("fields")
    made.repeated("fields", "field", 100_000)
    made.table("field", "Field", type_type=number("Null"), type="null", name="name")
    made.table("null", "Null")
    made.text("name", b"x" * 1_000_000)
    schema = deferred(made).late()
    start = time.perf_counter()
    assert len(schema) == 100_000
    assert len(schema.field(0).name) == 1_000_000
    for use in (lambda: schema.names, lambda: list(schema), lambda: [schema.field(i) for i in range(100_000)]):
        with pytest.raises(LimitError, match="text of more than"):
            use()
    assert time.perf_counter() - start < 20


def test_threads_that_ask_at_the_same_time_get_the_same() -> None:
    raw, schema = bytes(written(made(2000))), made(2000)
    for _ in range(5):
        schema_cache._cache.clear()
        wrong: list[object] = []
        begin = threading.Barrier(4)
        with bs.open_file(raw) as reader:
            read = reader.schema

            def ask(step: int, read: bs.Schema = read, begin: threading.Barrier = begin) -> None:
                begin.wait(60)
                got = [read.field(index) for index in range(step, 2000, 7)]
                if got != list(schema)[step::7] or read.names != schema.names or read != schema:
                    wrong.append(step)  # noqa: B023 -- the threads end before the next round

            threads = [threading.Thread(target=ask, args=(step,)) for step in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            assert not any(thread.is_alive() for thread in threads)
        assert wrong == []

"""Lazy schemas: fields are decoded on access, with the same outcome as decoding all of them."""

from __future__ import annotations

import copy
import io
import pickle
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

import bowstring as bs
from bowstring.errors import BowstringError, InvalidDataError, LimitError, NotFoundError
from bowstring.flatbuf.reader import FlatTable
from bowstring.flatbuf.tables import read_root
from bowstring.inspection.validation import Validator
from bowstring.ipc import schema_cache
from bowstring.ipc.limits import DEFAULT_LIMITS
from bowstring.ipc.metadata.schema import V5, IpcFields, IpcSchema
from bowstring_testing import strategies
from tests.ipc.flatbuffer_assembler import FlatbufferAssembler, number

_TYPES = [
    bs.int32(),
    bs.string(),
    bs.list_(bs.int8()),
    bs.dictionary(bs.int8(), bs.string()),
    bs.timestamp("us", "UTC"),
]
_NUM_FIELDS = 300


@pytest.fixture(autouse=True)
def _clear_schema_cache() -> None:
    schema_cache._cache.clear()


def pickle_and_unpickle(schema: bs.Schema) -> object:
    return pickle.loads(pickle.dumps(schema))


def wide_schema(count: int = _NUM_FIELDS) -> bs.Schema:
    return bs.schema(
        [
            bs.field(
                f"c{i} ø", _TYPES[i % len(_TYPES)], nullable=i % 3 > 0, metadata={"k": str(i)} if i % 7 == 0 else None
            )
            for i in range(count)
        ],
        metadata={"of": "all"},
    )


def to_bytes(schema: bs.Schema) -> bytes:
    sink = io.BytesIO()
    with bs.new_file(sink, schema):
        pass
    return sink.getvalue()


def footer_offset(raw: bytes | bytearray) -> int:
    return len(raw) - 10 - int.from_bytes(raw[-10:-6], "little")


def file_with_invalid_field(schema: bs.Schema, index: int) -> bytes:
    """Return a file whose field at this index is a timestamp with an invalid unit."""
    raw = bytearray(to_bytes(schema))
    table = read_root("Footer", bytes(raw[footer_offset(raw) : -10]), "footer")["schema"].get_element_table(
        "fields", index
    )
    raw[footer_offset(raw) + table["type"].locate_slot("unit")] = 77
    return bytes(raw)


def file_with_invalid_name(schema: bs.Schema, index: int) -> bytes:
    """Return a file whose field at this index has a name that is not valid UTF-8."""
    raw = bytearray(to_bytes(schema))
    raw[raw.rindex(schema.names[index].encode()) + len(f"c{index} ")] = 0xFF
    return bytes(raw)


def test_accessed_fields_are_those_of_the_written_schema() -> None:
    schema = wide_schema()
    with bs.open_file(to_bytes(schema)) as reader:
        read = reader.schema
    assert len(read) == _NUM_FIELDS
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
    with pytest.raises(NotFoundError, match="column index 300 is out of range for a schema of length 300"):
        read.field(300)
    with pytest.raises(IndexError):
        _ = read.fields[300]


_OPERATIONS: list[Callable[[bs.Schema], object]] = [
    hash, repr, str, list, pickle_and_unpickle,
    lambda schema: schema == wide_schema(), lambda schema: schema.equals(wide_schema(), True),
    lambda schema: schema.types, lambda schema: schema.fields[:1], copy.deepcopy, pa.schema,
]  # fmt: skip


@pytest.mark.parametrize("use", _OPERATIONS)
def test_operations_on_all_fields_work_as_on_any_schema(use: Callable[[bs.Schema], object]) -> None:
    with bs.open_file(to_bytes(wide_schema())) as reader:
        assert use(reader.schema) == use(wide_schema())


def test_lazy_schemas_compare_and_hash_like_others() -> None:
    with bs.open_file(to_bytes(wide_schema())) as reader, bs.open_file(to_bytes(wide_schema(301))) as other:
        assert wide_schema() == reader.schema
        assert reader.schema == wide_schema()
        assert len({wide_schema(), reader.schema, reader.schema}) == 1
        assert reader.schema != other.schema
        assert reader.schema != wide_schema().fields


def test_fields_of_a_lazy_schema_are_a_tuple() -> None:
    with bs.open_file(to_bytes(wide_schema())) as reader:
        assert isinstance(reader.schema.fields, tuple)
        assert (*reader.schema.fields, bs.field("more", bs.int8())) == (
            *wide_schema().fields,
            bs.field("more", bs.int8()),
        )


def test_a_lazy_schema_is_pickled_with_all_fields() -> None:
    with bs.open_file(to_bytes(wide_schema())) as reader:
        again = pickle_and_unpickle(reader.schema)
    assert isinstance(again, bs.Schema)
    assert again.equals(wide_schema(), check_metadata=True)
    assert isinstance(again.fields, tuple)


def test_schemas_derived_from_a_lazy_schema_are_complete() -> None:
    with bs.open_file(to_bytes(wide_schema())) as reader:
        assert reader.schema.select(["c4 ø", 2]) == wide_schema().select([4, 2])
        assert reader.schema.remove_metadata().equals(wide_schema().remove_metadata(), check_metadata=True)
        assert reader.schema.with_metadata({"a": "b"}).metadata == {b"a": b"b"}


def test_a_field_is_the_same_object_by_index_and_by_name() -> None:
    with bs.open_file(to_bytes(wide_schema())) as reader:
        early = reader.schema.field(3)
        fields = [reader.schema.field(index) for index in range(_NUM_FIELDS)]
        assert fields == list(wide_schema())
        assert list(map(id, reader.schema)) == list(map(id, fields))
        assert reader.schema.field("c3 ø") is early
        assert reader.schema.fields[3] is early


def test_a_malformed_field_affects_only_itself_and_operations_on_all_fields() -> None:
    with bs.open_file(file_with_invalid_field(wide_schema(), 104)) as reader:
        schema = reader.schema
        assert len(schema) == _NUM_FIELDS
        assert schema.names == wide_schema().names
        assert schema.field("c103 ø") == wide_schema().field(103)
        others = [index for index in range(_NUM_FIELDS) if index != 104]
        assert [schema.field(index) for index in others] == [wide_schema().field(index) for index in others]
        for key in (104, "c104 ø"):
            with pytest.raises(InvalidDataError, match="field 'c104 ø': time unit 77"):
                schema.field(key)


def test_an_error_names_the_file_of_the_field_when_files_share_a_schema(tmp_path: Path) -> None:
    raw = file_with_invalid_name(wide_schema(), 104)
    for name in ("a.arrow", "b.arrow"):
        (tmp_path / name).write_bytes(raw)
    with bs.open_file(tmp_path / "a.arrow") as a, bs.open_file(tmp_path / "b.arrow") as b:
        for reader, name in ((a, "a.arrow"), (b, "b.arrow"), (a, "a.arrow")):
            with pytest.raises(InvalidDataError, match=rf"{name}: footer: .*Field\.name is not valid UTF-8"):
                reader.schema.field(104)
        assert a.schema.field(7) is b.schema.field(7)


def test_a_malformed_field_that_is_read_again_and_again_leaves_others_readable() -> None:
    raw = file_with_invalid_field(wide_schema(), 104)
    for _ in range(3):
        with bs.open_file(raw) as reader:
            schema = reader.schema
        for _ in range(2000):
            with pytest.raises(InvalidDataError, match="field 'c104 ø': time unit 77"):
                schema.field(104)
        assert [schema.field(index) for index in range(104)] == list(wide_schema().fields[:104])


def test_files_share_a_schema_whose_fields_are_all_read() -> None:
    raw = to_bytes(wide_schema())
    with bs.open_file(raw) as a, bs.open_file(raw) as b:
        assert list(a.schema) == list(wide_schema())
        assert b.schema is a.schema


@pytest.mark.parametrize("use", _OPERATIONS)
def test_operations_on_all_fields_name_the_malformed_one(use: Callable[[bs.Schema], object]) -> None:
    with (
        bs.open_file(file_with_invalid_field(wide_schema(), 104)) as reader,
        pytest.raises(InvalidDataError, match="field 'c104 ø': time unit"),
    ):
        use(reader.schema)


def test_a_malformed_field_among_few_raises_when_the_schema_is_read() -> None:
    with (
        bs.open_file(file_with_invalid_field(wide_schema(256), 104)) as reader,
        pytest.raises(InvalidDataError, match="field 'c104 ø'"),
    ):
        _ = reader.schema


def test_a_malformed_selected_field_raises_when_the_schema_is_read() -> None:
    raw = file_with_invalid_field(wide_schema(), 104)
    with bs.open_file(raw, columns=[104]) as reader, pytest.raises(InvalidDataError, match="field 'c104 ø'"):
        _ = reader.schema
    with bs.open_file(raw, columns=["c3 ø", "c105 ø"]) as reader:
        assert reader.schema.names == ["c3 ø", "c105 ø"]


def test_validation_reports_a_malformed_field_among_many() -> None:
    faults = list(Validator(file_with_invalid_field(wide_schema(), 104)).faults())
    assert [fault.message for fault in faults] == ["field 'c104 ø': time unit 77 is out of range: there are 4"]


def test_a_name_that_is_not_utf8_raises_when_it_or_all_names_are_read() -> None:
    with bs.open_file(file_with_invalid_name(wide_schema(), 104)) as reader:
        schema = reader.schema
        assert schema.field(103) == wide_schema().field(103)
        valid_names = [f.name for i, f in enumerate(wide_schema()) if i != 104]
        assert schema.resolve_indices(valid_names) == [i for i in range(_NUM_FIELDS) if i != 104]
        for use in (lambda: schema.names, lambda: schema.field(104), lambda: schema.index("c104 ø")):
            with pytest.raises(InvalidDataError, match=r"Field\.name is not valid UTF-8"):
                use()


def lazy_schema(assembly: FlatbufferAssembler) -> IpcSchema:
    table = read_root("Message", assembly.to_bytes(), "message")["header"]
    assert isinstance(table, FlatTable)
    return IpcSchema.from_table(table, DEFAULT_LIMITS)


def test_fields_without_a_name_have_an_empty_name() -> None:
    assembly = FlatbufferAssembler()
    assembly.schema_message("fields")
    assembly.repeated("fields", "field", 2)
    assembly.table("field", "Field", type_type=number("Null"), type="null")
    assembly.table("null", "Null")
    assert lazy_schema(assembly).schema.names == ["", ""]
    assert lazy_schema(assembly).schema.fields[1].name == ""


def test_a_long_name_that_many_fields_share_is_rejected_in_bounded_time() -> None:
    assembly = FlatbufferAssembler()
    assembly.schema_message("fields")
    assembly.repeated("fields", "field", 100_000)
    assembly.table("field", "Field", type_type=number("Null"), type="null", name="name")
    assembly.table("null", "Null")
    assembly.text("name", b"x" * 1_000_000)
    schema = lazy_schema(assembly).schema
    start = time.process_time()
    assert len(schema) == 100_000
    assert len(schema.field(0).name) == 1_000_000
    for use in (lambda: schema.names, lambda: list(schema), lambda: [schema.field(i) for i in range(100_000)]):
        with pytest.raises(LimitError, match="text of more than"):
            use()
    assert time.process_time() - start < 20


def test_concurrent_threads_get_the_same_fields() -> None:
    raw, schema = bytes(to_bytes(wide_schema(2000))), wide_schema(2000)
    for _ in range(5):
        schema_cache._cache.clear()
        wrong: list[object] = []
        begin = threading.Barrier(4)
        with bs.open_file(raw) as reader:
            lazy = reader.schema

            def compare(step: int, lazy: bs.Schema = lazy, begin: threading.Barrier = begin) -> None:
                begin.wait(60)
                fields = [lazy.field(index) for index in range(step, 2000, 7)]
                if fields != list(schema)[step::7] or lazy.names != schema.names or lazy != schema:
                    wrong.append(step)  # noqa: B023 -- the threads end before the next round

            threads = [threading.Thread(target=compare, args=(step,)) for step in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            assert not any(thread.is_alive() for thread in threads)
        assert wrong == []


def lazy_schema_of_file(raw: bytes) -> IpcSchema:
    table = read_root("Footer", raw[footer_offset(raw) : -10], "footer")["schema"]
    if table is None:
        raise InvalidDataError("the footer has no schema")
    return IpcSchema.from_table(table, DEFAULT_LIMITS)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.text(max_size=4), strategies.types()), max_size=8))
def test_counts_names_and_fields_are_those_of_the_whole_schema(columns: list[tuple[str, bs.DataType]]) -> None:
    schema = bs.schema(columns)
    read = lazy_schema_of_file(to_bytes(schema))
    positions = read.column_positions(V5)
    eager = IpcSchema(read.schema, IpcFields(read.fields.all_with_dictionaries())).column_positions(V5)
    assert [(c.first_node, c.first_buffer, c.first_variadic) for c in positions] == [
        (c.first_node, c.first_buffer, c.first_variadic) for c in eager
    ]
    assert (positions.node_count, positions.buffer_count) == (eager.node_count, eager.buffer_count)
    assert read.schema == schema
    late = read.schema
    for index, (name, _) in enumerate(columns):
        assert read.fields.field_at(index) == schema.fields[index]
        if schema.names.count(name) == 1:
            assert late.index(name) == index
        else:
            with pytest.raises(NotFoundError, match="columns are called"):
                late.index(name)
    with pytest.raises(NotFoundError, match="no column is called"):
        late.index("a name that is not there")


def test_flat_fields_of_both_writers_need_no_separate_reading() -> None:
    sink = io.BytesIO()
    pyarrow_schema = pa.schema(
        {f"c{i}": t for i, t in enumerate([pa.int8(), pa.string(), pa.string_view(), pa.null()] * 50)}
    )
    with pa.ipc.new_file(sink, pyarrow_schema):
        pass
    bowstring_schema = to_bytes(
        bs.schema({f"c{i}": t for i, t in enumerate([bs.int8(), bs.string(), bs.string_view(), bs.null()] * 50)})
    )
    for raw in (sink.getvalue(), bowstring_schema):
        tables = lazy_schema_of_file(raw).fields.tables
        assert tables is not None
        assert tables.header_entry_counts.tolist() == [[1, 2, 0], [1, 3, 0], [1, 2, 1], [1, 0, 0]] * 50


def test_a_malformed_field_affects_only_its_own_column_and_the_schema() -> None:
    schema = bs.schema({"good": bs.int32(), "broken": bs.timestamp("us"), "fine": bs.string()})
    sink = io.BytesIO()
    with bs.new_file(sink, schema) as writer:
        writer.write(batch_of(schema))
    raw = bytearray(sink.getvalue())
    start = footer_offset(raw)
    table = read_root("Footer", bytes(raw[start:-10]), "footer")["schema"].get_element_table("fields", 1)
    unit = table["type"].locate_slot("unit")
    raw[start + unit] = 77
    with bs.open_file(bytes(raw)) as reader:
        batch = reader.get_batch(0)
        assert batch.column(0).to_pylist() == [1]
        assert batch.column(2).to_pylist() == ["x"]
        with pytest.raises(InvalidDataError, match=r"field 'broken': time unit 77"):
            batch.column(1)
        with pytest.raises(InvalidDataError, match=r"field 'broken'"):
            _ = reader.schema


def batch_of(schema: bs.Schema) -> bs.RecordBatch:
    arrays = [bs.array(v, t) for v, t in zip(([1], [2], ["x"]), schema.types, strict=True)]
    return bs.RecordBatch.from_arrays(arrays, schema=schema)


def test_a_schema_with_flipped_bytes_has_the_same_counts_read_lazily_and_eagerly_or_is_an_error() -> None:
    raw = to_bytes(bs.schema({"a": bs.int32(), "bc": bs.string_view(), "d": bs.list_(bs.int8()), "e": bs.null()}))
    random = np.random.default_rng(7)
    start, stop = footer_offset(raw), len(raw) - 10
    outcomes = set()
    for _ in range(1000):
        flipped = bytearray(raw)
        for at in random.integers(start, stop, 2).tolist():
            flipped[at] ^= 1 << int(random.integers(8))
        try:
            read = lazy_schema_of_file(bytes(flipped))
            positions = read.column_positions(V5)
            for index in range(len(read)):
                positions[index]
            read.schema.index("bc")
            eager = IpcSchema(read.schema, IpcFields(read.fields.all_with_dictionaries())).column_positions(V5)
        except BowstringError:
            outcomes.add("error")
            continue
        outcomes.add("read")
        assert (positions.node_count, positions.buffer_count, positions.variadic_count) == (
            eager.node_count,
            eager.buffer_count,
            eager.variadic_count,
        )
    assert outcomes == {"error", "read"}

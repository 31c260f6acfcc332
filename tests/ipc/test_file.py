"""Files: random access, columns, alignment, metadata, sources and sinks."""

from __future__ import annotations

import gc
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bs
from bowstring import errors
from bowstring.layouts.registry import layout_of
from bowstring.memory.buffer import Buffer, Memory
from fuzz.editable_stream import parse_stream
from fuzz.flatbuffers import TableNode
from tests.ipc.remote_stores import CountingFile
from tests.ipc.samples import as_file, batch
from tests.unfinished_files import find_unfinished


def test_batches_are_read_in_any_order() -> None:
    whole = batch()
    reader = bs.open_file(as_file(whole, whole.slice(1), whole.slice(2)))
    assert [reader[i].num_rows for i in (2, 0, 1, -1)] == [1, 3, 2, 1]
    assert len(reader) == reader.num_record_batches == 3
    assert reader.read_all().num_rows == 6
    with pytest.raises(errors.NotFoundError, match="batch 3"):
        reader.get_batch(3)


@pytest.mark.parametrize("open_source", [bytes, CountingFile])
@pytest.mark.parametrize("num_batches", [0, 2])
def test_an_index_of_no_batch_is_an_error_in_memory_and_by_ranges(
    open_source: Callable[[bytes], Any], num_batches: int
) -> None:
    sink = io.BytesIO()
    with bs.new_file(sink, batch().schema) as writer:
        writer.write_table(bs.Table.from_batches([batch()] * num_batches, batch().schema))
    reader = bs.open_file(open_source(sink.getvalue()))
    assert [part.num_rows for part in reader.iter_batches(range(-num_batches, num_batches))] == [3, 3] * num_batches
    reads: list[Callable[[Any], Any]] = [reader.get_batch, lambda index: list(reader.iter_batches([index]))]
    for read in reads:
        for index in (num_batches, 9, -num_batches - 1):
            with pytest.raises(errors.NotFoundError, match=f"record batch {index} is out of range"):
                read(index)
        for invalid_index in ("a", None, 0.5):
            with pytest.raises(errors.InvalidArgumentError, match="expected the index of a record batch"):
                read(invalid_index)


def test_a_column_is_read_through_all_batches() -> None:
    whole = batch()
    reader = bs.open_file(as_file(whole, whole.slice(2)))
    assert reader.column("text").to_pylist() == ["a", "", None, None]
    assert reader.column(0).to_pylist() == [1, None, 3, 3]
    with pytest.raises(errors.NotFoundError, match="'nope'"):
        reader.column("nope")


def test_columns_are_selected_by_name_and_index_in_the_given_order() -> None:
    reader = bs.open_file(as_file(batch()), columns=["text", 0])
    assert reader.schema.names == ["text", "int"]
    assert reader[0].to_pydict() == {"text": ["a", "", None], "int": [1, None, 3]}
    with pytest.raises(errors.NotFoundError, match="'nope'"):
        bs.open_file(as_file(batch()), columns=["nope"])
    with pytest.raises(errors.InvalidArgumentError, match=r"\['text'\]"):
        bs.open_file(as_file(batch()), columns="text")


@pytest.mark.parametrize("alignment", [8, 64])
def test_bodies_and_buffers_begin_at_multiples_of_the_alignment(alignment: int) -> None:
    reader = bs.open_file(as_file(batch(), batch(), alignment=alignment))
    messages = [reader.read_batch_message(i) for i in range(2)]
    messages += [(header, body) for header, body, _ in reader.read_dictionary_messages()]
    for header, body in messages:
        assert body.offset % alignment == 0
        assert (header.buffers()["offset"] % alignment == 0).all()
    assert all(block["offset"] % 8 == 0 for block in reader.blocks)


def test_an_unknown_alignment_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="12"):
        bs.new_file(tmp_path / "x.arrow", batch("int").schema, alignment=12)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o444])
def test_a_replaced_file_keeps_its_permissions(tmp_path: Path, mode: int) -> None:
    path, whole = tmp_path / "x.arrow", batch()
    path.write_bytes(b"what was there before")
    path.chmod(mode)
    with bs.new_file(path, whole.schema) as writer:
        (beginning,) = find_unfinished(tmp_path)
        assert beginning.stat().st_mode & 0o777 == mode
        writer.write(whole)
    assert path.stat().st_mode & 0o777 == mode
    assert bs.open_file(path)[0].equals(whole)


def test_custom_metadata_of_footer_schema_field_and_batch_is_preserved() -> None:
    fields = [bs.field("x", bs.int32(), metadata={"unit": "m"})]
    schema = bs.schema(fields, metadata={"made": "by hand"})
    batch = bs.RecordBatch(schema, 1, [bs.array([1], bs.int32())], ((b"batch", b"1"),))
    data = as_file(batch, metadata={"footer": "yes"})
    reader = bs.open_file(data)
    assert reader.metadata == {b"footer": b"yes"}
    assert reader.schema.metadata == {b"made": b"by hand"}
    assert reader.schema.field("x").metadata == {b"unit": b"m"}
    assert reader[0].custom_metadata == {b"batch": b"1"}
    peer = pa.ipc.open_file(data)
    assert peer.schema.metadata == {b"made": b"by hand"}
    assert peer.get_batch_with_custom_metadata(0)[1].to_dict() == {b"batch": b"1"}


def test_every_source_gives_the_same_batches(tmp_path: Path) -> None:
    data = as_file(batch())
    path = tmp_path / "x.arrow"
    path.write_bytes(data)
    with path.open("rb") as file, path.open("rb", buffering=0) as raw:
        sources = [path, str(path), data, bytearray(data), memoryview(data), np.frombuffer(data, np.uint8)]
        sources += [Buffer.of(data), Memory(data), io.BytesIO(data), file, raw, file.fileno()]
        for source in sources:
            with bs.open_file(source) as reader:
                assert reader[0].equals(batch()), source


def test_columns_of_a_mapped_file_are_not_copied_and_outlive_the_reader(tmp_path: Path) -> None:
    path = tmp_path / "x.arrow"
    batch = bs.RecordBatch.from_arrays([bs.array(np.arange(1000))], ["x"])
    with bs.new_file(path, batch.schema) as writer:
        writer.write(batch)
    with bs.open_file(path) as reader:
        memory = reader.memory
        column = reader[0].column("x")
        assert memory.address <= column.own_buffers[1].address < memory.address + memory.size  # type: ignore[union-attr]
    del reader, memory
    gc.collect()
    assert column.to_numpy().sum() == 499500
    assert not column.to_numpy().flags.writeable


def test_bodies_in_memory_are_not_copied() -> None:
    data = as_file(batch("int"))
    address = np.frombuffer(data, np.uint8).__array_interface__["data"][0]
    column = bs.open_file(data)[0].column(0)
    assert address < column.own_buffers[1].address < address + len(data)  # type: ignore[union-attr]


def test_reading_with_a_closed_reader_is_an_error() -> None:
    reader = bs.open_file(as_file(batch("int")))
    record_batch = reader[0]
    reader.close()
    with pytest.raises(errors.ClosedError):
        reader.get_batch(0)
    assert record_batch.equals(batch("int"))


def test_opening_leaves_no_descriptor_open(tmp_path: Path) -> None:
    path = tmp_path / "x.arrow"
    path.write_bytes(as_file(batch("int")))
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").is_dir() else 0
    for _ in range(3):
        bs.open_file(path).close()
        with pytest.raises(errors.FormatMismatchError):
            bs.open_stream(path)
    gc.collect()
    assert before == (len(os.listdir("/proc/self/fd")) if before else 0)


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(errors.NotFoundError, match=r"nowhere\.arrow"):
        bs.open_file(tmp_path / "nowhere.arrow")
    with pytest.raises(errors.InvalidArgumentError, match="directory"):
        bs.open_file(tmp_path)
    with pytest.raises(errors.InvalidArgumentError, match="to read, not object"):
        bs.open_file(object())


def test_a_path_appears_only_when_the_file_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "x.arrow"
    path.write_bytes(b"what was there before")
    with pytest.raises(ZeroDivisionError), bs.new_file(path, batch("int").schema) as writer:
        writer.write(batch("int"))
        _ = 1 // 0
    assert path.read_bytes() == b"what was there before"
    assert [p.name for p in tmp_path.iterdir()] == ["x.arrow"]
    with bs.new_file(path, batch("int").schema) as writer:
        writer.write(batch("int"))
        assert path.read_bytes() == b"what was there before"
    assert bs.open_file(path).read_all().num_rows == 3
    assert [p.name for p in tmp_path.iterdir()] == ["x.arrow"]


def test_a_batch_of_another_schema_is_rejected() -> None:
    with (
        pytest.raises(errors.InvalidArgumentError, match="another schema"),
        bs.new_file(io.BytesIO(), batch("int").schema) as writer,
    ):
        writer.write(batch("text"))


def test_a_column_that_contradicts_its_field_is_rejected() -> None:
    batch = bs.RecordBatch(bs.schema({"x": bs.int32()}), 1, [bs.array([1], bs.int64())])
    with pytest.raises(errors.InvalidArgumentError, match="column 'x' has type int64, expected int32"):
        as_file(batch)
    batch = bs.RecordBatch(bs.schema({"x": bs.int32()}), 2, [bs.array([1], bs.int32())])
    with pytest.raises(errors.InvalidArgumentError, match="1 values in a batch of 2 rows"):
        as_file(batch)


def test_a_full_disk_is_a_resource_error() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("requires /dev/full")
    with pytest.raises(errors.ResourceError, match="No space"), bs.new_file("/dev/full", batch("int").schema) as writer:
        writer.write(batch("int"))


def test_many_columns_and_batches_are_written_in_vectored_calls(tmp_path: Path) -> None:
    path = tmp_path / "wide.arrow"
    columns = [bs.array(np.arange(40_000) + i) for i in range(40)]
    small = bs.RecordBatch.from_arrays([bs.array([i]) for i in range(1500)], [f"c{i}" for i in range(1500)])
    wide = bs.RecordBatch.from_arrays(columns, [f"c{i}" for i in range(40)])
    for record_batch in (small, wide):
        with bs.new_file(path, record_batch.schema) as writer:
            for _ in range(3):
                writer.write(record_batch)
        assert pa.ipc.open_file(path).get_batch(2).column(39)[0].as_py() == 39
        assert all(b.equals(record_batch) for b in bs.open_file(path))


def test_wide_headers_are_read_from_files_and_memory(tmp_path: Path) -> None:
    batch = bs.RecordBatch.from_arrays([bs.array([i, None]) for i in range(900)], [f"c{i}" for i in range(900)])
    path = tmp_path / "wide.arrow"
    path.write_bytes(as_file(batch, batch))
    with bs.open_file(path) as reader:
        batches = list(reader)
        assert batches[1].column("c700").to_pylist() == [700, None]
    assert batches[0].equals(batch)
    assert batches[1].equals(batch)
    assert bs.open_file(path.read_bytes())[1].equals(batch)


def test_registered_extension_types_are_restored_and_unknown_ones_keep_their_metadata() -> None:
    @bs.datatypes.register_extension_type
    class Celsius(bs.datatypes.ExtensionType):
        EXTENSION_NAME = "test.celsius"

    try:
        type_ = Celsius(bs.float64())
        batch = bs.RecordBatch.from_arrays([bs.Array.from_buffers(type_, 1, [None, np.array([36.6])])], ["t"])
        data = as_file(batch)
        assert bs.open_file(data).schema.field("t").type == type_
    finally:
        bs.datatypes.unregister_extension_type("test.celsius")
    field = bs.open_file(data).schema.field("t")
    assert field.type == bs.float64()
    assert field.metadata[b"ARROW:extension:name"] == b"test.celsius"
    again = bs.open_file(as_file(*bs.open_file(data)))
    assert again.schema.field("t").metadata == field.metadata


def test_the_repr_of_a_file_reader_has_the_path_and_batch_count(tmp_path: Path) -> None:
    rows = bs.record_batch({"a": [1, 2], "s": ["x", "y"]})
    path = tmp_path / "x.arrow"
    with bs.new_file(path, rows.schema) as writer:
        assert repr(writer) == "<bowstring.ipc.FileWriter: 2 columns>"
        writer.write(rows)
        writer.write(rows)
    assert repr(writer) == "<bowstring.ipc.FileWriter: closed>"
    reader = bs.open_file(path)
    assert repr(reader) == f"<bowstring.ipc.FileReader {path}: 2 record batches>"
    reader.close()
    assert repr(reader) == f"<bowstring.ipc.FileReader {path}: closed>"


def test_more_rows_than_an_array_can_have_are_unsupported() -> None:
    count, schema, sink = 1 << 62, bs.schema({"n": bs.null()}), io.BytesIO()
    nulls = bs.Array(layout_of(bs.null()), count, (), (), None, count)
    with bs.new_file(sink, schema) as writer:
        for _ in range(2):
            writer.write_batch(bs.RecordBatch(schema, count, [nulls]))
    reader = bs.open_file(sink.getvalue())
    assert reader.num_rows == 2 * count
    for read in (reader.read_all, lambda: reader.column("n")):
        with pytest.raises(errors.UnsupportedError, match="fewer than 2"):
            read()


def test_a_file_whose_footer_lost_its_schema_is_not_an_empty_file() -> None:
    stream = parse_stream(as_file(batch("int")))
    assert stream is not None
    assert stream.footer is not None
    del stream.footer.slots["schema"]
    stream.block_edits = dict.fromkeys(("recordBatches", "dictionaries"), lambda blocks: blocks[:0])
    with pytest.raises(bs.errors.InvalidDataError, match="the footer has no schema"):
        bs.open_file(stream.encode())
    stream.footer.slots["schema"] = TableNode("Schema")
    with pytest.raises(bs.errors.InvalidDataError, match="the schema has no list of fields"):
        list(bs.open_file(stream.encode()).schema)
    with pytest.raises(bs.errors.InvalidDataError, match="the schema has no list of fields"):
        bs.open_file(stream.encode()).read_all()


def test_metadata_of_a_footer_can_be_read_any_number_of_times() -> None:
    reader = bs.open_file(as_file(batch("int"), metadata={"long": "x" * 10_000}))
    assert [len(reader.metadata) for _ in range(100)] == [1] * 100


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("offset", -8, r"record batch 0: expected a block before byte \d+, found \d+ \+ \d+ bytes at byte -8"),
        ("metaDataLength", 4, "record batch 0: expected a block before byte"),
        ("metaDataLength", 16, "record batch 0 at byte .*: expected a metadata length of 8, as in the footer, found"),
        ("metaDataLength", 1 << 30, "record batch 0: 1073741824 bytes of metadata exceed the limit"),
        ("bodyLength", -1, "record batch 0: expected a block before byte"),
        ("bodyLength", 1 << 40, "record batch 0: expected a block before byte"),
    ],
)
def test_a_block_outside_the_file_or_smaller_than_its_metadata_is_an_error(name: str, value: int, problem: str) -> None:
    def edit(blocks: Any) -> Any:
        blocks = blocks.copy()
        blocks[name] = value
        return blocks

    stream = parse_stream(as_file(batch("int")))
    assert stream is not None
    stream.block_edits = {"recordBatches": edit}
    with pytest.raises(bs.errors.InvalidDataError, match=problem):
        bs.open_file(stream.encode()).get_batch(0)


@pytest.mark.parametrize("open_source", [bytes, CountingFile])
@pytest.mark.parametrize("difference", [-8, 8, 64])
def test_a_block_whose_metadata_has_another_length_than_its_message_is_an_error(
    difference: int, open_source: Callable[[bytes], Any]
) -> None:
    """The body would begin elsewhere, with other values."""

    def edit(blocks: Any) -> Any:
        blocks = blocks.copy()
        blocks["metaDataLength"][0] += difference
        return blocks

    stream = parse_stream(as_file(*[bs.record_batch({"n": range(40)})] * 2))
    assert stream is not None
    stream.block_edits = {"recordBatches": edit}
    reader = bs.open_file(open_source(stream.encode()))
    assert reader[1]["n"].to_pylist() == list(range(40))
    with pytest.raises(
        errors.InvalidDataError, match=r"expected a metadata length of \d+, as in the footer, found \d+"
    ):
        reader.get_batch(0)
    with pytest.raises(errors.InvalidDataError, match="as in the footer"):
        reader.read_all()

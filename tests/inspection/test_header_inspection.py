"""`bowstring.inspection.inspect` on files and streams, compared with independent counts."""

from __future__ import annotations

import contextlib
import io
import os
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bowstring
from bowstring.arrays.array import Array
from bowstring.errors import (
    BowstringError,
    FormatMismatchError,
    InvalidDataError,
    LimitError,
    NotFoundError,
    TruncatedError,
)
from bowstring.flatbuf.tables import DEFINITIONS
from bowstring.flatbuf.writer import build_flatbuffer
from bowstring.inspection import header_inspection
from bowstring.inspection.report import Inspection
from bowstring.ipc.message import END_OF_STREAM, PREFIX_BYTES, frame_message
from bowstring.ipc.metadata.header import BatchHeaderBuilder, BatchHeaderValues
from bowstring.ipc.metadata.schema import create_schema_record

FORMATS = ("file", "stream")


def written_by_pyarrow(table: pa.Table, form: str, batch_rows: int | None = None, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    new = pa.ipc.new_file if form == "file" else pa.ipc.new_stream
    with new(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, batch_rows)
    return bytes(sink.getvalue())


def written_by_bowstring(table: bowstring.Table, form: str, **options: Any) -> bytes:
    sink = io.BytesIO()
    new = bowstring.new_file if form == "file" else bowstring.new_stream
    with new(sink, table.schema, **options) as writer:
        writer.write(table)
    return sink.getvalue()


def column_sizes(inspection: Inspection) -> dict[str, int]:
    return {column.name: column.total_bytes for column in inspection.columns}


def sum_parts(inspection: Inspection) -> int:
    size = inspection.bytes
    return size.buffers + size.padding + size.metadata_bytes + size.other


def array_bytes(array: Array) -> int:
    """The bytes of an array's buffers and of all that is below it, without the format's help."""
    own = sum(0 if buffer is None else buffer.size for buffer in array.own_buffers)
    return own + sum(array_bytes(child) for child in array.children)


@pytest.mark.parametrize("form", FORMATS)
def test_the_size_of_flat_pyarrow_columns_follows_from_the_layout(form: str) -> None:
    rows = 1000
    table = pa.table(
        {
            "int64": pa.array(range(rows), pa.int64()),
            "int32 with nulls": pa.array([None, 1] * (rows // 2), pa.int32()),
            "text": pa.array(["abc", None] * (rows // 2)),
            "bits": pa.array([True, False] * (rows // 2)),
            "nothing": pa.nulls(rows),
        }
    )
    inspection = bowstring.inspection.inspect(written_by_pyarrow(table, form))
    validity = rows // 8
    assert column_sizes(inspection) == {
        "int64": 8 * rows,
        "int32 with nulls": 4 * rows + validity,
        "text": 4 * (rows + 1) + 3 * rows // 2 + validity,
        "bits": rows // 8,
        "nothing": 0,
    }
    assert [column.null_count for column in inspection.columns] == [0, 500, 500, 0, 1000]
    assert inspection.format == form
    assert inspection.rows == rows
    assert inspection.bytes.buffers == sum(column_sizes(inspection).values())


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("alignment", [8, 64])
def test_the_size_of_nested_columns_is_that_of_their_arrays(form: str, alignment: int) -> None:
    table = bowstring.table(
        {
            "lists": [[1, 2, None], [], None, [4]] * 7,
            "structs": [{"a": 1, "b": "x"}, None, {"a": None, "b": "long enough to count"}, {"a": 4, "b": None}] * 7,
            "views": bowstring.array(
                ["short", "a string of more than twelve bytes", None, ""] * 7, bowstring.string_view()
            ),
        }
    )
    inspection = bowstring.inspection.inspect(written_by_bowstring(table, form, alignment=alignment))
    batch = table.to_batches()[0]
    assert column_sizes(inspection) == {name: array_bytes(batch.column(name)) for name in table.schema.names}
    alignment_bytes = inspection.encoding.alignment_bytes
    assert alignment_bytes is not None
    assert alignment_bytes >= alignment


def test_the_alignment_is_that_of_the_least_aligned_buffer() -> None:
    table = bowstring.table({"bytes": bowstring.array([1, 2, 3], bowstring.int8()), "next": [1, 2, 3]})
    assert bowstring.inspection.inspect(written_by_bowstring(table, "file", alignment=8)).encoding.alignment_bytes == 8
    assert (
        bowstring.inspection.inspect(written_by_bowstring(table, "file", alignment=64)).encoding.alignment_bytes == 64
    )


def test_the_alignment_is_relative_to_the_start_of_the_stream() -> None:
    alignments = set()
    for name in ("a", "a name that makes the schema longer by some bytes", "a name longer by some more, about eight"):
        raw = written_by_pyarrow(pa.table({name: pa.array([1, 2, 3, 4], pa.int64())}), "stream")
        body_offset = len(raw) - len(END_OF_STREAM) - 4 * 8  # the body is this one buffer
        expected = min(64, body_offset & -body_offset)
        assert bowstring.inspection.inspect(raw).encoding.alignment_bytes == expected
        alignments.add(expected)
    assert alignments != {64}


def test_without_a_buffer_there_is_no_alignment() -> None:
    empty = pa.table({"n": pa.nulls(3)})
    assert bowstring.inspection.inspect(written_by_pyarrow(empty, "stream")).encoding.alignment_bytes is None


def test_message_counts_agree_with_pyarrow() -> None:
    table = pa.table({"a": range(100), "d": pa.array(["x", "y"] * 50).dictionary_encode()})
    raw = written_by_pyarrow(table, "stream", batch_rows=30)
    messages = list(pa.ipc.MessageReader.open_stream(raw))
    bodies = sum(m.body.size for m in messages if m.body is not None)
    inspection = bowstring.inspection.inspect(raw)
    assert inspection.bytes.buffers + inspection.bytes.padding == bodies
    assert inspection.bytes.schema + inspection.bytes.headers == len(raw) - bodies - len(END_OF_STREAM)
    assert inspection.batches.count == sum(m.type == "record batch" for m in messages) == 4
    assert inspection.num_dictionary_batches == sum(m.type == "dictionary" for m in messages) == 1
    assert (inspection.batches.rows_min, inspection.batches.rows_median, inspection.batches.rows_max) == (10, 30.0, 30)
    assert inspection.encoding.end_marker is True


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("writer", ["pyarrow", "bowstring"])
def test_the_parts_sum_to_the_size_of_the_file(form: str, writer: str) -> None:
    if writer == "pyarrow":
        raw = written_by_pyarrow(pa.table({"a": [1, 2], "s": ["x", None]}), form, batch_rows=1)
    else:
        raw = written_by_bowstring(bowstring.table({"a": [1, 2], "s": ["x", None]}), form)
    inspection = bowstring.inspection.inspect(raw)
    assert sum_parts(inspection) == inspection.bytes.total == len(raw)
    assert inspection.bytes.other == 0


def test_bytes_after_the_end_of_a_stream_are_counted() -> None:
    raw = written_by_pyarrow(pa.table({"a": [1]}), "stream")
    inspection = bowstring.inspection.inspect(raw + b"something else")
    assert (inspection.bytes.total, inspection.bytes.other) == (len(raw) + 14, 14)


def test_a_missing_end_marker_is_reported() -> None:
    raw = written_by_pyarrow(pa.table({"a": [1]}), "stream")
    assert bowstring.inspection.inspect(raw[: -len(END_OF_STREAM)]).encoding.end_marker is False


def test_a_dictionary_is_counted_for_every_column_that_uses_it() -> None:
    values = pa.array(["first", "second", "third"])
    indices = pa.array([0, 1, 2, 1], pa.int8())
    table = pa.table(
        {
            "one": pa.DictionaryArray.from_arrays(indices, values, ordered=True),
            "inside": pa.array([{"d": "x"}] * 4, pa.struct([("d", pa.dictionary(pa.int32(), pa.string()))])),
        }
    )
    inspection = bowstring.inspection.inspect(written_by_pyarrow(table, "file"))
    one, inside = inspection.columns
    assert (one.buffer_bytes, one.dictionary_bytes) == (4, 4 * 4 + len("firstsecondthird"))
    assert (inside.buffer_bytes, inside.dictionary_bytes) == (4 * 4, 4 * 2 + 1)
    assert one.field.dictionary is not None
    assert (one.field.dictionary.index_type, one.field.dictionary.ordered) == ("int8", True)
    child = inside.field.children[0]
    assert child.dictionary is not None
    by_id = {dictionary.id: dictionary for dictionary in inspection.dictionaries}
    assert by_id[child.dictionary.id].columns == (1,)
    assert by_id[one.field.dictionary.id].values == 3


def test_deltas_are_counted() -> None:
    batches = [
        pa.record_batch({"d": pa.DictionaryArray.from_arrays(pa.array([0]), pa.array(values))})
        for values in (["a"], ["a", "b"], ["a", "b", "c"])
    ]
    raw = written_by_pyarrow(pa.Table.from_batches(batches), "stream", emit_dictionary_deltas=True)
    inspection = bowstring.inspection.inspect(raw)
    assert (inspection.num_dictionary_batches, inspection.num_delta_batches, inspection.dictionaries[0].values) == (
        3,
        2,
        3,
    )


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
@pytest.mark.parametrize("form", FORMATS)
def test_compressed_data_is_described_by_its_compressed_size(form: str, codec: str) -> None:
    table = pa.table({"zeros": np.zeros(100_000, np.int64)})
    inspection = bowstring.inspection.inspect(written_by_pyarrow(table, form, compression=codec, batch_rows=50_000))
    assert (inspection.encoding.codecs, inspection.encoding.compressed_batches, inspection.rows) == (
        (codec,),
        2,
        100_000,
    )
    assert 0 < inspection.columns[0].buffer_bytes < 50_000


def test_legacy_framing_and_metadata_v4_are_reported() -> None:
    table = pa.table({"a": [1]})
    raw = written_by_pyarrow(table, "file", use_legacy_format=True, metadata_version=pa.ipc.MetadataVersion.V4)
    encoding = bowstring.inspection.inspect(raw).encoding
    assert (encoding.metadata_version, encoding.legacy_framing) == ("V4", True)
    now = bowstring.inspection.inspect(written_by_pyarrow(table, "file")).encoding
    assert (now.metadata_version, now.legacy_framing) == ("V5", False)


def test_metadata_of_every_level_is_reported() -> None:
    schema = pa.schema([pa.field("a", pa.int8(), metadata={"of": "field"}, nullable=False)], metadata={"of": "schema"})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema, metadata={"of": "footer"}) as writer:
        writer.write_batch(pa.record_batch([pa.array([1], pa.int8())], schema=schema), custom_metadata={"of": "batch"})
    inspection = bowstring.inspection.inspect(sink.getvalue())
    assert inspection.schema_metadata == ((b"of", b"schema"),)
    assert inspection.footer_metadata == ((b"of", b"footer"),)
    assert inspection.columns[0].field.metadata == ((b"of", b"field"),)
    assert inspection.columns[0].field.nullable is False
    assert inspection.batches.with_metadata == 1


def test_registered_and_unregistered_extension_types_are_named() -> None:
    metadata = {"ARROW:extension:name": "somebody.else", "ARROW:extension:metadata": ""}
    schema = pa.schema([pa.field("a", pa.int8(), metadata=metadata)])
    raw = written_by_pyarrow(pa.table([pa.array([1], pa.int8())], schema=schema), "stream")
    assert bowstring.inspection.inspect(raw).columns[0].field.extension == "somebody.else"


# Where it comes from


@pytest.fixture
def pipe() -> Iterator[Callable[[bytes], Any]]:
    """A function that sends bytes through a pipe and gives the end to read from."""
    pipe_readers: list[Any] = []
    threads = []

    def send(raw: bytes) -> Any:
        read_end, write_end = os.pipe()

        def feed() -> None:
            try:
                with open(write_end, "wb", buffering=0) as sink:
                    sink.write(raw)
            except BrokenPipeError:
                pass

        threads.append(threading.Thread(target=feed))
        threads[-1].start()
        pipe_readers.append(os.fdopen(read_end, "rb"))
        return pipe_readers[-1]

    yield send
    for descriptor in pipe_readers:
        descriptor.close()
    for thread in threads:
        thread.join(timeout=20)


@pytest.mark.parametrize("form", FORMATS)
def test_every_kind_of_source_has_the_same_inspection(form: str, tmp_path: Path, pipe: Callable[[bytes], Any]) -> None:
    raw = written_by_pyarrow(pa.table({"a": range(50_000), "s": ["x"] * 50_000}), form, batch_rows=10_000)
    path = tmp_path / "data"
    path.write_bytes(raw)
    with path.open("rb") as file:
        reports = [
            bowstring.inspection.inspect(source)
            for source in (path, raw, file, file.fileno(), pipe(raw), io.BytesIO(raw))
        ]
    assert all(report.bytes == reports[0].bytes for report in reports)
    assert all(report.columns == reports[0].columns for report in reports)
    assert {report.format for report in reports} == {form}


def test_a_file_on_a_pipe_is_buffered_up_to_a_limit_and_a_stream_has_none(pipe: Callable[[bytes], Any]) -> None:
    table = pa.table({"a": range(10_000)})
    content = written_by_pyarrow(table, "file")
    assert bowstring.inspection.inspect(pipe(content), max_piped_bytes=len(content)).rows == 10_000
    with pytest.raises(LimitError, match="max_piped_bytes"):
        bowstring.inspection.inspect(pipe(content), max_piped_bytes=len(content) - 1)
    assert bowstring.inspection.inspect(pipe(written_by_pyarrow(table, "stream")), max_piped_bytes=0).rows == 10_000


def test_message_bodies_are_not_read(tmp_path: Path) -> None:
    # A stream whose body of 64 GiB is a hole in the file: to read it would take minutes.
    rows = 64 << 30
    schema = bowstring.schema({"a": bowstring.int8()})
    head = written_by_bowstring(bowstring.table({"a": bowstring.array([], bowstring.int8())}), "stream")
    message = int.from_bytes(head[4:8], "little") + PREFIX_BYTES
    numbers = BatchHeaderValues(rows, np.array([[rows, 0]]), np.array([[0, 0], [0, rows]]), np.array([], np.int64))
    path = tmp_path / "hole.arrows"
    with path.open("wb") as sink:
        sink.write(head[:message] + frame_message(BatchHeaderBuilder().build(numbers, rows)))
        try:
            sink.truncate(sink.tell() + rows)
        except OSError:
            pytest.skip("the file system does not support sparse files of 64 GiB")
    begun = time.process_time()
    inspection = bowstring.inspection.inspect(path)
    assert time.process_time() - begun < 2
    assert (inspection.rows, inspection.columns[0].buffer_bytes) == (rows, rows)
    assert inspection.columns[0].field.type == str(schema.field("a").type)


def test_a_file_of_ten_thousand_columns_in_a_hundred_batches_is_inspected_quickly(tmp_path: Path) -> None:
    columns = 10_000
    batch = pa.record_batch([pa.array([1, 2])] * columns, names=[f"c{i}" for i in range(columns)])
    path = tmp_path / "wide.arrow"
    with pa.ipc.new_file(path, batch.schema) as writer:
        for _ in range(100):
            writer.write_batch(batch)
    begun = time.process_time()
    inspection = bowstring.inspection.inspect(path)
    assert time.process_time() - begun < 2
    assert {column.buffer_bytes for column in inspection.columns} == {1600}


# Other formats and damaged data


@pytest.mark.parametrize(
    ("raw", "error", "words"),
    [
        (b"", TruncatedError, "it is empty"),
        (b"ARR", TruncatedError, "only 3 bytes"),
        (b"PAR1\x15\x04\x15\x10", FormatMismatchError, "a Parquet file"),
        (b"date,delay\n2001/01/01,5\n", FormatMismatchError, "text, perhaps CSV"),
        (b'{"a": 1}', FormatMismatchError, "JSON"),
        (b"\x1f\x8b\x08\x00\x00\x00\x00\x00", FormatMismatchError, "gzip"),
        (bytes(64), FormatMismatchError, "other bytes"),
        (b"\xff\xff\xff\xff\x00\x00\x00\x00", TruncatedError, "before a schema"),
    ],
)
def test_the_error_for_data_that_is_not_arrow_names_the_source(
    raw: bytes, error: type[BowstringError], words: str
) -> None:
    with pytest.raises(error, match=words):
        bowstring.inspection.inspect(raw)


def test_the_error_for_a_missing_file_names_the_path(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"gone\.arrow"):
        bowstring.inspection.inspect(tmp_path / "gone.arrow")


@pytest.mark.parametrize("form", FORMATS)
def test_a_truncated_file_is_described_up_to_a_message_or_rejected(form: str) -> None:
    table = pa.table({"a": [1, None], "d": pa.array(["x", "y"]).dictionary_encode(), "l": [[1], [2, 3]]})
    raw = written_by_pyarrow(table, form, batch_rows=1)
    described = []
    for length in range(len(raw)):
        with contextlib.suppress(BowstringError):
            described.append(bowstring.inspection.inspect(raw[:length]))
    # A stream may end after the schema, the dictionary, each batch, and within nothing else (but for a lone zero word).
    assert len(described) == (0 if form == "file" else 4)
    assert all(sum_parts(inspection) == inspection.bytes.total for inspection in described)


@pytest.mark.parametrize("form", FORMATS)
def test_flipped_bits_result_in_a_report_or_a_bowstring_error(form: str) -> None:
    table = pa.table({"a": [1, None], "d": pa.array(["x", "y"]).dictionary_encode(), "l": [[1], [2, 3]]})
    raw = written_by_pyarrow(table, form)
    random = np.random.default_rng(5)
    for _ in range(600):
        damaged_file = bytearray(raw)
        for at in random.integers(0, len(raw), random.integers(1, 4)):
            damaged_file[at] ^= 1 << random.integers(0, 8)
        try:
            inspection = bowstring.inspection.inspect(bytes(damaged_file))
        except BowstringError:
            continue
        assert inspection.bytes.total == len(raw)
        assert all(column.total_bytes >= 0 for column in inspection.columns)


@pytest.mark.parametrize("null_count", [4, -1, 1 << 62])
def test_an_impossible_null_count_is_rejected(null_count: int) -> None:
    raw = written_by_bowstring(bowstring.table({"a": [1, None, 3]}), "stream")
    node = struct.pack("<qq", 3, 1)
    assert raw.count(node) == 1
    with pytest.raises(InvalidDataError, match=f"record batch 0: node 0 has 3 slots and {null_count} nulls"):
        bowstring.inspection.inspect(raw.replace(node, struct.pack("<qq", 3, null_count)))


def test_a_buffer_outside_the_body_of_its_message_is_rejected_as_by_readers() -> None:
    raw = bytearray(written_by_bowstring(bowstring.table({"a": [1, 2, 3]}), "file"))
    reader = bowstring.open_file(bytes(raw))
    body_length_at = int(reader.blocks["offset"][0]) + reader.read_batch_message(0)[0].template.body_length_at
    raw[body_length_at : body_length_at + 8] = struct.pack("<q", 8)  # the footer still has the whole body
    with pytest.raises(InvalidDataError, match="in a body of 8 bytes"):
        bowstring.open_file(bytes(raw)).read_all().validate()
    with pytest.raises(InvalidDataError, match="record batch 0: buffer 1 of 24 bytes at byte 0 of a body of 8"):
        bowstring.inspection.inspect(bytes(raw))


def test_sums_that_overflow_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = written_by_bowstring(bowstring.table({"a": range(100)}), "stream")
    monkeypatch.setattr(header_inspection, "_MAX_TOTAL", 100)
    with pytest.raises(InvalidDataError, match="expected buffers of up to 100 bytes, found more"):
        bowstring.inspection.inspect(raw)
    monkeypatch.setattr(header_inspection, "_MAX_TOTAL", 99)
    with pytest.raises(InvalidDataError, match="up to 99 bytes"):
        bowstring.inspection.inspect(raw)


def test_a_footer_that_lists_one_batch_a_million_times_is_rejected() -> None:
    raw = written_by_bowstring(bowstring.table({"a": [1]}), "file")
    with bowstring.open_file(raw) as reader:
        blocks = np.repeat(reader.blocks, 1_000_000)
        schema, _ = create_schema_record(reader.schema)
    footer = build_flatbuffer(DEFINITIONS, "Footer", {"version": 4, "schema": schema, "recordBatches": blocks})
    begun = time.process_time()
    with pytest.raises(InvalidDataError, match="they overlap"):
        bowstring.inspection.inspect(raw[:-10] + footer + len(footer).to_bytes(4, "little") + b"ARROW1")
    assert time.process_time() - begun < 2


# Golden files


def golden_files(shared_folder: Path, suffix: str) -> list[Path]:
    return sorted((shared_folder / "corpus" / "golden").rglob(f"*{suffix}"))


@pytest.mark.parametrize("suffix", [".arrow_file", ".stream"])
def test_every_golden_file_is_described(shared_folder: Path, suffix: str) -> None:
    paths = golden_files(shared_folder, suffix)
    assert len(paths) > 20
    for path in paths:
        inspection = bowstring.inspection.inspect(path)
        rows = count_rows_with_pyarrow(path, suffix)
        assert rows is None or inspection.rows == rows, path
        assert sum_parts(inspection) == inspection.bytes.total == path.stat().st_size, path
        assert inspection.encoding.legacy_framing == (path.parent.name == "0.14.1"), path
        assert inspection.encoding.endianness == ("big" if path.parent.name.endswith("bigendian") else "little"), path
        assert bool(inspection.encoding.codecs) == path.parent.name.endswith("compression"), path


def count_rows_with_pyarrow(path: Path, suffix: str) -> int | None:
    """The rows by pyarrow; None where it can't read the file either."""
    try:
        with (pa.ipc.open_file if suffix == ".arrow_file" else pa.ipc.open_stream)(path.read_bytes()) as reader:
            return int(reader.read_all().num_rows)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def test_column_sizes_do_not_depend_on_the_byte_order(shared_folder: Path) -> None:
    compared = 0
    for big in golden_files(shared_folder, ".arrow_file"):
        little = big.parent.with_name("1.0.0-littleendian") / big.name
        if big.parent.name == "1.0.0-bigendian" and little.exists():
            left, right = bowstring.inspection.inspect(big), bowstring.inspection.inspect(little)
            assert left.rows == right.rows
            assert [c.total_bytes for c in left.columns] == [c.total_bytes for c in right.columns], big.name
            compared += 1
    if not compared:
        pytest.skip("the golden files contain no pair of a big- and a little-endian file")


def test_fuzzed_files_are_rejected_in_little_time_and_memory(shared_folder: Path) -> None:
    program = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))\n"
        "import bowstring\n"
        "for path in sys.argv[1:]:\n"
        "    try:\n"
        "        bowstring.inspection.inspect(path)\n"
        "    except bowstring.BowstringError as error:\n"
        "        assert str(error)\n"
    )
    paths = [str(path) for path in sorted((shared_folder / "corpus" / "fuzz").rglob("*")) if path.is_file()]
    assert len(paths) > 50
    process = subprocess.run(
        [sys.executable, "-c", program, *paths], capture_output=True, text=True, timeout=60, check=False
    )
    assert (process.returncode, process.stderr) == (0, "")

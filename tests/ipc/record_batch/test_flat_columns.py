"""Wide batches are passed from reader to writer without creating columns, with the same bytes."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bowstring
from bowstring.errors import InvalidDataError
from bowstring.ipc.record_batch.flat_columns import FlatColumnsEncoder
from bowstring.ipc.record_batch.reader import BatchColumns
from bowstring.ipc.stream import Encoder
from bowstring.ipc.write_options import IpcWriteOptions
from bowstring.memory.buffer import Memory
from bowstring.memory.iovec import PaddedBuffers, remaining_iovecs, write_iovecs

ROWS = 2000


def wide_batch(rows: int = ROWS, columns: int = 40) -> Any:
    kinds = (
        pa.array(np.arange(rows)),
        pa.array([None if i % 3 == 0 else i * 0.5 for i in range(rows)], pa.float64()),
        pa.array([None if i % 5 == 0 else f"text {i}" for i in range(rows)], pa.string()),
        pa.array([i % 7 == 0 for i in range(rows)], pa.bool_()),
        pa.array([bytes([i % 256] * 3) for i in range(rows)], pa.binary(3)),
    )
    arrays = [kinds[index % len(kinds)] for index in range(columns)]
    return pa.record_batch(arrays, names=[f"column {index}" for index in range(columns)])


def as_stream(*batches: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def with_created_columns(batch: bowstring.RecordBatch) -> bowstring.RecordBatch:
    """Return the same batch with its columns created one by one."""
    return bowstring.RecordBatch.from_arrays(batch.columns, schema=batch.schema)


def to_bytes(batch: bowstring.RecordBatch, alignment: int = 64) -> bytes:
    out = io.BytesIO()
    with bowstring.new_file(out, batch.schema, alignment=alignment) as writer:
        writer.write(batch)
    return out.getvalue()


def is_passed_through(batch: bowstring.RecordBatch) -> bool:
    layouts = Encoder(batch.schema)._layouts
    encoder = FlatColumnsEncoder.for_layouts(layouts)
    return encoder is not None and encoder.encode(batch.lazy_columns, 64) is not None


@pytest.mark.parametrize("alignment", [8, 64])
@pytest.mark.parametrize("rows", [0, 1, ROWS])
def test_a_batch_passed_through_has_the_bytes_of_its_columns(rows: int, alignment: int, tmp_path: Path) -> None:
    batch = bowstring.open_stream(as_stream(wide_batch(rows))).read_next_batch()
    assert is_passed_through(batch)
    expected = to_bytes(with_created_columns(batch), alignment)
    assert to_bytes(batch, alignment) == expected
    path = tmp_path / "passed.arrow"
    with bowstring.new_file(path, batch.schema, alignment=alignment) as writer:
        writer.write(batch)
    assert path.read_bytes() == expected
    assert pa.ipc.open_file(path).read_all().to_batches(max_chunksize=ROWS) == [wide_batch(rows)][: rows and 1]


def test_all_batches_of_a_file_are_passed_through(tmp_path: Path) -> None:
    batches = [wide_batch(), wide_batch().slice(3, 500), wide_batch(0), wide_batch()]
    path = tmp_path / "passed.arrow"
    with bowstring.open_stream(as_stream(*batches)) as reader, bowstring.new_file(path, reader.schema) as writer:
        writer.write(reader.read_all())
    assert [pa.ipc.open_file(path).get_batch(index) for index in range(4)] == batches


def test_selected_sliced_and_nested_columns_are_not_passed_through() -> None:
    raw = as_stream(wide_batch())
    batch = bowstring.open_stream(raw).read_next_batch()
    for other in (
        batch.slice(1, 7),
        batch.select(range(20)),
        bowstring.open_stream(raw, columns=range(20)).read_next_batch(),
    ):
        assert not is_passed_through(other)
        again = bowstring.open_file(to_bytes(other)).get_batch(0)
        assert again == other
    nested = pa.record_batch([pa.array([[1], None])] * 20, names=[str(index) for index in range(20)])
    assert not is_passed_through(bowstring.open_stream(as_stream(nested)).read_next_batch())


def test_columns_that_contradict_the_schema_are_rejected() -> None:
    batch = bowstring.open_stream(as_stream(wide_batch())).read_next_batch()
    fields = [bowstring.field(name, bowstring.int32()) for name in batch.column_names]
    forged = bowstring.RecordBatch(bowstring.schema(fields), batch.num_rows, batch.lazy_columns)
    with pytest.raises(bowstring.errors.InvalidArgumentError, match="expected int32"):
        to_bytes(forged)


def test_a_buffer_outside_the_body_is_rejected_and_named() -> None:
    raw = bytearray(as_stream(wide_batch()))
    batch = bowstring.open_stream(bytes(raw)).read_next_batch()
    assert isinstance(batch.lazy_columns, BatchColumns)
    header = batch.lazy_columns.header
    at = raw.index(header.buffers()[:4].tobytes())
    raw[at + 16 : at + 24] = (1 << 40).to_bytes(8, "little")
    batch = bowstring.open_stream(bytes(raw)).read_next_batch()
    with pytest.raises(InvalidDataError, match="column 'column 0'"):
        to_bytes(batch)


@pytest.mark.parametrize("rows", [1 << 60, (1 << 63) - 1])
def test_a_number_of_rows_whose_size_exceeds_64_bits_is_rejected(rows: int) -> None:
    content = bytearray(as_stream(pa.record_batch({f"column {index}": [7] for index in range(20)})))
    header = content.index(b"\xff" * 4, 8)
    numbers = np.frombuffer(content, np.int64, offset=header)
    numbers[numbers == 1] = rows  # of the batch, and of each node
    batch = bowstring.open_stream(bytes(content)).read_next_batch()
    with pytest.raises(InvalidDataError, match="column 'column 0'"):
        to_bytes(batch)


def test_partial_vectored_writes_send_all_parts() -> None:
    content = os.urandom(1 << 20)
    sizes = np.array([0, 1, 500_000, 0, 64, 300_000, 7], np.int64)
    offsets = np.cumsum(sizes) - sizes
    parts = PaddedBuffers.from_memory_ranges(Memory(content), offsets, sizes, -sizes & 63)
    expected = b"".join(parts)
    vectors, received_bytes = parts.iovecs(), b""
    assert vectors[:, 1].sum() == len(expected)
    reading, writing = os.pipe()
    try:
        os.set_blocking(writing, False)
        while len(vectors):
            num_sent_bytes = write_iovecs(writing, vectors)  # as much as fits into the pipe
            assert 0 < num_sent_bytes < len(expected)
            received_bytes += os.read(reading, num_sent_bytes)
            vectors = remaining_iovecs(vectors, num_sent_bytes)
    finally:
        os.close(reading)
        os.close(writing)
    assert received_bytes == expected
    with pytest.raises(OSError, match="Bad file descriptor"):
        write_iovecs(-1, parts.iovecs())


def test_a_range_outside_its_memory_is_rejected() -> None:
    one = np.ones(1, np.int64)
    for offset, size in ((-1, 1), (0, 11), (10, 1), (1, -1), (1 << 62, 1 << 62)):
        with pytest.raises(bowstring.errors.InvalidArgumentError, match="outside its memory"):
            PaddedBuffers.from_memory_ranges(Memory(bytes(10)), one * offset, one * size, one * 0)


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressed_batches_are_not_passed_through(codec: Any) -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, wide_batch().schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_batch(wide_batch())
    batch = bowstring.open_stream(sink.getvalue().to_pybytes()).read_next_batch()
    assert not is_passed_through(batch)
    assert pa.ipc.open_file(to_bytes(batch)).get_batch(0) == wide_batch()


def test_big_endian_batches_are_not_passed_through() -> None:
    native = bowstring.open_stream(as_stream(wide_batch())).read_next_batch()
    sink = io.BytesIO()
    with bowstring.new_stream(sink, native.schema, options=IpcWriteOptions(byte_order="big")) as writer:
        writer.write(native)
    batch = bowstring.open_stream(sink.getvalue()).read_next_batch()
    assert not is_passed_through(batch)
    assert to_bytes(batch) == to_bytes(native)


def test_wide_batches_built_in_memory_are_written_column_by_column() -> None:
    rebuilt = bowstring.record_batch(wide_batch())
    assert is_passed_through(rebuilt)
    arrays = [bowstring.array(column.to_pylist(), column.type) for column in rebuilt.columns]
    for batch in (
        rebuilt,
        with_created_columns(rebuilt),
        bowstring.RecordBatch.from_arrays(arrays, schema=rebuilt.schema),
    ):
        sink = io.BytesIO()
        with bowstring.new_file(sink, batch.schema) as writer:
            writer._encoder._flat_columns_encoder = None
            writer.write(batch)
        assert to_bytes(batch) == sink.getvalue()
    assert not is_passed_through(rebuilt.slice(1))
    assert pa.ipc.open_file(to_bytes(rebuilt.slice(1))).get_batch(0) == wide_batch().slice(1)


def test_a_buffer_outside_its_memory_is_rejected() -> None:
    memory = Memory(bytes(10))
    for offset, size in ((-1, 1), (0, 11), (10, 1), (1, -1)):
        with pytest.raises(InvalidDataError, match="out of range for a memory of 10 bytes"):
            bowstring.memory.Buffer(memory, offset, size)

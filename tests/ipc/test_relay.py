"""Wide batches that were read are written without making a column; what comes out is what the columns would give."""

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
from bowstring.ipc.options import IpcWriteOptions
from bowstring.ipc.record_batch.passthrough import PassthroughPlan
from bowstring.ipc.record_batch.reader import BatchColumns
from bowstring.ipc.stream import Encoder
from bowstring.memory.buffer import Memory
from bowstring.memory.iovec import Parts, remaining_vectors, write_vectors

ROWS = 2000


def wide(rows: int = ROWS, columns: int = 40) -> Any:
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
    made: bytes = sink.getvalue().to_pybytes()
    return made


def as_made(batch: bowstring.RecordBatch) -> bowstring.RecordBatch:
    """The same batch, its columns made one by one."""
    return bowstring.RecordBatch.from_arrays(batch.columns, schema=batch.schema)


def written(batch: bowstring.RecordBatch, alignment: int = 64) -> bytes:
    out = io.BytesIO()
    with bowstring.new_file(out, batch.schema, alignment=alignment) as writer:
        writer.write(batch)
    return out.getvalue()


def passes(batch: bowstring.RecordBatch) -> bool:
    encoder = Encoder(batch.schema)
    plan = PassthroughPlan.of(encoder._layouts)
    return plan is not None and plan.body(batch.source, 64) is not None


@pytest.mark.parametrize("alignment", [8, 64])
@pytest.mark.parametrize("rows", [0, 1, ROWS])
def test_a_batch_passed_on_has_the_bytes_of_its_columns(rows: int, alignment: int, tmp_path: Path) -> None:
    batch = bowstring.open_stream(as_stream(wide(rows))).read_next_batch()
    assert passes(batch)
    expected = written(as_made(batch), alignment)
    assert written(batch, alignment) == expected
    path = tmp_path / "passed.arrow"
    with bowstring.new_file(path, batch.schema, alignment=alignment) as writer:
        writer.write(batch)
    assert path.read_bytes() == expected
    assert pa.ipc.open_file(path).read_all().to_batches(max_chunksize=ROWS) == [wide(rows)][: rows and 1]


def test_batches_of_a_file_are_passed_on_one_after_the_other(tmp_path: Path) -> None:
    batches = [wide(), wide().slice(3, 500), wide(0), wide()]
    path = tmp_path / "passed.arrow"
    with bowstring.open_stream(as_stream(*batches)) as reader, bowstring.new_file(path, reader.schema) as writer:
        writer.write(reader.read_all())
    assert [pa.ipc.open_file(path).get_batch(index) for index in range(4)] == batches


def test_chosen_sliced_and_nested_columns_are_not_passed_on() -> None:
    raw = as_stream(wide())
    batch = bowstring.open_stream(raw).read_next_batch()
    for other in (
        batch.slice(1, 7),
        batch.select(range(20)),
        bowstring.open_stream(raw, columns=range(20)).read_next_batch(),
    ):
        assert not passes(other)
        again = bowstring.open_file(written(other)).get_batch(0)
        assert again == other
    nested = pa.record_batch([pa.array([[1], None])] * 20, names=[str(index) for index in range(20)])
    assert not passes(bowstring.open_stream(as_stream(nested)).read_next_batch())


def test_columns_of_another_type_than_the_schema_says_are_refused() -> None:
    batch = bowstring.open_stream(as_stream(wide())).read_next_batch()
    fields = [bowstring.field(name, bowstring.int32()) for name in batch.column_names]
    forged = bowstring.RecordBatch(bowstring.schema(fields), batch.num_rows, batch.source)
    with pytest.raises(bowstring.errors.UsageError, match="its field says int32"):
        written(forged)


def test_a_buffer_outside_the_body_is_refused_and_named() -> None:
    raw = bytearray(as_stream(wide()))
    batch = bowstring.open_stream(bytes(raw)).read_next_batch()
    assert isinstance(batch.source, BatchColumns)
    header = batch.source.header
    at = raw.index(header.buffers()[:4].tobytes())
    raw[at + 16 : at + 24] = (1 << 40).to_bytes(8, "little")
    batch = bowstring.open_stream(bytes(raw)).read_next_batch()
    with pytest.raises(InvalidDataError, match="column 'column 0'"):
        written(batch)


def test_vectors_written_piece_by_piece_are_the_parts() -> None:
    held = os.urandom(1 << 20)
    sizes = np.array([0, 1, 500_000, 0, 64, 300_000, 7], np.int64)
    offsets = np.cumsum(sizes) - sizes
    parts = Parts.of_memory(Memory(held), offsets, sizes, -sizes & 63)
    expected = b"".join(parts)
    vectors, got = parts.vectors(), b""
    assert vectors[:, 1].sum() == len(expected)
    reading, writing = os.pipe()
    try:
        os.set_blocking(writing, False)
        while len(vectors):
            sent = write_vectors(writing, vectors)  # as much as the pipe takes
            assert 0 < sent < len(expected)
            got += os.read(reading, sent)
            vectors = remaining_vectors(vectors, sent)
    finally:
        os.close(reading)
        os.close(writing)
    assert got == expected
    with pytest.raises(OSError, match="Bad file descriptor"):
        write_vectors(-1, parts.vectors())


def test_a_stretch_outside_its_memory_is_refused() -> None:
    one = np.ones(1, np.int64)
    for offset, size in ((-1, 1), (0, 11), (10, 1), (1, -1), (1 << 62, 1 << 62)):
        with pytest.raises(bowstring.errors.UsageError, match="not within"):
            Parts.of_memory(Memory(bytes(10)), one * offset, one * size, one * 0)


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressed_batches_are_not_passed_on_as_they_are(codec: Any) -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, wide().schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_batch(wide())
    batch = bowstring.open_stream(sink.getvalue().to_pybytes()).read_next_batch()
    assert not passes(batch)
    assert pa.ipc.open_file(written(batch)).get_batch(0) == wide()


def test_big_endian_batches_are_not_passed_on_as_they_are() -> None:
    native = bowstring.open_stream(as_stream(wide())).read_next_batch()
    sink = io.BytesIO()
    with bowstring.new_stream(sink, native.schema, options=IpcWriteOptions(byte_order="big")) as writer:
        writer.write(native)
    batch = bowstring.open_stream(sink.getvalue()).read_next_batch()
    assert not passes(batch)
    assert written(batch) == written(native)


def test_wide_batches_made_in_memory_go_out_as_a_walk_over_their_columns_gives_them() -> None:
    made = bowstring.record_batch(wide())
    assert passes(made)
    arrays = [bowstring.array(column.to_pylist(), column.type) for column in made.columns]
    for batch in (made, as_made(made), bowstring.RecordBatch.from_arrays(arrays, schema=made.schema)):
        sink = io.BytesIO()
        with bowstring.new_file(sink, batch.schema) as writer:
            writer._encoder._passthrough = None
            writer.write(batch)
        assert written(batch) == sink.getvalue()
    assert not passes(made.slice(1))
    assert pa.ipc.open_file(written(made.slice(1))).get_batch(0) == wide().slice(1)


def test_a_buffer_that_is_not_within_its_memory_is_not_made() -> None:
    memory = Memory(bytes(10))
    for offset, size in ((-1, 1), (0, 11), (10, 1), (1, -1)):
        with pytest.raises(InvalidDataError, match="out of range for a memory of 10 bytes"):
            bowstring.Buffer(memory, offset, size)

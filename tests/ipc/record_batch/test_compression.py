"""Compressed bodies: Bowstring and pyarrow read each other's data, and wrong lengths are refused."""

from __future__ import annotations

import io
import random
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bs
from bowstring import errors
from bowstring.ipc import codecs
from bowstring.ipc.record_batch import compression
from bowstring.ipc.record_batch.reader import BatchColumns
from bowstring.ipc.stream import Encoder
from tests.ipc import samples

CODECS = pytest.mark.parametrize("codec", ["lz4", "zstd"])
ROWS = 300_000


def write_with_pyarrow(table: pa.Table, codec: str, **options: Any) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=codec, **options)) as writer:
        writer.write_table(table)
    return sink.getvalue()


def pyarrow_table(rows: int = ROWS) -> pa.Table:
    rng = np.random.default_rng(3)
    return pa.table(
        {
            "steps": pa.array(np.arange(rows), pa.int64()),
            "noise": pa.array(rng.integers(0, 1 << 62, rows)),
            "few": pa.array([None if i % 7 == 0 else i % 3 for i in range(rows)], pa.int16()),
            "text": pa.array([f"row {i % 1000}" for i in range(rows)]),
            "none": pa.nulls(rows, pa.float64()),
        }
    )


@CODECS
def test_bodies_compressed_by_pyarrow_are_read_by_column_and_as_a_whole(codec: str) -> None:
    expected = pyarrow_table()
    data = write_with_pyarrow(expected, codec)
    one = bs.open_file(data, columns=["text"]).read_all()
    assert one["text"].to_pylist() == expected["text"].to_pylist()
    batch = bs.open_file(data).get_batch(0)
    columns = batch.columns
    batch.validate(full=True)
    assert columns[3].to_pylist() == expected["text"].to_pylist()
    assert pa.table(batch).equals(expected)


@CODECS
def test_only_accessed_columns_are_decompressed(codec: str) -> None:
    data = bytearray(write_with_pyarrow(pyarrow_table(1000), codec))
    header, body = bs.open_file(bytes(data)).read_batch_message(0)
    first = int(header.buffers()["offset"][1])
    at = body.offset + first + compression.LENGTH_PREFIX.size
    data[at : at + 8] = bytes(8)
    batch = bs.open_file(bytes(data)).get_batch(0)
    assert batch.column("text").length == 1000
    with pytest.raises(errors.InvalidDataError, match=r"record batch 0, column .steps.: a buffer is no"):
        batch.column("steps")
    with pytest.raises(errors.InvalidDataError, match="steps"):
        _ = bs.open_file(bytes(data)).get_batch(0).columns


@CODECS
def test_an_uncompressed_buffer_is_read_without_a_copy(codec: str) -> None:
    noise = np.random.default_rng(5).integers(0, 1 << 62, 10_000)
    data = write_with_pyarrow(pa.table({"noise": noise}), codec, use_threads=False)
    column = bs.open_file(data).get_batch(0).column(0)
    assert np.array_equal(column.to_numpy(), noise)


@CODECS
@pytest.mark.parametrize("is_prefixed", [True, False])
def test_an_empty_buffer_may_have_a_length_prefix_or_not(codec: str, is_prefixed: bool) -> None:
    packed = compression.LENGTH_PREFIX.pack(0) if is_prefixed else b""
    buffer = bs.memory.Buffer.of(packed)
    (decompressed,) = compression.BodyDecompressor(codec, len(packed), bs.ipc.ReadLimits()).decompress_column(
        [buffer], 0
    )
    assert decompressed.size == 0


def compress(codec: str, data: bytes) -> bytes:
    return bytes(codecs.create_compressor(codec)(data))


def decompress(codec: str, packed: bytes, limits: bs.ipc.ReadLimits | None = None) -> bytes:
    decompressor = compression.BodyDecompressor(codec, len(packed), limits or bs.ipc.ReadLimits())
    return decompressor.decompress_column([bs.memory.Buffer.of(packed)], 0)[0].to_bytes()


INVALID_PREFIXES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "a prefix cut short": (lambda whole: b"\x05\0\0", "too short for its length"),
    "a negative length": (lambda whole: struct.pack("<q", -2) + whole, "uncompressed length of -2"),
    "a length too small": (lambda whole: struct.pack("<q", 999) + whole, "frame"),
    "a length too large": (
        lambda whole: struct.pack("<q", 1001) + whole,
        "uncompressed length of 1001|declares 1001|frame",
    ),
    "a frame cut short": (lambda whole: struct.pack("<q", 1000) + whole[:-9], "frame"),
    "no frame": (lambda whole: struct.pack("<q", 1000), "frame"),
    "other bytes": (lambda whole: struct.pack("<q", 1000) + b"no frame at all" * 3, "frame"),
    "a length beyond memory": (lambda whole: struct.pack("<q", 1 << 62) + whole, "max_decompress"),
}


@CODECS
@pytest.mark.parametrize("problem", INVALID_PREFIXES)
def test_a_buffer_with_a_wrong_length_prefix_is_rejected(codec: str, problem: str) -> None:
    make, message = INVALID_PREFIXES[problem]
    whole = compress(codec, bytes(range(250)) * 4)
    assert decompress(codec, struct.pack("<q", 1000) + whole) == bytes(range(250)) * 4
    with pytest.raises(errors.InvalidDataError, match=message):
        decompress(codec, make(whole))


@CODECS
def test_flipped_bits_in_compressed_buffers_give_a_bowstring_error_or_bytes(codec: str) -> None:
    packed = struct.pack("<q", 5000) + compress(codec, bytes(range(250)) * 20)
    num_errors = 0
    for bit in range(8 * len(packed)):
        mutated = bytearray(packed)
        mutated[bit // 8] ^= 1 << bit % 8
        try:
            decompress(codec, bytes(mutated))
        except errors.InvalidDataError:
            num_errors += 1
    assert num_errors > 100


@CODECS
def test_the_decompressed_size_of_a_body_is_limited(codec: str) -> None:
    packed = struct.pack("<q", 5000) + compress(codec, bytes(5000))
    with pytest.raises(errors.LimitError, match="max_decompressed_bytes"):
        decompress(codec, packed, bs.ipc.ReadLimits(max_decompressed_bytes=4999))
    assert decompress(codec, packed, bs.ipc.ReadLimits(max_decompressed_bytes=5000)) == bytes(5000)
    huge = struct.pack("<q", (256 << 20) + 1) + compress(codec, bytes(5000))
    with pytest.raises(errors.LimitError, match="max_decompression_ratio"):
        decompress(codec, huge)
    with pytest.raises(errors.InvalidDataError) as error:
        decompress(codec, huge, bs.ipc.ReadLimits(max_decompression_ratio=1 << 30))
    assert not isinstance(error.value, errors.LimitError)


def test_the_limit_counts_all_buffers_of_a_body() -> None:
    packed = bs.memory.Buffer.of(struct.pack("<q", 5000) + compress("zstd", bytes(5000)))
    decompressor = compression.BodyDecompressor("zstd", packed.size, bs.ipc.ReadLimits(max_decompressed_bytes=12_000))
    with pytest.raises(errors.LimitError):
        decompressor.decompress_column([packed, packed, packed], 0)
    assert len(decompressor.decompress_column([packed, packed], 0)) == 2
    assert (
        len(decompressor.decompress_column([packed, packed], 0)) == 2
    )  # the same column, decompressed by another thread
    with pytest.raises(errors.LimitError):
        decompressor.decompress_column([packed], 1)


READ_BOMBS = """
import resource, struct, sys
import bowstring as bs
from bowstring.ipc.record_batch import compression
from bowstring.ipc.record_batch.reader import BatchColumns
from tests.ipc import samples
import zstandard, lz4.frame
zeros = bytes(64 << 20)
whole = {"lz4": lz4.frame.compress(zeros * 8), "zstd": zstandard.ZstdCompressor().compress(zeros * 8)}
del zeros
resource.setrlimit(resource.RLIMIT_AS, (700 << 20, 700 << 20))
for codec, frame in whole.items():
    for claim in (8, 1 << 20, 512 << 20, 1 << 40, 2**63 - 1):
        for ratio in (1000, 1 << 50):
            limits = bs.ipc.ReadLimits(max_decompression_ratio=ratio, max_decompressed_bytes=2**63 - 1)
            try:
                packed = bs.memory.Buffer.of(struct.pack("<q", claim) + frame)
                buffers = compression.BodyDecompressor(codec, packed.size, limits).decompress_column([packed], 0)
                assert buffers[0].size == claim == 512 << 20
                del buffers
            except bs.errors.InvalidDataError as error:
                assert str(error)
"""


def test_compression_bombs_are_rejected_in_little_memory() -> None:
    process = subprocess.run(
        [sys.executable, "-c", READ_BOMBS], capture_output=True, text=True, timeout=120, check=False
    )
    assert process.returncode == 0, process.stderr


@CODECS
def test_threads_may_share_a_reader(codec: str) -> None:
    expected = pyarrow_table(50_000)
    reader = bs.open_file(write_with_pyarrow(expected, codec, use_threads=True))
    barrier = threading.Barrier(4)

    def read(_: int) -> bool:
        barrier.wait(10)
        return bool(pa.table(reader.get_batch(0)).equals(expected))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(read, range(4)))


def test_a_forked_child_decompresses_with_its_own_threads() -> None:
    code = """
import os, io, numpy as np, pyarrow as pa, bowstring as bs
table = pa.table({f"c{i}": np.arange(200_000) // 3 for i in range(6)})
sink = io.BytesIO()
with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
    writer.write_table(table)
read = lambda: len(bs.open_file(sink.getvalue()).get_batch(0).columns)
assert read() == 6
import warnings
warnings.simplefilter("ignore")
child = os.fork()
if not child:
    os._exit(0 if read() == 6 else 1)
assert os.waitpid(child, 0)[1] == 0
"""
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert process.returncode == 0, process.stderr


def test_a_missing_codec_is_reported_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    data = write_with_pyarrow(pyarrow_table(10), "lz4")
    monkeypatch.setitem(sys.modules, "lz4.frame", None)
    monkeypatch.setitem(sys.modules, "lz4", None)
    codecs.import_lz4_frame.cache_clear()
    with pytest.raises(errors.MissingExtraError, match=r"lz4.*bowstring\[compression\]"):
        bs.open_file(data).get_batch(0)


@CODECS
def test_a_table_decompresses_a_column_of_all_batches_at_once(codec: str) -> None:
    table = pyarrow_table(1000)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_table(table, max_chunksize=100)
    read = bs.open_stream(sink.getvalue()).read_all()
    assert read["text"].to_pylist() == table["text"].to_pylist()
    columns_of_batches = [batch.lazy_columns for batch in read.to_batches()]
    assert all(isinstance(columns, BatchColumns) for columns in columns_of_batches)
    assert read.equals(bs.table(table))
    del read
    assert columns_of_batches[3][3].to_pylist() == table["text"].to_pylist()[300:400]


@pytest.mark.parametrize("format_", ["file", "stream"])
@CODECS
def test_flipped_bits_anywhere_give_a_bowstring_error_or_data(format_: str, codec: str) -> None:
    batch = samples.batch("int", "text", "view", "list", "dictionary")
    long = bs.concat_tables([bs.Table.from_batches([batch])] * 30).combine_chunks().to_batches()[0]
    make, read = (samples.as_file, bs.open_file) if format_ == "file" else (samples.as_stream, bs.open_stream)
    data = make(long, compression=codec, alignment=8)
    rng = random.Random(11)
    num_errors = 0
    for _ in range(600):
        mutated = bytearray(data)
        for _ in range(rng.choice([1, 1, 3])):
            mutated[rng.randrange(len(mutated))] ^= 1 << rng.randrange(8)
        try:
            for batch_read in read(bytes(mutated)):
                batch_read.validate(full=True)
        except errors.InvalidDataError:
            num_errors += 1
    assert num_errors > 50


@CODECS
def test_a_dictionary_is_decompressed_once_for_the_columns_that_use_it(codec: str) -> None:
    words = bs.array([f"word {i}" for i in range(400)], bs.dictionary(bs.int16(), bs.string()))
    batch = bs.record_batch({"n": list(range(400)), "word": words})
    data = bytearray(samples.as_file(batch, compression=codec))
    header, body, _ = next(bs.open_file(bytes(data)).read_dictionary_messages())
    at = body.offset + int(header.buffers()["offset"][2]) + compression.LENGTH_PREFIX.size
    data[at : at + 4] = bytes(4)
    record_batch = bs.open_stream(bytes(data[8:])).read_next_batch()
    assert record_batch.column("n").to_pylist() == list(range(400))
    with pytest.raises(errors.InvalidDataError, match=r"message 1 \(dictionary\)"):
        record_batch.column("word")


READ_OVERLAPPING_COLUMNS = """
import io, resource
import numpy as np
import bowstring as bs
from bowstring.ipc.message import frame_message
from bowstring.ipc.metadata.header import BatchHeaderBuilder, BatchHeaderValues
from bowstring.ipc.stream import Encoder
rows, columns = 16 << 20, 300
sink = io.BytesIO()
one = bs.RecordBatch.from_arrays([bs.array(np.zeros(rows, np.uint8))], ["x"])
with bs.new_file(sink, one.schema, compression="zstd") as writer:
    writer.write(one)
header, body = bs.open_file(sink.getvalue()).read_batch_message(0)
packed = body.slice(*header.buffers()[1].tolist()).to_bytes()
size = len(packed)
packed += bytes(-size % 8)
schema = bs.schema([bs.field(f"c{i}", bs.uint8()) for i in range(columns)])
nodes, spans = np.array([[rows, 0]] * columns), np.array([[0, 0], [0, size]] * columns)
numbers = BatchHeaderValues(rows, nodes, spans, np.zeros(0, np.int64))
parts = [
    frame_message(Encoder(schema, options=bs.ipc.IpcWriteOptions(compression="zstd")).encode_schema_message().metadata),
    frame_message(BatchHeaderBuilder(compression="zstd").build(numbers, len(packed))),
    packed,
]
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
batch = bs.open_stream(b"".join(parts)).read_next_batch()
assert batch.column(7).length == rows
try:
    batch.columns
except bs.errors.LimitError as error:
    assert "max_decompress" in str(error), error
else:
    raise SystemExit("300 columns over the same few bytes were decompressed")
"""


def test_many_columns_over_the_same_bytes_are_rejected_as_a_bomb() -> None:
    process = subprocess.run(
        [sys.executable, "-c", READ_OVERLAPPING_COLUMNS], capture_output=True, text=True, timeout=120, check=False
    )
    assert process.returncode == 0, process.stderr


@CODECS
def test_batches_are_compressed_through_the_same_memory(codec: Any) -> None:
    tables = [pyarrow_table(rows) for rows in (200_000, 150_000, 210_000, 100)]
    bs.memory.release_unused_memory()
    sinks = [io.BytesIO() for _ in tables]
    writers = [bs.new_file(sink, bs.table(tables[0]).schema, compression=codec) for sink in sinks]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            list(pool.map(lambda writer, table: writer.write(bs.table(table)), writers, tables))
    for writer in writers:
        writer.close()
    assert 0 < bs.memory.release_unused_memory() < 64 << 20
    for sink, table in zip(sinks, tables, strict=True):
        assert pa.ipc.open_file(sink.getvalue()).read_all().equals(pa.concat_tables([table] * 3))


@CODECS
def test_a_compressed_message_keeps_its_bytes_while_others_are_encoded(codec: Any) -> None:
    rng = np.random.default_rng(9)
    batches = [bs.record_batch({"x": bs.array(rng.integers(0, 1 << 40, 200_000))}) for _ in range(6)]
    encoder = Encoder(batches[0].schema, options=bs.ipc.IpcWriteOptions(compression=codec))
    bodies = [[list(message.parts) for message in encoder.encode_batch(batch)][-1] for batch in batches]
    copies = [b"".join(body) for body in bodies]
    bodies += [[list(message.parts) for message in encoder.encode_batch(batch)][-1] for batch in batches]
    assert [b"".join(body) for body in bodies] == copies * 2
    assert len(set(copies)) == 6

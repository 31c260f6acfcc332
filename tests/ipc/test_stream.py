"""Streams: sources and sinks, and the encoder and decoder without I/O."""

from __future__ import annotations

import io
import os
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bs
from bowstring import errors
from bowstring.ipc.stream import Decoder, Encoder
from bowstring.memory.buffer import Buffer
from tests.ipc.samples import as_stream, batch


def numbers(rows: int) -> bs.RecordBatch:
    return bs.RecordBatch.from_arrays([bs.array(np.arange(rows)), bs.array(["x"] * rows)], ["n", "s"])


def test_every_source_gives_the_same_batches(tmp_path: Path) -> None:
    data = as_stream(batch(), batch())
    path = tmp_path / "x.arrows"
    path.write_bytes(data)

    class OnlyRead:
        def __init__(self) -> None:
            self.file = io.BytesIO(data)

        def read(self, size: int) -> bytes:
            return self.file.read(min(size, 7))  # a short read is not the end

    with path.open("rb") as file, path.open("rb", buffering=0) as raw:
        descriptor = os.open(path, os.O_RDONLY)
        for source in (path, data, bytearray(data), io.BytesIO(data), file, raw, OnlyRead(), descriptor):
            read = list(bs.open_stream(source))
            assert len(read) == 2, source
            assert all(record_batch.equals(batch()) for record_batch in read)
        os.close(descriptor)


def test_a_socket_carries_streams_both_ways_and_is_not_read_beyond_the_end() -> None:
    left, right = socket.socketpair()
    expected = numbers(200_000)

    def send() -> None:
        with bs.new_stream(left, expected.schema) as writer:
            writer.write(expected)
            writer.write(expected)
        left.sendall(b"what follows")

    thread = threading.Thread(target=send)
    thread.start()
    right.settimeout(30)
    with bs.open_stream(right) as reader:
        assert [b.equals(expected) for b in reader] == [True, True]
    assert right.recv(100) == b"what follows"
    thread.join()
    left.close()
    right.close()


def test_a_silent_socket_times_out_and_a_closed_one_is_truncated() -> None:
    left, right = socket.socketpair()
    right.settimeout(0.05)
    with pytest.raises(errors.DeadlineError):
        bs.open_stream(right)
    left.sendall(as_stream(numbers(10))[:100])
    left.close()
    with pytest.raises(errors.TruncatedError):
        bs.open_stream(right)
    right.close()


def test_standard_input_and_output_carry_streams() -> None:
    program = (
        "import sys, bowstring as bs\n"
        "reader = bs.open_stream(sys.stdin.buffer)\n"
        "with bs.new_stream(sys.stdout.buffer, reader.schema) as writer:\n"
        "    for batch in reader: writer.write(batch)\n"
    )
    data = as_stream(batch(), batch())
    process = subprocess.run([sys.executable, "-c", program], input=data, capture_output=True, timeout=60, check=True)
    assert process.stdout == data


def test_a_pipe_written_by_pyarrow_is_read_while_it_is_written() -> None:
    expected = pa.record_batch({"n": pa.array(np.arange(300_000))})
    read_end, write_end = os.pipe()

    def send() -> None:
        with os.fdopen(write_end, "wb") as file, pa.ipc.new_stream(file, expected.schema) as writer:
            for _ in range(3):
                writer.write_batch(expected)

    thread = threading.Thread(target=send)
    thread.start()
    with os.fdopen(read_end, "rb") as file:
        sums = [int(b.column(0).to_numpy().sum()) for b in bs.open_stream(file)]
    thread.join()
    assert sums == [299_999 * 150_000] * 3


def test_a_mapped_stream_is_not_copied(tmp_path: Path) -> None:
    path = tmp_path / "x.arrows"
    with bs.new_stream(path, numbers(1000).schema) as writer:
        writer.write(numbers(1000))
    first, *rest = list(bs.open_stream(path))
    assert rest == []
    memories = {id(b.memory) for column in first.columns for b in column.own_buffers if b is not None}
    assert len(memories) == 1
    assert first.column("n").own_buffers[1].memory.size == path.stat().st_size  # type: ignore[union-attr]


def test_a_stream_may_end_without_its_marker_and_with_bytes_after_it() -> None:
    data = as_stream(numbers(5))
    assert len(list(bs.open_stream(data[:-8]))) == 1
    assert len(list(bs.open_stream(data + b"more"))) == 1


def test_the_legacy_framing_without_markers_is_read_from_memory_and_from_a_pipe() -> None:
    encoder = Encoder(batch().schema, alignment=8)
    parts = []
    for message in (encoder.encode_schema_message(), *encoder.encode_batch(batch()), *encoder.encode_batch(batch())):
        parts += [struct.pack("<i", len(message.metadata)), message.metadata, *message.parts]
    data = b"".join([*parts, bytes(4)])
    for source in (data, io.BufferedReader(io.BytesIO(data))):
        read = list(bs.open_stream(source))
        assert [record_batch.equals(batch()) for record_batch in read] == [True, True]
        read[0].validate(full=True)


def test_a_stream_of_no_batches_has_a_schema() -> None:
    sink = io.BytesIO()
    with bs.new_stream(sink, batch().schema):
        pass
    reader = bs.open_stream(sink.getvalue())
    assert reader.schema.equals(batch().schema)
    assert reader.read_all().num_rows == 0
    with pytest.raises(StopIteration):
        reader.read_next_batch()


def test_columns_are_selected() -> None:
    (record_batch,) = bs.open_stream(as_stream(batch()), columns=["map", "int"])
    assert record_batch.schema.names == ["map", "int"]
    assert record_batch.column("int").to_pylist() == [1, None, 3]


def test_tables_are_written_batch_by_batch() -> None:
    table = bs.Table.from_batches([numbers(3), numbers(4)])
    sink = io.BytesIO()
    with bs.new_stream(sink, table.schema) as writer:
        writer.write(table)
    assert [b.num_rows for b in bs.open_stream(sink.getvalue())] == [3, 4]
    with pytest.raises(errors.ClosedError):
        writer.write(table)


def test_encoder_and_decoder_carry_messages_without_framing() -> None:
    encoder = Encoder(batch().schema, alignment=8)
    messages = [encoder.encode_schema_message(), *encoder.encode_batch(batch()), *encoder.encode_batch(batch())]
    assert [m.kind for m in messages] == ["Schema", "DictionaryBatch", "RecordBatch", "RecordBatch"]
    decoder = Decoder()
    received = []
    for message in messages:
        assert sum(map(len, message.parts)) == message.body_bytes
        assert len(message.metadata) % 8 == 0
        received.append(decoder.decode(message.metadata, Buffer.of(b"".join(message.parts))))
    assert [b is not None and b.equals(batch()) for b in received] == [False, False, True, True]


def test_a_decoder_requires_exactly_one_schema_at_the_start() -> None:
    encoder = Encoder(numbers(1).schema)
    schema, (message,) = encoder.encode_schema_message(), encoder.encode_batch(numbers(1))
    with pytest.raises(errors.InvalidDataError, match="schema first"):
        Decoder().decode(message.metadata)
    decoder = Decoder()
    decoder.decode(schema.metadata)
    with pytest.raises(errors.InvalidDataError, match="second schema"):
        decoder.decode(schema.metadata)
    with pytest.raises(errors.InvalidDataError, match="body of"):
        decoder.decode(message.metadata, Buffer.of(b""))


def test_a_text_file_is_rejected_as_a_sink() -> None:
    with (
        pytest.raises(errors.InvalidArgumentError, match="binary"),
        bs.new_stream(io.StringIO(), numbers(1).schema) as writer,
    ):
        writer.write(numbers(1))


def test_the_repr_of_a_stream_reader_has_its_progress() -> None:
    rows = bs.record_batch({"a": [1, 2], "s": ["x", "y"]})
    written = io.BytesIO()
    with bs.new_stream(written, rows.schema) as writer:
        assert repr(writer) == "<bowstring.ipc.StreamWriter: 2 columns>"
        writer.write(rows)
    reader = bs.open_stream(written.getvalue())
    before = repr(reader)
    reader.read_next_batch()
    assert "StreamReader" in before
    assert "at byte" in before
    assert before != repr(reader)
    reader.close()
    assert repr(reader).endswith("closed>")

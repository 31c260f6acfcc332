"""Compressed bodies in metadata version 4: declared by the specification's field or as in Arrow 0.17."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bs
from bowstring import errors
from bowstring.flatbuf.tables import BUFFER, DEFINITIONS, FIELD_NODE, HEADERS
from bowstring.flatbuf.writer import UnionValue, build_flatbuffer
from bowstring.ipc.codecs import CODECS, create_compressor
from bowstring.ipc.encoded_schema import encode_schema
from bowstring.ipc.message import END_OF_STREAM, frame_message
from bowstring.ipc.metadata.header import V4_COMPRESSION_KEY, build_schema_message
from bowstring.ipc.metadata.schema import V4, V5
from bowstring.ipc.record_batch.writer import encode_body
from tests.ipc.samples import as_stream

RANDOM_NUMBERS = np.random.default_rng(17).integers(0, 1 << 62, 500)
BATCH = bs.record_batch({"n": np.arange(500), "noise": RANDOM_NUMBERS, "word": ["three"] * 500})
CODECS_AND_NAMES = pytest.mark.parametrize(("codec", "name"), [("lz4", b"LZ4"), ("zstd", b"ZSTD"), ("zstd", b"zstd")])


def compressed_stream(codec: str, field: str | None, codec_name: bytes | None, version: int = V4) -> bytes:
    """Return a compressed stream of `BATCH`; `field` is the codec in the header, `codec_name` that in the message's
    custom metadata.
    """
    write_options = bs.ipc.IpcWriteOptions(metadata_version="V4" if version == V4 else "V5")
    body = encode_body(BATCH.num_rows, BATCH.columns, 64, write_options, create_compressor(codec))
    record = {
        "length": BATCH.num_rows,
        "nodes": np.array([tuple(node) for node in body.header_values.nodes.tolist()], FIELD_NODE),
        "buffers": np.array([tuple(span) for span in body.header_values.buffers.tolist()], BUFFER),
        "compression": None if field is None else {"codec": list(CODECS).index(field), "method": 0},
    }
    pairs = [(b"mine", b"too")] + ([] if codec_name is None else [(V4_COMPRESSION_KEY, codec_name)])
    message = {
        "version": version,
        "header_type": HEADERS.index("RecordBatch"),
        "header": UnionValue("RecordBatch", record),
        "bodyLength": body.size_bytes,
        "custom_metadata": [{"key": key, "value": value} for key, value in pairs],
    }
    out = frame_message(build_schema_message(encode_schema(BATCH.schema, write_options).table, version), 0)
    out += frame_message(build_flatbuffer(DEFINITIONS, "Message", message), len(out), 64)
    return out + b"".join(bytes(memoryview(part)) for part in body.parts) + END_OF_STREAM


def read(data: bytes) -> bs.RecordBatch:
    """Return the only batch of a stream."""
    (batch,) = bs.open_stream(data)
    batch.validate(full=True)
    return batch


@pytest.mark.parametrize("codec", CODECS)
def test_the_codec_field_has_the_same_meaning_in_versions_4_and_5(codec: str) -> None:
    assert read(compressed_stream(codec, codec, None)).equals(BATCH)
    assert read(compressed_stream(codec, codec, None, V5)).equals(BATCH)


@pytest.mark.parametrize("codec", CODECS)
def test_pyarrow_rejects_the_field_alone_in_version_4(codec: str) -> None:
    with pytest.raises(pa.ArrowInvalid, match=r"too small|compression allowed"):
        pa.ipc.open_stream(compressed_stream(codec, codec, None)).read_all().validate(full=True)


@CODECS_AND_NAMES
def test_bodies_compressed_by_arrow_0_17_are_read_like_in_pyarrow(codec: str, name: bytes) -> None:
    data = compressed_stream(codec, None, name)
    assert read(data).equals(BATCH)
    assert pa.table(bs.open_stream(data).read_all()).equals(pa.ipc.open_stream(data).read_all())


@CODECS_AND_NAMES
def test_the_codec_is_removed_from_the_batch_metadata(codec: str, name: bytes) -> None:
    batch = read(compressed_stream(codec, None, name))
    assert batch.custom_metadata == {b"mine": b"too"}
    again = read(as_stream(batch, options=bs.ipc.IpcWriteOptions(metadata_version="V4")))
    assert again.equals(BATCH)
    assert again.custom_metadata == batch.custom_metadata


def test_pyarrow_rejects_any_other_metadata_of_a_batch_in_version_4() -> None:
    noted = BATCH.with_metadata(((b"mine", b"too"),))
    with pytest.raises(pa.ArrowInvalid, match="Only LZ4_FRAME and ZSTD compression allowed"):
        pa.ipc.open_stream(as_stream(noted, options=bs.ipc.IpcWriteOptions(metadata_version="V4"))).read_all()


def test_user_metadata_of_that_name_does_not_make_a_body_unreadable() -> None:
    batch = BATCH.with_metadata(((V4_COMPRESSION_KEY, b"ZSTD"),))
    sink = io.BytesIO()
    with bs.new_stream(sink, batch.schema, options=bs.ipc.IpcWriteOptions(metadata_version="V4")) as writer:
        writer.write(batch)
    assert read(sink.getvalue()).equals(BATCH)
    assert pa.ipc.open_stream(sink.getvalue()).read_all().equals(pa.table(BATCH))


@CODECS_AND_NAMES
def test_commands_report_the_codec_and_files_are_concatenated(codec: str, name: bytes) -> None:
    data = compressed_stream(codec, None, name)
    assert bs.inspection.inspect(data).encoding.codecs == (codec,)
    sink = io.BytesIO()
    bs.ipc.concat_files([data, data], sink)
    assert bs.open_file(sink.getvalue()).read_all().equals(bs.Table.from_batches([BATCH, BATCH]))
    assert pa.ipc.open_file(sink.getvalue()).read_all().num_rows == 2 * BATCH.num_rows


def test_batches_appended_to_such_a_file_are_not_compressed(tmp_path: Path) -> None:
    path = tmp_path / "old.arrow"
    bs.ipc.concat_files([compressed_stream("zstd", None, b"ZSTD")], path)
    with bs.ipc.append_to_file(path) as writer:
        writer.write(BATCH)
    assert bs.inspection.inspect(path).encoding.compressed_batches == 1
    assert bs.open_file(path).read_all().equals(bs.Table.from_batches([BATCH, BATCH]))


@pytest.mark.parametrize(
    ("field", "codec_name", "error", "message"),
    [
        ("zstd", b"LZ4", errors.InvalidDataError, "two codecs for one body: zstd and lz4"),
        ("zstd", b"uncompressed", errors.InvalidDataError, "two codecs for one body: zstd and uncompressed"),
        (None, b"LZ4_RAW", errors.UnsupportedError, "unknown compression codec 'lz4_raw'"),
        (None, b"\xff" * 1000, errors.UnsupportedError, "unknown compression codec"),
    ],
)
def test_contradicting_and_unknown_codecs_are_rejected(field: Any, codec_name: bytes, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        read(compressed_stream("zstd", field, codec_name))


def test_in_version_5_the_key_is_ordinary_metadata() -> None:
    batch = read(compressed_stream("zstd", "zstd", b"LZ4", V5))
    assert batch.equals(BATCH)
    assert batch.custom_metadata[V4_COMPRESSION_KEY] == b"LZ4"

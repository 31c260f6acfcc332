"""Write options: byte order, metadata version, framing and compression."""

from __future__ import annotations

import io
import struct
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bs
from bowstring import errors
from bowstring.ipc.codecs import CodecName
from bowstring.ipc.message import CONTINUATION
from bowstring.ipc.write_options import ByteOrder, MetadataVersion
from tests.ipc import samples
from tests.ipc.formats import ENCODERS, EVERY_FORMAT, OPENERS, PYARROW_OPENERS

BIG_ENDIAN = bs.ipc.IpcWriteOptions(byte_order="big")
WRITE_OPTIONS = [
    bs.ipc.IpcWriteOptions(order, version, is_legacy, codec)
    for order, version, is_legacy, codec in product(
        get_args(ByteOrder), get_args(MetadataVersion), (False, True), (None, *get_args(CodecName))
    )
    if version == "V5" or codec is None
]


def option_id(write_options: bs.ipc.IpcWriteOptions) -> str:
    framing_ = "legacy" if write_options.is_legacy_framing else "marked"
    return f"{write_options.byte_order}-{write_options.metadata_version}-{framing_}-{write_options.compression}"


@EVERY_FORMAT
@pytest.mark.parametrize("write_options", WRITE_OPTIONS, ids=option_id)
def test_every_layout_is_read_with_every_option(format_: str, write_options: bs.ipc.IpcWriteOptions) -> None:
    batch = samples.batch()
    data = ENCODERS[format_](batch, batch.slice(1), alignment=8, options=write_options)
    first, second = OPENERS[format_](data)
    first.validate(full=True)
    second.validate(full=True)
    assert first.equals(batch)
    assert second.equals(batch.slice(1))


def is_not_swapped_by_pyarrow(type_: pa.DataType) -> bool:
    """Return whether pyarrow cannot swap the bytes of such a column."""
    children = [type_.field(i).type for i in range(type_.num_fields)]
    return pa.types.is_string_view(type_) or type_.id in VIEWS or any(map(is_not_swapped_by_pyarrow, children))


VIEWS = {pa.list_view(pa.null()).id, pa.run_end_encoded(pa.int16(), pa.null()).id}


@EVERY_FORMAT
@pytest.mark.parametrize("write_options", WRITE_OPTIONS, ids=option_id)
def test_pyarrow_reads_data_written_with_every_option(format_: str, write_options: bs.ipc.IpcWriteOptions) -> None:
    whole = pa.table(samples.batch())
    names = [
        f.name for f in whole.schema if write_options.byte_order == "little" or not is_not_swapped_by_pyarrow(f.type)
    ]
    assert len(names) >= 10
    data = ENCODERS[format_](samples.batch(*names), options=write_options)
    assert PYARROW_OPENERS[format_](data).read_all().equals(whole.select(names))


@pytest.mark.parametrize("is_legacy", [False, True])
def test_pyarrow_data_of_metadata_version_4_is_read(is_legacy: bool) -> None:
    batch = samples.batch()
    expected, sink = pa.table(batch), io.BytesIO()
    options = pa.ipc.IpcWriteOptions(metadata_version=pa.ipc.MetadataVersion.V4, use_legacy_format=is_legacy)
    with pa.ipc.new_stream(sink, expected.schema, options=options) as writer:
        writer.write_table(expected)
    (read,) = bs.open_stream(sink.getvalue())
    assert read.equals(batch)


def body_buffers(array: bs.Array, write_options: bs.ipc.IpcWriteOptions) -> list[bytes]:
    """Return the written buffers without the validity bitmap."""
    batch = bs.RecordBatch.from_arrays([array], ["x"])
    header, body = bs.open_file(samples.as_file(batch, options=write_options)).read_batch_message(0)
    spans = header.buffers()
    return [
        body.slice(int(at), int(size)).to_bytes() for at, size in zip(spans["offset"], spans["length"], strict=True)
    ][1:]


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        (bs.int16(), 258, b"\1\2"),
        (bs.float16(), 1.0, struct.pack(">e", 1.0)),
        (bs.float64(), 0.1, struct.pack(">d", 0.1)),
        (bs.decimal32(5, 0), Decimal(258), bytes(2) + b"\1\2"),
        (bs.decimal128(5, 0), Decimal(258), bytes(14) + b"\1\2"),
        (bs.decimal256(5, 0), Decimal(-1), b"\xff" * 32),
        (bs.decimal256(5, 0), Decimal(258), bytes(30) + b"\1\2"),
        (bs.month_day_nano_interval(), (1, 2, 3), struct.pack(">iiq", 1, 2, 3)),
        (bs.day_time_interval(), (1, 2), struct.pack(">ii", 1, 2)),
        (bs.binary(4), b"abcd", b"abcd"),
        (bs.bool_(), True, b"\1"),
    ],
    ids=str,
)
def test_numbers_are_byte_swapped_and_bytes_are_not(type_: bs.DataType, value: Any, expected: bytes) -> None:
    (content,) = body_buffers(bs.array([value], type_), BIG_ENDIAN)
    assert content == expected


def test_views_are_byte_swapped_except_for_their_inline_bytes() -> None:
    views, data = body_buffers(bs.array(["short", "a string of more than twelve bytes"], bs.string_view()), BIG_ENDIAN)
    assert views == struct.pack(">i", 5) + b"short".ljust(12, b"\0") + struct.pack(">i4sii", 34, b"a st", 0, 0)
    assert data == b"a string of more than twelve bytes"


def test_a_message_in_the_legacy_framing_begins_with_its_length() -> None:
    data = samples.as_stream(samples.batch("int"), options=bs.ipc.IpcWriteOptions(is_legacy_framing=True))
    assert not data.startswith(CONTINUATION)
    assert (4 + int.from_bytes(data[:4], "little")) % 8 == 0
    assert data.endswith(bytes(4))
    assert CONTINUATION not in data


def test_unions_have_a_validity_buffer_in_version_4_only() -> None:
    counts = {}
    for version in get_args(MetadataVersion):
        data = samples.as_file(samples.batch("sparse"), options=bs.ipc.IpcWriteOptions(metadata_version=version))
        counts[version] = bs.open_file(data).read_batch_message(0)[0].template.buffer_count
    assert counts["V4"] == counts["V5"] + 1


def test_incompressible_buffers_stay_uncompressed_and_empty_ones_have_no_prefix() -> None:
    noise = np.random.default_rng(5).integers(0, 1 << 62, 1000)
    for codec in get_args(CodecName):
        (buffer,) = body_buffers(bs.array(noise), bs.ipc.IpcWriteOptions(compression=codec))
        assert buffer == struct.pack("<q", -1) + noise.tobytes()
        assert body_buffers(bs.array([], bs.int64()), bs.ipc.IpcWriteOptions(compression=codec)) == [b""]


@pytest.mark.parametrize(("codec", "low", "high"), [("lz4", 0, 9), ("zstd", -5, 15)])
def test_a_higher_level_gives_fewer_bytes(codec: str, low: int, high: int) -> None:
    text = bs.array([f"line {i * i % 977} of a text" for i in range(20_000)])
    batch = bs.RecordBatch.from_arrays([text], ["text"])
    sizes = [len(samples.as_file(batch, compression=codec, compression_level=level)) for level in (low, high)]
    assert sizes[1] < sizes[0] < len(samples.as_file(batch))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"compression": "gzip"}, "None, 'lz4' or 'zstd', not 'gzip'"),
        ({"compression": "zstd", "compression_level": 99}, "-131072 to 22, not 99"),
        ({"compression": "lz4", "compression_level": 17}, "-1000 to 16, not 17"),
        ({"compression_level": 3}, "without compression"),
    ],
)
def test_unknown_codecs_and_levels_are_rejected(options: dict[str, Any], message: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=message):
        bs.new_stream(io.BytesIO(), samples.batch("int").schema, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"byte_order": "middle"},
        {"metadata_version": "V3"},
        {"metadata_version": "V4", "compression": "lz4"},
    ],
)
def test_unknown_options_are_rejected(options: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidArgumentError):
        bs.ipc.IpcWriteOptions(**options)


@pytest.mark.parametrize("codec", get_args(CodecName))
def test_replaced_dictionaries_are_compressed_and_byte_swapped(codec: str) -> None:
    type_ = bs.dictionary(bs.int16(), bs.string())
    batches = [bs.record_batch({"d": bs.array([f"{a} {i}" for i in range(500)], type_)}) for a in ("one", "two")]
    data = samples.as_stream(*batches, compression=codec, options=BIG_ENDIAN)
    assert [batch.to_pydict() for batch in bs.open_stream(data)] == [batch.to_pydict() for batch in batches]


@pytest.mark.parametrize("write_options", [BIG_ENDIAN, bs.ipc.IpcWriteOptions(compression="lz4")], ids=option_id)
def test_files_of_any_encoding_can_be_served(write_options: bs.ipc.IpcWriteOptions, tmp_path: Path) -> None:
    batch = bs.record_batch({"n": list(range(1000)), "t": [str(i % 7) for i in range(1000)]})
    path = tmp_path / "served.arrow"
    path.write_bytes(samples.as_file(batch, options=write_options))
    with bs.serve({"data": path}) as server, bs.connect(server.uri("data")) as reader:
        table = reader.read_all()
    assert table.to_batches()[0].equals(batch)

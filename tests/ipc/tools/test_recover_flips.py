"""Recovering data with one flipped bit: every loss is reported, and is one batch at most."""

from __future__ import annotations

import io

import pyarrow as pa
import pytest

import bowstring as bs
from bowstring.errors import InvalidDataError
from tests.ipc.samples import as_file, as_stream
from tests.thorough import thorough

ROWS = bs.record_batch({"n": [1, 2], "s": ["a", "b"], "w": bs.array(["x", "y"]).dictionary_encode()})
NUM_BATCHES = 4
OPTIONS = {
    "plain": bs.ipc.IpcWriteOptions(),
    "legacy framing": bs.ipc.IpcWriteOptions(is_legacy_framing=True),
    "compressed": bs.ipc.IpcWriteOptions(compression="zstd"),
}


@pytest.mark.parametrize("bit", [3, *thorough(0, 1, 2, 4, 5, 6, 7)])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("file", "plain"),
        ("stream", "plain"),
        # The legacy framing has no markers, so that a stream is lost from a damaged length on.
        *thorough(("file", "legacy framing"), ("file", "compressed"), ("stream", "compressed")),
    ],
)
def test_every_loss_by_a_flipped_bit_is_reported(kind: str, options: str, bit: int) -> None:
    make = as_file if kind == "file" else as_stream
    raw = make(*[ROWS] * NUM_BATCHES, options=OPTIONS[options])
    # Only a file has its schema twice.
    schema_bytes = 0 if kind == "file" else find_schema_bytes(OPTIONS[options])
    for at in range(len(raw)):
        damaged = bytearray(raw)
        damaged[at] ^= 1 << (bit + at) % 8
        sink = io.BytesIO()
        try:
            report = bs.ipc.recover(bytes(damaged), sink)
        except InvalidDataError:
            assert at < schema_bytes
            continue
        num_rows = NUM_BATCHES * ROWS.num_rows
        assert report.rows == num_rows or not report.is_intact, at
        assert report.rows >= num_rows - ROWS.num_rows or at < schema_bytes, at
        open_reader = pa.ipc.open_file if report.format == "file" else pa.ipc.open_stream
        assert open_reader(sink.getvalue()).read_all().num_rows == report.rows, at


def find_schema_bytes(options: bs.ipc.IpcWriteOptions) -> int:
    """Return the size of the schema message of a stream."""
    sink = io.BytesIO()
    bs.new_stream(sink, ROWS.schema, options=options).close()
    return len(sink.getvalue()) - 8

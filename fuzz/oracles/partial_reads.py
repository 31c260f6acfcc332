"""Data that is read in parts, by byte ranges or from a slow stream, has the same content as in memory.

Nothing follows the bytes of a part, so a read beyond a body fails instead of returning the next message.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any
from zlib import crc32

import bowstring as bs
from bowstring.errors import InvalidDataError
from bowstring.ipc.message import is_file_start
from fuzz.expectations import ALLOWED_ERRORS, LIMITS, MAX_ROWS, expect


class ShortReadStream(io.RawIOBase):
    """A pipe that returns few bytes per read."""

    def __init__(self, data: bytes, max_bytes: int) -> None:
        self._data, self._offset, self._max_bytes = data, 0, max_bytes

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read at most `max_bytes`."""
        chunk = self._data[self._offset : self._offset + min(self._max_bytes, len(buffer))]
        buffer[: len(chunk)] = chunk
        self._offset += len(chunk)
        return len(chunk)


class SeekableFile(io.BytesIO):
    """A seekable file object without a buffer that a reader could use in place."""

    getbuffer = None  # type: ignore[assignment]

    def __init__(self, data: bytes) -> None:
        super().__init__(data)


def check_partial_reads(data: bytes) -> bool:
    """Check a file by ranges, or a stream from a slow pipe."""
    if is_file_start(data):
        return _check_ranges(data)
    expected = read_batches(lambda: bs.open_stream(data, limits=LIMITS))
    partial = read_batches(lambda: bs.open_stream(ShortReadStream(data, 1 + crc32(data) % 97), limits=LIMITS))
    _expect_same_outcome(expected, partial)
    return expected[1] is None


_BatchesAndError = tuple[list[bs.RecordBatch], str | None]


def read_batches(open_reader: Any) -> _BatchesAndError:
    """The batches up to the first invalid one, and the error message, if any."""
    batches: list[bs.RecordBatch] = []
    try:
        with open_reader() as reader:
            _ = reader.schema
            for batch in reader:
                batch.validate(full=True)
                batches.append(batch)
    except InvalidDataError as error:
        return batches, str(error)
    return batches, None


def _expect_same_outcome(expected: _BatchesAndError, partial: _BatchesAndError) -> None:
    expect((expected[1] is None) == (partial[1] is None), f"in memory: {expected[1]}; in parts: {partial[1]}")
    expect(len(expected[0]) == len(partial[0]), f"{len(expected[0])} batches in memory, {len(partial[0])} in parts")
    expect_equal(expected[0], partial[0])


def expect_equal(expected: Iterable[bs.RecordBatch], partial: Iterable[bs.RecordBatch]) -> None:
    """Expect equal batches, except for very long ones."""
    for batch, partial_batch in zip(expected, partial, strict=True):
        if batch.num_rows <= MAX_ROWS:
            try:
                expect(batch.equals(partial_batch, nans_equal=True), "read in parts, a batch has different values")
            except ALLOWED_ERRORS:
                pass


def _check_ranges(data: bytes) -> bool:
    expected = read_batches(lambda: bs.open_file(data, limits=LIMITS))
    ranges = read_batches(lambda: bs.open_file(SeekableFile(data), limits=LIMITS))
    expect((expected[1] is None) == (ranges[1] is None), f"in memory: {expected[1]}; by ranges: {ranges[1]}")
    if expected[1] is None:
        expect_equal(expected[0], ranges[0])
    try:
        with bs.open_file(SeekableFile(data), limits=LIMITS) as reader:
            if not len(reader.schema):
                return expected[1] is None
            column = reader.column(crc32(data) % len(reader.schema))
            column.validate(full=True)
    except ALLOWED_ERRORS:
        return expected[1] is None
    except InvalidDataError as error:
        expect(expected[1] is not None, f"valid in memory; a column by ranges: {error}")
        return False
    if expected[1] is None and len(column) <= MAX_ROWS:
        try:
            values = [
                value for batch in expected[0] for value in batch.column(crc32(data) % batch.num_columns).to_pylist()
            ]
            expect(repr(column.to_pylist()) == repr(values), "read by ranges, a column has different values")
        except ALLOWED_ERRORS:
            pass
    return expected[1] is None

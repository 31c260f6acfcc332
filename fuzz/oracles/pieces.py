"""Bytes that come in pieces: by ranges, or a few at a time, they say what they say in memory.

Behind the bytes that a piece holds there are none, so that whoever looks beyond a body finds an end, not its neighbour.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any
from zlib import crc32

import bowstring as bs
from bowstring.errors import InvalidDataError
from bowstring.ipc.message import is_file_start
from fuzz.promises import LIMITS, MOST_ROWS, TOO_MUCH, promise


class _Trickle(io.RawIOBase):
    """A pipe that gives few bytes at a time."""

    def __init__(self, data: bytes, most: int) -> None:
        self._data, self._at, self._most = data, 0, most

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        part = self._data[self._at : self._at + min(self._most, len(into))]
        into[: len(part)] = part
        self._at += len(part)
        return len(part)


class _Far(io.BytesIO):
    """A file object that can seek, and has no memory of its own to be looked at."""

    getbuffer = None  # type: ignore[assignment]

    def __init__(self, data: bytes) -> None:
        super().__init__(data)


def check_pieces(data: bytes) -> bool:
    """The oracle of files and streams that come in pieces."""
    if is_file_start(data):
        return _by_ranges(data)
    near = read(lambda: bs.open_stream(data, limits=LIMITS))
    far = read(lambda: bs.open_stream(_Trickle(data, 1 + crc32(data) % 97), limits=LIMITS))
    _alike(near, far)
    return near[1] is None


_Read = tuple[list[bs.RecordBatch], str | None]


def read(opened: Any) -> _Read:
    """The batches up to the first that is malformed, and what is wrong with that."""
    batches: list[bs.RecordBatch] = []
    try:
        with opened() as reader:
            _ = reader.schema
            for batch in reader:
                batch.validate(full=True)
                batches.append(batch)
    except InvalidDataError as error:
        return batches, str(error)
    return batches, None


def _alike(near: _Read, far: _Read) -> None:
    promise((near[1] is None) == (far[1] is None), f"in memory: {near[1]}; in pieces: {far[1]}")
    promise(len(near[0]) == len(far[0]), f"{len(near[0])} batches in memory, {len(far[0])} in pieces")
    equal(near[0], far[0])


def equal(near: Iterable[bs.RecordBatch], far: Iterable[bs.RecordBatch]) -> None:
    """Raise where a batch that came in pieces differs."""
    for mine, other in zip(near, far, strict=True):
        if mine.num_rows <= MOST_ROWS:
            try:
                promise(mine.equals(other, nans_equal=True), "in pieces, a batch has other values")
            except TOO_MUCH:
                pass


def _by_ranges(data: bytes) -> bool:
    near = read(lambda: bs.open_file(data, limits=LIMITS))
    far = read(lambda: bs.open_file(_Far(data), limits=LIMITS))
    promise((near[1] is None) == (far[1] is None), f"in memory: {near[1]}; by ranges: {far[1]}")
    if near[1] is None:
        equal(near[0], far[0])
    try:
        with bs.open_file(_Far(data), limits=LIMITS) as reader:
            if not len(reader.schema):
                return near[1] is None
            column = reader.column(crc32(data) % len(reader.schema))
            column.validate(full=True)
    except InvalidDataError as error:
        promise(near[1] is not None, f"sound in memory; a column by ranges: {error}")
        return False
    if near[1] is None and len(column) <= MOST_ROWS:
        try:
            joined = [value for batch in near[0] for value in batch.column(crc32(data) % batch.num_columns).to_pylist()]
            promise(repr(column.to_pylist()) == repr(joined), "a column by ranges has other values")
        except TOO_MUCH:
            pass
    return near[1] is None

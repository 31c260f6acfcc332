"""Copies of memory and files by several threads: one alone does not reach the memory's bandwidth."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from bowstring.memory.buffer import UINT8, Bytes
from bowstring.memory.thread_pool import map_in_threads

_PIECE_BYTES = 1 << 22  # several chunks of the thread pool, so that the calls of NumPy and preadv are negligible


def copy_bytes(source: memoryview, target: memoryview) -> None:
    """Copy the bytes of `source` to `target`, writable memory. Raises `ValueError` if their sizes differ."""
    if source.nbytes != target.nbytes:
        raise ValueError(f"the target has {target.nbytes} bytes, the source {source.nbytes}")
    copy_all([(np.frombuffer(source, UINT8), np.frombuffer(target, UINT8))])


def copy_all(copies: Sequence[tuple[Bytes, Bytes]]) -> None:
    """Copy the bytes of each source to its target, of the same size. Both are contiguous."""
    pieces = [
        (source[start : start + _PIECE_BYTES], target[start : start + _PIECE_BYTES])
        for source, target in copies
        for start in range(0, source.size, _PIECE_BYTES)
    ]
    map_in_threads(_copy, pieces, [source.size for source, _ in pieces])


def read_file_into(descriptor: int, offset_bytes: int, target: memoryview) -> int:
    """Read the bytes of a file from an offset into `target`, writable memory. Return how many there are: less than its
    size if the file ends before. Raises `OSError`.
    """
    pieces = [
        (offset_bytes + start, target[start : start + _PIECE_BYTES]) for start in range(0, target.nbytes, _PIECE_BYTES)
    ]

    def read_piece(piece: tuple[int, memoryview]) -> int:
        offset, rest = piece
        while rest and (num_read := os.preadv(descriptor, [rest], offset)):
            offset, rest = offset + num_read, rest[num_read:]
        return offset - piece[0]

    return sum(map_in_threads(read_piece, pieces, [piece.nbytes for _, piece in pieces]))


def _copy(piece: tuple[Bytes, Bytes]) -> None:
    source, target = piece
    target[:] = source

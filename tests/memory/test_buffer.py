"""Buffers: contiguous read-only memory with an owner, sliced without copying."""

from __future__ import annotations

import copy
import gc
import mmap
import weakref
from array import array
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bowstring.errors import InvalidArgumentError, InvalidDataError
from bowstring.memory.buffer import ALIGNMENT_BYTES, EMPTY, Buffer, Memory, allocate

INT32 = np.dtype("<i4")


@pytest.mark.parametrize(
    "owner",
    [b"12345678", bytearray(b"12345678"), memoryview(b"12345678"), np.arange(4, dtype=np.int16), array("i", [1, 2])],
    ids=lambda it: type(it).__name__,
)
def test_objects_with_bytes_are_wrapped_without_copying(owner: Any) -> None:
    buffer = Buffer.of(owner)
    assert (buffer.size, len(buffer), buffer.device) == (8, 8, "cpu")
    assert buffer.to_bytes() == bytes(owner) if not isinstance(owner, array) else owner.tobytes()
    assert buffer.address == np.frombuffer(owner, np.uint8).__array_interface__["data"][0]
    assert not buffer.bytes.flags.writeable
    assert not buffer.view(INT32).flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        buffer.bytes[0] = 1


@pytest.mark.parametrize(
    "owner",
    [
        np.zeros((2, 3)),
        np.zeros((3, 0)),
        np.array(7),
        np.zeros(3, "M8[s]"),
        np.zeros(5, "V0"),
        np.zeros(2, [("a", "i4"), ("b", "m8[s]")]),
        np.zeros(4)[1:3],
        np.broadcast_to(np.float32(1), (1,)),
        np.ma.array([1, 2], mask=[False, True]),
    ],
    ids=lambda it: f"{it.dtype}{it.shape}",
)
def test_arrays_of_any_type_and_shape_are_wrapped_without_copying(owner: Any) -> None:
    memory, writeable = Memory(owner), owner.flags.writeable
    assert memory.size == owner.nbytes == memory.bytes.size
    assert memory.address == owner.__array_interface__["data"][0]
    assert type(memory.bytes) is np.ndarray
    assert memory.bytes.tobytes() == np.asarray(owner).tobytes()
    assert (memory.bytes.flags.writeable, owner.flags.writeable) == (False, writeable)


def test_a_buffer_has_no_other_attributes() -> None:
    buffer = Buffer.of(np.arange(4))
    with pytest.raises(AttributeError, match="no 'adress'"):
        _ = buffer.adress  # type: ignore[attr-defined]
    assert not hasattr(buffer, "__dlpack__")
    copy_of_buffer = copy.copy(buffer)
    assert (copy_of_buffer == buffer, copy_of_buffer.address) == (True, buffer.address)
    assert (buffer.memory.size, buffer.memory) == (32, buffer.memory)


def test_slices_share_the_memory() -> None:
    buffer = Buffer.of(bytes(range(16)))
    part = buffer.slice(4, 8)
    assert part.memory is buffer.memory
    assert part.address == buffer.address + 4
    assert part.slice(2).to_bytes() == bytes(range(6, 12))
    assert part.slice(8).size == 0
    for offset, size in ((-1, 2), (0, 9), (9, None), (2, -1)):
        with pytest.raises(InvalidArgumentError, match="out of range for a buffer of 8 bytes"):
            part.slice(offset, size)


@pytest.mark.parametrize("offset", [0, 1, 4, 7])
def test_views_are_typed_at_any_alignment_without_copying(offset: int) -> None:
    data = np.arange(10, dtype=INT32)
    buffer = Buffer.of(b"." * offset + data.tobytes()).slice(offset)
    assert buffer.view(INT32).tolist() == data.tolist()
    part = buffer.view(INT32, 3, 4)
    assert part.tolist() == [3, 4, 5, 6]
    assert part.__array_interface__["data"][0] == buffer.address + 12
    assert buffer.view(INT32, 10, 0).size == 0
    assert not part.flags.writeable


def test_views_must_have_whole_elements() -> None:
    buffer = Buffer.of(bytes(11))
    assert buffer.view(INT32).size == 2
    assert buffer.view(np.dtype("V0"), 0, 5).size == 5
    for start, count in ((0, 3), (2, 1), (-1, 1), (3, -1), (0, 1 << 62)):
        with pytest.raises(InvalidDataError, match="out of range for a buffer of 11 bytes"):
            buffer.view(INT32, start, count)


def test_a_view_keeps_the_owner_alive_and_a_mapping_open(tmp_path: Path) -> None:
    path = tmp_path / "bytes"
    path.write_bytes(bytes(range(64)))
    with path.open("rb") as file:
        mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    alive = weakref.ref(mapping)
    view = Buffer.of(mapping).view(INT32, 1, 2)
    del mapping
    gc.collect()
    assert alive() is not None
    assert view.tobytes() == bytes(range(4, 12))
    del view
    gc.collect()
    assert alive() is None


def test_equality_is_by_bytes() -> None:
    assert Buffer.of(b"abc") == Buffer.of(b"xabc").slice(1)
    assert Buffer.of(b"abc") != Buffer.of(b"abd")
    assert Buffer.of(b"abc") != Buffer.of(b"ab")
    assert Buffer.of(b"abc") != b"abc"
    assert EMPTY.to_bytes() == b""
    assert "3 bytes at 0x" in repr(Buffer.of(b"abc"))


def test_numpy_reads_a_buffer() -> None:
    buffer = Buffer.of(b"abc")
    assert np.asarray(buffer).__array_interface__["data"][0] == buffer.address
    assert np.array(buffer, np.int64).tolist() == [97, 98, 99]


@pytest.mark.parametrize(
    "owner",
    [np.arange(10)[::2], np.zeros((4, 4), order="F")[:2], np.array([None])],
    ids=["strided", "columns", "objects"],
)
def test_memory_that_is_not_contiguous_is_rejected(owner: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="contiguous"):
        Buffer.of(owner)


def test_allocations_are_zeroed_writable_and_aligned() -> None:
    assert allocate(0).size == 0
    for size in (1, 63, 64, 1000):
        memory = allocate(size)
        assert memory.size == size
        assert not memory.any()
        assert memory.__array_interface__["data"][0] % ALIGNMENT_BYTES == 0
        memory[:] = 1


def test_typed_views_of_one_memory_are_cached() -> None:
    memory = Memory(bytes(64))
    first, second = Buffer(memory, 0, 32), Buffer(memory, 32, 32)
    assert first.view(INT32).base is second.view(INT32).base
    assert memory.size == 64

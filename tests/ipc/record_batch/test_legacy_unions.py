"""Unions of metadata version 4 with a validity bitmap: reading moves their nulls into the children."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import bowstring as bs
from bowstring import errors
from tests.ipc import samples

VERSION_4 = bs.ipc.IpcWriteOptions(metadata_version="V4")
TYPES = {
    "sparse": bs.sparse_union({"i": bs.int32(), "s": bs.string()}),
    "dense": bs.dense_union({"i": bs.int32(), "s": bs.string()}),
}
MODES = pytest.mark.parametrize("mode", TYPES)
WRITE_OPTIONS = pytest.mark.parametrize(
    "write_options", [VERSION_4, replace(VERSION_4, byte_order="big")], ids=["little", "big"]
)


def file_with_validity(union: bs.Array, bits: int, write_options: bs.ipc.IpcWriteOptions = VERSION_4) -> bytes:
    """Return a file whose column "u" is the union with a validity bitmap, which current writers do not produce."""
    columns = [bs.array([bits] * union.length, bs.uint8()), union]
    data = bytearray(samples.as_file(bs.RecordBatch.from_arrays(columns, ["bits", "u"]), options=write_options))
    reader = bs.open_file(bytes(data))
    header, _ = reader.read_batch_message(0)
    at = int(reader.blocks["offset"][0])
    spans, nulls = header.buffers(), union.length - (bits & ((1 << union.length) - 1)).bit_count()
    struct.pack_into("<q", data, at + header.template.nodes_at + 16 + 8, nulls)
    struct.pack_into("<qq", data, at + header.template.buffers_at + 32, *spans[1].tolist())
    return bytes(data)


@MODES
@WRITE_OPTIONS
def test_nulls_of_a_union_move_into_its_children(mode: str, write_options: bs.ipc.IpcWriteOptions) -> None:
    values: list[Any] = [1, "two", 3, "four", None]
    data = file_with_validity(bs.array(values, TYPES[mode]), 0b11001, write_options)
    column = bs.open_file(data)[0].column("u")
    column.validate(full=True)
    assert column.to_pylist() == [1, None, None, "four", None]


@MODES
@WRITE_OPTIONS
def test_nulls_of_a_union_move_into_children_of_any_kind(mode: str, write_options: bs.ipc.IpcWriteOptions) -> None:
    kinds = {"v": bs.string_view(), "m": bs.month_day_nano_interval(), "d": bs.dictionary(bs.int16(), bs.string())}
    long = "longer than the bytes inside a view"
    children = [
        bs.array([long, "b"], kinds["v"]),
        bs.array([(1, 2, 3), (4, 5, 6)], kinds["m"]),
        bs.array([long, "d"], kinds["d"]),
    ]
    if mode == "sparse":
        children = [child.take([0, 0, 0, 1, 1, 1]) for child in children]
    buffers: list[Any] = [np.array([0, 1, 2] * 2, np.int8), np.array([0, 0, 0, 1, 1, 1], np.int32)]
    type_ = bs.dense_union(kinds) if mode == "dense" else bs.sparse_union(kinds)
    union = bs.Array.from_buffers(type_, 6, buffers if mode == "dense" else buffers[:1], children)
    for bits in (0b101010, 0b010101, 0b000111):
        column = bs.open_file(file_with_validity(union, bits, write_options))[0].column("u")
        column.validate(full=True)
        expected = [value if bits >> slot & 1 else None for slot, value in enumerate(union.to_pylist())]
        assert column.to_pylist() == expected


@MODES
@WRITE_OPTIONS
def test_a_union_that_is_all_null_is_read(mode: str, write_options: bs.ipc.IpcWriteOptions) -> None:
    column = bs.open_file(file_with_validity(bs.array([1, "x"], TYPES[mode]), 0, write_options))[0].column("u")
    column.validate(full=True)
    assert column.to_pylist() == [None, None]


@MODES
def test_only_type_ids_of_valid_slots_are_checked(mode: str) -> None:
    data = file_with_validity(bs.array([1, "two"], TYPES[mode]), 0b10)
    batch = bs.open_file(data)
    header, body = batch.read_batch_message(0)
    ids_at = body.offset + int(header.buffers()["offset"][3])
    under_null, under_value = bytearray(data), bytearray(data)
    under_null[ids_at] = 99
    under_value[ids_at + 1] = 99
    assert bs.open_file(bytes(under_null))[0].column("u").to_pylist() == [None, "two"]
    with pytest.raises(errors.InvalidDataError, match=r"column .u.: type_ids\[1\] = 99"):
        bs.open_file(bytes(under_value))[0].column("u")


def test_a_too_short_bitmap_is_rejected() -> None:
    data = file_with_validity(bs.array([1] * 20, TYPES["sparse"]), 0b1)
    with_bits = bytearray(data)
    reader = bs.open_file(data)
    header, _ = reader.read_batch_message(0)
    at = int(reader.blocks["offset"][0]) + header.template.buffers_at + 32
    struct.pack_into("<q", with_bits, at + 8, 2)
    with pytest.raises(errors.InvalidDataError, match="the bitmap has 2 bytes"):
        bs.open_file(bytes(with_bits))[0].column("u")

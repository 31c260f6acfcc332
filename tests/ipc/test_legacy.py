"""Unions of metadata version 4 with a validity bitmap of their own: their nulls are in the children afterwards."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import bowstring as bs
from bowstring import errors
from tests.ipc import samples

LEGACY = bs.IpcWriteOptions(metadata_version="V4")
TYPES = {
    "sparse": bs.sparse_union({"i": bs.int32(), "s": bs.string()}),
    "dense": bs.dense_union({"i": bs.int32(), "s": bs.string()}),
}
MODES = pytest.mark.parametrize("mode", TYPES)
FORMS = pytest.mark.parametrize("form", [LEGACY, replace(LEGACY, byte_order="big")], ids=["little", "big"])


def with_own_nulls(union: bs.Array, bits: int, form: bs.IpcWriteOptions = LEGACY) -> bytes:
    """A file whose column "u" is the union with a validity bitmap; no writer of today makes one."""
    columns = [bs.array([bits] * union.length, bs.uint8()), union]
    data = bytearray(samples.as_file(bs.RecordBatch.from_arrays(columns, ["bits", "u"]), options=form))
    reader = bs.open_file(bytes(data))
    header, _ = reader.read_batch_message(0)
    at = int(reader.blocks["offset"][0])
    spans, nulls = header.buffers(), union.length - (bits & ((1 << union.length) - 1)).bit_count()
    struct.pack_into("<q", data, at + header.template.nodes_at + 16 + 8, nulls)
    struct.pack_into("<qq", data, at + header.template.buffers_at + 32, *spans[1].tolist())
    return bytes(data)


@MODES
@FORMS
def test_nulls_of_a_union_move_into_its_children(mode: str, form: bs.IpcWriteOptions) -> None:
    values: list[Any] = [1, "two", 3, "four", None]
    data = with_own_nulls(bs.array(values, TYPES[mode]), 0b11001, form)
    column = bs.open_file(data)[0].column("u")
    column.validate(full=True)
    assert column.to_pylist() == [1, None, None, "four", None]


@MODES
@FORMS
def test_nulls_of_a_union_move_into_children_of_any_kind(mode: str, form: bs.IpcWriteOptions) -> None:
    kinds = {"v": bs.string_view(), "m": bs.month_day_nano_interval(), "d": bs.dictionary(bs.int16(), bs.string())}
    long = "longer than a view has room for"
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
        column = bs.open_file(with_own_nulls(union, bits, form))[0].column("u")
        column.validate(full=True)
        wanted = [value if bits >> slot & 1 else None for slot, value in enumerate(union.to_pylist())]
        assert column.to_pylist() == wanted


@MODES
@FORMS
def test_a_union_that_is_all_null_is_read(mode: str, form: bs.IpcWriteOptions) -> None:
    column = bs.open_file(with_own_nulls(bs.array([1, "x"], TYPES[mode]), 0, form))[0].column("u")
    column.validate(full=True)
    assert column.to_pylist() == [None, None]


@MODES
def test_the_type_id_under_a_null_does_not_count_and_that_of_a_value_does(mode: str) -> None:
    data = with_own_nulls(bs.array([1, "two"], TYPES[mode]), 0b10)
    batch = bs.open_file(data)
    header, body = batch.read_batch_message(0)
    ids_at = body.offset + int(header.buffers()["offset"][3])
    under_null, under_value = bytearray(data), bytearray(data)
    under_null[ids_at] = 99
    under_value[ids_at + 1] = 99
    assert bs.open_file(bytes(under_null))[0].column("u").to_pylist() == [None, "two"]
    with pytest.raises(errors.InvalidDataError, match=r"column .u.: type_ids\[1\] = 99"):
        bs.open_file(bytes(under_value))[0].column("u")


def test_a_bitmap_that_is_too_short_is_told() -> None:
    data = with_own_nulls(bs.array([1] * 20, TYPES["sparse"]), 0b1)
    with_bits = bytearray(data)
    reader = bs.open_file(data)
    header, _ = reader.read_batch_message(0)
    at = int(reader.blocks["offset"][0]) + header.template.buffers_at + 32
    struct.pack_into("<q", with_bits, at + 8, 2)
    with pytest.raises(errors.InvalidDataError, match="the bitmap has 2 bytes"):
        bs.open_file(bytes(with_bits))[0].column("u")

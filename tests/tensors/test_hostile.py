"""Tensor messages from outside: whatever they say, a clean error or a sound tensor, in bounded memory."""

from __future__ import annotations

import io
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bowstring as bs
from bowstring.errors import BowstringError, InvalidDataError, LimitError, TruncatedError
from bowstring.flatbuf.tables import HEADERS, SPARSE_INDEXES, SPECS, TYPES
from bowstring.flatbuf.writer import UnionValue, build
from bowstring.ipc.message import frame_message
from tests.peak_memory import peak_bytes, reset_peak

INT64 = UnionValue("Int", {"bitWidth": 64, "is_signed": True})
LONG = {"bitWidth": 64, "is_signed": True}
BODY = np.arange(16, dtype=np.int64).tobytes()


def message(kind: str, record: dict[str, Any], body: bytes = BODY, body_bytes: int | None = None) -> bytes:
    typed = {"type_type": TYPES.index("Int"), "type": INT64, "data": (0, 16), **record}
    sizes = typed.pop("sizes", [2])
    if sizes is not None:
        typed["shape"] = [{"size": size} for size in sizes]
    outer = {
        "version": 4,
        "header_type": HEADERS.index(kind),
        "header": UnionValue(kind, typed),
        "bodyLength": len(body) if body_bytes is None else body_bytes,
    }
    return frame_message(build(SPECS, "Message", outer)) + body


def sparse(kind: str, index: dict[str, Any], **record: Any) -> bytes:
    said = {
        "non_zero_length": 2,
        "sparseIndex_type": SPARSE_INDEXES.index(kind),
        "sparseIndex": UnionValue(kind, index),
        **record,
    }
    return message("SparseTensor", said)


COO, CSX, CSF = SPARSE_INDEXES[1:]
FIBERS = {
    "indptrType": LONG,
    "indptrBuffers": [(0, 2)],
    "indicesType": LONG,
    "indicesBuffers": [(0, 1), (0, 2)],
    "axisOrder": [0, 1],
}
ROWS = {
    "indptrType": LONG,
    "indptrBuffer": (0, 24),
    "indicesType": LONG,
    "indicesBuffer": (0, 16),
}


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"sizes": [-1]}, "found -1"),
        ({"sizes": [1 << 62, 1 << 62]}, "overflows 63 bits"),
        ({"sizes": [1 << 62, 0, 1 << 62]}, "overflows 63 bits"),
        ({"sizes": [1] * 65}, "65 dimensions"),
        ({"sizes": [3]}, "needs 24 bytes, the buffer has 16"),
        ({"strides": [-8]}, "found -8"),
        ({"strides": [1 << 62]}, "needs 4611686018427387912 bytes"),
        ({"strides": [8, 8]}, "expected 1 strides, found 2"),
        ({"sizes": [3], "strides": [0]}, "overlap in"),
        ({"data": (120, 16)}, "exceed the body of 128 bytes"),
        ({"data": (-8, 16)}, "exceed the body"),
        ({"data": (8, -8)}, "exceed the body"),
        ({"data": ((1 << 63) - 1, 16)}, "exceed the body"),
        ({"data": None}, "has no data"),
        ({"sizes": None}, "has no shape"),
        ({"type": None, "type_type": 0}, "has no type"),
        ({"type": UnionValue("Int", {"bitWidth": 7})}, "bit width"),
        ({"type": UnionValue("Utf8", {}), "type_type": TYPES.index("Utf8")}, "found string"),
        ({"type_type": 99}, "type 99"),
    ],
)
def test_a_dense_header_that_lies_is_refused(record: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidDataError, match=said):
        bs.read_tensor(message("Tensor", record))


@pytest.mark.parametrize(
    ("held", "said"),
    [
        (sparse(COO, {"indicesType": LONG, "indicesBuffer": (0, 8)}), "needs 16 bytes, the buffer has 8"),
        (sparse(COO, {"indicesType": LONG}), "has no indicesBuffer"),
        (sparse(COO, {"indicesType": {"bitWidth": 3}, "indicesBuffer": (0, 16)}), "bit width"),
        (
            sparse(COO, {"indicesType": LONG, "indicesBuffer": (0, 16), "indicesStrides": [-8, 8]}),
            "found -8",
        ),
        (sparse(COO, {"indicesType": LONG, "indicesBuffer": (0, 16)}, non_zero_length=-1), "found -1"),
        (sparse(COO, {"indicesType": LONG, "indicesBuffer": (0, 16)}, non_zero_length=1 << 62), "too few for"),
        (sparse(COO, {"indicesType": LONG, "indicesBuffer": (0, 16)}, sizes=[-5]), "found -5"),
        (sparse(CSX, ROWS), "two dimensions, not 1"),
        (sparse(CSX, {**ROWS, "compressedAxis": 2}, sizes=[2, 2]), "compressed axis 2"),
        (sparse(CSX, {**ROWS, "compressedAxis": -1}, sizes=[2, 2]), "compressed axis -1"),
        (sparse(CSX, ROWS, sizes=[1 << 62, 2]), "too few for"),
        (sparse(CSX, {**ROWS, "indicesBuffer": (0, 8)}, sizes=[2, 2]), "too few for 2 elements"),
        (sparse(CSF, FIBERS), "1 dimensions with 1 arrays of pointers"),
        (sparse(CSF, {**FIBERS, "indicesBuffers": [(0, 1), (0, 3)]}, sizes=[2, 2]), "expected 2 elements"),
        (sparse(CSF, {**FIBERS, "indicesBuffers": [(0, 1 << 60), (0, 2)]}, sizes=[2, 2]), "exceed the body"),
        (sparse(CSF, {**FIBERS, "indicesBuffers": [(0, -1), (0, 2)]}, sizes=[2, 2]), "exceed the body"),
        (sparse(CSF, {**FIBERS, "indptrBuffers": [(0, 5)]}, sizes=[2, 2]), "indptr: expected 2 elements"),
        (sparse(CSF, {**FIBERS, "axisOrder": [0, 7]}, sizes=[2, 2]), "not a permutation"),
        (sparse(CSF, FIBERS, sparseIndex_type=9, sizes=[2, 2]), "unknown sparse index type 9"),
        (sparse(CSF, FIBERS, sparseIndex=None, sizes=[2, 2]), "has no sparseIndex"),
    ],
)
def test_a_sparse_header_that_lies_is_refused(held: bytes, said: str) -> None:
    with pytest.raises(InvalidDataError, match=said):
        bs.read_tensor(held)


def test_full_validation_looks_at_every_index() -> None:
    far = bs.read_tensor(sparse(COO, {"indicesType": LONG, "indicesBuffer": (64, 16)}))
    far.validate()
    with pytest.raises(InvalidDataError, match="= 8 is not from 0 to 1"):
        far.validate(full=True)
    with pytest.raises(InvalidDataError, match="is not from 0 to 1"):
        far.to_tensor()  # type: ignore[union-attr]
    falling = bs.read_tensor(sparse(CSX, {**ROWS, "indptrBuffer": (8, 24)}, sizes=[2, 9]))
    with pytest.raises(InvalidDataError, match="indptr: expected values from 0 to 2, found 1 to 3"):
        falling.validate(full=True)


def test_fibers_by_the_words_of_the_specification_are_read_too() -> None:
    in_bytes = {**FIBERS, "indptrBuffers": [(0, 16)], "indicesBuffers": [(0, 8), (0, 16)]}
    held = np.array([0, 2, 7, 9], np.int64).tobytes()
    places = {**in_bytes, "indicesBuffers": [(0, 8), (16, 16)]}
    said = {
        "non_zero_length": 2,
        "sparseIndex_type": 3,
        "sparseIndex": UnionValue(CSF, places),
        "sizes": [1, 10],
        "data": (16, 16),
    }
    tensor = bs.read_tensor(message("SparseTensor", said, held))
    tensor.validate(full=True)
    assert tensor.to_tensor().to_numpy().tolist() == [[0] * 7 + [7, 0, 9]]  # type: ignore[union-attr]


def test_lengths_that_claim_too_much_cost_nothing() -> None:
    reset_peak()
    before = peak_bytes()
    with pytest.raises(TruncatedError, match="expected 4294967296 bytes of a body"):
        bs.read_tensor(io.BufferedReader(io.BytesIO(message("Tensor", {}, body_bytes=1 << 32))))
    with pytest.raises(LimitError, match="more than the limit"):
        bs.read_tensor(message("Tensor", {}, body_bytes=1 << 62))
    with pytest.raises(InvalidDataError, match="body length of 0 or more"):
        bs.read_tensor(message("Tensor", {}, body_bytes=-1))
    with pytest.raises(LimitError, match="bytes of metadata"):
        bs.read_tensor(b"\xff\xff\xff\xff" + struct.pack("<i", 0x7FFFFFF0))
    assert peak_bytes() - before < 200 << 20


def samples() -> dict[str, bytes]:
    dense = np.array([[0, 1, 2], [0, 0, 0], [3, 0, 4]], np.int32)
    tensors: list[Any] = [bs.Tensor.from_numpy(dense.T, ["a", "b"])]
    kinds: list[Any] = [bs.SparseCOOTensor, bs.SparseCSRMatrix, bs.SparseCSCMatrix, bs.SparseCSFTensor]
    tensors += [kind.from_dense_numpy(dense, ["a", "b"]) for kind in kinds]
    held = {}
    for tensor in tensors:
        sink = io.BytesIO()
        bs.write_tensor(tensor, sink, alignment=8)
        held[type(tensor).__name__] = sink.getvalue()
    return held


SAMPLES = samples()


def use(held: bytes) -> None:
    try:
        tensor = bs.read_tensor(held)
        tensor.validate(full=True)
        if isinstance(tensor, bs.Tensor):
            assert tensor.nbytes <= len(held)
            tensor.to_numpy().sum()
        else:
            tensor.to_tensor(max_bytes=1 << 20)
    except BowstringError:
        pass


@pytest.mark.parametrize("name", SAMPLES)
def test_a_message_cut_anywhere_is_told(name: str) -> None:
    held = SAMPLES[name]
    bs.read_tensor(held)
    for size in range(len(held)):
        with pytest.raises(InvalidDataError):
            bs.read_tensor(held[:size])


@pytest.mark.parametrize("name", SAMPLES)
def test_flipped_bits_give_an_error_or_a_sound_tensor(name: str) -> None:
    chance = random.Random(7)
    held = SAMPLES[name]
    for at in range(len(held)):
        for _ in range(4):
            damaged = bytearray(held)
            damaged[at] ^= 1 << chance.randrange(8)
            if chance.random() < 0.3:
                damaged[chance.randrange(len(held))] = chance.choice([0, 0x7F, 0x80, 0xFF])
            use(bytes(damaged))


def test_what_fuzzers_found_in_arrow_is_refused(shared_folder: Path) -> None:
    files = sorted((shared_folder / "corpus" / "fuzz" / "tensor-stream").iterdir())
    assert files
    for file in files:
        with pytest.raises(BowstringError):
            list(bs.open_tensors(file))
        use(file.read_bytes())

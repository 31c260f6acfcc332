"""Malformed tensor messages give a Bowstring error or a valid tensor in bounded memory."""

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
from bowstring.flatbuf.tables import DEFINITIONS, HEADERS, SPARSE_INDEXES, TYPES
from bowstring.flatbuf.writer import UnionValue, build_flatbuffer
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
    return frame_message(build_flatbuffer(DEFINITIONS, "Message", outer)) + body


def sparse_message(kind: str, index: dict[str, Any], **record: Any) -> bytes:
    index_fields = {
        "non_zero_length": 2,
        "sparseIndex_type": SPARSE_INDEXES.index(kind),
        "sparseIndex": UnionValue(kind, index),
        **record,
    }
    return message("SparseTensor", index_fields)


COO, CSX, CSF = SPARSE_INDEXES[1:]
CSF_INDEX = {
    "indptrType": LONG,
    "indptrBuffers": [(0, 2)],
    "indicesType": LONG,
    "indicesBuffers": [(0, 1), (0, 2)],
    "axisOrder": [0, 1],
}
CSR_INDEX = {
    "indptrType": LONG,
    "indptrBuffer": (0, 24),
    "indicesType": LONG,
    "indicesBuffer": (0, 16),
}


@pytest.mark.parametrize(
    ("record", "pattern"),
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
        ({"data": None}, "Tensor.data is required"),
        ({"sizes": None}, "Tensor.shape is required"),
        ({"type": None, "type_type": 0}, "Tensor.type is required"),
        ({"type": UnionValue("Int", {"bitWidth": 7})}, "bit width"),
        ({"type": UnionValue("Utf8", {}), "type_type": TYPES.index("Utf8")}, "found string"),
        ({"type_type": 99}, "type_type below 27, found 99"),
    ],
)
def test_an_invalid_dense_header_is_rejected(record: dict[str, Any], pattern: str) -> None:
    with pytest.raises(InvalidDataError, match=pattern):
        bs.tensors.read_tensor(message("Tensor", record))


@pytest.mark.parametrize(
    ("content", "pattern"),
    [
        (sparse_message(COO, {"indicesType": LONG, "indicesBuffer": (0, 8)}), "needs 16 bytes, the buffer has 8"),
        (sparse_message(COO, {"indicesType": LONG}), "indicesBuffer is required"),
        (sparse_message(COO, {"indicesType": {"bitWidth": 3}, "indicesBuffer": (0, 16)}), "bit width"),
        (
            sparse_message(COO, {"indicesType": LONG, "indicesBuffer": (0, 16), "indicesStrides": [-8, 8]}),
            "found -8",
        ),
        (sparse_message(COO, {"indicesType": LONG, "indicesBuffer": (0, 16)}, non_zero_length=-1), "found -1"),
        (sparse_message(COO, {"indicesType": LONG, "indicesBuffer": (0, 16)}, non_zero_length=1 << 62), "too few for"),
        (sparse_message(COO, {"indicesType": LONG, "indicesBuffer": (0, 16)}, sizes=[-5]), "found -5"),
        (sparse_message(CSX, CSR_INDEX), "two dimensions, not 1"),
        (sparse_message(CSX, {**CSR_INDEX, "compressedAxis": 2}, sizes=[2, 2]), "compressed axis 2"),
        (sparse_message(CSX, {**CSR_INDEX, "compressedAxis": -1}, sizes=[2, 2]), "compressed axis -1"),
        (sparse_message(CSX, CSR_INDEX, sizes=[1 << 62, 2]), "too few for"),
        (sparse_message(CSX, {**CSR_INDEX, "indicesBuffer": (0, 8)}, sizes=[2, 2]), "too few for 2 elements"),
        (sparse_message(CSF, CSF_INDEX), "1 dimensions with 1 arrays of pointers"),
        (sparse_message(CSF, {**CSF_INDEX, "indicesBuffers": [(0, 1), (0, 3)]}, sizes=[2, 2]), "expected 2 elements"),
        (sparse_message(CSF, {**CSF_INDEX, "indicesBuffers": [(0, 1 << 60), (0, 2)]}, sizes=[2, 2]), "exceed the body"),
        (sparse_message(CSF, {**CSF_INDEX, "indicesBuffers": [(0, -1), (0, 2)]}, sizes=[2, 2]), "exceed the body"),
        (sparse_message(CSF, {**CSF_INDEX, "indptrBuffers": [(0, 5)]}, sizes=[2, 2]), "indptr: expected 2 elements"),
        (sparse_message(CSF, {**CSF_INDEX, "axisOrder": [0, 7]}, sizes=[2, 2]), "not a permutation"),
        (sparse_message(CSF, CSF_INDEX, sparseIndex_type=9, sizes=[2, 2]), "sparseIndex_type below 4, found 9"),
        (sparse_message(CSF, CSF_INDEX, sparseIndex=None, sizes=[2, 2]), "sparseIndex is required"),
    ],
)
def test_an_invalid_sparse_header_is_rejected(content: bytes, pattern: str) -> None:
    with pytest.raises(InvalidDataError, match=pattern):
        bs.tensors.read_tensor(content)


def test_full_validation_checks_every_index() -> None:
    far = bs.tensors.read_tensor(sparse_message(COO, {"indicesType": LONG, "indicesBuffer": (64, 16)}))
    far.validate()
    with pytest.raises(InvalidDataError, match="= 8 is not from 0 to 1"):
        far.validate(full=True)
    with pytest.raises(InvalidDataError, match="is not from 0 to 1"):
        far.to_tensor()  # type: ignore[union-attr]
    falling = bs.tensors.read_tensor(sparse_message(CSX, {**CSR_INDEX, "indptrBuffer": (8, 24)}, sizes=[2, 9]))
    with pytest.raises(InvalidDataError, match="indptr: expected values from 0 to 2, found 1 to 3"):
        falling.validate(full=True)


def test_fibers_with_the_buffers_of_the_specification_s_text_are_read() -> None:
    in_bytes = {**CSF_INDEX, "indptrBuffers": [(0, 16)], "indicesBuffers": [(0, 8), (0, 16)]}
    offsets = np.array([0, 2, 7, 9], np.int64).tobytes()
    places = {**in_bytes, "indicesBuffers": [(0, 8), (16, 16)]}
    index_fields = {
        "non_zero_length": 2,
        "sparseIndex_type": 3,
        "sparseIndex": UnionValue(CSF, places),
        "sizes": [1, 10],
        "data": (16, 16),
    }
    tensor = bs.tensors.read_tensor(message("SparseTensor", index_fields, offsets))
    tensor.validate(full=True)
    assert tensor.to_tensor().to_numpy().tolist() == [[0] * 7 + [7, 0, 9]]  # type: ignore[union-attr]


def test_excessive_lengths_take_no_memory() -> None:
    reset_peak()
    before = peak_bytes()
    with pytest.raises(TruncatedError, match="expected 4294967296 bytes of a body"):
        bs.tensors.read_tensor(io.BufferedReader(io.BytesIO(message("Tensor", {}, body_bytes=1 << 32))))
    with pytest.raises(LimitError, match="exceeds the limit"):
        bs.tensors.read_tensor(message("Tensor", {}, body_bytes=1 << 62))
    with pytest.raises(InvalidDataError, match="body length of 0 or more"):
        bs.tensors.read_tensor(message("Tensor", {}, body_bytes=-1))
    with pytest.raises(LimitError, match="bytes of metadata"):
        bs.tensors.read_tensor(b"\xff\xff\xff\xff" + struct.pack("<i", 0x7FFFFFF0))
    assert peak_bytes() - before < 200 << 20


def samples() -> dict[str, bytes]:
    dense = np.array([[0, 1, 2], [0, 0, 0], [3, 0, 4]], np.int32)
    tensors: list[Any] = [bs.tensors.Tensor.from_numpy(dense.T, ["a", "b"])]
    kinds: list[Any] = [
        bs.tensors.SparseCOOTensor,
        bs.tensors.SparseCSRMatrix,
        bs.tensors.SparseCSCMatrix,
        bs.tensors.SparseCSFTensor,
    ]
    tensors += [kind.from_dense_numpy(dense, ["a", "b"]) for kind in kinds]
    messages = {}
    for tensor in tensors:
        sink = io.BytesIO()
        bs.tensors.write_tensor(tensor, sink, alignment=8)
        messages[type(tensor).__name__] = sink.getvalue()
    return messages


SAMPLES = samples()


def read_and_validate(content: bytes) -> None:
    try:
        tensor = bs.tensors.read_tensor(content)
        tensor.validate(full=True)
        if isinstance(tensor, bs.tensors.Tensor):
            assert tensor.nbytes <= len(content)
            tensor.to_numpy().sum()
        else:
            tensor.to_tensor(max_bytes=1 << 20)
    except BowstringError:
        pass


@pytest.mark.parametrize("name", SAMPLES)
def test_truncation_at_any_byte_is_an_error(name: str) -> None:
    content = SAMPLES[name]
    bs.tensors.read_tensor(content)
    for size in range(len(content)):
        with pytest.raises(InvalidDataError):
            bs.tensors.read_tensor(content[:size])


@pytest.mark.parametrize("name", SAMPLES)
def test_flipped_bits_give_an_error_or_a_valid_tensor(name: str) -> None:
    chance = random.Random(7)
    content = SAMPLES[name]
    for at in range(len(content)):
        for _ in range(4):
            damaged = bytearray(content)
            damaged[at] ^= 1 << chance.randrange(8)
            if chance.random() < 0.3:
                damaged[chance.randrange(len(content))] = chance.choice([0, 0x7F, 0x80, 0xFF])
            read_and_validate(bytes(damaged))


def test_fuzzer_findings_of_arrow_cpp_are_rejected(shared_folder: Path) -> None:
    files = sorted((shared_folder / "corpus" / "fuzz" / "tensor-stream").iterdir())
    assert files
    for file in files:
        with pytest.raises(BowstringError):
            list(bs.tensors.open_tensor_stream(file))
        read_and_validate(file.read_bytes())

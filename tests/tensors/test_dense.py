"""Dense tensors: exchange with NumPy without copying, messages with every order of strides, compared with pyarrow."""

from __future__ import annotations

import io
import socket
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

import bowstring as bs
from bowstring.errors import (
    ClosedError,
    FormatMismatchError,
    InvalidArgumentError,
    InvalidDataError,
    TruncatedError,
    UnsupportedError,
    UnsupportedTypeError,
)

CUBE = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
DTYPES = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"]


def to_bytes(tensor: Any, **options: Any) -> bytes:
    sink = io.BytesIO()
    assert bs.tensors.write_tensor(tensor, sink, **options) == len(sink.getvalue())
    return sink.getvalue()


def encode_with_pyarrow(values: np.ndarray[Any, Any], names: list[str] | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    pa.ipc.write_tensor(pa.Tensor.from_numpy(values, dim_names=names), sink)
    return bytes(sink.getvalue())


def shares_memory(left: Any, right: Any) -> bool:
    return np.shares_memory(np.asarray(left), np.asarray(right))


ARRAYS = hnp.arrays(st.sampled_from(DTYPES), hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)).flatmap(
    lambda a: st.permutations(range(a.ndim)).map(a.transpose)
)


@given(ARRAYS)
def test_tensors_are_exchanged_with_pyarrow_in_any_order_of_dimensions(values: np.ndarray[Any, Any]) -> None:
    tensor = bs.tensors.Tensor.from_numpy(values)
    tensor.validate(full=True)
    assert np.array_equal(tensor.to_numpy(), values, equal_nan=True)
    content = to_bytes(tensor)
    assert bs.tensors.read_tensor(content).equals(tensor, nans_equal=True)
    pyarrow_tensor = pa.ipc.read_tensor(pa.BufferReader(content))
    assert np.array_equal(pyarrow_tensor.to_numpy(), values, equal_nan=True)
    bowstring_tensor = bs.tensors.read_tensor(encode_with_pyarrow(values))
    assert np.array_equal(bowstring_tensor.to_numpy(), values, equal_nan=True)
    assert bowstring_tensor.type == tensor.type


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_memory_is_shared_with_numpy_in_both_directions(order: tuple[int, ...]) -> None:
    values = CUBE.transpose(order)
    tensor = bs.tensors.Tensor.from_numpy(values)
    assert tensor.strides == values.strides
    assert shares_memory(tensor.to_numpy(), CUBE)
    assert not tensor.to_numpy().flags.writeable
    assert tensor.is_row_major == values.flags.c_contiguous
    assert tensor.is_column_major == values.flags.f_contiguous


def test_a_tensor_in_memory_is_read_without_copying() -> None:
    content = bytearray(to_bytes(bs.tensors.Tensor.from_numpy(CUBE)))
    tensor = bs.tensors.read_tensor(content)
    assert shares_memory(tensor.to_numpy(), np.frombuffer(content, np.uint8))


@pytest.mark.parametrize("values", [CUBE[:, ::2], CUBE[::-1], np.broadcast_to(CUBE[0], (5, 3, 4)), CUBE.astype(">i4")])
def test_strided_elements_are_copied_to_c_order(values: np.ndarray[Any, Any]) -> None:
    tensor = bs.tensors.Tensor.from_numpy(values)
    assert tensor.is_row_major
    assert not shares_memory(tensor.to_numpy(), values)
    assert bs.tensors.read_tensor(to_bytes(tensor)).to_numpy().tolist() == values.tolist()


def test_a_strided_tensor_is_written_contiguously() -> None:
    tensor = bs.tensors.Tensor.from_buffer(bs.int32(), CUBE, (2, 2), (48, 8))
    assert tensor.to_numpy().tolist() == [[0, 2], [12, 14]]
    back = bs.tensors.read_tensor(to_bytes(tensor))
    assert back.to_numpy().tolist() == [[0, 2], [12, 14]]
    assert isinstance(back, bs.tensors.Tensor)
    assert back.is_contiguous
    assert not tensor.is_contiguous


def test_dimension_names_are_preserved() -> None:
    tensor = bs.tensors.Tensor.from_numpy(CUBE, ["x", "y", "z"])
    content = to_bytes(tensor)
    assert bs.tensors.read_tensor(content).dim_names == ("x", "y", "z")
    assert bs.tensors.read_tensor(content).dim_name(1) == "y"
    assert pa.ipc.read_tensor(pa.BufferReader(content)).dim_names == ["x", "y", "z"]
    assert bs.tensors.read_tensor(encode_with_pyarrow(CUBE, ["x", "y", "z"])).equals(tensor)
    assert not bs.tensors.Tensor.from_numpy(CUBE).equals(tensor)
    assert bs.tensors.Tensor.from_numpy(CUBE).dim_name(2) == ""


@pytest.mark.parametrize("alignment", [8, 64])
def test_body_and_message_are_aligned(alignment: int) -> None:
    content = to_bytes(bs.tensors.Tensor.from_numpy(np.arange(3, dtype=np.int8)), alignment=alignment)
    assert len(content) % alignment == 0
    start = content.index(bytes([0, 1, 2]), len(content) - alignment)
    assert start % alignment == 0
    assert bs.tensors.get_tensor_size(bs.tensors.Tensor.from_numpy(np.arange(3, dtype=np.int8)), alignment) == len(
        content
    )


def test_timestamps_are_valid_elements() -> None:
    values = np.array([["2024-02-29", "NaT"]], "M8[us]")
    back = bs.tensors.read_tensor(to_bytes(bs.tensors.Tensor.from_numpy(values)))
    assert back.type == bs.timestamp("us")
    assert np.array_equal(back.to_numpy(), values, equal_nan=True)


@pytest.mark.parametrize("values", [np.array(["text"]), np.array([True]), np.array([None]), np.array([1j])])
def test_invalid_element_types_are_named(values: np.ndarray[Any, Any]) -> None:
    with pytest.raises(UnsupportedTypeError, match="tensor elements must be numbers"):
        bs.tensors.Tensor.from_numpy(values)


# Streams


def test_a_file_may_have_several_tensors(tmp_path: Path) -> None:
    path = tmp_path / "tensors"
    sparse = bs.tensors.SparseCSRMatrix.from_dense_numpy(np.eye(3))
    tensors: list[Any] = [bs.tensors.Tensor.from_numpy(np.arange(n, dtype=np.int8)) for n in (3, 0, 70)]
    with bs.tensors.new_tensor_stream(path) as writer:
        for tensor in (*tensors, sparse):
            assert writer.write(tensor) % 64 == 0
    assert path.read_bytes().endswith(b"\xff\xff\xff\xff\0\0\0\0")
    with bs.tensors.open_tensor_stream(path) as reader:
        assert list(reader) == [*tensors, sparse]
    with pytest.raises(ClosedError):
        next(reader)


def test_a_file_object_is_read_tensor_by_tensor(tmp_path: Path) -> None:
    first, second = bs.tensors.Tensor.from_numpy(CUBE), bs.tensors.Tensor.from_numpy(CUBE.T)
    for source in (io.BytesIO(), (tmp_path / "t").open("w+b")):
        with source:
            bs.tensors.write_tensor(first, source)
            bs.tensors.write_tensor(second, source)
            source.seek(0)
            assert bs.tensors.read_tensor(source).equals(first)
            assert bs.tensors.read_tensor(source).equals(second)
            with pytest.raises(TruncatedError, match="expected a tensor"):
                bs.tensors.read_tensor(source)


def test_files_of_several_tensors_are_exchanged_with_pyarrow() -> None:
    bowstring_tensor = b"".join(to_bytes(bs.tensors.Tensor.from_numpy(CUBE + n)) for n in range(3))
    source = pa.BufferReader(bowstring_tensor)
    assert [pa.ipc.read_tensor(source).to_numpy()[0, 0, 0] for _ in range(3)] == [0, 1, 2]
    pyarrow_tensor = b"".join(
        encode_with_pyarrow(np.full(3, n, np.int8)) for n in (1, 2, 3)
    )  # pyarrow does not pad the bodies
    assert [t.to_numpy().tolist() for t in bs.tensors.open_tensor_stream(pyarrow_tensor)] == [[1] * 3, [2] * 3, [3] * 3]


def test_padding_between_messages_is_skipped() -> None:
    one = encode_with_pyarrow(np.arange(3, dtype=np.int32))
    padded = one + bytes(-len(one) % 64)
    assert len(padded) > len(one)
    assert [t.to_numpy().tolist() for t in bs.tensors.open_tensor_stream(padded + one + b"\0\0\0\0")] == [[0, 1, 2]] * 2


def test_the_legacy_framing_is_read() -> None:
    content = to_bytes(bs.tensors.Tensor.from_numpy(CUBE))
    assert bs.tensors.read_tensor(content[4:]).to_numpy().tolist() == CUBE.tolist()


def test_a_socket_carries_tensors() -> None:
    left, right = socket.socketpair()
    with left, right:
        left.settimeout(20)
        right.settimeout(20)
        tensor = bs.tensors.Tensor.from_numpy(np.arange(200_000))
        sending = threading.Thread(target=lambda: [bs.tensors.write_tensor(tensor, left) for _ in range(2)])
        sending.start()
        tensors = [bs.tensors.read_tensor(right) for _ in range(2)]
        sending.join()
    assert tensors == [tensor, tensor]
    assert all(t.data.address % 64 == 0 for t in tensors if isinstance(t, bs.tensors.Tensor))


def test_a_path_appears_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "tensor"
    with pytest.raises(InvalidArgumentError, match="expected a tensor"):
        bs.tensors.write_tensor("no tensor", path)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
    bs.tensors.write_tensor(bs.tensors.Tensor.from_numpy(CUBE), path)
    assert bs.tensors.read_tensor(path).to_numpy().tolist() == CUBE.tolist()


# DLPack


def test_dlpack_copies_unless_copy_is_false() -> None:
    tensor = bs.tensors.Tensor.from_numpy(CUBE.T)
    assert tensor.__dlpack_device__() == (1, 0)
    shared, copied = np.from_dlpack(tensor, copy=False), np.from_dlpack(tensor)
    assert shares_memory(shared, CUBE)
    assert not shared.flags.writeable
    assert shared.tolist() == copied.tolist() == CUBE.T.tolist()
    assert not shares_memory(copied, CUBE)
    copied[...] = 7
    assert tensor.to_numpy().tolist() == CUBE.T.tolist()


class DlpackProducer:
    """An array of another library with only the DLPack protocol."""

    def __dlpack__(self, **options: Any) -> Any:
        return CUBE.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUBE.__dlpack_device__()


def test_a_tensor_is_imported_by_dlpack() -> None:
    assert shares_memory(bs.tensors.Tensor.from_numpy(DlpackProducer()).to_numpy(), CUBE)


def test_numpy_sees_a_tensor_as_an_array() -> None:
    tensor = bs.tensors.Tensor.from_numpy(CUBE)
    assert shares_memory(np.asarray(tensor), CUBE)
    assert not shares_memory(np.array(tensor), CUBE)
    assert np.asarray(tensor, np.float64).dtype == np.float64


# Invalid arguments


@pytest.mark.parametrize(
    ("shape", "strides", "pattern"),
    [
        ((5, 5), None, "needs 100 bytes, the buffer has 96"),
        ((2, 3), (48, -4), "found -4"),
        ((2, 3), (96, 4), "needs 108 bytes"),
        ((1,), (1 << 63,), "expected a stride"),
        ((1 << 40, 1 << 40), None, "overflows 63 bits|beyond 63 bits"),
        ((25,), (0,), "overlap in"),
        ((2,), (4, 4), "expected 1 strides, found 2"),
    ],
)
def test_a_shape_must_fit_the_memory(shape: Any, strides: Any, pattern: str) -> None:
    with pytest.raises(InvalidDataError, match=pattern):
        bs.tensors.Tensor.from_buffer(bs.int32(), CUBE, shape, strides)


def test_full_validation_finds_elements_that_overlap() -> None:
    tensor = bs.tensors.Tensor.from_buffer(bs.int32(), CUBE, (3, 3), (4, 4))
    tensor.validate()
    with pytest.raises(InvalidDataError, match="elements overlap"):
        tensor.validate(full=True)


def test_names_must_match_the_dimensions() -> None:
    with pytest.raises(InvalidArgumentError, match="expected 3 dimension names, found 2"):
        bs.tensors.Tensor.from_numpy(CUBE, ["x", "y"])
    with pytest.raises(InvalidArgumentError, match="no dimension 3"):
        bs.tensors.Tensor.from_numpy(CUBE).dim_name(3)


def test_other_formats_are_named(tmp_path: Path) -> None:
    with pytest.raises(FormatMismatchError, match="an Arrow file"):
        bs.tensors.read_tensor(b"ARROW1\0\0" + bytes(100))
    sink = io.BytesIO()
    with bs.new_stream(sink, bs.schema({"a": bs.int8()})):
        pass
    with pytest.raises(InvalidDataError, match="expected a Tensor or a SparseTensor, found a message of Schema"):
        bs.tensors.read_tensor(sink.getvalue())
    with pytest.raises(UnsupportedError, match="a stream of batches has no Tensor messages: use open_tensor_stream"):
        bs.open_stream(to_bytes(bs.tensors.Tensor.from_numpy(CUBE)))

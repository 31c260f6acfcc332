"""Sparse tensors: every kind of index, conversion to NumPy, SciPy and dense tensors, compared with Arrow C++."""

from __future__ import annotations

import io
import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

import bowstring as bs
from bowstring.errors import InvalidArgumentError, InvalidDataError, LimitError, TypeMismatchError, UnsupportedTypeError
from bowstring.flatbuf.tables import read_root
from tests.tensors.arrow_cpp_samples import CUBE, MATRIX, MESSAGES

KINDS: dict[str, Any] = {
    "coo": bs.tensors.SparseCOOTensor,
    "csr": bs.tensors.SparseCSRMatrix,
    "csc": bs.tensors.SparseCSCMatrix,
    "csf": bs.tensors.SparseCSFTensor,
}
DENSE_VALUES = {"coo": CUBE, "csf": CUBE, "csr": MATRIX, "csc": MATRIX}
EVERY_KIND = pytest.mark.parametrize("kind", KINDS)


def to_bytes(tensor: Any) -> bytes:
    sink = io.BytesIO()
    assert bs.tensors.write_tensor(tensor, sink) == len(sink.getvalue())
    return sink.getvalue()


@EVERY_KIND
def test_messages_of_arrow_cpp_are_read(kind: str) -> None:
    tensor = bs.tensors.read_tensor(MESSAGES[kind])
    tensor.validate(full=True)
    assert isinstance(tensor, KINDS[kind])
    assert np.array_equal(tensor.to_tensor().to_numpy(), DENSE_VALUES[kind])
    names = ["x", "y", "z"] if kind in ("coo", "csf") else None
    assert tensor.equals(KINDS[kind].from_dense_numpy(DENSE_VALUES[kind], names))
    again = bs.tensors.read_tensor(to_bytes(tensor))
    assert again.equals(tensor)


def metadata_of(message: bytes) -> dict[str, Any]:
    """Return the metadata of a sparse tensor's message without buffer offsets."""
    length = int.from_bytes(message[4:8], "little")
    table = read_root("Message", message[8 : 8 + length], "message")["header"]
    assert table is not None
    index = table["sparseIndex"]
    assert index is not None
    slots: dict[str, Any] = {"values": table["non_zero_length"]}
    slots["shape"] = [(dim["size"], dim["name"] or "") for dim in table["shape"]]
    for name in index.definition.slots:
        value = index[name]
        if name.endswith("Type"):
            slots[name] = value["bitWidth"], value["is_signed"]
        elif "Buffer" in name:
            slots[name] = value["length"].tolist()
        else:
            slots[name] = np.asarray(value).tolist()
    return slots


@EVERY_KIND
def test_metadata_equals_that_of_arrow_cpp(kind: str) -> None:
    names = ["x", "y", "z"] if kind in ("coo", "csf") else None
    assert metadata_of(to_bytes(KINDS[kind].from_dense_numpy(DENSE_VALUES[kind], names))) == metadata_of(MESSAGES[kind])


@st.composite
def sparse_arrays(draw: st.DrawFn, dims: tuple[int, int] = (1, 4)) -> np.ndarray[Any, Any]:
    shape = draw(hnp.array_shapes(min_dims=dims[0], max_dims=dims[1], min_side=0, max_side=4))
    values = draw(hnp.arrays(st.sampled_from(["i1", "u8", "f4"]), shape, elements=st.integers(0, 9)))
    values[draw(hnp.arrays(np.bool_, shape))] = 0
    return values


@given(st.sampled_from(["coo", "csf"]), sparse_arrays())
def test_tensors_of_any_dimensions_are_preserved_in_messages(kind: str, values: np.ndarray[Any, Any]) -> None:
    check_round_trip(kind, values)


@given(st.sampled_from(["csr", "csc"]), sparse_arrays((2, 2)))
def test_matrices_are_preserved_in_messages(kind: str, values: np.ndarray[Any, Any]) -> None:
    check_round_trip(kind, values)


def check_round_trip(kind: str, values: np.ndarray[Any, Any]) -> None:
    tensor = KINDS[kind].from_dense_numpy(values)
    assert tensor.non_zero_length == np.count_nonzero(values)
    back = bs.tensors.read_tensor(to_bytes(tensor))
    back.validate(full=True)
    assert isinstance(back, KINDS[kind])
    assert back.equals(tensor)
    assert np.array_equal(back.to_tensor().to_numpy(), values)
    assert KINDS[kind].from_tensor(bs.tensors.Tensor.from_numpy(values)).equals(tensor)


@EVERY_KIND
def test_the_indices_equal_those_of_pyarrow(kind: str) -> None:
    pyarrow_class = {
        "coo": pa.SparseCOOTensor,
        "csr": pa.SparseCSRMatrix,
        "csc": pa.SparseCSCMatrix,
        "csf": pa.SparseCSFTensor,
    }[kind]
    bowstring_tensor, pyarrow_tensor = (
        KINDS[kind].from_dense_numpy(DENSE_VALUES[kind]),
        pyarrow_class.from_dense_numpy(DENSE_VALUES[kind]),
    )
    for mine, other in zip(bowstring_tensor.to_numpy(), pyarrow_tensor.to_numpy(), strict=True):
        if isinstance(mine, tuple):
            assert [m.tolist() for m in mine] == [o.tolist() for o in other]
        else:
            assert mine.reshape(other.shape).tolist() == other.tolist()
    from_pyarrow = KINDS[kind].from_numpy(*pyarrow_tensor.to_numpy(), DENSE_VALUES[kind].shape)
    assert np.array_equal(from_pyarrow.to_tensor().to_numpy(), DENSE_VALUES[kind])


def test_memory_is_shared_with_numpy_in_both_directions() -> None:
    values, coords = np.array([1.0, 2.0]), np.array([[0, 1], [1, 0]], np.int16)
    tensor = bs.tensors.SparseCOOTensor.from_numpy(values, coords, (2, 2))
    assert np.shares_memory(tensor.to_numpy()[0], values)
    assert np.shares_memory(tensor.to_numpy()[1], coords)
    content = bytearray(to_bytes(tensor))
    back = bs.tensors.read_tensor(content)
    assert isinstance(back, bs.tensors.SparseCOOTensor)
    assert all(np.shares_memory(part, np.frombuffer(content, np.uint8)) for part in back.to_numpy())
    assert back.coords.dtype == np.int16


def test_coordinates_in_column_order_are_written_in_row_order() -> None:
    coords = np.asfortranarray([[0, 1], [1, 0], [1, 1]])
    tensor = bs.tensors.SparseCOOTensor.from_numpy([1, 2, 3], coords, (2, 2))
    assert np.shares_memory(tensor.coords, coords)
    back = bs.tensors.read_tensor(to_bytes(tensor))
    assert back.equals(tensor)
    assert isinstance(back, bs.tensors.SparseCOOTensor)
    assert back.coords.flags.c_contiguous


@pytest.mark.parametrize(
    ("coords", "canonical"),
    [([[0, 1], [1, 0]], True), ([[1, 0], [0, 1]], False), ([[0, 1], [0, 1]], False), ([[0, 1], [0, 0]], False)],
)
def test_canonical_order_is_detected(coords: list[list[int]], canonical: bool) -> None:
    tensor = bs.tensors.SparseCOOTensor.from_numpy([1, 2], coords, (2, 2))
    assert tensor.has_canonical_format == canonical
    assert bs.tensors.read_tensor(to_bytes(tensor)).equals(tensor)


def test_the_fibers_may_follow_any_order_of_dimensions() -> None:
    tensor = bs.tensors.SparseCSFTensor.from_dense_numpy(CUBE, axis_order=[2, 0, 1])
    back = bs.tensors.read_tensor(to_bytes(tensor))
    assert isinstance(back, bs.tensors.SparseCSFTensor)
    assert back.axis_order == (2, 0, 1)
    assert np.array_equal(back.to_tensor().to_numpy(), CUBE)


# Invalid tensors


def test_a_small_sparse_tensor_of_a_huge_shape_stays_sparse() -> None:
    tensor = bs.tensors.SparseCOOTensor.from_numpy([1.0], [[1 << 60, 5]], (1 << 62, 1 << 62))
    assert bs.tensors.read_tensor(to_bytes(tensor)).equals(tensor)
    assert tensor.size == 1 << 124
    with pytest.raises(LimitError, match="more than the limit"):
        tensor.to_tensor()
    with pytest.raises(LimitError, match="limit of 10"):
        bs.tensors.SparseCSRMatrix.from_dense_numpy(MATRIX).to_tensor(max_bytes=10)


def test_duplicate_coordinates_have_no_dense_form() -> None:
    tensor = bs.tensors.SparseCOOTensor.from_numpy([1, 2, 3], [[0, 1], [1, 1], [0, 1]], (2, 2))
    with pytest.raises(InvalidDataError, match=r"duplicate coordinates \[0, 1\]"):
        tensor.to_tensor()


@pytest.mark.parametrize(
    ("make", "pattern"),
    [
        (
            lambda: bs.tensors.SparseCOOTensor.from_numpy([1], [[0, 2]], (2, 2)),
            r"dimension 1: \[0\] = 2 is not from 0 to 1",
        ),
        (lambda: bs.tensors.SparseCOOTensor.from_numpy([1], [[-1, 0]], (2, 2)), "= -1 is not"),
        (lambda: bs.tensors.SparseCOOTensor.from_numpy([1], [[0, 0, 0]], (2, 2)), "1 values in 2 dimensions"),
        (
            lambda: bs.tensors.SparseCOOTensor.from_numpy([1, 2], [[1], [0]], (2,), is_canonical=True),
            "marked canonical",
        ),
        (lambda: bs.tensors.SparseCSRMatrix.from_numpy([1], [0, 1], [0], (2, 2)), "2 rows with pointers of shape"),
        (lambda: bs.tensors.SparseCSCMatrix.from_numpy([1], [0, 1], [0], (2, 2)), "2 columns with pointers of shape"),
        (lambda: bs.tensors.SparseCSRMatrix.from_numpy([1], [0, 2, 1], [0], (2, 2)), r"\[2\] = 1 is less than"),
        (
            lambda: bs.tensors.SparseCSRMatrix.from_numpy([1], [0, 1, 2], [0], (2, 2)),
            "expected values from 0 to 1, found 0 to 2",
        ),
        (
            lambda: bs.tensors.SparseCSRMatrix.from_numpy([1], [0, 1, 1], [2], (2, 2)),
            "indices: .* = 2 is not from 0 to 1",
        ),
        (lambda: bs.tensors.SparseCSFTensor.from_numpy([1], [[0, 1]], [[0], [3]], (2, 2)), r"indices\[1\]: .* = 3"),
        (
            lambda: bs.tensors.SparseCSFTensor.from_numpy([1], [[0, 2]], [[0], [1]], (2, 2)),
            r"indptr\[0\]: expected values from 0 to 1, found 0 to 2",
        ),
        (lambda: bs.tensors.SparseCSFTensor.from_numpy([1], [[0, 1]], [[0], [1]], (2, 2), [0, 0]), "not a permutation"),
        (lambda: bs.tensors.SparseCSFTensor.from_numpy([1], [], [[0], [1]], (2, 2)), "0 arrays of pointers"),
    ],
)
def test_an_index_that_does_not_match_is_rejected(make: Any, pattern: str) -> None:
    with pytest.raises(InvalidDataError, match=pattern):
        make()


@pytest.mark.parametrize("values", [[], [7]])
def test_coordinates_may_have_no_dimensions(values: list[int]) -> None:
    tensor = bs.tensors.SparseCOOTensor.from_numpy(np.array(values, np.int64), np.empty((len(values), 0), np.int64), ())
    back = bs.tensors.read_tensor(to_bytes(tensor))
    assert back.equals(tensor)
    assert isinstance(back, bs.tensors.SparseCOOTensor)
    assert back.to_tensor().to_numpy().tolist() == sum(values)


def test_invalid_arguments_are_rejected() -> None:
    masked = np.ma.MaskedArray(MATRIX, MATRIX == 1)
    for make in (bs.tensors.Tensor.from_numpy, *(kind.from_dense_numpy for kind in KINDS.values())):
        with pytest.raises(InvalidArgumentError, match="masked elements"):
            make(masked)
    with pytest.raises(InvalidArgumentError, match="two dimensions"):
        bs.tensors.SparseCSRMatrix.from_dense_numpy(CUBE)
    with pytest.raises(TypeMismatchError, match="coordinates must be integers"):
        bs.tensors.SparseCOOTensor.from_numpy([1], [[0.5]], (2,))
    assert not bs.tensors.SparseCOOTensor.from_dense_numpy(MATRIX).equals(bs.tensors.Tensor.from_numpy(MATRIX))
    assert bs.tensors.SparseCSRMatrix.from_dense_numpy(MATRIX) != bs.tensors.SparseCSCMatrix.from_dense_numpy(MATRIX)


# SciPy


@pytest.mark.parametrize("kind", ["coo", "csr", "csc"])
def test_sparse_tensors_are_exchanged_with_scipy(kind: str) -> None:
    sparse = pytest.importorskip("scipy.sparse", reason="requires scipy, of the extra sparse")
    pyarrow_tensor = getattr(sparse, f"{kind}_array")(MATRIX)
    bowstring_tensor = KINDS[kind].from_scipy(pyarrow_tensor)
    assert np.array_equal(bowstring_tensor.to_tensor().to_numpy(), MATRIX)
    assert np.shares_memory(bowstring_tensor.values, pyarrow_tensor.data)
    back = bowstring_tensor.to_scipy()
    assert back.format == kind
    assert np.array_equal(back.toarray(), MATRIX)
    assert np.shares_memory(back.data, pyarrow_tensor.data)
    assert KINDS[kind].from_scipy(getattr(sparse, f"{kind}_matrix")(MATRIX)).equals(bowstring_tensor)
    other = "csr" if kind == "csc" else "csc"
    with pytest.raises(TypeMismatchError, match=f"expected SciPy's {other}_array"):
        KINDS[other].from_scipy(pyarrow_tensor)


def test_a_shape_that_scipy_does_not_support_is_rejected() -> None:
    pytest.importorskip("scipy.sparse", reason="requires scipy, of the extra sparse")
    tensor = bs.tensors.SparseCOOTensor.from_numpy([7], np.empty((1, 0), np.int64), ())
    with pytest.raises(UnsupportedTypeError, match=r"no coo_array of int64, shape \(\)"):
        tensor.to_scipy()


def test_indices_are_checked_before_scipy_gets_them() -> None:
    pytest.importorskip("scipy.sparse", reason="requires scipy, of the extra sparse")
    good = bs.tensors.SparseCSRMatrix.from_dense_numpy(MATRIX)
    bad = bs.tensors.SparseCSRMatrix(good.type, good.shape, good.values, (), good.indptr, good.indices + 1000)
    with pytest.raises(InvalidDataError, match="is not from 0 to 3"):
        bad.to_scipy()


def test_a_missing_scipy_is_reported_with_its_extra() -> None:
    program = (
        "import sys; sys.modules['scipy'] = None\n"
        "import bowstring as bs, numpy as np\n"
        "try: bs.tensors.SparseCSRMatrix.from_dense_numpy(np.eye(2)).to_scipy()\n"
        "except bs.errors.MissingExtraError as error: print(error)"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert (
        process.stdout.strip() == "scipy is not installed: pip install 'bowstring[sparse]', or in a clone '.[sparse]'"
    )


ENORMOUS = 1 << 62


@pytest.mark.parametrize("shape", [(0, ENORMOUS), (ENORMOUS, 0)])
def test_a_shape_too_large_for_numpy_is_not_made_dense(shape: tuple[int, int]) -> None:
    none, zero = np.zeros(0, np.int64), np.zeros(1, np.int64)
    compressed = bs.tensors.SparseCSCMatrix if shape[0] else bs.tensors.SparseCSRMatrix
    for tensor in (
        bs.tensors.SparseCOOTensor.from_numpy(none, np.zeros((0, 2), np.int64), shape),
        compressed.from_numpy(none, zero, none, shape),
        bs.tensors.SparseCSFTensor.from_numpy(none, [zero], [none, none], shape, [0, 1]),
    ):
        with pytest.raises(LimitError, match="its sizes overflow 63 bits"):
            tensor.to_tensor()
        assert tensor.size == 0

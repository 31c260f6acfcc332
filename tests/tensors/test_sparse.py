"""Sparse tensors: every kind of index, from and to NumPy, SciPy and dense tensors; Arrow C++ as the judge."""

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
from bowstring.errors import DataTypeError, InvalidDataError, LimitError, UnsupportedTypeError, UsageError
from bowstring.flatbuf.reader import Message
from bowstring.flatbuf.tables import SPARSE_INDEXES, SPECS
from tests.tensors.written_by_arrow_cpp import CUBE, MATRIX, MESSAGES

KINDS: dict[str, Any] = {
    "coo": bs.SparseCOOTensor,
    "csr": bs.SparseCSRMatrix,
    "csc": bs.SparseCSCMatrix,
    "csf": bs.SparseCSFTensor,
}
DENSE = {"coo": CUBE, "csf": CUBE, "csr": MATRIX, "csc": MATRIX}
kinds = pytest.mark.parametrize("kind", KINDS)


def written(tensor: Any) -> bytes:
    sink = io.BytesIO()
    assert bs.write_tensor(tensor, sink) == len(sink.getvalue())
    return sink.getvalue()


@kinds
def test_what_arrow_cpp_wrote_is_read(kind: str) -> None:
    tensor = bs.read_tensor(MESSAGES[kind])
    tensor.validate(full=True)
    assert isinstance(tensor, KINDS[kind])
    assert np.array_equal(tensor.to_tensor().to_numpy(), DENSE[kind])
    names = ["x", "y", "z"] if kind in ("coo", "csf") else None
    assert tensor.equals(KINDS[kind].from_dense_numpy(DENSE[kind], names))
    again = bs.read_tensor(written(tensor))
    assert again.equals(tensor)


def said(message: bytes) -> dict[str, Any]:
    """What the metadata of a sparse tensor's message says, apart from where its buffers are."""
    length = int.from_bytes(message[4:8], "little")
    table = Message(message[8 : 8 + length], SPECS, "message").root("Message").union("header", "SparseTensor")
    assert table is not None
    kind = SPARSE_INDEXES[table["sparseIndex_type"]]
    index = table.union("sparseIndex", kind)
    assert index is not None
    found: dict[str, Any] = {"values": table["non_zero_length"]}
    found["shape"] = [(dim["size"], dim["name"] or "") for dim in table["shape"]]
    for name in index.spec.slots:
        value = index[name]
        if name.endswith("Type"):
            found[name] = value["bitWidth"], value["is_signed"]
        elif "Buffer" in name:
            found[name] = value["length"].tolist()
        else:
            found[name] = np.asarray(value).tolist()
    return found


@kinds
def test_our_metadata_says_what_arrow_cpps_does(kind: str) -> None:
    names = ["x", "y", "z"] if kind in ("coo", "csf") else None
    assert said(written(KINDS[kind].from_dense_numpy(DENSE[kind], names))) == said(MESSAGES[kind])


@st.composite
def sparse_arrays(draw: st.DrawFn, dims: tuple[int, int] = (1, 4)) -> np.ndarray[Any, Any]:
    shape = draw(hnp.array_shapes(min_dims=dims[0], max_dims=dims[1], min_side=0, max_side=4))
    values = draw(hnp.arrays(st.sampled_from(["i1", "u8", "f4"]), shape, elements=st.integers(0, 9)))
    values[draw(hnp.arrays(np.bool_, shape))] = 0
    return values


@given(st.sampled_from(["coo", "csf"]), sparse_arrays())
def test_any_number_of_dimensions_goes_through_a_message(kind: str, values: np.ndarray[Any, Any]) -> None:
    there_and_back(kind, values)


@given(st.sampled_from(["csr", "csc"]), sparse_arrays((2, 2)))
def test_any_matrix_goes_through_a_message(kind: str, values: np.ndarray[Any, Any]) -> None:
    there_and_back(kind, values)


def there_and_back(kind: str, values: np.ndarray[Any, Any]) -> None:
    tensor = KINDS[kind].from_dense_numpy(values)
    assert tensor.non_zero_length == np.count_nonzero(values)
    back = bs.read_tensor(written(tensor))
    back.validate(full=True)
    assert isinstance(back, KINDS[kind])
    assert back.equals(tensor)
    assert np.array_equal(back.to_tensor().to_numpy(), values)
    assert KINDS[kind].from_tensor(bs.Tensor.from_numpy(values)).equals(tensor)


@kinds
def test_the_indices_are_pyarrows(kind: str) -> None:
    theirs_class = {
        "coo": pa.SparseCOOTensor,
        "csr": pa.SparseCSRMatrix,
        "csc": pa.SparseCSCMatrix,
        "csf": pa.SparseCSFTensor,
    }[kind]
    ours, theirs = KINDS[kind].from_dense_numpy(DENSE[kind]), theirs_class.from_dense_numpy(DENSE[kind])
    for mine, other in zip(ours.to_numpy(), theirs.to_numpy(), strict=True):
        if isinstance(mine, tuple):
            assert [m.tolist() for m in mine] == [o.tolist() for o in other]
        else:
            assert mine.reshape(other.shape).tolist() == other.tolist()
    taken = KINDS[kind].from_numpy(*theirs.to_numpy(), DENSE[kind].shape)
    assert np.array_equal(taken.to_tensor().to_numpy(), DENSE[kind])


def test_numpy_is_shared_both_ways() -> None:
    values, coords = np.array([1.0, 2.0]), np.array([[0, 1], [1, 0]], np.int16)
    tensor = bs.SparseCOOTensor.from_numpy(values, coords, (2, 2))
    assert np.shares_memory(tensor.to_numpy()[0], values)
    assert np.shares_memory(tensor.to_numpy()[1], coords)
    held = bytearray(written(tensor))
    back = bs.read_tensor(held)
    assert isinstance(back, bs.SparseCOOTensor)
    assert all(np.shares_memory(part, np.frombuffer(held, np.uint8)) for part in back.to_numpy())
    assert back.coords.dtype == np.int16


def test_coordinates_in_column_order_are_written_in_row_order() -> None:
    coords = np.asfortranarray([[0, 1], [1, 0], [1, 1]])
    tensor = bs.SparseCOOTensor.from_numpy([1, 2, 3], coords, (2, 2))
    assert np.shares_memory(tensor.coords, coords)
    back = bs.read_tensor(written(tensor))
    assert back.equals(tensor)
    assert isinstance(back, bs.SparseCOOTensor)
    assert back.coords.flags.c_contiguous


@pytest.mark.parametrize(
    ("coords", "canonical"),
    [([[0, 1], [1, 0]], True), ([[1, 0], [0, 1]], False), ([[0, 1], [0, 1]], False), ([[0, 1], [0, 0]], False)],
)
def test_canonical_order_is_found_out(coords: list[list[int]], canonical: bool) -> None:
    tensor = bs.SparseCOOTensor.from_numpy([1, 2], coords, (2, 2))
    assert tensor.has_canonical_format == canonical
    assert bs.read_tensor(written(tensor)).equals(tensor)


def test_the_fibers_may_follow_any_order_of_dimensions() -> None:
    tensor = bs.SparseCSFTensor.from_dense_numpy(CUBE, axis_order=[2, 0, 1])
    back = bs.read_tensor(written(tensor))
    assert isinstance(back, bs.SparseCSFTensor)
    assert back.axis_order == (2, 0, 1)
    assert np.array_equal(back.to_tensor().to_numpy(), CUBE)


# What does not hold


def test_a_small_sparse_tensor_of_a_huge_shape_stays_sparse() -> None:
    tensor = bs.SparseCOOTensor.from_numpy([1.0], [[1 << 60, 5]], (1 << 62, 1 << 62))
    assert bs.read_tensor(written(tensor)).equals(tensor)
    assert tensor.size == 1 << 124
    with pytest.raises(LimitError, match="more than the limit"):
        tensor.to_tensor()
    with pytest.raises(LimitError, match="limit of 10"):
        bs.SparseCSRMatrix.from_dense_numpy(MATRIX).to_tensor(max_bytes=10)


def test_coordinates_that_come_twice_have_no_dense_form() -> None:
    tensor = bs.SparseCOOTensor.from_numpy([1, 2, 3], [[0, 1], [1, 1], [0, 1]], (2, 2))
    with pytest.raises(InvalidDataError, match=r"duplicate coordinates \[0, 1\]"):
        tensor.to_tensor()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: bs.SparseCOOTensor.from_numpy([1], [[0, 2]], (2, 2)), r"dimension 1: \[0\] = 2 is not from 0 to 1"),
        (lambda: bs.SparseCOOTensor.from_numpy([1], [[-1, 0]], (2, 2)), "= -1 is not"),
        (lambda: bs.SparseCOOTensor.from_numpy([1], [[0, 0, 0]], (2, 2)), "1 values in 2 dimensions"),
        (lambda: bs.SparseCOOTensor.from_numpy([1, 2], [[1], [0]], (2,), is_canonical=True), "marked canonical"),
        (lambda: bs.SparseCSRMatrix.from_numpy([1], [0, 1], [0], (2, 2)), "2 rows with pointers of shape"),
        (lambda: bs.SparseCSCMatrix.from_numpy([1], [0, 1], [0], (2, 2)), "2 columns with pointers of shape"),
        (lambda: bs.SparseCSRMatrix.from_numpy([1], [0, 2, 1], [0], (2, 2)), r"\[2\] = 1 is less than"),
        (
            lambda: bs.SparseCSRMatrix.from_numpy([1], [0, 1, 2], [0], (2, 2)),
            "expected values from 0 to 1, found 0 to 2",
        ),
        (lambda: bs.SparseCSRMatrix.from_numpy([1], [0, 1, 1], [2], (2, 2)), "indices: .* = 2 is not from 0 to 1"),
        (lambda: bs.SparseCSFTensor.from_numpy([1], [[0, 1]], [[0], [3]], (2, 2)), r"indices\[1\]: .* = 3"),
        (
            lambda: bs.SparseCSFTensor.from_numpy([1], [[0, 2]], [[0], [1]], (2, 2)),
            r"indptr\[0\]: expected values from 0 to 1, found 0 to 2",
        ),
        (lambda: bs.SparseCSFTensor.from_numpy([1], [[0, 1]], [[0], [1]], (2, 2), [0, 0]), "not a permutation"),
        (lambda: bs.SparseCSFTensor.from_numpy([1], [], [[0], [1]], (2, 2)), "0 arrays of pointers"),
    ],
)
def test_an_index_that_does_not_fit_is_refused(make: Any, said: str) -> None:
    with pytest.raises(InvalidDataError, match=said):
        make()


@pytest.mark.parametrize("values", [[], [7]])
def test_coordinates_may_have_no_dimensions(values: list[int]) -> None:
    tensor = bs.SparseCOOTensor.from_numpy(np.array(values, np.int64), np.empty((len(values), 0), np.int64), ())
    back = bs.read_tensor(written(tensor))
    assert back.equals(tensor)
    assert isinstance(back, bs.SparseCOOTensor)
    assert back.to_tensor().to_numpy().tolist() == sum(values)


def test_mistakes_of_the_caller_are_told() -> None:
    masked = np.ma.MaskedArray(MATRIX, MATRIX == 1)
    for make in (bs.Tensor.from_numpy, *(kind.from_dense_numpy for kind in KINDS.values())):
        with pytest.raises(UsageError, match="masked elements"):
            make(masked)
    with pytest.raises(UsageError, match="two dimensions"):
        bs.SparseCSRMatrix.from_dense_numpy(CUBE)
    with pytest.raises(DataTypeError, match="coordinates must be integers"):
        bs.SparseCOOTensor.from_numpy([1], [[0.5]], (2,))
    assert not bs.SparseCOOTensor.from_dense_numpy(MATRIX).equals(bs.Tensor.from_numpy(MATRIX))
    assert bs.SparseCSRMatrix.from_dense_numpy(MATRIX) != bs.SparseCSCMatrix.from_dense_numpy(MATRIX)


# SciPy


@pytest.mark.parametrize("kind", ["coo", "csr", "csc"])
def test_scipy_takes_and_gives(kind: str) -> None:
    sparse = pytest.importorskip("scipy.sparse", reason="scipy comes with the extra sparse")
    theirs = getattr(sparse, f"{kind}_array")(MATRIX)
    ours = KINDS[kind].from_scipy(theirs)
    assert np.array_equal(ours.to_tensor().to_numpy(), MATRIX)
    assert np.shares_memory(ours.values, theirs.data)
    back = ours.to_scipy()
    assert back.format == kind
    assert np.array_equal(back.toarray(), MATRIX)
    assert np.shares_memory(back.data, theirs.data)
    assert KINDS[kind].from_scipy(getattr(sparse, f"{kind}_matrix")(MATRIX)).equals(ours)
    other = "csr" if kind == "csc" else "csc"
    with pytest.raises(DataTypeError, match=f"expected SciPy's {other}_array"):
        KINDS[other].from_scipy(theirs)


def test_a_shape_that_scipy_lacks_is_told() -> None:
    pytest.importorskip("scipy.sparse", reason="scipy comes with the extra sparse")
    tensor = bs.SparseCOOTensor.from_numpy([7], np.empty((1, 0), np.int64), ())
    with pytest.raises(UnsupportedTypeError, match=r"no coo_array of int64, shape \(\)"):
        tensor.to_scipy()


def test_scipy_gets_no_index_that_is_not_checked() -> None:
    pytest.importorskip("scipy.sparse", reason="scipy comes with the extra sparse")
    good = bs.SparseCSRMatrix.from_dense_numpy(MATRIX)
    bad = bs.SparseCSRMatrix(good.type, good.shape, good.values, (), good.indptr, good.indices + 1000)
    with pytest.raises(InvalidDataError, match="is not from 0 to 3"):
        bad.to_scipy()


def test_without_scipy_the_extra_is_named() -> None:
    program = (
        "import sys; sys.modules['scipy'] = None\n"
        "import bowstring as bs, numpy as np\n"
        "try: bs.SparseCSRMatrix.from_dense_numpy(np.eye(2)).to_scipy()\n"
        "except bs.errors.MissingExtraError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "scipy is not installed: pip install 'bowstring[sparse]'"


ENORMOUS = 1 << 62


@pytest.mark.parametrize("shape", [(0, ENORMOUS), (ENORMOUS, 0)])
def test_a_shape_that_numpy_has_no_array_for_is_not_made_dense(shape: tuple[int, int]) -> None:
    none, zero = np.zeros(0, np.int64), np.zeros(1, np.int64)
    compressed = bs.SparseCSCMatrix if shape[0] else bs.SparseCSRMatrix
    for tensor in (
        bs.SparseCOOTensor.from_numpy(none, np.zeros((0, 2), np.int64), shape),
        compressed.from_numpy(none, zero, none, shape),
        bs.SparseCSFTensor.from_numpy(none, [zero], [none, none], shape, [0, 1]),
    ):
        with pytest.raises(LimitError, match="its sizes overflow 63 bits"):
            tensor.to_tensor()
        assert tensor.size == 0

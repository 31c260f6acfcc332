"""Tensor and SparseTensor messages (Tensor.fbs, SparseTensor.fbs): tensors to and from flatbuffers and bodies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np

from bowstring.datatypes.types import Int
from bowstring.errors import (
    InvalidArgumentError,
    InvalidDataError,
    UnsupportedError,
    UnsupportedTypeError,
    add_location,
)
from bowstring.flatbuf.reader import FlatTable
from bowstring.flatbuf.tables import DEFINITIONS, HEADERS, SPARSE_INDEXES, TYPES, VERSIONS, read_root
from bowstring.flatbuf.writer import Record, UnionValue, build_flatbuffer
from bowstring.ipc.limits import ReadLimits
from bowstring.ipc.message import MessageLocation, format_location
from bowstring.ipc.metadata.schema import V5
from bowstring.ipc.metadata.types import create_int_record, create_type_record, read_int_type, read_type
from bowstring.memory.buffer import Buffer
from bowstring.tensors.csf import SparseCSFTensor
from bowstring.tensors.dense import Tensor
from bowstring.tensors.elements import (
    Values,
    element_type_to_dtype,
    index_type_to_dtype,
)
from bowstring.tensors.shape import (
    as_buffer,
    check_dense_shape,
    check_dimension_sizes,
    check_strides,
    is_contiguous_in_any_order,
    row_major_strides,
    strided_view,
)
from bowstring.tensors.sparse import SparseCOOTensor, SparseCSCMatrix, SparseCSRMatrix, SparseMatrix, SparseTensor

AnyTensor: TypeAlias = Tensor | SparseTensor
TENSOR, SPARSE_TENSOR = "Tensor", "SparseTensor"
_IndexFields: TypeAlias = tuple[Any, tuple[Any, ...]]
"""The class of a sparse tensor, and its fields that are the index."""
_MATRIX_CLASSES: tuple[type[SparseMatrix], ...] = (SparseCSRMatrix, SparseCSCMatrix)
"""By compressed axis: Row, Column."""


# Reading


@dataclass(frozen=True, slots=True)
class TensorHeader:
    """The flatbuffer of a tensor message: its kind, its table, and the size of its body."""

    kind: str
    table: FlatTable
    body_bytes: int


def read_tensor_header(raw: bytes, location: MessageLocation, limits: ReadLimits) -> TensorHeader:
    """Read the header of a message from its flatbuffer.

    Raises `InvalidDataError` if it is malformed or of another kind.
    """
    context = format_location(location)
    message = read_root("Message", raw, context, limits.max_tables)
    version = message["version"]
    if not 0 <= version < len(VERSIONS):
        raise UnsupportedError(f"{context}: metadata version {version} is not known")
    header_type = message["header_type"]
    kind = HEADERS[header_type] if header_type < len(HEADERS) else f"kind {header_type}"
    if kind not in (TENSOR, SPARSE_TENSOR):
        raise InvalidDataError(f"{context}: expected a Tensor or a SparseTensor, found a message of {kind}")
    table = message["header"]
    if table is None:
        raise InvalidDataError(f"{context}: a {kind} message without a header")
    body_bytes = message["bodyLength"]
    if body_bytes < 0:
        raise InvalidDataError(f"{context}: expected a body length of 0 or more, found {body_bytes}")
    return TensorHeader(kind, table, body_bytes)


def decode_tensor(header: TensorHeader, body: Buffer, location: str) -> AnyTensor:
    """Create the tensor of a message over its body, without copying.

    The structure is checked; raises `InvalidDataError` or `UnsupportedError` if it is not valid.
    """
    read = _read_dense if header.kind == TENSOR else _read_sparse
    try:
        return read(header.table, body)
    except (InvalidArgumentError, OverflowError) as error:  # raised by the constructors of types
        error_class = UnsupportedError if isinstance(error, UnsupportedTypeError) else InvalidDataError
        raise error_class(f"{location}: {error}") from None
    except InvalidDataError as error:
        if str(error).startswith(location):  # from the flatbuffer
            raise
        raise add_location(error, location) from None


def _read_shape(table: FlatTable) -> tuple[tuple[int, ...], tuple[str, ...]]:
    dimensions = [(dim["size"], dim["name"] or "") for dim in table["shape"]]
    names = tuple(name for _, name in dimensions)
    return tuple(size for size, _ in dimensions), names if any(names) else ()


def _slice_body(body: Buffer, offset: int, length: int, what: str) -> Buffer:
    """Return a slice of a message body. Raises `InvalidDataError` if it is out of bounds."""
    if offset < 0 or length < 0 or offset + length > body.size:
        raise InvalidDataError(f"{what}: {length} bytes at offset {offset} exceed the body of {body.size} bytes")
    return Buffer(body.memory, body.offset + offset, length)


def _read_buffer(body: Buffer, location: Any, what: str) -> Buffer:
    return _slice_body(body, int(location["offset"]), int(location["length"]), what)


def _read_elements(body: Buffer, location: Any, dtype: np.dtype[Any], what: str, count: int) -> Values:
    """Return the first `count` elements of a buffer in a message body."""
    buffer = _read_buffer(body, location, what)
    if count * dtype.itemsize > buffer.size:
        raise InvalidDataError(f"{what}: {buffer.size} bytes are too few for {count} elements of {dtype.itemsize}")
    return buffer.view(dtype, 0, count)


def _read_dense(table: FlatTable, body: Buffer) -> Tensor:
    type_ = read_type(table, ())
    itemsize = element_type_to_dtype(type_).itemsize
    shape, names = _read_shape(table)
    check_dense_shape(shape, itemsize)
    strides = tuple(table["strides"].tolist()) or row_major_strides(shape, itemsize)
    data = _read_buffer(body, table["data"], "data")
    check_strides(shape, strides, itemsize, data.size)
    return Tensor(type_, data, shape, strides, names)


def _read_sparse(table: FlatTable, body: Buffer) -> SparseTensor:
    type_ = read_type(table, ())
    dtype = element_type_to_dtype(type_)
    shape, names = _read_shape(table)
    check_dimension_sizes(shape)
    count = table["non_zero_length"]
    if count < 0:
        raise InvalidDataError(f"expected 0 or more values that are not zero, found {count}")
    values = _read_elements(body, table["data"], dtype, "data", count)
    index = table["sparseIndex"]
    if index is None:
        raise InvalidDataError("a SparseTensor has no sparse index")
    tensor_class, index_fields = _INDEX_READERS[index.definition.name](index, body, shape, count)
    tensor: SparseTensor = tensor_class(type_, shape, values, names, *index_fields)
    tensor.validate()
    return tensor


def _read_coo_index(index: FlatTable, body: Buffer, shape: tuple[int, ...], count: int) -> _IndexFields:
    dtype = index_type_to_dtype(read_int_type(index["indicesType"]))
    coords_shape = (count, len(shape))
    strides = tuple(index["indicesStrides"].tolist()) or row_major_strides(coords_shape, dtype.itemsize)
    buffer = _read_buffer(body, index["indicesBuffer"], "indices")
    check_strides(coords_shape, strides, dtype.itemsize, buffer.size)
    return SparseCOOTensor, (strided_view(buffer, dtype, coords_shape, strides), index["isCanonical"])


def _read_csx_index(index: FlatTable, body: Buffer, shape: tuple[int, ...], count: int) -> _IndexFields:
    axis: int = index["compressedAxis"]
    if not 0 <= axis < len(_MATRIX_CLASSES):
        raise InvalidDataError(f"compressed axis {axis} is neither Row (0) nor Column (1)")
    if len(shape) != 2:
        raise InvalidDataError(f"a compressed matrix has two dimensions, not {len(shape)}")
    pointers, indices = (index_type_to_dtype(read_int_type(index[name])) for name in ("indptrType", "indicesType"))
    return _MATRIX_CLASSES[axis], (
        _read_elements(body, index["indptrBuffer"], pointers, "indptr", shape[axis] + 1),
        _read_elements(body, index["indicesBuffer"], indices, "indices", count),
    )


def _read_csf_index(index: FlatTable, body: Buffer, shape: tuple[int, ...], count: int) -> _IndexFields:
    """Read a CSF index. Lengths are in elements, as in Arrow C++, or in bytes, as specified for `Buffer`; the number of
    leaves and nodes determines which.
    """
    pointer_type, node_type = (
        index_type_to_dtype(read_int_type(index[name])) for name in ("indptrType", "indicesType")
    )
    nodes, pointers = index["indicesBuffers"], index["indptrBuffers"]
    if len(nodes) != len(shape) or len(pointers) != len(nodes) - 1:
        raise InvalidDataError(
            f"{len(shape)} dimensions with {len(pointers)} arrays of pointers and {len(nodes)} of indices"
        )
    unit = _detect_length_unit(int(nodes["length"][-1]), count, node_type, "the last indices")
    levels = [
        _read_csf_buffer(body, location, node_type, "indices", int(location["length"]) // unit) for location in nodes
    ]
    pointer_levels = []
    for location, level in zip(pointers, levels, strict=False):
        _detect_length_unit(int(location["length"]), len(level) + 1, pointer_type, "indptr")
        pointer_levels.append(_read_csf_buffer(body, location, pointer_type, "indptr", len(level) + 1))
    return SparseCSFTensor, (tuple(pointer_levels), tuple(levels), tuple(index["axisOrder"].tolist()))


def _detect_length_unit(length: int, count: int, dtype: np.dtype[Any], what: str) -> int:
    """Return the unit of a buffer length: 1 if it is in elements, or the element size if it is in bytes."""
    if length == count * dtype.itemsize:
        return dtype.itemsize
    if length == count:
        return 1
    raise InvalidDataError(f"{what}: expected {count} elements of {dtype.itemsize} bytes, found a length of {length}")


def _read_csf_buffer(body: Buffer, location: Any, dtype: np.dtype[Any], what: str, count: int) -> Values:
    """Return `count` elements of a buffer, whatever the unit of its length."""
    return _slice_body(body, int(location["offset"]), count * dtype.itemsize, what).view(dtype)


_INDEX_READERS: dict[str, Callable[[FlatTable, Buffer, tuple[int, ...], int], _IndexFields]] = {
    SparseCOOTensor.INDEX_TYPE: _read_coo_index,
    SparseMatrix.INDEX_TYPE: _read_csx_index,
    SparseCSFTensor.INDEX_TYPE: _read_csf_index,
}


# Writing


@dataclass(frozen=True, slots=True)
class EncodedTensor:
    """A tensor message: its flatbuffer and the buffers of its body with padding, over shared memory."""

    metadata: bytes
    buffers: list[Any]
    body_bytes: int


def encode_tensor(tensor: AnyTensor, alignment: int) -> EncodedTensor:
    """Encode a tensor as a message, with buffers at multiples of `alignment` bytes in the body.

    Copies only a dense tensor with gaps between its elements, to C order.
    """
    body = _TensorBody(alignment)
    if isinstance(tensor, Tensor):
        kind, record = TENSOR, _create_dense_record(tensor, body)
    elif isinstance(tensor, SparseTensor):
        kind, record = SPARSE_TENSOR, _create_sparse_record(tensor, body)
    else:
        raise InvalidArgumentError(f"expected a tensor or a sparse tensor, not {type(tensor).__name__}")
    message = {
        "version": V5,
        "header_type": HEADERS.index(kind),
        "header": UnionValue(kind, record),
        "bodyLength": body.size,
    }
    return EncodedTensor(build_flatbuffer(DEFINITIONS, "Message", message), body.buffers, body.size)


class _TensorBody:
    """Builds a message body of consecutive buffers, each padded to the alignment."""

    def __init__(self, alignment: int) -> None:
        self.alignment = alignment
        self.buffers: list[Any] = []
        self.size = 0

    def add(self, buffer: Buffer) -> tuple[int, int]:
        """Append a buffer. Return its offset and length in bytes."""
        location = (self.size, buffer.size)
        padding = -buffer.size % self.alignment
        self.buffers += [buffer.bytes.data, bytes(padding)] if padding else [buffer.bytes.data]
        self.size += buffer.size + padding
        return location

    def add_array(self, values: Values) -> tuple[int, int]:
        """Append an array, copied if it is not contiguous. Return its offset and length in bytes."""
        return self.add(as_buffer(np.ascontiguousarray(values)))


def _create_common_fields(tensor: AnyTensor) -> dict[str, Any]:
    type_record = create_type_record(tensor.type)
    if type_record is None:
        raise UnsupportedTypeError(f"tensor messages do not support {tensor.type}")
    names = tensor.dim_names or (None,) * tensor.ndim
    return {
        "type_type": TYPES.index(type_record.definition),
        "type": type_record,
        "shape": [{"size": size, "name": name} for size, name in zip(tensor.shape, names, strict=True)],
    }


def _create_dense_record(tensor: Tensor, body: _TensorBody) -> Record:
    itemsize = element_type_to_dtype(tensor.type).itemsize
    if not is_contiguous_in_any_order(tensor.shape, tensor.strides, itemsize):
        tensor = Tensor.from_numpy(np.ascontiguousarray(tensor.to_numpy()), tensor.dim_names)
    data = tensor.data.slice(0, prod(tensor.shape) * itemsize)
    return {**_create_common_fields(tensor), "strides": list(tensor.strides), "data": body.add(data)}


def _create_sparse_record(tensor: SparseTensor, body: _TensorBody) -> Record:
    index = _INDEX_RECORD_FUNCTIONS[tensor.INDEX_TYPE](tensor, body)
    return {
        **_create_common_fields(tensor),
        "non_zero_length": tensor.non_zero_length,
        "sparseIndex_type": SPARSE_INDEXES.index(tensor.INDEX_TYPE),
        "sparseIndex": UnionValue(tensor.INDEX_TYPE, index),
        "data": body.add_array(tensor.values),
    }


def _create_index_type_record(arrays: Sequence[Values]) -> Record:
    dtype = arrays[0].dtype if arrays else np.dtype(np.int64)
    return create_int_record(Int(dtype.itemsize * 8, dtype.kind == "i"))


def _create_coo_index_record(tensor: Any, body: _TensorBody) -> Record:
    coords = np.ascontiguousarray(tensor.coords)  # Arrow C++ reads any other order wrong
    return {
        "indicesType": _create_index_type_record([coords]),
        "indicesStrides": list(row_major_strides(coords.shape, coords.itemsize)),
        "indicesBuffer": body.add_array(coords),
        "isCanonical": bool(tensor.has_canonical_format),
    }


def _create_csx_index_record(matrix: Any, body: _TensorBody) -> Record:
    return {
        "compressedAxis": matrix.AXIS,
        "indptrType": _create_index_type_record([matrix.indptr]),
        "indptrBuffer": body.add_array(matrix.indptr),
        "indicesType": _create_index_type_record([matrix.indices]),
        "indicesBuffer": body.add_array(matrix.indices),
    }


def _create_csf_index_record(tensor: Any, body: _TensorBody) -> Record:
    """Lengths are in elements, as in Arrow C++."""
    return {
        "indptrType": _create_index_type_record(tensor.indptr),
        "indptrBuffers": [(body.add_array(part)[0], len(part)) for part in tensor.indptr],
        "indicesType": _create_index_type_record(tensor.indices),
        "indicesBuffers": [(body.add_array(part)[0], len(part)) for part in tensor.indices],
        "axisOrder": list(tensor.axis_order),
    }


_INDEX_RECORD_FUNCTIONS: dict[str, Callable[[Any, _TensorBody], Record]] = {
    SparseCOOTensor.INDEX_TYPE: _create_coo_index_record,
    SparseMatrix.INDEX_TYPE: _create_csx_index_record,
    SparseCSFTensor.INDEX_TYPE: _create_csf_index_record,
}

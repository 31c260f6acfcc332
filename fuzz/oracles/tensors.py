"""Tensor streams: a tensor that is sound comes back from a message of its own, dense and sparse."""

from __future__ import annotations

import io

import bowstring as bs
from bowstring.errors import InvalidDataError
from bowstring.tensors.sparse import SparseTensor
from fuzz.promises import LIMITS, promise


def check_tensors(data: bytes) -> bool:
    """The oracle of tensor streams."""
    try:
        tensors = []
        for tensor in bs.open_tensors(data, LIMITS):
            tensor.validate(full=True)
            tensors.append(tensor)
    except InvalidDataError:
        return False
    for tensor in tensors:
        repr(tensor)
        sink = io.BytesIO()
        bs.write_tensor(tensor, sink)
        promise(bs.read_tensor(sink.getvalue()).equals(tensor, nans_equal=True), "a tensor comes back otherwise")
        try:
            dense = tensor.to_tensor(1 << 20) if isinstance(tensor, SparseTensor) else tensor
            promise(dense.to_numpy().shape == tensor.shape, "a tensor has another shape")
        except InvalidDataError:
            pass  # too large, or coordinates that come more than once
    return True

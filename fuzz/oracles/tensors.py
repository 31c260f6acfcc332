"""Tensor streams: valid dense and sparse tensors survive a round trip."""

from __future__ import annotations

import io

import bowstring as bs
from bowstring.errors import InvalidDataError
from bowstring.tensors.sparse import SparseTensor
from fuzz.expectations import LIMITS, expect


def check_tensors(data: bytes) -> bool:
    """Check a tensor stream."""
    try:
        tensors = []
        for tensor in bs.tensors.open_tensor_stream(data, LIMITS):
            tensor.validate(full=True)
            tensors.append(tensor)
    except InvalidDataError:
        return False
    for tensor in tensors:
        repr(tensor)
        sink = io.BytesIO()
        bs.tensors.write_tensor(tensor, sink)
        expect(
            bs.tensors.read_tensor(sink.getvalue()).equals(tensor, nans_equal=True),
            "a tensor differs after a round trip",
        )
        try:
            dense = tensor.to_tensor(1 << 20) if isinstance(tensor, SparseTensor) else tensor
            expect(dense.to_numpy().shape == tensor.shape, "a dense tensor has a different shape")
        except InvalidDataError:
            pass  # too large, or with duplicate coordinates
    return True

"""Arrays in memory of a GPU, for tests, and the reason for which tests that need one are skipped."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from bowstring.arrays.array import Array
from bowstring.errors import BowstringError
from bowstring.layouts.base import ArrayData
from bowstring.memory.buffer import Buffer
from bowstring_networks.cuda import driver


@cache
def no_gpu_reason() -> str | None:
    """Why no GPU can be used, None if one can."""
    try:
        driver.get_gpu(0).synchronize()
    except BowstringError as error:
        return f"no usable CUDA device: {str(error).removeprefix('no usable CUDA device: ')}"
    return None


needs_gpu = pytest.mark.skipif(no_gpu_reason() is not None, reason=no_gpu_reason() or "")
needs_no_gpu = pytest.mark.skipif(no_gpu_reason() is None, reason="a CUDA device is usable")


class CudaArray:
    """Numbers on a GPU, as CuPy and Numba export them."""

    def __init__(self, values: npt.NDArray[Any], **interface: Any) -> None:
        gpu = driver.get_gpu(0)
        self.allocation = gpu.allocate(values.nbytes)
        gpu.write(self.allocation.pointer, np.ascontiguousarray(values))
        self.__cuda_array_interface__ = {
            "data": (self.allocation.pointer, False),
            "shape": values.shape,
            "typestr": values.dtype.str,
            "version": 3,
            **interface,
        }


def upload(array: ArrayData) -> Array:
    """Copy an array without a dictionary to a GPU."""
    return Array.from_array_data(_upload_data(array))


def _upload_data(array: ArrayData) -> ArrayData:
    buffers, children = tuple(map(_upload_buffer, array.own_buffers)), tuple(map(_upload_data, array.children))
    return ArrayData(array.layout, array.length, buffers, children, None, array.null_count, array.offset)


def _upload_buffer(buffer: Buffer | None) -> Buffer | None:
    if buffer is None or not buffer.size:
        return buffer
    gpu = driver.get_gpu(0)
    allocation = gpu.allocate(buffer.size)
    gpu.write(allocation.pointer, buffer.bytes)
    return Buffer(allocation.as_memory(buffer.size), 0, buffer.size)

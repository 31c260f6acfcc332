"""Memory addresses of values, to detect copies."""

from __future__ import annotations

from typing import Any

import numpy as np

import bowstring as bs


def address(values: np.ndarray[Any, Any]) -> int:
    """The address of a NumPy array's first element."""
    return int(values.__array_interface__["data"][0])


def data_address(array: bs.Array) -> int:
    """The address of an array's second buffer: behind the validity, its data or offsets."""
    buffer = array.own_buffers[1]
    assert buffer is not None
    return buffer.address

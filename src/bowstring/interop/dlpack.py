"""DLPack: contiguous fixed-width elements without nulls.

The memory is copied unless the consumer passes `copy=False`: consumers such as PyTorch ignore the read-only flag, and
writing to shared memory changes the data of other readers, or crashes the process if the memory is mapped. NumPy
creates and reads the DLPack capsules.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from bowstring.errors import BufferExchangeError
from bowstring.interop.buffer_protocol import check_no_nulls, to_numpy_without_copy
from bowstring.interop.c_device import CPU, check_cpu_readable_device
from bowstring.interop.device_arrays import device_array_to_dlpack, device_of
from bowstring.layouts.base import ArrayData, Layout, Values
from bowstring.layouts.boolean import BooleanLayout
from bowstring.layouts.fixed_size_list import FixedSizeListLayout

CPU_DEVICE = (CPU, 0)
"""The DLPack device of the CPU's memory."""


# DLPack export


def numpy_to_dlpack(values: Values, options: dict[str, Any]) -> Any:
    """Return a DLPack capsule of a copy of a NumPy array, or with `copy=False` of the array itself.

    `options` are as in the array API standard: `stream` (must be None, the CPU has no streams), `max_version`,
    `dl_device` and `copy`. Shared memory is read-only; a consumer that writes to it anyway crashes the process or
    changes the array. Raises `BufferExchangeError` for elements that DLPack doesn't support, another device, and
    `copy=False` without a `max_version` of DLPack 1.0 or later: earlier versions can't mark memory as read-only.
    """
    stream, device = options.pop("stream", None), options.pop("dl_device", None)
    if stream is not None:
        raise BufferExchangeError(f"DLPack: stream must be None for CPU memory, found {stream!r}")
    if device is not None and (int(device[0]), int(device[1])) != CPU_DEVICE:
        raise BufferExchangeError(f"DLPack: the elements are on the CPU {CPU_DEVICE}, not on device {tuple(device)}")
    if values.dtype.kind not in "biuf":
        raise BufferExchangeError(f"DLPack supports integers, floats and booleans, found NumPy dtype {values.dtype}")
    options["copy"] = options.get("copy") is not False
    try:
        return values.__dlpack__(**{name: value for name, value in options.items() if value is not None})
    except (BufferError, TypeError) as error:
        raise BufferExchangeError(
            f"DLPack: {error} (copy=False needs max_version=(1, 0) to mark the memory as read-only)"
        ) from None


def array_to_dlpack(array: ArrayData, options: dict[str, Any]) -> Any:
    """Return a DLPack capsule of an array: one dimension, or more for fixed-size lists and tensors of numbers. Memory
    of a device is shared, and only in one dimension (`bowstring.interop.device_arrays`).

    Raises as `numpy_to_dlpack`, and `BufferExchangeError` for nulls and for layouts without fixed-width elements.
    """
    device = device_of([array])
    if device is not None:
        return device_array_to_dlpack(array, device, options)
    if not _has_boolean_elements(array.layout):
        return numpy_to_dlpack(to_numpy_without_copy(array, "DLPack"), options)
    check_no_nulls(array, "DLPack")
    if options.get("copy") is False:
        raise BufferExchangeError("DLPack: booleans can't be shared with copy=False: Arrow stores bits, not bytes")
    values = array.to_numpy(zero_copy_only=False)
    if values.dtype != np.bool_:
        raise BufferExchangeError(
            f"DLPack does not support nulls within {array.type}: call fill_null or drop_null first"
        )
    return numpy_to_dlpack(values, options)


def _has_boolean_elements(layout: Layout) -> bool:
    """Whether the elements are booleans, in one dimension or in fixed-size lists."""
    while isinstance(layout, FixedSizeListLayout):
        (layout,) = layout.children
    return isinstance(layout, BooleanLayout)


def dlpack_device_of(array: ArrayData) -> tuple[int, int]:
    """Return the DLPack device of an array: its type and number."""
    device = device_of([array])
    return CPU_DEVICE if device is None else (device.type, device.id)


# DLPack import


def numpy_from_dlpack(source: Any, copy: bool | None = None) -> Values:
    """Convert an object with `__dlpack__` to a NumPy array. The producer shares or copies its memory; `copy=False`
    requests sharing. Raises as `bowstring.from_dlpack`.
    """
    if not hasattr(source, "__dlpack__"):
        raise BufferExchangeError(f"expected an object with __dlpack__, found {type(source).__name__}")
    if hasattr(source, "__dlpack_device__"):
        device_type, device_id = source.__dlpack_device__()
        check_cpu_readable_device(int(device_type), int(device_id))
    try:
        if copy is False:
            with suppress(TypeError):  # producers before DLPack 1.0 have no `copy` parameter, and share
                return np.from_dlpack(source, copy=False)
        return np.from_dlpack(source)
    except (BufferError, RuntimeError, TypeError, ValueError, AttributeError) as error:
        raise BufferExchangeError(f"DLPack can't export this {type(source).__name__}: {error}") from error

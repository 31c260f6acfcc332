"""Arrays as plain memory: DLPack, and Python's buffer protocol.

Both know elements of one width, one after the other, and no nulls. So an array goes out by them where it has no nulls
and its elements lie like that. The buffer protocol shares the memory, read-only. DLPack copies it unless the consumer
passes `copy=False`: consumers such as PyTorch ignore that memory is read-only, and would crash the process when they
write to mapped memory, or change what everyone else reads. The capsules are NumPy's, and so is the reading of others'.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from bowstring.arrays import construction
from bowstring.errors import NotShareableError, WouldCopyError
from bowstring.interop.c_device import CPU, check_device
from bowstring.layouts.array import Array
from bowstring.layouts.base import Values
from bowstring.layouts.boolean import BooleanLayout

DEVICE = (CPU, 0)
"""Where our memory is, as DLPack says it."""


# DLPack, out


def dlpack_capsule(values: Values, options: dict[str, Any]) -> Any:
    """A copy of the elements of a NumPy array as a DLPack capsule, or the elements themselves with `copy=False`.

    `options` are those of the array API standard: `stream` (None: the CPU has no streams), `max_version`, `dl_device`
    and `copy`. Memory that is shared is read-only; a consumer that writes to it anyway crashes the process or changes
    the array. Raises `NotShareableError` for elements that DLPack does not know, another device, and for `copy=False`
    without a `max_version` of DLPack 1.0 or later: earlier versions cannot mark memory as read-only.
    """
    stream, device = options.pop("stream", None), options.pop("dl_device", None)
    if stream is not None:
        raise NotShareableError(f"DLPack: memory of the CPU has no stream, but stream {stream!r} is asked for")
    if device is not None and (int(device[0]), int(device[1])) != DEVICE:
        raise NotShareableError(f"DLPack: the elements are on the CPU {DEVICE}, not on device {tuple(device)}")
    if values.dtype.kind not in "biuf":
        raise NotShareableError(f"DLPack knows integers, floats and booleans, not NumPy's {values.dtype}")
    options["copy"] = options.get("copy") is not False
    try:
        return values.__dlpack__(**{name: value for name, value in options.items() if value is not None})
    except (BufferError, TypeError) as error:
        raise NotShareableError(
            f"DLPack: {error} (without a copy the memory is read-only, which takes max_version=(1, 0))"
        ) from None


def array_capsule(array: Array, options: dict[str, Any]) -> Any:
    """An array as a DLPack capsule, of one dimension, or of more for fixed-size lists and tensors of plain numbers.

    Raises as `dlpack_capsule`, and `NotShareableError` for nulls and for layouts without plain elements.
    """
    if isinstance(array.layout, BooleanLayout):
        _refuse_nulls(array, "DLPack")
        if options.get("copy") is False:
            raise NotShareableError("DLPack: booleans are bits here and bytes there, which takes a copy")
        return dlpack_capsule(array.layout.bits(array), options)
    return dlpack_capsule(_plain(array, "DLPack"), options)


def _refuse_nulls(array: Array, protocol: str) -> None:
    if array.null_count:
        raise NotShareableError(
            f"{protocol} has no nulls, but {array.null_count} of {array.length} values are null: fill_null or drop_null"
        )


def _plain(array: Array, protocol: str) -> Values:
    _refuse_nulls(array, protocol)
    try:
        return array.to_numpy()
    except WouldCopyError as error:
        raise NotShareableError(f"{protocol} carries plain elements, not {array.type}: {error}") from None


# DLPack, in


def from_dlpack(source: Any, copy: bool | None = None) -> Array:
    """The array behind any object with `__dlpack__` (of NumPy, PyTorch, JAX, …) in memory that the processor reads.

    Elements of more than one dimension become fixed-size lists. Shares the memory where the producer does and elements
    lie in C order without gaps and are no booleans, else copies; `copy=True` always copies, `copy=False` raises
    `WouldCopyError` instead of copying. Whoever else writes to shared memory changes the array. Raises
    `UnsupportedError` for memory of another device, `DataTypeError` for elements that have no data type or no dimension
    at all, `NotShareableError` for what DLPack does not carry.
    """
    values = numpy_from_dlpack(source, copy)
    if copy is False and not (values.flags.c_contiguous and values.dtype.kind != "b"):
        raise WouldCopyError("booleans and elements with gaps between them do not become an array without copying")
    return construction.array(values.copy() if copy else values)


def numpy_from_dlpack(source: Any, copy: bool | None = None) -> Values:
    """The NumPy array of an object with `__dlpack__`, over memory that it shares or copies; with `copy=False` it is
    asked to share it. Errors as `from_dlpack`.
    """
    if not hasattr(source, "__dlpack__"):
        raise NotShareableError(f"expected an object with __dlpack__, not {type(source).__name__}")
    if hasattr(source, "__dlpack_device__"):
        kind, number = source.__dlpack_device__()
        check_device(int(kind), int(number))
    try:
        if copy is False:
            with suppress(TypeError):  # producers older than DLPack 1.0 have no `copy`, and share
                return np.from_dlpack(source, copy=False)
        return np.from_dlpack(source)
    except (BufferError, RuntimeError, TypeError, ValueError, AttributeError) as error:
        raise NotShareableError(f"DLPack does not carry this {type(source).__name__}: {error}") from error


# The buffer protocol


def array_buffer(array: Array) -> memoryview:
    """The values of an array that NumPy shows without copying, as the same elements in a read-only `memoryview`.

    Raises `NotShareableError` for nulls, for other layouts, and for moments and byte strings: buffers have no format
    for them.
    """
    values = _plain(array, "the buffer protocol")
    if values.dtype.kind not in "iuf" and values.dtype.names is None:
        raise NotShareableError(
            f"the buffer protocol has no format for {array.type}: take its slots, `array.values(1)`, or NumPy's view"
        )
    return values.data.toreadonly()

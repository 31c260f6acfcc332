"""Arrays as plain memory: DLPack, and Python's buffer protocol.

Both know elements of one width, one after the other, and no nulls. So an array goes out by them where it has no nulls
and its elements lie like that; the memory is shared and read-only. Booleans are bits here and bytes to DLPack: they are
copied. The capsules are NumPy's, and so is the reading of others'.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bowstring.errors import NotShareableError, WouldCopyError
from bowstring.exchange.devices import CPU, check_device
from bowstring.layouts.array import Array
from bowstring.layouts.base import Values
from bowstring.layouts.boolean import BooleanLayout
from bowstring.tabular import build

DEVICE = (CPU, 0)
"""Where our memory is, as DLPack says it."""


# DLPack, out


def dlpack_capsule(values: Values, options: dict[str, Any]) -> Any:
    """The elements of a NumPy array as a DLPack capsule, without copying unless `copy=True` is among the options.

    `options` are those of the array API standard: `stream` (None: the CPU has no streams), `max_version`, `dl_device`
    and `copy`. Raises `NotShareableError` for elements that DLPack does not know, another device, and for read-only
    memory where the consumer does not say by `max_version` that it speaks DLPack 1.0: earlier versions cannot say that
    memory is read-only.
    """
    stream, device = options.pop("stream", None), options.pop("dl_device", None)
    if stream is not None:
        raise NotShareableError(f"DLPack: memory of the CPU has no stream, but stream {stream!r} is asked for")
    if device is not None and (int(device[0]), int(device[1])) != DEVICE:
        raise NotShareableError(f"DLPack: the elements are on the CPU {DEVICE}, not on device {tuple(device)}")
    if values.dtype.kind not in "biuf":
        raise NotShareableError(f"DLPack knows integers, floats and booleans, not NumPy's {values.dtype}")
    try:
        return values.__dlpack__(**{name: value for name, value in options.items() if value is not None})
    except (BufferError, TypeError) as error:
        raise NotShareableError(
            f"DLPack: {error} (the memory is read-only: ask for max_version=(1, 0), or for a copy)"
        ) from None


def array_capsule(array: Array, options: dict[str, Any]) -> Any:
    """An array as a DLPack capsule, of one dimension, or of more for fixed-size lists and tensors of plain numbers.

    Raises as `dlpack_capsule`, and `NotShareableError` for nulls and for layouts without plain elements.
    """
    if isinstance(array.layout, BooleanLayout):
        _refuse_nulls(array, "DLPack")
        if options.get("copy") is False:
            raise NotShareableError("DLPack: booleans are bits here and bytes there, which takes a copy")
        return dlpack_capsule(array.layout.bits(array), {**options, "copy": True})
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

    Elements of more than one dimension become fixed-size lists. Shares the memory where elements lie in C order without
    gaps and are no booleans, else copies; `copy=True` always copies, `copy=False` raises `WouldCopyError` instead of
    copying. Whoever else writes to shared memory changes the array. Raises `UnsupportedError` for memory of another
    device, `DataTypeError` for elements that have no data type or no dimension at all, `NotShareableError` for what
    DLPack does not carry.
    """
    values = taken(source)
    if copy is False and not (values.flags.c_contiguous and values.dtype.kind != "b"):
        raise WouldCopyError("booleans and elements with gaps between them do not become an array without copying")
    return build.array(values.copy() if copy else values)


def taken(source: Any) -> Values:
    """The NumPy array over the memory of an object with `__dlpack__`; errors as `from_dlpack`."""
    if not hasattr(source, "__dlpack__"):
        raise NotShareableError(f"expected an object with __dlpack__, not {type(source).__name__}")
    if hasattr(source, "__dlpack_device__"):
        kind, number = source.__dlpack_device__()
        check_device(int(kind), int(number))
    try:
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

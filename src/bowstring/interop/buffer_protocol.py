"""Python's buffer protocol: contiguous fixed-width elements without nulls, shared and read-only."""

from __future__ import annotations

from bowstring.errors import BufferExchangeError, WouldCopyError
from bowstring.layouts.base import ArrayData, Values


def to_memoryview(array: ArrayData) -> memoryview:
    """Return the values of an array as a read-only `memoryview`, without copying.

    Raises `BufferExchangeError` for nulls, for layouts that `to_numpy` can't share, and for temporal types and
    fixed-size binary, for which the buffer protocol has no format.
    """
    values = to_numpy_without_copy(array, "the buffer protocol")
    if values.dtype.kind not in "iuf" and values.dtype.names is None:
        raise BufferExchangeError(
            f"the buffer protocol has no format for {array.type}: use `array.buffer_values(1)` or `array.to_numpy()`"
        )
    return values.data.toreadonly()


def check_no_nulls(array: ArrayData, protocol: str) -> None:
    """Raise `BufferExchangeError` if the array has nulls. `protocol` is named in the message."""
    if array.null_count:
        raise BufferExchangeError(
            f"{protocol} does not support nulls, but {array.null_count} of {array.length} values are null: call "
            "fill_null or drop_null first"
        )


def to_numpy_without_copy(array: ArrayData, protocol: str) -> Values:
    """Return the values of an array without nulls. Raises `BufferExchangeError` if they would have to be copied."""
    check_no_nulls(array, protocol)
    try:
        return array.to_numpy()
    except WouldCopyError:
        raise BufferExchangeError(f"{protocol} does not support {array.type}, whose values NumPy can't share") from None

"""Limits on output that is much larger than its input.

Views, runs, dictionary indices and slots without memory let a few bytes represent any number of values. The cost of
checking such an array is proportional to its bytes. The cost of materializing its values is not, so it has a limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from bowstring.errors import LimitError
from bowstring.memory.available_memory import available_memory_bytes

MAX_VALUES = 1 << 27
"""The maximum number of values to materialize from an array that has fewer bytes and elements than that.

Set this module attribute to change the limit.
"""
MAX_BYTES = 1 << 28
"""The maximum number of bytes to copy out of fewer bits; can be set like `MAX_VALUES`. Of many short values, eight
times as many may be copied.
"""
# Eight times the 16 bytes that the index and the offset of a value take: the factor of `source_bytes`.
_SHORT_VALUE_BYTES = 128
_is_limited_by_memory: ContextVar[bool] = ContextVar("_is_limited_by_memory", default=False)
_VALUE_BYTES = 8
"""The memory of a value that is compared with the available one: an index, a number or a pointer."""


@contextmanager
def allow_available_memory() -> Iterator[None]:
    """Within this context, the available memory is the limit if it is greater: for values that the caller has passed,
    which no file or peer chose.
    """
    token = _is_limited_by_memory.set(True)
    try:
        yield
    finally:
        _is_limited_by_memory.reset(token)


def _fits_available_memory(num_bytes: int) -> bool:
    return _is_limited_by_memory.get() and num_bytes <= (available_memory_bytes() or 0)


def check_expanded_bytes(num_bytes: int, source_bytes: int, num_values: int = 0) -> None:
    """Raise `LimitError` if copying `num_bytes` bytes out of `source_bytes` bytes exceeds the limit.

    `num_values` is the number of the copied values, if their indices need memory, too: words of a dictionary, for
    example, have more bytes than it has bits in any column of many rows.
    """
    limit = max(MAX_BYTES, 8 * source_bytes, min(_SHORT_VALUE_BYTES * num_values, 8 * MAX_BYTES))
    if num_bytes > limit and not _fits_available_memory(num_bytes):
        raise LimitError(
            f"copying {num_bytes} bytes out of {source_bytes} exceeds the limit of {MAX_BYTES} (MAX_BYTES)"
        )


def check_expanded_slots(num_slots: int, slot_bytes: int, source_bytes: int) -> None:
    """Raise `LimitError` if copying slots out of `source_bytes` bytes exceeds the limit on values; slots of more than 8
    bytes count as several values.
    """
    if slot_bytes > 8 and num_slots * slot_bytes > source_bytes:
        check_expanded_values(num_slots * -(-slot_bytes // 8), 8 * source_bytes)


def check_expanded_values(num_values: int, source_values: int) -> None:
    """Raise `LimitError` if materializing `num_values` values from `source_values` values exceeds the limit."""
    if num_values > max(MAX_VALUES, source_values) and not _fits_available_memory(_VALUE_BYTES * num_values):
        raise LimitError(
            f"materializing {num_values} values from {source_values} exceeds the limit of {MAX_VALUES} (MAX_VALUES)"
        )

"""Full validation of strings: every offset and every byte. The peer is pyarrow's `validate(full=True)`.

Both validate the same memory. Before the measurement, both accept the array and reject it with one damaged byte.
Bowstring detects ASCII eight bytes at a time and decodes other blocks with Python's decoder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import bowstring
from benchmarks import datasets
from benchmarks.measure import Measurement, Settings, compare_calls
from bowstring.errors import InvalidDataError

_ROWS = 10_000_000
_CASES: tuple[tuple[str, float, Callable[[np.random.Generator, int], Any]], ...] = (
    ("ASCII strings", 0.3, datasets.ascii_strings),
    ("multilingual strings", 1.5, datasets.multilingual_strings),
)


def run(_folder: Path, settings: Settings) -> Iterator[Measurement]:
    """Measure each kind of strings."""
    rows = settings.rows(_ROWS)
    for name, bound, create in _CASES:
        pa_array = create(np.random.default_rng(2027), rows)
        array = bowstring.array(pa_array)
        array.validate(full=True)
        pa_array.validate(full=True)
        _check_rejected(_with_invalid_byte(pa_array))
        yield compare_calls(
            f"{rows:,} {name}",
            bound,
            partial(array.validate, full=True),
            partial(pa_array.validate, full=True),
            settings,
        )


def _with_invalid_byte(array: Any) -> Any:
    """The array with a byte that is not valid UTF-8 in the last value that is not empty."""
    validity, offsets, values = array.buffers()
    ends = np.frombuffer(offsets, np.int32)[: len(array) + 1]
    has_bytes = (np.diff(ends) > 0) & array.is_valid().to_numpy(zero_copy_only=False)
    values_with_invalid_byte = np.frombuffer(values, np.uint8).copy()
    values_with_invalid_byte[ends[np.flatnonzero(has_bytes)[-1]]] = 0xFF
    return pa.Array.from_buffers(array.type, len(array), [validity, offsets, pa.py_buffer(values_with_invalid_byte)])


def _check_rejected(pa_array: Any) -> None:
    for array, error in ((pa_array, pa.ArrowInvalid), (bowstring.array(pa_array), InvalidDataError)):
        try:
            array.validate(full=True)
        except error:
            continue
        raise AssertionError(f"{type(array).__module__} accepts a damaged array")

"""Compare equal arrays at different addresses. The peer is pyarrow's `equals`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import bowstring
from benchmarks import datasets
from benchmarks.measure import Measurement, Settings, compare_calls

_ROWS = 10_000_000
_BOUND = 3.0


def run(_folder: Path, settings: Settings) -> Iterator[Measurement]:
    """Measure floats with nulls, and strings."""
    rows, string_rows = settings.rows(_ROWS), settings.rows(_ROWS // 5)
    pairs = {
        f"{rows:,} float64 with nulls": (_nullable_floats(rows, 1.0), _nullable_floats(rows, 2.0)),
        f"{string_rows:,} strings": (_strings(string_rows), _strings(string_rows)),
    }
    for line, (pa_left, pa_right) in pairs.items():
        left, right = bowstring.array(pa_left), bowstring.array(pa_right)
        other = bowstring.array(_with_other_last_value(pa_right))
        assert left.equals(right), f"{line}: equal arrays compare as different"
        assert pa_left.equals(pa_right), f"{line}: equal arrays compare as different in pyarrow"
        assert not left.equals(other), f"{line}: different arrays compare as equal"
        yield compare_calls(line, _BOUND, partial(left.equals, right), partial(pa_left.equals, pa_right), settings)


def _with_other_last_value(array: Any) -> Any:
    last = pa.array([None], array.type) if array[-1].is_valid else array.drop_null().slice(0, 1)
    return pa.concat_arrays([array.slice(0, len(array) - 1), last])


def _strings(rows: int) -> Any:
    return datasets.ascii_strings(np.random.default_rng(2028), rows)


def _nullable_floats(rows: int, value_at_nulls: float) -> Any:
    """A float64 array with nulls; `value_at_nulls` is in the null slots of the values buffer."""
    random = np.random.default_rng(2028)
    values = random.random(rows)
    is_valid = random.random(rows) >= datasets.NULL_FRACTION
    values[~is_valid] = value_at_nulls
    buffers = [pa.py_buffer(np.packbits(is_valid, bitorder="little")), pa.py_buffer(values)]
    return pa.Array.from_buffers(pa.float64(), rows, buffers)

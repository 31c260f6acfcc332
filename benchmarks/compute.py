"""Take, filter and dictionary-encode strings. The peer is pyarrow; there are no bounds.

pyarrow runs compiled loops over the strings; these lines show the cost of doing the same with NumPy.
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

_ROWS = 500_000


def run(_folder: Path, settings: Settings) -> Iterator[Measurement]:
    """Measure each function."""
    rows = settings.rows(_ROWS)
    random = np.random.default_rng(2031)
    pa_array = datasets.ascii_strings(random, rows)
    array = bowstring.array(pa_array)
    order, mask = random.permutation(rows), random.random(rows) < 0.5
    lines: tuple[tuple[str, Callable[[], Any], Callable[[], Any]], ...] = (
        ("take in random order", partial(array.take, order), partial(pa_array.take, pa.array(order))),
        ("filter half of", partial(array.filter, mask), partial(pa_array.filter, pa.array(mask))),
        ("dictionary_encode", array.dictionary_encode, pa_array.dictionary_encode),
    )
    for line, call, pa_call in lines:
        assert call().equals(bowstring.array(pa_call())), f"{line}: Bowstring and pyarrow return different values"
        yield compare_calls(f"{line} {rows:,} strings", None, call, pa_call, settings)

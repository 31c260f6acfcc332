"""The everyday verbs on strings: taking, filtering, sorting, encoding. The peer is pyarrow's compute; no bounds.

Nothing here moves memory as cheaply as C does, so this shows what NumPy makes of it. Results are compared once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

import bowstring
from benchmarks import data
from benchmarks.timing import Contender, Effort, Outcome, compare, timed

GROUP = "verbs"
_ROWS = 500_000


@dataclass(frozen=True, slots=True)
class Shape:
    """Strings to work on; `share` of `_ROWS` of them."""

    name: str
    make: Callable[[np.random.Generator, int], Any]
    share: int = 1


SHAPES = (
    Shape("strings of 16 bytes", data.ascii_strings),
    Shape("strings of 100 bytes", partial(data.ascii_strings, length_bytes=100), share=5),
    Shape("twelve distinct strings", data.strings_of_all_scripts),
)


def run(_folder: Path, effort: Effort) -> Iterator[Outcome]:
    """Measure each verb on each kind of strings."""
    for shape in SHAPES:
        rows = effort.rows(_ROWS // shape.share)
        random = np.random.default_rng(2031)
        theirs = shape.make(random, rows)
        ours = bowstring.array(theirs)
        order, mask = random.permutation(rows), random.random(rows) < 0.5
        their_order, their_mask = pa.array(order), pa.array(mask)
        for verb, mine, peer in (
            ("take in random order", partial(ours.take, order), partial(theirs.take, their_order)),
            ("filter every second", partial(ours.filter, mask), partial(theirs.filter, their_mask)),
            ("sort_indices", ours.sort_indices, partial(pa.compute.sort_indices, theirs)),
            ("dictionary_encode", ours.dictionary_encode, theirs.dictionary_encode),
        ):
            assert mine().equals(bowstring.array(peer())), f"{verb}: other values"
            contenders = Contender("bowstring", timed(mine)), [Contender("pyarrow", timed(peer))]
            yield compare((GROUP, f"{verb}, {rows:,} {shape.name}"), None, *contenders, effort)

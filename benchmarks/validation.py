"""Full validation, every offset and every character. The peer is pyarrow's `validate(full=True)`.

Both look at the same memory. Before the clock starts, both accept it, and both refuse it with one byte broken.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import bowstring
from benchmarks import data
from benchmarks.timing import Contender, Effort, Outcome, compare, timed
from bowstring.errors import InvalidDataError

GROUP = "validation"
_STRINGS = 10_000_000
_INLINE_BYTES = 12


@dataclass(frozen=True, slots=True)
class Shape:
    """Strings to validate, and the bound for it."""

    name: str
    bound: float | None
    is_ascii: bool
    has_nulls: bool = False
    is_view: bool = False

    def make(self, random: np.random.Generator, rows: int) -> Any:
        """So many of them, as a pyarrow array."""
        made = data.ascii_strings(random, rows) if self.is_ascii else data.strings_of_all_scripts(random, rows)
        if self.has_nulls:
            made = data.with_nulls(random, made)
        return made.cast(pa.string_view()) if self.is_view else made


SHAPES = (
    Shape("ASCII strings", 0.3, is_ascii=True),
    Shape("strings of mixed scripts", 1.5, is_ascii=False),
    Shape("ASCII strings with nulls", None, is_ascii=True, has_nulls=True),
    Shape("strings of mixed scripts with nulls", None, is_ascii=False, has_nulls=True),
    Shape("ASCII string views", None, is_ascii=True, is_view=True),
    Shape("string views of mixed scripts", None, is_ascii=False, is_view=True),
)


def run(_folder: Path, effort: Effort) -> Iterator[Outcome]:
    """Measure each kind of strings."""
    for shape in SHAPES:
        rows = effort.rows(_STRINGS // 5 if shape.bound is None else _STRINGS)
        theirs = shape.make(np.random.default_rng(2027), rows)
        ours = bowstring.array(theirs)
        _check(theirs)
        yield compare(
            (GROUP, f"{rows:,} {shape.name}"),
            shape.bound,
            Contender("bowstring", timed(partial(ours.validate, full=True))),
            [Contender("pyarrow", timed(partial(theirs.validate, full=True)))],
            effort,
        )


def _check(theirs: Any) -> None:
    """Both accept the strings, and refuse them with a stray byte in the last one that has its own bytes."""
    theirs.validate(full=True)
    bowstring.array(theirs).validate(full=True)
    *held, last = theirs.buffers()
    numbers = np.frombuffer(held[1], np.int32)
    if pa.types.is_string_view(theirs.type):
        lengths, offsets = numbers.reshape(-1, 4)[: len(theirs), [0, 3]].T
    else:
        lengths, offsets = np.diff(numbers[: len(theirs) + 1]), numbers
    long = (lengths > _INLINE_BYTES) & theirs.is_valid().to_numpy(zero_copy_only=False)
    broken = np.frombuffer(last, np.uint8).copy()
    broken[offsets[np.flatnonzero(long)[-1]]] = 0xFF
    array = pa.Array.from_buffers(theirs.type, len(theirs), [*held, pa.py_buffer(broken)])
    refused = 0
    for check, error in ((array, pa.ArrowInvalid), (bowstring.array(array), InvalidDataError)):
        try:
            check.validate(full=True)
        except error:
            refused += 1
    assert refused == 2, f"a stray byte was refused by {refused} of 2"

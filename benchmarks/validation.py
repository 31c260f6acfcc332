"""Full validation, every offset and every character. The peer is pyarrow's `validate(full=True)`.

Both look at the same memory. Before the clock starts, both accept it, and both refuse it with one thing broken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

import bowstring
from benchmarks import data
from benchmarks.timing import Contender, Effort, Outcome, compare, timed
from bowstring.errors import InvalidDataError

GROUP = "validation"
_ROWS = 10_000_000
_WORDS = 1000
_LIST_LENGTH = 5
_INLINE_BYTES = 12

Break: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Shape:
    """Values to validate: how many of them are made, how they are broken, and the bound; fewer without one."""

    name: str
    bound: float | None
    make: Callable[[np.random.Generator, int], Any]
    broken: Break


def _with_nulls(make: Callable[..., Any]) -> Callable[[np.random.Generator, int], Any]:
    return lambda random, rows: data.with_nulls(random, make(random, rows))


def _as(make: Callable[..., Any], *types: Any) -> Callable[[np.random.Generator, int], Any]:
    def made(random: np.random.Generator, rows: int) -> Any:
        array = make(random, rows)
        for type_ in types:
            array = array.cast(type_)
        return array

    return made


def _numbers(random: np.random.Generator, rows: int) -> Any:
    return pa.array(random.integers(0, _WORDS, rows).astype(np.int32))


def _encoded(random: np.random.Generator, rows: int) -> Any:
    return pa.DictionaryArray.from_arrays(_numbers(random, rows), data.ascii_strings(random, _WORDS))


def _lists(random: np.random.Generator, rows: int) -> Any:
    rows -= rows % _LIST_LENGTH
    return pa.ListArray.from_arrays(np.arange(0, rows + 1, _LIST_LENGTH, dtype=np.int32), _numbers(random, rows))


def _structs(random: np.random.Generator, rows: int) -> Any:
    numbers = _numbers(random, rows)
    columns = [numbers, data.ascii_strings(random, rows), numbers.cast(pa.float64())]
    return pa.StructArray.from_arrays(columns, ["number", "text", "share"])


def _stray_byte(theirs: Any) -> Any:
    """Strings with a stray byte in the last one that has its own bytes."""
    *held, last = theirs.buffers()
    numbers = np.frombuffer(held[1], np.int32)
    if pa.types.is_string_view(theirs.type):
        lengths, offsets = numbers.reshape(-1, 4)[: len(theirs), [0, 3]].T
    else:
        lengths, offsets = np.diff(numbers[: len(theirs) + 1]), numbers
    long = (lengths > _INLINE_BYTES) & theirs.is_valid().to_numpy(zero_copy_only=False)
    broken = np.frombuffer(last, np.uint8).copy()
    broken[offsets[np.flatnonzero(long)[-1]]] = 0xFF
    return pa.Array.from_buffers(theirs.type, len(theirs), [*held, pa.py_buffer(broken)])


def _other_prefix(theirs: Any) -> Any:
    """Views of which the last one's first byte is another."""
    validity, views, *rest = theirs.buffers()
    broken = np.frombuffer(views, np.uint8).reshape(-1, 16).copy()
    long = np.flatnonzero(broken.view(np.int32)[: len(theirs), 0] > _INLINE_BYTES)
    broken[long[-1], 4] ^= 1
    return pa.Array.from_buffers(theirs.type, len(theirs), [validity, pa.py_buffer(broken), *rest])


def _negative(numbers: Any) -> Any:
    """Indices or offsets of which the one in the middle is negative."""
    broken = numbers.to_numpy().copy()
    broken[len(broken) // 2] = -1
    return pa.array(broken)


def _negative_index(theirs: Any) -> Any:
    return pa.DictionaryArray.from_arrays(_negative(theirs.indices), theirs.dictionary, safe=False)


def _negative_offset(theirs: Any) -> Any:
    return pa.ListArray.from_arrays(_negative(theirs.offsets), theirs.values)


def _stray_byte_inside(theirs: Any) -> Any:
    columns = [theirs.field(0), _stray_byte(theirs.field(1)), theirs.field(2)]
    return pa.StructArray.from_arrays(columns, fields=list(theirs.type))


_VIEW = pa.string_view()
SHAPES = (
    Shape("ASCII strings", 0.3, data.ascii_strings, _stray_byte),
    Shape("strings of mixed scripts", 1.5, data.strings_of_all_scripts, _stray_byte),
    Shape("ASCII strings with nulls", None, _with_nulls(data.ascii_strings), _stray_byte),
    Shape("strings of mixed scripts with nulls", None, _with_nulls(data.strings_of_all_scripts), _stray_byte),
    Shape("ASCII string views", None, _as(data.ascii_strings, _VIEW), _stray_byte),
    Shape("string views of mixed scripts", None, _as(data.strings_of_all_scripts, _VIEW), _stray_byte),
    Shape("ASCII string views with nulls", None, _as(_with_nulls(data.ascii_strings), _VIEW), _stray_byte),
    Shape("binary views", None, _as(data.ascii_strings, pa.binary(), pa.binary_view()), _other_prefix),
    Shape("dictionary-encoded strings", None, _encoded, _negative_index),
    Shape("numbers in lists", None, _lists, _negative_offset),
    Shape("structs with strings", None, _structs, _stray_byte_inside),
)


def run(_folder: Path, effort: Effort) -> Iterator[Outcome]:
    """Measure each kind of values."""
    for shape in SHAPES:
        rows = effort.rows(_ROWS // 5 if shape.bound is None else _ROWS)
        theirs = shape.make(np.random.default_rng(2027), rows)
        ours = bowstring.array(theirs)
        _check(theirs, shape.broken(theirs))
        yield compare(
            (GROUP, f"{rows:,} {shape.name}"),
            shape.bound,
            Contender("bowstring", timed(partial(ours.validate, full=True))),
            [Contender("pyarrow", timed(partial(theirs.validate, full=True)))],
            effort,
        )


def _check(sound: Any, broken: Any) -> None:
    """Both accept the one array and refuse the other."""
    sound.validate(full=True)
    bowstring.array(sound).validate(full=True)
    refused = 0
    for check, error in ((broken, pa.ArrowInvalid), (bowstring.array(broken), InvalidDataError)):
        try:
            check.validate(full=True)
        except error:
            refused += 1
    assert refused == 2, f"what is broken was refused by {refused} of 2"

"""Arrays to Python objects and back. The peer is pyarrow: `to_pylist`, and `array` with the type given and inferred.

Rows are `Table.to_pylist` and `Table.from_pylist`. What comes out is compared before the clock starts.

pyarrow leaves its UTF-8 in every string beyond ASCII, and whoever converts that string next finds it there: so there
are lines for strings that are all new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import bowstring
from benchmarks import data
from benchmarks.timing import Contender, Effort, Outcome, compare, timed

GROUP = "conversion"
_TO_BOUND, _FROM_BOUND = 1.5, 2.0


def _integers(random: np.random.Generator, rows: int) -> Any:
    return pa.array(random.integers(-1_000_000_000, 1_000_000_000, rows))


def _floats(random: np.random.Generator, rows: int) -> Any:
    return pa.array(random.random(rows))


def _truths(random: np.random.Generator, rows: int) -> Any:
    return pa.array(random.random(rows) < 0.5)


def _lists(random: np.random.Generator, rows: int) -> Any:
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(random.integers(0, 9, rows), out=offsets[1:])
    made = pa.ListArray.from_arrays(offsets, _integers(random, int(offsets[-1])))
    return pa.array(made.to_pylist(), made.type)


def _long_strings(random: np.random.Generator, rows: int) -> Any:
    return data.ascii_strings(random, rows, 400)


def _lists_of_strings(random: np.random.Generator, rows: int) -> Any:
    lists = _lists(random, rows)
    return pa.ListArray.from_arrays(lists.offsets, data.ascii_strings(random, len(lists.values)))


def _maps(random: np.random.Generator, rows: int) -> Any:
    lists = _lists(random, rows)
    return pa.MapArray.from_arrays(lists.offsets, data.ascii_strings(random, len(lists.values)), lists.values)


def _structs(random: np.random.Generator, rows: int) -> Any:
    names = ["number", "share", "name"]
    columns = _integers(random, rows), data.with_nulls(random, _floats(random, rows)), data.ascii_strings(random, rows)
    return pa.StructArray.from_arrays(columns, names)


@dataclass(frozen=True, slots=True)
class Shape:
    """Values to convert; `rows` of them."""

    name: str
    make: Callable[[np.random.Generator, int], Any]
    rows: int
    has_nulls: bool = False
    is_kept: bool = False
    """Whether pyarrow leaves something in values that it converted."""
    is_inferred: bool = True
    """Whether the values alone say of which type they are."""
    cast_to: Any = None
    from_bound: float | None = _FROM_BOUND

    def array(self, random: np.random.Generator, rows: int) -> Any:
        """So many of them as a pyarrow array."""
        made = self.make(random, rows)
        made = data.with_nulls(random, made) if self.has_nulls else made
        return made if self.cast_to is None else made.cast(self.cast_to)


SHAPES = (
    Shape("integers", _integers, 1_000_000),
    Shape("integers with nulls", _integers, 1_000_000, has_nulls=True),
    Shape("floats", _floats, 1_000_000),
    Shape("floats with nulls", _floats, 1_000_000, has_nulls=True),
    Shape("booleans", _truths, 1_000_000),
    Shape("booleans with nulls", _truths, 1_000_000, has_nulls=True),
    Shape("ASCII strings", data.ascii_strings, 1_000_000),
    Shape("strings of mixed scripts", data.strings_of_all_scripts, 500_000, is_kept=True),
    Shape("strings with nulls", data.ascii_strings, 500_000, has_nulls=True),
    Shape("lists of integers", _lists, 200_000),
    Shape("lists of integers with nulls", _lists, 200_000, has_nulls=True),
    Shape("structs", _structs, 200_000),
    Shape("byte strings", data.ascii_strings, 500_000, cast_to=pa.binary()),
    Shape("byte strings with nulls", data.ascii_strings, 500_000, has_nulls=True, cast_to=pa.binary()),
    Shape("string views", data.ascii_strings, 500_000, is_inferred=False, cast_to=pa.string_view()),
    Shape("long strings", _long_strings, 50_000),
    Shape("lists of strings", _lists_of_strings, 100_000),
    Shape("maps", _maps, 100_000, is_inferred=False),
)


def _half_null(random: np.random.Generator, made: Any) -> Any:
    return pa.compute.if_else(pa.array(random.random(len(made)) < 0.5), made, None)


def _cast(high: int, *types: Any) -> Callable[[np.random.Generator, int], Any]:
    """What whole numbers up to `high` become by casts to types, one after the other."""

    def make(random: np.random.Generator, rows: int) -> Any:
        made = pa.array(random.integers(0, high, rows))
        for type_ in types:
            made = made.cast(type_)
        return made

    return make


def _words(random: np.random.Generator, rows: int) -> Any:
    return pa.array([random.bytes(16) for _ in range(rows)], pa.binary(16))


def _shown(name: str, make: Callable[[np.random.Generator, int], Any], cast_to: Any = None) -> Shape:
    """A shape without a bound, made of Python values only."""
    return Shape(name, make, 200_000, is_inferred=False, cast_to=cast_to, from_bound=None)


SHAPES_MADE = (
    Shape("integers, half of them null", lambda random, rows: _half_null(random, _integers(random, rows)), 500_000),
    Shape("floats, half of them null", lambda random, rows: _half_null(random, _floats(random, rows)), 500_000),
    Shape("strings of mixed scripts with nulls", data.strings_of_all_scripts, 500_000, has_nulls=True),
    Shape("byte strings of 16 bytes", _words, 500_000),
    Shape("moments", _cast(1 << 50, pa.timestamp("us")), 200_000),
    Shape("moments of UTC", _cast(1 << 50, pa.timestamp("us", "UTC")), 200_000),
    _shown("string views of mixed scripts", data.strings_of_all_scripts, pa.string_view()),
    _shown("days", _cast(30_000, pa.int32(), pa.date32())),
    _shown("spans of time", _cast(1 << 50, pa.duration("us"))),
    _shown("times of day", _cast(86_400_000_000, pa.time64("us"))),
    _shown("decimals", _cast(1 << 30, pa.decimal128(20, 0), pa.decimal128(22, 2))),
)
"""What is only made of Python values, its type given."""


def _made(effort: Effort) -> Iterator[Outcome]:
    for shape in SHAPES_MADE:
        rows = effort.rows(shape.rows)
        theirs = shape.array(np.random.default_rng(2031), rows)
        ours, values = bowstring.array(theirs), theirs.to_pylist()
        assert bowstring.array(values, ours.type).equals(ours), f"{shape.name}: array of a type gives other values"
        line = f"array, type given, {rows:,} {shape.name}"
        yield _array_line(line, (ours.type, theirs.type), values, None, effort, shape.from_bound)
    rows = effort.rows(500_000)
    numbers = np.random.default_rng(2032).random(rows).tolist()
    numbers[5::10] = range(len(numbers[5::10]))
    assert bowstring.array(numbers).to_pylist() == numbers
    kinds: tuple[tuple[str, Any], ...] = (("given", (bowstring.float64(), pa.float64())), ("inferred", (None, None)))
    for said, types in kinds:
        line = f"array, type {said}, {rows:,} floats with integers among them"
        yield _array_line(line, types, numbers, None, effort, None)


def run(_folder: Path, effort: Effort) -> Iterator[Outcome]:
    """Measure each kind of values both ways, and then rows."""
    for shape in SHAPES:
        rows = effort.rows(shape.rows)
        theirs = shape.array(np.random.default_rng(2029), rows)
        ours, values = bowstring.array(theirs), theirs.to_pylist()
        assert ours.to_pylist() == values, f"{shape.name}: to_pylist gives other values"
        assert not shape.is_inferred or bowstring.array(values).equals(ours), f"{shape.name}: array gives other values"
        assert bowstring.array(values, ours.type).equals(ours), f"{shape.name}: array of a type gives other values"
        what = f"{rows:,} {shape.name}"
        yield _line(f"to_pylist, {what}", _TO_BOUND, ours.to_pylist, theirs.to_pylist, effort)
        given, inferred = ("given", (ours.type, theirs.type)), ("inferred", (None, None))
        for said, types in (given, inferred) if shape.is_inferred else (given,):
            yield _array_line(f"array, type {said}, {what}", types, values, None, effort)
            if shape.is_kept:
                yield _array_line(f"array, type {said}, {what}, all new", types, values, theirs, effort)
    yield from _made(effort)
    yield from _rows(effort)


def _array_line(
    line: str,
    types: tuple[Any, Any],
    values: list[Any],
    source: Any,
    effort: Effort,
    bound: float | None = _FROM_BOUND,
) -> Outcome:
    """Values become arrays; before each sample they are made anew out of `source`, if there is one."""

    def renew() -> None:
        if source is not None:
            values[:] = source.to_pylist()

    ours = Contender("bowstring", timed(lambda: bowstring.array(values, types[0]), renew))
    theirs = Contender("pyarrow", timed(lambda: pa.array(values, types[1]), renew))
    return compare((GROUP, line), bound, ours, [theirs], effort)


def _rows(effort: Effort) -> Iterator[Outcome]:
    rows = effort.rows(200_000)
    batch = data.mixed(np.random.default_rng(2030), rows, 5)
    theirs = pa.Table.from_batches([batch])
    ours, values = bowstring.table(theirs), theirs.to_pylist()
    assert ours.to_pylist() == values, "rows: to_pylist gives other values"
    assert bowstring.table(values, ours.schema).equals(ours), "rows: table gives other values"
    yield _line(f"to_pylist, {rows:,} rows of 5 columns", _TO_BOUND, ours.to_pylist, theirs.to_pylist, effort)
    yield _line(
        f"table, schema given, {rows:,} rows of 5 columns",
        _FROM_BOUND,
        partial(bowstring.table, values, ours.schema),
        partial(pa.Table.from_pylist, values, theirs.schema),
        effort,
    )
    yield _line(
        f"table, schema inferred, {rows:,} rows of 5 columns",
        _FROM_BOUND,
        partial(bowstring.table, values),
        partial(pa.Table.from_pylist, values),
        effort,
    )


def _line(line: str, bound: float, ours: Callable[[], object], theirs: Callable[[], object], effort: Effort) -> Outcome:
    contenders = Contender("bowstring", timed(ours)), [Contender("pyarrow", timed(theirs))]
    return compare((GROUP, line), bound, *contenders, effort)

"""Steps from the rows of a data set's parts to its own: select, cast and map change rows, filter and split choose them.

Rows are chosen first, by as few columns as possible, and the chosen ones are then changed. That equals the steps in
their order, because each row is changed by itself.
"""

from __future__ import annotations

import hashlib
import pickle
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import partial
from math import floor
from numbers import Real
from typing import Any, ClassVar, TypeAlias

import numpy as np

from bowstring.arrays.record_batch import RecordBatch, record_batch
from bowstring.arrays.table import Table
from bowstring.datasets.order import RowIndices, draw_distinct_numbers
from bowstring.datatypes.schema import Schema
from bowstring.errors import (
    BowstringError,
    InvalidArgumentError,
    InvalidDataError,
    add_location,
    format_count,
    prefix_errors,
)
from bowstring.kernels.filters import Filters, FiltersLike, parse_filters, to_python_number
from bowstring.memory.bitmap import Mask

ChangeRows: TypeAlias = Callable[[RecordBatch], RecordBatch]
MapFunction: TypeAlias = Callable[[RecordBatch], Any]

# Beyond the number of any window, whose random numbers `RowOrder` draws with the same seed.
_SPLIT_STREAM = (1 << 64) - 1
_ROUNDING = Fraction(1, 10**9)
"""By how much fractions such as three times 1/3 may differ from 1 in all."""
# Of filters; a list of values may have a million.
_MAX_DESCRIPTION = 200
_PICKLERS_BY_VALUE = frozenset(("cloudpickle", "dill", "pyspark.cloudpickle", "ray.cloudpickle"))
"""Modules that can pickle any function, if one of them is used."""


class Step(ABC):
    """One step; frozen. `schema` is the schema of the rows after it."""

    __slots__ = ()
    schema: Schema
    chooses_rows: ClassVar[bool] = False
    """Whether it leaves out rows, and changes none."""

    def select_parts(self, indices: Sequence[int]) -> Step:  # noqa: ARG002 -- of a split
        """Return the step for some parts, by their indices."""
        return self

    @abstractmethod
    def describe(self) -> str:
        """Return the step as a short text, which is equal for steps that choose the same rows of the same data."""


class RowStep(Step):
    """A step that changes each row by itself."""

    __slots__ = ()

    @abstractmethod
    def bind(self, columns: Sequence[int]) -> tuple[Sequence[int], ChangeRows | None]:
        """Return the columns before the step that some distinct columns after it need, and a function of a batch with
        the former that returns one with the latter; None if it would return the batch.
        """


@dataclass(frozen=True, slots=True)
class SelectStep(RowStep):
    """Some columns, by index."""

    schema: Schema
    indices: tuple[int, ...]

    def bind(self, columns: Sequence[int]) -> tuple[Sequence[int], ChangeRows | None]:
        """As `RowStep.bind`."""
        selected = [self.indices[column] for column in columns]
        positions = {index: position for position, index in enumerate(dict.fromkeys(selected))}
        keys = [positions[index] for index in selected]
        return list(positions), None if len(positions) == len(keys) else lambda batch: batch.select(keys)

    def describe(self) -> str:
        """As `Step.describe`."""
        return f"select {self.schema.names!s:.200}"


@dataclass(frozen=True, slots=True)
class CastStep(RowStep):
    """Columns with other types."""

    schema: Schema
    safe: bool

    def bind(self, columns: Sequence[int]) -> tuple[Sequence[int], ChangeRows]:
        """As `RowStep.bind`."""
        schema = self.schema.select(columns)
        return columns, lambda batch: batch.cast(schema, self.safe)

    def describe(self) -> str:
        """As `Step.describe`."""
        return f"cast to {self.schema!r:.200}"


@dataclass(frozen=True, slots=True)
class MapStep(RowStep):
    """What a function of a record batch returns."""

    schema: Schema
    input_schema: Schema
    function: MapFunction

    @classmethod
    def of(cls, function: MapFunction, input_schema: Schema, schema: Schema | None) -> MapStep:
        """Return the step; without a schema, the schema is that of the function's value for an empty batch.

        Raises `InvalidArgumentError` if the function fails for it.
        """
        if not callable(function):
            raise InvalidArgumentError(f"map: expected a function of a record batch, found {function!r:.80}")
        if schema is None:
            try:
                empty = record_batch(function(create_empty_batch(input_schema)))
            except Exception as error:
                raise InvalidArgumentError(
                    f"map: {_get_name(function)} failed for an empty batch, from which the schema would be taken: pass "
                    f"schema=…: {type(error).__name__}: {error}"
                ) from error
            if empty.num_rows:
                found = format_count(empty.num_rows, "row")
                raise InvalidArgumentError(f"map: {_get_name(function)} returned {found} for an empty batch")
            schema = empty.schema
        return cls(schema, input_schema, function)

    def bind(self, columns: Sequence[int]) -> tuple[Sequence[int], ChangeRows]:
        """As `RowStep.bind`."""
        selects_all = list(columns) == list(range(len(self.schema)))
        return range(len(self.input_schema)), self._call if selects_all else lambda b: self._call(b).select(columns)

    def _call(self, batch: RecordBatch) -> RecordBatch:
        if not batch.num_rows:
            return create_empty_batch(self.schema)
        location = f"map with {_get_name(self.function)}"
        returned = self.function(RecordBatch(self.input_schema, batch.num_rows, batch.lazy_columns))
        try:
            mapped = record_batch(returned, schema=self.schema)
        except BowstringError as error:
            expected = f"expected {self.schema!r:.200}, as stated by schema=… or returned for an empty batch"
            raise InvalidDataError(f"{location}: {expected}: {error}") from error
        if mapped.num_rows != batch.num_rows:
            expected = format_count(batch.num_rows, "row")
            raise InvalidDataError(f"{location}: expected {expected}, as it was passed, found {mapped.num_rows:,}")
        return mapped

    def describe(self) -> str:
        """As `Step.describe`."""
        return f"map with {_get_name(self.function)}"

    def __reduce__(self) -> tuple[Any, ...]:
        try:
            pickle.dumps(self.function)
        except Exception as error:
            if _PICKLERS_BY_VALUE.isdisjoint(sys.modules):
                name = _get_name(self.function)
                raise InvalidArgumentError(
                    f"map: {name} can't be pickled: define the function in a module, with def: {error}"
                ) from error
        return MapStep, (self.schema, self.input_schema, self.function)


@dataclass(frozen=True, slots=True)
class FilterStep(Step):
    """The rows that match filters."""

    schema: Schema
    conjunctions: tuple[tuple[tuple[Any, ...], ...], ...]
    """As in the filters that `Table.filter` takes."""
    filters: Filters = field(compare=False, repr=False)
    """The filters of the columns before the step, by index."""
    chooses_rows: ClassVar[bool] = True

    @classmethod
    def of(cls, filters: FiltersLike, schema: Schema) -> FilterStep:
        """Return the step. Raises as `parse_filters`."""
        if isinstance(filters, list | tuple):
            filters = list(map(_copy_condition, filters))
        parsed = parse_filters(filters, schema)
        is_conjunction = isinstance(filters[0], tuple) and isinstance(filters[0][0], str)
        conjunctions: Any = [filters] if is_conjunction else filters
        return cls(schema, tuple(map(tuple, conjunctions)), parsed)

    def describe(self) -> str:
        """As `Step.describe`."""
        conjunctions = [list(each) for each in self.conjunctions]
        text = f"filter {conjunctions[0] if len(conjunctions) == 1 else conjunctions}"
        if len(text) <= _MAX_DESCRIPTION:
            return text
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        return f"{text[:_MAX_DESCRIPTION]}… with the digest {digest}"

    def __reduce__(self) -> tuple[Any, ...]:
        return FilterStep.of, (self.conjunctions, self.schema)


def _copy_condition(condition: Any) -> Any:
    """Copy a condition, or a list of them, with its list of values, which may be an iterator or be changed later.

    Numbers of NumPy, whose text depends on NumPy's version, become Python's.
    """
    if isinstance(condition, list):
        return list(map(_copy_condition, condition))
    if not isinstance(condition, tuple) or len(condition) != 3:
        return condition
    column, operator, value = condition
    if operator in ("in", "not in") and isinstance(value, Iterable) and not isinstance(value, str | bytes):
        # A set's order differs between processes, and would change the description.
        values = sorted(value, key=repr) if isinstance(value, AbstractSet) else value
        return column, operator, list(map(to_python_number, values))
    return column, operator, to_python_number(value)


@dataclass(frozen=True, slots=True)
class SplitStep(Step):
    """One of several random parts of the rows of each part of the data."""

    schema: Schema
    name: str
    fractions: tuple[tuple[str, float], ...]
    seed: int
    part_rows: tuple[tuple[int, int], ...]
    """For each part its index in the data that was split, and its rows."""
    chooses_rows: ClassVar[bool] = True

    def select_parts(self, indices: Sequence[int]) -> SplitStep:
        """As `Step.select_parts`."""
        part_rows = tuple(self.part_rows[index] for index in indices)
        return SplitStep(self.schema, self.name, self.fractions, self.seed, part_rows)

    def count_rows(self) -> tuple[int, ...]:
        """Return the rows of each part after the step."""
        return tuple(stop - start for start, stop in map(self._compute_range, range(len(self.part_rows))))

    def compute_mask(self, part: int) -> Mask:
        """Return which rows of a part belong to this split, shape (rows of the part,)."""
        index, num_rows = self.part_rows[part]
        numbers = draw_distinct_numbers(self.seed, index, _SPLIT_STREAM, num_rows)
        start, stop = self._compute_range(part)
        if start == stop:
            return np.zeros(num_rows, np.bool_)
        ordered = np.partition(numbers, [start, stop - 1])
        mask: Mask = (numbers >= ordered[start]) & (numbers <= ordered[stop - 1])
        return mask

    def _compute_range(self, part: int) -> tuple[int, int]:
        """Return the positions of the split in a random order of the part's rows."""
        index, num_rows = self.part_rows[part]
        # One offset for all bounds: on average, each split gets exactly its fraction, also of parts with a few rows.
        raw = np.random.Philox(
            key=np.array([self.seed, index], np.uint64), counter=np.array([0, 0, 1, _SPLIT_STREAM], np.uint64)
        ).random_raw()
        offset, total = Fraction(int(raw), 1 << 64), Fraction(0)
        bounds = [0]
        for _, fraction in self.fractions:
            total += to_fraction(fraction)
            exact = Fraction(1) if abs(total - 1) <= _ROUNDING else total
            bounds.append(floor(exact * num_rows + offset))
        position = [name for name, _ in self.fractions].index(self.name)
        return bounds[position], bounds[position + 1]

    def describe(self) -> str:
        """As `Step.describe`."""
        return f"split {self.name!r} of {dict(self.fractions)}, seed {self.seed}"


def to_fraction(value: float) -> Fraction:
    """Return the fraction that a number is written as: 0.1 is 1/10, not the nearest binary fraction."""
    return Fraction(str(value))


def check_fractions(fractions: Any) -> tuple[tuple[str, float], ...]:
    """Return the names and fractions of splits. Raises `InvalidArgumentError`."""
    if not isinstance(fractions, Mapping) or not fractions:
        raise InvalidArgumentError(
            f'split: expected fractions by name, such as {{"train": 0.9, "valid": 0.1}}, found {fractions!r:.100}'
        )
    for name, fraction in fractions.items():
        is_number = isinstance(fraction, Real | Decimal) and not isinstance(fraction, bool)
        if not isinstance(name, str) or not is_number or not 0 < fraction < float("inf"):
            raise InvalidArgumentError(f"split: expected a name and a positive fraction, found {name!r}: {fraction!r}")
    # As Python's numbers, whose texts do not depend on the version of NumPy.
    checked = tuple((name, float(fraction)) for name, fraction in fractions.items())
    total = sum(to_fraction(fraction) for _, fraction in checked)
    if total > 1 + _ROUNDING:
        raise InvalidArgumentError(f"split: expected fractions of 1 or less in all, found {float(total):g}")
    return checked


def _get_name(function: Any) -> str:
    return str(getattr(function, "__qualname__", None) or f"{function!r:.80}")


def create_empty_batch(schema: Schema) -> RecordBatch:
    """Return a record batch without rows."""
    return Table(schema).combine_chunks().to_batches()[0]


# Reading


@dataclass(frozen=True, slots=True)
class _BoundFilter:
    filters: Filters
    num_columns: int
    """The first columns, which later steps need."""


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """The columns of the parts that steps need, and the steps, bound to them."""

    column_indices: tuple[int, ...]
    """Of the parts: first the columns that `changes` take, then others to choose rows."""
    num_changed_columns: int
    changes: tuple[ChangeRows, ...]
    choices: tuple[ChangeRows | _BoundFilter | SplitStep, ...]
    """Steps that choose rows, and the steps that these need."""
    candidate_filters: tuple[Filters, ...]
    """Filters of the columns of the parts: only batches that may match all of them are needed."""

    @classmethod
    def create(
        cls, steps: Sequence[Step], part_schema: Schema, column_indices: Sequence[int], columns: Sequence[int]
    ) -> ReadPlan:
        """Plan some columns of the rows after the steps, of which the first takes `column_indices` of the parts."""
        changed: Sequence[int] = columns
        changes: list[ChangeRows] = []
        for step in reversed(steps):
            if isinstance(step, RowStep) and changed:
                changed, change = step.bind(changed)
                if change is not None:
                    changes.insert(0, change)
        choosing, choices = _bind_choices(steps)
        read = list(dict.fromkeys([*changed, *choosing]))
        if choices:
            positions = {index: position for position, index in enumerate(read)}
            keys = [positions[index] for index in choosing]
            choices.insert(0, lambda batch: batch.select(keys))
        return cls(
            tuple(column_indices[index] for index in read),
            len(changed),
            tuple(changes),
            tuple(choices),
            tuple(_find_candidate_filters(steps, part_schema, column_indices)),
        )

    def change(self, batch: RecordBatch, schema: Schema, locate: Callable[[int], str]) -> RecordBatch:
        """Apply the steps that change rows, as `change_rows`; the batch has the columns that these take."""
        if not batch.num_rows:
            return create_empty_batch(schema)
        changed = change_rows(self.changes, batch, locate)
        return RecordBatch(schema, changed.num_rows, changed.lazy_columns, changed.pairs)


def _bind_choices(steps: Sequence[Step]) -> tuple[Sequence[int], list[ChangeRows | _BoundFilter | SplitStep]]:
    """Return the columns before the steps that choosing rows needs, and the steps that do so."""
    columns: Sequence[int] = ()
    bound: list[ChangeRows | _BoundFilter | SplitStep] = []
    for step in reversed(steps):
        if isinstance(step, SplitStep):
            bound.append(step)
        elif isinstance(step, FilterStep):
            joint = list(dict.fromkeys([*columns, *step.filters.column_indices]))
            filters = step.filters.with_column_indices({index: position for position, index in enumerate(joint)})
            bound.append(_BoundFilter(filters, len(columns)))
            columns = joint
        elif isinstance(step, RowStep) and columns:  # without columns, only the number of rows matters
            columns, change = step.bind(columns)
            if change is not None:
                bound.append(change)
    return columns, bound[::-1]


def _find_candidate_filters(
    steps: Sequence[Step], part_schema: Schema, column_indices: Sequence[int]
) -> Iterator[Filters]:
    """Yield the filters whose columns are columns of the parts, as they are stored."""
    sources: list[int | None] = list(column_indices)
    leaves_rows_out = False
    for step in steps:
        if isinstance(step, SplitStep) and leaves_rows_out:
            return  # it counts the rows of all batches
        if isinstance(step, SelectStep):
            sources = [sources[index] for index in step.indices]
        elif isinstance(step, FilterStep):
            filters = step.filters
            sources_by_index = {i: source for i in filters.column_indices if (source := sources[i]) is not None}
            if len(sources_by_index) == len(filters.column_indices):
                yield filters.with_column_indices(sources_by_index)
        elif isinstance(step, CastStep):
            for index, type_ in enumerate(step.schema.types):
                source = sources[index]
                if source is not None and part_schema.field(source).type != type_:
                    sources[index] = None
        elif isinstance(step, MapStep):
            sources = [None] * len(step.schema)
        leaves_rows_out |= step.chooses_rows


class RowChooser:
    """Chooses the rows of one part, from its batches in order; `location` names it in errors."""

    def __init__(self, plan: ReadPlan, part: int, location: str) -> None:
        self._choices = plan.choices
        self._part = part
        self._location = location
        self._masks: dict[int, Mask] = {}
        """The rows of a split, by its index among the steps."""
        self._positions: dict[int, int] = {}
        """The rows that have reached a split."""

    def choose(self, start: int, batch: RecordBatch) -> RowIndices:
        """Return the indices in a batch of its rows that are chosen; `start` is the index in the part of its first row.

        Raises `InvalidDataError` and `TypeMismatchError`, naming the row.
        """
        rows = np.arange(batch.num_rows)
        is_whole = True
        for index, choice in enumerate(self._choices):
            if isinstance(choice, _BoundFilter):
                with prefix_errors(f"{self._location}, rows from {start}"):
                    matching = np.flatnonzero(choice.filters.evaluate(batch.lazy_columns))
                batch = batch.select(range(choice.num_columns))
            elif isinstance(choice, SplitStep):
                position = start if is_whole else self._positions.get(index, 0)
                self._positions[index] = position + batch.num_rows
                matching = np.flatnonzero(self._get_mask(index, choice)[position : position + batch.num_rows])
            else:
                batch = change_rows([choice], batch, partial(self.locate, start, rows))
                continue
            is_whole = False
            if len(matching) < batch.num_rows:
                rows, batch = rows[matching], batch.take(matching)
            if not len(rows):
                break
        return rows

    def locate(self, start: int, rows: RowIndices, row: int) -> str:
        """Return where a chosen row is, for errors; `start` and `rows` are as in `choose`."""
        return f"{self._location}, row {start + int(rows[row])}"

    def _get_mask(self, index: int, split: SplitStep) -> Mask:
        if index not in self._masks:
            self._masks[index] = split.compute_mask(self._part)
        return self._masks[index]


def change_rows(changes: Sequence[ChangeRows], batch: RecordBatch, locate: Callable[[int], str]) -> RecordBatch:
    """Apply steps that change rows.

    An error of this package begins with `locate` of the index in the batch of the first row that fails alone; other
    exceptions of a function have it as a note.
    """
    try:
        return _apply(changes, batch)
    except Exception as error:  # noqa: BLE001 -- of any function
        row = _find_failing_row(changes, batch)
        if row is None:
            location = f"{locate(0)} and {batch.num_rows - 1} more"
            failure = error
        else:
            location, failure = locate(row), _find_error(changes, batch.slice(row, 1)) or error
        if isinstance(failure, BowstringError):
            raise add_location(failure, location) from failure.__cause__
        failure.add_note(f"{location}: in a function of Dataset.map")
        raise failure from failure.__cause__


def _apply(changes: Sequence[ChangeRows], batch: RecordBatch) -> RecordBatch:
    for change in changes:
        batch = change(batch)
    return batch


def _find_error(changes: Sequence[ChangeRows], batch: RecordBatch) -> Exception | None:
    try:
        _apply(changes, batch)
    except Exception as error:  # noqa: BLE001 -- of any function
        return error
    return None


def _find_failing_row(changes: Sequence[ChangeRows], batch: RecordBatch) -> int | None:
    """Return the first row for which the steps fail; None if they fail only for several together."""
    start, stop = 0, batch.num_rows
    while stop - start > 1:
        middle = (start + stop) // 2
        if _find_error(changes, batch.slice(start, middle - start)):
            stop = middle
        elif _find_error(changes, batch.slice(middle, stop - middle)):
            start = middle
        else:
            return None
    return start

"""The parts of a data set as tables: those in memory of this host stay mapped, others are read ahead and dropped."""

from __future__ import annotations

import copy
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from bowstring.arrays.array import Array, concat_arrays
from bowstring.arrays.construction import array
from bowstring.arrays.record_batch import RecordBatch
from bowstring.arrays.table import Table, as_table, concat_tables
from bowstring.datasets.column_arrays import NumberColumn, RowError, decode
from bowstring.datasets.dataset import (
    Dataset,
    DatasetPart,
    create_plan,
    describe_part,
    has_bounds,
    select_stored_columns,
)
from bowstring.datasets.fixed_width_rows import FixedWidthRows
from bowstring.datasets.order import RowIndices
from bowstring.datasets.sources import dataset as describe_dataset
from bowstring.datasets.steps import MapStep, RowChooser, SelectStep
from bowstring.errors import InvalidDataError, NotFoundError
from bowstring.kernels.list_lengths import (
    NO_LISTS,
    ListLengthBounds,
    count_list_levels,
    list_length_bounds,
    merge_list_length_bounds,
)
from bowstring.kernels.ml_vectors import MalformedRowError, read_vectors
from bowstring.layouts.indexing import chunk_starts
from bowstring.memory.forks import process_token
from bowstring.memory.thread_pool import group_by_size
from bowstring.sharing.client.connect import Target, connect
from bowstring.sharing.client.dataset_reader import DatasetReader
from bowstring.sharing.dataset_locations import DatasetLocations, is_shared_memory, sort_by_distance
from bowstring.sharing.share import SharedTableHandle, attach
from bowstring.transports.tls import TlsOptions

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

Source: TypeAlias = Table | Dataset | SharedTableHandle | DatasetReader | Target
"""A table, or one of another library that `bowstring.table` accepts; a data set in parts, or the path of a file or
folder, as `bowstring.dataset` describes it; the handle of a shared table; or anything else that `bowstring.connect`
accepts or returns.
"""
ColumnKeys: TypeAlias = str | int | Iterable[str | int]

# Some parts of common sizes; bounds the memory of a reader, beside one window.
DEFAULT_PREFETCH_BYTES = 256 << 20
_READING_THREADS = 2
"""One part is received while the next is requested."""
# Of tiny parts, the number and not the bytes is the limit: each is a request and a table.
_MAX_PARTS_AHEAD = 64
_GROUP_BYTES = 4 << 20
"""Parts that are smaller are requested together, which takes a fifth of the time of one connection for each."""


@dataclass(frozen=True, slots=True)
class OpenPart:
    """The rows of one part."""

    table: Table
    """Its batches that may have chosen rows, with the columns that `ReadPlan.change` takes."""
    is_mapped: bool
    """Whether it is memory of this host that others hold as well, so that nothing is freed by dropping it."""
    batch_starts: RowIndices
    """The index in the part of the first row of each batch, shape (batches,)."""
    rows: npt.NDArray[np.unsignedinteger] | None = None
    """The indices in the table of the chosen rows, ascending; None for all."""

    @property
    def num_rows(self) -> int:
        """The number of chosen rows."""
        return self.table.num_rows if self.rows is None else len(self.rows)

    def locate(self, position: int) -> int:
        """Return the index in the part of one of the chosen rows."""
        row = position if self.rows is None else int(self.rows[position])
        starts = chunk_starts(batch.num_rows for batch in self.table.to_batches())
        batch = bisect_right(starts, row) - 1
        return int(self.batch_starts[batch]) + row - starts[batch]


class PartTables:
    """The parts of a data set as tables, by their indices; of one thread.

    Parts in shared memory of this host are opened once. Others are read in other threads, before they are needed, and
    dropped afterwards: in memory are the parts that `select` needs, and the next ones, up to `prefetch_bytes` in all.
    Anything but a `Dataset` is one part, which is opened here. A pickled object opens them again.

    Raises as `connect` and `attach`, and `NotFoundError` for columns that do not exist.
    """

    def __init__(
        self, source: Source, columns: ColumnKeys | None, prefetch_bytes: int, tls: TlsOptions | None = None
    ) -> None:
        self._source = source = describe_dataset(source) if isinstance(source, os.PathLike) else source
        self._prefetch_bytes = prefetch_bytes
        self._tls = tls
        self._parts: dict[int, OpenPart] = {}
        self._futures: dict[int, Future[dict[int, OpenPart]]] = {}
        """The parts that are being read: one future for all parts of a request."""
        self._pool: ThreadPoolExecutor | None = None
        self._process = process_token()
        self._selection: RowSelection | None = None
        self._table: Table | None = None
        """The only part, if it has no description: a table of all columns that was opened here."""
        if isinstance(source, Dataset):
            dataset = source
        else:
            self._table = table = _open_table(source, tls)
            dataset = Dataset("", table.schema, [DatasetPart(table.num_rows, 0, ())])
        # Counted before columns are selected, so that the source has the counts, too.
        self.part_rows = list(dataset.part_rows)
        self._first_rows = np.cumsum([0, *self.part_rows])
        self._use_columns(dataset if columns is None else dataset.select(columns))

    def __reduce__(self) -> tuple[Any, ...]:
        is_described = self._table is None
        columns = None if is_described else self._dataset.column_indices
        return PartTables, (self._dataset if is_described else self._source, columns, self._prefetch_bytes, self._tls)

    @property
    def nbytes(self) -> int:
        """The bytes of the rows of all parts, of which filters leave out some."""
        if self._table is not None:
            return self._parts[0].table.nbytes
        num_rows = sum(part.num_rows for part in self._dataset.parts)
        return self._dataset.nbytes * sum(self.part_rows) // max(num_rows, 1)

    @property
    def row_selection(self) -> tuple[str, ...]:
        """The steps that choose rows, as short texts, which are equal if they choose the same rows of equal data."""
        return tuple(step.describe() for step in self._dataset.steps if step.chooses_rows)

    def select_columns(self, names: Sequence[str]) -> PartTables:
        """Return the tables with some of the columns, in this order. Raises `NotFoundError`."""
        tables = copy.copy(self)
        tables._futures, tables._parts, tables._selection, tables._pool = {}, {}, None, None
        tables._use_columns(self._dataset.select(names))
        return tables

    def _use_columns(self, dataset: Dataset) -> None:
        """Read the columns of this data set."""
        self._dataset, self.schema = dataset, dataset.schema
        if self._table is not None:
            columns = dataset.column_indices
            selected = self._table if columns is None else self._table.select(columns)
            starts = np.array(chunk_starts(batch.num_rows for batch in selected.to_batches())[:-1], np.int64)
            self._parts[0] = OpenPart(selected, is_mapped=True, batch_starts=starts)

    @contextmanager
    def locate_errors(self, selection: RowSelection, batches: Sequence[RowIndices]) -> Iterator[None]:
        """Let a `RowError` of the block, which reads these rows of a selection, name the part, the column and the row;
        an `InvalidDataError` of a malformed part, the part and the column.
        """
        try:
            yield
        except RowError as error:
            part, row = selection.locate_row(int(np.concatenate(batches)[error.index]))
            raise error.locate(self._describe_part(part), row) from None
        except InvalidDataError:
            self._validate_open_parts()
            raise

    def _validate_open_parts(self) -> None:
        """Raise an `InvalidDataError` that names the part and the column if a part in memory is malformed."""
        for part, opened in self._parts.items():
            for field, column in zip(opened.table.schema, opened.table.columns, strict=True):
                try:
                    column.validate(full=True)
                except InvalidDataError as error:
                    raise InvalidDataError(f"{self._describe_part(part)}column {field.name!r}: {error}") from None

    def _describe_part(self, part: int) -> str:
        return "" if self._table is not None else f"{describe_part(self._dataset, part)}: "

    # All rows of a column, for `bowstring.datasets.batch_arrays`

    def find_list_bounds(self, name: str) -> ListLengthBounds | None:
        """Return the lengths of a column's lists or vectors, None if they are not known.

        Parts record them; otherwise they are read from shared memory of this host. Rows that steps leave out count.
        """
        column = self._find_part_column(name)
        if column is None:
            return None
        bounds: ListLengthBounds = (NO_LISTS,) * count_list_levels(self.schema.field(name).type)
        unrecorded = []
        for index, part in self._parts_with_rows():
            recorded = dict(part.list_lengths).get(column)
            if recorded is None:
                unrecorded.append(index)
            elif len(recorded) != len(bounds) or not has_bounds(self._dataset.part_schema.types[column], recorded):
                raise InvalidDataError(
                    f"{self._describe_part(index)}list_lengths: column {name!r} is {self.schema.field(name).type}, "
                    f"found the bounds {recorded!s:.80}"
                )
            else:
                bounds = merge_list_length_bounds(bounds, recorded)
        chunks = self._open_mapped_column(unrecorded, column)
        if chunks is None:
            return None
        for number, chunk in chunks:
            try:
                chunk_bounds = list_length_bounds(chunk)
            except MalformedRowError:
                return None  # the error names the row when it is read
            except InvalidDataError as error:
                raise InvalidDataError(f"{self._describe_part(number)}column {name!r}: {error}") from None
            assert chunk_bounds is not None
            bounds = merge_list_length_bounds(bounds, chunk_bounds)
        return bounds

    def has_dense_vectors(self, name: str) -> bool:
        """Whether all vectors of a column are known to be dense, since they are in shared memory of this host."""
        column = self._find_part_column(name)
        if column is None:
            return False
        chunks = self._open_mapped_column([index for index, _ in self._parts_with_rows()], column)
        try:
            return chunks is not None and all(read_vectors(chunk).is_dense for _, chunk in chunks)
        except MalformedRowError:
            return False  # the error names the row when it is read

    def find_distinct_values(self, name: str) -> Array:
        """Return the distinct values of a column, sorted, without null. All parts are read."""
        if self._table is not None:
            chunks = list(self._parts[0].table.column(name).chunks)
        else:
            chunks = [batch.column(0).unique() for batch in self._dataset.select([name])]
        values = [decode(chunk) for chunk in chunks or [array([], self.schema.field(name).type)]]
        return concat_arrays(list(map(Array.from_array_data, values))).unique().drop_null().sort()

    def _parts_with_rows(self) -> list[tuple[int, DatasetPart]]:
        return [(index, part) for index, part in enumerate(self._dataset.parts) if self.part_rows[index]]

    def _find_part_column(self, name: str) -> int | None:
        """Return the column of the parts that has the lists of a column, None if a function returns them."""
        column = self.schema.resolve_indices(name)[0]
        for step in reversed(self._dataset.steps):
            if isinstance(step, MapStep):
                return None
            if isinstance(step, SelectStep):
                column = step.indices[column]
        columns = self._dataset.column_indices
        return column if columns is None else columns[column]

    def _open_mapped_column(self, parts: Sequence[int], column: int) -> list[tuple[int, Array]] | None:
        """Return the chunks of a column of parts, each with its part, or None if one is not in shared memory of this
        host.
        """
        dataset = self._dataset
        if self._table is not None:
            return [(0, chunk) for chunk in self._table.column(column).chunks]
        if not parts:
            return []
        nearest = [sort_by_distance(dataset.parts[index].locations)[:1] for index in parts]
        if not all(nearest) or not all(map(is_shared_memory, chain.from_iterable(nearest))):
            return None
        opened = open_parts(Dataset(dataset.name, dataset.part_schema, dataset.parts, [column]), parts, self._tls)
        if not all(part.is_mapped for part in opened.values()):
            return None
        return [(index, chunk) for index, part in opened.items() for chunk in part.table.column(0).chunks]

    # Reading

    def select(self, parts: RowIndices, next_parts: RowIndices) -> RowSelection:
        """Return the rows of some parts, and begin to read those that are needed next.

        Raises as `connect`, `InvalidDataError` if a part has other rows than its description, and `NotFoundError` if it
        has no location.
        """
        indices = np.unique(parts).tolist()
        if self._selection is None or self._selection.parts != indices:
            self._selection = None  # before others are read, so that its memory can be freed
            self._read_ahead(indices, next_parts)
            opened = [self._wait_for(part) for part in indices]
            self._selection = RowSelection(indices, opened, self._first_rows, self._dataset)
        return self._selection

    def _read_ahead(self, parts: Sequence[int], next_parts: RowIndices) -> None:
        """Begin to read these parts and the next ones that fit, and drop all others that are not mapped."""
        if self._process is not process_token():  # forked, without the threads
            self._pool, self._futures, self._process = None, {}, process_token()
        retained = dict.fromkeys(parts)
        ahead_bytes = sum(map(self._owned_bytes, parts))
        for part in islice(next_parts.tolist(), _MAX_PARTS_AHEAD):
            if part not in retained:
                ahead_bytes += self._owned_bytes(part)
                if ahead_bytes > self._prefetch_bytes:
                    break
                retained[part] = None
        for part, future in list(self._futures.items()):
            if part not in retained:
                del self._futures[part]
                if future not in self._futures.values():
                    future.cancel()
        for part in [part for part, opened in self._parts.items() if part not in retained and not opened.is_mapped]:
            del self._parts[part]
        missing = [part for part in retained if part not in self._parts and part not in self._futures]
        for group in group_by_size(missing, [self._dataset.parts[part].nbytes for part in missing], _GROUP_BYTES):
            if group:
                self._start_reading(group)

    def _owned_bytes(self, part: int) -> int:
        return 0 if part in self._parts and self._parts[part].is_mapped else self._dataset.parts[part].nbytes

    def _start_reading(self, parts: Sequence[int]) -> None:
        # Without memory for a thread, and while the interpreter shuts down, `_wait_for` reads them.
        with suppress(RuntimeError):
            from concurrent.futures import ThreadPoolExecutor  # slow to import

            if self._pool is None:
                self._pool = ThreadPoolExecutor(_READING_THREADS, "bowstring-parts")
            future = self._pool.submit(open_parts, self._dataset, parts, self._tls)
            self._futures.update(dict.fromkeys(parts, future))

    def _wait_for(self, part: int) -> OpenPart:
        if (future := self._futures.get(part)) is not None:
            # Without the parts of the request that were dropped meanwhile. After an error, the next attempt reads them
            # again.
            group = [other for other, each in self._futures.items() if each is future]
            for other in group:
                del self._futures[other]
            opened = future.result()
            self._parts.update({other: opened[other] for other in group})
        elif part not in self._parts:
            self._parts.update(open_parts(self._dataset, [part], self._tls))
        return self._parts[part]

    def stop_reading_ahead(self) -> None:
        """Drop the parts that are not mapped, and those not yet read."""
        if self._selection is not None and not all(self._parts[part].is_mapped for part in self._selection.parts):
            self._selection = None
        self._read_ahead([], np.empty(0, np.int64))


class RowSelection:
    """The rows of some parts, by their indices in the data set."""

    def __init__(
        self, parts: Sequence[int], opened: Sequence[OpenPart], first_rows: RowIndices, dataset: Dataset
    ) -> None:
        self.parts = parts
        self._opened = opened
        self._dataset = dataset
        self._plan = create_plan(dataset) if dataset.steps else None
        tables = [part.table for part in opened]
        self._table = tables[0] if len(tables) == 1 else concat_tables(tables)
        lengths = [part.num_rows for part in opened]
        self._ends = first_rows[parts] + lengths
        self._shifts = np.cumsum(lengths) - self._ends
        """What to add to a row's index for its position among the chosen rows of these parts."""
        starts = chunk_starts(part.table.num_rows for part in opened)
        # The smallest type: a filtered part may have a hundred million rows.
        dtype = np.min_scalar_type(starts[-1])
        chosen = [
            part.rows.astype(dtype) + dtype.type(start)
            for part, start in zip(opened, starts[:-1], strict=True)
            if part.rows is not None
        ]
        self._table_rows = np.concatenate(chosen) if chosen else None
        """The indices in the table of the chosen rows; None for all."""
        self._fixed_width_rows: dict[str, FixedWidthRows | None] = {}

    def take(self, rows: RowIndices, columns: Sequence[str] | None = None) -> RecordBatch:
        """Copy rows, in any order; by default all columns. Raises as `ReadPlan.change`, naming the part and the row."""
        table_rows = self.find_table_rows(rows)
        if columns is None or self._changes_rows:
            batch = self._change(self._table.take(table_rows), rows)
            return batch if columns is None else batch.select(columns)
        return _to_batch(self._table.select(columns).take(table_rows))

    def find_table_rows(self, rows: RowIndices) -> RowIndices:
        """Return the indices of rows in the tables, one after the other."""
        shifts = self._shifts
        if len(shifts) > 1:
            shifts = shifts[np.searchsorted(self._ends, rows, "right")]
        positions: RowIndices = rows + shifts
        return positions if self._table_rows is None else self._table_rows[positions].astype(np.int64)

    def find_fixed_width_rows(self, name: str, column: NumberColumn) -> FixedWidthRows | None:
        """Return all rows of a column if they have one width in memory, by their indices in the tables.

        Without Arrow arrays between, an epoch of 64 float32 a row takes 0.55 of the time. Single numbers in several
        batches are left to `take`, which is twice as fast for them.
        """
        if self._changes_rows:
            return None
        if name not in self._fixed_width_rows:
            views = [column.view(chunk) for chunk in self._table.column(name).chunks]
            arrays = [view for view in views if view is not None]
            is_fixed = len(arrays) == len(views) > 0 and (len(views) == 1 or len(column.dims) > 0)
            self._fixed_width_rows[name] = FixedWidthRows(arrays) if is_fixed else None
        return self._fixed_width_rows[name]

    def slice(self, start: int, stop: int) -> RecordBatch:
        """Return adjacent rows, without copying if they are in one record batch and steps choose and change none.

        Raises as `take`.
        """
        part = int(np.searchsorted(self._ends, start, "right"))
        first, length = start + int(self._shifts[part]), stop - start
        if self._table_rows is None:
            table = self._table.slice(first, length)
        else:
            table = self._table.take(self._table_rows[first : first + length])
        return self._change(table, range(start, stop))

    def locate_row(self, row: int) -> tuple[int, int]:
        """Return the part of a row, and the index of the row in the part, also of those that are not chosen."""
        index = int(np.searchsorted(self._ends, row, "right"))
        part = self._opened[index]
        return self.parts[index], part.locate(row - int(self._ends[index]) + part.num_rows)

    @property
    def _changes_rows(self) -> bool:
        return self._plan is not None and len(self._plan.changes) > 0

    def _change(self, table: Table, rows: RowIndices | range) -> RecordBatch:
        """Apply the steps that change rows to these rows of the data set."""
        batch = _to_batch(table)
        if self._plan is None:
            return batch
        return self._plan.change(batch, self._dataset.schema, partial(self._locate, rows))

    def _locate(self, rows: RowIndices | range, index: int) -> str:
        part, row = self.locate_row(int(rows[index]))
        return f"{describe_part(self._dataset, part)}, row {row}"


def _to_batch(table: Table) -> RecordBatch:
    """Return the rows of a table as one batch, without copying if they are in one."""
    return table.combine_chunks().to_batches()[0]


def open_parts(dataset: Dataset, indices: Sequence[int], tls: TlsOptions | None = None) -> dict[int, OpenPart]:
    """Read parts with rows, each from its nearest location that works, by index, and choose their rows.

    Raises as `PartTables.select`.
    """
    selected = dataset.take_parts(indices)
    for index, described in zip(indices, selected.parts, strict=True):
        if not described.locations:
            raise NotFoundError(f"{describe_part(dataset, index)}: {described.num_rows} rows, but no location")
    plan = create_plan(selected)
    stored = select_stored_columns(selected, plan)
    choosers = [RowChooser(plan, each, describe_part(dataset, index)) for each, index in enumerate(indices)]
    batches = [list[RecordBatch]() for _ in indices]
    starts, rows = [list[int]() for _ in indices], [list[RowIndices]() for _ in indices]
    num_rows = [0] * len(indices)
    with connect(stored, tls=tls) as reader:
        if reader.schema != stored.schema:
            raise InvalidDataError(
                f"{describe_part(dataset, indices[0])}: expected {stored.schema!r}, found {reader.schema!r}"
            )
        for part, start, batch in reader.locate_batches(plan.candidate_filters):
            if plan.choices:
                rows[part].append(choosers[part].choose(start, batch) + num_rows[part])
            batches[part].append(batch.select(range(plan.num_changed_columns)) if plan.choices else batch)
            starts[part].append(start)
            num_rows[part] += batch.num_rows
        locations = reader.uris
    opened = {}
    schema = stored.schema.select(range(plan.num_changed_columns)) if dataset.steps else dataset.schema
    for part, (index, expected, location) in enumerate(zip(indices, selected.part_rows, locations, strict=True)):
        table = Table(schema, batches[part])
        dtype = np.min_scalar_type(table.num_rows)
        chosen = np.concatenate([*rows[part], np.empty(0, np.int64)]).astype(dtype) if plan.choices else None
        opened[index] = OpenPart(table, is_shared_memory(location), np.array(starts[part], np.int64), chosen)
        if opened[index].num_rows != expected:
            raise InvalidDataError(
                f"{describe_part(dataset, index)}: expected {expected} rows, found {opened[index].num_rows}"
            )
    return opened


def _open_table(source: Source, tls: TlsOptions | None) -> Table:
    if isinstance(source, SharedTableHandle):
        return attach(source)
    if isinstance(source, DatasetReader):
        return source.read_all()
    if isinstance(source, str | list | tuple | DatasetLocations) or hasattr(source, "parts"):
        with connect(cast("Target", source), tls=tls) as reader:
            return reader.read_all()
    return as_table(source)

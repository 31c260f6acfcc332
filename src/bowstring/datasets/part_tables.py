"""The parts of a data set as tables: those in memory of this host stay mapped, others are read ahead and dropped."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from bowstring.arrays.array import Array, concat_arrays
from bowstring.arrays.construction import array
from bowstring.arrays.record_batch import RecordBatch
from bowstring.arrays.table import Table, as_table, concat_tables
from bowstring.datasets.column_arrays import decode
from bowstring.datasets.dataset import Dataset, DatasetPart, has_bounds
from bowstring.datasets.order import RowIndices
from bowstring.datasets.sources import dataset as describe_dataset
from bowstring.errors import BowstringError, InvalidDataError, NotFoundError
from bowstring.kernels.list_lengths import (
    NO_LISTS,
    ListLengthBounds,
    count_list_levels,
    list_length_bounds,
    merge_list_length_bounds,
)
from bowstring.kernels.ml_vectors import MalformedRowError, read_vectors
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
    is_mapped: bool
    """Whether it is memory of this host that others hold as well, so that nothing is freed by dropping it."""


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
        source = describe_dataset(source) if isinstance(source, os.PathLike) else source
        self._source = source
        self._columns = columns
        self._prefetch_bytes = prefetch_bytes
        self._tls = tls
        self._dataset: Dataset | None = None
        self._parts: dict[int, OpenPart] = {}
        self._futures: dict[int, Future[dict[int, OpenPart]]] = {}
        """The parts that are being read: one future for all parts of a request."""
        self._pool: ThreadPoolExecutor | None = None
        self._process = os.getpid()
        self._selection: RowSelection | None = None
        if isinstance(source, Dataset):
            self._source_schema = source.schema
            self._dataset = source if columns is None else source.select(columns)
            self.schema = self._dataset.schema
            self.part_rows = [part.num_rows for part in source.parts]
            self._part_bytes = [part.nbytes for part in source.parts]
        else:
            table = _open_table(source, tls)
            self._source_schema = table.schema
            table = table if columns is None else table.select(columns)
            self.schema = table.schema
            self._parts[0] = OpenPart(table, is_mapped=True)
            self.part_rows, self._part_bytes = [table.num_rows], [table.nbytes]
        self._first_rows = np.cumsum([0, *self.part_rows])

    def __reduce__(self) -> tuple[Any, ...]:
        return PartTables, (self._source, self._columns, self._prefetch_bytes, self._tls)

    @property
    def nbytes(self) -> int:
        """The bytes of all parts."""
        return sum(self._part_bytes)

    @property
    def row_selection(self) -> tuple[str, ...]:
        """How rows of the parts are selected, as text; checkpoints compare it."""
        return ()

    def select_columns(self, names: Sequence[str]) -> PartTables:
        """Return the tables with some of the columns, in this order. Raises `NotFoundError`."""
        columns: ColumnKeys = range(len(self._source_schema)) if self._columns is None else self._columns
        indices = self._source_schema.resolve_indices(columns)
        tables = copy.copy(self)
        tables._columns = [indices[index] for index in self.schema.resolve_indices(names)]
        tables.schema = self.schema.select(names)
        tables._futures, tables._selection, tables._pool = {}, None, None
        if self._dataset is None:
            tables._parts = {0: OpenPart(self._parts[0].table.select(names), is_mapped=True)}
        else:
            tables._dataset, tables._parts = self._dataset.select(names), {}
        return tables

    def locate_row(self, row: int) -> tuple[str, int]:
        """Return the part of a row as the beginning of a message, and the index of the row in it."""
        if self._dataset is None:
            return "", row
        part = int(np.searchsorted(self._first_rows, row, "right")) - 1
        return self._describe_part(part), row - int(self._first_rows[part])

    def validate_open_parts(self) -> None:
        """Raise an `InvalidDataError` that names the part and the column if a part in memory is malformed."""
        for part, opened in self._parts.items():
            for field, column in zip(self.schema, opened.table.columns, strict=True):
                try:
                    column.validate(full=True)
                except InvalidDataError as error:
                    raise InvalidDataError(f"{self._describe_part(part)}column {field.name!r}: {error}") from None

    def _describe_part(self, part: int) -> str:
        return "" if self._dataset is None else f"data set {self._dataset.name!r}: part {part}: "

    # All rows of a column, for `bowstring.datasets.batch_arrays`

    def find_list_bounds(self, name: str) -> ListLengthBounds | None:
        """Return the lengths of a column's lists or vectors, None if they are not known.

        Parts record them; otherwise they are read from shared memory of this host.
        """
        bounds: ListLengthBounds = (NO_LISTS,) * count_list_levels(self.schema.field(name).type)
        unrecorded = []
        for index, part in self._parts_with_rows():
            recorded = self._find_recorded_bounds(part, name)
            if recorded is None:
                unrecorded.append(index)
            else:
                bounds = merge_list_length_bounds(bounds, recorded)
        tables = self._open_mapped(unrecorded)
        if tables is None:
            return None
        try:
            for chunk in (chunk for table in tables for chunk in table.column(name).chunks):
                found = list_length_bounds(chunk)
                assert found is not None
                bounds = merge_list_length_bounds(bounds, found)
        except InvalidDataError:
            self.validate_open_parts()
            return None  # a malformed vector: who reads its row names it
        return bounds

    def has_dense_vectors(self, name: str) -> bool:
        """Whether all vectors of a column are known to be dense, since they are in shared memory of this host."""
        tables = self._open_mapped([index for index, _ in self._parts_with_rows()])
        chunks = [] if tables is None else [chunk for table in tables for chunk in table.column(name).chunks]
        try:
            return tables is not None and all(read_vectors(chunk).is_dense for chunk in chunks)
        except MalformedRowError:
            return False  # who reads the row names it

    def find_distinct_values(self, name: str) -> Array:
        """Return the distinct values of a column, sorted, without null. All parts are read."""
        if self._dataset is None:
            chunks = list(self._parts[0].table.column(name).chunks)
        else:
            chunks = [batch.column(0).unique() for batch in self._dataset.select([name])]
        values = [decode(chunk) for chunk in chunks or [array([], self.schema.field(name).type)]]
        return concat_arrays(list(map(Array.from_array_data, values))).unique().drop_null().sort()

    def _parts_with_rows(self) -> list[tuple[int, DatasetPart | None]]:
        parts = [None] if self._dataset is None else self._dataset.parts
        return [(index, part) for index, part in enumerate(parts) if self.part_rows[index]]

    def _find_recorded_bounds(self, part: DatasetPart | None, name: str) -> ListLengthBounds | None:
        if part is None or self._dataset is None:
            return None
        columns = self._dataset.column_indices
        index = self.schema.resolve_indices(name)[0]
        bounds = dict(part.list_lengths).get(index if columns is None else columns[index])
        if bounds is not None and not has_bounds(self.schema[index].type, bounds):
            raise InvalidDataError(
                f"data set {self._dataset.name!r}: list_lengths: column {name!r} is {self.schema[index].type}, "
                f"found the bounds {bounds!s:.80}"
            )
        return bounds

    def _open_mapped(self, parts: Sequence[int]) -> list[Table] | None:
        """Return these parts if all are in shared memory of this host, or None."""
        if self._dataset is not None:
            nearest = [sort_by_distance(self._dataset.parts[index].locations)[:1] for index in parts]
            if not all(map(is_shared_memory, chain.from_iterable(nearest))) or not all(nearest):
                return None
            missing = [index for index in parts if index not in self._parts]
            opened = open_parts(self._dataset, missing, self._tls) if missing else {}
            self._parts.update({index: part for index, part in opened.items() if part.is_mapped})
            if not all(part.is_mapped for part in opened.values()):
                return None
        return [self._parts[index].table for index in parts]

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
            tables = [self._wait_for(part).table for part in indices]
            self._selection = RowSelection(indices, tables, self._first_rows)
        return self._selection

    def _read_ahead(self, parts: Sequence[int], next_parts: RowIndices) -> None:
        """Begin to read these parts and the next ones that fit, and drop all others that are not mapped."""
        if os.getpid() != self._process:  # forked, without the threads
            self._pool, self._futures, self._process = None, {}, os.getpid()
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
        for group in group_by_size(missing, [self._part_bytes[part] for part in missing], _GROUP_BYTES):
            if group:
                self._futures.update(dict.fromkeys(group, self._start_reading(group)))

    def _owned_bytes(self, part: int) -> int:
        return 0 if part in self._parts and self._parts[part].is_mapped else self._part_bytes[part]

    def _start_reading(self, parts: Sequence[int]) -> Future[dict[int, OpenPart]]:
        from concurrent.futures import Future  # slow to import

        assert self._dataset is not None
        try:
            from concurrent.futures import ThreadPoolExecutor

            if self._pool is None:
                self._pool = ThreadPoolExecutor(_READING_THREADS, "bowstring-parts")
            return self._pool.submit(open_parts, self._dataset, parts, self._tls)
        except RuntimeError:  # no memory for a thread, or the interpreter is shutting down
            future: Future[dict[int, OpenPart]] = Future()
            try:
                future.set_result(open_parts(self._dataset, parts, self._tls))
            except BowstringError as error:
                future.set_exception(error)
            return future

    def _wait_for(self, part: int) -> OpenPart:
        if part not in self._parts:
            future = self._futures[part]
            try:
                opened = future.result()
            except BaseException:
                # The next attempt reads them again.
                self._futures = {other: each for other, each in self._futures.items() if each is not future}
                raise
            # Without those that were dropped meanwhile.
            self._parts.update({other: opened[other] for other in opened if self._futures.pop(other, None) is not None})
        return self._parts[part]

    def stop_reading_ahead(self) -> None:
        """Drop the parts that are not mapped, and those not yet read."""
        self._selection = None
        self._read_ahead([], np.empty(0, np.int64))


class RowSelection:
    """The rows of some parts, by their indices in the data set."""

    def __init__(self, parts: Sequence[int], tables: Sequence[Table], first_rows: RowIndices) -> None:
        self.parts = parts
        self._table = tables[0] if len(tables) == 1 else concat_tables(tables)
        lengths = [table.num_rows for table in tables]
        self._ends = first_rows[parts] + lengths
        self._shifts = np.cumsum(lengths) - self._ends
        """What to add to a row's index for that in the table."""

    def take(self, rows: RowIndices) -> Table:
        """Copy rows, in any order."""
        shifts = self._shifts
        if len(shifts) > 1:
            shifts = shifts[np.searchsorted(self._ends, rows, "right")]
        return self._table.take(rows + shifts)

    def slice(self, start: int, stop: int) -> Table:
        """Return adjacent rows, without copying."""
        part = int(np.searchsorted(self._ends, start, "right"))
        return self._table.slice(start + int(self._shifts[part]), stop - start)


def open_parts(dataset: Dataset, indices: Sequence[int], tls: TlsOptions | None = None) -> dict[int, OpenPart]:
    """Read parts with rows, each from its nearest location that works, by index. Raises as `PartTables.select`."""
    parts = [dataset.parts[index] for index in indices]
    for index, part in zip(indices, parts, strict=True):
        if not part.locations:
            raise NotFoundError(f"data set {dataset.name!r}: part {index}: {part.num_rows} rows, but no location")
    with connect(dataset.with_parts(parts), tls=tls) as reader:
        if reader.schema != dataset.schema:
            raise InvalidDataError(
                f"data set {dataset.name!r}: part {indices[0]}: expected {dataset.schema!r}, found {reader.schema!r}"
            )
        batches, locations = iter([batch for batch in reader if batch.num_rows]), reader.uris
    opened = {}
    for index, part, location in zip(indices, parts, locations, strict=True):
        part_batches, num_rows = list[RecordBatch](), 0
        while num_rows < part.num_rows and (batch := next(batches, None)) is not None:
            part_batches.append(batch)
            num_rows += batch.num_rows
        if num_rows != part.num_rows:
            raise InvalidDataError(
                f"data set {dataset.name!r}: part {index}: expected {part.num_rows} rows, found {num_rows}"
            )
        opened[index] = OpenPart(Table(dataset.schema, part_batches), is_shared_memory(location))
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

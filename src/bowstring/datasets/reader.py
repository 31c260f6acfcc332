"""Read a data set in batches, epoch after epoch, as one of several ranks, and resume at the next batch."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol, Self, TypeAlias, TypeVar, Unpack, get_args

import numpy as np

from bowstring.arrays.record_batch import RecordBatch
from bowstring.datasets.batch_arrays import ArrayConverter, ArrayOptions
from bowstring.datasets.order import DEFAULT_WINDOW_ROWS, RowIndices, RowOrder, check_epoch
from bowstring.datasets.part_tables import DEFAULT_PREFETCH_BYTES, ColumnKeys, PartTables, RowSelection, Source
from bowstring.datatypes.schema import Schema
from bowstring.display.objects import source_to_html
from bowstring.errors import InvalidArgumentError, InvalidDataError, check_count, format_count
from bowstring.layouts.indexing import to_integer
from bowstring.transports.tls import TlsOptions

End: TypeAlias = Literal["keep", "drop", "pad"]
"""What to do with the last batches of an epoch, which are not enough for all ranks."""

# Of `state_dict`; others are rejected.
_STATE_VERSION = 3
_MAX_GATHERED_ROWS = 1 << 16
# Shuffled rows are copied ahead of the loop, as many as have about this size: the processor's cache keeps them until
# they are converted, and the allocator's memory is used again. With 64 MiB an epoch takes up to twice as long.
_MAX_GATHERED_BYTES = 4 << 20
Rows = TypeVar("Rows")
"""Rows of any form, such as a record batch."""
Converted_co = TypeVar("Converted_co", covariant=True)


class Converter(Protocol[Converted_co]):
    """Converts rows of Arrow data to another form. Raises `RowError`."""

    def convert(self, batch: RecordBatch) -> Converted_co:
        """Convert adjacent rows, without copying if possible."""

    def gather(self, selection: RowSelection, batches: Sequence[RowIndices]) -> Iterator[Converted_co]:
        """Copy and convert batches of rows, by their indices in the data set."""


class EpochReader:
    """Iterates over the batches of one epoch after the other, or over one rank's.

    The rows of an epoch are in one order (`RowOrder`), which all readers with equal arguments share, and are cut into
    batches of `batch_rows`. Of those that remain in the epoch, every `world_size`-th belongs to this rank; `for_worker`
    divides them further.

    Each iteration is an epoch of its own: the first is epoch 0, or the rest of the one that `load_state_dict` names.
    Each later one is the next epoch, also after an early `break`.

    `source` is a `Dataset`, such as a published one, or the `Path` of a file or folder, and is read part by part: parts
    in shared memory of this host are mapped once, others are read ahead and dropped. About one window of parts is in
    memory, and more if they fit in `prefetch_bytes`. Anything else is one part: a table, also of another library; the
    handle of a shared table; or anything that `bowstring.connect` accepts or returns. `columns` selects columns by name
    or index, and `tls` is as in `connect`.

    Batches in order share the memory of a record batch if they are within one; shuffled rows are copied, a few MiB at
    once. `end` is "keep" (the last batch may be shorter, and ranks may differ by a batch), "drop" (all batches are
    full and ranks have equally many, so some rows are left out) or "pad" (the same, but rows from the beginning of the
    epoch are repeated instead).

    A pickled reader opens the source again. Raises `InvalidArgumentError` for arguments that are not integers or out of
    range, and as `bowstring.connect`; an iteration also raises `InvalidDataError` if a part has other rows than its
    description, and `NotFoundError` if it has no location.

    >>> table = bs.table({"x": range(10)})
    >>> reader = bs.datasets.EpochReader(table, batch_rows=4, seed=7)
    >>> [batch.num_rows for batch in reader]
    [4, 4, 2]
    >>> sorted(x for batch in reader for x in batch["x"].to_pylist())
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    >>> reader.epoch
    2
    """

    def __init__(  # noqa: PLR0913 -- the parameters of torch's samplers
        self,
        source: Source,
        batch_rows: int,
        *,
        columns: ColumnKeys | None = None,
        seed: int | None = None,
        window_rows: int = DEFAULT_WINDOW_ROWS,
        rank: int = 0,
        world_size: int = 1,
        end: End = "keep",
        prefetch_bytes: int = DEFAULT_PREFETCH_BYTES,
        tls: TlsOptions | None = None,
    ) -> None:
        batch_rows = check_count("batch_rows", batch_rows, 1)
        rank, world_size = to_integer("rank", rank), to_integer("world_size", world_size)
        if not 0 <= rank < world_size:
            raise InvalidArgumentError(f"rank: expected an integer below the world_size of {world_size}, found {rank}")
        if end not in get_args(End):
            raise InvalidArgumentError(f"end: expected {' or '.join(map(repr, get_args(End)))}, found {end!r}")
        check_count("prefetch_bytes", prefetch_bytes)
        self.tables = PartTables(source, columns, prefetch_bytes, tls)
        """The parts that are read, as tables."""
        self.order = RowOrder(self.tables.part_rows, seed, window_rows)
        self.batch_rows = batch_rows
        self._start = self._position = (0, 0)
        """Where the next iteration begins, and where the last one is: the epoch and the index in it of a batch."""
        self.rank, self.world_size = rank, world_size
        self._worker, self._num_workers = 0, 1
        self._end = end

    @property
    def schema(self) -> Schema:
        """The schema of the batches."""
        return self.tables.schema

    @property
    def epoch(self) -> int:
        """The epoch of the next batch of the last iteration."""
        return self._position[0]

    @property
    def next_batch(self) -> int:
        """The index in the epoch of the next batch of any rank; those before have been read by all ranks."""
        return self._position[1]

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration be this epoch, or the rest of it if its position has been loaded.

        Raises `InvalidArgumentError` unless it is an integer from 0 to 2**63 - 1.

        >>> reader = bs.datasets.EpochReader(bs.table({"x": range(10)}), batch_rows=4)
        >>> reader.set_epoch(3)
        >>> _ = list(reader)
        >>> reader.epoch
        4
        """
        if check_epoch(epoch) != self._start[0]:
            self.seek(epoch, 0)

    def seek(self, epoch: int, next_batch: int) -> None:
        """Let the next iteration begin at this batch of an epoch."""
        self._start = self._position = (epoch, next_batch)

    def select(self, columns: Sequence[str]) -> Self:
        """Return a reader at the same position that reads only some of the columns. Raises `NotFoundError`.

        >>> reader = bs.datasets.EpochReader(bs.table({"x": range(3), "y": range(3)}), batch_rows=2)
        >>> [batch.to_pydict() for batch in reader.select(["y"])]
        [{'y': [0, 1]}, {'y': [2]}]
        """
        reader = copy.copy(self)
        reader.tables = self.tables.select_columns(columns)
        return reader

    def to_numpy(self, **options: Unpack[ArrayOptions]) -> ArrayBatches:
        """Return the batches as dictionaries of NumPy arrays by column, from the same position.

        Numbers and lists become arrays, other values lists of Python objects; docs/reference/datasets.md#tensors lists
        them. The options are those of `bowstring.datasets.batch_arrays.ArrayOptions`: `columns`, `dtypes`, `features`,
        `shapes`, `fill_null`, `validity_suffix`, `pad`, `categories` and `transform`. Arrays in shuffled order are
        copies; otherwise they may share read-only memory. Raises as `ArrayBatches`.

        >>> reader = bs.datasets.EpochReader(bs.table({"x": [[1.0, 2.0], [3.0, 4.0]], "y": [0, 1]}), batch_rows=2)
        >>> for batch in reader.to_numpy(dtypes="float32"):
        ...     batch["x"].shape, batch["x"].dtype, batch["y"].tolist()
        ((2, 2), dtype('float32'), [0.0, 1.0])
        """
        return ArrayBatches(self, options)

    def for_worker(self, worker: int, num_workers: int) -> Self:
        """Return a reader at the same position that yields every `num_workers`-th batch of this rank.

        A loop that takes one batch of each worker in turn gets the rank's batches, in their order. Raises
        `InvalidArgumentError` unless `worker` is below `num_workers`.

        >>> reader = bs.datasets.EpochReader(bs.table({"x": range(6)}), batch_rows=2)
        >>> [[batch["x"].to_pylist() for batch in reader.for_worker(worker, 2)] for worker in range(2)]
        [[[0, 1], [4, 5]], [[2, 3]]]
        """
        worker, num_workers = to_integer("worker", worker), to_integer("num_workers", num_workers)
        if not 0 <= worker < num_workers:
            raise InvalidArgumentError(f"worker: expected an integer below {num_workers}, found {worker}")
        reader = copy.copy(self)
        reader._worker, reader._num_workers = worker, num_workers
        return reader

    def __iter__(self) -> Iterator[RecordBatch]:
        return self.iterate(_RecordBatches())

    def iterate(self, converter: Converter[Rows]) -> Iterator[Rows]:
        """Iterate over the batches, converted.

        A `RowError` of the converter becomes an `InvalidDataError` that names the part, the column and the row;
        malformed buffers become one that names the part and the column.
        """
        epoch, batches = self._start[0], self._remaining_batches()
        self._position, self._start = self._start, (epoch + 1, 0)
        first_of_round = self.rank + self._worker * self.world_size
        try:
            for batch, rows in zip(batches, self._read_batches(epoch, batches, converter), strict=True):
                # Counted before it is passed on: a caller that saves the state has received the batch.
                self._position = epoch, batch - first_of_round + self.world_size * self._num_workers
                yield rows
        finally:
            self.tables.stop_reading_ahead()
        self._position = epoch + 1, 0

    def __len__(self) -> int:
        """Return the number of batches that the next iteration yields."""
        return len(self._remaining_batches())

    def _remaining_batches(self) -> range:
        """Return the indices of the batches of this worker that remain in the epoch."""
        first = self._start[1]
        full, rest = divmod(self.order.num_rows, self.batch_rows)
        if self._end == "drop":
            count = max(full - first, 0) // self.world_size * self.world_size
        else:
            count = max(full + bool(rest) - first, 0)
            if self._end == "pad":
                count = -(-count // self.world_size) * self.world_size
        batches = range(first + self.rank, first + count, self.world_size)
        return batches[self._worker :: self._num_workers]

    def _read_batches(self, epoch: int, batches: range, converter: Converter[Rows]) -> Iterator[Rows]:
        """Yield the batches of these indices of an epoch, of which many are read at once."""
        count = self._count_gathered_batches()
        for first in range(0, len(batches), count):
            group = batches[first : first + count]
            selection = self._select_rows(epoch, group)
            if self.order.seed is None and self._end != "pad":
                for batch in group:
                    start = batch * self.batch_rows
                    stop = min(start + self.batch_rows, self.order.num_rows)
                    with self.tables.locate_errors(selection, [np.arange(start, stop)]):
                        rows = converter.convert(selection.slice(start, stop))
                    yield rows
            else:
                # One gather of many rows takes a small part of the time of one for each batch.
                indices = self._order_rows(epoch, group)
                with self.tables.locate_errors(selection, indices):
                    yield from converter.gather(selection, indices)
            del selection  # of parts that are dropped when the next are read

    def _count_gathered_batches(self) -> int:
        """Return the number of batches of this rank that are copied at once.

        All ranks and workers together copy about a window at most, so that its parts are enough.
        """
        row_bytes = self.tables.nbytes // max(self.order.num_rows, 1) + 1
        num_rows = min(_MAX_GATHERED_ROWS, _MAX_GATHERED_BYTES // row_bytes)
        span_rows = max(self.order.window_rows, _MAX_GATHERED_ROWS)
        return max(min(num_rows, span_rows // (self.world_size * self._num_workers)) // self.batch_rows, 1)

    def _select_rows(self, epoch: int, batches: range) -> RowSelection:
        """Return the rows of the parts that these batches need."""
        order, num_rows = self.order, self.order.num_rows
        start = batches[0] * self.batch_rows % num_rows
        stop = start + (batches[-1] - batches[0] + 1) * self.batch_rows
        parts = order.parts(epoch, start, min(stop, num_rows))
        if self._end == "pad" and stop > num_rows:  # positions begin again at 0
            parts = np.concatenate((parts, order.parts(epoch, 0, min(stop - num_rows, num_rows))))
        return self.tables.select(parts, order.parts(epoch, min(stop, num_rows), num_rows))

    def _order_rows(self, epoch: int, batches: range) -> list[RowIndices]:
        """Return the indices of the rows of each batch. If the end is padded, positions begin again at 0."""
        position, num_rows = batches[0] * self.batch_rows, self.order.num_rows
        stop, ranges = (batches[-1] + 1) * self.batch_rows, list[RowIndices]()
        if self._end != "pad":
            stop = min(stop, num_rows)
        while position < stop:
            first = position % num_rows
            last = min(first + stop - position, num_rows)
            ranges.append(self.order.rows(epoch, first, last))
            position += last - first
        rows = ranges[0] if len(ranges) == 1 else np.concatenate(ranges)
        starts = range(0, len(rows), self.batch_rows * batches.step)
        return [rows[start : start + self.batch_rows] for start in starts]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_start": self._position}

    def state_dict(self) -> dict[str, Any]:
        """Return the position as a small dictionary, which can be stored as JSON.

        It is the position of all ranks together, if each has read equally many batches, and is independent of their
        number. At the end of an epoch it is the beginning of the next one.

        >>> reader = bs.datasets.EpochReader(bs.table({"x": range(10)}), batch_rows=4)
        >>> _ = next(iter(reader))
        >>> reader.state_dict()["next_batch"]
        1
        """
        return {
            "version": _STATE_VERSION,
            "num_rows": self.order.num_rows,
            "num_parts": sum(rows > 0 for rows in self.order.part_rows),
            "parts": self.order.digest,
            "row_selection": list(self.tables.row_selection),
            "batch_rows": self.batch_rows,
            "seed": self.order.seed,
            "window_rows": self.order.window_rows,
            "epoch": self.epoch,
            "next_batch": self.next_batch,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue at a position of `state_dict`, of a reader with any number of ranks and workers.

        Raises `InvalidDataError` if it is not such a dictionary, or belongs to other rows or another order.

        >>> table = bs.table({"x": range(10)})
        >>> reader = bs.datasets.EpochReader(table, batch_rows=4)
        >>> _ = next(iter(reader))
        >>> resumed = bs.datasets.EpochReader(table, batch_rows=4)
        >>> resumed.load_state_dict(reader.state_dict())
        >>> [batch["x"].to_pylist() for batch in resumed]
        [[4, 5, 6, 7], [8, 9]]
        """
        own = self.state_dict()
        if not isinstance(state, Mapping):
            raise InvalidDataError(f"state: expected a dictionary of state_dict, found {state!r:.40}")
        for name, value in own.items():
            if name not in state:
                raise InvalidDataError(f"state: expected {name!r}, found only {sorted(map(str, state))}")
            if name in ("version", "batch_rows", "seed", "window_rows") and state[name] != value:
                raise InvalidDataError(f"state: {name}: expected {value}, as of this reader, found {state[name]!r:.40}")
            # Not bool, which is an int, too, and could be the number of another field.
            is_number = type(state[name]) is int and 0 <= state[name] < 1 << 63
            if name in ("num_rows", "num_parts", "epoch", "next_batch") and not is_number:
                raise InvalidDataError(f"state: {name}: expected an integer of 0 or more, found {state[name]!r:.40}")
        if any(state[name] != own[name] for name in ("num_rows", "num_parts", "parts", "row_selection")):
            other, this = _describe_data(state), _describe_data(own)
            difference = f"{other}, not {this}" if other != this else f"{this} of other lengths"
            raise InvalidDataError(f"state: this checkpoint belongs to other data: {difference}")
        self.seek(state["epoch"], state["next_batch"])

    def __repr__(self) -> str:
        shuffled = "in order" if self.order.seed is None else f"shuffled with seed {self.order.seed}"
        return (
            f"<bowstring.datasets.EpochReader: {format_count(self.order.num_rows, 'row')} {shuffled}, "
            f"in batches of {self.batch_rows:,}: "
            f"rank {self.rank} of {self.world_size}, at batch {self.next_batch} of epoch {self.epoch}>"
        )

    def _repr_html_(self) -> str:
        return source_to_html(self)


class ArrayBatches:
    """The batches of a reader as dictionaries of NumPy arrays, as `EpochReader.to_numpy`. Iterate as over the reader.

    Raises `InvalidArgumentError` and `TypeMismatchError` for options that do not fit the columns, and `NotFoundError`
    for columns that do not exist. An iteration raises as that of the reader, and `InvalidDataError` for a value that
    does not fit, with its part, column and row.

    >>> batches = bs.datasets.EpochReader(bs.table({"x": [1, 2, 3]}), batch_rows=2).to_numpy()
    >>> [batch["x"].tolist() for batch in batches]
    [[1, 2], [3]]
    >>> batches.signature
    {'x': ((None,), dtype('int64'))}
    """

    def __init__(self, reader: EpochReader, options: ArrayOptions) -> None:
        self._arrays = ArrayConverter(reader.tables, options)
        self._reader = reader.select(self._arrays.column_names)

    @property
    def categories(self) -> dict[str, list[Any]]:
        """The categories of each column of codes, in the order of the codes."""
        return self._arrays.categories

    @property
    def signature(self) -> dict[str, tuple[tuple[int | None, ...], np.dtype[Any]]]:
        """The shape and type of each array, with None for the number of rows and for a length that differs by batch.

        Lists of Python values, ragged and sparse rows are left out, and `transform` is not considered.
        """
        return self._arrays.signature

    def set_epoch(self, epoch: int) -> None:
        """As `EpochReader.set_epoch`."""
        self._reader.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """As `EpochReader.state_dict`."""
        return self._reader.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """As `EpochReader.load_state_dict`."""
        self._reader.load_state_dict(state)

    def __len__(self) -> int:
        return len(self._reader)

    def __iter__(self) -> Iterator[Any]:
        return map(self._arrays.finish, self._reader.iterate(self._arrays))


def _describe_data(state: Mapping[str, Any]) -> str:
    """Return the rows and parts that a state belongs to."""
    selection = f" ({state['row_selection']!s:.200})" if state["row_selection"] else ""
    return f"{format_count(state['num_rows'], 'row')} in {format_count(state['num_parts'], 'part')}{selection}"


class _RecordBatches:
    """Batches that stay Arrow's."""

    def convert(self, batch: RecordBatch) -> RecordBatch:
        return batch

    def gather(self, selection: RowSelection, batches: Sequence[RowIndices]) -> Iterator[RecordBatch]:
        rows = selection.take(np.concatenate(batches))
        del selection  # of parts that may be dropped while these rows are used
        start = 0
        for batch in batches:
            yield rows.slice(start, len(batch))
            start += len(batch)

"""Read a data set in batches, epoch after epoch, as one of several ranks, and resume at the next batch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Self, TypeAlias, TypeVar, get_args

import numpy as np

from bowstring.arrays.record_batch import RecordBatch
from bowstring.arrays.table import Table
from bowstring.datasets.order import DEFAULT_WINDOW_ROWS, RowIndices, RowOrder
from bowstring.datasets.part_tables import DEFAULT_PREFETCH_BYTES, ColumnKeys, PartTables, RowSelection, Source
from bowstring.display.tables import to_html_table
from bowstring.errors import InvalidArgumentError, InvalidDataError, check_count, format_count
from bowstring.layouts.indexing import to_integer
from bowstring.transports.tls import TlsOptions

End: TypeAlias = Literal["keep", "drop", "pad"]
"""What to do with the last batches of an epoch, which are not enough for all ranks."""

# Of `state_dict`; others are rejected.
_STATE_VERSION = 2
_MAX_GATHERED_ROWS = 1 << 16
_MAX_GATHERED_BYTES = 64 << 20
"""Shuffled rows are copied ahead of the loop, as many as have about this size."""


Rows = TypeVar("Rows")
"""Rows of any form, such as a record batch."""
Split: TypeAlias = Callable[[Rows, Sequence[int]], Iterable[Rows]]
"""Divides rows into pieces of these lengths, without copying."""


class EpochReader:
    """Iterates over the batches of one epoch after the other, or over one rank's.

    The rows of an epoch are in one order (`RowOrder`), which all readers with equal arguments share, and are cut into
    batches of `batch_rows`. Of those that remain in the epoch, every `world_size`-th belongs to this rank; `for_worker`
    divides them further. Each iteration is an epoch, or the rest of the one that `load_state_dict` names.

    `source` is a `Dataset`, such as a published one, or the `Path` of a file or folder, and is read part by part: parts
    in shared memory of this host are mapped once, others are read ahead and dropped. About one window of parts is in
    memory, and more if they fit in `prefetch_bytes`. Anything else is one part: a table, also of another library; the
    handle of a shared table; or anything that `bowstring.connect` accepts or returns. `columns` selects columns by name
    or index, and `tls` is as in `connect`.

    Batches in order share the memory of a record batch if they are within one; shuffled rows are copied, about 64 MiB
    at once. `end` is "keep" (the last batch may be shorter, and ranks may differ by a batch), "drop" (all batches are
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
        self._tables = PartTables(source, columns, prefetch_bytes, tls)
        self.order = RowOrder(self._tables.part_rows, seed, window_rows)
        self.batch_rows = batch_rows
        self.epoch = 0
        """The epoch of the next batch."""
        self.next_batch = 0
        """The index in the epoch of the next batch of any rank; those before have been read by all ranks."""
        self.rank, self.world_size = rank, world_size
        self._worker, self._num_workers = 0, 1
        self._end = end

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
        return self.iterate(_identity, _slice)

    def iterate(self, convert: Callable[[RecordBatch], Rows], split: Split[Rows]) -> Iterator[Rows]:
        """Iterate over the batches, converted.

        Shuffled rows are converted when they are copied, many batches at once, and then split.
        """
        batches = self._remaining_batches()
        first_of_round = self.rank + self._worker * self.world_size
        try:
            for batch, rows in zip(batches, self._read_batches(batches, convert, split), strict=True):
                # Counted before it is passed on: a caller that saves the state has received the batch.
                self.next_batch = batch - first_of_round + self.world_size * self._num_workers
                yield rows
        finally:
            self._tables.stop_reading_ahead()
        self.epoch, self.next_batch = self.epoch + 1, 0

    def __len__(self) -> int:
        """Return the number of batches that the next iteration yields."""
        return len(self._remaining_batches())

    def _remaining_batches(self) -> range:
        """Return the indices of the batches of this worker that remain in the epoch."""
        full, rest = divmod(self.order.num_rows, self.batch_rows)
        if self._end == "drop":
            count = max(full - self.next_batch, 0) // self.world_size * self.world_size
        else:
            count = max(full + bool(rest) - self.next_batch, 0)
            if self._end == "pad":
                count = -(-count // self.world_size) * self.world_size
        batches = range(self.next_batch + self.rank, self.next_batch + count, self.world_size)
        return batches[self._worker :: self._num_workers]

    def _read_batches(
        self, batches: range, convert: Callable[[RecordBatch], Rows], split: Split[Rows]
    ) -> Iterator[Rows]:
        """Yield the batches of these indices, of which many are read at once."""
        count = self._count_gathered_batches()
        for first in range(0, len(batches), count):
            group = batches[first : first + count]
            selection = self._select_rows(group)
            if self.order.seed is None and self._end != "pad":
                for batch in group:
                    start = batch * self.batch_rows
                    stop = min(start + self.batch_rows, self.order.num_rows)
                    yield convert(_to_batch(selection.slice(start, stop)))
                continue
            # One gather of many rows takes a small part of the time of one for each batch.
            indices = self._order_rows(group)
            rows = convert(_to_batch(selection.take(np.concatenate(indices))))
            del selection  # of parts that may be dropped while these rows are used
            yield from split(rows, [len(each) for each in indices])

    def _count_gathered_batches(self) -> int:
        """Return the number of batches of this rank that are copied at once.

        All ranks and workers together copy about a window at most, so that its parts are enough.
        """
        row_bytes = self._tables.nbytes // max(self.order.num_rows, 1) + 1
        num_rows = min(_MAX_GATHERED_ROWS, _MAX_GATHERED_BYTES // row_bytes)
        span_rows = max(self.order.window_rows, _MAX_GATHERED_ROWS)
        return max(min(num_rows, span_rows // (self.world_size * self._num_workers)) // self.batch_rows, 1)

    def _select_rows(self, batches: range) -> RowSelection:
        """Return the rows of the parts that these batches need."""
        order, num_rows = self.order, self.order.num_rows
        start = batches[0] * self.batch_rows % num_rows
        stop = start + (batches[-1] - batches[0] + 1) * self.batch_rows
        parts = order.parts(self.epoch, start, min(stop, num_rows))
        if self._end == "pad" and stop > num_rows:  # positions begin again at 0
            parts = np.concatenate((parts, order.parts(self.epoch, 0, min(stop - num_rows, num_rows))))
        return self._tables.select(parts, order.parts(self.epoch, min(stop, num_rows), num_rows))

    def _order_rows(self, batches: range) -> list[RowIndices]:
        """Return the indices of the rows of each batch. If the end is padded, positions begin again at 0."""
        position, num_rows = batches[0] * self.batch_rows, self.order.num_rows
        stop, ranges = (batches[-1] + 1) * self.batch_rows, list[RowIndices]()
        if self._end != "pad":
            stop = min(stop, num_rows)
        while position < stop:
            first = position % num_rows
            last = min(first + stop - position, num_rows)
            ranges.append(self.order.rows(self.epoch, first, last))
            position += last - first
        rows = ranges[0] if len(ranges) == 1 else np.concatenate(ranges)
        starts = range(0, len(rows), self.batch_rows * batches.step)
        return [rows[start : start + self.batch_rows] for start in starts]

    def state_dict(self) -> dict[str, Any]:
        """Return the position as a dictionary of numbers, which can be stored as JSON.

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
            "parts": self.order.digest,
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
        expected = self.state_dict()
        for name, value in expected.items():
            if name not in state:
                raise InvalidDataError(f"state: expected {name!r}, found only {sorted(map(str, state))}")
            if name not in ("epoch", "next_batch") and state[name] != value:
                raise InvalidDataError(f"state: {name}: expected {value}, as of this reader, found {state[name]!r:.40}")
        epoch, next_batch = state["epoch"], state["next_batch"]
        # Not bool, which is an int, too, and could be the number of another field.
        if not all(type(number) is int and 0 <= number < 1 << 63 for number in (epoch, next_batch)):
            raise InvalidDataError(f"state: expected a position, found epoch {epoch!r:.40}, batch {next_batch!r:.40}")
        self.epoch, self.next_batch = epoch, next_batch

    def __repr__(self) -> str:
        shuffled = "in order" if self.order.seed is None else f"shuffled with seed {self.order.seed}"
        return (
            f"<bowstring.datasets.EpochReader: {format_count(self.order.num_rows, 'row')} {shuffled}, "
            f"in batches of {self.batch_rows:,}: "
            f"rank {self.rank} of {self.world_size}, at batch {self.next_batch} of epoch {self.epoch}>"
        )

    def _repr_html_(self) -> str:
        properties = {
            "rows": f"{self.order.num_rows:,}",
            "order": "in order" if self.order.seed is None else f"shuffled with seed {self.order.seed}",
            "rows per batch": f"{self.batch_rows:,}",
            "rank": f"{self.rank} of {self.world_size}",
            "position": f"batch {self.next_batch:,} of epoch {self.epoch:,}",
        }
        return to_html_table("EpochReader", ("", ""), properties.items())


def _to_batch(table: Table) -> RecordBatch:
    """Return the rows of a table as one batch, without copying if they are in one."""
    return table.combine_chunks().to_batches()[0]


def _identity(batch: RecordBatch) -> RecordBatch:
    return batch


def _slice(batch: RecordBatch, lengths: Sequence[int]) -> Iterator[RecordBatch]:
    start = 0
    for length in lengths:
        yield batch.slice(start, length)
        start += length

"""Batches of tensors for PyTorch's `DataLoader`, in its workers and on several ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from bowstring.arrays.record_batch import RecordBatch
from bowstring.arrays.table import Table
from bowstring.datasets.order import DEFAULT_WINDOW_ROWS
from bowstring.datasets.reader import End, EpochReader
from bowstring.datatypes.nested import FixedSizeList
from bowstring.datatypes.types import Bool, DataType, FloatingPoint, Int
from bowstring.errors import InvalidDataError, MissingExtraError
from bowstring.sharing.connect import Target, connect
from bowstring.sharing.share import SharedTableHandle, attach

try:
    import torch
    from torch.utils.data import IterableDataset, get_worker_info
except ImportError as error:
    raise MissingExtraError.for_package("PyTorch", "torch") from error

Source: TypeAlias = Table | SharedTableHandle | Target
"""A table, the handle of a shared one, or what `bowstring.connect` accepts, such as a published data set."""


class EpochDataset(IterableDataset):  # type: ignore[misc, unused-ignore]
    """Yields the batches of an epoch as dictionaries of tensors, for ``DataLoader(dataset, batch_size=None)``.

    The batches and their order are those of an `EpochReader` with the same arguments; the workers of a `DataLoader`
    divide those of the rank. Columns of numbers, booleans and fixed-size lists of numbers become tensors, all others
    lists of Python values. `columns` selects columns by name or index.

    `source` is opened in each process, on the first use. A handle, a published data set and URIs are small, and their
    tables are mapped, not copied; a table is copied to workers that are spawned, and shared with those that are forked.
    Without shuffling, tensors may share read-only memory: do not write to them.

    The epoch is that of `set_epoch`, as with torch's `DistributedSampler`: iterating again repeats it. Raises
    `InvalidDataError`, naming the column, if numbers have nulls: use `fill_null` before.
    """

    def __init__(  # noqa: PLR0913 -- those of EpochReader
        self,
        source: Source,
        batch_rows: int,
        *,
        columns: list[str | int] | None = None,
        seed: int | None = None,
        window_rows: int = DEFAULT_WINDOW_ROWS,
        rank: int = 0,
        world_size: int = 1,
        end: End = "keep",
    ) -> None:
        super().__init__()
        self._source = source
        self._columns = columns
        self._options: dict[str, Any] = {"seed": seed, "window_rows": window_rows, "end": end}
        self._batch_rows = batch_rows
        self._rank, self._world_size = rank, world_size
        # In shared memory, so that workers that persist see the epoch, too.
        self._epoch = torch.zeros(1, dtype=torch.int64).share_memory_()
        self._state: Mapping[str, Any] | None = None
        self._table: Table | None = None
        self._reader: EpochReader | None = None

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration, which then starts at its beginning."""
        self._epoch[0] = epoch
        self._state = None

    def __iter__(self) -> Iterator[dict[str, Any]]:
        info = get_worker_info()
        worker, num_workers = (0, 1) if info is None else (info.id, info.num_workers)
        reader = self._reader = self._create_reader(worker, num_workers)
        for batch in reader:
            yield to_tensors(batch)

    def _create_reader(self, worker: int = 0, num_workers: int = 1) -> EpochReader:
        reader = EpochReader(
            self._open_table(),
            self._batch_rows,
            rank=self._rank + worker * self._world_size,
            world_size=self._world_size * num_workers,
            **self._options,
        )
        reader.epoch = int(self._epoch[0])
        if self._state is not None:
            reader.load_state_dict(self._state)
        return reader

    def _open_table(self) -> Table:
        if self._table is None:
            source = self._source
            if isinstance(source, Table):
                table = source
            elif isinstance(source, SharedTableHandle):
                table = attach(source)
            else:
                with connect(source) as data:
                    table = data.read_all()
            self._table = table if self._columns is None else table.select(self._columns)
        return self._table

    def state_dict(self, num_batches: int | None = None) -> dict[str, Any]:
        """Return a position for `load_state_dict`.

        With `num_batches` it is that of a loop that has received so many batches of this rank since the beginning of
        the epoch or the position that was loaded: a reader with other numbers of ranks and workers continues there.
        Without, it is that of this process, as torchdata's `StatefulDataLoader` expects of each worker, and continues
        with the same numbers only.
        """
        if num_batches is None and self._reader is not None:
            return self._reader.state_dict()
        state = self._create_reader().state_dict()
        state["next_batch"] += (num_batches or 0) * self._world_size
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue at a position of `state_dict`; the epoch is that of the position, until `set_epoch`.

        Raises `InvalidDataError` in the next iteration if it is not such a position.
        """
        self._state = dict(state)
        self._reader = None

    def __getstate__(self) -> dict[str, Any]:
        # Another process opens the source itself.
        return {**self.__dict__, "_table": None, "_reader": None}


def to_tensors(batch: RecordBatch) -> dict[str, Any]:
    """Return the columns of a batch by name: tensors of numbers and booleans, lists of other values.

    Tensors share the memory if the columns do with NumPy; booleans are copied. Raises `InvalidDataError`, naming the
    column, for numbers with nulls.
    """
    return {name: _to_tensor(name, column) for name, column in zip(batch.column_names, batch.columns, strict=True)}


def _to_tensor(name: str, column: Any) -> Any:
    if not _has_tensors(column.type):
        return column.to_pylist()
    if column.null_count or (isinstance(column.type, FixedSizeList) and column.field(0).null_count):
        raise InvalidDataError(f"column {name!r}: a tensor has no nulls: use fill_null first")
    if isinstance(column.type, Bool):
        return torch.from_numpy(column.to_numpy(zero_copy_only=False))
    return torch.from_dlpack(column)


def _has_tensors(data_type: DataType) -> bool:
    if isinstance(data_type, FixedSizeList):
        return isinstance(data_type.value_type, (Int, FloatingPoint))
    return isinstance(data_type, (Int, FloatingPoint, Bool))

"""Tensors for PyTorch's `DataLoader`, in its workers and on several ranks.

`EpochDataset` is iterable: an `EpochReader` shuffles, divides and resumes. `TableDataset` has rows by index, which
samplers choose. Both convert columns as `to_tensors`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, overload

import numpy as np

from bowstring.arrays.record_batch import RecordBatch
from bowstring.datasets.part_tables import ColumnKeys, PartTables, RowSelection, Source
from bowstring.datasets.reader import EpochReader
from bowstring.datatypes.nested import FixedSizeList
from bowstring.datatypes.types import Bool, DataType, FloatingPoint, Int
from bowstring.errors import InvalidArgumentError, InvalidDataError, require_package
from bowstring.layouts.indexing import normalize_index, to_integer
from bowstring.transports.tls import TlsOptions

with require_package("PyTorch", "torch"):
    import torch
    from torch.utils.data import Dataset as TorchDataset, IterableDataset, get_worker_info
    from torch.utils.data._utils.collate import default_collate_fn_map

__all__ = ["EpochDataset", "TableDataset", "TensorBatch", "TensorRow", "TensorRows", "to_tensors"]


def __dir__() -> list[str]:
    return __all__


class TensorBatch(dict[str, Any]):
    """The columns of rows by name: tensors of numbers and booleans, lists of other values."""

    def split(self, lengths: Sequence[int]) -> Iterator[TensorBatch]:
        """Return the rows in pieces of these lengths; the tensors share memory."""
        if not self:
            return iter([TensorBatch() for _ in lengths])
        names = list(self)
        columns = [_split_column(column, lengths) for column in self.values()]
        return (TensorBatch(zip(names, pieces, strict=True)) for pieces in zip(*columns, strict=True))


class TensorRow(dict[str, Any]):
    """A row of a `TableDataset`: a tensor or value by column."""


def _split_column(column: Any, lengths: Sequence[int]) -> Sequence[Any]:
    if torch.is_tensor(column):
        return column.split(lengths)  # type: ignore[no-any-return, no-untyped-call, unused-ignore]
    return [column[start:stop] for start, stop in pairwise(accumulate(lengths, initial=0))]


class EpochDataset(IterableDataset[TensorBatch]):  # type: ignore[misc, unused-ignore]
    """Yields the batches of a reader as dictionaries of tensors, for ``DataLoader(dataset, batch_size=None)``.

    The workers of a `DataLoader` divide the batches of the rank, and the loop receives them in the order of the reader.
    `fill_null` and `validity_suffix` are as in `to_tensors`.

    A worker that is forked shares the open source, and one that is spawned opens it again. A data set in parts, the
    handle of a shared table, and URIs are small; a table is copied to workers that are spawned. Without shuffling,
    tensors may share read-only memory: do not write to them.

    The epoch is as in `set_epoch`, as with torch's `DistributedSampler`: iterating again repeats it. An iteration
    raises `InvalidDataError`, naming the column, for nulls that are not replaced, and the errors of an `EpochReader`.
    """

    def __init__(self, reader: EpochReader, *, fill_null: Any = None, validity_suffix: str | None = None) -> None:
        """Yield the batches of `reader`; the options are those of `to_tensors`.

        Raises `InvalidArgumentError` unless it is an `EpochReader`.
        """
        super().__init__()
        if not isinstance(reader, EpochReader):
            class_name = type(reader).__name__
            raise InvalidArgumentError(
                f"EpochDataset: expected an EpochReader, such as EpochReader(table, batch_rows=256), found {class_name}"
            )
        self._reader = reader
        self._convert = partial(to_tensors, fill_null=fill_null, validity_suffix=validity_suffix)
        # In shared memory, so that workers that persist see it, too.
        self._position = torch.tensor([reader.epoch, reader.next_batch]).share_memory_()  # type: ignore[no-untyped-call, unused-ignore]
        self._state: Mapping[str, Any] | None = None
        """The position of this worker, for the next iteration."""
        self._running: EpochReader | None = None
        """The reader of the last iteration in this process."""

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iterations. They begin at its start, or at the loaded position in it."""
        if to_integer("epoch", epoch) != self._position[0]:
            self._position.copy_(torch.tensor([epoch, 0]))

    def __iter__(self) -> Iterator[TensorBatch]:
        info = get_worker_info()
        reader = self._create_reader(0 if info is None else info.id, 1 if info is None else info.num_workers)
        if self._state is not None:
            reader.load_state_dict(self._state)
            self._state = None
        self._running = reader
        return reader.iterate(self._convert, TensorBatch.split)

    def __len__(self) -> int:
        """Return the number of batches of this rank in the next iteration."""
        return len(self._create_reader())

    def _create_reader(self, worker: int = 0, num_workers: int = 1) -> EpochReader:
        reader = self._reader.for_worker(worker, num_workers)
        reader.epoch, reader.next_batch = self._position.tolist()
        return reader

    def state_dict(self, num_batches: int | None = None) -> dict[str, Any]:
        """Return a position for `load_state_dict`.

        With `num_batches`, it is the position of a loop that has received this number of batches of this rank since the
        beginning of the epoch or the loaded position; readers with other numbers of ranks and workers can continue
        there. Otherwise it is the position of this process, as torchdata's `StatefulDataLoader` expects of each worker,
        and needs the same numbers.
        """
        if num_batches is None and self._running is not None:
            return self._running.state_dict()
        reader = self._create_reader()
        reader.next_batch += to_integer("num_batches", num_batches or 0) * reader.world_size
        return reader.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue at a position of `state_dict`. In a worker, it applies to the next iteration only.

        Raises `InvalidDataError` if it is not such a position, or belongs to other rows or another order.
        """
        reader = self._create_reader()
        reader.load_state_dict(state)
        self._running = None
        if get_worker_info() is None:
            self._position.copy_(torch.tensor([reader.epoch, reader.next_batch]))
        else:
            self._state = dict(state)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_running": None}


class TableDataset(TorchDataset[TensorRow]):  # type: ignore[misc, unused-ignore]
    """The rows of a source by index, for ``DataLoader(dataset, batch_size=256, sampler=…)``.

    A row is a dictionary of a tensor or value by column; a batch is as in `to_tensors`, gathered at once: the
    `collate_fn` of a `DataLoader` gets a sequence of rows, and the default one returns their `TensorBatch`.

    `source`, `columns` and `tls` are as in `EpochReader`, `fill_null` and `validity_suffix` as in `to_tensors`. A
    data set in parts is opened on first use, in each process, as a whole: shared memory of this host is mapped, but
    other parts are copied to the memory of each process. Use `EpochDataset` for them.

    Raises as `EpochReader`, and an index out of range raises `IndexError`.
    """

    def __init__(
        self,
        source: Source,
        *,
        columns: ColumnKeys | None = None,
        fill_null: Any = None,
        validity_suffix: str | None = None,
        tls: TlsOptions | None = None,
    ) -> None:
        self._tables = PartTables(source, columns, prefetch_bytes=0, tls=tls)
        self._num_rows = sum(self._tables.part_rows)
        self._convert = partial(to_tensors, fill_null=fill_null, validity_suffix=validity_suffix)

    def __len__(self) -> int:
        return self._num_rows

    def __getitem__(self, index: int) -> TensorRow:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> TensorRows:
        """Return several rows."""
        rows = np.array([normalize_index(index, self._num_rows) for index in indices], np.int64)
        (batch,) = self._open().take(rows).to_batches()
        return TensorRows(self._convert(batch), len(rows))

    def _open(self) -> RowSelection:
        return self._tables.select(np.flatnonzero(self._tables.part_rows), np.empty(0, np.int64))


class TensorRows(Sequence[TensorRow]):
    """Rows of a `TableDataset`, in the tensors of `batch`."""

    def __init__(self, batch: TensorBatch, num_rows: int) -> None:
        self.batch = batch
        self._num_rows = num_rows

    def __len__(self) -> int:
        return self._num_rows

    @overload
    def __getitem__(self, index: int) -> TensorRow: ...
    @overload
    def __getitem__(self, index: slice) -> TensorRows: ...
    def __getitem__(self, index: int | slice) -> TensorRow | TensorRows:
        if isinstance(index, slice):
            batch = TensorBatch({name: column[index] for name, column in self.batch.items()})
            return TensorRows(batch, len(range(self._num_rows)[index]))
        position = normalize_index(index, self._num_rows)
        return TensorRow({name: column[position] for name, column in self.batch.items()})


def _collate_rows(rows: Sequence[TensorRow], **_options: Any) -> TensorBatch:
    """Join rows to a batch, without a copy if they are `TensorRows`."""
    if isinstance(rows, TensorRows):
        return rows.batch
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    return TensorBatch(
        {name: torch.stack(values) if torch.is_tensor(values[0]) else values for name, values in columns.items()}
    )


# What PyTorch documents for one's own types, so that the default `collate_fn` accepts them.
default_collate_fn_map[TensorRow] = _collate_rows


def to_tensors(batch: RecordBatch, *, fill_null: Any = None, validity_suffix: str | None = None) -> TensorBatch:
    """Return the columns of a batch by name.

    Columns of numbers and booleans become tensors of the shape (rows,), and fixed-size lists of numbers of the shape
    (rows, length). All other columns become lists of Python values, with None for nulls: `str` for strings, `bytes` for
    binary, lists for lists, dictionaries for structs, as `Array.to_pylist`. Tensors share the memory of the column if
    NumPy arrays do; booleans are copied.

    `fill_null` replaces the nulls of numbers and booleans: a value for all columns, or a dictionary of values by
    column. `validity_suffix` adds, for each nullable column of them, a tensor of booleans, which are true for values
    that are not null, under the column's name and this suffix; nulls for which there is no other value become 0.

    Raises `InvalidDataError`, naming the column, for other nulls in tensors, and `TypeMismatchError` if a value does
    not fit.
    """
    tensors = TensorBatch()
    for field, column in zip(batch.schema.fields, batch.columns, strict=True):
        if not _has_tensors(field.type):
            tensors[field.name] = column.to_pylist()
            continue
        value = fill_null.get(field.name) if isinstance(fill_null, Mapping) else fill_null
        if isinstance(field.type, FixedSizeList):
            value = None
        elif validity_suffix is not None and field.nullable:
            is_valid = ~column.is_null().to_numpy(zero_copy_only=False)
            tensors[field.name + validity_suffix] = torch.from_numpy(is_valid)
            value = 0 if value is None else value
        tensors[field.name] = _to_tensor(field.name, column if value is None else _fill_null(column, value))
    return tensors


def _fill_null(column: Any, value: Any) -> Any:
    if not column.null_count:
        return column
    return column.fill_null(bool(value) if isinstance(column.type, Bool) else value)


def _to_tensor(name: str, column: Any) -> Any:
    if column.null_count or (isinstance(column.type, FixedSizeList) and column.field(0).null_count):
        raise InvalidDataError(f"column {name!r}: a tensor has no nulls: use fill_null")
    if isinstance(column.type, Bool):
        return torch.from_numpy(column.to_numpy(zero_copy_only=False))
    return torch.from_dlpack(column)  # type: ignore[attr-defined, unused-ignore]


def _has_tensors(data_type: DataType) -> bool:
    if isinstance(data_type, FixedSizeList):
        return isinstance(data_type.value_type, (Int, FloatingPoint))
    return isinstance(data_type, (Int, FloatingPoint, Bool))

"""Tensors for PyTorch's `DataLoader`, in its workers and on several ranks.

`EpochDataset` is iterable: an `EpochReader` shuffles, divides and resumes. `TableDataset` has rows by index, which
samplers choose. `loader` returns a `DataLoader` in one line. All convert columns as `to_tensors`.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.reduction import ForkingPickler
from typing import Any, Unpack, cast, overload

import numpy as np

from bowstring.arrays.record_batch import RecordBatch
from bowstring.arrays.table import Table
from bowstring.datasets.batch_arrays import ArrayConverter, ArrayOptions, Arrays
from bowstring.datasets.column_arrays import ColumnValues, RaggedArray, RowError, SparseRows
from bowstring.datasets.order import check_epoch
from bowstring.datasets.part_tables import PartTables, Source
from bowstring.datasets.reader import EpochReader
from bowstring.errors import InvalidArgumentError, require_package, suggest
from bowstring.layouts.indexing import normalize_index, to_integer
from bowstring.transports.tls import TlsOptions

with require_package("PyTorch", "torch"):
    import torch
    from torch.utils.data import DataLoader, Dataset as TorchDataset, IterableDataset, get_worker_info
    from torch.utils.data._utils.collate import default_collate_fn_map

__all__ = ["EpochDataset", "TableDataset", "TensorBatch", "TensorRow", "TensorRows", "loader", "to_tensors"]

_MAX_WORKERS = 1024
_MAX_PACKED_BYTES = 1 << 17


def __dir__() -> list[str]:
    return __all__


class TensorBatch(dict[str, Any]):
    """The columns of rows by name: tensors of numbers, booleans and lists of them, lists of other values."""


def _reduce_batch(batch: TensorBatch) -> tuple[Any, ...]:
    """Reduce a batch that a worker sends: its small tensors are one tensor of bytes.

    PyTorch sends each tensor by a connection of its own, two of them for a jagged one, which takes longer than to copy
    100 KB twice. Packed, batches of 100 rows with two numbers and four lists take 2.5 ms each instead of 4.4 ms.
    """
    tensors, others = list[torch.Tensor](), dict[int, torch.Tensor]()
    groups = dict[tuple[torch.dtype, torch.Size], list[int]]()

    def add(tensor: torch.Tensor, is_small: bool) -> int:
        index = len(tensors)
        tensors.append(tensor)
        if is_small:
            groups.setdefault((tensor.dtype, tensor.shape), []).append(index)
        else:
            others[index] = tensor
        return index

    indices, offsets_indices = dict[str, tuple[int, ...]](), dict[int, int]()
    for name, value in batch.items():
        if _can_be_packed(value):
            indices[name] = (add(value, True),)
        elif _is_plain_jagged(value):
            values, offsets = value.values(), value.offsets()
            # Once for columns that share them: these can be added only as long as they do.
            if id(offsets) not in offsets_indices:
                offsets_indices[id(offsets)] = add(offsets, _can_be_packed(offsets))
            indices[name] = add(values, _can_be_packed(values)), offsets_indices[id(offsets)]
    if len(tensors) == len(others) + 1:
        groups, others = {}, dict(enumerate(tensors))  # packing one saves nothing
    # The widest types first, so that all are aligned.
    layouts = sorted(groups.items(), key=lambda group: group[0][0].itemsize, reverse=True)
    stacks = [torch.stack([tensors[index] for index in group]) for _, group in layouts]
    pack = torch.cat([stack.reshape(-1).view(torch.uint8) for stack in stacks]) if stacks else None
    columns = {**batch, **dict.fromkeys(indices)}
    return _unpack, (columns, indices, others, layouts, pack), vars(batch) or None


def _is_plain_jagged(value: Any) -> bool:
    """Whether a nested tensor is what `nested_tensor_from_jagged` returns for its values and offsets."""
    return (
        torch.is_tensor(value)
        and value.layout is torch.jagged
        and value.device.type == "cpu"
        and not value.requires_grad
        and value.lengths() is None
        and not isinstance(value.size(1), int)
    )


def _can_be_packed(value: Any) -> bool:
    return (
        type(value) is torch.Tensor
        and value.layout is torch.strided
        and value.device.type == "cpu"
        and not (value.is_nested or value.is_quantized or value.requires_grad)
        and value.nbytes <= _MAX_PACKED_BYTES
    )


def _unpack(
    columns: dict[str, Any],
    indices: dict[str, tuple[int, ...]],
    tensors: dict[int, torch.Tensor],
    layouts: list[tuple[tuple[torch.dtype, torch.Size], list[int]]],
    pack: torch.Tensor | None,
) -> TensorBatch:
    """Return a batch of tensors with memory of their own; `columns` has the other columns, and the order.

    Views would retain the memory of all columns if the loop keeps one, and autograd restricts changing them in place.
    """
    if pack is not None:
        sizes = [len(group) * shape.numel() * dtype.itemsize for (dtype, shape), group in layouts]
        for ((dtype, shape), group), part in zip(layouts, pack.split(sizes), strict=True):
            stack = part.view(dtype).view(len(group), *shape)
            tensors.update((index, tensor.clone()) for index, tensor in zip(group, stack.unbind(), strict=True))
    batch = TensorBatch(columns)
    for name, (index, *offsets_index) in indices.items():
        batch[name] = tensors[index]
        for each in offsets_index:
            batch[name] = torch.nested.nested_tensor_from_jagged(tensors[index], tensors[each])
    return batch


# Only for batches that are sent: files, copies and classes derived from it are pickled as usual.
ForkingPickler.register(TensorBatch, _reduce_batch)


class TensorRow(dict[str, Any]):
    """A row of a `TableDataset`: a tensor or value by column."""


class EpochDataset(IterableDataset[TensorBatch]):  # type: ignore[misc, unused-ignore]
    """Yields the batches of a reader as dictionaries of tensors, for ``DataLoader(dataset, batch_size=None)``.

    The workers of a `DataLoader` divide the batches of the rank, and the loop receives them in the order of the reader.
    The options are as in `to_tensors`; what depends on all rows, such as whether lists are equally long, is found here.

    A worker that is forked shares the open source, and one that is spawned opens it again. A data set in parts, the
    handle of a shared table, and URIs are small; a table is copied to workers that are spawned.

    Each iteration is an epoch. The first begins at the position of the reader, or where `set_epoch` or
    `load_state_dict` says; each later one is the next epoch, with any number of workers, also after an early `break`.

    Raises as `EpochReader.to_numpy`. An iteration raises `InvalidDataError` for a value that does not fit, with its
    part, column and row, and the errors of an `EpochReader`.
    """

    def __init__(self, reader: EpochReader, **options: Unpack[ArrayOptions]) -> None:
        """Yield the batches of `reader`; with the options of `to_tensors`.

        Raises `InvalidArgumentError` unless it is an `EpochReader`, and as `EpochReader.to_numpy`.
        """
        super().__init__()
        if not isinstance(reader, EpochReader):
            class_name = type(reader).__name__
            raise InvalidArgumentError(
                f"EpochDataset: expected an EpochReader, such as EpochReader(table, batch_rows=256), found {class_name}"
            )
        self._tensors = TensorConverter(reader.tables, options)
        self._reader = reader.select(self._tensors.column_names)
        self._shared_position = _SharedPosition(reader.epoch, reader.next_batch)
        self._state: Mapping[str, Any] | None = None
        """The position of this worker, for the next iteration."""
        self._running: EpochReader | None = None
        """The reader of the last iteration in this process."""
        self._is_pending = False
        """Whether the next iteration has an iterator already, which has not begun."""

    @property
    def categories(self) -> dict[str, list[Any]]:
        """The categories of each column of codes, in the order of the codes."""
        return self._tensors.categories

    def set_epoch(self, epoch: int) -> None:
        """As `EpochReader.set_epoch`."""
        self._shared_position.set_epoch(check_epoch(epoch))

    def __iter__(self) -> Iterator[TensorBatch]:
        if get_worker_info() is not None:
            return self._begin_iteration()
        self._is_pending = True
        return self._iterate_on_demand()

    def _iterate_on_demand(self) -> Iterator[TensorBatch]:
        """Begin with the first batch: to resume at the end of an epoch, torchdata drops an iterator without one."""
        self._is_pending = False
        yield from self._begin_iteration()

    def _begin_iteration(self) -> Iterator[TensorBatch]:
        info = get_worker_info()
        worker, num_workers = (0, 1) if info is None else (info.id, info.num_workers)
        # Equal in all workers of a loop, and another number in the next loop.
        loop = int.from_bytes(os.urandom(8)) if info is None else hash((info.seed - info.id, num_workers))
        reader = self._reader.for_worker(worker, num_workers)
        reader.seek(*self._shared_position.begin_iteration(worker, loop))
        if self._state is not None:
            reader.load_state_dict(self._state)
            self._shared_position.move_iteration(reader.epoch)
            self._state = None
        self._running = reader
        return map(self._tensors.finish, reader.iterate(self._tensors))

    def __len__(self) -> int:
        """Return the number of batches of this rank in the next iteration."""
        return len(self._create_reader(*self._shared_position.next_position))

    def _create_reader(self, epoch: int, next_batch: int) -> EpochReader:
        reader = self._reader.for_worker(0, 1)
        reader.seek(epoch, next_batch)
        return reader

    def state_dict(self, num_batches: int | None = None) -> dict[str, Any]:
        """Return a position for `load_state_dict`.

        With `num_batches`, it is the position of a loop that has received this number of batches of this rank since the
        beginning of its iteration; readers with other numbers of ranks and workers can continue there. Otherwise it is
        the position of this process, as torchdata's `StatefulDataLoader` expects of each worker, and needs the same
        numbers.
        """
        if num_batches is None and self._running is not None:
            return self._running.state_dict()
        position = self._shared_position
        epoch, next_batch = position.next_position if self._is_pending else position.position
        next_batch += to_integer("num_batches", num_batches or 0) * self._reader.world_size
        return self._create_reader(epoch, next_batch).state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue at a position of `state_dict`. In a worker, it applies to the next iteration only.

        Raises `InvalidDataError` if it is not such a position, or belongs to other rows or another order.
        """
        reader = self._create_reader(0, 0)
        reader.load_state_dict(state)
        self._running = None
        if get_worker_info() is None:
            self._shared_position.seek(reader.epoch, reader.next_batch)
        else:
            self._state = dict(state)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_running": None, "_is_pending": False}


class _SharedPosition:
    """The position where iterations begin, and how many have begun, in memory that all workers share.

    The main process does not see its workers begin: they have to find out themselves which iteration this is. A loop is
    an iteration, or with persistent workers several. Of one that was left early, workers may begin an iteration long
    after the next one has begun elsewhere.
    """

    _EPOCH, _NEXT_BATCH, _NUM_BEFORE = 0, 1, 2
    _LOOPS = 3
    _WORKERS = _LOOPS + _MAX_WORKERS
    _COUNT_BITS = 32

    def __init__(self, epoch: int, next_batch: int) -> None:
        # The epoch and batch of `seek`, and the number of iterations that had begun before it. For a loop, its key and
        # the number of iterations before it, in one word. For a worker of a loop, its key and the greatest number of an
        # iteration that has begun there. A loop may overwrite the words of another, which are rarely needed then.
        words = torch.zeros(self._WORKERS + _MAX_WORKERS, dtype=torch.int64)
        self._words = words.share_memory_()  # type: ignore[no-untyped-call, unused-ignore]
        self._key = self._iteration = 0
        """The loop and the number of the iteration that began last in this process. The first iteration is number 1."""
        self.seek(epoch, next_batch)

    def seek(self, epoch: int, next_batch: int) -> None:
        """Let the next iteration begin here."""
        for index, value in enumerate((epoch, next_batch, self._num_iterations)):
            self._words[index] = value

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration be this epoch; at the position of `seek` if that is in it, and none has begun."""
        if self._num_iterations > self._words[self._NUM_BEFORE] or epoch != self._words[self._EPOCH]:
            self.seek(epoch, 0)

    @property
    def position(self) -> tuple[int, int]:
        """Where the last iteration began, or the next one if none has begun since `seek`."""
        return self._position_of(self._num_iterations)

    @property
    def next_position(self) -> tuple[int, int]:
        """Where the next iteration begins."""
        return self._position_of(self._num_iterations + 1)

    def begin_iteration(self, worker: int, loop: int) -> tuple[int, int]:
        """Begin an iteration in a worker of a loop; return its position."""
        if worker >= _MAX_WORKERS:
            raise InvalidArgumentError(f"EpochDataset: expected up to {_MAX_WORKERS} workers, found worker {worker}")
        key = loop & (1 << 63 - self._COUNT_BITS) - 1
        index = self._WORKERS + (key + worker) % _MAX_WORKERS
        if key == self._key:  # this process has begun all iterations of the loop
            self._iteration += 1
        else:
            self._key, self._iteration = key, self._find_loop(key, index) + 1
        _, greatest = self._split_word(index)
        self._words[index] = key << self._COUNT_BITS | max(greatest, self._iteration)
        return self._position_of(self._iteration)

    def _find_loop(self, key: int, worker_index: int) -> int:
        """Return the number of iterations before a loop. Its first worker decides; several may be first at once."""
        num_iterations = self._num_iterations  # read first: a worker that begins meanwhile has entered the loop before
        index = self._LOOPS + key % _MAX_WORKERS
        known_key, num_before = self._split_word(index)
        # Loops have equal keys if their generators are seeded alike: then this worker has begun the earlier one.
        worker_key, iteration = self._split_word(worker_index)
        if known_key != key or (worker_key == key and iteration > num_before):
            self._words[index], num_before = key << self._COUNT_BITS | num_iterations, num_iterations
        return num_before

    def move_iteration(self, epoch: int) -> None:
        """Let the last iteration of this process be this epoch, and those after it the next ones."""
        self._words[self._EPOCH] = epoch - self._iteration + self._words[self._NUM_BEFORE] + 1

    def _split_word(self, index: int) -> tuple[int, int]:
        return divmod(int(self._words[index]), 1 << self._COUNT_BITS)

    @property
    def _num_iterations(self) -> int:
        return int((self._words[self._WORKERS :] & (1 << self._COUNT_BITS) - 1).max())

    def _position_of(self, iteration: int) -> tuple[int, int]:
        epoch, next_batch, num_before = self._words[: self._LOOPS].tolist()
        # The batches of an iteration from before `seek` are not received, and may be any.
        index = max(iteration - num_before - 1, 0)
        return epoch + index, 0 if index else next_batch


class TableDataset(TorchDataset[TensorRow]):  # type: ignore[misc, unused-ignore]
    """The rows of a source by index, for ``DataLoader(dataset, batch_size=256, sampler=…)``.

    A row is a dictionary of a tensor or value by column; a batch is as in `to_tensors`, gathered at once: the
    `collate_fn` of a `DataLoader` gets a sequence of rows, and the default one returns their `TensorBatch`.

    `source` and `tls` are as in `EpochReader`, the options as in `to_tensors`; `transform` applies to batches, and not
    to single rows. A data set in parts is opened on first use, in each process, as a whole: shared memory of this host
    is mapped, but other parts are copied to the memory of each process. Use `EpochDataset` for them.

    Raises as `EpochReader` and `EpochDataset`, and an index out of range raises `IndexError`.
    """

    def __init__(self, source: Source, *, tls: TlsOptions | None = None, **options: Unpack[ArrayOptions]) -> None:
        tables = PartTables(source, None, prefetch_bytes=0, tls=tls)
        self._tensors = TensorConverter(tables, options)
        self._tables = tables.select_columns(self._tensors.column_names)
        self._num_rows = sum(self._tables.part_rows)

    @property
    def categories(self) -> dict[str, list[Any]]:
        """The categories of each column of codes, in the order of the codes."""
        return self._tensors.categories

    def __len__(self) -> int:
        return self._num_rows

    def __getitem__(self, index: int) -> TensorRow:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> TensorRows:
        """Return several rows."""
        rows = np.array([normalize_index(index, self._num_rows) for index in indices], np.int64)
        selection = self._tables.select(np.flatnonzero(self._tables.part_rows), np.empty(0, np.int64))
        with self._tables.locate_errors(selection, [rows]):
            (arrays,) = self._tensors.gather(selection, [rows])
        return TensorRows(self._tensors, arrays, len(rows))


class TensorRows(Sequence[TensorRow]):
    """Rows of a `TableDataset`."""

    def __init__(self, tensors: TensorConverter, arrays: Arrays, num_rows: int) -> None:
        self._tensors = tensors
        self._arrays = arrays
        self._num_rows = num_rows

    @property
    def batch(self) -> Any:
        """The rows as one `TensorBatch`, or what the `transform` makes of it."""
        return self._tensors.finish(self._arrays)

    def __len__(self) -> int:
        return self._num_rows

    @overload
    def __getitem__(self, index: int) -> TensorRow: ...
    @overload
    def __getitem__(self, index: slice) -> TensorRows: ...
    def __getitem__(self, index: int | slice) -> TensorRow | TensorRows:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._num_rows)
            if step != 1:
                raise InvalidArgumentError(f"rows of a TableDataset: expected a slice of adjacent rows, found {index}")
            arrays = {name: values[start:stop] for name, values in self._arrays.items()}
            return TensorRows(self._tensors, arrays, max(stop - start, 0))
        position = normalize_index(index, self._num_rows)
        arrays = {name: values[position : position + 1] for name, values in self._arrays.items()}
        return TensorRow({name: column[0] for name, column in self._tensors.to_batch(arrays).items()})


def _collate_rows(rows: Sequence[TensorRow], **_options: Any) -> Any:
    """Join rows to a batch, without a copy if they are `TensorRows`."""
    if isinstance(rows, TensorRows):
        return rows.batch
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    return TensorBatch(
        {name: torch.stack(values) if torch.is_tensor(values[0]) else values for name, values in columns.items()}
    )


def _reject_batches(_batches: Sequence[TensorBatch], **_options: Any) -> Any:
    raise InvalidArgumentError(
        "DataLoader: an EpochDataset yields whole batches: pass batch_size=None to the DataLoader, and the number of "
        "rows in a batch as batch_rows to the EpochReader"
    )


# What PyTorch documents for one's own types, so that the default `collate_fn` accepts or rejects them.
default_collate_fn_map[TensorRow] = _collate_rows
default_collate_fn_map[TensorBatch] = _reject_batches


def loader(source: Source, batch_rows: int, *, num_workers: int = 0, **options: Any) -> DataLoader[Any]:
    """Return a `DataLoader` of the batches of a source as tensors, whose `dataset` is an `EpochDataset`.

    `options` are those of `EpochReader` (such as `seed`, `end`, `window_rows`), of `to_tensors` (such as `dtypes`,
    `features`, `transform`), and of `DataLoader` (such as `prefetch_factor`, `multiprocessing_context`). `columns` is
    that of `to_tensors`. By default the rank and the world size are those of `torch.distributed`, if that is
    initialized; memory is pinned if there is a GPU; and workers stay alive from epoch to epoch.

    Raises `InvalidArgumentError` for an unknown option, and as `EpochReader` and `EpochDataset`.
    """
    reader_options = {name: options.pop(name) for name in _READER_OPTIONS if name in options}
    array_options = {name: options.pop(name) for name in ArrayOptions.__annotations__ if name in options}
    for name in options:
        if name not in _LOADER_OPTIONS:
            names = [*_READER_OPTIONS, *ArrayOptions.__annotations__, *_LOADER_OPTIONS]
            raise InvalidArgumentError(f"loader: there is no option {name!r}{suggest(name, names)}")
    if torch.distributed.is_available() and torch.distributed.is_initialized() and "rank" not in reader_options:
        reader_options["rank"] = torch.distributed.get_rank()
        reader_options["world_size"] = torch.distributed.get_world_size()
    dataset = EpochDataset(EpochReader(source, batch_rows, **reader_options), **cast(ArrayOptions, array_options))
    options = {"pin_memory": torch.cuda.is_available(), "persistent_workers": num_workers > 0} | options
    return DataLoader(dataset, batch_size=None, num_workers=num_workers, **options)


_READER_OPTIONS = frozenset(inspect.signature(EpochReader).parameters) - {"source", "batch_rows", "columns"}
# Not those that the batches of an `EpochDataset` exclude.
_LOADER_OPTIONS = frozenset(inspect.signature(DataLoader).parameters) - {
    *("dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "collate_fn", "drop_last", "num_workers")
}


def to_tensors(batch: RecordBatch, **options: Unpack[ArrayOptions]) -> TensorBatch:
    """Return the columns of a batch by name. Tensors are copies.

    Numbers and booleans become tensors of the shape (rows,); lists of them (rows, n, …) if they are equally long in the
    batch, otherwise nested tensors with the layout `torch.jagged`; vectors of Spark ML (rows, n) if all are dense,
    otherwise with the layout `torch.sparse_csr`. All other columns become lists of Python values, with None for nulls:
    `str` for strings, `bytes` for binary, dictionaries for structs, as `Array.to_pylist`; so do lists whose inner lists
    differ in length.

    The options are those of `bowstring.datasets.batch_arrays.ArrayOptions`: `columns`, `dtypes` (also
    `torch.bfloat16`), `features`, `shapes`, `fill_null`, `validity_suffix`, `pad`, `categories` and `transform`;
    docs/reference/datasets.md#tensors has examples.

    Raises `InvalidDataError`, naming the column and the row, for nulls that are not replaced and values that do not
    fit; `InvalidArgumentError`, `TypeMismatchError` and `NotFoundError` for options that do not fit the columns.
    """
    tables = PartTables(Table(batch.schema, [batch]), None, prefetch_bytes=0)
    tensors = TensorConverter(tables, options)
    try:
        arrays = tensors.convert(batch.select(list(tensors.column_names)))
    except RowError as error:
        raise error.locate("", error.index) from None
    return cast(TensorBatch, tensors.finish(arrays))


class TensorConverter(ArrayConverter):
    """Converts record batches to tensors; can be pickled. Raises as `ArrayConverter`."""

    def __init__(self, tables: PartTables, options: ArrayOptions) -> None:
        dtypes: Any = options.get("dtypes")
        is_by_column = isinstance(dtypes, Mapping)
        if dtypes is not None:
            numpy_dtypes = {name: _to_numpy_dtype(each) for name, each in dtypes.items()} if is_by_column else None
            options = {**options, "dtypes": numpy_dtypes if is_by_column else _to_numpy_dtype(dtypes)}
        super().__init__(tables, options)
        self._bfloat16_names = frozenset(
            name for name in self._outputs if _is_bfloat16(dtypes.get(name) if is_by_column else dtypes)
        )

    def to_batch(self, arrays: Arrays) -> TensorBatch:
        """Return the tensors of a batch of arrays."""
        batch = TensorBatch()
        for name, values in arrays.items():
            tensor = _to_tensor(values)
            # Other values, such as the codes of categories, are neither lists nor floats.
            is_rounded = name in self._bfloat16_names and torch.is_tensor(tensor) and tensor.is_floating_point()
            batch[name] = tensor.to(torch.bfloat16) if is_rounded else tensor
        return batch


def _to_tensor(values: ColumnValues) -> Any:
    if isinstance(values, np.ndarray):
        # Shared memory is mapped for reading only: PyTorch has no such tensors, and would crash on writing.
        return torch.from_numpy(values if values.flags.writeable else values.copy())
    if isinstance(values, RaggedArray):
        if isinstance(values.values, RaggedArray):
            return values.tolist()  # nested tensors have one dimension of different lengths
        return torch.nested.nested_tensor_from_jagged(_to_tensor(values.values), torch.from_numpy(values.offsets))
    if isinstance(values, SparseRows):
        offsets, indices, elements = (_to_tensor(each) for each in (values.offsets, values.indices, values.values))
        shape = (len(values), values.num_columns)
        return torch.sparse_csr_tensor(offsets, indices, elements, shape, check_invariants=False)
    return values


def _to_numpy_dtype(dtype: Any) -> Any:
    """Return the NumPy type for a type of PyTorch, from which bfloat16 is rounded."""
    if _is_bfloat16(dtype):
        return np.dtype(np.float32)
    if isinstance(dtype, torch.dtype):
        return torch.empty(0, dtype=dtype).numpy().dtype
    try:
        torch.from_numpy(np.empty(0, dtype))
    except (TypeError, ValueError):
        raise InvalidArgumentError(f"dtypes: {dtype!r} is not a type of tensors") from None
    return dtype


def _is_bfloat16(dtype: Any) -> bool:
    return dtype is torch.bfloat16 or (isinstance(dtype, str) and dtype == "bfloat16")

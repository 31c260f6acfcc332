"""A shuffled epoch as tensors of PyTorch.

Bowstring reads shared memory through `EpochDataset`. For rows of numbers and strings, in batches of 256, the peers are
pyarrow, which reads a Parquet file, permutes the whole table in memory and slices it, and the iterable data set of
Hugging Face's `datasets` with a shuffle buffer, which is several times faster there than a permutation of all rows; its
conversion of the Parquet file to an Arrow file is not timed. Strings become lists.

For embeddings, matrices and texts, in batches of 256 and 1,024, the peer is NumPy's `take` of rows that are already a
matrix in the process's own memory, and `datasets` with random batches of a table in its memory.

PyTorch and `datasets` are not among the packages of the tests: without PyTorch nothing is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

import bowstring as bs
from benchmarks import datasets
from benchmarks.measure import Candidate, Measurement, Settings, compare
from bowstring.datasets import EpochReader

_ROWS = 1_000_000
_BATCH_ROWS = 256
_SHUFFLE_BUFFER_ROWS = 100_000
_NUMBERS = ("int64", "float64", "int32", "float32")


def run(folder: Path, settings: Settings) -> Iterator[Measurement]:
    """Measure numbers, then numbers and a string."""
    if find_spec("torch") is None:
        return
    rows = settings.rows(_ROWS)
    random = np.random.default_rng(2031)
    columns = {name: pa.array(random.integers(0, 1 << 20, rows).astype(name)) for name in _NUMBERS}
    table = pa.table({**columns, "string": datasets.ascii_strings(random, rows)})
    path = str(folder / "training.parquet")
    pa.parquet.write_table(table, path)
    with bs.share(bs.table(table)) as handle:
        for names, bounds in ((_NUMBERS, (0.2, 0.5)), ((*_NUMBERS, "string"), (0.2, 0.5))):
            yield from _measure_epoch(list(names), bounds, handle, path, folder, settings)
    for epoch in _list_epochs(settings):
        yield from epoch.measure(settings)


@dataclass(frozen=True, slots=True)
class _Epoch:
    """Rows as Bowstring reads them and as a peer does, which returns an iterator over the batches of an epoch."""

    line: str
    bound: float
    table: pa.Table
    options: dict[str, Any]
    iterate_peer: Callable[[int, int], Iterator[Any]]
    """Of the seed and the number of rows in a batch."""
    num_elements: int
    """Of all batches of an epoch; padding not counted."""
    compares_workers: bool = False

    def measure(self, settings: Settings) -> Iterator[Measurement]:
        from bowstring.datasets.torch import EpochDataset, loader

        long_calls = settings.for_long_calls(2)
        seeds = count()
        with bs.publish(bs.table(self.table), ttl_s=3600) as published:
            for batch_rows in (256, 1024):
                dataset = EpochDataset(EpochReader(published, batch_rows, seed=1), **self.options)
                line = f"{self.line}, {batch_rows:,} a batch"
                bowstring = Candidate.of_call("bowstring", lambda: self._check(dataset))  # noqa: B023
                peer = Candidate.of_call(
                    "NumPy",
                    lambda: self._check(self.iterate_peer(next(seeds), batch_rows)),  # noqa: B023
                )
                yield compare(f"{line}, / NumPy in memory", self.bound, bowstring, [peer], settings)
                if find_spec("datasets") is not None and not settings.is_quick:
                    hugging_face = Candidate.of_call(
                        "datasets",
                        lambda: self._check(_iterate_hugging_face(self.table, next(seeds), batch_rows)),  # noqa: B023
                    )
                    yield compare(f"{line}, / Hugging Face", 0.05, bowstring, [hugging_face], long_calls)
            if self.compares_workers:
                batches = loader(published, 1024, num_workers=2, seed=1, **self.options)
                peer_batches = _iterate_in_worker(self.iterate_peer)
                bowstring = Candidate.of_call("bowstring", lambda: self._check(batches))
                peer = Candidate.of_call("NumPy", lambda: self._check(peer_batches))
                line = f"{self.line}, 1,024 a batch, two workers / one worker with NumPy"
                yield compare(line, 1.2, bowstring, [peer], long_calls)

    def _check(self, batches: Iterable[Any]) -> None:
        """Read all batches, and check the number of elements."""
        total = 0
        for batch in batches:
            tensor = batch["x"]
            total += int(batch["x_length"].sum()) if "x_length" in batch else tensor.numel()
        assert total == self.num_elements, (total, self.num_elements)


def _list_epochs(settings: Settings) -> Iterator[_Epoch]:
    random = np.random.default_rng(2033)
    for rows, width, bound in ((200_000, 64, 2.0), (100_000, 768, 1.5)):
        matrix = random.standard_normal((settings.rows(rows), width), np.float32)
        line = f"{len(matrix):,} lists of {width} float32"
        yield _Epoch(line, bound, _to_lists(matrix), {}, _Take(matrix), matrix.size, compares_workers=width == 64)
    doubles = random.standard_normal((settings.rows(200_000), 64))
    line = f"{len(doubles):,} lists of 64 float64 to float32"
    yield _Epoch(line, 1.5, _to_lists(doubles), {"dtypes": "float32"}, _Take(doubles), doubles.size)
    columns = {f"c{index}": random.standard_normal(settings.rows(200_000)) for index in range(20)}
    options = {"features": {"x": list(columns)}, "dtypes": "float32"}
    table, stack = pa.table(columns), _StackAndTake(list(columns.values()))
    yield _Epoch(
        f"{table.num_rows:,} rows of 20 float64 as a float32 matrix", 2.0, table, options, stack, 20 * table.num_rows
    )
    lengths = random.integers(0, 257, settings.rows(200_000))
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    values = random.integers(0, 50_000, int(offsets[-1])).astype(np.int32)
    ragged = pa.table({"x": pa.ListArray.from_arrays(offsets, values)})
    line = f"{len(lengths):,} lists of 128 int32 on average, padded"
    yield _Epoch(line, 0.3, ragged, {"pad": {"x": 0}}, _PadSequences(values, offsets), len(values))


def _to_lists(matrix: np.ndarray[Any, Any]) -> pa.Table:
    offsets = np.arange(len(matrix) + 1, dtype=np.int32) * matrix.shape[1]
    return pa.table({"x": pa.ListArray.from_arrays(offsets, matrix.reshape(-1))})


@dataclass(frozen=True, slots=True)
class _Take:
    """NumPy's rows of a matrix, converted to float32."""

    matrix: np.ndarray[Any, Any]

    def __call__(self, seed: int, batch_rows: int) -> Iterator[dict[str, Any]]:
        import torch

        order = np.random.default_rng(seed).permutation(len(self.matrix))
        for start in range(0, len(order), batch_rows):
            rows = self.matrix.take(order[start : start + batch_rows], axis=0)
            yield {"x": torch.from_numpy(rows.astype(np.float32, copy=False))}


@dataclass(frozen=True, slots=True)
class _StackAndTake:
    """Columns that NumPy joins to a matrix of float32 once in each epoch."""

    columns: list[np.ndarray[Any, Any]]

    def __call__(self, seed: int, batch_rows: int) -> Iterator[dict[str, Any]]:
        matrix = np.column_stack([column.astype(np.float32) for column in self.columns])
        return _Take(matrix)(seed, batch_rows)


@dataclass(frozen=True, slots=True)
class _PadSequences:
    """Rows that PyTorch pads, as its users do."""

    values: np.ndarray[Any, Any]
    offsets: np.ndarray[Any, Any]

    def __call__(self, seed: int, batch_rows: int) -> Iterator[dict[str, Any]]:
        import torch

        values, offsets = torch.from_numpy(self.values), self.offsets.tolist()
        order = np.random.default_rng(seed).permutation(len(offsets) - 1).tolist()
        for start in range(0, len(order), batch_rows):
            rows = [values[offsets[row] : offsets[row + 1]] for row in order[start : start + batch_rows]]
            x = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
            yield {"x": x, "x_length": torch.tensor([len(row) for row in rows])}


def _iterate_in_worker(iterate: Callable[[int, int], Iterator[Any]]) -> Any:
    """Return a DataLoader of a peer's batches, with one worker that stays."""
    from torch.utils.data import DataLoader, IterableDataset

    class Batches(IterableDataset[Any]):  # type: ignore[misc, unused-ignore]
        seeds = count()

        def __iter__(self) -> Iterator[Any]:
            return iterate(next(self.seeds), 1024)

    return DataLoader(Batches(), batch_size=None, num_workers=1, persistent_workers=True)


def _iterate_hugging_face(table: pa.Table, seed: int, batch_rows: int) -> Iterator[dict[str, Any]]:
    """Random batches of a table in memory; joined and padded in the same way."""
    import datasets as hugging_face
    import torch

    data = hugging_face.Dataset(table).with_format("torch")
    order = np.random.default_rng(seed).permutation(table.num_rows)
    for start in range(0, table.num_rows, batch_rows):
        batch = data[order[start : start + batch_rows]]
        if len(batch) > 1:
            yield {"x": torch.stack(list(batch.values()), 1).float()}
        elif isinstance(batch["x"], list):
            x = torch.nn.utils.rnn.pad_sequence(batch["x"], batch_first=True)
            yield {"x": x, "x_length": torch.tensor([len(row) for row in batch["x"]])}
        else:
            yield {"x": batch["x"].float()}


def _measure_epoch(
    names: list[str], bounds: tuple[float, float], handle: Any, path: str, folder: Path, settings: Settings
) -> Iterator[Measurement]:
    from bowstring.datasets.torch import EpochDataset

    rows = settings.rows(_ROWS)
    line = f"{rows:,} shuffled rows of {len(names)} columns{' with strings' if 'string' in names else ''} to tensors"
    dataset = EpochDataset(EpochReader(handle, _BATCH_ROWS, columns=names, seed=1))
    epochs = count()

    def read_with_bowstring() -> None:
        dataset.set_epoch(next(epochs))  # another order each time, so that nothing of it is cached
        _check_epoch(dataset, names, rows)

    def read_with_pyarrow() -> None:
        _check_epoch(_iterate_with_pyarrow(path, names, next(epochs)), names, rows)

    bowstring = Candidate.of_call("bowstring", read_with_bowstring)
    long_calls = settings.for_long_calls()
    pyarrow = Candidate.of_call("pyarrow", read_with_pyarrow)
    yield compare(f"{line}, / Parquet by pyarrow", bounds[0], bowstring, [pyarrow], long_calls)
    if find_spec("datasets") is not None:
        hugging_face = _hugging_face_candidate(path, names, rows, folder)
        yield compare(f"{line}, / Hugging Face", bounds[1], bowstring, [hugging_face], long_calls)


def _iterate_with_pyarrow(path: str, names: list[str], seed: int) -> Iterator[dict[str, Any]]:
    import torch

    table = pa.parquet.read_table(path, columns=names)
    permutation = np.random.default_rng(seed).permutation(table.num_rows)
    for batch in table.take(pa.array(permutation)).combine_chunks().to_batches(_BATCH_ROWS):
        yield {
            name: column.to_pylist() if pa.types.is_string(column.type) else torch.from_numpy(column.to_numpy())
            for name, column in zip(names, batch.columns, strict=True)
        }


def _hugging_face_candidate(path: str, names: list[str], rows: int, folder: Path) -> Candidate:
    import datasets as hugging_face

    hugging_face.disable_progress_bars()
    arrow = hugging_face.Dataset.from_parquet(path, cache_dir=str(folder / "cache")).select_columns(names)
    seeds = count()

    def read() -> None:
        iterable = arrow.to_iterable_dataset(num_shards=8).shuffle(next(seeds), buffer_size=_SHUFFLE_BUFFER_ROWS)
        _check_epoch(iterable.with_format("torch").iter(_BATCH_ROWS), names, rows)

    return Candidate.of_call("datasets", read)


def _check_epoch(batches: Iterable[dict[str, Any]], names: list[str], rows: int) -> None:
    """Read all batches, and check the number of rows and the columns."""
    total = 0
    for batch in batches:
        total += len(batch["int64"])
    assert list(batch) == names
    assert total == rows

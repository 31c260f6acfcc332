"""A shuffled epoch in batches of 256 rows, as tensors of PyTorch, in one process.

Bowstring reads shared memory through `EpochDataset`. The peers are pyarrow, which reads a Parquet file, permutes the
whole table in memory and slices it, and the iterable data set of Hugging Face's `datasets` with a shuffle buffer, which
is several times faster there than a permutation of all rows; its conversion of the Parquet file to an Arrow file is not
timed. Strings become lists.

PyTorch and `datasets` are not among the packages of the tests: without PyTorch nothing is measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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

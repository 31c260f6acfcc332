"""Tensors of every kind, the same with any number of workers, and after any stop."""

from __future__ import annotations

import copy
import json
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from random import Random
from typing import Any

import numpy as np
import pytest

import bowstring as bs
from bowstring.datasets import EpochReader, RowOrder
from bowstring.errors import InvalidArgumentError, InvalidDataError
from bowstring.sharing.share import SharedTableHandle
from tests.kernels.ml_values import VECTOR_TYPE
from tests.polling import wait_until

torch = pytest.importorskip("torch", reason="requires PyTorch: pip install torch")

from torch.utils.data import DataLoader, get_worker_info  # noqa: E402

from bowstring.datasets.torch import (  # noqa: E402
    EpochDataset,
    TableDataset,
    _SharedPosition,
    loader,
    to_tensors,
)

NUM_ROWS = 60
OPTIONS: dict[str, Any] = {
    "dtypes": {"half": torch.bfloat16, "f": torch.float32},
    "features": {"f": ["row", "emb"]},
    "pad": {"tokens": (0, 3)},
    "categories": {"city": "auto"},
    "fill_null": {"ragged": 0},
    "validity_suffix": "_valid",
}


@pytest.fixture(scope="module")
def rows() -> dict[str, list[Any]]:
    """Every kind of column."""
    random = Random(5)
    sparse = [(0, 4, [row % 4], [row / 2]) if row % 3 else (1, None, None, [1.0, 2.0, 3.0, 4.0]) for row in range(60)]
    return {
        "row": list(range(NUM_ROWS)),
        "emb": [[row / 4, row / 8] for row in range(NUM_ROWS)],
        "half": [row / 4 for row in range(NUM_ROWS)],
        "ragged": [[random.choice([1, 2, None]) for _ in range(random.randrange(4))] for _ in range(NUM_ROWS)],
        "tokens": [[7] * random.randrange(5) for _ in range(NUM_ROWS)],
        "city": [random.choice(["a", "b", None]) for _ in range(NUM_ROWS)],
        "vector": sparse,
        "text": [f"row {row}" for row in range(NUM_ROWS)],
    }


@pytest.fixture(scope="module")
def handle(rows: dict[str, list[Any]]) -> Iterator[SharedTableHandle]:
    table = bs.table({**rows, "vector": bs.array(rows["vector"], VECTOR_TYPE)})
    with bs.share(table) as handle:
        yield handle


@pytest.fixture(autouse=True)
def _allow_warnings_of_torch() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def create(handle: Any, **options: Any) -> EpochDataset:
    return EpochDataset(EpochReader(handle, 4, seed=3), **(options or OPTIONS))


def load(dataset: EpochDataset, num_workers: int, context: str | None = None, **options: Any) -> DataLoader[Any]:
    return DataLoader(dataset, batch_size=None, num_workers=num_workers, multiprocessing_context=context, **options)


def read(batches: Any) -> list[int]:
    """Return the numbers of the rows of batches."""
    return [int(row) for batch in batches for row in batch["f"][:, 0]]


def order(epoch: int) -> list[int]:
    indices: list[int] = RowOrder((NUM_ROWS,), 3).rows(epoch, 0, NUM_ROWS).tolist()
    return indices


def check(batches: list[Any], rows: dict[str, list[Any]], epoch: int = 0, first: int = 0) -> None:
    """Compare batches with the rows of an epoch from a batch on."""
    indices = order(epoch)[4 * first :]
    assert read(batches) == indices[: 4 * len(batches)]
    for batch, start in zip(batches, range(0, NUM_ROWS, 4), strict=False):
        chosen = indices[start : start + 4]
        assert batch["f"].dtype == torch.float32
        assert batch["f"].tolist() == [[row, row / 4, row / 8] for row in chosen]
        assert batch["half"].dtype == torch.bfloat16
        assert batch["half"].tolist() == [row / 4 for row in chosen]
        assert batch["ragged"].layout == torch.jagged
        expected = [rows["ragged"][row] for row in chosen]
        assert [each.tolist() for each in batch["ragged"].unbind()] == [[e or 0 for e in each] for each in expected]
        is_valid = [[element is not None for element in each] for each in expected]
        assert [each.tolist() for each in batch["ragged_valid"].unbind()] == is_valid
        tokens = [rows["tokens"][row][:3] for row in chosen]
        assert batch["tokens"].tolist() == [each + [0] * (3 - len(each)) for each in tokens]
        assert batch["tokens_length"].tolist() == list(map(len, tokens))
        assert batch["city"].tolist() == [{"a": 0, "b": 1, None: 2}[rows["city"][row]] for row in chosen]
        assert batch["vector"].layout == torch.sparse_csr
        vectors = [[1.0, 2, 3, 4] if row % 3 == 0 else [row / 2 * (row % 4 == i) for i in range(4)] for row in chosen]
        assert batch["vector"].to_dense().tolist() == vectors
        assert batch["text"] == [f"row {row}" for row in chosen]


@pytest.mark.parametrize(("num_workers", "context"), [(0, None), (1, "fork"), (2, "spawn")])
def test_all_kinds_of_tensors_are_the_same_in_workers(handle: Any, rows: Any, num_workers: int, context: Any) -> None:
    dataset = create(handle)
    for epoch in range(2):
        check(list(load(dataset, num_workers, context)), rows, epoch)


@pytest.mark.thorough
@pytest.mark.parametrize("context", ["fork", "spawn"])
@pytest.mark.parametrize("num_workers", [1, 4])
@pytest.mark.parametrize("is_persistent", [False, True])
def test_tensors_are_the_same_in_all_workers(
    handle: Any, rows: Any, num_workers: int, context: str, is_persistent: bool
) -> None:
    data_loader = load(create(handle), num_workers, context, persistent_workers=is_persistent)
    for epoch in range(3):  # without set_epoch
        check(list(data_loader), rows, epoch)


def resume_after_stops(handle: Any, rows: Any, stops: list[int], contexts: list[str]) -> None:
    random = Random(7)
    for stop in stops:
        context = random.choice(contexts)
        before, after = random.choice([0, 1, 4]), random.choice([0, 1, 4])
        dataset = create(handle)
        iterator = iter(load(dataset, before, context if before else None))
        check(list(islice(iterator, stop)), rows)
        state = json.loads(json.dumps(dataset.state_dict(stop)))
        del iterator
        resumed = create(handle)
        resumed.load_state_dict(state)
        resumed.set_epoch(0)
        data_loader = load(resumed, after, context if after else None)
        check(list(data_loader), rows, 0, stop)
        check(list(data_loader), rows, 1)
        resumed.set_epoch(0)
        check(list(data_loader), rows, 0)


def test_a_loop_resumes_with_other_workers_and_the_next_epoch_is_whole(handle: Any, rows: Any) -> None:
    resume_after_stops(handle, rows, [0, 1, 14], ["fork"])


@pytest.mark.thorough
def test_a_loop_resumes_after_20_random_stops_with_other_workers(handle: Any, rows: Any) -> None:
    random = Random(2)
    resume_after_stops(handle, rows, [random.randrange(16) for _ in range(20)], ["fork", "spawn"])


@pytest.mark.parametrize("is_seeded", [False, True])
def test_each_loop_is_an_epoch_with_any_number_of_workers(handle: Any, is_seeded: bool) -> None:
    dataset = create(handle)
    for epoch, num_workers in enumerate((0, 2, 1, 0, 3, 3, 2)):
        if is_seeded:
            torch.manual_seed(5)
        assert read(load(dataset, num_workers)) == order(epoch), epoch


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("is_persistent", [False, True])
def test_a_peek_does_not_take_a_batch_from_the_next_loop(handle: Any, num_workers: int, is_persistent: bool) -> None:
    data_loader = load(create(handle), num_workers, persistent_workers=is_persistent and num_workers > 0)
    assert read([next(iter(data_loader))]) == order(0)[:4]
    assert read(data_loader) == order(1)
    assert read(data_loader) == order(2)


def start_late(num_iterations: int, worker: int) -> None:
    """Let the second worker begin when so many iterations have begun in others."""
    info: Any = get_worker_info()
    if worker == 1:
        wait_until(lambda: info.dataset._shared_position._num_iterations >= num_iterations)


@pytest.mark.parametrize("is_persistent", [False, True])
def test_a_worker_that_starts_late_reads_the_same_epoch_as_the_others(handle: Any, is_persistent: bool) -> None:
    dataset = create(handle)
    options = {"persistent_workers": is_persistent}
    data_loader = load(dataset, 2, "fork", worker_init_fn=partial(start_late, 2), **options)
    peek = iter(data_loader)
    assert read([next(peek)]) == order(0)[:4]
    assert read(data_loader) == order(1)
    data_loader = load(dataset, 2, "fork", worker_init_fn=partial(start_late, 4), **options)
    peek = iter(data_loader)
    assert read([next(peek)]) == order(2)[:4]
    dataset.set_epoch(7)
    assert read(data_loader) == order(7)
    assert read(data_loader) == order(8)


def test_workers_find_the_iteration_in_any_order_of_their_beginnings() -> None:
    for seed in range(200):
        check_random_beginnings(Random(seed))


def begin_late(shared: _SharedPosition, worker: int, key: int, begun: list[tuple[int, int]]) -> None:
    begun.append(shared.begin_iteration(worker, key))


def check_random_beginnings(random: Random) -> None:
    """Let workers of several loops begin iterations in random order, as late as possible while others go on."""
    position = _SharedPosition(0, 3)
    expected = 0, 3
    late: list[deque[Callable[[], object]]] = []
    for loop in range(10):
        is_like_an_earlier_loop = loop > 2 and random.random() < 0.3
        key = 1000 if is_like_an_earlier_loop else 1000 + loop * 10
        num_workers = 3 if key == 1000 else random.randrange(1, 4)
        workers = [copy.copy(position) for _ in range(num_workers)]
        pending = [deque[Callable[[], object]]() for _ in workers]
        for _ in range(random.choice([1, 3])):  # of persistent workers
            if random.random() < 0.3:
                expected = random.randrange(9), random.randrange(9)
                position.seek(*expected)
            begun: list[list[tuple[int, int]]] = [[] for _ in workers]
            for worker, shared in enumerate(workers):
                pending[worker].append(partial(begin_late, shared, worker, key, begun[worker]))
            # A loop that is left early has received a batch of the first worker.
            is_whole = key == 1000 or random.random() < 0.5
            required = range(num_workers if is_whole else 1)
            while any(pending[worker] for worker in required):
                random.choice([each for each in (*pending, *late) if each]).popleft()()
            assert position.position == expected
            assert all(begun[worker] == [expected] for worker in required)
            expected = expected[0] + 1, 0
            assert position.next_position == expected
        late += [each for each in pending if each]


def test_the_loader_takes_the_options_of_all(handle: Any, rows: Any) -> None:
    batches = loader(handle, 4, seed=3, num_workers=1, **OPTIONS)
    check(list(batches), rows)
    check(list(batches), rows, 1)
    assert batches.dataset.categories == {"city": ["a", "b"]}  # type: ignore[attr-defined, unused-ignore]
    with pytest.raises(InvalidArgumentError, match="loader: there is no option 'sed'; did you mean 'seed'"):
        loader(handle, 4, sed=3)
    with pytest.raises(InvalidArgumentError, match="loader: there is no option 'shuffle'"):
        loader(handle, 4, shuffle=True)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_data_loader_with_a_batch_size_is_an_error(handle: Any, num_workers: int) -> None:
    with pytest.raises(InvalidArgumentError, match="pass batch_size=None to the DataLoader"):
        next(iter(DataLoader(create(handle), batch_size=4, num_workers=num_workers)))


@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_error_in_a_worker_names_the_column_and_the_row(handle: Any, num_workers: int) -> None:
    dataset = create(handle, columns=["ragged"])
    with pytest.raises(InvalidDataError, match=r"column 'ragged': row \d+: found null"):
        list(load(dataset, num_workers))


def test_types_of_pytorch_are_dtypes() -> None:
    batch = bs.record_batch({"x": [1, 2], "v": [[1.5], [2.5]]})
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.int64, torch.bool):
        tensors = to_tensors(batch, dtypes={"x": dtype})
        assert tensors["x"].dtype == dtype
    assert to_tensors(batch, dtypes="bfloat16")["v"].tolist() == [[1.5], [2.5]]
    for other in ("M8[s]", torch.complex64, "longdouble", ">i4"):
        with pytest.raises(InvalidArgumentError, match="dtypes"):
            to_tensors(batch, dtypes=other)


def test_rows_of_a_table_data_set_have_all_kinds(handle: Any, rows: Any) -> None:
    dataset = TableDataset(handle, **OPTIONS)
    for row in (0, 1, 7, 59):
        values = dataset[row]
        assert values["f"].tolist() == [row, row / 4, row / 8]
        assert values["ragged"].tolist() == [element or 0 for element in rows["ragged"][row]]
        assert values["vector"].to_dense().shape == (4,)
        assert values["text"] == f"row {row}"
    batches = list(DataLoader(dataset, batch_size=4, num_workers=1))
    assert read(batches) == list(range(NUM_ROWS))
    assert np.shape(batches[3]["tokens"]) == (4, 3)

"""Data sets for Dask, which is not among the packages of the tests: the recipe of docs/reference/datasets.md."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import bowstring as bs
from bowstring.datasets import Dataset, DatasetPart

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    dd = pytest.importorskip("dask.dataframe", reason="requires Dask: pip install 'dask[dataframe]'")


@pytest.mark.parametrize("scheduler", ["threads", "processes"])
@pytest.mark.filterwarnings("ignore")
def test_each_part_is_a_partition_that_any_process_reads(scheduler: str) -> None:
    rows = np.arange(900)
    table = bs.table({"row": rows, "text": [f"row {row}" for row in rows]})
    with bs.serve({"a": table.slice(0, 600), "b": table.slice(600)}) as server:
        parts = [
            DatasetPart(600, 12_000, (server.uri("a"),)),
            DatasetPart(0, 0, ()),
            DatasetPart(300, 6000, (server.uri("b"),)),
        ]
        dataset = Dataset("rows", table.schema, parts)

        def read_part(part: DatasetPart) -> Any:
            return dataset.with_parts([part]).to_pandas()

        frame = dd.from_map(read_part, dataset.parts, meta=dataset.with_parts([]).to_pandas())
        assert frame.npartitions == 3
        assert frame["row"].sum().compute(scheduler=scheduler) == sum(range(900))
        assert frame.compute(scheduler=scheduler)["text"].tolist() == [f"row {row}" for row in rows]

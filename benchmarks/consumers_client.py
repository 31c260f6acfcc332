"""A consumer process of the benchmarks of published data sets: it connects, reads all parts and sums a column."""

from __future__ import annotations

from typing import Any

import bowstring as bs
from benchmarks.worker import serve_requests
from bowstring.datasets import Dataset

SUM_COLUMN = "int64_0"


def sum_column(description: str) -> dict[str, Any]:
    """Connect to a data set, and sum one of its columns."""
    with bs.connect(Dataset.from_json(description)) as reader:
        return {"sum": sum_reader(reader)}


def sum_reader(reader: bs.sharing.DatasetReader) -> int:
    """Sum the column of a data set."""
    return sum(int(batch.column(SUM_COLUMN).to_numpy().sum()) for batch in reader)


if __name__ == "__main__":
    serve_requests({"sum_column": sum_column})

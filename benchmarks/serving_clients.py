"""A process with clients of the serving benchmarks: each reads all batches of a data set, and drops each at once."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import bowstring
from benchmarks.worker import serve_requests


def main(uri: str, count: str) -> None:
    """Connect this many clients to a data set."""
    with ExitStack() as stack, ThreadPoolExecutor(int(count)) as pool:
        datasets = [stack.enter_context(bowstring.connect(uri, timeout_s=300)) for _ in range(int(count))]

        def read(repeats: int, num_clients: int) -> dict[str, Any]:
            """Let some clients read at once, each as often as `repeats`; return the rows of each."""
            return {"rows": list(pool.map(lambda dataset: _read(dataset, repeats), datasets[:num_clients]))}

        serve_requests({"read": read})


def _read(dataset: bowstring.sharing.DatasetReader, repeats: int) -> int:
    return sum(batch.num_rows for _ in range(repeats) for batch in dataset)


if __name__ == "__main__":
    main(*sys.argv[1:])

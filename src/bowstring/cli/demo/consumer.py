"""The process that picks a result up: the demo starts one for each road, and tells it on standard input where to look.

It answers with one line of JSON: how long it took, what it found, and by how much its own memory grew.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from bowstring.cli.demo.summary import batch_facts
from bowstring.layouts.display import format_value

if TYPE_CHECKING:
    from bowstring.arrays.record_batch import RecordBatch

SAMPLE_ROWS = 8


def anonymous_bytes() -> int:
    """How much memory of its own this process has: what was copied is in there, what is mapped is not."""
    try:
        with open("/proc/self/smaps_rollup") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Anonymous:"))
    except (OSError, StopIteration):
        return 0


def shared(uris: list[str]) -> dict[str, Any]:
    """Attach to published partitions."""
    from bowstring.sharing.client import connect  # before the clock starts

    before, start = anonymous_bytes(), time.perf_counter()
    batches, first = [], 0.0
    with connect(uris) as dataset:
        schema = dataset.schema
        for batch in dataset:
            batch.columns  # noqa: B018 - makes every array
            batches.append(batch)
            first = first or time.perf_counter() - start
    usable, copied = time.perf_counter() - start, anonymous_bytes() - before
    facts = batch_facts(schema.names, batches)
    summed = time.perf_counter() - start
    shown = {"names": schema.names, "types": [str(t) for t in schema.types], "rows": _samples(batches)}
    return _timed(first, usable, summed, copied) | {"facts": facts.to_json(), "sample": shown}


def _samples(batches: list[RecordBatch]) -> list[list[str]]:
    """The cells of a few rows from all over the result."""
    filled = [batch for batch in batches if batch.num_rows]
    rows = []
    for number in range(min(SAMPLE_ROWS, sum(batch.num_rows for batch in filled))):
        batch = filled[number * len(filled) // SAMPLE_ROWS]
        at = (number * batch.num_rows // SAMPLE_ROWS + number) % batch.num_rows
        rows.append([_cell(column[at]) for column in batch.columns])
    return rows


def _cell(value: Any) -> str:
    return value.strip() if isinstance(value, str) and value.isprintable() else format_value(value)


def driver(descriptor: int) -> dict[str, Any]:
    """Read an IPC stream from a socket with pyarrow."""
    import pyarrow as pa

    with socket.socket(fileno=descriptor) as peer, peer.makefile("rb") as file:
        return _peer(lambda: pa.ipc.open_stream(file))


def parquet(path: str) -> dict[str, Any]:
    """Read Parquet files with pyarrow."""
    import pyarrow.dataset as ds

    return _peer(lambda: ds.dataset(path, format="parquet").to_batches())


def _peer(opened: Callable[[], Iterator[Any]]) -> dict[str, Any]:
    import pyarrow.compute as pc
    import pyarrow.types as pt

    before, start = anonymous_bytes(), time.perf_counter()
    held, first = [], 0.0
    for batch in opened():
        held.append(batch)
        first = first or time.perf_counter() - start
    usable, copied = time.perf_counter() - start, anonymous_bytes() - before
    for batch in held:
        for column in batch.columns:
            if pt.is_integer(column.type) or pt.is_floating(column.type) or pt.is_decimal(column.type):
                pc.sum(column)
    summed = time.perf_counter() - start
    return _timed(first, usable, summed, copied) | {"rows": sum(batch.num_rows for batch in held)}


def _timed(first: float, usable: float, summed: float, copied: int) -> dict[str, Any]:
    return {"first_s": first, "usable_s": usable, "summed_s": summed, "copied_bytes": max(copied, 0)}


ROADS: dict[str, Callable[[Any], dict[str, Any]]] = {"shared": shared, "driver": driver, "parquet": parquet}


def main() -> None:
    """Say that it is ready, read one order, answer it."""
    if sys.argv[1:] == ["peer"]:
        import pyarrow.compute
        import pyarrow.dataset  # noqa: F401 - imported before the clock starts
    _say("ready")
    order = json.loads(sys.stdin.readline())
    _say(ROADS[order["road"]](order["at"]))


def _say(answer: object) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()

"""The consumer process of the demo, one for each measurement.

It reads the method and the location of the data from standard input, and replies with one line of JSON: times, the
summary of the rows, and the growth of its private memory.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from bowstring.cli.demo.summary import summarize_batches
from bowstring.display.values import format_value
from bowstring.sharing.connect import connect

if TYPE_CHECKING:
    from bowstring.arrays.record_batch import RecordBatch

SAMPLE_ROWS = 8


def anonymous_memory_bytes() -> int:
    """Return the size of this process's anonymous memory: it includes copies, but no mapped files."""
    try:
        with open("/proc/self/smaps_rollup") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Anonymous:"))
    except (OSError, StopIteration):
        return 0


def measure_published_read(uris: list[str]) -> dict[str, Any]:
    """Attach to published partitions and read them in place."""
    before, start = anonymous_memory_bytes(), time.perf_counter()
    batches, first_batch_s = [], 0.0
    with connect(uris) as dataset:
        schema = dataset.schema
        for batch in dataset:
            batch.columns  # noqa: B018 - creates every array
            batches.append(batch)
            first_batch_s = first_batch_s or time.perf_counter() - start
    all_batches_s, copied_bytes = time.perf_counter() - start, anonymous_memory_bytes() - before
    summary = summarize_batches(schema.names, batches)
    read_and_sum_s = time.perf_counter() - start
    sample = {"names": schema.names, "types": [str(t) for t in schema.types], "rows": _sample_rows(batches)}
    return _timing_reply(first_batch_s, all_batches_s, read_and_sum_s, copied_bytes) | {
        "summary": asdict(summary),
        "sample": sample,
    }


def _sample_rows(batches: list[RecordBatch]) -> list[list[str]]:
    """Return the cells of a few rows, spread over all batches."""
    non_empty_batches = [batch for batch in batches if batch.num_rows]
    rows = []
    for number in range(min(SAMPLE_ROWS, sum(batch.num_rows for batch in non_empty_batches))):
        batch = non_empty_batches[number * len(non_empty_batches) // SAMPLE_ROWS]
        index = (number * batch.num_rows // SAMPLE_ROWS + number) % batch.num_rows
        rows.append([_format_cell(column[index]) for column in batch.columns])
    return rows


def _format_cell(value: Any) -> str:
    return value.strip() if isinstance(value, str) and value.isprintable() else format_value(value)


def measure_stream_read(descriptor: int) -> dict[str, Any]:
    """Read an IPC stream from a socket with pyarrow."""
    import pyarrow as pa

    with socket.socket(fileno=descriptor) as peer, peer.makefile("rb") as file:
        return _measure_pyarrow_read(lambda: pa.ipc.open_stream(file))


def measure_parquet_read(path: str) -> dict[str, Any]:
    """Read Parquet files with pyarrow."""
    import pyarrow.dataset as ds

    return _measure_pyarrow_read(lambda: ds.dataset(path, format="parquet").to_batches())


def _measure_pyarrow_read(open_batches: Callable[[], Iterator[Any]]) -> dict[str, Any]:
    import pyarrow.compute as pc
    import pyarrow.types as pt

    before, start = anonymous_memory_bytes(), time.perf_counter()
    batches, first_batch_s = [], 0.0
    for batch in open_batches():
        batches.append(batch)
        first_batch_s = first_batch_s or time.perf_counter() - start
    all_batches_s, copied_bytes = time.perf_counter() - start, anonymous_memory_bytes() - before
    for batch in batches:
        for column in batch.columns:
            if pt.is_integer(column.type) or pt.is_floating(column.type) or pt.is_decimal(column.type):
                pc.sum(column)
    read_and_sum_s = time.perf_counter() - start
    return _timing_reply(first_batch_s, all_batches_s, read_and_sum_s, copied_bytes) | {
        "rows": sum(batch.num_rows for batch in batches)
    }


def _timing_reply(
    first_batch_s: float, all_batches_s: float, read_and_sum_s: float, copied_bytes: int
) -> dict[str, Any]:
    return {
        "first_batch_s": first_batch_s,
        "all_batches_s": all_batches_s,
        "read_and_sum_s": read_and_sum_s,
        "copied_bytes": max(copied_bytes, 0),
    }


MEASUREMENTS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "shared": measure_published_read,
    "driver": measure_stream_read,
    "parquet": measure_parquet_read,
}


def main() -> None:
    """Report readiness, read one request, and reply to it."""
    if sys.argv[1:] == ["peer"]:
        import pyarrow.compute
        import pyarrow.dataset  # noqa: F401 - the import is not measured
    _write_reply("ready")
    request = json.loads(sys.stdin.readline())
    _write_reply(MEASUREMENTS[request["method"]](request["location"]))


def _write_reply(reply: object) -> None:
    sys.stdout.write(json.dumps(reply) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()

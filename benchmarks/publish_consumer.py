"""The consumer process of the publish benchmarks: it receives a location, sums one column and replies with the sum.

It imports everything before the first request.
"""

from __future__ import annotations

import socket
import sys
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import bowstring
from benchmarks.worker import serve_requests


def sum_published(uris: list[str], column: str) -> dict[str, Any]:
    """Attach to published partitions."""
    with bowstring.connect(uris) as dataset:
        return {"sum": int(sum(batch.column(column).to_numpy().sum() for batch in dataset))}


def sum_file(path: str, column: str) -> dict[str, Any]:
    """Map an Arrow file and read the one column."""
    with pa.memory_map(path) as source:
        index = pa.ipc.open_file(source).schema.get_field_index(column)
        reader = pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(included_fields=[index]))
        return {"sum": pc.sum(reader.read_all().column(0)).as_py()}


def sum_parquet(path: str, column: str) -> dict[str, Any]:
    """Read the one column of Parquet files."""
    return {"sum": pc.sum(pq.read_table(path, columns=[column]).column(0)).as_py()}


def main(descriptor: str) -> None:
    """Answer requests. Streams arrive on the inherited socket."""
    with socket.socket(fileno=int(descriptor)) as connection, connection.makefile("rb", 1 << 20) as stream:

        def sum_stream(column: str) -> dict[str, Any]:
            with pa.ipc.open_stream(stream) as reader:
                return {"sum": pc.sum(reader.read_all().column(column)).as_py()}

        methods = (sum_published, sum_file, sum_parquet, sum_stream)
        serve_requests({method.__name__: method for method in methods})


if __name__ == "__main__":
    bowstring.Table  # noqa: B018 - imports the modules that tables need
    bowstring.connect  # noqa: B018
    main(sys.argv[1])

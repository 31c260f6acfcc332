"""The process that wants what Spark computed: it is told where to look, sums one column, and says the sum.

Everything is imported before the first order. Started by the publish benchmark.
"""

from __future__ import annotations

import socket
import sys
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import bowstring
from benchmarks.child import obey


def published(uris: list[str], column: str) -> dict[str, Any]:
    """Attach to published partitions."""
    with bowstring.connect(uris) as dataset:
        return {"sum": int(sum(batch.column(column).to_numpy().sum() for batch in dataset))}


def file(path: str, column: str) -> dict[str, Any]:
    """Map an Arrow file."""
    with pa.memory_map(path) as source:
        index = pa.ipc.open_file(source).schema.get_field_index(column)
        reader = pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(included_fields=[index]))
        return {"sum": pc.sum(reader.read_all().column(0)).as_py()}


def parquet(path: str, column: str) -> dict[str, Any]:
    """Read the one column of Parquet files."""
    return {"sum": pc.sum(pq.read_table(path, columns=[column]).column(0)).as_py()}


def main(descriptor: str) -> None:
    """Follow orders; streams come over the socket that was inherited."""
    with socket.socket(fileno=int(descriptor)) as peer, peer.makefile("rb", 1 << 20) as incoming:

        def stream(column: str) -> dict[str, Any]:
            with pa.ipc.open_stream(incoming) as reader:
                return {"sum": pc.sum(reader.read_all().column(column)).as_py()}

        obey({"published": published, "file": file, "parquet": parquet, "stream": stream})


if __name__ == "__main__":
    bowstring.Table  # noqa: B018 - imports what tables need
    bowstring.connect  # noqa: B018
    main(sys.argv[1])

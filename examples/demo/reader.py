"""A process of the demo: it reads the location in a request, as often as the request asks for.

Each request and each reply is a line of JSON. A request has the `method` of `Reader`, its `argument`, and how often to
call it. A reader keeps nothing between reads.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset

import bowstring as bs
from examples.demo.summary import TableSummary, private_bytes


class Reader:
    """Replies to requests; keeps the table of `attach`, and what `publish` publishes, for later."""

    def __init__(self, resources: ExitStack) -> None:
        self._resources = resources
        self._attached: bs.Table | None = None

    def read_published(self, uris: list[str]) -> dict[str, Any]:
        """Attach to published partitions, and summarize their rows in place."""
        with bs.connect(uris) as dataset:
            return _summarize(lambda: map(pa.record_batch, dataset))

    def attach(self, uris: list[str]) -> dict[str, Any]:
        """Attach to published partitions, for `read_attached`; or reply with the error."""
        try:
            with bs.connect(uris) as dataset:
                self._attached = dataset.read_all()
        except bs.errors.BowstringError as error:
            return {"error": type(error).__name__}
        return {"rows": self._attached.num_rows}

    def read_attached(self, _: None) -> dict[str, Any]:
        """Summarize the rows of the table that `attach` has attached."""
        attached = self._attached
        assert attached is not None
        return _summarize(lambda: map(pa.record_batch, attached.to_batches()))

    def publish(self, uris: list[str]) -> dict[str, Any]:
        """Publish the rows of published partitions again, for as long as this process runs."""
        with bs.connect(uris) as dataset:
            published = bs.publish(dataset.read_all(), lifetime="application")
        return {"uris": list(self._resources.enter_context(published).uris)}

    def read_stream(self, path: str) -> dict[str, Any]:
        """Read an IPC stream from a socket."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path)
            with connection.makefile("rb") as file:
                return _summarize(lambda: pa.ipc.open_stream(file))

    def read_parquet(self, path: str) -> dict[str, Any]:
        """Read Parquet files."""
        return _summarize(lambda: pyarrow.dataset.dataset(path, format="parquet").to_batches())


def _summarize(open_batches: Callable[[], Iterable[Any]]) -> dict[str, Any]:
    """Read record batches, and sum their columns with pyarrow."""
    before = private_bytes()
    table = pa.Table.from_batches(list(open_batches()))
    copied_bytes = private_bytes() - before
    sums = [_sum_column(column) for column in table.columns]
    summary = TableSummary(table.num_rows, table.column_names, [column.null_count for column in table.columns], sums)
    return {"copied_bytes": copied_bytes, "summary": asdict(summary)}


def _sum_column(column: Any) -> float | None:
    """Return the sum of a numeric column in double precision; None for other types."""
    type_ = column.type
    if not (pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_)):
        return None
    return pc.sum(column.cast(pa.float64(), safe=False)).as_py() or 0.0


def main() -> None:
    """Report readiness, and reply to requests until the end of standard input."""
    with ExitStack() as resources:
        reader = Reader(resources)
        reply: object = "ready"
        print(json.dumps(reply), flush=True)  # noqa: T201
        for line in sys.stdin:
            request = json.loads(line)
            for _ in range(request["reads"]):
                reply = getattr(reader, request["method"])(request["argument"])
            print(json.dumps(reply), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()

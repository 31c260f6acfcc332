"""A reader of the demo: a process that reads the location in a request, as often as the request asks for.

Each request and each reply is a line of JSON. A request has the `method` of transfer, the `location`, and the number of
`reads`. A reader keeps nothing between reads.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from bowstring.cli.demo.process_memory import private_bytes
from bowstring.cli.demo.summary import summarize_batches
from bowstring.display.values import format_value
from bowstring.errors import BowstringError
from bowstring.sharing.connect import connect

if TYPE_CHECKING:
    from bowstring.arrays.record_batch import RecordBatch
    from bowstring.arrays.table import Table
    from bowstring.datatypes.schema import Schema

SAMPLE_ROWS = 8


class Reader:
    """Replies to requests; keeps the table of `attach` for later requests."""

    def __init__(self) -> None:
        self._attached: Table | None = None

    def read_published(self, uris: list[str]) -> dict[str, Any]:
        """Attach to published partitions, and summarize their rows in place."""
        before = private_bytes()
        with connect(uris) as dataset:
            return _summarize(dataset.schema, dataset, before)

    def attach(self, uris: list[str]) -> dict[str, Any]:
        """Attach to published partitions, for `read_attached`; or reply with the error."""
        try:
            with connect(uris) as dataset:
                self._attached = dataset.read_all()
        except BowstringError as error:
            return {"error": type(error).__name__}
        return {"rows": self._attached.num_rows}

    def read_attached(self, _location: None) -> dict[str, Any]:
        """Summarize the rows of the table that `attach` has attached."""
        assert self._attached is not None
        return _summarize(self._attached.schema, self._attached.to_batches(), private_bytes())

    def read_sample(self, uris: list[str]) -> dict[str, Any]:
        """Return a few rows of published partitions as text, spread over all batches."""
        with connect(uris) as dataset:
            schema, batches = dataset.schema, list(dataset)
            types = [str(type_) for type_ in schema.types]
            return {"names": schema.names, "types": types, "rows": _sample_rows(batches)}

    def read_stream(self, path: str) -> dict[str, Any]:
        """Read an IPC stream from a socket with pyarrow, and sum its columns."""
        import pyarrow as pa

        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path)
            with connection.makefile("rb") as file:
                return _sum_with_pyarrow(lambda: pa.ipc.open_stream(file))

    def read_parquet(self, path: str) -> dict[str, Any]:
        """Read Parquet files with pyarrow, and sum their columns."""
        import pyarrow.dataset as ds

        return _sum_with_pyarrow(lambda: ds.dataset(path, format="parquet").to_batches())


def _summarize(schema: Schema, source: Iterable[RecordBatch], bytes_before: int) -> dict[str, Any]:
    batches = []
    for batch in source:
        batch.columns  # noqa: B018 - creates every array
        batches.append(batch)
    copied_bytes = private_bytes() - bytes_before
    summary = summarize_batches(schema.names, batches)
    return {"rows": summary.rows, "copied_bytes": copied_bytes, "summary": asdict(summary)}


def _sum_with_pyarrow(open_batches: Callable[[], Iterator[Any]]) -> dict[str, Any]:
    import pyarrow.compute as pc
    import pyarrow.types as pt

    before = private_bytes()
    batches = list(open_batches())
    copied_bytes = private_bytes() - before
    for batch in batches:
        for column in batch.columns:
            if pt.is_integer(column.type) or pt.is_floating(column.type) or pt.is_decimal(column.type):
                pc.sum(column)
    return {"rows": sum(batch.num_rows for batch in batches), "copied_bytes": copied_bytes}


def _sample_rows(batches: list[RecordBatch]) -> list[list[str]]:
    non_empty_batches = [batch for batch in batches if batch.num_rows]
    rows = []
    for number in range(min(SAMPLE_ROWS, sum(batch.num_rows for batch in non_empty_batches))):
        batch = non_empty_batches[number * len(non_empty_batches) // SAMPLE_ROWS]
        index = (number * batch.num_rows // SAMPLE_ROWS + number) % batch.num_rows
        rows.append([_format_cell(column[index]) for column in batch.columns])
    return rows


def _format_cell(value: Any) -> str:
    return value.strip() if isinstance(value, str) and value.isprintable() else format_value(value)


def main() -> None:
    """Report readiness, and reply to requests until the end of standard input."""
    import pyarrow.compute
    import pyarrow.dataset  # noqa: F401 - the imports are not measured

    reader = Reader()
    _write_reply("ready")
    for line in sys.stdin:
        request = json.loads(line)
        read = getattr(reader, request["method"])
        for _ in range(request["reads"]):
            reply = read(request["location"])
        _write_reply(reply)


def _write_reply(reply: object) -> None:
    sys.stdout.write(json.dumps(reply) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()

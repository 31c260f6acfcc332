"""A process that serves an Arrow file by Flight, and the server, which others use, too."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

import pyarrow as pa
from pyarrow import flight

from benchmarks.worker import serve_requests

FLIGHT_OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))


SMALL = b"small"
"""The ticket of a table of three rows."""


class FlightServer(flight.FlightServerBase):  # type: ignore[misc]
    """Serves the table in batches of as many rows as the ticket requests, and the small one, if any."""

    def __init__(self, location: str, table: Any, small: Any = None) -> None:
        super().__init__(location)
        self._table = table
        self._small = small

    def do_get(self, _context: Any, ticket: Any) -> Any:
        """The stream of a table."""
        if ticket.ticket == SMALL:
            return flight.RecordBatchStream(self._small)
        batches = self._table.to_batches(max_chunksize=int(ticket.ticket))
        reader = pa.RecordBatchReader.from_batches(self._table.schema, batches)
        return flight.RecordBatchStream(reader, options=pa.ipc.IpcWriteOptions(compression=None))


def main(path: str) -> None:
    """Serve the Arrow file at `path` over TCP."""
    with pa.OSFile(path) as file:
        table = pa.ipc.open_file(file.read_buffer()).read_all()
    server = FlightServer("grpc://127.0.0.1:0", table)
    threading.Thread(target=server.serve, daemon=True).start()
    serve_requests({}, tcp_port=server.port)
    os._exit(0)  # do not wait for Flight's threads


if __name__ == "__main__":
    main(*sys.argv[1:])

"""The process that has a table and hands it out: by Arrow Flight over TCP and a unix socket, and by Bowstring.

Everybody hands out the same memory. Started by the transfer benchmark.
"""

from __future__ import annotations

import base64
import os
import pickle
import sys
import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyarrow import flight

import bowstring
from benchmarks.child import obey

FLIGHT_OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))


class FlightServer(flight.FlightServerBase):  # type: ignore[misc]
    """Gives the table in batches of as many rows as the ticket says."""

    def __init__(self, location: str, table: Any) -> None:
        super().__init__(location)
        self._table = table

    def do_get(self, _context: Any, ticket: Any) -> Any:
        """The stream of the table."""
        batches = self._table.to_batches(max_chunksize=int(ticket.ticket))
        reader = pa.RecordBatchReader.from_batches(self._table.schema, batches)
        return flight.RecordBatchStream(reader, options=pa.ipc.IpcWriteOptions(compression=None))


def main(path: str, socket_path: str) -> None:
    """Serve the Arrow file at `path`: as it lies, and its table in memory."""
    with pa.OSFile(path) as file:
        memory = file.read_buffer()
    theirs = pa.ipc.open_file(memory).read_all()
    ours = bowstring.open_file(memory).read_all()
    over_tcp = FlightServer("grpc://127.0.0.1:0", theirs)
    over_unix = FlightServer(f"grpc+unix://{socket_path}", theirs)
    for flights in (over_tcp, over_unix):
        threading.Thread(target=flights.serve, daemon=True).start()
    with bowstring.serve({"file": path, "memory": ours}) as server:
        obey(_orders(server, ours), tcp_port=over_tcp.port, **server.uris)
    os._exit(0)  # Flight's threads need not be waited for


def _orders(server: bowstring.Server, table: bowstring.Table) -> dict[str, Callable[..., dict[str, Any] | None]]:
    held: list[bowstring.Handle] = []

    def copy() -> dict[str, Any]:
        return {"uri": server.add("copied", table)}

    def forget() -> None:
        server.remove("copied")

    def share() -> dict[str, Any]:
        held.append(bowstring.share(table))
        return {"handle": base64.b64encode(pickle.dumps(held[-1])).decode()}

    def unshare() -> None:
        held.pop().close()

    return {"copy": copy, "forget": forget, "share": share, "unshare": unshare}


if __name__ == "__main__":
    main(*sys.argv[1:])

"""The server process of the transfer benchmarks: it serves one table by Arrow Flight and by Bowstring."""

from __future__ import annotations

import base64
import os
import pickle
import sys
import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa

import bowstring
from benchmarks.flight_server import FlightServer
from benchmarks.worker import serve_requests
from bowstring_networks.ucx.transport import UCX, UcxOptions


def main(path: str, socket_path: str) -> None:
    """Serve the Arrow file at `path`, both as a file and as a table in memory."""
    with pa.OSFile(path) as file:
        buffer = file.read_buffer()
    pa_table = pa.ipc.open_file(buffer).read_all()
    table = bowstring.open_file(buffer).read_all()
    small = pa.table({"a": [1, 2, 3], "s": ["x", "yy", "zzz"]})
    tcp_server = FlightServer("grpc://127.0.0.1:0", pa_table, small)
    unix_server = FlightServer(f"grpc+unix://{socket_path}", pa_table, small)
    for flight_server in (tcp_server, unix_server):
        threading.Thread(target=flight_server.serve, daemon=True).start()
    memory = bowstring.share(table)
    UCX.configure(UcxOptions(shares_memory=True, registered_bytes=2 * memory.nbytes))
    with (
        bowstring.serve({"file": path, "memory": memory, "small": bowstring.table(small)}) as server,
        bowstring.serve({"sent": memory}, scheme="tcp") as sender,
        bowstring.serve({"ucx": memory}, scheme="ucx") as ucx_server,
    ):
        uris = {**server.uris, **sender.uris, **ucx_server.uris}
        serve_requests(_methods(server, table, pa_table, f"{path}.copy"), tcp_port=tcp_server.port, **uris)
    os._exit(0)  # do not wait for Flight's threads


def _methods(
    server: bowstring.sharing.Server, table: bowstring.Table, pa_table: Any, copy_path: str
) -> dict[str, Callable[..., dict[str, Any] | None]]:
    """The methods that copy the table for the client, and those that free the copy."""
    handles: list[bowstring.sharing.SharedTableHandle] = []
    arena = bowstring.memory.Arena(1 << 31)

    def add() -> dict[str, Any]:
        return {"uri": server.add("copy", table)}

    def remove() -> None:
        server.remove("copy")

    def share(is_reused: bool) -> dict[str, Any]:
        handles.append(bowstring.share(table, arena=arena if is_reused else None))
        return {"handle": base64.b64encode(pickle.dumps(handles[-1])).decode()}

    def unshare() -> None:
        handles.pop().close()

    def write_file() -> dict[str, Any]:
        with pa.OSFile(copy_path, "wb") as sink, pa.ipc.new_file(sink, pa_table.schema) as writer:
            writer.write_table(pa_table)
        return {"path": copy_path}

    def delete_file() -> None:
        os.unlink(copy_path)

    methods = (add, remove, share, unshare, write_file, delete_file)
    return {method.__name__: method for method in methods}


if __name__ == "__main__":
    main(*sys.argv[1:])

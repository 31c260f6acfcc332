from __future__ import annotations

import gzip
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("aiohttp")

TESTS = Path(__file__).parents[1]
MAX_GROWTH_BYTES = 128 << 20
SENT_BYTES = 1 << 30
"""What the server sends if nobody stops it: far more than a client may keep."""
BLOCK = bytes(1 << 20)


@contextmanager
def endless_server(status: str, headers: str, *, gzipped: bool = False) -> Iterator[str]:
    """Run a web server whose every response has a body of a GiB or more, whatever the request."""
    piece = gzip.compress(BLOCK) if gzipped else BLOCK
    listener = socket.create_server(("127.0.0.1", 0))

    def answer(connection: socket.socket) -> None:
        with connection:
            try:
                request = connection.recv(1 << 16)
                connection.sendall(f"HTTP/1.1 {status}\r\n{headers}\r\n".encode())
                for _ in range(SENT_BYTES // len(BLOCK) if request.startswith(b"GET") else 0):
                    connection.sendall(piece)
            except OSError:
                return  # the client had enough

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/data"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


READ = """
import sys
import fsspec
import bowstring as bs
from bowstring.io.store_path import StorePath, read_files
from peak_memory import peak_bytes, reset_peak

url = sys.argv[1]


def read_path():
    with StorePath(url).open() as file:
        file.read(1000)


reads = {
    "file": lambda: bs.open_file(url),
    "result of fsspec.open": lambda: bs.open_file(fsspec.open(url)),
    "cached file": lambda: bs.open_file("blockcache::" + url),
    "path": read_path,
    "manifest": lambda: read_files([StorePath(url)], 1000),
    "folder": lambda: list(StorePath(url).iterdir()),
}
start = peak_bytes()
for name, read in reads.items():
    reset_peak()
    try:
        read()
    except bs.errors.BowstringError as error:
        print(name, type(error).__name__, peak_bytes() - start, sep=",")
    else:
        print(name, "read", peak_bytes() - start, sep=",")
"""

ENDLESS = [
    ("206 Partial Content", "Content-Range: bytes 0-9/99999999999999\r\n", False),
    ("206 Partial Content", "Content-Range: bytes 0-9/99999999999999\r\nContent-Encoding: gzip\r\n", True),
    ("200 OK", "Content-Length: 99999999999999\r\n", False),
    ("403 Forbidden", "", False),
]


@pytest.mark.thorough
@pytest.mark.parametrize(("status", "headers", "gzipped"), ENDLESS, ids=["range", "gzip", "whole", "error"])
def test_a_server_that_sends_without_end_does_not_exhaust_memory(status: str, headers: str, gzipped: bool) -> None:
    with endless_server(status, headers, gzipped=gzipped) as url:
        process = subprocess.run(
            [sys.executable, "-c", READ, url],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env={"PYTHONPATH": str(TESTS), "PATH": ""},
        )
    assert process.returncode == 0, process.stderr
    growth_bytes = {name: int(growth) for name, _, growth in (line.split(",") for line in process.stdout.splitlines())}
    assert len(growth_bytes) == 6
    assert max(growth_bytes.values()) < MAX_GROWTH_BYTES, process.stdout

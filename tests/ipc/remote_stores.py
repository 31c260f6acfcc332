"""Remote stores for tests: a web server with range requests, and file objects and file systems that count requests."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import fsspec
from fsspec.implementations.memory import MemoryFileSystem


@dataclass
class Site:
    """The files and behaviour of a web server, and the requests that it received."""

    files: dict[str, bytes] = field(default_factory=dict)
    etags: dict[str, str] = field(default_factory=dict)
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)
    supports_ranges: bool = True
    sends_lengths: bool = True
    delay_s: float = 0.0
    missing_bytes: int = 0
    fails_with: int = 0
    url: str = ""
    gets_before_hanging: int = 1 << 30
    is_down: bool = False


def _handler(site: Site) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def _answer(self, with_body: bool) -> None:
            range_header = self.headers.get("Range")
            site.requests.append((self.command, self.path, range_header))
            time.sleep(site.delay_s)
            if site.is_down:
                self.close_connection = True
                return
            gets = sum(command == "GET" for command, _, _ in site.requests)
            if with_body and gets > site.gets_before_hanging:
                time.sleep(3)
            data, etag = site.files.get(self.path), site.etags.get(self.path)
            status = 404 if data is None else 200
            if with_body and site.fails_with:
                status = site.fails_with
            expected = self.headers.get("If-Match")
            if status == 200 and expected and etag and expected != etag:
                status = 412
            body, extra = b"", []
            if status == 200:
                assert data is not None
                body = data
                if range_header and site.supports_ranges:
                    first, last = range_header.removeprefix("bytes=").split("-")
                    start = int(first) if first else max(len(data) - int(last), 0)
                    stop = min(int(last) + 1, len(data)) if first and last else len(data)
                    body, status = data[start:stop], 206
                    extra = [("Content-Range", f"bytes {start}-{stop - 1}/{len(data)}")]
                    if start >= len(data):
                        body, status, extra = b"", 416, []
            self.send_response(status)
            for name, value in extra:
                self.send_header(name, value)
            if etag:
                self.send_header("ETag", etag)
            if site.supports_ranges:
                self.send_header("Accept-Ranges", "bytes")
            if site.sends_lengths:
                self.send_header("Content-Length", str(len(body)))
            else:
                self.send_header("Transfer-Encoding", "chunked")
                body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"
            self.end_headers()
            if with_body:
                cut = site.missing_bytes if range_header and not range_header.startswith("bytes=-") else 0
                self.wfile.write(body[: len(body) - cut] if cut else body)
                if cut:
                    self.close_connection = True

    return Handler


class _Server(ThreadingHTTPServer):
    request_queue_size = 256  # with the default of 5, clients with many connections wait for seconds

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect during a response, as some tests do."""


@contextmanager
def serve_files(**files: bytes) -> Iterator[Site]:
    """Run a web server on this machine that serves each keyword argument as the file `/NAME`."""
    site = Site({f"/{name}": data for name, data in files.items()})
    server = _Server(("127.0.0.1", 0), _handler(site))
    server.daemon_threads = True
    site.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def span_bytes(range_header: str | None) -> int:
    """Return the number of bytes that a header "Range" requests."""
    assert range_header is not None
    first, last = range_header.removeprefix("bytes=").split("-")
    return int(last) - int(first) + 1 if first else int(last)


class CountingFile(io.RawIOBase):
    """A file object that is not a regular file and counts reads and bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)
        self.reads = 0
        self.read_bytes = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._data.seek(offset, whence)

    def tell(self) -> int:
        return self._data.tell()

    def readinto(self, view: Any) -> int:
        count = self._data.readinto(view)
        self.reads += 1
        self.read_bytes += count
        return count


class SlowFileSystem(MemoryFileSystem):  # type: ignore[misc]
    """A store with latency: each request takes the same time, regardless of the number of ranges."""

    protocol = "slow"
    latency_s = 0.02
    requests = 0
    ranges = 0
    sent_bytes = 0

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(MemoryFileSystem._strip_protocol(path.removeprefix("slow://")))

    @staticmethod
    def upload(data: bytes) -> str:
        """Store these bytes, reset the counters and return the URL, which is always the same."""
        fsspec.register_implementation("slow", SlowFileSystem, clobber=True)
        MemoryFileSystem.store.pop("/stored.arrow", None)
        fsspec.filesystem("memory").pipe_file("/stored.arrow", data)
        SlowFileSystem.reset()
        return "slow://stored.arrow"

    @classmethod
    def reset(cls) -> None:
        """Reset the counters."""
        cls.requests = cls.ranges = cls.sent_bytes = 0

    def info(self, path: str, **options: Any) -> Any:
        self._wait()
        return super().info(path, **options)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        self._wait()
        return self._part(path, start, end)

    def cat_ranges(self, paths: list[str], starts: Any, ends: Any, **options: Any) -> list[bytes]:
        self._wait()
        return [self._part(*span) for span in zip(paths, starts, ends, strict=True)]

    def _part(self, path: str, start: int | None, end: int | None) -> bytes:
        data: bytes = self.store[self._strip_protocol(path)].getbuffer()[start:end].tobytes()
        type(self).ranges += 1
        type(self).sent_bytes += len(data)
        return data

    def _wait(self) -> None:
        type(self).requests += 1
        time.sleep(self.latency_s)

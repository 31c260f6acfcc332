"""Stores for tests: a web server that knows ranges; file objects and file systems that count what they are asked."""

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
    """What a server serves and what it was asked; `answer_to` may answer a request in its own way."""

    files: dict[str, bytes] = field(default_factory=dict)
    marks: dict[str, str] = field(default_factory=dict)
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)
    knows_ranges: bool = True
    has_lengths: bool = True
    delay_s: float = 0.0
    cut_bytes: int = 0
    fails_with: int = 0
    url: str = ""
    gets_until_hanging: int = 1 << 30
    is_gone: bool = False


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
            asked = self.headers.get("Range")
            site.requests.append((self.command, self.path, asked))
            time.sleep(site.delay_s)
            if site.is_gone:
                self.close_connection = True
                return
            gets = sum(command == "GET" for command, _, _ in site.requests)
            if with_body and gets > site.gets_until_hanging:
                time.sleep(3)
            data, mark = site.files.get(self.path), site.marks.get(self.path)
            status = 404 if data is None else 200
            if with_body and site.fails_with:
                status = site.fails_with
            expected = self.headers.get("If-Match")
            if status == 200 and expected and mark and expected != mark:
                status = 412
            body, extra = b"", []
            if status == 200:
                assert data is not None
                body = data
                if asked and site.knows_ranges:
                    first, last = asked.removeprefix("bytes=").split("-")
                    start = int(first) if first else max(len(data) - int(last), 0)
                    stop = min(int(last) + 1, len(data)) if first and last else len(data)
                    body, status = data[start:stop], 206
                    extra = [("Content-Range", f"bytes {start}-{stop - 1}/{len(data)}")]
                    if start >= len(data):
                        body, status, extra = b"", 416, []
            self.send_response(status)
            for name, value in extra:
                self.send_header(name, value)
            if mark:
                self.send_header("ETag", mark)
            if site.knows_ranges:
                self.send_header("Accept-Ranges", "bytes")
            if site.has_lengths:
                self.send_header("Content-Length", str(len(body)))
            else:
                self.send_header("Transfer-Encoding", "chunked")
                body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"
            self.end_headers()
            if with_body:
                cut = site.cut_bytes if asked and not asked.startswith("bytes=-") else 0
                self.wfile.write(body[: len(body) - cut] if cut else body)
                if cut:
                    self.close_connection = True

    return Handler


class _Server(ThreadingHTTPServer):
    request_queue_size = 256  # the default of 5 makes clients that ask for much at once wait for seconds

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away in the middle of an answer is what some tests do."""


@contextmanager
def serving(**files: bytes) -> Iterator[Site]:
    """A web server on this machine; each keyword is a file, at `/NAME`."""
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


def span_bytes(asked: str | None) -> int:
    """How many bytes a header "Range" asks for."""
    assert asked is not None
    first, last = asked.removeprefix("bytes=").split("-")
    return int(last) - int(first) + 1 if first else int(last)


class CountingFile(io.RawIOBase):
    """A file object that is no regular file; it counts reads and bytes."""

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
        got = self._data.readinto(view)
        self.reads += 1
        self.read_bytes += got
        return got


class SlowFileSystem(MemoryFileSystem):  # type: ignore[misc]
    """A store that takes its time: each question costs the same, however many ranges it names."""

    protocol = "slow"
    latency_s = 0.02
    questions = 0
    ranges = 0
    sent_bytes = 0

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(MemoryFileSystem._strip_protocol(path.removeprefix("slow://")))

    @staticmethod
    def put(data: bytes) -> str:
        """Hold these bytes, and count from zero; gives their URL, the same each time."""
        fsspec.register_implementation("slow", SlowFileSystem, clobber=True)
        MemoryFileSystem.store.pop("/held.arrow", None)
        fsspec.filesystem("memory").pipe_file("/held.arrow", data)
        SlowFileSystem.reset()
        return "slow://held.arrow"

    @classmethod
    def reset(cls) -> None:
        """Count from zero."""
        cls.questions = cls.ranges = cls.sent_bytes = 0

    def info(self, path: str, **options: Any) -> Any:
        self._wait()
        return super().info(path, **options)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        self._wait()
        return self._part(path, start, end)

    def cat_ranges(self, paths: list[str], starts: Any, ends: Any, **options: Any) -> list[bytes]:
        self._wait()
        return [self._part(*asked) for asked in zip(paths, starts, ends, strict=True)]

    def _part(self, path: str, start: int | None, end: int | None) -> bytes:
        data: bytes = self.store[self._strip_protocol(path)].getbuffer()[start:end].tobytes()
        type(self).ranges += 1
        type(self).sent_bytes += len(data)
        return data

    def _wait(self) -> None:
        type(self).questions += 1
        time.sleep(self.latency_s)

"""An S3 server that answers with hostile listings."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from xml.sax.saxutils import escape

import pytest

from bowstring.errors import DeadlineError, ResourceError
from bowstring.io import store_path
from bowstring.io.store_path import StorePath
from bowstring.spark.folder.vacuum import vacuum

JOB = "0" * 32
PART = f"part-{JOB}-00000-1.arrow"


class HostileServer(ThreadingHTTPServer):
    """Lists what `list_page` returns for a continuation token: keys, and the next token, if any."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.list_page: Callable[[str], tuple[list[str], str]] = lambda _: ([], "")
        self.size = "10"
        self.requests: list[tuple[str, str]] = []

    def folder(self, name: str) -> StorePath:
        return StorePath(f"s3://bucket/{name}", self.storage_options)

    @property
    def storage_options(self) -> dict[str, Any]:
        endpoint = {"endpoint_url": f"http://127.0.0.1:{self.server_port}", "region_name": "us-east-1"}
        return {"key": "key", "secret": "secret", "client_kwargs": endpoint}

    def handle_error(self, *_: Any) -> None:
        """Ignore clients that close connections."""


class _Handler(BaseHTTPRequestHandler):
    server: HostileServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.server.requests.append((self.command, self.path))
        query = dict(parse_qsl(urlsplit(self.path).query))
        if "list-type" in query:
            self._reply(200, self._list(query))
        else:
            self._reply(404 if self.command in ("GET", "HEAD") else 204, b"")

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_DELETE(self) -> None:
        self.do_GET()

    def _list(self, query: dict[str, str]) -> bytes:
        """The page as S3 would list the keys: those with the prefix, up to the delimiter."""
        keys, token = self.server.list_page(query.get("continuation-token", ""))
        prefix, folders, lines = query.get("prefix", ""), set[str](), list[str]()
        for key in (key for key in keys if key.startswith(prefix)):
            if "delimiter" in query and "/" in key[len(prefix) :]:
                folders.add(prefix + key[len(prefix) :].partition("/")[0] + "/")
            else:
                time = "<LastModified>2020-01-01T00:00:00.000Z</LastModified>"
                lines.append(f"<Contents><Key>{escape(key)}</Key>{time}<Size>{self.server.size}</Size></Contents>")
        lines += [f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>" for each in sorted(folders)]
        more = f"<NextContinuationToken>{token}</NextContinuationToken>" if token else ""
        truncated = f"<IsTruncated>{str(bool(token)).lower()}</IsTruncated><KeyCount>{len(lines)}</KeyCount>"
        return f"<ListBucketResult>{truncated}{more}{''.join(lines)}</ListBucketResult>".encode()

    def _reply(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else content)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


@contextmanager
def run_server() -> Iterator[HostileServer]:
    with HostileServer() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def server() -> Iterator[HostileServer]:
    with run_server() as server:
        yield server


def test_keys_with_dots_in_place_of_names_are_not_in_a_folder(server: HostileServer) -> None:
    dotted = ["..", "../a.arrow", "./b.arrow", "d=1/../../c.arrow", f"_staging/../{PART}", "."]
    named = ["a.arrow", "a b\tc.arrow", "d=1/x.arrow", "..a/b..arrow", "-rf", "%2e%2e/a", "a?b#c"]
    server.list_page = lambda _: ([f"x/{key}" for key in (*dotted, *named)], "")
    folder = server.folder("x")
    assert {str(path).removeprefix("s3://bucket/x/") for path in folder.iter_files()} == set(named)
    assert {path.name for path in folder.iterdir()} == {key.partition("/")[0] for key in named} | {"_staging"}


def test_vacuum_removes_nothing_whose_key_has_dots_in_place_of_names(server: HostileServer) -> None:
    keys = [f"d=1/{PART}", f"../{PART}", f"d=1/../{PART}", f"_staging/../{PART}", "_staging/../victim"]
    server.list_page = lambda _: ([f"x/{key}" for key in keys], "")
    removed = vacuum("s3://bucket/x", older_than_s=0, storage_options=server.storage_options)
    assert list(map(str, removed)) == [f"s3://bucket/x/d=1/{PART}"]
    assert [path for method, path in server.requests if method == "DELETE"] == [f"/bucket/x/d%3D1/{PART}"]


@pytest.mark.parametrize("method", ["iterdir", "iter_files", "glob_urls"])
@pytest.mark.parametrize("token", ["same", "another"])
def test_a_listing_without_end_ends_with_its_deadline(
    server: HostileServer, monkeypatch: pytest.MonkeyPatch, method: str, token: str
) -> None:
    server.list_page = lambda last: ([], "1" if token == "same" else str(int(last or 0) + 1))
    monkeypatch.setattr(store_path, "LISTING_TIMEOUT_S", 1.0)
    with pytest.raises(DeadlineError, match="s3://bucket/x"):
        list(getattr(server.folder("x/*" if method == "glob_urls" else "x"), method)())


@pytest.mark.parametrize("size", ["", "ten"])
def test_a_size_that_is_not_a_number_is_an_error(server: HostileServer, size: str) -> None:
    server.list_page, server.size = lambda _: (["x/a.arrow"], ""), size
    for method in ("iterdir", "iter_files"):
        with pytest.raises(ResourceError, match="s3://bucket/x: cannot be read: ValueError"):
            list(getattr(server.folder("x"), method)())

"""Secrets of URIs, URLs and storage options are in no text: each function that takes a path, with each kind of them."""

from __future__ import annotations

import contextlib
import io
import logging
import pickle
import socket
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

import pytest

import bowstring as bs
from bowstring.cli.main import main
from bowstring.errors import BowstringError, InvalidDataError, MissingFileError, add_location
from bowstring.redaction import redact, translated_errors
from bowstring.sharing import DatasetLocations, ServerOptions
from bowstring.sharing.signed_tickets import TicketSigner

fsspec = pytest.importorskip("fsspec")
pytest.importorskip("aiohttp")
pytest.importorskip("s3fs")
pytest.importorskip("click")

PASSWORD, TOKEN, OPTION = "hunter2hunter2", "5f1cbe0ddbe2a0a0", "0pti0nValue77"
SIGNATURE = TicketSigner(bytes(range(32)), "unix:@nobody").sign("visits")[-43:]
SECRETS = (PASSWORD, TOKEN, OPTION, SIGNATURE, SIGNATURE[:20], SIGNATURE[-20:])
QUERY = f"X-Amz-Credential=AKIA{TOKEN}&X-Amz-Signature={TOKEN}"
OPTIONS: dict[str, dict[str, Any]] = {
    "http": {"headers": {"Authorization": f"Bearer {OPTION}"}},
    "s3": {"key": OPTION, "secret": OPTION, "client_kwargs": {"region_name": OPTION}, "endpoint_url": OPTION},
}


class _Handler(BaseHTTPRequestHandler):
    """A web server that fails with the status in the path, or sends the bytes of that name."""

    contents: ClassVar[dict[str, bytes]] = {}

    def handle_one_request(self) -> None:
        """Answer any method."""
        self.raw_requestline = self.rfile.readline(65537)
        self.close_connection = True
        if not self.raw_requestline or not self.parse_request():
            return
        status, _, name = self.path.lstrip("/").partition("/")
        if status == "reset":
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        content = self.contents.get(status, b"garbage " * 100)
        self.send_response(int(status) if status.isdigit() else 200)
        if status == "302":
            self.send_header("Location", f"/404/{name}")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, *_arguments: object) -> None:
        """Write nothing."""


@pytest.fixture(scope="module")
def web_server() -> Iterator[str]:
    """HOST:PORT of a web server."""
    stream = io.BytesIO()
    with bs.new_file(stream, {"n": "int64"}) as writer:
        writer.write(bs.record_batch({"n": [1, 2]}))
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    _Handler.contents = {"arrow": stream.getvalue(), "empty": b"", "cut": stream.getvalue()[:-20]}
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    with server:
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def list_uris(web: str) -> list[str]:
    """Texts that contain a secret, most of which can't be read, each for another reason."""
    tags = "want_data=1&free_data=2"
    ticket = f"visits~~{SIGNATURE}"
    bodies = f"unix:@other?want_data=1&ticket={ticket.replace('~', '%7E')}"
    served = [
        f"unix:@nobody?{tags}&ticket={ticket}",
        f"unix:@nobody?{tags}&ticket={ticket.replace('~', '%7E')}",
        f"unix:/nowhere/socket?{tags}&ticket={ticket}",
        f"unix:@nobody?ticket={ticket}",
        f"unix:@nobody?want_data=x&ticket={ticket}",
        f"unix:@nobody?{tags}&ticket={ticket}&bodies={quote(bodies, safe='')}",
        f"tcp://127.0.0.1:1?{tags}&ticket={ticket}",
        f"tcp+tls://127.0.0.1:1?{tags}&ticket={ticket}",
        f"tcp://user:{PASSWORD}@127.0.0.1:1?{tags}&ticket={ticket}",
        f"ucx://127.0.0.1:1?{tags}&ticket={ticket}",
        f"other:@nobody?{tags}&ticket={ticket}",
        f"127.0.0.1:1?{tags}&ticket={ticket}",
        f"@nobody?{tags}&ticket={ticket}",
        f"unix:@nobody?{tags}&ticket={ticket} tcp://127.0.0.1:1?{tags}&ticket={ticket}",
        f"grpc://127.0.0.1:1/{ticket}",
        f"grpc://user:{PASSWORD}@127.0.0.1:1/visits",
        f"grpc+tls://127.0.0.1:1/?ticket={ticket}",
        ticket,
    ]
    failures = ("404", "403", "500", "302", "reset", "ok")
    stores = [
        *(f"http://user:{PASSWORD}@{web}/{path}/x.arrow" for path in (*failures, "cut")),
        *(f"http://{web}/{path}/x.arrow?{QUERY}" for path in (*failures, "empty")),
        *(f"http://{web}/404/x.{extension}?{QUERY}" for extension in ("parquet", "csv", "json", "jsonl", "arrows")),
        *(f"http://user:{PASSWORD}@{web}/ok/x.{extension}" for extension in ("parquet", "csv", "json", "arrows")),
        f"http://user:{PASSWORD}@127.0.0.1:1/x.arrow",
        f"http://127.0.0.1:1/x.arrow?{QUERY}",
        f"http://127.0.0.1:1/x.arrow?{TOKEN}",
        f"http://user:{PASSWORD}@nowhere.invalid/x.arrow",
        f"http://user:a@{PASSWORD}@{web}/404/x.arrow",
        f"http://user:a/{PASSWORD}@{web}/404/x.arrow",
        f"https://user:{PASSWORD}@{web}/404/x.arrow",
        f"simplecache::http://user:{PASSWORD}@{web}/404/x.arrow",
        f"zip://x.arrow::http://user:{PASSWORD}@{web}/404/x.zip?{QUERY}",
        f"s3://AKIA:{PASSWORD}@bucket/x.arrow",
        f"s3://bucket/x.arrow?{QUERY}",
        f"memory://user:{PASSWORD}@folder/x.arrow",
        f"memory://x.arrow?{QUERY}",
        f"nothing://user:{PASSWORD}@host/x.arrow?{QUERY}",
        f"ftp://user:{PASSWORD}@127.0.0.1:1/x.arrow",
        f"file://user:{PASSWORD}@host/x.arrow",
        f"file:///nowhere/x.arrow?{QUERY}",
        f"http://user:{PASSWORD}@{web}/arrow/x.arrow?{QUERY}",
        f"http://{web}/arrow/x.arrow?{QUERY}\0",
        f"http://user:{PASSWORD}@[::1/x.arrow",
        f"http://user:{PASSWORD}@host:port/x.arrow",
    ]
    return [*served, *stores]


TABLE = {"n": [1, 2]}


def dataset_json(uri: str) -> str:
    """The description of a data set at one or more locations."""
    parts = [bs.datasets.DatasetPart(2, 100, tuple(uri.split()))]
    return bs.datasets.Dataset("visits", bs.schema({"n": "int64"}), parts).to_json()


def uri_of_missing_name(name: str) -> str:
    """Ask a server for the URI of a data set that it does not have."""
    with bs.serve({"t": bs.table(TABLE)}) as server:
        return server.uri(name)


def consume(value: object) -> list[str]:
    """Read what a call returned, and return its texts."""
    texts = [repr(value), str(value), getattr(value, "_repr_html_", str)()]
    for name in ("read_all", "close"):
        method = getattr(value, name, None)
        if callable(method):
            texts.append(repr(method()))
    return texts


CALLS: dict[str, Callable[[str], object]] = {
    "read_table": bs.read_table,
    "read_table of several": lambda uri: bs.read_table([uri, uri]),
    "feather.read_feather": bs.feather.read_feather,
    "feather.read_table": bs.feather.read_table,
    "open_file": bs.open_file,
    "open_stream": bs.open_stream,
    "open_stream(follow=True)": lambda uri: bs.open_stream(uri, follow=True, timeout_s=0.1),
    "open_file of a Path": lambda uri: bs.open_file(Path(uri)),
    "new_file": lambda uri: bs.new_file(uri, {"n": "int64"}).close(),
    "new_stream": lambda uri: bs.new_stream(uri, {"n": "int64"}).close(),
    "write_table": lambda uri: bs.write_table(bs.table(TABLE), uri),
    "write_feather": lambda uri: bs.feather.write_feather(bs.table(TABLE), uri),
    "dataset": bs.dataset,
    "dataset of a Path": lambda uri: bs.dataset(Path(uri)),
    "dataset of several": lambda uri: bs.dataset([uri, uri]),
    "dataset with options": lambda uri: bs.dataset(uri, storage_options={"key": OPTION}),
    "a description": lambda uri: bs.dataset(dataset_json(uri)),
    "a malformed description": lambda uri: bs.dataset(dataset_json(uri).replace("2", "[", 1)),
    "a description read": lambda uri: bs.dataset(dataset_json(uri)).read_all(),
    "a description read by a rank": lambda uri: list(bs.dataset(dataset_json(uri)).read_rank(0, 1)),
    "a description connected": lambda uri: bs.connect(bs.dataset(dataset_json(uri)), timeout_s=1),
    "connect": lambda uri: bs.connect(uri, timeout_s=1),
    "connect to a Path": lambda uri: bs.connect(Path(uri), timeout_s=1),
    "connect to several": lambda uri: bs.connect([uri, uri], timeout_s=1),
    "connect to locations": lambda uri: bs.connect(DatasetLocations((*uri.split(), "unix:@a?want_data=1&ticket=b"))),
    "connect with a ticket": lambda uri: bs.connect("unix:@nobody?want_data=1", uri),
    "connect with the ticket's bytes": lambda uri: bs.connect("unix:@nobody?want_data=1", uri.encode()),
    "connect with a number": lambda uri: bs.connect(uri, timeout_s=uri),  # type: ignore[arg-type]
    "connect with a recording": lambda uri: bs.connect("unix:@nobody?want_data=1&ticket=a", record=uri),
    "attach": bs.attach,  # type: ignore[dict-item]
    "open_published": lambda uri: bs.open_published(uri, timeout_s=1),
    "unpublish": bs.unpublish,
    "published": bs.published,  # type: ignore[dict-item]
    "publish into a folder": lambda uri: bs.publish(bs.table(TABLE), spill_folder=uri, lifetime=uri),  # type: ignore[arg-type]
    "serve a path": lambda uri: bs.serve({"t": uri}),
    "serve a name": lambda uri: bs.serve({uri: 1}),  # type: ignore[dict-item]
    "serve at an address": lambda uri: bs.serve({"t": bs.table(TABLE)}, address=uri, scheme="tcp"),
    "serve with a scheme": lambda uri: bs.serve({"t": bs.table(TABLE)}, scheme=uri),
    "serve with a key": lambda uri: bs.serve({"t": bs.table(TABLE)}, options=ServerOptions(ticket_key=uri)),  # type: ignore[arg-type]
    "Server.uri": uri_of_missing_name,
    "ipc.read_schema": bs.ipc.read_schema,
    "ipc.append_to_file": bs.ipc.append_to_file,
    "ipc.concat_files": lambda uri: bs.ipc.concat_files([uri, uri], "joined.arrow"),
    "ipc.concat_files to": lambda uri: bs.ipc.concat_files(["good.arrow"], uri),
    "ipc.recover": lambda uri: bs.ipc.recover(uri, "recovered.arrow"),
    "ipc.recover to": lambda uri: bs.ipc.recover("good.arrow", uri),
    "inspect": bs.inspection.inspect,
    "build_anatomy": bs.inspection.build_anatomy,
    "build_anatomy_page": bs.inspection.build_anatomy_page,
    "tensors.open_tensor_stream": bs.tensors.open_tensor_stream,
    "tensors.read_tensor": bs.tensors.read_tensor,
    "tensors.new_tensor_stream": lambda uri: bs.tensors.new_tensor_stream(uri).close(),
    "sharing.read_recording": lambda uri: list(bs.sharing.read_recording(uri)),
    "sharing.Recorder": lambda uri: bs.sharing.Recorder(uri).close(),
    "spark.vacuum": bs.spark.vacuum,
    "with http options": lambda uri: bs.read_table(uri, storage_options=OPTIONS["http"]),
    "with s3 options": lambda uri: bs.read_table(uri, storage_options=OPTIONS["s3"]),
    "dataset with s3 options": lambda uri: bs.dataset(uri, storage_options=OPTIONS["s3"]),
}
COMMANDS: tuple[tuple[str, ...], ...] = (
    *((name, "URI") for name in ("info", "schema", "count", "validate", "head", "tail", "cat", "anatomy", "publish")),
    *(
        (name, "URI")
        for name in ("vacuum", "trace", "fetch", "unpublish", "ls", "serve", "demo", "doctor", "other", "URI")
    ),
    *((name, "URI", "--json") for name in ("info", "schema", "count", "validate", "head", "ls", "doctor", "trace")),
    *((name, "--debug", "URI") for name in ("info", "head", "fetch", "convert")),
    *((name, "URI", "URI") for name in ("convert", "concat", "diff", "recover", "info", "fetch", "head", "serve")),
    *((name, "URI", "--help") for name in ("info", "fetch")),
    *((name, "--URI") for name in ("info", "fetch")),
    ("info", "--from", "URI", "x.arrow"),
    ("head", "-n", "URI", "x.arrow"),
    ("convert", "good.arrow", "URI"),
    ("convert", "URI", "out.arrow"),
    ("diff", "good.arrow", "URI"),
    ("concat", "good.arrow", "URI", "-o", "joined.arrow"),
    ("recover", "URI", "out.arrow"),
    ("serve", "good.arrow", "--scheme", "tcp", "--address", "URI"),
    ("serve", "good.arrow", "--scheme", "URI"),
    ("serve", "good.arrow", "--ticket-key-file", "URI"),
    ("fetch", "URI", "out.arrow", "--timeout", "1"),
    ("fetch", "visits", "--ticket", "URI"),
    ("fetch", "visits", "--timeout", "URI"),
    ("publish", "good.arrow", "--ttl", "URI"),
    ("info", "URI", "--storage-option", f"key={OPTION}"),
    ("info", "URI", "--storage-option", OPTION),
    ("info", "URI", "--storage-options", f"key={OPTION}"),
    ("info", "URI", f"--debug={OPTION}"),
)


def error_texts(error: BaseException) -> list[str]:
    """The texts of an error: what is printed, logged and pickled."""
    texts = ["".join(traceback.format_exception(error))]
    link: BaseException | None = error
    while link is not None:
        texts += [str(link), repr(link), repr(link.args), repr(getattr(link, "__notes__", ""))]
        texts.append(repr(getattr(link, "filename", "")))
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    with contextlib.suppress(Exception):
        texts.append(repr(pickle.loads(pickle.dumps(error)).__dict__))
    return texts


def find_secret(texts: list[str]) -> str | None:
    """The first text that contains a secret."""
    return next((text for text in texts if any(secret in text for secret in SECRETS)), None)


@pytest.fixture(autouse=True)
def _isolated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The working folder has a file; requests of S3 fail at once, without looking for credentials."""
    monkeypatch.chdir(tmp_path)
    bs.write_table(bs.table(TABLE), "good.arrow")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    yield
    for scheme in ("s3", "memory"):
        fsspec.get_filesystem_class(scheme).clear_instance_cache()  # other tests have another endpoint
    fsspec.filesystem("memory").store.clear()


@pytest.mark.parametrize("name", CALLS)
def test_no_text_of_a_function_contains_a_secret(
    name: str, web_server: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG, "bowstring")
    leaks = {}
    for uri in list_uris(web_server):
        with warnings.catch_warnings(record=True) as shown:
            warnings.simplefilter("always")
            try:
                texts = consume(CALLS[name](uri))
            except BaseException as error:  # noqa: BLE001 -- each error is looked at
                texts = error_texts(error)
        captured = capfd.readouterr()
        texts += [*caplog.messages, *(str(warning.message) for warning in shown), captured.out, captured.err]
        caplog.clear()
        if leak := find_secret(texts):
            leaks[uri] = leak
    assert not leaks


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_no_output_of_a_command_contains_a_secret(
    arguments: tuple[str, ...], web_server: str, capfd: pytest.CaptureFixture[str]
) -> None:
    leaks = {}
    for uri in list_uris(web_server):
        if "/arrow/" in uri and arguments[0] in ("publish", "serve"):
            continue  # it would succeed
        try:
            main([argument.replace("URI", uri) for argument in arguments])
        except BaseException as error:  # noqa: BLE001 -- each error is looked at
            traceback.print_exception(error)
        captured = capfd.readouterr()
        if leak := find_secret([captured.out, captured.err]):
            leaks[uri] = leak
    assert not leaks


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://user:password@host:80/a.arrow: not found", "http://…@host:80/a.arrow: not found"),
        ("'https://token@[::1]:80/a'", "'https://…@[::1]:80/a'"),
        ("http://user:a/b@host/c", "http://…@host/c"),
        ("(https://host/a?X-Amz-Signature=0f&b='1'), then", "(https://host/a?…'), then"),
        ("https://host/a?token: 404", "https://host/a?…: 404"),
        ("s3://bucket/a.arrow?versionId=1;", "s3://bucket/a.arrow?…;"),
        ("zip://a::http://user:password@host/b?c", "zip://a::http://…@host/b?…"),
        ('{"url":"http://host/?a=b","n":1}', '{"url":"http://host/?…","n":1}'),
        ("user:password@host/a", "user:…@host/a"),
        ("bucket/a?X-Amz-Signature=0f: no", "bucket/a?X-Amz-Signature=…: no"),
        ("bucket/a%3Fsig%3D0f%2F%26se%3D1", "bucket/a%3Fsig%3D…%26se%3D1"),
        ("unix:@a?want_data=1&ticket=b~~0f", "unix:@a?want_data=1&ticket=b~~…"),
        ("tcp://a:1?want_data=1&ticket=b%7E1%7E0f&scope=c", "tcp://a:1?want_data=1&ticket=b%7E1%7E…&scope=c"),
    ],
)
def test_redaction_hides_secrets_and_nothing_else(text: str, shown: str) -> None:
    assert redact(text) == shown
    assert redact(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "/data/a~b/part-0~1.arrow",
        "~user/.cache/a~2024.arrow",
        "http://host:8080/a@2/b.arrow",
        "s3://bucket/part-?.arrow: no such file",
        "memory://folder/day=1/a.arrow",
        "file:///data/a b.arrow",
        "grpc+tls://host:443/visits",
        "unix:@bowstring-1f?want_data=1&free_data=2&error_data=18374686479671623680&max_tickets=256&ticket=visits",
        "unix:/run/user/0/socket?want_data=1&ticket=a%2Fb",
        "record batch 3, column 'price': offsets[7] = 91 exceeds the data buffer's 88 bytes",
        "expected 12:30:00, found 'name@example.com'",
    ],
)
def test_redaction_does_not_change_other_texts(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize(
    "unit", ["://", "a:", ":/a:b", "~", "%7E", "?", "http://?", "&key=", "a@", ":a@", "%3Fsig%3D%"]
)
def test_redaction_of_a_long_text_takes_time_in_proportion(unit: str) -> None:
    for ending in ("", "@", "'", " "):
        redact(unit * 50_000 + ending)  # if it took quadratic time, this would end at the test's timeout


def test_all_texts_of_an_error_are_redacted() -> None:
    url = f"http://user:{PASSWORD}@host/a?{QUERY}"
    for error in (
        InvalidDataError(url),
        MissingFileError(url, FileNotFoundError(2, "none", url)),
        BowstringError(url, url),
    ):
        error.add_note(url)
        for located in (error, add_location(error, url), pickle.loads(pickle.dumps(error))):
            assert not find_secret(error_texts(located))
            assert "http://…@host/a?…" in str(located)


def test_a_foreign_cause_is_kept_if_it_has_no_secret() -> None:
    for text, is_kept in (("no such bucket", True), (f"bucket?{QUERY}", False), (f"bad {OPTION}", False)):
        with (
            pytest.raises(InvalidDataError, match=r"^a: ") as caught,
            translated_errors(lambda error: InvalidDataError(f"a: {error}"), {"nested": [{"key": OPTION}]}),
        ):
            raise ValueError(text)
        assert isinstance(caught.value.__cause__, ValueError) == is_kept
        assert not find_secret(error_texts(caught.value))


def test_the_targets_of_commands_are_shown_without_secrets(capfd: pytest.CaptureFixture[str]) -> None:
    target = f"memory://user:{PASSWORD}@folder/b.arrow?{QUERY}"
    for arguments in (("convert", "good.arrow", target), ("concat", "good.arrow", "-o", target)):
        assert main(arguments) == 0
        captured = capfd.readouterr()
        assert "memory://…@folder/b.arrow?…: " in captured.out + captured.err
        assert not find_secret([captured.out, captured.err])

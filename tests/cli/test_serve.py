"""`bowstring serve`, in its own process, until a signal."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import bowstring as bs
from bowstring.cli.main import main
from bowstring.errors import AccessDeniedError, ConnectionLostError, NotFoundError, RefusedConnectionError
from bowstring.transports.tls import TlsOptions
from tests.cli.command_line import read_uri, run_command, running_server, write
from tests.polling import wait_until
from tests.transports.certificates import Authority

TABLE = pa.table({"n": range(10_000), "text": [f"row {n}" for n in range(10_000)]})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "numbers.arrow", TABLE, 1000)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_each_path_gets_a_uri_until_a_signal(path: Path, tmp_path: Path, number: signal.Signals) -> None:
    other = write(tmp_path / "other stream.arrows", TABLE.select(["text"]))
    with running_server(path, other) as server:
        uris = [read_uri(server), read_uri(server)]
        for uri, name, table in zip(uris, ("numbers", "other%20stream"), (TABLE, TABLE.select(["text"])), strict=True):
            assert uri.endswith(f"&ticket={name}")
            with bs.connect(uri) as dataset:
                assert pa.table(dataset) == table
        server.send_signal(number)
        assert server.communicate(timeout=60) == ("", "")
        assert server.returncode == 0
    with pytest.raises(RefusedConnectionError):
        bs.connect(uris[0])


def test_a_signal_waits_for_clients_that_use_the_data(path: Path) -> None:
    with running_server(path) as server:
        uri = read_uri(server)
        with bs.connect(uri) as dataset:
            table = dataset.read_all()
            server.send_signal(signal.SIGTERM)
            assert wait_until(lambda: not accepts_connections(uri))
            assert server.poll() is None
            del table
        assert server.communicate(timeout=60) == ("", "")
        assert server.returncode == 0


def accepts_connections(uri: str) -> bool:
    try:
        bs.connect(uri).close()
    except ConnectionError:
        return False
    return True


def test_clients_are_disconnected_after_the_drain(path: Path) -> None:
    with running_server(path, "--drain", "0") as server, bs.connect(read_uri(server)) as dataset:
        table = dataset.read_all()
        server.send_signal(signal.SIGTERM)
        _, errors = server.communicate(timeout=60)
        assert errors == "bowstring: clients still used the data after 0 s, and were disconnected\n"
        assert server.returncode == 1
        assert pa.table(table) == TABLE


def test_data_sets_are_named(path: Path) -> None:
    with running_server(path, path, "--name", "a", "--name", "b") as server:
        uri = read_uri(server)
        assert uri.endswith("&ticket=a")
        assert read_uri(server) == uri.replace("&ticket=a", "&ticket=b")
        with pytest.raises(NotFoundError):
            bs.connect(uri, "numbers")


def test_the_current_folder_has_the_name_of_the_folder(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    with running_server(".") as server, bs.connect(read_uri(server), path.parent.name) as dataset:
        assert pa.table(dataset) == TABLE


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("*.arrow", None),
        ("part-*.arrow", "part"),
        ("part-[12].arrow", "part"),
        ("p*rt-1.arrow", "prt-1"),
        ("[literal].arrow", "[literal]"),
    ],
)
def test_a_glob_has_its_name_without_patterns_or_that_of_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str, name: str | None
) -> None:
    for file in ("part-1.arrow", "[literal].arrow"):
        write(tmp_path / file, TABLE)
    monkeypatch.chdir(tmp_path)
    for path in (pattern, f"{tmp_path}/{pattern}"):
        with running_server(path) as server, bs.connect(read_uri(server), name or tmp_path.name) as dataset:
            assert dataset.schema.names == ["n", "text"]


def test_a_terminal_shows_short_uris_how_to_read_them_and_how_to_stop(path: Path) -> None:
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "bowstring", "serve", str(path), str(path), "--name", "a", "--name", "b"]
    with subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower) as process:
        os.close(follower)
        shown = b""
        try:
            while b"Ctrl+C" not in shown:
                assert select.select([leader], [], [], 60)[0], shown
                shown += os.read(leader, 65536)
            lines = shown.decode().replace("\r", "").splitlines()
            uris = [line.partition("  ")[2] for line in lines[:2]]
            assert [line[0] for line in lines[:2]] == ["a", "b"]
            assert all(len(uri) < 90 for uri in uris)
            for uri in uris:
                for copy in (False, True):
                    with bs.connect(uri, copy=copy) as dataset:
                        assert pa.table(dataset) == TABLE
            shell, python = lines[3].strip(), lines[5].strip()
            fetched = subprocess.run(
                ["sh", "-c", shell.replace("bowstring ", f"{sys.executable} -m bowstring ")],
                capture_output=True, text=True, timeout=60, check=False,
            )  # fmt: skip
            assert fetched.stdout.splitlines()[2].split() == ["0", "row", "0"]
            with eval(python, {"bowstring": bs}) as dataset:
                assert pa.table(dataset) == TABLE
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
            os.close(leader)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a.arrow", "b/a.arrows"], "2 data sets have the name 'a': give each a --name"),
        (["a.arrow", "b.arrow", "--name", "a"], "expected one --name for each PATH: 2, found 1"),
        (["a.arrow", "--ticket-lifetime", "5"], "--ticket-lifetime needs --ticket-key-file"),
        (["a.arrow", "--tls-key", "key.pem"], "--tls-key needs --tls-certificate"),
        ([], "missing argument 'PATH...'"),
    ],
)
def test_wrong_arguments_are_a_usage_error(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", *arguments]) == 2
    assert capsys.readouterr() == ("", f"bowstring: {message} (bowstring serve --help shows how)\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.arrow"], "missing.arrow: there is no such file"),
        (["PATH", "--scheme", "tcp", "--address", "0.0.0.0:0"], "not a loopback address: use tcp+tls there, or signed"),
        (["PATH", "--scheme", "tcp+tls"], "needs the option certificate"),
        (["PATH", "--ticket-key-file", "missing.key"], "missing.key: there is no such file"),
        (["PATH", "--ticket-key-file", "SHORT"], "ticket_key: expected at least 32 random bytes, found 6"),
    ],
)
def test_an_error_at_the_start_is_one_line(
    path: Path, tmp_path: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "short").write_bytes(b"secret")
    paths = {"PATH": path, "SHORT": tmp_path / "short"}
    assert main(["serve", *(str(paths.get(argument, argument)) for argument in arguments)]) == 1
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.startswith("bowstring: ")
    assert errors.count("\n") == 1
    assert message in errors
    assert "secret" not in errors


def test_a_key_signs_the_tickets(path: Path, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(bytes(range(32)))
    options = ("--scheme", "tcp", "--ticket-key-file", key, "--ticket-lifetime", "3600", "--log", "debug")
    with running_server(path, *options) as server:
        uri = read_uri(server)
        with bs.connect(uri) as dataset:
            assert pa.table(dataset) == TABLE
        with pytest.raises(AccessDeniedError):
            bs.connect(uri, "numbers")
        server.send_signal(signal.SIGTERM)
        log = server.communicate(timeout=60)[1]
    assert re.search(r" INFO server at //127.0.0.1:\d+: serving\n", log)
    assert "requests data set 'numbers~" in log
    assert "AccessDeniedError for data set" in log
    assert uri.rpartition("~")[2][:8] not in log


def test_a_server_with_a_certificate_uses_tls(path: Path, tmp_path: Path) -> None:
    authority = Authority.create(tmp_path)
    certificate, key = authority.issue("127.0.0.1")
    options = ("--tls-certificate", certificate, "--tls-key", key, "--tls-authorities", authority.certificate)
    with running_server(path, "--scheme", "tcp+tls", *options) as server:
        uri = read_uri(server)
        target = tmp_path / "target.arrow"
        process = run_command("fetch", uri, target, *options)
        assert process.returncode == 0, process.stderr
        assert pa.ipc.open_file(target).read_all() == TABLE
        with pytest.raises(ConnectionLostError):
            bs.connect(uri, tls=TlsOptions(authorities=authority.certificate))

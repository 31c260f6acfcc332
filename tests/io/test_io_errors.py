"""Errors of the operating system, web servers and stores: their classes and messages."""

from __future__ import annotations

import errno
import io
import os
import pickle
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest

import bowstring as bs
from bowstring.errors import (
    AccessDeniedError,
    BowstringError,
    ConnectionLostError,
    InvalidArgumentError,
    MissingFileError,
    NotFoundError,
    ResourceError,
)
from bowstring.ipc.api import open_any
from bowstring.ipc.tools.append import append_to_file
from bowstring.memory.region import Region
from tests.ipc.remote_stores import serve_files

_SCHEMA = bs.schema({"a": bs.int64()})
_READERS: list[Callable[[Any], Any]] = [bs.open_file, bs.open_stream, open_any, bs.inspection.inspect, append_to_file]
_readers = pytest.mark.parametrize("read", _READERS, ids=lambda function: function.__name__)


def _error_of(function: Callable[..., Any], *arguments: Any) -> BowstringError:
    with pytest.raises(BowstringError) as caught:
        function(*arguments)
    error = caught.value
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert "Errno" not in str(error)
    return error


def _write(sink: Any) -> None:
    with bs.new_file(sink, _SCHEMA):
        pass


@pytest.mark.parametrize("read", [*_READERS, Region.from_file], ids=lambda function: function.__name__)
def test_a_missing_file_is_a_file_not_found_error(read: Callable[[Any], Any], tmp_path: Path) -> None:
    path = str(tmp_path / "missing.arrow")
    error = _error_of(read, path)
    assert isinstance(error, FileNotFoundError)
    assert isinstance(error, NotFoundError)
    assert (error.errno, error.strerror, error.filename) == (errno.ENOENT, "No such file or directory", path)


@pytest.mark.parametrize("read", [*_READERS, Region.from_file], ids=lambda function: function.__name__)
def test_a_directory_is_an_is_a_directory_error(read: Callable[[Any], Any], tmp_path: Path) -> None:
    error = _error_of(read, str(tmp_path))
    assert isinstance(error, IsADirectoryError)
    assert isinstance(error, InvalidArgumentError)
    assert (error.errno, error.filename) == (errno.EISDIR, str(tmp_path))


@_readers
def test_a_file_in_the_middle_of_a_path_is_a_not_a_directory_error(read: Callable[[Any], Any], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = str(tmp_path / "file" / "x.arrow")
    for error in (_error_of(read, path), _error_of(_write, path)):
        assert isinstance(error, NotADirectoryError)
        assert (error.errno, error.filename) == (errno.ENOTDIR, path)


@_readers
def test_denied_permission_is_a_permission_error(read: Callable[[Any], Any], tmp_path: Path) -> None:
    path = tmp_path / "x.arrow"
    _write(path)
    path.chmod(0)
    tmp_path.chmod(0o500)
    user = os.geteuid()
    try:
        if user == 0:  # root may do everything
            os.seteuid(65534)
        errors = [
            _error_of(read, str(path)),
            _error_of(_write, str(path)),
            _error_of(_write, str(tmp_path / "new.arrow")),
        ]
    finally:
        os.seteuid(user)
    for error in errors:
        assert isinstance(error, PermissionError)
        assert isinstance(error, ResourceError)
        assert error.errno == errno.EACCES
        assert str(error.filename).endswith(".arrow")


def test_an_obstacle_to_a_new_file_keeps_its_built_in_class(tmp_path: Path) -> None:
    assert isinstance(_error_of(_write, str(tmp_path)), IsADirectoryError)
    error = _error_of(_write, str(tmp_path / "folder" / "x.arrow"))
    assert isinstance(error, FileNotFoundError)
    assert error.filename == str(tmp_path / "folder" / "x.arrow")
    assert str(tmp_path / "folder") in str(error)


def test_a_full_disk_is_an_os_error_with_its_number() -> None:
    error = _error_of(_write, "/dev/full")
    assert isinstance(error, ResourceError)
    assert (error.errno, error.strerror) == (errno.ENOSPC, "No space left on device")


def test_a_peer_that_closed_is_a_broken_pipe_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    one, other = socket.socketpair()
    other.close()
    try:
        for sink in (writer, one):
            error = _error_of(_write, sink)
            assert isinstance(error, BrokenPipeError)
            assert isinstance(error, ConnectionLostError)
            assert error.errno == errno.EPIPE
    finally:
        os.close(writer)
        one.close()


def test_a_closed_descriptor_keeps_its_number() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    os.close(writer)
    for error in (_error_of(bs.open_file, reader), _error_of(bs.open_stream, reader), _error_of(_write, reader)):
        assert isinstance(error, OSError)
        assert error.errno == errno.EBADF


class _FailingFile(io.RawIOBase):
    def readable(self) -> bool:
        return True

    def readinto(self, _: object) -> int:
        raise InvalidArgumentError("of the file object")

    def write(self, _: object) -> int:
        raise InvalidArgumentError("of the file object")


@pytest.mark.parametrize("use", [bs.open_stream, _write])
def test_a_bowstring_error_from_a_file_object_is_not_its_own_cause(use: Callable[[Any], Any]) -> None:
    with pytest.raises(InvalidArgumentError, match="of the file object") as caught:
        use(_FailingFile())
    assert caught.value.__cause__ is None


_web_readers = pytest.mark.parametrize("read", [bs.open_file, bs.open_stream, open_any, bs.inspection.inspect])


@_web_readers
def test_the_status_of_a_web_server_becomes_the_class_of_the_error(read: Callable[[Any], Any]) -> None:
    with serve_files(x=b"some bytes") as site:
        error = _error_of(read, f"{site.url}/missing")
        assert isinstance(error, FileNotFoundError)
        assert (error.errno, error.filename) == (errno.ENOENT, f"{site.url}/missing")
        for status in (401, 403):
            site.fails_with = status
            error = _error_of(read, f"{site.url}/x")
            assert isinstance(error, PermissionError)
            assert str(status) in str(error)
            assert (error.errno, error.filename) == (errno.EACCES, f"{site.url}/x")
        site.fails_with = 503
        error = _error_of(read, f"{site.url}/x")
        assert isinstance(error, ResourceError)
        assert not isinstance(error, AccessDeniedError)
        assert "503 Service Unavailable" in str(error)
        site.is_down = True
        assert isinstance(_error_of(read, f"{site.url}/x"), ConnectionError)


@_web_readers
def test_an_unreachable_web_server_is_not_a_missing_file(read: Callable[[Any], Any]) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/x.arrow"
        error = _error_of(read, url)
    assert isinstance(error, ConnectionRefusedError)
    assert isinstance(error, ConnectionLostError)
    assert error.errno == errno.ECONNREFUSED
    assert str(error) == f"{url}: Connection refused"
    error = _error_of(read, "http://host.invalid/x.arrow")
    assert isinstance(error, ConnectionError)
    assert str(error).startswith("http://host.invalid/x.arrow: ")
    assert "ssl" not in str(error)


@_web_readers
def test_a_missing_file_of_a_store_is_a_file_not_found_error(read: Callable[[Any], Any]) -> None:
    for source in ("memory://missing.arrow", fsspec.open("memory://missing.arrow")):
        error = _error_of(read, source)
        assert isinstance(error, FileNotFoundError)
        assert isinstance(error, MissingFileError)
        assert error.errno == errno.ENOENT


@_readers
@pytest.mark.parametrize("uri", ["unix:@name?want_data=1", "unix:/tmp/socket?want_data=1", "unix:///tmp/socket"])
def test_the_error_for_a_bowstring_uri_opened_as_a_path_names_connect(read: Callable[[Any], Any], uri: str) -> None:
    error = _error_of(read, uri)
    assert isinstance(error, InvalidArgumentError)
    assert not isinstance(error, FileNotFoundError)
    assert "bowstring.connect" in str(error)

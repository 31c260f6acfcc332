"""Object stores and other file systems that fsspec opens by URL. fsspec is optional and imported only here."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeGuard

from bowstring.errors import BowstringError, InvalidArgumentError, ResourceError, TruncatedError
from bowstring.io.byte_ranges import Span
from bowstring.io.http_responses import limit_responses
from bowstring.io.io_errors import is_directory_error, translate_io_error
from bowstring.io.range_source import compute_edge_spans
from bowstring.io.store_path import StorePath, resolve_url
from bowstring.memory.closable import call_on_error
from bowstring.redaction import translated_errors

_URL = re.compile(r"[a-z][a-z0-9+.-]+(::[a-z][a-z0-9+.-]+)*://")
# Requested before the size is known, together with the head: the footers of most files are shorter.
_TAIL_BYTES = 1 << 18
_HEAD_BYTES = 64  # the magic, and with it the format
# fsspec's loop has no deadline of its own, and large ranges of a slow store take minutes.
_TIMEOUT_S = 300.0
# More than the default: another round trip to a store takes longer than these bytes.
_EDGE_DIVISOR = 16


def is_url(source: object) -> bool:
    """Whether `source` is a string that begins like a URL, chained URLs (`simplecache::s3://…`) included.

    >>> is_url("s3://bucket/name.arrow"), is_url("C://name.arrow"), is_url("name.arrow")
    (True, False, False)
    """
    return isinstance(source, str) and _URL.match(source) is not None


def is_path(source: object) -> TypeGuard[str | os.PathLike[str]]:
    """Whether `source` is a path of the operating system: a string that is not a URL, or an `os.PathLike`."""
    return _URL.match(source) is None if isinstance(source, str) else isinstance(source, os.PathLike)


def is_store_scheme(scheme: str) -> bool:
    """Whether this scheme belongs to a store; without fsspec, to one of the most frequent ones."""
    try:
        from fsspec.registry import available_protocols
    except ImportError:
        return scheme in ("s3", "gs", "abfs", "http", "https")
    return scheme in available_protocols()


def is_fsspec_open_file(source: object) -> bool:
    """Whether `source` is an unopened file, as `fsspec.open` returns it."""
    core = sys.modules.get("fsspec.core")
    return core is not None and isinstance(source, core.OpenFile)


def is_fsspec_file(file: object) -> bool:
    """Whether `file` is a file object of fsspec that reads and writes blocks."""
    spec = sys.modules.get("fsspec.spec")
    return spec is not None and isinstance(file, spec.AbstractBufferedFile)


def with_storage_options(file: Any, options: Mapping[str, Any] | None) -> Any:
    """Return the path in a store of a URL with options for fsspec's file system; without options, the file as it is.

    Raises `InvalidArgumentError` if there are options, and the file is not a URL.
    """
    if not options or isinstance(file, StorePath):
        return file
    if not is_url(file):
        name = os.fspath(file) if is_path(file) else type(file).__name__
        raise InvalidArgumentError(f"{name}: storage_options are for URLs, such as s3://bucket/name.arrow")
    return StorePath(file, options)


def find_store_location(source: object) -> tuple[Any, str] | None:
    """File system and path of a URL, a `StorePath` or a result of `fsspec.open`; None for anything else.

    Raises `MissingExtraError` if a package is missing for a URL.
    """
    if isinstance(source, StorePath):
        return source.resolve_location()
    if is_url(source):
        return resolve_url(str(source))
    file: Any = source
    return (limit_responses(file.fs), file.path) if is_fsspec_open_file(source) and not file.compression else None


def find_file_object_location(source: object) -> tuple[Any, str] | None:
    """File system and path of an fsspec file object that is open for reading; None for other objects."""
    file: Any = source
    return (limit_responses(file.fs), file.path) if is_fsspec_file(source) and file.readable() else None


def get_local_path(file_system: Any, path: str) -> str | None:
    """The path of a local file; None for other file systems."""
    protocols = (file_system.protocol,) if isinstance(file_system.protocol, str) else file_system.protocol
    return path if type(file_system).__name__ == "LocalFileSystem" and "file" in protocols else None


def open_store_file(file_system: Any, path: str, mode: str = "rb", **options: Any) -> Any:
    """Open an fsspec file object."""
    with translated_errors(lambda error: translate_io_error(error, path, "opened", path), file_system.storage_options):
        if mode == "rb" and "http" in file_system.protocol:
            options |= _http_stream_options()
        try:
            return file_system.open(path, mode, **options)
        except NotImplementedError:
            raise InvalidArgumentError(f"{path}: {type(file_system).__name__} does not support writing") from None


def open_decompressed(source: Any) -> tuple[Any, Any]:
    """Open a result of `fsspec.open` with decompression: the decompressing file object and the one it reads."""
    compressed_file = open_store_file(source.fs, source.path)
    with (
        call_on_error(compressed_file.close),
        translated_errors(lambda error: translate_io_error(error, source.path, "opened", source.path)),
    ):
        from fsspec.compression import compr

        return compr[source.compression](compressed_file, mode="r"), compressed_file


def _http_stream_options() -> dict[str, Any]:
    """Options for reading a file of a web server with one request, as not all servers support ranges.

    The size is not requested. A transfer may take any time as long as bytes arrive.
    """
    from aiohttp import ClientTimeout

    return {"block_size": 0, "size": 1, "timeout": ClientTimeout(total=None, sock_read=_TIMEOUT_S)}


class UnknownSizeError(ResourceError):
    """The store does not report the size of a file, like web servers that generate it: it can only be read in order."""


class FsspecRangeReader:
    """One file of an fsspec file system."""

    def __init__(self, file_system: Any, path: str, name: str) -> None:
        self._file_system = file_system
        self._path = path
        self._options: dict[str, Any] = {}
        self.name = name

    def read_size_and_edges(self) -> tuple[int, list[tuple[int, bytes]]]:
        """The size, beginning and end of the file, requested in parallel if the store is asynchronous.

        Otherwise the size first, then beginning and end in proportion to it.
        """
        is_http = "http" in self._file_system.protocol
        if is_http:
            headers = {**self._file_system.kwargs.get("headers", {}), "Accept-Encoding": "identity"}
            self._options = {"headers": headers}
        info, edges = (
            self._request_info_and_edges()
            if getattr(self._file_system, "async_impl", False)
            else (self._request_info(), None)
        )
        if info.get("type") == "directory":
            raise is_directory_error(self.name)
        size = info.get("size")
        if not isinstance(size, int) or size < 0:
            raise UnknownSizeError(f"{self.name}: its size is not known, so it can't be read by ranges")
        etag = info.get("ETag")
        if is_http and isinstance(etag, str) and etag.startswith('"'):
            self._options["headers"]["If-Match"] = etag  # the server rejects the request if the file was replaced
        if edges is None or len(edges[1]) not in (size, min(size, _TAIL_BYTES)):
            spans = compute_edge_spans(size, _EDGE_DIVISOR)
            return size, [(start, edge) for (start, _), edge in zip(spans, self.read_ranges(spans), strict=True)]
        head, tail = edges
        edge = [(size - len(tail), tail)]
        if len(tail) < size:
            edge.append((0, head[: min(len(head), size - len(tail))]))
        return size, edge

    def _request_info(self) -> dict[str, Any]:
        with self._translated_errors():
            return dict(self._file_system.info(self._path))

    def _request_info_and_edges(self) -> tuple[dict[str, Any], tuple[bytes, bytes] | None]:
        """The store's metadata of the file, and its first and last bytes, or None if these requests failed."""
        from asyncio import gather  # slow to import, and only asynchronous stores need it

        from fsspec.asyn import sync

        async def request_all() -> Any:
            return await gather(
                self._file_system._info(self._path),
                self._file_system._cat_file(self._path, start=0, end=_HEAD_BYTES, **self._options),
                self._file_system._cat_file(self._path, start=-_TAIL_BYTES, end=None, **self._options),
                return_exceptions=True,
            )

        with self._translated_errors():
            info, *edges = sync(self._file_system.loop, request_all, timeout=_TIMEOUT_S)
            self._raise_if_error(info)
        head, tail = edges
        if not isinstance(head, bytes) or not isinstance(tail, bytes) or not tail:
            return dict(info), None
        return dict(info), (head, tail)

    def read_ranges(self, spans: Sequence[Span]) -> Iterable[bytes]:
        """The bytes of all spans, requested in parallel if the store is asynchronous."""
        file_system = self._file_system
        paths, starts = [self._path] * len(spans), [start for start, _ in spans]
        ends = [start + size_bytes for start, size_bytes in spans]
        with self._translated_errors():
            if getattr(file_system, "async_impl", False):
                from fsspec.asyn import sync

                replies = sync(
                    file_system.loop, file_system._cat_ranges, paths, starts, ends, timeout=_TIMEOUT_S, **self._options
                )
            else:
                replies = file_system.cat_ranges(paths, starts, ends, on_error="return", **self._options)
            for reply in replies:
                self._raise_if_error(reply)
        for reply in replies:
            if not isinstance(reply, bytes | bytearray | memoryview):
                raise ResourceError(f"{self.name}: expected bytes, found {type(reply).__name__}")
        return list(replies)

    def _raise_if_error(self, reply: object) -> None:
        if isinstance(reply, BaseException):
            raise reply if isinstance(reply, Exception) else ResourceError(f"{self.name}: {reply!r}")

    def _translated_errors(self) -> AbstractContextManager[None]:
        return translated_errors(self._translate_error, self._file_system.storage_options)

    def _translate_error(self, error: Exception) -> BowstringError:
        status = getattr(error, "status", None)
        if status == 412:
            return ResourceError(f"{self.name}: the file was replaced after it was opened")
        if status == 416:
            return TruncatedError(f"{self.name}: the file is shorter than it was when it was opened")
        return translate_io_error(error, self.name, path=self.name)

    def close(self) -> None:
        """Do nothing: the file system is shared and stays open."""

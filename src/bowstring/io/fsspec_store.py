"""Stores behind a network, and whatever else fsspec knows by a URL. The package is optional, and imported here only."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from bowstring.errors import IsDirectoryError, MissingExtraError, ResourceError, TruncatedError, UsageError
from bowstring.io.byte_ranges import Span
from bowstring.io.os_errors import missing_file_error, translate_io_error
from bowstring.io.range_source import edge_spans

EXTRA = "fsspec"
_URL = re.compile(r"[a-z][a-z0-9+.-]+(::[a-z][a-z0-9+.-]+)*://")
_TAIL_BYTES = 1 << 18
_HEAD_BYTES = 64
_TIMEOUT_S = 300.0
_EDGE_SHARE = 16


def is_url(source: object) -> bool:
    """Whether this is text that begins as a URL does, chained ones (`simplecache::s3://…`) included.

    >>> is_url("s3://bucket/name.arrow"), is_url("C://name.arrow"), is_url("name.arrow")
    (True, False, False)
    """
    return isinstance(source, str) and _URL.match(source) is not None


def resolve_url(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path in it. Raises `MissingExtraError` where a package is missing for it."""
    if url.startswith("unix:"):
        raise missing_file_error(url)
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise MissingExtraError.of("fsspec", EXTRA) from None
    try:
        files, path = url_to_fs(url)
    except ValueError as error:
        raise UsageError(f"{url}: {error}") from None
    except Exception as error:
        raise translate_io_error(error, url, "opened", url) from error
    return files, path


def is_fsspec_open_file(source: object) -> bool:
    """Whether this is what `fsspec.open` gives, which has to be opened before it can be read."""
    core = sys.modules.get("fsspec.core")
    return core is not None and isinstance(source, core.OpenFile)


def find_location(source: object) -> tuple[Any, str] | None:
    """File system and path of a URL, and of what `fsspec.open` gives; None for anything else.

    Raises `MissingExtraError` where a package is missing for a URL.
    """
    if is_url(source):
        return resolve_url(str(source))
    held: Any = source
    return (held.fs, held.path) if is_fsspec_open_file(source) and not held.compression else None


def find_location_of_file(source: object) -> tuple[Any, str] | None:
    """File system and path behind a file object of fsspec's that is open for reading; None for other objects."""
    spec = sys.modules.get("fsspec.spec")
    if spec is not None and isinstance(source, spec.AbstractBufferedFile) and source.readable():
        return source.fs, source.path
    return None


def local_path(files: Any, path: str) -> str | None:
    """The path of a file on this machine; None for others."""
    protocols = (files.protocol,) if isinstance(files.protocol, str) else files.protocol
    return path if type(files).__name__ == "LocalFileSystem" and "file" in protocols else None


def opened(files: Any, path: str, mode: str = "rb", **options: Any) -> Any:
    """A file object of fsspec's."""
    try:
        if mode == "rb" and "http" in files.protocol:
            options |= _http_stream_options()
        return files.open(path, mode, **options)
    except NotImplementedError:
        raise UsageError(f"{path}: {type(files).__name__} is not for writing") from None
    except Exception as error:
        raise translate_io_error(error, path, "opened", path) from error


def unpacked(source: Any) -> tuple[Any, Any]:
    """What `fsspec.open` gives for a file that is decompressed, opened: the file object, and the one that it reads."""
    packed = opened(source.fs, source.path)
    try:
        from fsspec.compression import compr

        return compr[source.compression](packed, mode="r"), packed
    except Exception as error:
        packed.close()
        raise translate_io_error(error, source.path, "opened", source.path) from error


def _http_stream_options() -> dict[str, Any]:
    """Options for reading a file of a web server to its end with one request, as not all servers support ranges.

    The size is not asked for, and not used. A transfer may take any time, as long as some bytes arrive.
    """
    from aiohttp import ClientTimeout

    return {"block_size": 0, "size": 1, "timeout": ClientTimeout(total=None, sock_read=_TIMEOUT_S)}


class Upload:
    """A file of a store that is being written; `write` is called with bytes in order.

    It appears when `commit` is called where the store knows uploads that can be dropped, as object stores do. Elsewhere
    it is there from the beginning.
    """

    def __init__(self, files: Any, path: str) -> None:
        self._files = files
        self.path = path
        self._is_memory = "memory" in files.protocol
        self._file: Any = io.BytesIO() if self._is_memory else opened(files, path, "wb", autocommit=False)
        self._is_open = True

    def write(self, data: Any) -> int:
        """Take bytes."""
        written: int = self._file.write(data)
        return written

    def commit(self) -> None:
        """All is written: let the file appear."""
        self._is_open = False
        try:
            if self._is_memory:
                self._files.pipe_file(self.path, self._file.getvalue())
            else:
                self._file.close()
                self._file.commit()
        except Exception as error:
            raise translate_io_error(error, self.path, "written", self.path) from error

    def discard(self) -> None:
        """Drop it, where that can be done."""
        if self._is_open:
            self._is_open = False
            try:
                self._file.close()
                if not self._is_memory:
                    self._file.discard()
            except Exception:  # noqa: BLE001 -- what went wrong before is what has to be told
                return


class UnknownSizeError(ResourceError):
    """The store does not give the size of a file, as web servers that make it on the fly: it can be read in order."""


class FsspecStore:
    """One file of an fsspec file system."""

    def __init__(self, files: Any, path: str, name: str) -> None:
        self._files = files
        self._path = path
        self._options: dict[str, Any] = {}
        self.name = name

    def begin(self) -> tuple[int, list[tuple[int, bytes]]]:
        """The size and the end of the file, both at once where the store can do two things at a time.

        Elsewhere the size comes first, then beginning and end in proportion to it.
        """
        is_web = "http" in self._files.protocol
        if is_web:
            headers = {**self._files.kwargs.get("headers", {}), "Accept-Encoding": "identity"}
            self._options = {"headers": headers}
        info, edges = self._edges() if getattr(self._files, "async_impl", False) else (self._info(), None)
        if info.get("type") == "directory":
            raise IsDirectoryError(f"{self.name}: is a directory", filename=self.name)
        size = info.get("size")
        if not isinstance(size, int) or size < 0:
            raise UnknownSizeError(f"{self.name}: its size is not known, so it can't be read by ranges")
        mark = info.get("ETag")
        if is_web and isinstance(mark, str) and mark.startswith('"'):
            self._options["headers"]["If-Match"] = mark  # a file that was replaced since is refused by the server
        if edges is None or len(edges[1]) not in (size, min(size, _TAIL_BYTES)):
            spans = edge_spans(size, _EDGE_SHARE)
            return size, [(start, held) for (start, _), held in zip(spans, self.get(spans), strict=True)]
        head, tail = edges
        held = [(size - len(tail), tail)]
        if len(tail) < size:
            held.append((0, head[: min(len(head), size - len(tail))]))
        return size, held

    def _info(self) -> dict[str, Any]:
        try:
            return dict(self._files.info(self._path))
        except Exception as error:
            raise self._fault(error) from error

    def _edges(self) -> tuple[dict[str, Any], tuple[bytes, bytes] | None]:
        """What the store says of the file, and its first and last bytes; None for these where they did not come."""
        from asyncio import gather  # it takes long to import, and only some stores need it

        from fsspec.asyn import sync

        async def ask() -> Any:
            return await gather(
                self._files._info(self._path),
                self._files._cat_file(self._path, start=0, end=_HEAD_BYTES, **self._options),
                self._files._cat_file(self._path, start=-_TAIL_BYTES, end=None, **self._options),
                return_exceptions=True,
            )

        try:
            info, *edges = sync(self._files.loop, ask, timeout=_TIMEOUT_S)
        except Exception as error:
            raise self._fault(error) from error
        if isinstance(info, BaseException):
            raise self._fault(info) from info
        head, tail = edges
        if not isinstance(head, bytes) or not isinstance(tail, bytes) or not tail:
            return dict(info), None
        return dict(info), (head, tail)

    def get(self, spans: Sequence[Span]) -> Iterable[bytes]:
        """The bytes of all spans, side by side where the store can do several things at a time."""
        files = self._files
        paths, starts = [self._path] * len(spans), [start for start, _ in spans]
        ends = [start + size_bytes for start, size_bytes in spans]
        try:
            if getattr(files, "async_impl", False):
                from fsspec.asyn import sync

                answers = sync(files.loop, files._cat_ranges, paths, starts, ends, timeout=_TIMEOUT_S, **self._options)
            else:
                answers = files.cat_ranges(paths, starts, ends, on_error="return", **self._options)
        except Exception as error:
            raise self._fault(error) from error
        for answer in answers:
            if isinstance(answer, BaseException):
                raise self._fault(answer) from answer
            if not isinstance(answer, bytes | bytearray | memoryview):
                raise ResourceError(f"{self.name}: asked for bytes, found {type(answer).__name__}")
        return list(answers)

    def _fault(self, error: BaseException) -> Exception:
        status = getattr(error, "status", None)
        if status == 412:
            return ResourceError(f"{self.name}: the file was replaced after it had been opened")
        if status == 416:
            return TruncatedError(f"{self.name}: the file is shorter than it was when it was opened")
        return (
            translate_io_error(error, self.name, path=self.name)
            if isinstance(error, Exception)
            else ResourceError(f"{self.name}: {error!r}")
        )

    def close(self) -> None:
        """The file system is shared and stays open."""

"""Paths in object stores, with the methods of `pathlib.Path` that the code for folders uses.

An object store has no folders, `rename` or `link`, but a conditional put: an object is created only
if its name is not taken (``If-None-Match: *`` in S3 and Azure, ``ifGenerationMatch=0`` in Google Cloud Storage).
"""

from __future__ import annotations

import errno
import os
import stat
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

from bowstring.errors import (
    BowstringError,
    InvalidArgumentError,
    InvalidDataError,
    ResourceError,
    UnmetRequirementError,
    require_package,
)
from bowstring.io.http_responses import limit_responses
from bowstring.io.io_errors import missing_file_error, translate_io_error
from bowstring.redaction import redact, translated_errors

EXTRA = "fsspec"
# A store answers a put with a conflict while another put of the name is in progress, which takes well under a second.
MAX_CREATE_ATTEMPTS = 10
# The pause grows with each attempt: the other request has to end first.
CREATE_RETRY_S = 0.1
# Ten million names take minutes. A store could answer each page of a listing with another one for ever.
LISTING_TIMEOUT_S = 1800.0

_CONDITIONAL_PROTOCOLS = frozenset(("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "memory"))
"""File systems whose ``pipe_file(mode="create")`` is one conditional request; fsspec's own is two requests."""
_EXISTS_CODES = frozenset(("PreconditionFailed", "412"))
_CONFLICT_CODES = frozenset(("ConditionalRequestConflict", "OperationAborted", "409"))
"""Another put of the same name was in progress: neither may have succeeded."""
_TIME_KEYS = ("LastModified", "last_modified", "updated", "mtime", "created")
_DOTS = frozenset((".", ".."))
"""Keys are any text. Those with dots in place of a name are left out: a proxy may take them for another folder."""
_NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})


def resolve_url(url: str, options: Mapping[str, Any] = _NO_OPTIONS) -> tuple[Any, str]:
    """The file system of a URL and the path in it. Raises `MissingExtraError` if a package is missing for it."""
    if url.startswith("unix:"):
        raise missing_file_error(url)
    with require_package("fsspec", EXTRA):
        from fsspec.core import url_to_fs

    def translate(error: Exception) -> BowstringError:
        is_invalid = isinstance(error, ValueError) and not isinstance(error, BowstringError)
        return InvalidArgumentError(f"{url}: {error}") if is_invalid else translate_io_error(error, url, "opened", url)

    with translated_errors(translate, options):
        file_system, path = url_to_fs(url, **options)
    return limit_responses(file_system), path


@dataclass(frozen=True, slots=True)
class StoreFileStatus:
    """The result of `StorePath.stat`, with some of the names of `os.stat_result`."""

    st_size: int
    st_mtime: float
    st_ino: object
    """The object's ETag, if any: it changes when the object is replaced, as an inode does."""

    @property
    def st_mtime_ns(self) -> int:
        """The time of the last change in nanoseconds."""
        return int(self.st_mtime * 1e9)

    @property
    def st_ctime(self) -> float:
        """The time of the last change: an object is never renamed."""
        return self.st_mtime

    st_ctime_ns = st_mtime_ns


class StorePath:
    """The path of an object or of a folder. A folder exists as long as there are objects below its name.

    `options` are fsspec's storage options; they may be secret, and appear in no text. Methods raise the errors of
    `pathlib.Path`, which are also Bowstring's. A path from `iterdir` keeps the size and time of the listing.
    """

    __slots__ = ("_info", "options", "url")

    def __init__(
        self, url: str, options: Mapping[str, Any] = _NO_OPTIONS, info: Mapping[str, Any] | None = None
    ) -> None:
        scheme, _, path = url.partition("://")
        self.url = f"{scheme}://{path.rstrip('/')}"
        self.options = dict(options)
        self._info = info

    def __reduce__(self) -> tuple[Any, ...]:
        return StorePath, (self.url, self.options)

    def __str__(self) -> str:
        return redact(self.url)

    def __repr__(self) -> str:
        return f"<bowstring.io.StorePath {self}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StorePath) and (self.url, self.options) == (other.url, other.options)

    def __hash__(self) -> int:
        return hash(self.url)

    def __truediv__(self, name: str) -> StorePath:
        return StorePath(f"{self.url}/{name}", self.options)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.url.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The extension of the name, with the dot."""
        return Path(self.name).suffix

    @property
    def parent(self) -> StorePath:
        """The folder of the path."""
        return next(iter(self.parents), self)

    @property
    def parents(self) -> Sequence[StorePath]:
        """The folders that contain the path, the innermost first, and the bucket last."""
        scheme, *names = self.parts
        return [StorePath(scheme + "/".join(names[:stop]), self.options) for stop in range(len(names) - 1, 0, -1)]

    @property
    def parts(self) -> tuple[str, ...]:
        """The scheme, and the names that "/" separates."""
        scheme, _, path = self.url.partition("://")
        return (f"{scheme}://", *path.split("/"))

    def absolute(self) -> StorePath:
        """Return the path itself."""
        return self

    def resolve_location(self) -> tuple[Any, str]:
        """The fsspec file system and the path in it. Nothing that other processes create or remove is cached."""
        return resolve_url(self.url, {"use_listings_cache": False, **self.options})

    def stat(self) -> StoreFileStatus:
        """Size, time of the last change and ETag."""
        info = self._info if self._info is not None else self._request_info()
        modified = next((info[key] for key in _TIME_KEYS if info.get(key) is not None), 0.0)
        if isinstance(modified, str):
            modified = datetime.fromisoformat(modified)
        modified_s = modified.timestamp() if isinstance(modified, datetime) else float(modified)
        return StoreFileStatus(int(info.get("size") or 0), modified_s, info.get("ETag") or info.get("etag"))

    def exists(self) -> bool:
        """Whether there is an object with this name, or below it."""
        return self._find_kind() is not None

    def is_dir(self) -> bool:
        """Whether there are objects below this name, but none with this name."""
        return self._find_kind() == "directory"

    def is_file(self) -> bool:
        """Whether there is an object with this name."""
        return self._find_kind() == "file"

    def is_symlink(self) -> bool:
        """False: a store has no links."""
        return False

    def _find_kind(self) -> str | None:
        try:
            info = self._info if self._info is not None else self._request_info()
        except FileNotFoundError:
            return None
        return str(info.get("type"))

    def _request_info(self) -> dict[str, Any]:
        return dict(self._call("read", "info"))

    def iterdir(self) -> Iterator[StorePath]:
        """The objects and folders in this folder."""
        _, path = self.resolve_location()
        for info in self._call("read", "ls", detail=True, **self._listing_options()):
            full_name = str(info["name"]).strip("/")
            name = full_name.rpartition("/")[2]
            if name and name not in _DOTS and full_name != path.strip("/"):
                yield StorePath(f"{self.url}/{name}", self.options, info)

    def scan(self) -> Sequence[FolderEntry]:
        """The objects and folders in this folder, with their kinds."""
        return list(self.iterdir())

    def glob_urls(self) -> list[str]:
        """The URLs that match this one as a pattern."""
        file_system, _ = self.resolve_location()
        return [file_system.unstrip_protocol(name) for name in self._call("read", "glob", **self._listing_options())]

    def find_missing_folders(self) -> tuple[StorePath, ...]:
        """Nothing: folders need not be created."""
        return ()

    def iter_files(self, enters: Callable[[str], bool] = bool) -> Iterator[StorePath]:
        """The objects in this folder and those below it whose names are accepted by `enters`, by path."""
        infos: dict[str, Any] = self._call("read", "find", detail=True, **self._listing_options())
        base = self.resolve_location()[1].strip("/") + "/"
        for name in sorted(infos):
            relative_name = name.strip("/").removeprefix(base)
            *folders, last = relative_name.split("/")
            is_below = name.strip("/").startswith(base) and _DOTS.isdisjoint((*folders, last))
            if is_below and all(map(enters, folders)):
                yield StorePath(f"{self.url}/{relative_name}", self.options, infos[name])

    def _listing_options(self) -> dict[str, float]:
        """The deadline of a listing, for file systems that have one."""
        file_system, _ = self.resolve_location()
        return {"timeout": LISTING_TIMEOUT_S} if getattr(file_system, "async_impl", False) else {}

    def open(self, mode: str = "rb") -> Any:
        """Open an object for reading; each read requests only its own bytes."""
        return self._call("opened", "open", mode, cache_type="none")

    def read_bytes(self) -> bytes:
        """Read the whole object."""
        return bytes(self._call("read", "cat_file"))

    def read_text(self) -> str:
        """Read the whole object as text in UTF-8."""
        return self.read_bytes().decode()

    def replace_text(self, text: str) -> None:
        """Create or replace the object; a concurrent reader gets the previous content or this one."""
        self._call("written", "pipe_file", text.encode())

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the object."""
        try:
            self._call("removed", "rm_file")
        except FileNotFoundError:
            if not missing_ok:
                raise

    def mkdir(self, *, parents: bool = False, exist_ok: bool = False) -> None:
        """Do nothing: a folder exists with its objects."""

    def rmdir(self) -> None:
        """Do nothing: a folder exists with its objects."""

    def sync(self) -> None:
        """Do nothing: an object that was written is durable."""

    def stage(self, staging: str, name: str) -> StorePath:  # noqa: ARG002 -- LocalPath's
        """The path of a file until its commit, which is its final one, since a store cannot rename objects."""
        return self / name

    def iter_staged(self, staging: str) -> Iterator[StorePath]:  # noqa: ARG002 -- LocalPath's
        """The files that have such paths, among others."""
        return self.iter_files()

    def place(self, staging: str, name: str) -> None:
        """Do nothing: the file is in its place."""

    def create(self, content: bytes) -> bool:
        """Create the object by a conditional put; False if an object with other content exists.

        If a reply was lost, the client repeats the request and finds its own object, so equal content is success.
        """
        file_system, path = self.resolve_location()
        for attempt in range(MAX_CREATE_ATTEMPTS):
            try:
                file_system.pipe_file(path, content, mode="create")
            except Exception as error:
                code = _find_error_code(error)
                if isinstance(error, FileExistsError) or code in _EXISTS_CODES:
                    return self.read_bytes() == content
                if code not in _CONFLICT_CODES:
                    with self._translated_errors("written"):
                        raise
                # Another request for the same object is in progress: its outcome is not known yet.
                time.sleep(CREATE_RETRY_S * attempt)
            else:
                return True
        raise ResourceError(f"{self}: other requests conflicted with {MAX_CREATE_ATTEMPTS} attempts to create it")

    def check_conditional_put(self) -> None:
        """Raise `UnmetRequirementError` unless the store of this folder rejects creating an object twice.

        Servers that ignore the condition are detected by a probe, once for each bucket and client.
        """
        file_system, _ = self.resolve_location()
        protocol = file_system.protocol
        protocols = {protocol} if isinstance(protocol, str) else set(protocol)
        key = (self.url.split("/")[2], file_system._fs_token) if hasattr(file_system, "_fs_token") else None
        if key in _checked_stores:
            return
        is_conditional = not protocols.isdisjoint(_CONDITIONAL_PROTOCOLS)
        if is_conditional:
            probe = self / f".probe-{uuid.uuid4().hex}"
            try:
                is_conditional = probe.create(b"1") and not probe.create(b"2")
            finally:
                with suppress(BowstringError):
                    probe.unlink(missing_ok=True)
        if not is_conditional:
            raise UnmetRequirementError(
                f"{self}: this store has no conditional put ({type(file_system).__name__}, If-None-Match: *), so "
                f"concurrent commits could be lost: write to a store that has it, such as Amazon S3, Google Cloud "
                f"Storage, Azure Blob Storage or a recent MinIO, or to a folder of a file system"
            )
        if key is not None:
            _checked_stores.add(key)

    def _call(self, operation: str, method: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of the file system with the path, and translate its errors."""
        file_system, path = self.resolve_location()
        with self._translated_errors(operation):
            return getattr(file_system, method)(path, *arguments, **options)

    def _translated_errors(self, operation: str) -> AbstractContextManager[None]:
        return translated_errors(lambda error: self._translate_error(error, operation), self.options)

    def _translate_error(self, error: Exception, operation: str) -> BowstringError:
        """Return Bowstring's error for one of the file system."""
        if isinstance(error, FileNotFoundError) and isinstance(
            error.__cause__, KeyError
        ):  # of fsspec's file system in memory
            error = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self))
        return translate_io_error(error, str(self), operation, str(self))


FolderPath: TypeAlias = Path | StorePath
"""The path of a folder or file, local or in a store."""
FolderEntry: TypeAlias = os.DirEntry[str] | StorePath
"""A file or folder with the facts in its folder's listing."""

_checked_stores: set[tuple[str, object]] = set()


def find_relative_name(path: FolderPath, folder: FolderPath) -> str | None:
    """Return the path relative to a folder, with "/" between names and "." for itself; None if it is elsewhere."""
    if isinstance(path, StorePath) or isinstance(folder, StorePath):
        text, base = (each.url if isinstance(each, StorePath) else str(each) for each in (path, folder))
        return (text[len(base) + 1 :] or ".") if f"{text}/".startswith(f"{base}/") else None
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else None


def check_regular_file(path: str | os.PathLike[str] | StorePath) -> None:
    """Raise `InvalidDataError` for a pipe, socket or device where a manifest or a description names a file: reading it
    may never end. Whoever opens a path reports other errors.
    """
    if isinstance(path, StorePath):
        return
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise InvalidDataError(f"{os.fspath(path)}: expected a regular file, found a pipe, socket or device")


def read_files(paths: Sequence[FolderPath], max_bytes: int) -> list[bytes]:
    """The first `max_bytes` of each file; files of a store are requested in parallel.

    Raises `OSError`, which is `FileNotFoundError` if one does not exist.
    """
    store_paths = [path for path in paths if isinstance(path, StorePath)]
    if not store_paths:
        contents = []
        for path in paths:
            check_regular_file(path)
            with path.open("rb") as file:
                contents.append(file.read(max_bytes))
        return contents
    file_system, _ = store_paths[0].resolve_location()
    names = [path.resolve_location()[1] for path in store_paths]
    replies = file_system.cat_ranges(names, [0] * len(names), [max_bytes] * len(names), on_error="return")
    for path, reply in zip(store_paths, replies, strict=True):
        if isinstance(reply, Exception):
            with path._translated_errors("read"):
                raise reply
    return [bytes(reply) for reply in replies]


def _find_error_code(error: BaseException | None) -> str | None:
    """The code of S3's reply that led to an error."""
    while error is not None:
        response = getattr(error, "response", None)
        if isinstance(response, Mapping):
            return str(response.get("Error", {}).get("Code"))
        error = error.__cause__
    return None

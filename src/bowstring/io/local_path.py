"""Folders that several processes write, local or in an object store: `as_folder` gives both the same methods.

fsspec has local files, too, but is an extra, and neither links files nor flushes them to the disk. So `LocalPath`
uses `os`.
"""

from __future__ import annotations

import logging
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from glob import glob
from pathlib import Path, PosixPath
from typing import TypeAlias
from urllib.parse import quote, unquote, urlsplit

from bowstring.errors import ConnectionLostError, InvalidArgumentError, MissingFileError, translate_os_error
from bowstring.io.store_path import FolderEntry, FolderPath, StorePath
from bowstring.memory.closable import call_on_error

_LOG = logging.getLogger(__name__)
_FILE_URI = re.compile("file:", re.IGNORECASE)
# Each attempt fails only if another job removes the empty folder in the same instant.
MKDIR_ATTEMPTS = 10


def is_file_uri(text: object) -> bool:
    """Return whether a text is a `file:` URI."""
    return isinstance(text, str) and _FILE_URI.match(text) is not None


def parse_file_uri(uri: str) -> str:
    """Return the path of a `file:` URI.

    Raises `ConnectionLostError` for a file of another host, and `InvalidArgumentError` for a URI that does not have an
    absolute path only (RFC 8089).
    """
    try:
        parts = urlsplit(uri)
    except ValueError as error:
        raise InvalidArgumentError(f"{uri}: not a URI: {error}") from None
    if parts.netloc not in ("", "localhost", os.uname().nodename):
        raise ConnectionLostError(f"{uri}: a file of another host")
    if not parts.path.startswith("/") or parts.query or parts.fragment:
        raise InvalidArgumentError(f"{uri}: expected file:///PATH, with an absolute path; quote '?' and '#'")
    return unquote(parts.path, errors="surrogateescape")


def to_file_uri(path: str | os.PathLike[str]) -> str:
    """Return the `file:` URI of a path, also of one that is not UTF-8. Raises as `absolute_path`."""
    return f"file://{quote(os.path.normpath(absolute_path(path)), errors='surrogateescape')}"


class LocalPath(PosixPath):
    """The path of a local file or folder."""

    __slots__ = ()

    @property
    def url(self) -> str:
        """The path itself, as text."""
        return str(self)

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Return the status; `is_dir` and `exists` use it. Errors are also Bowstring's, as those of `StorePath`."""
        try:
            return super().stat(follow_symlinks=follow_symlinks)
        except OSError as error:
            raise translate_os_error(error, f"{self}: {error.strerror}") from None

    def glob_urls(self) -> list[str]:
        """The paths that match this one as a pattern."""
        return glob(str(self))

    def scan(self) -> Sequence[FolderEntry]:
        """The files and folders in this folder, with their kinds."""
        with os.scandir(self) as entries:
            return list(entries)

    def iter_files(self, enters: Callable[[str], bool] = bool) -> Iterator[LocalPath]:
        """The files in this folder and those below it whose names are accepted by `enters`."""
        for parent, folder_names, names in os.walk(self):
            folder_names[:] = filter(enters, folder_names)
            yield from (LocalPath(parent, name) for name in names)

    def find_missing_folders(self) -> tuple[LocalPath, ...]:
        """This folder and those above it that do not exist, the innermost first."""
        return tuple(path for path in (self, *self.parents) if not path.exists())

    def check_conditional_put(self) -> None:
        """Do nothing: file systems link a file only to a name that is not taken."""

    def create(self, content: bytes) -> bool:
        """Create the file and its folder, durably and atomically; False if it exists."""
        temporary = self.with_name(f".{uuid.uuid4().hex}")
        try:
            self.parent.mkdir(exist_ok=True)
            with temporary.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(temporary, self)
            except FileExistsError:
                return False
            try:
                self.parent.sync()
            except OSError as problem:  # the file exists: after an error, the caller would create another one
                _LOG.warning("%s: exists, but may be lost if the host fails: %s", self, problem.strerror)
        except OSError as problem:
            raise translate_os_error(problem, f"{self}: cannot be created: {problem.strerror}") from problem
        finally:
            with suppress(OSError):
                temporary.unlink()
        return True

    def replace_text(self, text: str) -> None:
        """Create or replace the file; a concurrent reader gets the previous content or this one."""
        temporary = self.with_name(f".{uuid.uuid4().hex}")
        with call_on_error(temporary.unlink, True):  # which need not exist
            temporary.write_text(text)
            temporary.replace(self)

    def sync(self) -> None:
        """Make the content of a file durable, or the names in a folder."""
        descriptor = os.open(self, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def stage(self, staging: str, name: str) -> LocalPath:
        """The path of a file until its commit: in the folder `staging` of this one, which has no folders."""
        return self / staging / name.rpartition("/")[2]

    def iter_staged(self, staging: str) -> Iterator[LocalPath]:
        """The files that have such paths."""
        return (self / staging).iter_files()

    def place(self, staging: str, name: str) -> None:
        """Move a staged file to its name in this folder, and create the folder of its partition."""
        source, target = self.stage(staging, name), self / name
        for attempt in range(MKDIR_ATTEMPTS):
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                source.rename(target)
                return
            except FileNotFoundError:  # another job has just removed an empty folder above it
                if attempt == MKDIR_ATTEMPTS - 1 or not source.exists():
                    raise


Folder: TypeAlias = LocalPath | StorePath
"""A path with the methods that `pathlib.Path` and `StorePath` share, and the methods of `LocalPath`."""


def absolute_path(path: str | os.PathLike[str]) -> str:
    """The absolute path. Raises `MissingFileError` for a relative one in a working folder that was removed."""
    try:
        return str(Path(path).absolute())
    except FileNotFoundError as error:
        raise MissingFileError(f"{os.fspath(path)}: the working folder was removed", error, os.fspath(path)) from None


def as_folder(path: str | os.PathLike[str] | StorePath) -> Folder:
    """The same path, with the methods for folders."""
    return path if isinstance(path, StorePath) else LocalPath(path)


def read_clock(folder: FolderPath) -> float:
    """The time of the file server or store that has a folder, in seconds since 1970; this host's if that is earlier, or
    if no file can be created. The age of a file is wrong by another clock.
    """
    probe = as_folder(folder / f".{uuid.uuid4().hex}")
    try:
        probe.replace_text("")
        modified_s = probe.stat().st_mtime
        probe.unlink(missing_ok=True)
    except OSError:
        return time.time()
    return min(float(modified_s), time.time())

"""The folder in which oracles write data that must be a file."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path

_folders: list[Path] = []


def use_folder(folder: Path) -> None:
    """Use this folder. The caller deletes it: a worker is killed and cannot."""
    folder.mkdir(parents=True, exist_ok=True)
    _folders[:] = [folder]


def folder() -> Path:
    """The folder; by default, one that is deleted when the process exits."""
    if not _folders:
        use_folder(Path(tempfile.mkdtemp(prefix="bowstring-fuzz-")))
        atexit.register(shutil.rmtree, _folders[0], ignore_errors=True)
    return _folders[0]


def write_file(name: str, data: bytes) -> Path:
    """Write a file with these bytes."""
    path = folder() / name
    path.write_bytes(data)
    return path

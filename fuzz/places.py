"""Where an oracle puts bytes that have to be a file: a folder of this process."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path

_chosen: list[Path] = []


def choose(folder: Path) -> None:
    """Use this folder, which whoever chose it looks after: a worker is killed, and cleans up nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    _chosen[:] = [folder]


def folder() -> Path:
    """The folder; where none was chosen, one that goes with the process."""
    if not _chosen:
        choose(Path(tempfile.mkdtemp(prefix="bowstring-fuzz-")))
        atexit.register(shutil.rmtree, _chosen[0], ignore_errors=True)
    return _chosen[0]


def put(name: str, data: bytes) -> Path:
    """A file with these bytes."""
    path = folder() / name
    path.write_bytes(data)
    return path

"""What became of published data sets whose host agent has ended: files of names, which are read for errors only.

An agent remembers why its data sets have ended as long as it runs. For the time afterwards, it keeps a file with its
newest names and reasons in memory that all processes of the host share: if it is killed, the file shows what it had,
and by its time of modification until when. Nothing but the text of an error depends on these files.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
import time
from contextlib import suppress
from itertools import islice
from pathlib import Path

from bowstring.io.local_path import LocalPath
from bowstring.sharing.processes import ProcessIdentity

# The same for all processes of a user, whatever their environment is; a restart of the host empties it.
_PARENT = Path("/dev/shm")
_MAX_FILES = 100
"""Of the agents that ended last and of those that run."""
_STALE_S = 60.0
"""The age of a file that is being written from which on its agent was killed meanwhile."""
_MAX_NAMES = 1000
"""The data sets of each kind in a file, some 200 bytes each."""


class EndRecord:
    """The file of this agent. Failures are ignored, such as of a full or read-only file system."""

    def __init__(self) -> None:
        self._path = LocalPath(_folder() / secrets.token_hex(8))
        self._agent = ProcessIdentity.current()
        with suppress(OSError):
            _folder().mkdir(mode=0o700, exist_ok=True)
            temporary = [
                path for path in _list_files(is_temporary=True) if path.stat().st_mtime < time.time() - _STALE_S
            ]
            for path in (*_list_files()[_MAX_FILES:], *temporary):
                path.unlink()

    def write(self, published: dict[str, str], ended: dict[str, tuple[str | None, str]]) -> None:
        """Replace the content: the names of published data sets by their IDs, and names and reasons of ended ones."""
        newest = [{key: each[key] for key in islice(reversed(each), _MAX_NAMES)} for each in (published, ended)]
        agent = (self._agent.pid, self._agent.start_ticks, self._agent.host)
        with suppress(OSError):
            if _is_private(_folder()):
                self._path.replace_text(json.dumps([agent, *newest]))

    def touch(self) -> None:
        """Show that the agent runs."""
        with suppress(OSError):
            os.utime(self._path)


def find_recorded_end(name: str) -> str:
    """Return why the last data set with a name or ID has ended whose agent has ended, too; "" if it is not known."""
    for path in _list_files():
        with suppress(OSError, ValueError, TypeError, AttributeError, RecursionError):
            (pid, start_ticks, host), published, ended = json.loads(path.read_text())
            agent = ProcessIdentity(pid, start_ticks, host)
            if agent.is_alive() or not agent.is_local:
                continue
            for dataset_id, dataset_name in published.items():
                if name in (dataset_id, dataset_name):
                    at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(path.stat().st_mtime))
                    return (
                        f"data set {dataset_id!r} was lost when its host agent, process {pid}, was killed at about {at}"
                    )
            for dataset_id, (dataset_name, reason) in ended.items():
                if name in (dataset_id, dataset_name):
                    return str(reason)
    return ""


def _folder() -> Path:
    return _PARENT / f"bowstring-{os.getuid()}"


def _is_private(folder: Path) -> bool:
    """Whether it is a folder that only this user reads and writes: any user can create one with this name."""
    status = folder.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077


def _list_files(*, is_temporary: bool = False) -> list[Path]:
    """The files of agents, or those that are being written, the newest first."""
    with suppress(OSError):
        if _is_private(_folder()):
            paths = [path for path in _folder().iterdir() if path.name.startswith(".") is is_temporary]
            return sorted(paths, key=lambda path: path.stat().st_mtime, reverse=True)
    return []

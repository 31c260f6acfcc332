"""Where a job's files lie until it commits, and how another job knows that it never will.

A job's folder is made on the driver before its tasks run, and no task makes it again: an attempt that comes too late,
after the commit or the abort, finds no folder and fails. The folder names its owner, the driver's JVM; a later job
removes what a dead owner left, at once where it can tell (same machine and process namespace), else after a day
without a change.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from pathlib import Path

from bowstring.errors import ResourceError
from bowstring.spark.manifest import STAGING, is_part_of, latest

STALE_S = 24 * 3600.0
OWNER = "owner.json"


def create(folder: Path, job: str) -> Path:
    """Make the staging folder of `job` under `folder`, which is made as well.

    Raises:
        ResourceError: it can't be made (no permission, a file of that name, a full disk).
    """
    staging = folder / STAGING / job
    try:
        staging.mkdir(parents=True)
        (staging / OWNER).write_text(json.dumps(_own_driver()))
    except OSError as problem:
        raise ResourceError(f"{problem.filename or staging}: cannot be written: {problem.strerror}") from problem
    return staging


def discard(folder: Path, job: str) -> None:
    """Remove all files of `job`, unless a manifest lists them: then only its staging folder."""
    manifest = latest(folder)
    if manifest is None or not any(is_part_of(entry.name, job) for entry in manifest.entries):
        for path in folder.iterdir():
            if is_part_of(path.name, job):
                path.unlink(missing_ok=True)
    remove_folder(folder, job)


def remove_folder(folder: Path, job: str) -> None:
    """Remove the staging folder of `job`, and the folder above it if it is the last."""
    shutil.rmtree(folder / STAGING / job, ignore_errors=True)
    with contextlib.suppress(OSError):
        (folder / STAGING).rmdir()


def sweep(folder: Path) -> None:
    """Discard every job under `folder` whose owner is dead, or unknown and silent for STALE_S."""
    with contextlib.suppress(FileNotFoundError):
        for staging in list((folder / STAGING).iterdir()):
            if _is_orphan(staging):
                discard(folder, staging.name)


def _is_orphan(staging: Path) -> bool:
    try:
        owner = json.loads((staging / OWNER).read_text())
        machine, pid, started = str(owner["machine"]), int(owner["pid"]), int(owner["started"])
    except (OSError, ValueError, KeyError, TypeError):
        machine, pid, started = "", 0, 0
    if pid > 0 and machine and machine == _machine():
        return _start_time(pid) != started
    with contextlib.suppress(OSError):
        changes_s = [path.stat().st_mtime for path in (staging, *staging.iterdir())]
        return max(changes_s) < time.time() - STALE_S
    return False


def _own_driver() -> dict[str, object]:
    """The nearest JVM above this process, which runs on the driver; pid 0 where there is none to see."""
    pid = os.getppid()
    while pid > 1:
        status = _status(pid)
        if status is None:
            break
        command, parent, started = status
        if command == "java":
            return {"machine": _machine(), "pid": pid, "started": started}
        pid = parent
    return {"machine": _machine(), "pid": 0, "started": 0}


def _machine() -> str:
    """What tells this boot of this machine and this process namespace from any other; empty where it can't be told."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return ""


def _start_time(pid: int) -> int | None:
    status = _status(pid)
    return None if status is None else status[2]


def _status(pid: int) -> tuple[str, int, int] | None:
    """Command, parent and start time (in clock ticks since boot) of a living process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    command, _, rest = text[text.index("(") + 1 :].rpartition(") ")
    state, parent, *others = rest.split()
    return None if state in "ZX" else (command, int(parent), int(others[17]))

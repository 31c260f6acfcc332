"""Staging folders: the files of a job until its commit, and the removal of orphaned ones.

The driver creates a job's folder before its tasks run. An attempt that starts after the commit or abort finds no folder
and fails. The folder contains its owner: the driver's JVM, and during the commit the process that commits, which may
outlive a killed JVM. A later job removes the folder of a dead owner, at once on the same machine and in the same
process namespace, otherwise after a day without a change.

In an object store nothing can be renamed. There the staging folder has only the owner, and tasks write their files to
their final names, which count when a manifest lists them.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import Any

from bowstring.datasets.manifest import STAGING_FOLDER, is_data_file_name, iter_data_files, read_manifest
from bowstring.errors import BowstringError, translate_os_error
from bowstring.io.local_path import MKDIR_ATTEMPTS, as_folder, read_clock
from bowstring.io.store_path import FolderPath, check_regular_file, find_relative_name
from bowstring.sharing.processes import ProcessIdentity, find_java_ancestor

# Longer than any task writes without creating or changing a file, as far as can be known from another machine.
ORPHAN_AGE_S = 24 * 3600.0
OWNER_FILE_NAME = "owner.json"


def create_staging_folder(
    folder: FolderPath, job: str, query: str | None = None, owner: ProcessIdentity | None = None
) -> Sequence[FolderPath]:
    """Create the staging folder of `job` under `folder`, and `folder` itself; return `folder` and those above it that
    did not exist. Each task of a streaming query does this, so the staging folder may exist. The owner is by default
    the JVM that has started this process.

    Raises:
        BowstringError, also an OSError: it can't be created (no permission, a file with this name, a full
            disk); then nothing is left.
    """
    staging = folder / STAGING_FOLDER / job
    missing = as_folder(folder).find_missing_folders()
    try:
        for attempt in range(MKDIR_ATTEMPTS):
            try:
                # A job's ID is random: a folder that exists is an error, except for the tasks of one batch of a query.
                staging.mkdir(parents=True, exist_ok=query is not None)
                break
            except FileNotFoundError:  # another job has just removed an empty folder above it
                if attempt == MKDIR_ATTEMPTS - 1:
                    raise
        # All tasks of a query write the same owner. Once it exists they do not replace it, since the process that
        # commits may have become the owner.
        if query is None or not (staging / OWNER_FILE_NAME).exists():
            _write_owner(staging, owner or find_java_ancestor(), query)
    except OSError as problem:
        if query is None:  # otherwise other tasks may have written to it
            remove_staging_folder(folder, job)
        remove_empty_folders(missing)
        message = f"{problem.filename or staging}: cannot be written: {problem.strerror}"
        raise translate_os_error(problem, message) from problem
    return missing


def take_over(folder: FolderPath, job: str) -> None:
    """Make this process the owner of a job, so that no other process removes its files while this process commits
    them, even if the JVM is killed. Raises `OSError`.
    """
    staging = folder / STAGING_FOLDER / job
    _write_owner(staging, ProcessIdentity.current(), _read_owner_record(staging).get("query"))


def remove_empty_partition_folders(folder: FolderPath, names: Iterable[str]) -> None:
    """Remove the partition folders that had these files of `folder`, relative paths, and are empty."""
    parents = {parent for name in names for parent in PurePosixPath(name).parents if parent.name}
    remove_empty_folders(sorted((folder / str(parent) for parent in parents), key=lambda path: -len(path.parts)))


def remove_empty_folders(folders: Iterable[FolderPath]) -> None:
    """Remove the empty ones of `folders`, the innermost first."""
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


def discard_job(folder: FolderPath, job: str) -> None:
    """Remove all files of `job`, unless a manifest lists them: then only its staging folder."""
    manifest = read_manifest(folder)
    # A commit lists all files of a job at once, and a later one may replace some of them: if one is listed, the job has
    # committed, and the others are removed by the job that replaced them.
    if manifest is None or not any(is_data_file_name(entry.name, job) for entry in manifest.entries):
        paths = [path for path in iter_data_files(folder) if is_data_file_name(path.name, job)]
        for path in paths:
            path.unlink(missing_ok=True)
        remove_empty_partition_folders(folder, [find_relative_name(path, folder) or "" for path in paths])
    remove_staging_folder(folder, job)


def list_files(folder: FolderPath, job: str) -> list[FolderPath]:
    """The files of the staging folder of `job`; none if it is removed meanwhile."""
    return _list_folder(folder / STAGING_FOLDER / job)


def list_staged_files(folder: FolderPath, job: str) -> list[FolderPath]:
    """The files that tasks of `job` have written, and that its commit has not moved."""
    staged = as_folder(folder).iter_staged(f"{STAGING_FOLDER}/{job}")
    return [path for path in staged if is_data_file_name(path.name, job)]


def remove_staging_folder(folder: FolderPath, job: str) -> None:
    """Remove the staging folder of `job`, and the folder above it if it is the last."""
    staging = folder / STAGING_FOLDER / job
    for path in _list_folder(staging):
        with contextlib.suppress(BowstringError, OSError):
            path.unlink(missing_ok=True)
    remove_empty_folders((staging, folder / STAGING_FOLDER))


def discard_orphaned_jobs(folder: FolderPath) -> None:
    """Discard every job under `folder` whose owner is dead, or unknown and unchanged for ORPHAN_AGE_S."""
    for job in list_orphaned_jobs(folder):
        discard_job(folder, job)


def list_orphaned_jobs(folder: FolderPath) -> list[str]:
    """The jobs whose owner is dead, or unknown and unchanged for ORPHAN_AGE_S."""
    return [staging.name for staging in _list_folder(folder / STAGING_FOLDER) if _is_orphaned(staging)]


def list_jobs(folder: FolderPath) -> list[str]:
    """The jobs that have a staging folder."""
    return [staging.name for staging in _list_folder(folder / STAGING_FOLDER)]


def discard_jobs_of_query(folder: FolderPath, query: str) -> None:
    """Discard the jobs of the batches of a streaming query: those that failed, or of which a task was late."""
    for staging in _list_folder(folder / STAGING_FOLDER):
        if _read_owner_record(staging).get("query") == query:
            discard_job(folder, staging.name)


def _write_owner(staging: FolderPath, owner: ProcessIdentity | None, query: str | None) -> None:
    """Write the owner's file; a concurrent reader gets the previous one or this one."""
    as_folder(staging / OWNER_FILE_NAME).replace_text(encode_owner_json(owner, query))


def _list_folder(folder: FolderPath) -> list[FolderPath]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []  # there is none, or `create_staging_folder` reports why it can't be read


def _read_owner_record(staging: FolderPath) -> dict[str, Any]:
    """The record of a staging folder's owner; empty if it can't be read."""
    try:
        check_regular_file(staging / OWNER_FILE_NAME)
        record = json.loads((staging / OWNER_FILE_NAME).read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def _is_orphaned(staging: FolderPath) -> bool:
    owner = read_owner(staging)
    if owner.pid > 0 and owner.is_local:
        return not owner.is_alive()
    # The process of another machine or container can't be seen from here: only its files show that it still writes.
    with contextlib.suppress(OSError):  # if another process removes them meanwhile
        written = list_staged_files(staging.parent.parent, staging.name)
        modified_times_s = [path.stat().st_mtime for path in (staging, *staging.iterdir(), *written)]
        newest_s = max(modified_times_s, default=0.0) + ORPHAN_AGE_S
        return newest_s < time.time() and newest_s < read_clock(staging.parent)
    return False


def read_owner(folder: FolderPath) -> ProcessIdentity:
    """The process that a folder belongs to; one with the ID 0 if it is not known."""
    record = _read_owner_record(folder)
    try:
        return ProcessIdentity(int(record["pid"]), int(record["started"]), str(record["machine"]))
    except (ValueError, KeyError, TypeError):
        return _UNKNOWN_OWNER


def encode_owner_json(owner: ProcessIdentity | None, query: str | None = None) -> str:
    """The JSON record of a staging folder's owner, if known, and of the streaming query that it belongs to, if any."""
    process = owner or _UNKNOWN_OWNER
    record = {"machine": process.host, "pid": process.pid, "started": process.start_ticks}
    return json.dumps(record if query is None else {**record, "query": query})


_UNKNOWN_OWNER = ProcessIdentity(0, 0, "")

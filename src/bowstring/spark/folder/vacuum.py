"""Remove files of a folder that no manifest lists: superseded ones, and files of jobs that have died."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bowstring.datasets.manifest import (
    is_data_file_name,
    iter_data_files,
    read_listed_names,
    read_manifest,
    remove_old_manifests,
)
from bowstring.errors import InvalidArgumentError, MissingFileError, translate_os_error
from bowstring.io.local_path import as_folder
from bowstring.io.store_path import FolderPath, find_relative_name
from bowstring.spark.folder import staging
from bowstring.spark.options import parse_path

VACUUM_AGE_S = 24 * 3600.0
"""The default age of files that are removed."""


def vacuum(
    path: str | Path,
    *,
    older_than_s: float = VACUUM_AGE_S,
    dry_run: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> list[FolderPath]:
    """Remove files that no manifest of a folder lists, and return their paths; with `dry_run`, only return them.

    `storage_options` are fsspec's options for a URL. Kept are the files of running jobs, those that a manifest of the
    last hour lists, for readers that have begun, those changed in the last `older_than_s` seconds (a day), and those
    that Bowstring has not written. Removed are the files of jobs whose driver has died, too. It needs no Spark, and may
    run beside readers and writers.

    Raises `MissingFileError` if there is no such folder, `InvalidArgumentError` for a negative age, and errors that are
    also an `OSError` if a file can't be removed.
    """
    if not older_than_s >= 0:
        raise InvalidArgumentError(f"older_than_s: expected a number of seconds, found {older_than_s!r}")
    folder = as_folder(parse_path(str(path), storage_options))
    if not folder.is_dir():
        raise MissingFileError(f"{folder}: there is no such folder", filename=str(folder))
    try:
        orphaned = staging.list_orphaned_jobs(folder)
        staged = sorted((path for job in orphaned for path in staging.list_files(folder, job)), key=str)
        unlisted = _find_unlisted_files(folder, time.time() - older_than_s, orphaned)
        if dry_run:
            return [*staged, *unlisted]
        for job in orphaned:
            staging.discard_job(folder, job)
        for file in unlisted:
            file.unlink(missing_ok=True)
        staging.remove_empty_partition_folders(folder, [find_relative_name(file, folder) or "" for file in unlisted])
        if read_manifest(folder) is not None:
            remove_old_manifests(folder)
    except OSError as problem:
        raise translate_os_error(problem, f"{problem.filename}: cannot be removed: {problem.strerror}") from problem
    return [*staged, *unlisted]


def _find_unlisted_files(folder: FolderPath, oldest_s: float, orphaned_jobs: list[str]) -> list[FolderPath]:
    # In this order: a job moves its files, commits them, and then removes its staging folder.
    files = sorted(iter_data_files(folder), key=str)
    running_jobs = [job for job in staging.list_jobs(folder) if job not in orphaned_jobs]
    listed_names = read_listed_names(folder)
    unlisted = []
    for file in files:
        is_listed = find_relative_name(file, folder) in listed_names
        if is_listed or any(is_data_file_name(file.name, job) for job in running_jobs):
            continue
        try:
            status = file.stat()
        except FileNotFoundError:
            continue
        if max(status.st_mtime, status.st_ctime) <= oldest_s:  # a move to the folder changes the latter only
            unlisted.append(file)
    return unlisted

"""Find the files that ``spark.read.format("arrow")`` reads, as Spark's own sources do: files, then partitions.

1. Paths and globs become files. The files of a folder are listed in its manifest; otherwise they are the Arrow files in
   it and in its partition folders (``key=value``), or at any depth with ``recursiveFileLookup``.
2. ``pathGlobFilter``, ``modifiedAfter`` and ``modifiedBefore`` select some of them.
3. The names of the partition folders between a file and the path that was loaded, or ``basePath``, are the values of
   partition columns.

`bowstring.spark.source.reader` reads their schemas, and splits them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bowstring.datasets.manifest import (
    DATA_SUFFIXES,
    Manifest,
    ManifestEntry,
    has_job_folders,
    is_data_file_name,
    read_manifest,
)
from bowstring.errors import InvalidArgumentError, InvalidDataError, MissingFileError, add_location, translate_os_error
from bowstring.io.local_path import as_folder
from bowstring.io.store_path import FolderPath, StoreFileStatus, find_relative_name
from bowstring.spark.folder.partition_values import PartitionValue, infer_partition_schema, parse_partition_folder
from bowstring.spark.options import ReadOptions
from bowstring.spark.path_globs import expand_glob, is_hidden
from bowstring.spark.types import parse_struct_type

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


MISSING_FILE_ADVICE = 'set the option ignoreMissingFiles to "true" to read without its rows'


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of the data."""

    path: FolderPath
    length_bytes: int
    modified_ns: int
    partition: tuple[PartitionValue, ...] = ()
    entry: ManifestEntry | None = None
    """The file's entry in the manifest, if any."""
    problem: InvalidDataError | None = None
    """Why the file is known to be malformed, if it is."""


@dataclass(frozen=True, slots=True)
class FolderFiles:
    """The files in a folder that are read."""

    folder: FolderPath
    files: tuple[DataFile, ...]
    manifest: Manifest | None = None
    """The one that lists the files; None without one."""


def find_files(paths: Sequence[FolderPath], options: ReadOptions) -> list[FolderFiles]:
    """Return the files of some paths and globs, and the manifests that list them.

    Raises:
        MissingFileError: a path does not exist, or a file that a manifest lists.
        InvalidArgumentError: the partition folders of the files differ in their columns.
    """
    folders: list[FolderFiles] = []
    for path in paths:
        roots = [path] if path.exists() else _expand_to_committed(path)
        if not roots:
            raise MissingFileError(f"{path}: there is no such file or folder", filename=str(path))
        if options.base_path is None and not options.recursive_file_lookup:
            _check_lost_columns(roots, paths[0])
        # A glob such as ** may match a folder and what is in it.
        seen: set[FolderPath] = set()
        for folder in (folder for root in roots for folder in _find_root_files(root, options)):
            folders.append(replace(folder, files=tuple(file for file in folder.files if file.path not in seen)))
            seen.update(file.path for file in folder.files)
    _check_partition_columns(file for folder in folders for file in folder.files)
    return folders


def find_partition_schema(folders: Sequence[FolderFiles], options: ReadOptions) -> StructType:
    """Return the partition columns of files, with the types in their manifests, or else the types of the values."""
    partitions = [file.partition for folder in folders for file in folder.files if file.partition]
    schema = infer_partition_schema(partitions, options.time_zone, infers_types=options.partition_column_type_inference)
    for folder in folders:
        if folder.manifest is not None and folder.manifest.partition_schema is not None:
            listed = parse_struct_type(folder.folder, folder.manifest.partition_schema)
            fields = {field.name: field for field in listed.fields}
            if not partitions and not folder.files:
                return listed
            schema = type(listed)([fields.get(field.name, field) for field in schema.fields])
    return schema


def read_listed_file(
    folder: FolderPath, list_name: str, entry: ManifestEntry, base: FolderPath, options: ReadOptions
) -> DataFile | None:
    """Return the file of an entry of a manifest or another list; None if the options do not select it.

    Raises `MissingFileError` if it does not exist, `InvalidDataError` if it has another size than in the list, unless
    the options tolerate that.
    """
    path = folder / entry.name
    try:
        status = path.stat()
    except FileNotFoundError as error:
        if options.ignore_missing_files:
            return None
        raise MissingFileError(
            f"{path}: is missing, though {list_name} lists it: it was removed before it was read; "
            f"{MISSING_FILE_ADVICE}",
            error,
        ) from None
    problem = None
    try:
        entry.check_size(status.st_size, list_name)
    except InvalidDataError as error:
        problem = add_location(error, str(path))
        if not options.tolerates_malformed:
            raise problem from None
    if not options.selects(path, status):
        return None
    partition = () if options.recursive_file_lookup else _parse_partition(path.parent, base)
    return DataFile(path, status.st_size, status.st_mtime_ns, partition, entry, problem)


def find_unlisted_files(folder: FolderPath, options: ReadOptions) -> Iterator[DataFile]:
    """Yield the files of a folder without a manifest, by path."""
    for found in _walk(folder, options.base_path or folder, options, ()):
        if found.manifest is None:
            yield from found.files


def _find_root_files(root: FolderPath, options: ReadOptions) -> Iterator[FolderFiles]:
    if options.base_path is not None and find_relative_name(root, options.base_path) is None:
        raise InvalidArgumentError(f"{root}: is not in the folder of the option basePath, {options.base_path}")
    if root.is_dir():
        yield from _walk(root, options.base_path or root, options, ())
        return
    try:
        status = root.stat()
    except FileNotFoundError:  # removed since it was listed
        return
    if options.selects(root, status):
        partition = (
            () if options.recursive_file_lookup else _parse_partition(root.parent, options.base_path or root.parent)
        )
        yield FolderFiles(root.parent, (DataFile(root, status.st_size, status.st_mtime_ns, partition),))


def _read_listing(
    folder: FolderPath, manifest: Manifest, root: FolderPath, base: FolderPath, options: ReadOptions
) -> FolderFiles:
    """Return the files in `root` that the manifest of `folder` lists, which contains `root`."""
    files = (
        read_listed_file(folder, f"manifest {manifest.sequence_number}", entry, base, options)
        for entry in manifest.entries
        if find_relative_name(folder / entry.name, root) is not None
    )
    return FolderFiles(folder, tuple(file for file in files if file is not None), manifest)


def find_manifest(folder: FolderPath, *, is_below_root: bool = False) -> tuple[FolderPath, Manifest] | None:
    """Return the folder with the manifest that lists the files of `folder`, and the manifest; None without one.

    A partition folder may be in the manifest of a folder that contains it.
    """
    while True:
        manifest = read_manifest(folder)
        if manifest is not None or is_below_root or "=" not in folder.name:
            return None if manifest is None else (folder, manifest)
        folder = folder.parent


def _expand_to_committed(pattern: FolderPath) -> list[FolderPath]:
    """Return the files and folders that match a glob, without the files of jobs that have not committed."""
    paths_by_folder: dict[FolderPath, frozenset[FolderPath] | None] = {}

    def is_committed(path: FolderPath) -> bool:
        folder = path.parent
        if folder not in paths_by_folder:
            listing = find_manifest(folder)
            if listing is not None:
                paths_by_folder[folder] = frozenset(listing[0] / entry.name for entry in listing[1].entries)
            else:
                paths_by_folder[folder] = frozenset() if has_job_folders(folder) else None
        paths = paths_by_folder[folder]
        return paths is None or path in paths

    return [path for path in expand_glob(pattern) if not is_data_file_name(path.name) or is_committed(path)]


def _walk(
    folder: FolderPath,
    base: FolderPath,
    options: ReadOptions,
    ancestors: tuple[os.stat_result | StoreFileStatus, ...],
    is_written_by_jobs: bool = False,
) -> Iterator[FolderFiles]:
    """Yield the files of a folder, and of the subfolders that are read, by name."""
    # Below the root, only a folder's own manifest counts: one above it would have been found before.
    listing = find_manifest(folder, is_below_root=bool(ancestors))
    if listing is not None:
        yield _read_listing(*listing, folder, base, options)
        return
    try:
        status = folder.stat()
        if any(_is_same_folder(status, other) for other in ancestors):
            raise InvalidDataError(f"{folder}: is a link to a folder that contains it")
        is_written_by_jobs = is_written_by_jobs or has_job_folders(folder)
        sorted_entries = sorted(as_folder(folder).scan(), key=lambda entry: entry.name)
        partition = () if options.recursive_file_lookup else _parse_partition(folder, base)
        files = []
        subfolders = []
        for entry in sorted_entries:
            if is_hidden(entry.name):
                continue
            if entry.is_dir():
                if options.recursive_file_lookup or parse_partition_folder(entry.name):
                    subfolders.append(folder / entry.name)
            elif entry.is_file() and not (is_written_by_jobs and is_data_file_name(entry.name)):
                path = folder / entry.name
                if options.path_glob_filter is not None or path.suffix.lower() in DATA_SUFFIXES:
                    with contextlib.suppress(FileNotFoundError):  # removed since it was listed
                        file_status = entry.stat()
                        if options.selects(path, file_status):
                            files.append(DataFile(path, file_status.st_size, file_status.st_mtime_ns, partition))
    except OSError as problem:
        if isinstance(problem, FileNotFoundError) and ancestors:  # removed since it was listed
            return
        raise translate_os_error(problem, f"{problem.filename}: cannot be read: {problem.strerror}") from problem
    if files:
        yield FolderFiles(folder, tuple(files))
    for subfolder in subfolders:
        yield from _walk(subfolder, base, options, (*ancestors, status), is_written_by_jobs)


def _is_same_folder(status: os.stat_result | StoreFileStatus, other: os.stat_result | StoreFileStatus) -> bool:
    """Whether two paths are links to the same folder, which a store does not have."""
    return isinstance(status, os.stat_result) and isinstance(other, os.stat_result) and os.path.samestat(status, other)


def _parse_partition(folder: FolderPath, base: FolderPath) -> tuple[PartitionValue, ...]:
    """Return the partition columns of the files in `folder`, from the names of folders between `base` and it."""
    values: list[PartitionValue] = []
    while folder not in (base, folder.parent):
        try:
            value = parse_partition_folder(folder.name)
        except InvalidDataError as problem:
            raise InvalidDataError(f"{folder}: {problem}") from None
        if value is None and values:  # folders without a value may be below partition folders, but not between them
            break
        if value is not None:
            values.insert(0, value)
        folder = folder.parent
    return tuple(values)


def _check_partition_columns(files: Iterable[DataFile]) -> None:
    """Raise `InvalidArgumentError` unless all files have the same partition columns, in the same folder."""
    first: DataFile | None = None
    for file in files:
        first = first or file
        columns, expected = _get_column_names(file), _get_column_names(first)
        if columns != expected:
            raise InvalidArgumentError(
                f"{file.path}: conflicting partition columns: expected {_describe_columns(expected)}, as for "
                f"{first.path}, found {_describe_columns(columns)}"
            )
        if len(set(columns)) < len(columns):
            raise InvalidArgumentError(f"{file.path}: two partition folders have the same column")
        # The folders that contain the partition folders.
        base, first_base = (each.path.parents[len(columns)] for each in (file, first))
        if columns and base != first_base:
            raise InvalidArgumentError(
                f"{base} and {first_base}: partition folders of several folders: set the option basePath to the one "
                "that contains all, or load them one by one"
            )


def _get_column_names(file: DataFile) -> tuple[str, ...]:
    return tuple(name.lower() for name, _ in file.partition)


def _describe_columns(names: tuple[str, ...]) -> str:
    return ", ".join(map(repr, names)) or "none"


def _check_lost_columns(paths: Sequence[FolderPath], named: FolderPath) -> None:
    """Raise `InvalidArgumentError` if a path is in other ``key=value`` folders than the path or glob `named`."""
    for path in paths:
        others = _split_partition_folders(path) - _split_partition_folders(named)
        if others:
            folder = min(others)
            raise InvalidArgumentError(
                f"{path}: the column {folder.partition('=')[0]!r} of the partition folder {folder!r} would be lost: "
                'set the option basePath to the folder of the partition folders, or recursiveFileLookup to "true" to '
                "read the files without the column"
            )


def _split_partition_folders(path: FolderPath) -> set[str]:
    return {part for part in (path if path.is_dir() else path.parent).parts if "=" in part[1:]}

"""The manifest of a folder, which lists the files of its data and is replaced atomically.

A folder that Bowstring writes looks like this::

    target/
        part-<job>-00000-17.arrow      data; counts only if the newest manifest lists it
        day=2026-11-25/part-….arrow    data of a partition, whose columns are not in the file
        _manifest/00000000000000000003.json
        _staging/<job>/                files of a job that has not committed yet

A manifest is written to a temporary file and then linked to the next number, which fails if that number exists; in an
object store it is created by a conditional put. So concurrent jobs are both committed, and a reader sees all of a job
or nothing.

A manifest is complete, or has only the files that were added since the one before; then it names the complete manifest
that all of these begin with. So thousands of commits, such as a stream's, stay small, and a reader opens at most
`MAX_ADDITIONS` files. Two facts make streams exact: a manifest has the last batch that each streaming query has
committed, and files keep their index in the list until some of them are replaced, which begins a new generation.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from bowstring.errors import (
    BowstringError,
    InvalidArgumentError,
    InvalidDataError,
    LimitError,
    NotFoundError,
    check_count,
    format_count,
    translate_os_error,
)
from bowstring.io.local_path import as_folder
from bowstring.io.store_path import FolderEntry, FolderPath, read_files

MANIFEST_FOLDER = "_manifest"
STAGING_FOLDER = "_staging"
FORMAT = "bowstring-manifest"
# Of docs/explanation/folder-format.md; readers reject others.
FORMAT_VERSION = 2
MAX_ADDITIONS = 100
"""The number of manifests after which one is complete again."""
MANIFEST_RETENTION_S = 3600.0
"""How long a manifest is kept after its creation, even if superseded, for running readers and writers."""
# A million files; a larger one is damaged, or would take gigabytes as Python objects.
MAX_MANIFEST_BYTES = 256 << 20
DATA_SUFFIXES = frozenset((".arrow", ".arrows", ".feather", ".ipc"))

_LOG = logging.getLogger(__name__)
_DATA_FILE_NAME = re.compile(r"part-(?P<job>[0-9a-f]{32})-\d+-\d+(-\d+)?\.arrow")
_MANIFEST_FILE_NAME = re.compile(r"[0-9]{20}\.json")
_CHECKSUM = re.compile(r"crc32:[0-9a-f]{8}")


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """One file of a folder's data."""

    name: str
    """Its path relative to the folder, with "/" after the folder of a partition."""
    length_bytes: int
    rows: int | None = None
    """None for a file that was there before Bowstring wrote to the folder."""
    batches: int | None = None
    checksum: str | None = None
    """The CRC-32 of the file, as "crc32:" and eight hexadecimal digits."""
    commit: int = 0
    """The number of the manifest that added the file; 0 if not known."""

    @property
    def partition(self) -> str:
        """The folder of the file's partition, such as "day=2026-11-25/hour=7"; empty without partitions."""
        return self.name.rpartition("/")[0]

    def check_size(self, size_bytes: int, listing: str = "the manifest") -> None:
        """Raise `InvalidDataError` if the file has another size; `listing` is the list of files with this entry."""
        if size_bytes != self.length_bytes:
            raise InvalidDataError(f"expected {self.length_bytes} bytes, as in {listing}, found {size_bytes}")

    def check_counts(self, num_rows: int, num_batches: int) -> None:
        """Raise `InvalidDataError` if the file has other numbers of rows and batches, and these are known."""
        if self.rows is not None and (num_rows, num_batches) != (self.rows, self.batches):
            raise InvalidDataError(
                f"expected {_format_counts(self.rows, self.batches or 0)}, as in the manifest, found "
                f"{_format_counts(num_rows, num_batches)}"
            )


def _format_counts(num_rows: int, num_batches: int) -> str:
    return f"{format_count(num_rows, 'row')} in {format_count(num_batches, 'batch')}"


@dataclass(frozen=True, slots=True)
class QueryBatch:
    """The batch of a streaming query that a commit consists of."""

    query: str
    """The ID of the query, which is the same after a restart from its checkpoint."""
    number: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """All the files that are a folder's data, and the Spark schema of every one of them."""

    sequence_number: int
    schema: dict[str, Any]
    """Spark's own JSON form of a StructType; without the columns of partitions."""
    entries: tuple[ManifestEntry, ...]
    generation: int = 1
    """The number of the manifest that began the list; files have been added since, none was removed."""
    stream_batches: Mapping[str, int] = field(default_factory=dict)
    """The last batch of each streaming query, by the query's ID."""
    base: int | None = None
    """The number of the complete manifest to which files were added; None if this one is complete."""
    num_added: int = 0
    """The number of files at the end of the list that this manifest adds, if it is not complete."""
    partition_schema: dict[str, Any] | None = None
    """The columns of partitions, as `schema`: their values are in the names of the files' folders, in this order."""

    def has_batch(self, batch: QueryBatch | None) -> bool:
        """Whether a batch is committed."""
        return batch is not None and self.stream_batches.get(batch.query, -1) >= batch.number

    def append(self, entries: Iterable[ManifestEntry], batch: QueryBatch | None = None) -> Manifest:
        """Return the next manifest, with more files."""
        added = self._set_commit(entries)
        base = self.sequence_number if self.base is None else self.base
        is_complete = self.sequence_number + 1 - base >= MAX_ADDITIONS
        return self._create_next(
            batch,
            entries=(*self.entries, *added),
            base=None if is_complete else base,
            num_added=0 if is_complete else len(added),
        )

    def replace_all(
        self,
        schema: dict[str, Any],
        entries: Iterable[ManifestEntry],
        batch: QueryBatch | None = None,
        partition_schema: dict[str, Any] | None = None,
    ) -> Manifest:
        """Return the next manifest, with other files."""
        added = self._set_commit(entries)
        return self._begin_generation(batch, schema=schema, entries=added, partition_schema=partition_schema)

    def replace_partitions(self, entries: Iterable[ManifestEntry], batch: QueryBatch | None = None) -> Manifest:
        """Return the next manifest, in which these files are all the files of their partitions."""
        added = self._set_commit(entries)
        partitions = {entry.partition for entry in added}
        others = (entry for entry in self.entries if entry.partition not in partitions)
        return self._begin_generation(batch, entries=(*others, *added))

    def _set_commit(self, entries: Iterable[ManifestEntry]) -> tuple[ManifestEntry, ...]:
        """Return entries as the next manifest adds them."""
        return tuple(replace(entry, commit=self.sequence_number + 1) for entry in entries)

    def _begin_generation(self, batch: QueryBatch | None, **changes: Any) -> Manifest:
        return self._create_next(batch, generation=self.sequence_number + 1, base=None, num_added=0, **changes)

    def _create_next(self, batch: QueryBatch | None, **changes: Any) -> Manifest:
        batches = self.stream_batches if batch is None else {**self.stream_batches, batch.query: batch.number}
        return replace(self, sequence_number=self.sequence_number + 1, stream_batches=batches, **changes)


def data_file_name(job: str, partition: int, attempt: int, index: int = 0) -> str:
    """The name of a file that one attempt of one task writes; `attempt` is unique in the application, `index` in the
    attempt.
    """
    return f"part-{job}-{partition:05d}-{attempt}{f'-{index}' if index else ''}.arrow"


def is_data_file_name(name: str, job: str | None = None) -> bool:
    """Whether a job of Bowstring's (or `job` itself) wrote a file of this name or path."""
    match = _DATA_FILE_NAME.fullmatch(name.rpartition("/")[2])
    return match is not None and job in (None, match["job"])


def iter_data_files(folder: FolderPath) -> Iterator[FolderPath]:
    """Yield the files in `folder` and its partition folders that jobs of Bowstring's wrote, listed or not."""
    paths = as_folder(folder).iter_files(lambda name: "=" in name[1:] and not name.startswith("."))
    return (path for path in paths if is_data_file_name(path.name))


def read_manifest(folder: FolderPath) -> Manifest | None:
    """The newest manifest of `folder`, or None if Bowstring has not committed anything.

    Raises:
        InvalidDataError: it is not what `try_create_manifest` writes.
        BowstringError, also an OSError: it can't be read.
    """
    try:
        for _ in range(10):  # a commit may remove the listed manifests before they are read
            # Not all numbers: after thousands of commits, to parse them takes most of the time.
            listing = _list_manifests(folder)
            newest_name = max(listing, default=None)
            if newest_name is None:
                return None
            with contextlib.suppress(FileNotFoundError):
                return _read_manifest(folder, _parse_sequence_number(newest_name), listing)
    except BowstringError:
        raise
    except OSError as problem:
        raise translate_os_error(problem, f"{problem.filename}: cannot be read: {problem.strerror}") from problem
    raise NotFoundError(f"{folder / MANIFEST_FOLDER}: its manifests are removed as fast as they are listed")


def read_listed_names(folder: FolderPath) -> frozenset[str]:
    """The paths of the files that any manifest of `folder` lists, also a superseded one. Raises as `read_manifest`."""
    names: set[str] = set()
    for number in _list_sequence_numbers(folder):
        with contextlib.suppress(FileNotFoundError):
            names.update(entry.name for entry in _read_files([_manifest_path(folder, number)])[0].entries)
    return frozenset(names)


def try_create_manifest(folder: FolderPath, manifest: Manifest) -> bool:
    """Create the manifest's file, durably and atomically; False if its number exists.

    Raises:
        BowstringError, also an OSError: the file system can't create it.
    """
    content = json.dumps(_to_record(manifest), separators=(",", ":")).encode()
    return as_folder(_manifest_path(folder, manifest.sequence_number)).create(content)


def remove_old_manifests(folder: FolderPath) -> None:
    """Remove superseded manifests created more than MANIFEST_RETENTION_S ago, and as old temporary files of dead
    writers. The newer ones, and those that they add to, remain.
    """
    modified_s = dict[str, float]()
    for path in (folder / MANIFEST_FOLDER).iterdir():
        with contextlib.suppress(FileNotFoundError):  # the temporary file of another commit
            modified_s[path.name] = path.stat().st_mtime
    # The time of the last commit if that is earlier: this host's clock may be ahead of the file server's or store's.
    oldest_s = min(time.time(), max(modified_s.values(), default=0.0)) - MANIFEST_RETENTION_S
    is_old = {name: each_s < oldest_s for name, each_s in modified_s.items()}
    # Listed after the ages, so that a manifest created meanwhile is in this list and counts as recent.
    numbers = _list_sequence_numbers(folder)
    first_recent = next((n for n in numbers if not is_old.get(_manifest_path(folder, n).name, False)), numbers[-1])
    base = _read_files([_manifest_path(folder, first_recent)])[0].base
    needed_names = {_manifest_path(folder, n).name for n in numbers if n >= (first_recent if base is None else base)}
    for name, is_removable in is_old.items():
        if is_removable and name not in needed_names and (_MANIFEST_FILE_NAME.fullmatch(name) or name.startswith(".")):
            (folder / MANIFEST_FOLDER / name).unlink(missing_ok=True)


@contextlib.contextmanager
def log_errors_after_commit(folder: FolderPath) -> Iterator[None]:
    """Log the errors of the block, which removes what a commit no longer needs: if they were raised, the commit would
    seem to have failed, and who repeats it would double the rows.
    """
    try:
        yield
    except Exception as error:  # noqa: BLE001 -- of any kind, also of a store's client
        _LOG.warning("%s: is committed; files that it no longer needs remain: %s", folder, error, exc_info=True)


def has_job_folders(folder: FolderPath) -> bool:
    """Whether jobs of Spark write to a folder, or did: then only the files that they have committed are data."""
    return (folder / MANIFEST_FOLDER).exists() or (folder / STAGING_FOLDER).exists()


def list_files_without_manifest(folder: FolderPath, suffixes: frozenset[str] = DATA_SUFFIXES) -> list[FolderPath]:
    """The Arrow files, or files with other `suffixes`, of a folder without a manifest, by name; not files of jobs that
    have not committed.

    Raises:
        InvalidArgumentError: the folder has ``key=value`` subfolders, whose rows and column would be lost.
        BowstringError: also an OSError: the folder can't be read.
    """
    try:
        paths: list[FolderPath] = sorted(folder.iterdir(), key=lambda path: path.name)
    except OSError as problem:
        message = f"{folder}: cannot be read: {problem.strerror}"
        raise translate_os_error(problem, message) from problem
    is_written_by_jobs = has_job_folders(folder)
    for path in paths:
        if "=" not in path.name[1:] or not path.is_dir():
            continue
        if not is_written_by_jobs or not all(is_data_file_name(file.name) for file in as_folder(path).iter_files()):
            raise InvalidArgumentError(
                f"{folder}: partition folders such as {path.name!r} are not supported here: name one of them"
            )
    return [
        path
        for path in paths
        if path.suffix.lower() in suffixes
        and not path.name.startswith(("_", "."))
        and path.is_file()
        and not (is_written_by_jobs and is_data_file_name(path.name))
    ]


def _manifest_path(folder: FolderPath, sequence_number: int) -> FolderPath:
    return folder / MANIFEST_FOLDER / f"{sequence_number:020d}.json"


def _list_sequence_numbers(folder: FolderPath) -> list[int]:
    return sorted(map(_parse_sequence_number, _list_manifests(folder)))


def _list_manifests(folder: FolderPath) -> dict[str, FolderEntry]:
    """The manifests by name; those in a store with their versions, which would otherwise be a request for each."""
    try:
        entries = as_folder(folder / MANIFEST_FOLDER).scan()
    except FileNotFoundError:
        return {}
    return {entry.name: entry for entry in entries if _MANIFEST_FILE_NAME.fullmatch(entry.name)}


def _parse_sequence_number(name: str) -> int:
    return int(name.removesuffix(".json"))


def _read_manifest(folder: FolderPath, number: int, listing: Mapping[str, FolderEntry]) -> Manifest:
    """Read a manifest and the manifests that it adds to. Raises `FileNotFoundError`, and as `read_manifest`."""

    def find_path(number: int) -> FolderPath:
        path = _manifest_path(folder, number)
        return as_folder(listing.get(path.name, path))

    path = find_path(number)
    newest = _read_files([path])[0]
    if newest.base is None:
        return newest
    if not number - MAX_ADDITIONS < newest.base < number:
        raise InvalidDataError(
            f"{path}: adds to manifest {newest.base}, which is not one of the {MAX_ADDITIONS} before"
        )
    base, *additions = _read_files([find_path(each) for each in range(newest.base, number)])
    if base.base is not None or any(addition.base != newest.base for addition in additions):
        raise InvalidDataError(f"{path}: the manifests from {newest.base} on do not add to that one")
    entries = tuple(entry for manifest in (base, *additions, newest) for entry in manifest.entries)
    return replace(
        newest,
        schema=base.schema,
        entries=entries,
        generation=base.generation,
        partition_schema=base.partition_schema,
    )


def _to_record(manifest: Manifest) -> dict[str, Any]:
    """The JSON object of a manifest's file."""
    record: dict[str, Any] = {"format": FORMAT, "version": FORMAT_VERSION}
    entries = manifest.entries
    if manifest.base is None:
        record.update(schema=manifest.schema, generation=manifest.generation)
        if manifest.partition_schema is not None:
            record.update(partition_schema=manifest.partition_schema)
    else:
        record.update(adds_to=manifest.base)
        entries = entries[len(entries) - manifest.num_added :]
    return {**record, "stream_batches": dict(manifest.stream_batches), "files": list(map(_to_file_record, entries))}


_ENTRY_FIELDS = tuple(each.name for each in fields(ManifestEntry))


def _to_file_record(entry: ManifestEntry) -> dict[str, Any]:
    record = {name: getattr(entry, name) for name in _ENTRY_FIELDS}  # `asdict` takes five times as long
    for name, default in (("checksum", None), ("commit", 0)):
        if record[name] == default:
            del record[name]
    return record


def _read_files(paths: Sequence[FolderPath]) -> list[Manifest]:
    """Read files of manifests, without those that they add to, except files that this process has just read: a commit
    and a stream's source need the newest manifest several times, and a few files are new each time. Raises
    `FileNotFoundError`, `InvalidDataError`, `LimitError`.
    """
    keys = [(path, _get_version(path)) for path in paths]
    # Looked up once, because another thread may clear the dictionary at any time.
    manifests = {key: manifest for key in keys if (manifest := _recent_manifests.get(key)) is not None}
    unread = [key for key in keys if key not in manifests]
    contents = read_files([path for path, _ in unread], MAX_MANIFEST_BYTES + 1)
    manifests.update((key, _parse_manifest(key[0], content)) for key, content in zip(unread, contents, strict=True))
    if len(_recent_manifests) > 2 * MAX_ADDITIONS:
        _recent_manifests.clear()
    _recent_manifests.update(manifests)
    return [manifests[key] for key in keys]


_recent_manifests: dict[tuple[FolderPath, tuple[object, ...]], Manifest] = {}


def _get_version(path: FolderPath) -> tuple[object, ...]:
    status = path.stat()
    return status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size


def _parse_manifest(path: FolderPath, content: bytes) -> Manifest:
    """Return the manifest of one file; if it adds to another, only with its own files, without a schema."""
    if len(content) > MAX_MANIFEST_BYTES:
        raise LimitError(f"{path}: a manifest of more than {MAX_MANIFEST_BYTES} bytes")
    try:
        record = json.loads(content)
        if record["format"] != FORMAT or record["version"] != FORMAT_VERSION:
            raise InvalidDataError(
                f"{path}: expected format {FORMAT!r}, version {FORMAT_VERSION}, found {record['format']!r}, version "
                f"{record['version']!r}"
            )
        entries = tuple(
            ManifestEntry(
                _parse_file_path(entry["name"]),
                _parse_count(entry["length_bytes"]),
                _parse_optional_count(entry["rows"]),
                _parse_optional_count(entry["batches"]),
                _parse_checksum(entry.get("checksum")),
                _parse_count(entry.get("commit", 0)),
            )
            for entry in record["files"]
        )
        batches = {str(query): _parse_count(number) for query, number in record["stream_batches"].items()}
        number = _parse_sequence_number(path.name)
        if "adds_to" in record:
            return Manifest(number, {}, entries, 0, batches, _parse_count(record["adds_to"]), len(entries))
        schema, partition_schema = _parse_schema(record["schema"]), record.get("partition_schema")
        if partition_schema is not None:
            partition_schema = _parse_schema(partition_schema)
        generation = _parse_count(record["generation"])
        return Manifest(number, schema, entries, generation, batches, partition_schema=partition_schema)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as problem:
        if isinstance(problem, InvalidDataError):
            raise
        raise InvalidDataError(f"{path}: not a manifest: {type(problem).__name__}: {problem}") from problem


def _parse_schema(value: object) -> dict[str, Any]:
    if not isinstance(value, dict) or value.get("type") != "struct":
        raise ValueError("schema is not a struct")
    return value


def _parse_file_path(value: object) -> str:
    if not isinstance(value, str) or "\0" in value or any(name in ("", ".", "..") for name in value.split("/")):
        raise ValueError(f"{value!r} is not the path of a file in the folder")
    return value


def _parse_checksum(value: object) -> str | None:
    if value is not None and not (isinstance(value, str) and _CHECKSUM.fullmatch(value)):
        raise ValueError(f"{value!r} is not a checksum")
    return value


def _parse_count(value: object) -> int:
    return check_count("a count", value)


def _parse_optional_count(value: object) -> int | None:
    return None if value is None else _parse_count(value)

"""The manifest of a folder, which lists the files of its data and is replaced atomically.

A folder that Bowstring writes looks like this::

    target/
        part-<job>-00000-17.arrow      data; counts only if the newest manifest lists it
        _manifest/00000000000000000003.json
        _staging/<job>/                files of a job that has not committed yet

A manifest is written to a temporary file and then linked to the next number, which fails if that number exists. So
concurrent jobs are both committed, and a reader sees all of a job or nothing.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import time
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bowstring.errors import InvalidArgumentError, InvalidDataError, LimitError, NotFoundError, translate_os_error

MANIFEST_FOLDER = "_manifest"
STAGING_FOLDER = "_staging"
FORMAT = "bowstring-manifest"
FORMAT_VERSION = 1
MANIFEST_RETENTION_S = 3600.0
"""How long a superseded manifest is kept, for running readers and writers."""
MAX_MANIFEST_BYTES = 256 << 20
DATA_SUFFIXES = frozenset((".arrow", ".arrows", ".feather", ".ipc"))

_PART_FILE_NAME = re.compile(r"part-(?P<job>[0-9a-f]{32})-\d+-\d+\.arrow")
_MANIFEST_FILE_NAME = re.compile(r"[0-9]{20}\.json")


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """One file of a folder's data."""

    name: str
    length_bytes: int
    rows: int | None = None
    """None for a file that was there before Bowstring wrote to the folder."""
    batches: int | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """All the files that are a folder's data, and the Spark schema of every one of them."""

    sequence_number: int
    schema: dict[str, Any]
    """Spark's own JSON form of a StructType."""
    entries: tuple[ManifestEntry, ...]


def part_file_name(job: str, partition: int, attempt: int) -> str:
    """The name of the file that one attempt of one task writes; `attempt` is unique in the application."""
    return f"part-{job}-{partition:05d}-{attempt}.arrow"


def is_part_file_name(name: str, job: str | None = None) -> bool:
    """Whether a job of Bowstring's (or `job` itself) wrote a file of this name."""
    match = _PART_FILE_NAME.fullmatch(name)
    return match is not None and job in (None, match["job"])


def read_manifest(folder: Path) -> Manifest | None:
    """The newest manifest of `folder`, or None if Bowstring has not committed anything.

    Raises:
        InvalidDataError: it is not what `try_create_manifest` writes.
        BowstringError, also an OSError: it can't be read.
    """
    try:
        for _ in range(10):
            sequences = _list_sequence_numbers(folder)
            if not sequences:
                return None
            with contextlib.suppress(FileNotFoundError):
                return _parse_manifest(_manifest_path(folder, sequences[-1]), sequences[-1])
    except OSError as problem:
        raise translate_os_error(problem, f"{problem.filename}: cannot be read: {problem.strerror}") from problem
    raise NotFoundError(f"{folder / MANIFEST_FOLDER}: its manifests are removed as fast as they are listed")


def try_create_manifest(folder: Path, manifest: Manifest) -> bool:
    """Create the manifest's file, durably and atomically; False if its number exists.

    Raises:
        BowstringError, also an OSError: the file system can't create it.
    """
    content = json.dumps(
        {
            "format": FORMAT,
            "version": FORMAT_VERSION,
            "schema": manifest.schema,
            "files": [asdict(entry) for entry in manifest.entries],
        }
    ).encode()
    path = _manifest_path(folder, manifest.sequence_number)
    temporary = path.with_name(f".{uuid.uuid4().hex}")
    try:
        path.parent.mkdir(exist_ok=True)
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        sync_folder(path.parent)
    except OSError as problem:
        raise translate_os_error(problem, f"{path}: cannot be put in place: {problem.strerror}") from problem
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    return True


def remove_old_manifests(folder: Path) -> None:
    """Remove manifests superseded more than MANIFEST_RETENTION_S ago, and temporary files of dead writers."""
    newest = _list_sequence_numbers(folder)[-1:]
    oldest_s = time.time() - MANIFEST_RETENTION_S
    for path in (folder / MANIFEST_FOLDER).iterdir():
        is_ours = _MANIFEST_FILE_NAME.fullmatch(path.name) or path.name.startswith(".")
        with contextlib.suppress(OSError):
            if (
                is_ours
                and path.name not in {_manifest_path(folder, n).name for n in newest}
                and path.stat().st_mtime < oldest_s
            ):
                path.unlink()


def list_files_without_manifest(folder: Path) -> list[Path]:
    """The Arrow files of a folder without a manifest, by name; not those of jobs that have not committed.

    Raises:
        InvalidArgumentError: the folder has ``key=value`` subfolders, whose rows and column would be lost.
        BowstringError: also an OSError: the folder can't be read.
    """
    try:
        paths = sorted(folder.iterdir())
    except OSError as problem:
        message = f"{folder}: cannot be read: {problem.strerror}"
        raise translate_os_error(problem, message) from problem
    for path in paths:
        if "=" in path.name[1:] and path.is_dir():
            raise InvalidArgumentError(
                f"{folder}: partition folders such as {path.name!r} are not supported: load one of them at a time, "
                f"and add the column {path.name.partition('=')[0]!r} with .withColumn()"
            )
    is_written_by_jobs = (folder / MANIFEST_FOLDER).exists() or (folder / STAGING_FOLDER).exists()
    return [
        path
        for path in paths
        if path.suffix.lower() in DATA_SUFFIXES
        and not path.name.startswith(("_", "."))
        and path.is_file()
        and not (is_written_by_jobs and is_part_file_name(path.name))
    ]


def expand_glob(pattern: Path) -> list[Path]:
    """The files and folders that match `pattern`, by name, except hidden and uncommitted ones."""
    committed: dict[Path, frozenset[str]] = {}
    paths = []
    for path in map(Path, sorted(glob.glob(str(pattern)))):
        folder = path.parent
        if is_part_file_name(path.name) and folder not in committed:
            manifest = read_manifest(folder)
            files = manifest.entries if manifest is not None else list_files_without_manifest(folder)
            committed[folder] = frozenset(file.name for file in files)
        is_data = (
            path.name in committed[folder] if is_part_file_name(path.name) else not path.name.startswith(("_", "."))
        )
        if is_data:
            paths.append(path)
    return paths


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _manifest_path(folder: Path, sequence_number: int) -> Path:
    return folder / MANIFEST_FOLDER / f"{sequence_number:020d}.json"


def _list_sequence_numbers(folder: Path) -> list[int]:
    try:
        names = os.listdir(folder / MANIFEST_FOLDER)
    except FileNotFoundError:
        return []
    return sorted(int(name.removesuffix(".json")) for name in names if _MANIFEST_FILE_NAME.fullmatch(name))


def _parse_manifest(path: Path, sequence_number: int) -> Manifest:
    with path.open("rb") as file:
        content = file.read(MAX_MANIFEST_BYTES + 1)
    if len(content) > MAX_MANIFEST_BYTES:
        raise LimitError(f"{path}: a manifest of more than {MAX_MANIFEST_BYTES} bytes")
    try:
        record = json.loads(content)
        if record["format"] != FORMAT or record["version"] != FORMAT_VERSION:
            raise InvalidDataError(f"{path}: format {record['format']!r} version {record['version']!r} is not ours")
        entries = tuple(
            ManifestEntry(
                _parse_file_name(entry["name"]),
                _parse_count(entry["length_bytes"]),
                _parse_optional_count(entry["rows"]),
                _parse_optional_count(entry["batches"]),
            )
            for entry in record["files"]
        )
        schema = record["schema"]
        if not isinstance(schema, dict) or schema.get("type") != "struct":
            raise ValueError("schema is not a struct")
    except (KeyError, TypeError, ValueError, RecursionError) as problem:
        if isinstance(problem, InvalidDataError):
            raise
        raise InvalidDataError(f"{path}: not a manifest: {type(problem).__name__}: {problem}") from problem
    return Manifest(sequence_number, schema, entries)


def _parse_file_name(value: object) -> str:
    if not isinstance(value, str) or value in ("", ".", "..") or "/" in value or "\0" in value:
        raise ValueError(f"{value!r} is not the name of a file in the folder")
    return value


def _parse_count(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is not a count")
    return value


def _parse_optional_count(value: object) -> int | None:
    return None if value is None else _parse_count(value)

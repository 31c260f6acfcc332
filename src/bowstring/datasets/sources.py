"""Describe data that exists: served data sets, Arrow files, and folders of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from glob import has_magic
from pathlib import Path
from typing import TypeAlias, cast

from bowstring.arrays.record_batch import RecordBatch
from bowstring.datasets.dataset import Dataset, DatasetPart
from bowstring.datasets.manifest import list_files_without_manifest, read_manifest
from bowstring.datatypes.nullability import as_nullable
from bowstring.datatypes.schema import Schema
from bowstring.errors import InvalidArgumentError, InvalidDataError, MissingFileError, translate_os_error
from bowstring.file_formats import ARROW_FORMATS, FORMATS_BY_EXTENSION, open_batches
from bowstring.io.fsspec_store import is_path, is_url
from bowstring.io.local_path import as_folder
from bowstring.io.store_path import FolderPath, StorePath
from bowstring.ipc.file import FileReader
from bowstring.kernels.list_lengths import ListLengthCollector, ListLengths, count_list_levels
from bowstring.sharing.client.connect import connect
from bowstring.sharing.client.part_requests import FileRequest
from bowstring.sharing.dataset_locations import DatasetLocations, hide_secrets, is_shared_memory
from bowstring.sharing.uris import parse_scheme

DatasetSource: TypeAlias = "Dataset | str | os.PathLike[str] | DatasetLocations | Iterable[str | os.PathLike[str]]"
"""A data set or its JSON, the path of a file or folder, a URL, the URI or locations of a served data set, or several of
these texts, each of which is a part or has some.
"""


def dataset(source: DatasetSource, *, name: str | None = None) -> Dataset:
    """Describe data in parts, for `bowstring.connect`, other processes and training loops. Nothing is copied.

    A file is one part; rows of Arrow data are counted from the headers of its batches, rows of Parquet, CSV and JSON by
    reading them, with pyarrow. The lengths of lists are in the statistics of Arrow files, if any. A folder has the
    files that its manifest lists, as ``df.write.format("arrow")`` writes it, without the columns of partitions, which
    are not in the files; or without a manifest its .arrow, .feather, .ipc and .arrows files, else its Parquet, CSV or
    JSON files, by name. A glob has the files with matching names. A served data set is one part, whose rows are counted
    by reading it once: that is fast in shared memory, and transfers the bytes from another host. The default of `name`
    is the last part of the path.

    All parts need the same columns and types. Raises `InvalidDataError` if they differ or are malformed,
    `NotFoundError` if something does not exist, `InvalidArgumentError` for other sources or none, and as `connect`.

    >>> for day in (1, 2):
    ...     with bs.new_file(f"day-{day}.arrow", {"visits": "int64"}) as writer:
    ...         writer.write(bs.record_batch({"visits": [day, day * 10]}))
    >>> visits = bs.dataset(["day-1.arrow", "day-2.arrow"])
    >>> visits.num_rows, len(visits.parts)
    (4, 2)
    >>> visits.read_all([("visits", ">=", 2)])["visits"].to_pylist()
    [10, 2, 20]
    """
    if isinstance(source, Dataset):
        return source
    if isinstance(source, str) and source.lstrip().startswith("{"):
        return Dataset.from_json(source)
    if isinstance(source, bytes) or not isinstance(source, str | os.PathLike | DatasetLocations | Iterable):
        raise InvalidArgumentError(f"dataset: expected a path, URI, data set or several, found {type(source).__name__}")
    texts: list[str | os.PathLike[str] | DatasetLocations]
    texts = (
        [source] if isinstance(source, str | os.PathLike | DatasetLocations) else list(cast("Iterable[str]", source))
    )
    if not texts:
        raise InvalidArgumentError("dataset: expected at least one path or URI")
    parts: list[DatasetPart] = []
    schema: Schema | None = None
    for text in texts:
        for part_schema, part in _describe(text):
            if schema is None:
                schema = part_schema
            elif part_schema != schema:
                if as_nullable(part_schema) != as_nullable(schema):
                    raise InvalidDataError(
                        f"{hide_secrets(part.locations[0])}: expected {schema!r}, found {part_schema!r}"
                    )
                schema = as_nullable(schema)
            parts.append(part)
    assert schema is not None
    return Dataset(name or _derive_name(texts[0]), schema, parts)


def _describe(source: str | os.PathLike[str] | DatasetLocations) -> Iterator[tuple[Schema, DatasetPart]]:
    """Yield the parts of one source, with their schemas."""
    if isinstance(source, DatasetLocations) or (isinstance(source, str) and "want_data=" in source):
        yield describe_served(source if isinstance(source, DatasetLocations) else DatasetLocations.parse(source))
    else:
        for file in list_files(source):
            yield _describe_file(file, file if is_url(file) else FileRequest.to_uri(file))


def list_files(source: str | os.PathLike[str]) -> list[str]:
    """Return the paths or URLs of the files of a path, a URL, a folder, or a glob, sorted by name.

    A folder has the files that its manifest lists; without one its Arrow files, or if there are none, its Parquet, CSV
    or JSON files. The name of a file is returned as it is, whether it exists or not. Raises `MissingFileError` for a
    folder without such files and a glob without matches, `InvalidArgumentError` for a folder with files of several
    formats, and as `read_manifest`.
    """
    if isinstance(source, str) and parse_scheme(source) == "file":
        source = FileRequest.for_uri(source).url
    if is_url(source):
        url = str(source)
        if "::" in url or parse_scheme(url) in ("http", "https"):  # web servers and chained URLs have no folders
            return [url]
        path = as_folder(StorePath(url))
    else:
        path = as_folder(source)
    if path.is_dir():
        files = [as_folder(file).url for file in _list_files(path)]
        if not files:
            raise MissingFileError(f"{path}: found no Arrow, Parquet, CSV or JSON files", filename=str(path))
        return files
    if not has_magic(str(path)) or path.exists():
        return [os.fspath(source)]
    matches = path.glob_urls()
    if not matches:
        raise MissingFileError(f"{path}: there is no file with such a name", filename=str(path))
    return [file for match in sorted(matches) for file in list_files(match)]


def describe_served(locations: DatasetLocations, *, transfers: bool = True) -> tuple[Schema, DatasetPart]:
    """Return the schema and the part of a served data set.

    Its rows are counted by reading them. Without `transfers`, that is done only in shared memory; the part has 0 rows
    and bytes otherwise, which stand for an unknown number.
    """
    with connect(locations) as reader:
        is_counted = transfers or (reader.location is not None and is_shared_memory(reader.location))
        num_rows, nbytes, list_lengths = _count(reader.schema, reader) if is_counted else (0, 0, ())
        return reader.schema, DatasetPart(num_rows, nbytes, locations.uris, list_lengths=list_lengths)


def _count(schema: Schema, batches: Iterable[RecordBatch]) -> tuple[int, int, ListLengths]:
    """Return the rows and the bytes, and the lengths of lists."""
    num_rows = nbytes = 0
    collector = ListLengthCollector(schema.types)
    for batch in batches:
        num_rows, nbytes = num_rows + batch.num_rows, nbytes + batch.nbytes
        collector.add(batch.column)
    return num_rows, nbytes, collector.list_lengths


def _list_files(folder: FolderPath) -> list[FolderPath]:
    manifest = read_manifest(folder)
    if manifest is None:
        files = list_files_without_manifest(folder) or list_files_without_manifest(
            folder, frozenset(FORMATS_BY_EXTENSION)
        )
        formats = {FORMATS_BY_EXTENSION[file.suffix.lower()] for file in files} - set(ARROW_FORMATS)
        if len(formats) > 1:
            raise InvalidArgumentError(
                f"{folder}: has files of several formats ({', '.join(sorted(formats))}): use a glob"
            )
        return files
    listing = {entry.name: entry for entry in as_folder(folder).scan()}  # in a store with the sizes
    for entry in manifest.entries:
        path = folder / entry.name
        try:
            size_bytes = listing.get(entry.name, path).stat().st_size
        except OSError as error:
            raise translate_os_error(error, f"{path}: is in the folder's manifest: {error.strerror}") from error
        if size_bytes != entry.length_bytes:
            raise InvalidDataError(
                f"{path}: expected {entry.length_bytes} bytes, as in the folder's manifest, found {size_bytes}"
            )
    return [folder / entry.name for entry in manifest.entries]


def _describe_file(source: str, uri: str) -> tuple[Schema, DatasetPart]:
    with open_batches(source) as reader:
        if isinstance(reader, FileReader):
            num_rows, nbytes = reader.num_rows, reader.messages.source.size
            list_lengths = _read_list_lengths(reader)
        else:
            num_rows, nbytes, list_lengths = _count(reader.schema, reader)
            if is_path(source):
                nbytes = Path(source).stat().st_size
        return reader.schema, DatasetPart(num_rows, nbytes, (uri,), list_lengths=list_lengths)


def _read_list_lengths(reader: FileReader) -> ListLengths:
    """Return the lengths of lists in the statistics of a file, if it has any."""
    columns = [index for index, data_type in enumerate(reader.schema.types) if count_list_levels(data_type)]
    statistics = reader.read_statistics(columns) if columns else None
    return () if statistics is None else statistics.list_lengths


def _derive_name(source: str | os.PathLike[str] | DatasetLocations) -> str:
    text = hide_secrets(source.uris[0] if isinstance(source, DatasetLocations) else os.fspath(source))
    return Path(text).stem or "data"

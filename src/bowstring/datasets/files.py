"""The files of a path, a URL, a folder or a glob, and their rows as one table."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from glob import has_magic
from typing import Any, TypeAlias

from bowstring.arrays.record_batch import with_nullability
from bowstring.arrays.table import Table
from bowstring.datasets.manifest import list_files_without_manifest, read_manifest
from bowstring.datatypes.nullability import as_nullable
from bowstring.datatypes.schema import Schema, SchemaLike
from bowstring.errors import (
    InvalidArgumentError,
    InvalidDataError,
    IsDirectoryError,
    MissingFileError,
    prefix_errors,
    translate_os_error,
)
from bowstring.file_formats import (
    ARROW_FORMATS,
    FORMATS_BY_EXTENSION,
    WHOLE_FILE,
    InvalidRowsAction,
    import_column_types,
    read_file,
)
from bowstring.io.fsspec_store import is_url, with_storage_options
from bowstring.io.local_path import as_folder, is_file_uri, parse_file_uri
from bowstring.io.store_path import FolderPath, StorePath, check_regular_file
from bowstring.ipc.limits import DEFAULT_LIMITS, ReadLimits
from bowstring.kernels.filters import FiltersLike

File: TypeAlias = str | StorePath
"""A path or a URL; a URL with storage options is the path in its store."""


def read_table(  # noqa: PLR0913 -- all but one are options
    source: Any,
    columns: Sequence[str | int] | None = None,
    filters: FiltersLike | None = None,
    limits: ReadLimits = DEFAULT_LIMITS,
    *,
    column_types: SchemaLike | None = None,
    invalid_rows: InvalidRowsAction = "error",
    storage_options: Mapping[str, Any] | None = None,
    **csv_options: Any,
) -> Table:
    """Read an Arrow file or stream, a Parquet, CSV or JSON file into a table; or the files of a folder, a glob or a
    list of paths, as `bowstring.dataset` describes them.

    Arrow and Parquet are detected by their first bytes, CSV and JSON by the extension of the path or URL. Sources,
    `storage_options` and errors are as in `open_file`, `filters` as in `Table.filter`; they may name columns that are
    not in `columns`. A local Arrow file is mapped, not copied; batches that have no matching rows according to its
    statistics are not read. Parquet, CSV and JSON need pyarrow (`MissingExtraError`). JSON is one object per line, or
    an array of objects. Columns of CSV with leading zeros or integers beyond 64 bits in the first 64 KiB are text.
    Raises `InvalidDataError` if files have different columns or types.

    `column_types` are types of some columns of CSV and JSON, such as ``{"zip": "string"}``; others are inferred from
    all rows. A row that has other columns, or a value that is not of the column's type, raises `InvalidDataError` with
    its number; with ``invalid_rows="skip"`` it is left out, and a warning has the number of such rows and the first
    ones. `csv_options` are those of `pyarrow.csv.ReadOptions`, `ParseOptions` and `ConvertOptions`, such as
    ``delimiter=";"``; a .tsv file has tabs.

    >>> bs.write_table(bs.table({"day": [1, 2, 3], "degrees": [-3.5, 14.0, 9.25]}), "days.csv")
    >>> bs.read_table("days.csv", columns=["degrees"], filters=[("day", ">=", 2)]).to_pydict()
    {'degrees': [14.0, 9.25]}
    """
    options = replace(WHOLE_FILE, invalid_rows=invalid_rows, csv_options=csv_options)
    if column_types is not None:
        options = replace(options, column_types=import_column_types(column_types))
    if not isinstance(source, list | tuple):
        source = with_storage_options(source, storage_options)
        try:
            return read_file(source, columns, filters, limits, options)
        except (IsDirectoryError, MissingFileError):  # folder or glob; to ask first is another request
            if not isinstance(source, str | os.PathLike | StorePath):
                raise
        source = [source]
    files = [file for each in source for file in list_files(with_storage_options(each, storage_options))]
    if not files:
        raise InvalidArgumentError("read_table: expected at least one path")
    tables = [(str(file), read_file(file, columns, filters, limits, options)) for file in files]
    schema = unify_nullability((file, table.schema) for file, table in tables)
    batches = [with_nullability(batch, schema) for _, table in tables for batch in table.to_batches()]
    return Table(schema, batches)


def unify_nullability(schemas: Iterable[tuple[str, Schema]]) -> Schema:
    """Return the schema of files, given with their names. If their nullability differs, all fields are nullable.

    Raises `InvalidDataError` if they differ in anything else.
    """
    (first_name, unified), *others = schemas
    for name, schema in others:
        if schema != unified:
            if as_nullable(schema) != as_nullable(unified):
                raise InvalidDataError(f"{name}: expected {unified!r}, as in {first_name}, found {schema!r}")
            unified = as_nullable(unified)
    return unified


def list_files(source: File | os.PathLike[str]) -> list[File]:
    """Return the paths or URLs of the files of a path, a URL, a folder, or a glob, sorted by name; of a path in a
    store, paths with its options.

    A folder has the files that its manifest lists; without one its Arrow files, or if there are none, its Parquet, CSV
    or JSON files. The name of a file is returned as it is, whether it exists or not. Raises `MissingFileError` for a
    folder without such files and a glob without matches, `InvalidArgumentError` for a folder with files of several
    formats, and as `read_manifest`.
    """
    if isinstance(source, str) and is_file_uri(source):
        source = parse_file_uri(source)
    options = source.options if isinstance(source, StorePath) else {}
    url = source.url if isinstance(source, StorePath) else os.fspath(source)
    if not _may_be_folder(url):
        return [source if isinstance(source, StorePath) else url]
    path = as_folder(StorePath(url, options) if is_url(url) else url)
    if path.is_dir():
        files = [with_storage_options(as_folder(file).url, options) for file in _list_files(path)]
        if not files:
            raise MissingFileError(f"{path}: found no Arrow, Parquet, CSV or JSON files", filename=str(path))
        return files
    if not is_glob(path):
        return [source if isinstance(source, StorePath) else url]
    matches = path.glob_urls()
    if not matches:
        raise MissingFileError(f"{path}: there is no file with such a name", filename=str(path))
    return [file for match in sorted(matches) for file in list_files(with_storage_options(match, options))]


def is_glob(source: File | FolderPath) -> bool:
    """Whether a path or URL is a pattern of names, and not the name of a file or folder itself."""
    path = as_folder(StorePath(str(source)) if is_url(source) else source)
    return _may_be_folder(path.url) and has_magic(str(path)) and not path.exists()


def _may_be_folder(url: str) -> bool:
    """Whether a path or URL may be that of a folder: web servers and chained URLs have none."""
    return not (is_url(url) and ("::" in url or url.startswith(("http:", "https:"))))


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
        check_regular_file(path)
        try:
            size_bytes = listing.get(entry.name, path).stat().st_size
        except OSError as error:
            raise translate_os_error(error, f"{path}: is in the folder's manifest: {error.strerror}") from error
        with prefix_errors(str(path)):
            entry.check_size(size_bytes)
    return [folder / entry.name for entry in manifest.entries]

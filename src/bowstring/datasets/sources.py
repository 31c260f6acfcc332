"""Describe data that exists: served data sets, Arrow files, and folders of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias, cast

from bowstring.arrays.record_batch import RecordBatch
from bowstring.datasets.dataset import Dataset, DatasetPart
from bowstring.datasets.files import File, list_files, unify_nullability
from bowstring.datatypes.schema import Schema
from bowstring.errors import InvalidArgumentError
from bowstring.file_formats import open_batches
from bowstring.io.fsspec_store import is_path, is_url, with_storage_options
from bowstring.io.local_path import to_file_uri
from bowstring.io.store_path import StorePath
from bowstring.ipc.file import FileReader
from bowstring.kernels.list_lengths import ListLengthCollector, ListLengths, count_list_levels
from bowstring.sharing.client.connect import connect
from bowstring.sharing.dataset_locations import DatasetLocations, find_location_kind, hide_secrets, is_shared_memory

DatasetSource: TypeAlias = "Dataset | str | os.PathLike[str] | DatasetLocations | Iterable[str | os.PathLike[str]]"
"""A data set or its JSON, the path of a file or folder, a URL, the URI or locations of a served data set, or several of
these texts, each of which is a part or has some.
"""


def dataset(
    source: DatasetSource, *, name: str | None = None, storage_options: Mapping[str, Any] | None = None
) -> Dataset:
    """Describe data in parts, for `bowstring.connect`, other processes and training loops. Nothing is copied.

    A file is one part; rows of Arrow data are counted from the headers of its batches, rows of Parquet, CSV and JSON by
    reading them, with pyarrow. The lengths of lists are in the statistics of Arrow files, if any. A folder has the
    files that its manifest lists, as ``df.write.format("arrow")`` writes it, without the columns of partitions, which
    are not in the files; or without a manifest its .arrow, .feather, .ipc and .arrows files, else its Parquet, CSV or
    JSON files, by name. A glob has the files with matching names. A served data set is one part, whose rows are counted
    by reading it once: that is fast in shared memory, and transfers the bytes from another host. The default of `name`
    is the last part of the path.

    `storage_options` are fsspec's options for URLs. The data set, its readers and their pickled copies keep them; they
    may be secret, and are in no text and not in `to_json`.

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
    if isinstance(source, str) and source.lstrip().startswith("{"):
        source = Dataset.from_json(source)
    if isinstance(source, Dataset):
        return source if storage_options is None else source.with_storage_options(storage_options)
    if isinstance(source, bytes) or not isinstance(source, str | os.PathLike | DatasetLocations | Iterable):
        raise InvalidArgumentError(f"dataset: expected a path, URI, data set or several, found {type(source).__name__}")
    texts: list[str | os.PathLike[str] | DatasetLocations]
    texts = (
        [source] if isinstance(source, str | os.PathLike | DatasetLocations) else list(cast("Iterable[str]", source))
    )
    if not texts:
        raise InvalidArgumentError("dataset: expected at least one path or URI")
    described = [pair for text in texts for pair in _describe(text, storage_options)]
    schema = unify_nullability((hide_secrets(part.locations[0]), part_schema) for part_schema, part in described)
    parts = [part for _, part in described]
    return Dataset(name or _derive_name(texts[0]), schema, parts, storage_options=storage_options)


def _describe(
    source: str | os.PathLike[str] | DatasetLocations, storage_options: Mapping[str, Any] | None
) -> Iterator[tuple[Schema, DatasetPart]]:
    """Yield the parts of one source, with their schemas."""
    if isinstance(source, DatasetLocations):
        yield describe_served(source)
    elif isinstance(source, str) and find_location_kind(source) == "server":
        yield describe_served(DatasetLocations.parse(source))
    else:
        for file in list_files(with_storage_options(source, storage_options)):
            yield _describe_file(file)


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


def _describe_file(source: File) -> tuple[Schema, DatasetPart]:
    url = source.url if isinstance(source, StorePath) else source
    uri = url if is_url(url) else to_file_uri(url)
    with open_batches(source) as reader:
        if isinstance(reader, FileReader):
            num_rows, nbytes = reader.num_rows, reader.messages.source.size
            list_lengths = _read_list_lengths(reader)
        else:
            num_rows, nbytes, list_lengths = _count(reader.schema, reader)
            if is_path(url):
                nbytes = Path(url).stat().st_size
        return reader.schema, DatasetPart(num_rows, nbytes, (uri,), list_lengths=list_lengths)


def _read_list_lengths(reader: FileReader) -> ListLengths:
    """Return the lengths of lists in the statistics of a file, if it has any."""
    columns = [index for index, data_type in enumerate(reader.schema.types) if count_list_levels(data_type)]
    statistics = reader.read_statistics(columns) if columns else None
    return () if statistics is None else statistics.list_lengths


def _derive_name(source: str | os.PathLike[str] | DatasetLocations) -> str:
    text = hide_secrets(source.uris[0] if isinstance(source, DatasetLocations) else os.fspath(source))
    return Path(text).stem or "data"

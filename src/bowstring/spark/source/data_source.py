"""The data source ``format("arrow")``: its options, paths and schema.

A path is that of a file or folder, or a data set: see `bowstring.spark.source.dataset_reader`.
"""

from __future__ import annotations

import json
from collections.abc import MutableMapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import CaseInsensitiveDict, DataSource

from bowstring.datasets.dataset import Dataset
from bowstring.errors import InvalidArgumentError, NotFoundError
from bowstring.io.store_path import FolderPath
from bowstring.spark.arrow_files import count_file_rows
from bowstring.spark.intervals import split_intervals
from bowstring.spark.options import (
    ReadOptions,
    WriteOptions,
    check_options,
    parse_path,
    parse_save_mode,
    parse_storage_options,
)
from bowstring.spark.row_filters import RowFilters, find_column_names
from bowstring.spark.runtime.worker_errors import hide_traceback
from bowstring.spark.source.dataset_reader import ArrowDatasetReader, is_dataset_text, parse_datasets
from bowstring.spark.source.file_discovery import FolderFiles, find_files, find_partition_schema
from bowstring.spark.source.file_metadata import add_metadata_column
from bowstring.spark.source.reader import ArrowReader, iter_file_groups
from bowstring.spark.source.schema_compatibility import (
    add_columns,
    add_partition_columns,
    merge_schemas,
    select_columns,
)
from bowstring.spark.source.stream_reader import ArrowStreamReader
from bowstring.spark.source.writer import ArrowStreamWriter, ArrowWriter
from bowstring.spark.types import check_supported, to_spark_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class ArrowDataSource(DataSource):
    """Arrow files and data sets, as ``spark.read.format("arrow")`` and ``df.write.format("arrow")``.

    `bowstring.spark.options` lists the options, which docs/reference describes in spark-read.md, spark-write.md and
    spark-stream.md. All others are an `InvalidArgumentError`.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._inferred_schema: StructType | None = None
        """All columns of the files, if Spark asked for their schema."""

    @classmethod
    def name(cls) -> str:
        """The word in ``format("arrow")``."""
        return "arrow"

    @hide_traceback()
    def schema(self) -> StructType:
        """The schema of the files: the first one's, or with ``mergeSchema`` the columns of all; or some ``columns``."""
        check_options(self.options, "reading", "reading a stream")  # Spark calls this for both
        if self._names_dataset():
            dataset = self._dataset()
            source, schema = dataset.name, to_spark_schema(dataset.schema)
        else:
            source, schema = " ".join(self._texts()), self._infer_schema(self._find_files())
        self._inferred_schema = split_intervals(schema)  # Spark pickles this object with the schema for `reader`
        columns = ReadOptions.parse(self.options).columns
        selected = schema if columns is None else select_columns(schema, columns)
        check_supported(selected, source)
        return split_intervals(selected)

    def _infer_schema(self, folders: list[FolderFiles]) -> StructType:
        if not folders:
            raise NotFoundError(f"{', '.join(self._texts())}: found no Arrow files and no manifest")
        options = ReadOptions.parse(self.options)
        groups, first_problem = iter_file_groups(folders, options), None
        schemas = []
        for group in groups:
            first_problem = first_problem or group.problem
            if group.problem is None:
                schemas.append((group.path, group.schema))
                if not options.merge_schema:
                    break
        if not schemas and first_problem is not None:
            raise first_problem
        schema = add_partition_columns(merge_schemas(schemas), find_partition_schema(folders, options))
        schema = options.add_message_column(schema)
        return schema if options.metadata_column is None else add_metadata_column(schema, options.metadata_column)

    def count_rows(self) -> int:
        """Count the rows of all files, as `bowstring.spark.count_rows`."""
        check_options(self.options, "reading")
        for name in ("filters", "mode", "ignoreCorruptFiles"):
            if name in self.options:
                raise InvalidArgumentError(f"count_rows: counts all rows, and does not support the option {name!r}")
        if self._names_dataset():
            raise InvalidArgumentError("count_rows: expected files or folders; a data set has `num_rows`")
        entries = ((file.path, file.entry) for folder in self._find_files() for file in folder.files)
        rows = ((path, None if entry is None else entry.rows) for path, entry in entries)
        return sum(count_file_rows(path) if num_rows is None else num_rows for path, num_rows in rows)

    @hide_traceback()
    def reader(self, schema: StructType) -> ArrowReader | ArrowDatasetReader:
        """Return a reader of the columns of `schema`, which may have other types than the files."""
        check_options(self.options, "reading")
        if self._names_dataset():
            options = ReadOptions.parse(self.options)
            return ArrowDatasetReader(
                self._dataset(), schema, options.split_bytes, self._parse_filters(schema, options)
            )
        return self._create_reader(self._find_files(), schema)

    def _create_reader(self, folders: list[FolderFiles], schema: StructType) -> ArrowReader:
        options = ReadOptions.parse(self.options)
        options.check_message_column(schema)
        filters = self._parse_filters(schema, options)
        is_inferred = self._inferred_schema is not None and options.columns is None
        return ArrowReader(folders, schema, options, filters, is_inferred=is_inferred)

    def _parse_filters(self, schema: StructType, options: ReadOptions) -> RowFilters:
        """Return the filters; if the user has given no schema, they may have other columns than `schema`."""
        if options.columns is not None and self._inferred_schema is None:
            raise InvalidArgumentError("option columns: can't be combined with .schema(), which selects columns itself")
        text = options.filters
        if text and self._inferred_schema is not None:
            schema = add_columns(schema, self._inferred_schema, find_column_names(text))
        return RowFilters.parse(text, schema, truncate_times=options.truncate)

    @hide_traceback()
    def writer(self, schema: StructType, overwrite: bool) -> ArrowWriter:
        """Return a writer to the folder of the option ``path``."""
        check_options(self.options, "writing")
        folder = self._folder()
        mode = parse_save_mode(self.options, overwrite=overwrite)
        return ArrowWriter(folder, schema, mode, WriteOptions.parse(self.options))

    @hide_traceback()
    def streamReader(self, schema: StructType) -> ArrowStreamReader:  # noqa: N802 -- Spark's own
        """Return a reader of the files that are added to the folder of the option ``path``."""
        check_options(self.options, "reading a stream")
        folder = self._folder()
        if folder.exists() and not folder.is_dir():
            raise InvalidArgumentError(f"{folder}: is a file; a stream follows a folder")
        return ArrowStreamReader(folder, self._create_reader([], schema), ReadOptions.parse(self.options))

    @hide_traceback()
    def streamWriter(self, schema: StructType, overwrite: bool) -> ArrowStreamWriter:  # noqa: N802 -- Spark's own
        """Return a writer of the batches of a streaming query to the folder of the option ``path``."""
        check_options(self.options, "writing a stream")
        folder = self._folder()
        mode = parse_save_mode(self.options, overwrite=overwrite)
        return ArrowStreamWriter(folder, schema, mode, WriteOptions.parse(self.options))

    def _folder(self) -> FolderPath:
        return parse_path(self.options.get("path", ""), parse_storage_options(self.options))

    def _texts(self) -> list[str]:
        """Return the paths of the options, or the texts of data sets."""
        path = self.options.get("path")
        return [path] if path else json.loads(self.options.get("paths", "[]")) or [""]

    def _names_dataset(self) -> bool:
        """Whether a path is a data set. Raise `InvalidArgumentError` for options that have no effect then."""
        if not any(map(is_dataset_text, self._texts())):
            return False
        if "mergeschema" in self.options:
            raise InvalidArgumentError("option mergeSchema: a data set has one schema, in which it has no effect")
        return True

    def _dataset(self) -> Dataset:
        return parse_datasets(self._texts())

    def _find_files(self) -> list[FolderFiles]:
        storage_options = parse_storage_options(self.options)
        return find_files(
            [parse_path(path, storage_options) for path in self._texts()], ReadOptions.parse(self.options)
        )


def count_rows(path: str | Path | Sequence[str | Path], **options: str | bool) -> int:
    """Count the rows of files and folders without a Spark job: by their manifests, or the footers of the files.

    Paths and options are those of ``spark.read.format("arrow").options(…).load(path)``, except ``filters``, ``mode``
    and ``ignoreCorruptFiles``, which need the values. Raises `InvalidArgumentError` for other options and data sets,
    `MissingFileError` if there is no such path, `InvalidDataError` for malformed files.

    >>> with bs.new_file("visits.arrow", {"n": "int64"}) as writer:
    ...     writer.write(bs.record_batch({"n": [1, 2, 3]}))
    >>> bs.spark.count_rows("visits.arrow")
    3
    """
    paths = [path] if isinstance(path, str | Path) else path
    texts = {name: str(value).lower() if isinstance(value, bool) else value for name, value in options.items()}
    return ArrowDataSource(CaseInsensitiveDict({**texts, "paths": json.dumps(list(map(str, paths)))})).count_rows()

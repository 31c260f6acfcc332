"""Plan reads by the options of ``format("arrow")``: paths, schema and filters.

A path leads to a file or folder, or is a data set: see `bowstring.spark.source.dataset_reader`. The data source and
`bowstring.spark.read` share the planner, which needs no data source interface of PySpark, since Spark 3.5 has none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bowstring.datasets.dataset import Dataset
from bowstring.errors import InvalidArgumentError, NotFoundError
from bowstring.spark.arrow_files import count_file_rows
from bowstring.spark.intervals import split_intervals
from bowstring.spark.options import ReadOptions, check_options, parse_path, parse_storage_options
from bowstring.spark.row_filters import RowFilters, find_column_names
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
from bowstring.spark.types import check_supported, to_spark_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from bowstring.spark.source.read_tasks import TaskReader


class ReadPlanner:
    """Plans a read by options, whose names are in lower case, as Spark passes them."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = options
        self._inferred_schema: StructType | None = None
        """All columns of the files, if their schema was asked for."""
        self._folders: list[FolderFiles] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Spark pickles a data source after `schema`, and plans later, when there may be other files.
        return {**self.__dict__, "_folders": None}

    def schema(self) -> StructType:
        """The schema of the files: the first one's, or with ``mergeSchema`` the columns of all; or some ``columns``."""
        check_options(self.options, "reading", "reading a stream")  # Spark calls this for both
        if self._names_dataset():
            dataset = self._dataset()
            source, schema = dataset.name, to_spark_schema(dataset.schema)
        else:
            source, schema = " ".join(self._texts()), self._infer_schema(self._find_files())
        self._inferred_schema = split_intervals(schema)
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
            if name.lower() in self.options:
                raise InvalidArgumentError(f"count_rows: counts all rows, and does not support the option {name!r}")
        if self._names_dataset():
            raise InvalidArgumentError("count_rows: expected files or folders; a data set has `num_rows`")
        entries = ((file.path, file.entry) for folder in self._find_files() for file in folder.files)
        rows = ((path, None if entry is None else entry.rows) for path, entry in entries)
        return sum(count_file_rows(path) if num_rows is None else num_rows for path, num_rows in rows)

    def reader(self, schema: StructType) -> TaskReader:
        """Return a reader of the columns of `schema`, which may have other types than the files."""
        check_options(self.options, "reading")
        if self._names_dataset():
            options = ReadOptions.parse(self.options)
            return ArrowDatasetReader(
                self._dataset(), schema, options.split_bytes, self._parse_filters(schema, options)
            )
        return self.files_reader(self._find_files(), schema)

    def files_reader(self, folders: list[FolderFiles], schema: StructType) -> ArrowReader:
        """Return a reader of these files."""
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
        if self._folders is None:
            storage_options = parse_storage_options(self.options)
            paths = [parse_path(path, storage_options) for path in self._texts()]
            self._folders = find_files(paths, ReadOptions.parse(self.options))
        return self._folders

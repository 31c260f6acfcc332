"""The data source ``format("arrow")``: its options, paths and schema.

A path is that of a file or folder, or a data set: see `bowstring.spark.dataset_reader`.
"""

from __future__ import annotations

import json
from collections.abc import MutableMapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import CaseInsensitiveDict, DataSource

from bowstring.datasets.dataset import Dataset
from bowstring.datasets.manifest import expand_glob
from bowstring.errors import InvalidArgumentError, MissingFileError
from bowstring.spark.arrow_files import count_file_rows
from bowstring.spark.data_source_reader import SPLIT_BYTES, ArrowReader, iter_file_groups
from bowstring.spark.data_source_writer import ArrowStreamWriter, ArrowWriter
from bowstring.spark.dataset_reader import DatasetSourceReader, is_dataset_text, parse_datasets
from bowstring.spark.intervals import split_intervals
from bowstring.spark.options import check_options, parse_flag, parse_names, parse_path, parse_positive_integer
from bowstring.spark.row_filters import RowFilters, find_column_names
from bowstring.spark.schema_compatibility import add_columns, merge_schemas, select_columns
from bowstring.spark.stream_reader import ArrowStreamReader, StreamLimits
from bowstring.spark.types import check_supported, to_spark_schema
from bowstring.spark.worker_errors import hide_traceback

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class ArrowDataSource(DataSource):
    """Arrow files and data sets, as ``spark.read.format("arrow")`` and ``df.write.format("arrow")``.

    Options for reading: ``columns`` and ``filters`` (read some columns and rows), ``splitBytes`` (of a partition),
    ``mergeSchema`` (read the columns of all files, with nulls for those that a file lacks), ``truncate`` (truncate
    times finer than microseconds towards zero). Option for writing:
    ``fsync`` (write to disk before the commit). All others are an `InvalidArgumentError`.
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
        check_options(self.options, "reading", "reading a stream")
        if self._names_dataset():
            dataset = self._dataset()
            source, schema = dataset.name, to_spark_schema(dataset.schema)
        else:
            source = " ".join(self._texts())
            schemas = ((group.path, group.schema) for group in iter_file_groups(self._paths()))
            schema = merge_schemas(schemas if parse_flag(self.options, "mergeSchema") else islice(schemas, 1))
        self._inferred_schema = split_intervals(schema)  # Spark pickles this object with the schema for `reader`
        columns = parse_names(self.options, "columns")
        selected = schema if columns is None else select_columns(schema, columns)
        check_supported(selected, source)
        return split_intervals(selected)

    def count_rows(self) -> int:
        """Count the rows of all files, as `bowstring.spark.count_rows`."""
        check_options(self.options, "reading")
        if "filters" in self.options:
            raise InvalidArgumentError("count_rows: counts all rows, and does not support the option 'filters'")
        if self._names_dataset():
            raise InvalidArgumentError("count_rows: expected files or folders; a data set has `num_rows`")
        files = (file for group in iter_file_groups(self._paths()) for file in group.files)
        entries = ((file.path, None if file.entry is None else file.entry.rows) for file in files)
        return sum(count_file_rows(path) if rows is None else rows for path, rows in entries)

    @hide_traceback()
    def reader(self, schema: StructType) -> ArrowReader | DatasetSourceReader:
        """Return a reader of the columns of `schema`, which may have other types than the files."""
        check_options(self.options, "reading")
        if self._names_dataset():
            return DatasetSourceReader(self._dataset(), schema, self._split_bytes(), self._parse_filters(schema))
        return self._create_reader(self._paths(), schema)

    def _create_reader(self, paths: list[Path], schema: StructType) -> ArrowReader:
        return ArrowReader(
            paths,
            schema,
            self._split_bytes(),
            self._parse_filters(schema),
            is_inferred=self._inferred_schema is not None and "columns" not in self.options,
            merge_schema=parse_flag(self.options, "mergeSchema"),
        )

    def _parse_filters(self, schema: StructType) -> RowFilters:
        """Return the filters; if the user has given no schema, they may have other columns than `schema`."""
        if "columns" in self.options and self._inferred_schema is None:
            raise InvalidArgumentError("option columns: can't be combined with .schema(), which selects columns itself")
        text, truncate_times = self.options.get("filters", ""), parse_flag(self.options, "truncate")
        if text and self._inferred_schema is not None:
            schema = add_columns(schema, self._inferred_schema, find_column_names(text))
        return RowFilters.parse(text, schema, truncate_times=truncate_times)

    @hide_traceback()
    def writer(self, schema: StructType, overwrite: bool) -> ArrowWriter:
        """Return a writer to the folder of the option ``path``."""
        check_options(self.options, "writing")
        folder = parse_path(self.options.get("path", ""))
        return ArrowWriter(folder, schema, overwrite=overwrite, fsync=parse_flag(self.options, "fsync"))

    @hide_traceback()
    def streamReader(self, schema: StructType) -> ArrowStreamReader:  # noqa: N802 -- Spark's own
        """Return a reader of the files that are added to the folder of the option ``path``."""
        check_options(self.options, "reading a stream")
        folder = parse_path(self.options.get("path", ""))
        if folder.exists() and not folder.is_dir():
            raise InvalidArgumentError(f"{folder}: is a file; a stream follows a folder")
        limits = StreamLimits(
            parse_positive_integer(self.options, "maxFilesPerTrigger"),
            parse_positive_integer(self.options, "maxBytesPerTrigger"),
            latest_first=parse_flag(self.options, "latestFirst"),
        )
        return ArrowStreamReader(folder, self._create_reader([], schema), limits)

    @hide_traceback()
    def streamWriter(self, schema: StructType, overwrite: bool) -> ArrowStreamWriter:  # noqa: N802 -- Spark's own
        """Return a writer of the batches of a streaming query to the folder of the option ``path``."""
        check_options(self.options, "writing a stream")
        folder = parse_path(self.options.get("path", ""))
        return ArrowStreamWriter(folder, schema, overwrite=overwrite, fsync=parse_flag(self.options, "fsync"))

    def _split_bytes(self) -> int:
        return parse_positive_integer(self.options, "splitBytes") or SPLIT_BYTES

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

    def _paths(self) -> list[Path]:
        """Return the absolute paths of the options, with expanded globs.

        Raises:
            NotFoundError: a path does not exist.
            InvalidArgumentError: paths differ in ``key=value`` folders, whose columns would be lost.
        """
        named_paths = self._texts()
        paths: list[Path] = []
        for path in named_paths:
            absolute = parse_path(path)
            matches = [absolute] if absolute.exists() else expand_glob(absolute)
            if not matches:
                raise MissingFileError(f"{path}: there is no such file or folder", filename=str(path))
            paths += matches
        _check_same_partition_folders(paths, parse_path(named_paths[0]))
        return paths


def count_rows(path: str | Path | Sequence[str | Path], **options: str | bool) -> int:
    """Count the rows of files and folders without a Spark job: by their manifests, or the footers of the files.

    Paths and options are those of ``spark.read.format("arrow").options(…).load(path)``, except ``filters``. Raises
    `InvalidArgumentError` for other options and for data sets, `MissingFileError` if there is no such path,
    `InvalidDataError` for malformed files.
    """
    paths = [path] if isinstance(path, str | Path) else path
    texts = {name: str(value).lower() if isinstance(value, bool) else value for name, value in options.items()}
    return ArrowDataSource(CaseInsensitiveDict({**texts, "paths": json.dumps(list(map(str, paths)))})).count_rows()


def _check_same_partition_folders(paths: list[Path], first_named: Path) -> None:
    """Raise `InvalidArgumentError` if a path is in other ``key=value`` folders than the path or glob `first_named`."""
    for path in paths:
        others = _split_partition_folders(path) - _split_partition_folders(first_named)
        if others:
            folder = min(others)
            raise InvalidArgumentError(
                f"{path}: the column {folder.partition('=')[0]!r} of the partition folder {folder!r} would be lost: "
                f"load one such folder at a time, and add the column with .withColumn()"
            )


def _split_partition_folders(path: Path) -> set[str]:
    return {part for part in (path if path.is_dir() else path.parent).parts if "=" in part[1:]}

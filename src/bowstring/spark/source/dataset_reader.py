"""The reader of data sets for ``spark.read.format("arrow")``: published frames, and URIs of `bowstring.serve`.

A data set arrives as text, the JSON of `Dataset.to_json` or a URI, because Spark passes only strings to Python sources.
Small parts are grouped into tasks of some 64 MB, and large ones split by rows. An executor on the host of a part
maps its memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

from bowstring.arrays.record_batch import RecordBatch
from bowstring.datasets.dataset import Dataset, DatasetPart, slice_batches
from bowstring.datasets.sources import describe_served
from bowstring.errors import ConnectionLostError, InvalidArgumentError
from bowstring.sharing.client.connect import connect
from bowstring.sharing.client.dataset_reader import DatasetReader
from bowstring.sharing.dataset_locations import DatasetLocations, find_location_kind, hide_secrets
from bowstring.spark.arrow_files import prefix_errors
from bowstring.spark.row_filters import RowFilters
from bowstring.spark.runtime.worker_errors import hide_traceback
from bowstring.spark.source.casting import cast_batch
from bowstring.spark.source.read_tasks import ReadTask, group_ranges
from bowstring.spark.source.reader import split_batch
from bowstring.spark.source.schema_compatibility import (
    check_read_conversions,
    check_unique_column_names,
    create_missing_error,
    find_missing_columns,
)
from bowstring.spark.types import to_spark_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def is_dataset_text(text: str) -> bool:
    """Whether a path of ``load`` is a data set: the JSON of one, a URI of one, or several locations of one."""
    return text.startswith("{") or find_location_kind(text) in ("server", "connector")


def parse_datasets(texts: Sequence[str]) -> Dataset:
    """Return the data set with the parts of several, in order. The schema of a URI is read from its server.

    Raises:
        InvalidDataError: the text is malformed.
        InvalidArgumentError: a text is the path of a file, or a data set has another schema than the first.
        NotFoundError, ConnectionLostError: a URI's data set does not exist, or its server does not run.
    """
    paths = [text for text in texts if not is_dataset_text(text)]
    if paths:
        raise InvalidArgumentError(
            f"{paths[0]}: is a path, but {_describe(texts[0])} is a data set: load them one by one"
        )
    datasets = [_parse_dataset(text) for text in texts]
    if not datasets:
        raise InvalidArgumentError("expected the URIs of a data set, found none: load the data set itself")
    first = datasets[0]
    for dataset in datasets[1:]:
        if (dataset.part_schema, dataset.column_indices) != (first.part_schema, first.column_indices):
            raise InvalidArgumentError(f"{dataset.name}: expected {first.schema!r}, found {dataset.schema!r}")
    return first.with_parts(chain.from_iterable(dataset.parts for dataset in datasets))


def _parse_dataset(text: str) -> Dataset:
    if text.startswith("{"):
        return Dataset.from_json(text)
    schema, part = describe_served(DatasetLocations.parse(text), transfers=False)
    return Dataset(_describe(text), schema, [part])


@dataclass(frozen=True, slots=True)
class PartRows:
    """Some rows of a part, or all of it."""

    index: int
    """The index of the part."""
    part: DatasetPart
    start: int = 0
    stop: int | None = None


@dataclass
class ArrowDatasetReader:
    """Plans the tasks on the driver, and reads their parts on the executors."""

    dataset: Dataset
    schema: StructType
    split_bytes: int
    filters: RowFilters
    """Of `schema`, and further columns for the conditions."""

    def __getstate__(self) -> dict[str, Any]:
        # The reader is sent with each task, which gets its parts with its partition.
        return {**self.__dict__, "dataset": self.dataset.with_parts(())}

    def plan(self) -> list[ReadTask]:
        """Group the parts, in order, into tasks of `split_bytes`; split larger parts by rows.

        Raises:
            NotFoundError: the data set has expired or was closed, or it lacks a requested column.
            ConnectionLostError: the server of its parts on this host does not run.
            UnsupportedTypeError: a column can't be read as the requested type.
        """
        name, schema = self.dataset.name, to_spark_schema(self.dataset.schema)
        check_unique_column_names(name, schema, self.filters.schema.names)
        missing_columns = find_missing_columns(name, schema, self.filters.schema)
        if missing_columns:
            raise create_missing_error(name, missing_columns, schema.names)
        check_read_conversions(name, schema, self.filters.schema)
        self._check_availability()
        return group_ranges(self._iter_part_rows(), self.split_bytes)

    def read(self, ranges: Sequence[PartRows]) -> Iterator[Any]:
        """Yield the batches of a task with Spark's types."""
        import pyarrow as pa

        read_schema = self.filters.schema
        with hide_traceback():
            for rows, batch in self._iter_batches(ranges):
                location = f"{self.dataset.name}, part {rows.index}"
                columns = batch.select(read_schema.names)
                with prefix_errors(location):
                    # Spark would crash on malformed data or accept it.
                    columns.validate(full=True)
                    pyarrow_batch = pa.record_batch(columns)
                spark_batch = cast_batch(
                    pyarrow_batch, read_schema, location, truncate_times=self.filters.truncate_times
                )
                yield from split_batch(self.filters.select_rows(spark_batch, self.schema.names))

    def _check_availability(self) -> None:
        """Raise an error if the first part was closed or has expired, before any task runs.

        A part on another host may be out of the driver's reach.
        """
        host = os.uname().nodename
        parts = sorted((part for part in self.dataset.parts if part.locations), key=lambda part: part.host != host)
        for part in parts[:1]:
            try:
                self._connect(part).close()
            except ConnectionLostError:
                if part.host in (host, None):
                    raise

    def _iter_part_rows(self) -> Iterator[tuple[PartRows, int]]:
        for index, part in enumerate(self.dataset.parts):
            if not part.locations:
                continue
            # By rows, since the driver has only the size of a part, not the sizes of its batches.
            count = min(-(-part.nbytes // self.split_bytes), part.num_rows)
            bounds = [part.num_rows * number // count for number in range(count + 1)] if count > 1 else []
            for start, stop in pairwise(bounds):
                yield PartRows(index, part, start, stop), part.nbytes // count
            if not bounds:
                # The size of a URI's part on another host is not known.
                yield PartRows(index, part), part.nbytes or self.split_bytes

    def _iter_batches(self, group: Sequence[PartRows]) -> Iterator[tuple[PartRows, RecordBatch]]:
        for rows in group:
            with self._connect(rows.part) as reader:
                batches = reader if rows.stop is None else slice_batches(reader, rows.start, rows.stop)
                for batch in batches:
                    yield rows, batch

    def _connect(self, part: DatasetPart) -> DatasetReader:
        return connect(DatasetLocations(part.locations), schema=self.dataset.part_schema)


def _describe(text: str) -> str:
    return "a description" if text.startswith("{") else hide_secrets(text.split(maxsplit=1)[0])

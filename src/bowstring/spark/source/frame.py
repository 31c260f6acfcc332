"""Read Arrow files and data sets as a data frame, in all versions of Spark, with fewer processes than the data source.

The driver plans the tasks itself, and `mapInArrow` runs them. The data source would start a Python process for its
schema, and another for its tasks.
"""

from __future__ import annotations

import json
import pickle
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from bowstring.datasets.dataset import Dataset
from bowstring.errors import InvalidArgumentError
from bowstring.spark.intervals import join_intervals
from bowstring.spark.options import ReadArguments, encode_options
from bowstring.spark.reader_writer_methods import SESSION_SETTINGS
from bowstring.spark.runtime.arrow_batch_job import PANDAS_WARNING
from bowstring.spark.source.planning import ReadPlanner
from bowstring.spark.source.read_tasks import TaskReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_ID_BYTES = 8


def read(
    spark: SparkSession,
    path: str | Path | Dataset | Sequence[str | Path | Dataset],
    *,
    schema: StructType | str | None = None,
    **options: Unpack[ReadArguments],
) -> DataFrame:
    """Return a data frame of files, folders, globs and data sets, as ``spark.read.format("arrow").load(path)``.

    It starts faster than the data source, joins intervals, and Spark knows its size, so that a small frame is joined by
    broadcasting it. The files are planned at once: the frame does not get the rows of later appends. `columns`,
    `filters` and the other options are as for the data source; `schema` reads other types and columns.

    Raises `InvalidArgumentError` for other options and schemas that differ, `MissingFileError` if there is no such
    path, `NotFoundError` for unknown columns, `InvalidDataError` for malformed files, `UnsupportedTypeError` for types
    without a counterpart; before any job runs.
    """
    paths = [path] if isinstance(path, str | Path | Dataset) else path
    texts = [each.to_json() if isinstance(each, Dataset) else str(each) for each in paths]
    settings = {option: str(spark.conf.get(setting)) for option, setting in SESSION_SETTINGS.items()}
    planner = ReadPlanner({**settings, **encode_options(options), "paths": json.dumps(texts)})
    if schema is None:
        struct = planner.schema()
    else:
        struct = spark.createDataFrame([], schema).schema if isinstance(schema, str) else schema
    if not struct.fields:
        raise InvalidArgumentError("read: expected at least one column; count_rows counts rows without reading any")
    reader = planner.reader(struct)
    tasks = reader.plan()
    # Spark estimates the size of the frame by its input, of a long for each row: too small an estimate would have it
    # broadcast a large frame to join it.
    step = max(1, sum(task.length_bytes for task in tasks) // (_ID_BYTES * len(tasks)))
    ids = spark.range(0, step * len(tasks), 1, len(tasks)).where(f"id % {step} = 0")
    # Pickled one by one, since each task gets all of them, and needs one.
    read_task = partial(_read_task, reader, [pickle.dumps(task.ranges) for task in tasks], step)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", PANDAS_WARNING, FutureWarning)
        frame = ids.mapInArrow(read_task, struct)
    joined: DataFrame = join_intervals(frame)
    return joined


def _read_task(reader: TaskReader, tasks: Sequence[bytes], step: int, ids: Iterator[Any]) -> Iterator[Any]:
    for batch in ids:
        for index in batch.column(0).to_pylist():
            yield from reader.read(pickle.loads(tasks[index // step]))


def count_rows(path: str | Path | Sequence[str | Path], **options: Unpack[ReadArguments]) -> int:
    """Count the rows of files and folders without a Spark job: by their manifests, or the footers of the files.

    Paths and options are as for `read`, except ``filters``, ``mode`` and ``ignore_corrupt_files``, which need the
    values. Raises `InvalidArgumentError` for other options and data sets, `MissingFileError` if there is no such path,
    `InvalidDataError` for malformed files.

    >>> with bs.new_file("visits.arrow", {"n": "int64"}) as writer:
    ...     writer.write(bs.record_batch({"n": [1, 2, 3]}))
    >>> bs.spark.count_rows("visits.arrow")
    3
    """
    paths = [path] if isinstance(path, str | Path) else path
    return ReadPlanner({**encode_options(options), "paths": json.dumps(list(map(str, paths)))}).count_rows()

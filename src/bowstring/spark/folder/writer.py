"""Write a data frame to a folder of Arrow files, in half the time of ``df.write.format("arrow")``.

The data source's writer gets batches whose bytes Spark has counted after each row. This one skips that, as `publish`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

from bowstring.datasets.manifest import ManifestEntry
from bowstring.datatypes.schema import Schema
from bowstring.errors import InvalidArgumentError
from bowstring.spark.folder import staging
from bowstring.spark.folder.job import FolderJob
from bowstring.spark.options import SaveMode, WriteOptions, parse_path
from bowstring.spark.runtime.arrow_batch_job import ArrowBatchJob, as_spark_frame
from bowstring.spark.types import prefers_large_types, to_arrow_schema
from bowstring.spark.vectors import VectorForm

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.pandas import DataFrame as PandasFrame
    from pyspark.sql import DataFrame

WriteMode = Literal["error", "errorifexists", "append", "overwrite", "ignore"]

_REPORT_SCHEMA = "name string, length_bytes long, rows long, batches long, checksum string"
_TIME_ZONE_SETTING = "spark.sql.session.timeZone"


def write(  # noqa: PLR0913 -- as the options of the data source
    df: DataFrame | PandasFrame[Any],
    path: str | Path,
    *,
    mode: WriteMode = "errorifexists",
    partition_by: Sequence[str] = (),
    partition_overwrite_mode: Literal["static", "dynamic"] = "static",
    compression: Literal["none", "lz4", "zstd"] | None = None,
    compression_level: int | None = None,
    sort_by: Sequence[str] = (),
    dictionary_columns: Sequence[str] = (),
    max_records_per_batch: int | None = None,
    max_bytes_per_batch: int | None = None,
    max_records_per_file: int | None = None,
    max_bytes_per_file: int | None = None,
    statistics: bool = True,
    vectors: VectorForm = "float64",
    fsync: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Write `df` to a folder, as ``df.write.format("arrow").mode(mode).save(path)``, but faster.

    All of Spark's modes work: "errorifexists" (or "error") raises `ExistingFileError` if the folder has data, "ignore"
    then does nothing. Failed and repeated tasks leave no rows, and concurrent jobs are both committed. With `fsync`,
    files are written to disk before the commit. The other arguments are the options of the data source: a file of each
    partition, with "dynamic" only these partitions are overwritten; compressed, sorted and dictionary-encoded columns;
    the maximum sizes of record batches and files; and whether footers have statistics.

    ML vectors become lists of float64, which Spark reads as ``array<double>``, or with `vectors` of "float32"; "sparse"
    keeps only the values that are not zero, and their indices; "struct", the default of the data source, writes what
    Spark has, and Spark reads both as vectors. Matrices become lists of rows, except with "struct". A frame of
    `pyspark.pandas` is written without its index.

    Raises `InvalidArgumentError` for other modes, columns that the folder does not take, and objects that are not data
    frames; `UnsupportedTypeError` for types without a counterpart, with the column's path; before any job runs.
    `ConflictError` if an overwrite would remove files that another job has committed meanwhile.
    """
    if mode not in get_args(WriteMode):
        raise InvalidArgumentError(f"mode: expected one of {', '.join(map(repr, get_args(WriteMode)))}, found {mode!r}")
    frame = as_spark_frame(df, "write", "write_table")
    options = WriteOptions(
        fsync=fsync,
        statistics=statistics,
        vectors=vectors,
        compression=compression,
        compression_level=compression_level,
        partition_by=partition_by,
        partition_overwrite_mode=partition_overwrite_mode,
        sort_by=sort_by,
        dictionary_columns=dictionary_columns,
        max_records_per_batch=max_records_per_batch,
        max_bytes_per_batch=max_bytes_per_batch,
        max_records_per_file=max_records_per_file,
        max_bytes_per_file=max_bytes_per_file,
    )
    folder = parse_path(str(path), storage_options)
    session = frame.sparkSession
    save_mode: SaveMode = "error" if mode == "errorifexists" else mode
    job = FolderJob.begin(folder, frame.schema, save_mode, options, session.conf.get(_TIME_ZONE_SETTING))
    if job is None:
        return
    schema = to_arrow_schema(job.schema, prefers_large_types=prefers_large_types(session))
    created_folders = staging.create_staging_folder(folder, job.id)
    try:
        rows = ArrowBatchJob(frame, partial(_write_task, job, schema), _REPORT_SCHEMA).collect()
        job.commit([ManifestEntry(*row) for row in rows])
    except BaseException:
        job.discard(created_folders)
        raise


def _write_task(job: FolderJob, schema: Schema, batches: Iterator[Any]) -> Iterator[Any]:
    """Write a partition and yield the entries of its files, with the columns of `_REPORT_SCHEMA`; runs in a task."""
    import pyarrow as pa

    columns = (batch.select(range(len(schema))) for batch in batches)
    rows = [
        (entry.name, entry.length_bytes, entry.rows, entry.batches, entry.checksum)
        for entry in job.write_task(columns, schema=schema)
    ]
    if rows:
        names = [column.split()[0] for column in _REPORT_SCHEMA.split(", ")]
        yield pa.RecordBatch.from_pydict(dict(zip(names, zip(*rows, strict=True), strict=True)))

"""What ``format("arrow")`` does not support, streams and `partitionBy`: errors that name what works instead.

Spark calls a Python source only in the thread of a query, after ``load()`` and ``start()`` have returned. So
`disable_unsupported_calls` puts the check where the user names the format.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from bowstring.errors import InvalidArgumentError
from bowstring.spark.worker_errors import hide_traceback

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def streaming_read_error() -> InvalidArgumentError:
    """The error for ``readStream.format("arrow")``."""
    return InvalidArgumentError(
        'format("arrow") does not support readStream: use spark.read.format("arrow").load(path), in the function of '
        "another stream's foreachBatch if it is to be repeated"
    )


def partition_error() -> InvalidArgumentError:
    """The error for ``write.format("arrow").partitionBy(…)``."""
    return InvalidArgumentError(
        'Python data sources, such as format("arrow"), do not support partitionBy: write each value to a folder of its '
        "own, or use df.repartition(columns)"
    )


def disable_unsupported_calls(spark: SparkSession) -> None:
    """Make ``readStream.format("arrow")`` and ``write.format("arrow").partitionBy(…)``
    raise `InvalidArgumentError`.

    So do `load` and `start` with this format, in sessions of the kind of `spark` (classic or Connect).
    """
    readwriter = import_module(type(spark.readStream).__module__)
    reader_class = readwriter.DataStreamReader
    if not hasattr(reader_class.format, "__wrapped__"):
        reader_class.format = _reject_arrow_format(reader_class.format, streaming_read_error)
    writer_class = import_module(type(spark.read).__module__).DataFrameWriter
    if not hasattr(writer_class.save, "__wrapped__"):
        writer_class.save = _explain_partition_error(writer_class.save)


def _reject_arrow_format(
    method: Callable[[Any, str], Any], error: Callable[[], InvalidArgumentError]
) -> Callable[[Any, str], Any]:
    @functools.wraps(method)
    def set_format(self: Any, source: str) -> Any:
        if str(source).lower() == "arrow":
            raise error()
        return method(self, source)

    return set_format


def _explain_partition_error(save: Callable[..., None]) -> Callable[..., None]:
    """Replace Spark's error for `partitionBy`, which speaks of the columns of an existing table."""

    @functools.wraps(save)
    def explained_save(self: Any, *args: Any, **options: Any) -> None:
        try:
            save(self, *args, **options)
        except PySparkException as problem:
            if "partitioning or clustering columns do not match" in str(problem):
                raise partition_error() from problem
            raise

    return explained_save


class UnsupportedStreamReader(DataSourceStreamReader):
    """Raises `InvalidArgumentError` on its first use; PySpark hides what raises before there is a reader."""

    @hide_traceback()
    def initialOffset(self) -> NoReturn:  # noqa: N802 -- Spark's own
        """Raise `InvalidArgumentError`."""
        raise streaming_read_error()

    @hide_traceback()
    def getDefaultReadLimit(self) -> NoReturn:  # noqa: N802 -- Spark's own
        """Raise `InvalidArgumentError`."""
        raise streaming_read_error()

    def partitions(self, start: Any, end: Any) -> list[InputPartition]:  # noqa: ARG002 -- Spark's own
        """None."""
        return []

    def read(self, partition: InputPartition) -> NoReturn:  # noqa: ARG002 -- Spark's own
        """Raise `InvalidArgumentError`."""
        raise streaming_read_error()

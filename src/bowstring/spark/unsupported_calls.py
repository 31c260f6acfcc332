"""What ``format("arrow")`` does not support, `partitionBy`: an error that names what works instead."""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from bowstring.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def partition_error() -> InvalidArgumentError:
    """The error for ``write.format("arrow").partitionBy(…)``."""
    return InvalidArgumentError(
        'Python data sources, such as format("arrow"), do not support partitionBy: write each value to a folder of its '
        "own, or use df.repartition(columns)"
    )


def disable_unsupported_calls(spark: SparkSession) -> None:
    """Make ``write.format("arrow").partitionBy(…)`` raise `InvalidArgumentError`, in sessions of the kind of `spark`
    (classic or Connect).
    """
    writer_class = import_module(type(spark.read).__module__).DataFrameWriter
    if not hasattr(writer_class.save, "__wrapped__"):
        writer_class.save = _explain_partition_error(writer_class.save)


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

"""Extensions of PySpark's readers and writers: `load` accepts data sets and joins intervals, `format` passes settings
of the session, and `save` explains that `partitionBy` fails.

PySpark passes only strings to a data source, in a classic session through py4j and in Connect through protobuf, so
`load` replaces a data set by its JSON text before either.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from bowstring.datasets.dataset import Dataset
from bowstring.errors import InvalidArgumentError
from bowstring.spark.intervals import join_intervals
from bowstring.spark.options import SESSION_PARTITION_TYPES, SESSION_TIME_ZONE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SESSION_SETTINGS = {
    SESSION_TIME_ZONE: "spark.sql.session.timeZone",
    SESSION_PARTITION_TYPES: "spark.sql.sources.partitionColumnTypeInference.enabled",
}
"""The settings of a session by the options that pass them to `ReadOptions`."""


def extend_reader_and_writer(spark: SparkSession) -> None:
    """Make ``read.load`` accept data sets and join intervals, and ``write.format("arrow").partitionBy(…)`` raise
    `InvalidArgumentError`.

    This applies to sessions of the kind of `spark`, classic or Connect.
    """
    # `functools.wraps` sets `__wrapped__`, by which a second call recognizes methods that are extended already.
    for reader in (type(spark.read), type(spark.readStream)):
        if not hasattr(reader.format, "__wrapped__"):
            reader.format = _pass_settings(reader.format)  # type: ignore[method-assign]
    readwriter = import_module(type(spark.read).__module__)
    for method, extend in (("load", _extend_load), ("save", _explain_partition_error)):
        class_ = readwriter.DataFrameReader if method == "load" else readwriter.DataFrameWriter
        original = getattr(class_, method)
        if not hasattr(original, "__wrapped__"):
            setattr(class_, method, extend(original))


def _extend_load(load: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(load)
    def extended_load(self: Any, path: Any = None, *args: Any, **options: Any) -> Any:
        frame = load(self, _to_text(path), *args, **options)
        # Only a reader of Connect has its format, and only there does a frame's schema need a request.
        return join_intervals(frame) if getattr(self, "_format", "arrow") == "arrow" else frame

    return extended_load


def _pass_settings(set_format: Callable[..., Any]) -> Callable[..., Any]:
    """Pass settings of the session to ``format("arrow")``: Python sources can't read them."""

    @functools.wraps(set_format)
    def extended_format(self: Any, source: str) -> Any:
        reader = set_format(self, source)
        if source.lower() == "arrow":
            session = getattr(self, "_spark", None) or self._client
            for option, setting in SESSION_SETTINGS.items():
                reader = reader.option(option, session.conf.get(setting))
        return reader

    return extended_format


def _to_text(path: Any) -> Any:
    """Return the JSON of a data set, or of each data set in a list; anything else as it is."""
    if isinstance(path, Dataset):
        return path.to_json()
    if isinstance(path, list | tuple):
        return [_to_text(each) for each in path]
    return path


def _explain_partition_error(save: Callable[..., None]) -> Callable[..., None]:
    """Replace Spark's error for `partitionBy`, which names the columns of an existing table."""

    @functools.wraps(save)
    def explained_save(self: Any, *args: Any, **options: Any) -> None:
        try:
            save(self, *args, **options)
        except PySparkException as problem:
            if "partitioning or clustering columns do not match" in str(problem):
                raise InvalidArgumentError(
                    'Spark does not pass partitionBy to Python data sources such as format("arrow"): set '
                    '.option("partitionBy", "column, …") instead'
                ) from problem
            raise

    return explained_save

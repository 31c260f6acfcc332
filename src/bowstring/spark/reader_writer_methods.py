"""Extensions of PySpark's readers and writers: `format` passes settings of the session, and `save` explains that
`partitionBy` fails.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from bowstring.errors import InvalidArgumentError
from bowstring.spark.options import SESSION_PARTITION_TYPES, SESSION_TIME_ZONE
from bowstring.spark.versions import DATA_SOURCE, DATA_SOURCE_STREAMS, SparkFeature

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SESSION_SETTINGS = {
    SESSION_TIME_ZONE: "spark.sql.session.timeZone",
    SESSION_PARTITION_TYPES: "spark.sql.sources.partitionColumnTypeInference.enabled",
}
"""The settings of a session by the options that pass them to `ReadOptions`."""


def extend_reader_and_writer(spark: SparkSession) -> None:
    """Make ``format("arrow")`` use settings of the session, and its ``partitionBy(…)`` raise `InvalidArgumentError`.

    This applies to sessions of the kind of `spark`, classic or Connect. With PySpark 3.5, ``format("arrow")`` raises
    `UnmetRequirementError`.
    """
    readwriter, streaming = (import_module(type(reader).__module__) for reader in (spark.read, spark.readStream))
    if DATA_SOURCE.is_available:
        _replace_method(readwriter.DataFrameReader, "format", _pass_settings)
        _replace_method(streaming.DataStreamReader, "format", _pass_settings)
        _replace_method(readwriter.DataFrameWriter, "save", _explain_partition_error)
        return
    for class_ in (readwriter.DataFrameReader, readwriter.DataFrameWriter):
        _replace_method(class_, "format", functools.partial(_refuse_arrow, DATA_SOURCE))
    for class_ in (streaming.DataStreamReader, streaming.DataStreamWriter):
        _replace_method(class_, "format", functools.partial(_refuse_arrow, DATA_SOURCE_STREAMS))


def _replace_method(class_: type, name: str, extend: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    method = getattr(class_, name)
    if not hasattr(method, "__wrapped__"):  # `functools.wraps` has set it if the method is extended already
        setattr(class_, name, extend(method))


def _refuse_arrow(feature: SparkFeature, set_format: Callable[..., Any]) -> Callable[..., Any]:
    """Raise an error for ``format("arrow")``, which this version of Spark would search in vain."""

    @functools.wraps(set_format)
    def checked_format(self: Any, source: str) -> Any:
        if source.lower() == "arrow":
            feature.check()
        return set_format(self, source)

    return checked_format


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

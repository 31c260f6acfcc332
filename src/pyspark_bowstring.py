"""Registers ``format("arrow")``: Spark imports the modules that are named ``pyspark_…`` when it looks for data sources.

It does so in any session of a driver whose Python finds this module, also in the server of Spark Connect. If one of
these modules fails, so do all data sources; this one imports little until the source is used.
"""

from __future__ import annotations

from collections.abc import MutableMapping

from pyspark.sql.datasource import DataSource

from bowstring.spark.runtime.worker_daemon import adopt_worker

adopt_worker()


class DefaultSource(DataSource):
    """Creates a `bowstring.spark.source.data_source.ArrowDataSource`."""

    def __new__(cls, options: MutableMapping[str, str]) -> DataSource:  # type: ignore[misc]
        from bowstring.spark.source.data_source import ArrowDataSource

        return ArrowDataSource(options)

    @classmethod
    def name(cls) -> str:
        """The word in ``format("arrow")``."""
        return "arrow"

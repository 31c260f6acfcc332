"""One Spark session for all tests of this folder, because starting it takes longer than most tests."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STARTS_SPARK = {"spark", "cluster_report", "cluster_reports"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if STARTS_SPARK & set(getattr(item, "fixturenames", ())):
            item.add_marker("spark")
            # Warnings of PySpark and py4j.
            item.add_marker(pytest.mark.filterwarnings("ignore:PySpark does not yet fully support:FutureWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Two cores; a task may fail three times before its job does."""
    pytest.importorskip("pyspark")
    from bowstring.spark import session

    home = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="bowstring-tests-") as folder:
        os.chdir(folder)  # to see that nothing is left there
        try:
            test_session = session(
                "local[2,4]",
                {
                    "spark.sql.execution.arrow.maxRecordsPerBatch": 100,
                    "spark.sql.session.timeZone": "Europe/Berlin",
                    "spark.sql.shuffle.partitions": 2,
                    "spark.driver.memory": "1g",
                },
            )
        finally:
            os.chdir(home)
        yield test_session
        test_session.stop()
        assert list(Path(folder).iterdir()) == []

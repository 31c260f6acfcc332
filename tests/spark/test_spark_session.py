"""The settings of a new session."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bowstring.spark import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENABLED = "spark.python.unix.domain.socket.enabled"


def test_the_python_workers_of_a_local_session_use_unix_sockets(spark: SparkSession) -> None:
    folder = Path(spark.sparkContext.getConf().get("spark.python.unix.domain.socket.dir", ""))
    spark.range(1).mapInArrow(lambda batches: batches, "id long").collect()
    assert any(path.is_socket() for path in folder.iterdir())


@pytest.mark.parametrize(
    ("master", "depth", "expected"), [("local[2]", 1, True), ("local[2]", 9, False), ("yarn", 1, False)]
)
def test_unix_sockets_are_only_used_where_their_path_is_short(
    master: str, depth: int, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        deep = Path(folder, *["folders"] * depth)
        deep.mkdir(parents=True)
        monkeypatch.setattr(tempfile, "tempdir", str(deep))
        assert (ENABLED in spark_session._create_default_settings(master)) is expected

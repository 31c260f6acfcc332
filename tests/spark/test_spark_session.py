"""The settings of a new session."""

from __future__ import annotations

import subprocess
import sys
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


def test_a_script_that_neither_stops_spark_nor_closes_what_it_published_prints_nothing(tmp_path: Path) -> None:
    script = (
        "import bowstring.spark\n"
        "spark = bowstring.spark.session('local[2]')\n"
        "published = bowstring.spark.publish(spark.range(1000))\n"
    )
    process = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    printed = [line for line in (process.stdout + process.stderr).splitlines() if "incubator" not in line]
    assert [line for line in printed if "JDK_JAVA_OPTIONS" not in line] == []

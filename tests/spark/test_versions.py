"""What each version of PySpark lacks is an error with the version and the alternative; all else works."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bowstring.errors import UnmetRequirementError
from bowstring.spark.versions import DATA_SOURCE, READ_LIMITS, SPARK_VERSION, SparkFeature, check_spark_version
from tests.spark.needs_spark import needs_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
SMOKE_TEST = Path(__file__).with_name("version_smoke.py")


def test_an_error_names_the_version_that_a_feature_needs_and_the_alternative() -> None:
    feature = SparkFeature("teleportation", (99, 1), "walk")
    assert not feature.is_available
    with pytest.raises(UnmetRequirementError, match=r"^teleportation needs PySpark 99\.1, this is \d[\d.]+: walk$"):
        feature.check()


def test_a_feature_of_this_version_is_available() -> None:
    major, minor = SPARK_VERSION
    SparkFeature("itself", (major, minor), "").check()
    check_spark_version()


def test_a_spark_without_any_support_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bowstring.spark.versions.SPARK_VERSION", (3, 4))
    with pytest.raises(UnmetRequirementError, match="needs PySpark 3"):
        check_spark_version()


@needs_spark(4, 0)
def test_limits_of_streams_are_refused_where_spark_does_not_pass_them(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark_bowstring import DefaultSource

    monkeypatch.setattr("bowstring.spark.versions.SPARK_VERSION", (4, 1))
    for option in ("maxFilesPerTrigger", "maxBytesPerTrigger"):
        with pytest.raises(UnmetRequirementError, match="maxFilesPerTrigger"):
            DefaultSource({option: "1"})
    monkeypatch.setattr("bowstring.spark.versions.SPARK_VERSION", READ_LIMITS.since)
    DefaultSource({"maxFilesPerTrigger": "1"})


@needs_spark(4, 0)
def test_rows_without_columns_are_refused_where_spark_loses_them(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql.types import StructType

    from pyspark_bowstring import DefaultSource

    monkeypatch.setattr("bowstring.spark.versions.SPARK_VERSION", (4, 0))
    with pytest.raises(UnmetRequirementError, match="num_rows of the data set"):
        DefaultSource({"path": "data"}).reader(StructType())


@pytest.mark.skipif(DATA_SOURCE.is_available, reason="PySpark has Python data sources since 4.0")
def test_the_data_source_names_what_replaces_it_in_spark_3(spark: SparkSession) -> None:
    for access in (spark.read, spark.range(1).write):
        with pytest.raises(UnmetRequirementError, match=re.escape('format("arrow") needs PySpark 4.0')):
            access.format("arrow")
    stream = spark.readStream.format("rate").load()
    for stream_access in (spark.readStream, stream.writeStream):
        with pytest.raises(UnmetRequirementError, match="use publish_stream, or write or publish in foreachBatch"):
            stream_access.format("arrow")


@pytest.mark.thorough
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("version", ["3.5", "4.0"])
def test_a_wheel_with_an_older_spark_publishes_writes_and_reads(version: str, tmp_path: Path) -> None:
    wheels, environment = tmp_path / "wheels", tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", wheels], cwd=ROOT, check=True)
    (wheel,) = wheels.iterdir()
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    python = environment / "bin" / "python"
    packages = [f"{wheel}[spark]", f"pyspark=={version}.*"]
    subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=True, timeout=1500)
    process = run_smoke_test(python, tmp_path)
    assert process.returncode == 0, process.stderr
    assert process.stdout.startswith(f"PySpark {version}.")
    assert process.stdout.endswith("done\n")


@pytest.mark.thorough
def test_this_version_publishes_writes_and_reads(tmp_path: Path) -> None:
    process = run_smoke_test(sys.executable, tmp_path)
    assert process.returncode == 0, process.stderr
    assert process.stdout.endswith("done\n")


def run_smoke_test(python: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the smoke test in a folder, without what a session of this process has set for its own workers."""
    own = ("PYSPARK_", "SPARK_", "PYTHONPATH", "JDK_JAVA_OPTIONS", "JAVA_HOME")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    command = [python, SMOKE_TEST, str(folder / "data")]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)

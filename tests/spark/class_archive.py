"""Java's archive of the classes that Spark loads: with it, a Java of the tests starts in half the time.

A complete run with pytest-xdist creates the archive while it collects tests, unless there is one; others use it.

Usage: class_archive.py ARCHIVE. Runs a session whose Java writes the classes that it has loaded.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest

ARCHIVE = Path(__file__).resolve().parents[2] / ".pytest_cache" / "spark-classes.jsa"
_NO_WARNINGS = "-Xlog:cds=off -Xlog:cds+dynamic=off"
# Each Java of the tests runs for seconds: compiling its code more thoroughly takes longer than that saves.
# One thread collects the garbage of a small heap with the least work.
_WITHOUT_ARCHIVE = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# A Java that finds no archive, or one of another Java or for other packages, does without.
_JAVA_OPTIONS = f"{_WITHOUT_ARCHIVE} -XX:SharedArchiveFile={ARCHIVE} {_NO_WARNINGS}"
_PARTS_OF_CLUSTERS = (
    "deploy.master.Master",
    "deploy.worker.Worker",
    "deploy.worker.ExecutorRunner",
    "executor.CoarseGrainedExecutorBackend",
)
_creation = pytest.StashKey["subprocess.Popen[bytes]"]()


def pytest_configure(config: pytest.Config) -> None:
    """Set the options of each Java, and begin to create the archive."""
    os.environ.setdefault("JDK_JAVA_OPTIONS", _JAVA_OPTIONS)
    if (
        getattr(config.option, "numprocesses", None)
        and config.args_source is pytest.Config.ArgsSource.TESTPATHS
        and "spark" not in config.option.markexpr
        and os.environ.get("JDK_JAVA_OPTIONS") == _JAVA_OPTIONS
        and find_spec("pyspark")
        and not ARCHIVE.exists()
    ):
        command = [sys.executable, __file__, str(ARCHIVE)]
        config.stash[_creation] = subprocess.Popen(command, start_new_session=True)


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the creation if it has not ended."""
    process = config.stash.get(_creation, None)
    if process is not None and process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def create(archive: Path) -> None:
    """Write the archive, unless Spark does not start."""
    unfinished = archive.with_suffix(".unfinished")
    unfinished.parent.mkdir(exist_ok=True)
    unfinished.unlink(missing_ok=True)
    # Its output ends with Java, which ends after Python.
    subprocess.run(
        [sys.executable, __file__, str(unfinished), "--session"],
        env=os.environ | {"JDK_JAVA_OPTIONS": _WITHOUT_ARCHIVE},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    if unfinished.exists():
        unfinished.replace(archive)


def run_session(archive: Path, folder: str) -> None:
    """Run queries of the kinds that the tests have."""
    from bowstring.spark import publish, session

    options = f"-XX:ArchiveClassesAtExit={archive} {_NO_WARNINGS}"
    settings = {"spark.driver.extraJavaOptions": options, "spark.driver.memory": "1g"}
    spark = session("local[1]", settings)
    loader = spark.sparkContext._jvm.java.lang.Thread.currentThread().getContextClassLoader()  # type: ignore[union-attr]
    for name in _PARTS_OF_CLUSTERS:
        loader.loadClass(f"org.apache.spark.{name}")
    frame = spark.createDataFrame([(1, "a"), (2, None)], "id long, name string")
    frame.groupBy("name").count().orderBy("name").collect()
    for source in ("parquet", "arrow"):
        path = f"{folder}/{source}"
        frame.write.format(source).mode("append").save(path)
        assert spark.read.format(source).load(path).where("id > 1").count() == 1
    stream = spark.readStream.format("arrow").load(path).writeStream.format("arrow").trigger(availableNow=True)
    stream.option("checkpointLocation", f"{folder}/checkpoint").start(f"{folder}/copy").awaitTermination()
    with publish(frame) as published:
        assert published.num_rows == 2
    spark.stop()


if __name__ == "__main__":
    if sys.argv[2:]:
        with tempfile.TemporaryDirectory(prefix="bowstring-tests-") as home:
            os.chdir(home)
            run_session(Path(sys.argv[1]), home)
    else:
        create(Path(sys.argv[1]).resolve())

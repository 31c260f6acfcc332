"""The settings of a new session."""

from __future__ import annotations

import gc
import os
import re
import runpy
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

import bowstring as bs
from bowstring.sharing.processes import ProcessIdentity, wait_for_exit
from bowstring.spark import spark_session
from bowstring.spark.folder import staging
from tests.spark.needs_spark import needs_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENABLED = "spark.python.unix.domain.socket.enabled"


@needs_spark(4, 1)
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


def test_a_new_session_removes_the_folders_of_killed_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with subprocess.Popen(["true"]) as process:
        killed = ProcessIdentity.from_pid(process.pid)
    for name, owner in (("killed", killed), ("running", ProcessIdentity.current()), ("unknown", None)):
        (tmp_path / f"bowstring-spark-{name}").mkdir()
        (tmp_path / f"bowstring-spark-{name}" / "owner.json").write_text(staging.encode_owner_json(owner))
    spark_session._create_default_settings("local[2]")
    names = {path.name.removeprefix("bowstring-spark-") for path in tmp_path.iterdir()}
    assert "killed" not in names
    assert {"running", "unknown"} < names


@pytest.mark.thorough
def test_a_script_that_uses_pandas_and_closes_nothing_prints_nothing(
    tmp_path: Path,
) -> None:
    script = (
        "import bowstring.spark\n"
        "spark = bowstring.spark.session('local[2]')\n"
        "published = bowstring.spark.publish(spark.range(1000))\n"
        "frame = spark.createDataFrame(spark.range(3).toPandas())\n"
        "frame.mapInArrow(lambda batches: batches, frame.schema).collect()\n"
    )
    process = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    printed = [line for line in (process.stdout + process.stderr).splitlines() if "incubator" not in line]
    assert [line for line in printed if "JDK_JAVA_OPTIONS" not in line] == []


def print_of_a_worker_whose_socket_is_closed(daemon_module: str, folder: Path) -> str:
    variables = {
        "PYTHON_UNIX_DOMAIN_ENABLED": "true",
        "PYTHON_WORKER_FACTORY_SOCK_DIR": str(folder),
        "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",
        "SPARK_REUSE_WORKER": "1",
    }
    daemon = subprocess.Popen(
        [sys.executable, "-m", daemon_module, "pyspark.worker"],
        env={**os.environ, **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert daemon.stdout is not None
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(daemon.stdout.read(int.from_bytes(daemon.stdout.read(4), "big")))
        worker = os.pidfd_open(int.from_bytes(connection.recv(4), "big"))
    assert wait_for_exit(worker, 60)
    os.close(worker)
    return daemon.communicate()[1].decode()


def test_a_worker_freezes_the_objects_of_its_imports_after_its_first_task(spark: SparkSession) -> None:
    """Otherwise, collecting garbage after each task takes most of the time of a small one."""

    def count_frozen_objects(batches: Iterator[Any]) -> Iterator[Any]:  # here, as workers can't import this module
        import pyarrow as pa

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"count": [gc.get_freeze_count()]})

    frame = spark.range(8, numPartitions=8).mapInArrow(count_frozen_objects, "count long")
    counts = [row[0] for row in frame.collect() + frame.collect()]
    assert max(counts) > 10_000


def test_a_daemon_without_the_function_that_is_replaced_runs_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    pyspark = pytest.importorskip("pyspark")
    name = "bowstring.spark.runtime.worker_daemon"
    calls: list[str] = []
    daemon = ModuleType("pyspark.daemon")
    vars(daemon)["manager"] = lambda: calls.append("manager")
    monkeypatch.setitem(sys.modules, daemon.__name__, daemon)
    monkeypatch.setattr(pyspark, "daemon", daemon)
    monkeypatch.delitem(sys.modules, name, raising=False)
    runpy.run_module(name, run_name="__main__")
    assert calls == ["manager"]
    assert not hasattr(daemon, "worker")


@needs_spark(4, 1)
def test_workers_print_nothing_when_spark_closes_their_sockets(spark: SparkSession) -> None:
    """Spark does so after a minute without work, and when it stops."""
    with tempfile.TemporaryDirectory() as folder:
        module = spark.sparkContext.getConf().get("spark.python.daemon.module", "")
        assert print_of_a_worker_whose_socket_is_closed(module, Path(folder)) == ""
        printed = print_of_a_worker_whose_socket_is_closed("pyspark.daemon", Path(folder))
        assert "BrokenPipeError" in printed, "PySpark does so itself: remove bowstring.spark.runtime.worker_daemon"


@needs_spark(4, 2)  # older daemons import NumPy themselves
@pytest.mark.parametrize(
    "daemon",
    [("bowstring.spark.runtime.worker_daemon", "pyspark.worker"), ("pyspark.daemon", "pyspark.serializers")],
)
def test_daemons_import_the_installed_pyspark_and_nothing_that_starts_threads(
    tmp_path: Path, daemon: tuple[str, str]
) -> None:
    """Spark puts a ZIP file first, which each process would compile; threads don't survive that the daemon forks."""
    pyspark = pytest.importorskip("pyspark")
    (tmp_path / "packages").symlink_to(Path(pyspark.__file__).parents[1])  # Spark has other names of folders
    (tmp_path / "sitecustomize.py").write_text("print('the hidden module runs', flush=True)")
    compressed = (tmp_path / "packages" / "pyspark" / "python" / "lib").glob("*.zip")
    own_folder = Path(bs.__file__).parent / "spark" / "runtime" / "python_path"
    process = subprocess.run(
        [sys.executable, "-v", "-m", *daemon],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, [*compressed, own_folder, tmp_path]))},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )
    imports = [line for line in process.stderr.decode().splitlines() if line.startswith("import ")]
    assert any(f"'{daemon[1]}'" in line for line in imports)
    assert not any("zipimporter object" in line or "'numpy'" in line or "'pyarrow'" in line for line in imports)
    assert process.stdout.startswith(b"the hidden module runs\n")


def test_a_session_does_not_change_the_path_of_other_processes(
    spark: SparkSession,
) -> None:
    assert "python_path" not in os.environ.get("PYTHONPATH", "")


def test_a_wrong_master_is_named_beside_the_reason_of_spark() -> None:
    program = "import bowstring.spark; bowstring.spark.session('locl')"
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert re.search("Master must either be yarn or start with spark, (mesos, )?k8s, or local", process.stderr)
    assert process.stderr.splitlines()[-1].startswith(
        "bowstring.errors.UnmetRequirementError: Spark did not start with the master 'locl' and the Java of /"
    )

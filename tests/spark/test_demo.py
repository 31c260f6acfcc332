"""The main job: data passes from Spark to another process and matches Spark's rows."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import asdict
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

import bowstring as bs
from bowstring.cli.demo import corpus, demo, input_option
from bowstring.cli.demo.summary import ColumnSummary, TableSummary, summarize_batches, summarize_frame
from bowstring.cli.demo.transfer_methods import measure_collect_to_driver, measure_parquet, measure_publish
from bowstring.errors import InvalidArgumentError, NotFoundError, UnmetRequirementError
from tests.polling import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("name", ["flights-200k.arrow", "birdstrikes.csv", "earthquakes.json", "flights-20k.json"])
def test_the_consumer_reads_what_spark_computes_of_real_files(
    spark: SparkSession, shared_folder: Path, name: str
) -> None:
    frame = input_option.read_dataframe(spark, str(shared_folder / "data" / name))
    measurement = measure_publish(frame)
    assert measurement.summary is not None
    assert measurement.summary.rows > 0
    assert measurement.summary.find_differences(summarize_frame(frame)) == []


def test_all_methods_deliver_all_rows_of_the_installed_python_files(spark: SparkSession) -> None:
    setting = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(setting)
    spark.conf.set(setting, 10_000)  # a hundred rows a batch, as for the other tests, are more objects than data
    try:
        frame = corpus.create_line_frame(spark, corpus.list_installed_python_files(60_000)).cache()
        summary = summarize_frame(frame)
        measurements = [measure_publish(frame), measure_collect_to_driver(frame), measure_parquet(frame)]
    finally:
        spark.conf.set(setting, str(before))
    assert summary.rows > 30_000
    assert [measurement.rows for measurement in measurements] == [summary.rows] * 3
    assert measurements[0].summary is not None
    assert measurements[0].summary.find_differences(summary) == []
    assert measurements[0].copied_bytes < measurements[0].size_bytes / 2
    frame.unpersist()


def test_the_corpus_classifies_lines_and_counts_users_of_a_package(spark: SparkSession, tmp_path: Path) -> None:
    package = tmp_path / "made"
    package.mkdir()
    (package / "bow.py").write_text("import os\n\n\nclass Bow:\n    # strung\n    def draw(self): ...\n")
    (tmp_path / "user.py").write_text("from made import Bow\n")
    moment = datetime(2026, 1, 1)
    files = [
        corpus.PythonFile(str(package / "bow.py"), "made", "made.bow", 60, moment),
        corpus.PythonFile(str(tmp_path / "user.py"), "user", "user", 21, moment),
    ]
    rows = corpus.create_line_frame(spark, files).where("package = 'made'").orderBy("line").collect()
    assert [row.kind for row in rows] == ["import", "blank", "blank", "class", "comment", "function", "blank"]
    assert [row.name for row in rows] == [None, None, None, "Bow", None, "draw", None]
    assert {row.used_by for row in rows} == {1}
    assert rows[5].indent == 4
    assert rows[0].of.lines == 7
    assert rows[0].of.comments == Decimal("0.1429")


def test_the_command_prints_only_rows_check_methods_and_conclusion(shared_folder: Path) -> None:
    data = shared_folder / "data" / "birdstrikes.csv"
    command = [sys.executable, "-m", "bowstring", "demo", "--input", str(data), "--rounds", "2"]
    process = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert process.returncode == 0, process.stderr
    assert "10,000 rows" in process.stdout
    assert process.stdout.splitlines()[1] == "Some of the rows that another process read from shared memory:"
    assert "Medians of 2 rounds" in process.stdout
    for method in ("Publish", "Through the driver", "Parquet"):
        assert method in process.stdout
    assert re.fullmatch(r".+ was the fastest, .+; the reader of Publish copied .+\.", process.stdout.splitlines()[-1])
    assert process.stderr == ""


@pytest.mark.parametrize("process_name", ["SparkSubmit", "pyspark.daemon"])
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_command_and_its_processes_without_a_traceback(
    tmp_path: Path, process_name: str, number: int, status: int
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "bowstring", "demo", "--lines", "200000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    try:
        assert wait_until(lambda: any(process_name in line for line in commands_of(process.pid)), 120)
        if number == signal.SIGINT:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        output, errors = process.communicate(timeout=60)
        assert (process.returncode, output.strip()) == (status, "")
        assert not re.search(r"Traceback|Exception|Error|ERROR|\tat ", errors), errors
        assert wait_until(lambda: not commands_of(process.pid), 30), commands_of(process.pid)
        assert list(tmp_path.iterdir()) == []
    finally:
        if commands_of(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def commands_of(session: int) -> list[str]:
    """The command lines of a session's processes."""
    commands = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if os.getsid(int(folder.name)) == session:
                commands.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return commands


def test_summaries_differ_in_rows_nulls_or_sums() -> None:
    summary = TableSummary(2, (ColumnSummary("a", 0, "3"), ColumnSummary("b", 1, "0.1")))
    close = TableSummary(2, (ColumnSummary("a", 0, "3"), ColumnSummary("b", 1, "0.10000000000000002")))
    assert summary.find_differences(close) == []
    for other in (
        TableSummary(3, summary.columns),
        TableSummary(2, (ColumnSummary("a", 0, "4"), summary.columns[1])),
        TableSummary(2, (ColumnSummary("a", 1, "3"), summary.columns[1])),
        TableSummary(2, summary.columns[:1]),
        TableSummary(2, (summary.columns[0], ColumnSummary("b", 1, None))),
    ):
        assert len(summary.find_differences(other)) == 1


def test_sums_of_batches_are_exact_beyond_64_bits() -> None:
    big = 2**63 - 1
    batch = bs.record_batch(
        {"i": [big, big, None], "u": bs.array([2**64 - 1, 1, 0], bs.uint64()), "s": ["x", None, None]}
    )
    summary = summarize_batches(["i", "u", "s"], [batch, batch])
    assert summary == TableSummary(
        6, (ColumnSummary("i", 2, str(4 * big)), ColumnSummary("u", 0, str(2 * 2**64)), ColumnSummary("s", 4, None))
    )
    assert TableSummary.from_json(json.loads(json.dumps(asdict(summary)))) == summary


def test_a_missing_or_unknown_input_is_an_error_with_its_path(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"nowhere\.csv: there is no such file"):
        input_option.read_dataframe(spark, str(tmp_path / "nowhere.csv"))
    (tmp_path / "data.xyz").write_text("?")
    with pytest.raises(InvalidArgumentError, match=r"data\.xyz: expected a name that ends in"):
        input_option.read_dataframe(spark, str(tmp_path / "data.xyz"))


@pytest.mark.parametrize(("name", "text"), [("a.jsonl.gz", '{"a":1}\n{"a":2}\n'), ("a.json.gz", '[{"a":1},\n{"a":2}]')])
def test_all_rows_of_compressed_json_are_read(name: str, text: str, spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(gzip.compress(text.encode()))
    assert input_option.read_dataframe(spark, str(tmp_path / name)).count() == 2


def test_a_wrong_input_is_reported_before_spark_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bowstring.spark.session", None)
    for name, problem in (("nowhere.csv", NotFoundError), ("data.xyz", InvalidArgumentError)):
        (tmp_path / "data.xyz").touch()
        with pytest.raises(problem):
            demo.main([f"--input={tmp_path / name}"], standalone_mode=False)
    with pytest.raises(click.UsageError, match="range x>=1"):
        demo.main(["--lines=0"], standalone_mode=False)


def test_an_input_without_rows_is_an_error_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n")
    command = [sys.executable, "-m", "bowstring", "demo", "--input", str(tmp_path / "x.csv")]
    process = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert (process.returncode, process.stdout.strip()) == (1, "")
    assert "x.csv: there are no rows to hand over" in process.stderr
    assert "Traceback" not in process.stderr


@pytest.mark.parametrize("option", ["--input=x.csv", "--master=local[1]", "--rounds=2"])
def test_options_of_the_comparison_are_rejected_together_with_hosts(option: str) -> None:
    name = option.partition("=")[0]
    with pytest.raises(InvalidArgumentError, match=f"{name} is not supported together with --hosts"):
        demo.main(["--hosts=2", option], standalone_mode=False)


def test_several_hosts_without_namespaces_are_an_error_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bowstring.cli.demo.hosts_demo.start_cluster", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnmetRequirementError, match="the command ip is required"):
        demo.main(["--hosts=2"], standalone_mode=False)
    for name in ("ip", "unshare"):
        (tmp_path / name).write_text("#!/bin/sh\necho 'Operation not permitted' >&2\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    with pytest.raises(
        UnmetRequirementError, match=r"need root and namespaces: ip netns add .*: Operation not permitted"
    ):
        demo.main(["--hosts=2"], standalone_mode=False)

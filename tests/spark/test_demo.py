"""The main job: data passes from Spark to another process and matches Spark's rows."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

import bowstring as bs
from examples.demo.__main__ import create_orders, demo, show_log_on_failure
from examples.demo.methods import (
    PUBLISH,
    READERS,
    TRANSFER_METHODS,
    Readers,
    find_driver_pids,
    measure,
    measure_memory,
    summarize_frame,
)
from examples.demo.summary import TableSummary
from tests.polling import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def readers() -> Iterator[Readers]:
    with Readers(READERS) as processes:
        processes.wait_until_ready()
        yield processes


@pytest.fixture(scope="module", autouse=True)
def large_batches(spark: SparkSession) -> Iterator[None]:
    """Batches of a hundred rows, as in other tests, have more objects than data."""
    setting = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = str(spark.conf.get(setting))
    spark.conf.set(setting, 10_000)
    yield
    spark.conf.set(setting, before)


@pytest.mark.parametrize("name", ["birdstrikes.csv", "earthquakes.json", "flights-20k.json"])
def test_readers_read_what_spark_computes_of_real_files(
    spark: SparkSession, shared_folder: Path, readers: Readers, name: str
) -> None:
    frame = bs.spark.read(spark, bs.dataset(shared_folder / "data" / name))
    with PUBLISH.write(frame) as rows:
        (reply,) = readers.read(rows, 1, 1)
    summary = summarize_frame(frame)
    assert reply["summary"]["rows"] == summary.rows > 0
    assert TableSummary(**reply["summary"]).find_differences(summary) == []


@pytest.mark.thorough
def test_all_methods_deliver_all_rows_to_all_readers(
    spark: SparkSession, shared_folder: Path, readers: Readers
) -> None:
    frame = bs.spark.read(spark, shared_folder / "data" / "flights-200k.arrow").cache()
    summary = summarize_frame(frame)
    measurements = [measure(method, frame, readers) for method in TRANSFER_METHODS]
    with Readers(2) as new_readers:
        new_readers.wait_until_ready()
        methods = enumerate(TRANSFER_METHODS[:2])
        memory = {method.name: measure_memory(method, frame, new_readers, index) for index, method in methods}
    frame.unpersist()
    assert summary.rows == 200_000
    for measurement in measurements:
        assert len(measurement.summaries) == READERS + 1
        assert all(found.find_differences(summary) == [] for found in measurement.summaries)
        assert min(measurement.write_s, measurement.one_read_s, measurement.all_reads_s) > 0
    size_bytes = measurements[0].size_bytes
    assert memory["publishing"].copied_bytes < size_bytes / 2
    assert memory["toArrow()"].copied_bytes > size_bytes * 0.8
    assert find_driver_pids(spark) == [os.getpid()]  # its Java is also the executor


def test_orders_are_joined_with_those_of_their_customer(spark: SparkSession) -> None:
    rows = create_orders(spark, 20_014).where("customer = 'customer 7919'").orderBy("id").collect()
    assert [(row.id, row.amount) for row in rows] == [(1, Decimal("0.01")), (10_008, Decimal("0.35"))]
    assert {(row.history.orders, row.history.total) for row in rows} == {(2, Decimal("0.36"))}


@pytest.fixture(scope="module")
def command_run(shared_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], str]:
    """The lines that the command prints in a cluster of its own, and its page."""
    folder = tmp_path_factory.mktemp("command")
    page = folder / "demo.html"
    arguments = ["--input", str(shared_folder / "data" / "birdstrikes.csv"), "--rounds", "1", "--output", str(page)]
    process = subprocess.run(
        [sys.executable, "-m", "examples.demo", *arguments],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        cwd=ROOT,
    )
    assert (process.returncode, process.stderr) == (0, ""), process.stdout + process.stderr
    return process.stdout.splitlines(), page.read_text("utf-8")


@pytest.mark.thorough
def test_the_command_prints_rows_checks_methods_and_a_verdict(command_run: tuple[list[str], str]) -> None:
    lines, page = command_run
    assert lines[1].startswith("✓ 10,000 rows match Spark's in each read")
    assert any(line.split() == ["publishing", "toArrow()", "Parquet"] for line in lines)
    assert re.fullmatch(
        r"10,000 rows, .+: fewer than 6 rounds, too few to distinguish differences from noise\.", lines[-2]
    )
    assert re.fullmatch(r"Plots: .+/demo\.html", lines[-1])
    assert lines[-2] in unescape(page)
    assert "birdstrikes.csv" in page


@pytest.mark.thorough
def test_killed_writers_of_a_cluster_lose_no_rows(command_run: tuple[list[str], str]) -> None:
    text = "\n".join(command_run[0])
    assert re.search(
        r"✓ Python workers, during their tasks: Spark repeated [1-9]\d* of \d+ tasks?; a reader gets 10,000 rows, each "
        r"once\.",
        text,
    )
    assert "✓ The executor, after it has written: an attached reader and a new one read all 10,000 rows." in text
    assert re.search(
        r"✓ The process that has published: an attached reader reads its [\d,]+ rows to the end; a new one gets "
        r"(ConnectionLost|NotFound|RefusedConnection)Error\.",
        text,
    )


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("process_name", "number"),
    [("SparkSubmit", signal.SIGTERM), ("CoarseGrainedExecutorBackend", signal.SIGINT)],
)
def test_a_signal_ends_the_command_and_its_processes_without_a_traceback(
    tmp_path: Path, process_name: str, number: int
) -> None:
    (tmp_path / "temporary").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "examples.demo", "--output", str(tmp_path / "demo.html")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path / "temporary")},
    )
    try:
        assert wait_until(lambda: any(process_name in line for line in commands_of(process.pid)), 120)
        if number == signal.SIGINT:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        output, errors = process.communicate(timeout=60)
        assert (process.returncode, output.strip(), errors.strip()) == (1, "", "Aborted!")
        assert wait_until(lambda: not commands_of(process.pid), 30), commands_of(process.pid)
        assert [path for path in tmp_path.rglob("*") if path.name != "temporary"] == []
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


def test_summaries_differ_in_rows_names_nulls_or_sums() -> None:
    expected = TableSummary(2, ["a", "b", "c"], [0, 1, 2], [3.0, 0.1, None], [3.0, 1e9, None])
    assert TableSummary(2, expected.names, [0, 1, 2], [3.0, 0.2, 0.0]).find_differences(expected) == []
    for other in (
        TableSummary(3, expected.names, expected.nulls, expected.sums),
        TableSummary(2, ["a", "b", "d"], expected.nulls, expected.sums),
        TableSummary(2, expected.names, [0, 1, 1], expected.sums),
        TableSummary(2, expected.names, expected.nulls, [4.0, 0.1, None]),
        TableSummary(2, expected.names, expected.nulls, [3.0, None, None]),
    ):
        assert len(other.find_differences(expected)) == 1


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("nowhere.csv", None, r"nowhere\.csv: there is no such file"),
        ("data.xyz", "some text", r"data\.xyz"),
        ("x.csv", "a,b\n", r"x\.csv: there are no rows to publish"),
    ],
)
def test_a_wrong_input_is_reported_before_spark_starts(
    tmp_path: Path, name: str, text: str | None, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bowstring.spark.session", None)
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(click.ClickException, match=message):
        demo.main([f"--input={tmp_path / name}"], standalone_mode=False)


def test_standard_error_of_spark_is_shown_after_its_failures_only(capsys: pytest.CaptureFixture[str]) -> None:
    for error, shown in ((KeyboardInterrupt(), ""), (OSError("disk"), "lost executor\n")):
        with pytest.raises(type(error)), show_log_on_failure() as log:
            log.write(b"WARNING: Using incubator modules\nlost executor\n")
            raise error
        assert capsys.readouterr().err == shown

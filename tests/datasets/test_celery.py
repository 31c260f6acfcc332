"""Results of Celery's workers, which the tests do not install: the recipe of docs/reference/sharing.md."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import bowstring as bs
from bowstring.errors import NotFoundError
from bowstring.sharing.processes import start_ticks

pytest.importorskip("celery", reason="requires Celery: pip install celery")

APPLICATION = """
import os
import bowstring as bs
from celery import Celery

folder = os.environ["CELERY_FOLDER"]
app = Celery("tasks", broker="filesystem://", backend=f"file://{folder}/results")
app.conf.broker_transport_options = {
    "data_folder_in": f"{folder}/queue", "data_folder_out": f"{folder}/queue", "control_folder": f"{folder}/control"
}

@app.task
def summarize(number):
    return bs.publish(bs.table({"number": [number] * 1000, "pid": [os.getpid()] * 1000}), name="summary").id
"""


@pytest.mark.filterwarnings("ignore")
def test_results_of_workers_that_have_ended_are_read_in_place_by_their_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("queue", "results", "control"):
        (tmp_path / name).mkdir()
    (tmp_path / "tasks.py").write_text(APPLICATION)
    monkeypatch.setenv("CELERY_FOLDER", str(tmp_path))
    spec = importlib.util.spec_from_file_location("tasks", tmp_path / "tasks.py")
    assert spec is not None
    assert spec.loader is not None
    tasks: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tasks)
    # Each worker process ends after one task.
    options = ["--pool", "prefork", "--concurrency", "2", "--max-tasks-per-child", "1", "--without-mingle"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    worker = subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", "tasks", "worker", *options],
        env=environment,
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        pending = [tasks.summarize.delay(number) for number in range(4)]
        ids = [task.get(timeout=60) for task in pending]
    finally:
        worker.terminate()
        worker.wait(60)
    pids = set()
    for number, dataset_id in enumerate(ids):
        with bs.open_published(dataset_id) as published:
            table = published.read_all()
            assert table["number"].to_pylist() == [number] * 1000
            pids.add(table["pid"].to_pylist()[0])
        assert bs.unpublish(dataset_id) == dataset_id
        with pytest.raises(NotFoundError):
            bs.open_published(dataset_id)
    assert len(pids) == 4
    assert all(start_ticks(pid) < 0 for pid in pids)

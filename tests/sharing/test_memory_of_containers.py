"""Processes in a control group with little memory get errors, and are not killed by the kernel."""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np
import pytest

import bowstring as bs
from tests.control_group import limit_memory
from tests.sharing.python_process import PythonProcess, run_python

BATCH = bs.record_batch({"a": np.arange(500_000)})
JOIN = """
import os
import bowstring as bs
import numpy as np
open(f"{group}/cgroup.procs", "w").write(str(os.getpid()))
def attempt(call):
    try:
        call()
        send("no error")
    except bs.errors.ResourceError as error:
        send(str(error))
"""
READ_COPIES = f"{JOIN}attempt(lambda: bs.connect(uri, copy=True).read_all())"
FILL_AN_ARENA = f"""{JOIN}
arena = bs.memory.Arena()
batch = bs.record_batch({{"a": np.arange(500_000)}})
attempt(lambda: [bs.share(batch, arena=arena) for _ in range(100)])
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("served") / "file.arrow"
    with bs.new_file(path, BATCH.schema) as writer:
        for _ in range(100):
            writer.write_batch(BATCH)
    return path


@pytest.mark.parametrize("scheme", ["unix", "tcp"])
def test_a_client_whose_copies_exceed_its_memory_gets_an_error(scheme: str, path: Path) -> None:
    with bs.serve({"t": path}, scheme=scheme) as server, limit_memory(200 << 20) as group:
        assert "4000000 bytes requested" in run_python(READ_COPIES, group=str(group), uri=server.uri("t"))
        with bs.connect(server.uri("t")) as dataset:
            assert dataset.read_all().num_rows == 100 * BATCH.num_rows


def test_regions_of_an_arena_that_exceed_the_memory_are_an_error() -> None:
    with limit_memory(200 << 20) as group:
        assert "bytes requested" in run_python(FILL_AN_ARENA, group=str(group))


def test_other_results_that_exceed_the_memory_end_the_process(path: Path) -> None:
    code = f"""{JOIN}
table = bs.read_table(path)
attempt(lambda: table.take(np.arange(table.num_rows)[::-1]))
"""
    with limit_memory(200 << 20) as group, PythonProcess(code, group=str(group), path=str(path)) as process:
        assert process.process.wait(60) == -signal.SIGKILL

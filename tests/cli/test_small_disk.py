"""Targets that do not fit: one line that names the target, and nothing of it is left."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.cli.command_line import write
from tests.small_disk import run_on_4_mb

RUN_AND_LIST_FOLDER = """
import os, sys
from bowstring.cli.main import main

status = main(sys.argv[2:])
print(status, os.listdir(sys.argv[1]))
"""


@pytest.mark.parametrize(
    "command",
    ["convert", "convert --to csv", "convert --to parquet", "concat", "recover"],
)
def test_the_error_for_a_full_disk_names_the_target_and_leaves_no_file(command: str, tmp_path: Path) -> None:
    source = write(tmp_path / "source.arrow", pa.table({"n": np.arange(1_000_000)}))
    small = tmp_path / "small"
    small.mkdir()
    target = [small / "target.arrow"] if command != "concat" else ["-o", small / "target.arrow"]
    process = run_on_4_mb(small, "-c", RUN_AND_LIST_FOLDER, small, *command.split(), source, *target)
    assert process.stdout == "1 []\n"
    assert "target.arrow: cannot be " in process.stderr
    assert "No space left on device" in process.stderr
    assert process.stderr.count("\n") == 1

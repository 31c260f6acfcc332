"""The Makefile's virtual environment, with a Python that records its arguments instead of installing anything."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PYTHON = """#!/bin/sh
echo "$@" >> commands.txt
if [ "$2" = venv ]; then
    mkdir -p .venv/bin && cp "$0" .venv/bin/python && cp "$0" .venv/bin/bowstring
fi
"""
DEMO = ["-m pip install -q --disable-pip-version-check -e .[cli,spark]"]
DEV = ["-m pip install -q --disable-pip-version-check -e .[dev]"]


@pytest.mark.parametrize(
    ("targets", "installations"),
    [
        (["demo", "demo"], [DEMO, []]),
        (["demo", "test", "demo", "test"], [DEMO, DEV, [], []]),
        (["test", "demo"], [DEV, []]),
    ],
)
def test_the_demo_installs_only_its_extras_and_the_tests_the_others(
    tmp_path: Path, targets: list[str], installations: list[list[str]]
) -> None:
    if shutil.which("make") is None:
        pytest.skip("requires make")
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "python").write_text(PYTHON)
    (tmp_path / "python").chmod(0o755)
    for target, expected in zip(targets, installations, strict=True):
        commands = tmp_path / "commands.txt"
        commands.write_text("")
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "ARGS"))
        }
        subprocess.run(
            ["make", "-s", target, f"PYTHON={tmp_path / 'python'}"],
            cwd=tmp_path,
            env=environment,
            check=True,
            capture_output=True,
        )
        lines = commands.read_text().splitlines()
        assert [line for line in lines if "pip install" in line] == expected
        assert lines[-1] == ("demo" if target == "demo" else "-m pytest -n 2")

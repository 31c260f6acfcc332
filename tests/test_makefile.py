"""The Makefile and the command of CI, with a Python that records its arguments instead."""

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
    mkdir -p $3/bin && for name in python bowstring ruff mypy mkdocs; do cp "$0" $3/bin/$name; done
fi
echo "the end of $*"
case "$*" in *"$FAILS"*) exit 1; esac
"""
DEMO = ["-m pip install -q --disable-pip-version-check -e .[cli,spark]"]
TRAINING_PACKAGES = [DEMO[0].replace("cli,spark", "test,training") + " -e ./testing"]
TRAINING = (
    "-m pytest -n 2 --thorough "
    "tests/datasets tests/spark/test_training.py src/bowstring/datasets docs/reference/datasets.md docs/tutorial.md"
)
DEV = ["-m pip install -q --disable-pip-version-check -e .[dev] -e ./networks[flight,ucx] -e ./testing"]


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
    copy_makefile(tmp_path)
    for target, expected in zip(targets, installations, strict=True):
        run(tmp_path, ["make", "-s", target])
        lines = recorded_commands(tmp_path)
        assert [line for line in lines if "pip install" in line] == expected
        assert lines[-1] == ("-m examples.demo" if target == "demo" else "-m pytest -n 2")


@pytest.mark.parametrize("failing", ["nothing", "format"])
def test_ci_runs_all_checks_and_prints_the_closing_line_of_the_tests_last(tmp_path: Path, failing: str) -> None:
    copy_makefile(tmp_path)
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci")
    process = run(tmp_path, [tmp_path / ".ci" / "run"], failing)
    assert process.returncode == (0 if failing == "nothing" else 2)
    assert process.stdout.splitlines()[-1] == "the end of -m pytest -n 2"
    assert [line for line in recorded_commands(tmp_path) if "-m pip" not in line][-5:] == [
        TRAINING,
        "-m pytest -n 2 --thorough -m thorough --ignore tests/datasets",
        "-m tests.sharing.soak --time 240",
        "-m fuzz --time 240 --seed 1",
        "-m pytest -n 2",
    ]


def test_an_older_spark_is_tested_in_an_environment_of_its_own(tmp_path: Path) -> None:
    copy_makefile(tmp_path)
    for _ in range(2):
        run(tmp_path, ["make", "-s", "test-spark", "VERSION=3.5.9"])
        lines = recorded_commands(tmp_path)
        assert lines[-1] == "-m pytest -n 2 tests/spark"
    assert lines == lines[-1:]
    assert not (tmp_path / "build" / "venv").exists()
    assert (tmp_path / "build" / "spark-3.5.9" / "bin" / "python").exists()


def test_make_leaves_the_environment_of_the_tutorial_alone(tmp_path: Path) -> None:
    copy_makefile(tmp_path)
    own_python = tmp_path / ".venv" / "bin" / "python"
    own_python.parent.mkdir(parents=True)
    own_python.write_text("")
    for target in ("docs", "clean"):
        assert run(tmp_path, ["make", "-s", target]).returncode == 0
        assert (tmp_path / "build" / "venv").exists() == (target == "docs")
    assert [path.name for path in (tmp_path / ".venv").rglob("*")] == ["bin", "python"]
    assert own_python.read_text() == ""


def test_make_uses_another_environment_if_it_is_named(tmp_path: Path) -> None:
    copy_makefile(tmp_path)
    for expected in (DEV, []):
        run(tmp_path, ["make", "-s", "test", "VENV=.venv"])
        assert [line for line in recorded_commands(tmp_path) if "pip install" in line] == expected
    assert (tmp_path / ".venv" / ".ready").exists()
    assert not (tmp_path / "build").exists()


def test_training_loops_are_tested_in_an_environment_of_their_own(tmp_path: Path) -> None:
    copy_makefile(tmp_path)
    run(tmp_path, ["make", "-s", "test-training"])
    lines = recorded_commands(tmp_path)
    assert lines[-1].strip() == TRAINING
    assert [line for line in lines if "-m pip" in line] == TRAINING_PACKAGES
    assert not (tmp_path / ".venv").exists()


def copy_makefile(folder: Path) -> None:
    """Copy what `make` needs, and the Python: it fails if its arguments contain `$FAILS`."""
    if shutil.which("make") is None:
        pytest.skip("requires make")
    for name in ("Makefile", "pyproject.toml", "networks/pyproject.toml", "testing/pyproject.toml"):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    (folder / "python").write_text(PYTHON)
    (folder / "python").chmod(0o755)


def run(folder: Path, command: list[str | Path], failing: str = "nothing") -> subprocess.CompletedProcess[str]:
    """Run a command with the Python, without the variables of the `make` that runs the tests."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "ARGS"))}
    (folder / "commands.txt").write_text("")
    return subprocess.run(
        command,
        cwd=folder,
        env=environment | {"PYTHON": str(folder / "python"), "FAILS": failing},
        capture_output=True,
        text=True,
        check=False,
    )


def recorded_commands(folder: Path) -> list[str]:
    return (folder / "commands.txt").read_text().splitlines()

"""The library works with the oldest NumPy, and with the newest under each other Python that this machine has."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
OTHER_VERSIONS = sorted(
    set(re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"])))
    - {".".join(map(str, sys.version_info[:2]))}
)
PACKAGES = ["hypothesis", "pyarrow", "pytest", "pytest-timeout", "sybil"]
TESTS = [
    "tests/arrays/test_pickle.py",
    "tests/arrays/test_unusual_numpy.py",
    "tests/datatypes/test_types.py",
    "tests/interop/test_c_format.py",
    "tests/ipc/test_round_trips.py::test_batches_are_exchanged_with_pyarrow_in_both_directions",
    "tests/layouts/test_numpy.py",
    "tests/layouts/test_values.py",
    "tests/memory/test_buffer.py",
    "tests/memory/test_region.py",
    "tests/sharing/test_share.py::test_another_process_reads_a_shared_table",
]
"""Types and layouts, the C data interface, streams, and another process: a few seconds."""


def find_python(version: str) -> str | None:
    """The executable of a version of Python: on the path, or of pyenv."""
    of_path = shutil.which(f"python{version}")
    of_pyenv = map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    for candidate in [*([of_path] if of_path else []), *of_pyenv]:
        # pyenv's command of a version that is not selected fails.
        if subprocess.run([candidate, "-c", "import venv"], capture_output=True, check=False).returncode == 0:
            return candidate
    return None


def run_tests(executable: str, numpy: str, folder: Path) -> tuple[str, str]:
    """Run `TESTS` in a new virtual environment. Returns its version of NumPy, and the last line of the tests."""
    subprocess.run([executable, "-m", "venv", "--without-pip", folder], check=True)
    python = str(folder / "bin" / "python")
    options = ["--quiet", "--no-compile", "--only-binary", ":all:", "--disable-pip-version-check"]
    install = [sys.executable, "-m", "pip", "--python", python, "install", *options, numpy, *PACKAGES]
    installation = subprocess.run(install, capture_output=True, text=True, check=False)
    if installation.returncode:
        pytest.skip(f"pip can't install {numpy}: {installation.stderr.strip().splitlines()[-1]}")
    version = subprocess.check_output([python, "-c", "import numpy; print(numpy.__version__)"], text=True).strip()
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(ROOT / folder) for folder in ("src", "testing/src"))}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return version, run.stdout.strip().splitlines()[-1]


def test_the_library_works_with_the_oldest_numpy(tmp_path: Path) -> None:
    (requirement,) = (text for text in PROJECT["dependencies"] if text.startswith("numpy"))
    oldest = requirement.removeprefix("numpy>=")
    version, summary = run_tests(sys.executable, f"numpy=={oldest}.0", tmp_path / "environment")
    assert version == f"{oldest}.0"
    assert re.match(r"\d{4} passed in", summary), summary


@pytest.mark.parametrize("version", OTHER_VERSIONS)
def test_the_library_works_with_another_python_and_the_newest_numpy(version: str, tmp_path: Path) -> None:
    executable = find_python(version)
    if executable is None:
        pytest.skip(f"Python {version} is not installed")
    _, summary = run_tests(executable, "numpy", tmp_path / "environment")
    assert re.match(r"\d{4} passed in", summary), summary

"""Runs the Python blocks of README.md and docs/ as tests: each page in an empty folder, with a separate namespace.

The examples of docstrings, which pytest runs, get an empty folder, too, and `bs` for `bowstring`.
"""

from __future__ import annotations

import importlib
import os
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser

# Some environments set this: then each process that the tests start compiles the modules again that it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Python imports this folder's `sitecustomize` in each process that the tests start.
_STARTUP = str(Path(__file__).resolve().parent / "tests" / "child_process_startup")
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [_STARTUP, os.environ.get("PYTHONPATH")]))

# PyTorch and Ray are not among the packages of the tests.
collect_ignore = [f"src/bowstring/datasets/{package}.py" for package in ("torch", "ray") if not find_spec(package)]
collect_ignore += ["docs/site_pages.py", "docs/docstring_examples.py"]  # MkDocs imports them

pytest_plugins = ["tests.fixtures", "tests.written_files", "tests.xdist_scheduling", "tests.spark.class_archive"]


def _enter_empty_folder(namespace: dict[str, Any]) -> None:
    namespace["_home"] = os.getcwd()
    namespace["_folder"] = tempfile.TemporaryDirectory(prefix="bowstring-docs-")
    os.chdir(namespace["_folder"].name)


def _leave_folder(namespace: dict[str, Any]) -> None:
    os.chdir(namespace["_home"])
    namespace["_folder"].cleanup()


pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(), SkipParser()],
    patterns=["README.md", "networks/README.md", "testing/README.md", "docs/*.md", "docs/**/*.md"],
    setup=_enter_empty_folder,
    teardown=_leave_folder,
).pytest()


@pytest.fixture(autouse=True)
def _prepare_example(request: pytest.FixtureRequest) -> None:
    """Prepare the example of a docstring."""
    if isinstance(request.node, pytest.DoctestItem):
        request.getfixturevalue("doctest_namespace")["bs"] = importlib.import_module("bowstring")
        monkeypatch = request.getfixturevalue("monkeypatch")
        monkeypatch.chdir(request.getfixturevalue("tmp_path"))
        monkeypatch.setenv("COLUMNS", "100")

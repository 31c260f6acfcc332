"""The notebooks in examples/. tests/spark/test_tutorial.py runs the one that needs Spark."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).resolve().parent.parent / "examples").glob("*.ipynb"))


def read_cells(notebook: Path, kind: str = "code") -> list[dict[str, Any]]:
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == kind]


def run_notebook(notebook: Path) -> dict[str, Any]:
    """Run the cells in one namespace, and represent the value of the last line as a notebook does."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for cell in read_cells(notebook):
        tree = ast.parse("".join(cell["source"]))
        value = ast.Expression(tree.body.pop().value) if isinstance(tree.body[-1], ast.Expr) else None  # type: ignore[attr-defined]
        exec(compile(tree, notebook.name, "exec"), namespace)
        if value is not None:
            repr(eval(compile(value, notebook.name, "eval"), namespace))
    return namespace


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_no_outputs(notebook: Path) -> None:
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in read_cells(notebook))


@pytest.mark.parametrize(
    "notebook", [path for path in NOTEBOOKS if path.stem != "publish-from-spark"], ids=lambda path: path.stem
)
def test_the_cells_of_a_notebook_run(notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    run_notebook(notebook)

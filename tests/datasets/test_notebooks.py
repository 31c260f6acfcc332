"""Data sets between notebooks, by the recipe of docs/reference/sharing.md; the tests do not install their packages."""

from __future__ import annotations

import os
import secrets
from typing import Any

import pytest

import bowstring as bs
from bowstring.sharing.processes import start_ticks

nbformat: Any = pytest.importorskip("nbformat", reason="requires Jupyter: pip install nbclient ipykernel")
nbclient: Any = pytest.importorskip("nbclient", reason="requires Jupyter: pip install nbclient ipykernel")
pytest.importorskip("ipykernel", reason="requires Jupyter: pip install nbclient ipykernel")


def run_notebook(*cells: str) -> list[str]:
    """Run cells in a kernel of their own; return the text of their outputs."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    return ["".join(output.get("text", "") for output in cell.outputs) for cell in notebook.cells]


@pytest.mark.filterwarnings("ignore")
def test_a_frame_of_a_notebook_is_found_by_name_in_another_after_its_kernel_has_ended() -> None:
    name = f"features-{secrets.token_hex(4)}"
    frame = "pd.DataFrame({'a': range(1000)})"
    publish = f"published = bs.publish({frame}, name={name!r})"
    _, pid, _ = run_notebook("import bowstring as bs, pandas as pd, os", "print(os.getpid())", f"{publish}\n{publish}")
    assert int(pid) != os.getpid()
    assert start_ticks(int(pid)) < 0
    listed = [summary for summary in bs.published() if summary.name == name]
    assert len(listed) == 2, "a cell that runs twice publishes twice"
    (total,) = run_notebook(f"import bowstring as bs\nprint(bs.open_published({name!r}).to_pandas()['a'].sum())")
    assert int(total) == 499_500
    for summary in listed:
        bs.unpublish(summary.id)

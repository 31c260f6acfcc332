"""The site of the documentation builds without a warning, and its plot is that of the results."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.mark.thorough
def test_the_site_has_all_pages_the_api_and_the_commands(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="requires the extra docs")
    pytest.importorskip("mkdocstrings_handlers.python", reason="requires the extra docs")
    process = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=REPOSITORY, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, timeout=280,
        check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    assert "Spark executors write partitions" in (tmp_path / "index.html").read_text("utf-8")
    api = (tmp_path / "reference" / "api" / "bowstring" / "index.html").read_text("utf-8")
    assert 'id="bowstring.open_file"' in api
    assert 'id="bowstring.Table.to_pandas"' in api
    commands = (tmp_path / "reference" / "commands" / "index.html").read_text("utf-8")
    assert "--compression-level" in commands


@pytest.mark.thorough
def test_the_plots_and_the_table_are_those_of_the_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="requires the extra docs")
    from benchmarks import plots

    results = json.loads((REPOSITORY / "docs" / "evidence" / "benchmark-results.json").read_text("utf-8"))
    sizes = {tuple(by_rows) for by_rows in plots.publish_times(results["lines"]).values()}
    assert sizes == {(10_000, 100_000, 1_000_000, 5_000_000)}
    for name in ("images", "evidence"):
        (tmp_path / "docs" / name).mkdir(parents=True)
    readme = (REPOSITORY / "README.md").read_text("utf-8")
    assert plots.format_readme_row(results["lines"]) in readme
    (tmp_path / "README.md").write_text(
        re.sub(r"[0-9.]+ times as fast as (`toArrow|Parquet \|)", r"9.9 times as fast as \1", readme)
    )
    monkeypatch.setattr(plots, "_DOCS", tmp_path / "docs")
    plots.main([str(REPOSITORY / "docs" / "evidence" / "benchmark-results.json")])
    caption = plots.describe_run(results)
    assert (tmp_path / "README.md").read_text("utf-8") == readme
    for folder in (tmp_path / "docs", REPOSITORY / "docs"):
        for name in ("publish.svg", "ratios.svg"):
            assert caption in (folder / "images" / name).read_text("utf-8")
        page = (folder / "evidence" / "benchmark-results.md").read_text("utf-8")
        assert page == plots.format_page(results)
        assert page.count("\n| ") == len(results["lines"]) + 2

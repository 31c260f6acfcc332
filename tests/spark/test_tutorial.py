"""The blocks of the tutorial, and those of README.md that need Spark, in the session of the tests."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import bowstring as bs
from tests.test_examples import run_notebook

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPOSITORY = Path(__file__).resolve().parents[2]


def read_blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", (REPOSITORY / page).read_text("utf-8"), re.MULTILINE | re.DOTALL)


def test_the_tutorial_goes_from_spark_to_duckdb_and_pytorch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {}
    for block in read_blocks("docs/tutorial.md"):
        if "import torch" not in block or find_spec("torch"):
            exec(compile(block, "docs/tutorial.md", "exec"), namespace)
    if find_spec("torch"):
        assert "epoch 2: loss 0." in capfd.readouterr().out


def test_the_readme_publishes_a_frame(spark: SparkSession) -> None:
    (block,) = (block for block in read_blocks("README.md") if "spark.session" in block)
    namespace: dict[str, Any] = {"bs": bs}
    exec(block, namespace)
    assert namespace["table"].num_rows == 1_000_000
    namespace["published"].close()


def test_the_notebook_publishes_and_queries(spark: SparkSession) -> None:
    namespace = run_notebook(REPOSITORY / "examples" / "publish-from-spark.ipynb")
    assert namespace["delays"].fetchall()[0][:2] == ("LIM", 33333)

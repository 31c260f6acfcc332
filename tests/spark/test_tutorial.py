"""The blocks of the tutorial, and those of README.md that need Spark, in the session of the tests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import bowstring as bs
import bowstring.spark
from tests.test_examples import run_notebook

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPOSITORY = Path(__file__).resolve().parents[2]
BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"


@pytest.fixture(autouse=True)
def _run_in_the_session_of_the_tests(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(bowstring.spark, "session", lambda *_: spark)  # its master differs
    small_batches = str(spark.conf.get(BATCH_ROWS))
    spark.conf.set(BATCH_ROWS, "65536")  # as in `session`
    yield
    spark.conf.set(BATCH_ROWS, small_batches)


def read_blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", (REPOSITORY / page).read_text("utf-8"), re.MULTILINE | re.DOTALL)


def test_the_tutorial_goes_from_spark_to_duckdb_and_pytorch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {}
    for block in read_blocks("docs/tutorial.md"):
        if "import torch" not in block or find_spec("torch"):
            program = block.replace('"numbers"', repr(str(tmp_path / "numbers")))  # Spark runs in another folder
            exec(compile(program, "docs/tutorial.md", "exec"), namespace)
    if find_spec("torch"):
        assert "epoch 2: loss 0.0" in capfd.readouterr().out


def test_the_readme_publishes_a_frame() -> None:
    (block,) = (block for block in read_blocks("README.md") if "spark.session" in block)
    namespace: dict[str, Any] = {"bs": bs}
    exec(block, namespace)
    assert namespace["table"].num_rows == 1_000_000
    namespace["published"].close()


def test_the_notebook_publishes_and_queries() -> None:
    namespace = run_notebook(REPOSITORY / "examples" / "publish-from-spark.ipynb")
    assert namespace["first"].num_rows == 1000  # of the first of two partitions

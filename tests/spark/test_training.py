"""The blocks of docs/how-to/training.md that need Spark; tests/datasets/test_training_loops.py runs the others."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import bowstring as bs
import bowstring.spark
from bowstring.datasets import EpochReader
from tests.datasets.test_training_loops import create_visits, read_section

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def page(spark: SparkSession) -> Iterator[dict[str, Any]]:
    """The names that the first blocks define, after they have published the frame."""
    namespace: dict[str, Any] = {"name": f"visits-{secrets.token_hex(4)}"}
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(bowstring.spark, "session", lambda *_: spark)  # its master differs
        for heading in ("Publish the frame", "Choose what a batch has"):
            run(heading, namespace)
    yield namespace
    namespace["published"].close()


def run(heading: str, namespace: dict[str, Any]) -> None:
    for block in read_section(heading):
        exec(block.replace('"visits"', repr(namespace["name"])), namespace)


def test_the_frame_of_the_page_arrives_as_one_matrix(page: dict[str, Any]) -> None:
    visits = bs.open_published(page["name"])
    (batch,) = EpochReader(visits, visits.num_rows).to_numpy(**page["options"])
    (expected,) = EpochReader(create_visits(), visits.num_rows).to_numpy(**page["options"])
    assert {name: array.dtype for name, array in batch.items()} == {"x": np.float32, "label": np.float32}
    assert np.allclose(batch["x"], expected["x"], rtol=1e-6, atol=1e-6)
    assert np.array_equal(batch["label"], expected["label"])


@pytest.mark.thorough
def test_ranks_that_spark_starts_share_the_rows(page: dict[str, Any]) -> None:
    pytest.importorskip("torch", reason="requires PyTorch: pip install torch")
    run("TorchDistributor", page)
    assert page["num_rows"] == 39 * 256

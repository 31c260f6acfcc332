"""The sections of docs/how-to/training.md, each on the rows of its Spark frame, published by this process.

tests/spark/test_training.py publishes the frame itself. The packages are those of the extra `training`.
"""

from __future__ import annotations

import os
import re
import runpy
import secrets
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bowstring as bs
from bowstring.datasets import EpochReader

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "training.md"
NUM_ROWS = 20_000


def read_section(heading: str) -> list[str]:
    """Return the Python blocks of a section, without those of its sub-sections."""
    (section,) = re.findall(rf"^##+ {heading}\n(.*?)(?=^##|\Z)", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


def create_visits() -> bs.Table:
    """The rows of the page's frame."""
    rows = np.arange(NUM_ROWS)
    emb = np.sin(rows[:, None] * np.arange(1, 65)).astype(np.float32)
    time = np.stack((rows % 7, rows % 24), axis=1).astype(np.float64)
    columns = {
        "emb": bs.array(list(emb), bs.list_(bs.float32())),
        "city": np.array(["Bern", "Oslo", "Rome"])[rows % 3].tolist(),
        "age": [None if row % 10 == 0 else float(row % 80) for row in rows.tolist()],
        "label": (rows % 3 == 2).astype(np.int32),
        "time": bs.array(list(time), bs.list_(bs.float64())),
    }
    return bs.table(columns)


@pytest.fixture(scope="module")
def visits() -> Iterator[str]:
    """The name of the published rows, in two parts."""
    table = create_visits()
    halves = [table.slice(0, NUM_ROWS // 2), table.slice(NUM_ROWS // 2)]
    with bs.publish(bs.concat_tables(halves), name=f"visits-{secrets.token_hex(4)}") as published:
        yield published.name


@pytest.fixture(autouse=True)
def _run_in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the other packages
        yield


def read_program(visits: str, *headings: str) -> str:
    blocks = [*read_section("Choose what a batch has"), *(block for each in headings for block in read_section(each))]
    return "\n".join(blocks).replace('"visits"', repr(visits))


def run(visits: str, *headings: str) -> dict[str, Any]:
    """Run the options and sections as one program; return its names."""
    program = Path("train.py")  # TensorFlow looks for the sources of functions
    program.write_text(read_program(visits, *headings), "utf-8")
    return runpy.run_path(str(program))


@pytest.fixture(scope="module")
def matrix(visits: str) -> dict[str, Any]:
    """All rows as the loops read them, in order."""
    namespace: dict[str, Any] = {}
    exec(read_section("Choose what a batch has")[0], namespace)
    (batch,) = EpochReader(bs.open_published(visits), NUM_ROWS).to_numpy(**namespace["options"])
    return batch  # type: ignore[no-any-return]


def test_the_options_make_one_matrix_of_all_features(matrix: dict[str, Any]) -> None:
    rows = np.arange(NUM_ROWS)
    assert list(matrix) == ["x", "label"]
    assert matrix["x"].dtype == matrix["label"].dtype == np.float32
    assert np.array_equal(matrix["x"][:, :64], np.sin(rows[:, None] * np.arange(1, 65)).astype(np.float32))
    assert np.array_equal(matrix["x"][:, 64:66], np.stack((rows % 7, rows % 24), axis=1))
    assert np.array_equal(matrix["x"][:, 66], np.where(rows % 10 == 0, 0, rows % 80))
    assert np.array_equal(matrix["x"][:, 67], rows % 3)
    assert np.array_equal(matrix["label"], rows % 3 == 2)


def test_pytorch_trains_and_resumes(visits: str, matrix: dict[str, Any]) -> None:
    torch: Any = pytest.importorskip("torch", reason="requires PyTorch: pip install torch")
    namespace = run(visits, "PyTorch", "Stop and resume")
    predicted = namespace["model"](torch.from_numpy(matrix["x"])).squeeze(1) > 0.5
    assert np.mean(predicted.numpy() == matrix["label"]) > 0.8


def test_ranks_of_torchrun_train_on_equally_many_batches(visits: str) -> None:
    pytest.importorskip("torch", reason="requires PyTorch: pip install torch")
    Path("train.py").write_text(read_program(visits, "Several ranks"), "utf-8")
    process = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "train.py"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    # Not by lines: two processes write to one pipe.
    assert sorted(re.findall(r"rank \d: \d+ batches", process.stdout)) == ["rank 0: 39 batches", "rank 1: 39 batches"]


def test_lightning_trains(visits: str) -> None:
    pytest.importorskip("lightning", reason="requires Lightning: pip install lightning")
    trainer = run(visits, "Lightning")["trainer"]
    assert (trainer.current_epoch, trainer.global_step) == (2, 2 * 78)


def test_accelerate_trains(visits: str, matrix: dict[str, Any]) -> None:
    pytest.importorskip("accelerate", reason="requires Accelerate: pip install accelerate")
    assert run(visits, "Accelerate")["loss"].item() < 1


def test_xgboost_trains_on_batches_with_categories_and_missing_values(visits: str, matrix: dict[str, Any]) -> None:
    xgboost: Any = pytest.importorskip("xgboost", reason="requires XGBoost: pip install xgboost-cpu")
    namespace = run(visits, "XGBoost")
    quantiles = namespace["matrix"]
    assert (quantiles.num_row(), quantiles.num_col()) == matrix["x"].shape
    assert quantiles.num_nonmissing() == matrix["x"].size - NUM_ROWS // 10
    rows = xgboost.DMatrix(matrix["x"], feature_types=["float"] * 67 + ["c"], enable_categorical=True)
    assert np.mean((namespace["model"].predict(rows) > 0.5) == matrix["label"]) == 1


def test_lightgbm_trains_on_batches(visits: str, matrix: dict[str, Any]) -> None:
    pytest.importorskip("lightgbm", reason="requires LightGBM: pip install lightgbm")
    model = run(visits, "LightGBM")["model"]
    assert np.mean((model.predict(matrix["x"]) > 0.5) == matrix["label"]) == 1


def test_scikit_learn_trains_on_one_matrix_and_on_batches(visits: str, matrix: dict[str, Any]) -> None:
    pytest.importorskip("sklearn", reason="requires scikit-learn: pip install scikit-learn")
    namespace = run(visits, "scikit-learn")
    assert namespace["model"].score(matrix["x"], matrix["label"]) == 1
    assert namespace["linear"].t_ == 1 + 3 * NUM_ROWS


def test_jax_trains_on_batches(visits: str) -> None:
    pytest.importorskip("jax", reason="requires JAX: pip install jax")
    namespace = run(visits, "JAX")
    assert namespace["loss"] < 0.5
    assert namespace["step"]._cache_size() == 1


def test_tensorflow_trains_on_batches(visits: str) -> None:
    pytest.importorskip("tensorflow", reason="requires TensorFlow: pip install tensorflow-cpu")
    namespace = run(visits, "TensorFlow")
    assert namespace["rows"].element_spec["x"].shape.as_list() == [None, 68]
    assert sum(len(batch["x"]) for batch in namespace["rows"]) == NUM_ROWS

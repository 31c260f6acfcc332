"""narwhals, through which other libraries accept any data frame."""

from __future__ import annotations

from typing import Literal

import narwhals
import pytest

import bowstring as bs


@pytest.mark.parametrize("backend", ["polars", "pyarrow"])
def test_narwhals_imports_tables_through_capsules(backend: Literal["polars", "pyarrow"]) -> None:
    table = bs.table({"n": [1, 2, None], "s": ["a", "b", None]})
    frame = narwhals.from_arrow(table, backend=backend)
    assert frame.filter(narwhals.col("n") > 1).to_dict(as_series=False) == {"n": [2], "s": ["b"]}

"""narwhals and the interchange protocol, through which plotting and other libraries accept any data frame."""

from __future__ import annotations

from typing import Any, Literal

import narwhals
import narwhals.stable.v1
import pandas as pd
import polars as pl
import pytest

import bowstring as bs

TABLE = bs.table({"n": [1, 2, None], "s": ["a", "b", None]})
FRAMES = pytest.mark.parametrize("frame", [TABLE, TABLE.to_batches()[0]], ids=["table", "batch"])


@pytest.mark.parametrize("backend", ["polars", "pyarrow"])
def test_narwhals_imports_tables_through_capsules(backend: Literal["polars", "pyarrow"]) -> None:
    frame = narwhals.from_arrow(TABLE, backend=backend)
    assert frame.filter(narwhals.col("n") > 1).to_dict(as_series=False) == {"n": [2], "s": ["b"]}


@FRAMES
def test_narwhals_takes_tables_as_data_frames(frame: Any) -> None:
    for version in (narwhals, narwhals.stable.v1):
        imported = version.from_native(frame, eager_only=True)
        assert imported.filter(version.col("n") > 1).to_dict(as_series=False) == {"n": [2], "s": ["b"]}
        assert bs.table(imported.to_native()).to_pydict() == TABLE.to_pydict()
    plotted = narwhals.stable.v1.from_native(frame, eager_or_interchange_only=True)  # as Altair and Plotly do
    assert plotted.to_pandas()["n"].sum() == 3


@FRAMES
def test_the_interchange_protocol_gives_the_columns(frame: Any) -> None:
    interchange = frame.__dataframe__()
    assert list(interchange.column_names()) == ["n", "s"]
    assert interchange.num_rows() == 3
    assert pl.from_dataframe(frame).to_dict(as_series=False) == TABLE.to_pydict()
    assert pd.api.interchange.from_dataframe(frame)["n"].sum() == 3  # as seaborn does

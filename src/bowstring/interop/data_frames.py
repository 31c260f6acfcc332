"""The protocols by which plotting libraries take data frames: pyarrow's implementations, by delegation.

Altair, Plotly, seaborn and others ask for the `interchange protocol <https://data-apis.org/dataframe-protocol/>`_, or
import frames through narwhals.
"""

from __future__ import annotations

import sys
from typing import Any

from bowstring.interop.pyarrow_arrays import import_pyarrow


def to_interchange_frame(table: Any, nan_as_null: bool, allow_copy: bool) -> Any:
    """Return pyarrow's interchange object of a batch or a table; raises `MissingExtraError` without pyarrow."""
    return import_pyarrow().table(table).__dataframe__(nan_as_null, allow_copy)


def to_narwhals_frame(table: Any) -> Any:
    """Return narwhals' frame of pyarrow for a batch or a table. Only narwhals asks for it, so it is imported."""
    return sys.modules["narwhals"].from_native(import_pyarrow().table(table))._compliant_frame

"""The one module that imports pandas; and pyarrow, of whose arrays pandas makes its `ArrowDtype`."""

from __future__ import annotations

from typing import Any

from bowstring.errors import MissingExtraError, UsageError


def pandas() -> Any:
    """The module; raises `MissingExtraError` where it is not installed."""
    try:
        import pandas as pd
    except ImportError:
        raise MissingExtraError.of("pandas", "pandas") from None
    return pd


def arrow_backed(column: object) -> Any:
    """A pandas extension array over a pyarrow array over our memory; pandas has no other for Arrow's types.

    Raises `MissingExtraError` where pyarrow is not installed.
    """
    try:
        import pyarrow as pa
    except ImportError:
        raise MissingExtraError("dtype_backend='pyarrow' needs pyarrow: pip install pyarrow") from None
    return pandas().arrays.ArrowExtensionArray(pa.chunked_array(column))


def strings_dtype() -> Any:
    """The dtype that pandas has for text by default; None where it has Python objects."""
    pd = pandas()
    return pd.StringDtype(na_value=float("nan")) if int(pd.__version__.partition(".")[0]) >= 3 else None


def as_series(values: Any) -> Any:
    """Anything that pandas makes a series of, as one; raises `UsageError` for two dimensions."""
    pd = pandas()
    if isinstance(values, pd.Series):
        return values
    if isinstance(values, pd.DataFrame) or getattr(values, "ndim", 1) != 1:
        raise UsageError(f"an array comes from one column, not from {type(values).__name__}")
    return pd.Series(values, copy=False)

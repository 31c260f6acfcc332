"""The only module that imports pandas, and pyarrow, which pandas requires for `ArrowDtype`."""

from __future__ import annotations

from typing import Any

from bowstring.errors import InvalidArgumentError, MissingExtraError


def import_pandas() -> Any:
    """Import pandas. Raises `MissingExtraError` if it is not installed."""
    try:
        import pandas as pd
    except ImportError:
        raise MissingExtraError.for_package("pandas", "pandas") from None
    return pd


def to_arrow_extension_array(column: object) -> Any:
    """Return a pandas extension array over a pyarrow array that shares the column's memory.

    Raises `MissingExtraError` if pyarrow is not installed.
    """
    try:
        import pyarrow as pa
    except ImportError:
        raise MissingExtraError("dtype_backend='pyarrow' needs pyarrow: pip install pyarrow") from None
    return import_pandas().arrays.ArrowExtensionArray(pa.chunked_array(column))


def get_default_string_dtype() -> Any:
    """Return the default string dtype of pandas, or None before pandas 3, where strings are Python objects."""
    pd = import_pandas()
    return pd.StringDtype(na_value=float("nan")) if int(pd.__version__.partition(".")[0]) >= 3 else None


def as_series(values: Any) -> Any:
    """Convert an index, an array or a list to a series. Raises `InvalidArgumentError` for two dimensions."""
    pd = import_pandas()
    if isinstance(values, pd.Series):
        return values
    if isinstance(values, pd.DataFrame) or getattr(values, "ndim", 1) != 1:
        raise InvalidArgumentError(
            f"expected a Series, an Index or a one-dimensional array, found {type(values).__name__}"
        )
    return pd.Series(values, copy=False)


def is_pandas_object(source: object) -> bool:
    """Whether an object is a frame, series or index of pandas. These export Arrow data only if pyarrow is installed."""
    return type(source).__module__.partition(".")[0] == "pandas" and (
        hasattr(source, "dtype") or hasattr(source, "dtypes")
    )

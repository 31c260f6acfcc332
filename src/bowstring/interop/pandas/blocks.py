"""Frames with memory of their own: NumPy columns of the same dtype are rows of one block, as in pandas.

Numbers, timestamps and durations are copied once, from their chunks directly to their block.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from bowstring.interop.pandas.pandas_api import import_pandas
from bowstring.kernels.column_chunks import ColumnChunks
from bowstring.layouts.base import Values
from bowstring.layouts.primitive import PrimitiveLayout
from bowstring.memory.thread_pool import map_in_threads

ColumnSource: TypeAlias = Any
"""The source of a column: chunks of numbers, timestamps or durations, a NumPy array, or a pandas array."""

_PANDAS_TIME_UNITS = ("s", "ms", "us", "ns")


def create_frame(columns: Sequence[tuple[ColumnSource, np.dtype[Any] | None]], num_rows: int) -> Any:
    """Create a frame. The dtype of a column is the NumPy dtype of its chunks, or None for arrays, which have one.

    The index and the labels are ranges. NumPy arrays are copied, pandas arrays are not.
    """
    pd = import_pandas()
    blocks: list[tuple[Any, Values]] = []
    columns_by_dtype: dict[np.dtype[Any], list[tuple[int, ColumnSource]]] = {}
    for index, (source, dtype) in enumerate(columns):
        if dtype is None and not _is_native_to_pandas(source):
            blocks.append((source, np.array([index])))
        else:
            columns_by_dtype.setdefault(source.dtype if dtype is None else dtype, []).append((index, source))
    writes: list[tuple[ColumnSource, Values]] = []
    for dtype, rows in columns_by_dtype.items():
        block = np.empty((len(rows), num_rows), dtype)
        writes += [(source, row) for (_, source), row in zip(rows, block, strict=True)]
        blocks.append((block, np.array([index for index, _ in rows])))
    map_in_threads(lambda job: write_block_row(*job), writes, [row.nbytes for _, row in writes])
    axes = {"index": pd.RangeIndex(num_rows), "columns": pd.RangeIndex(len(columns))}
    if hasattr(pd.api, "internals"):
        return pd.api.internals.create_dataframe_from_blocks(blocks, **axes)
    arrays: dict[int, Any] = {}
    for values, indices in blocks:  # before pandas 3
        is_block = isinstance(values, np.ndarray)
        arrays.update(zip(indices.tolist(), values if is_block else [values], strict=True))
    return pd.DataFrame({index: arrays[index] for index in range(len(columns))}, **axes, copy=True)


def _is_native_to_pandas(values: Any) -> bool:
    """Whether pandas stores a NumPy array without converting it."""
    if not isinstance(values, np.ndarray):
        return False
    dtype = values.dtype
    return dtype.kind in "biufcO" or (dtype.kind in "mM" and np.datetime_data(dtype)[0] in _PANDAS_TIME_UNITS)


def write_block_row(source: ColumnSource, row: Values) -> None:
    """Write a column's values to `row`, an array of its dtype. Nulls become NaN or NaT."""
    if not isinstance(source, ColumnChunks):
        row[...] = source
        return
    if not source.chunks:
        return
    layout = source.chunks[0].layout
    assert isinstance(layout, PrimitiveLayout)
    # Floats are converted, as of integers with nulls; times have the same bits as the integers of the layout.
    target = row if row.dtype.kind == "f" else row.view(layout.dtype)
    np.concatenate([chunk.buffer_values(1) for chunk in source.chunks], out=target)
    if not source.null_count:
        return
    start, null = 0, np.array("nan" if row.dtype.kind == "f" else "NaT", row.dtype)
    for chunk in source.chunks:
        mask = chunk.validity_mask()
        if mask is not None:
            np.putmask(row[start : start + chunk.length], ~mask, null)
        start += chunk.length

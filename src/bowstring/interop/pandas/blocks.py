"""The memory of frames that share none: NumPy columns of one dtype lie side by side in one block, as pandas keeps them.

Numbers and moments are written from their chunks straight into their block, so that each is copied once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from bowstring.arrays.chunked_array import ChunkedArray
from bowstring.interop.pandas.library import pandas
from bowstring.layouts.base import Values
from bowstring.layouts.primitive import PrimitiveLayout
from bowstring.memory.threads import map_in_threads

Source: TypeAlias = Any
"""What a column of a frame is made of: chunks of numbers or moments, a NumPy array, or one of pandas' arrays."""

_UNITS = ("s", "ms", "us", "ns")


def frame_of(columns: Sequence[tuple[Source, np.dtype[Any] | None]], num_rows: int) -> Any:
    """A frame of columns with the NumPy dtypes that their chunks become; None for arrays, which have their own.

    Index and labels are ranges. NumPy's values are copied; pandas' arrays are taken as they are.
    """
    pd = pandas()
    blocks: list[tuple[Any, Values]] = []
    rows_of: dict[np.dtype[Any], list[tuple[int, Source]]] = {}
    for number, (source, dtype) in enumerate(columns):
        if dtype is None and not _is_native(source):
            blocks.append((source, np.array([number])))
        else:
            rows_of.setdefault(source.dtype if dtype is None else dtype, []).append((number, source))
    jobs: list[tuple[Source, Values]] = []
    for dtype, rows in rows_of.items():
        block = np.empty((len(rows), num_rows), dtype)
        jobs += [(source, row) for (_, source), row in zip(rows, block, strict=True)]
        blocks.append((block, np.array([number for number, _ in rows])))
    map_in_threads(lambda job: write(*job), jobs, [row.nbytes for _, row in jobs])
    axes = {"index": pd.RangeIndex(num_rows), "columns": pd.RangeIndex(len(columns))}
    if hasattr(pd.api, "internals"):
        return pd.api.internals.create_dataframe_from_blocks(blocks, **axes)
    arrays: dict[int, Any] = {}
    for values, numbers in blocks:  # before pandas 3
        is_block = isinstance(values, np.ndarray)
        arrays.update(zip(numbers.tolist(), values if is_block else [values], strict=True))
    return pd.DataFrame({number: arrays[number] for number in range(len(columns))}, **axes, copy=True)


def _is_native(values: Any) -> bool:
    """Whether pandas keeps a NumPy array as it is."""
    if not isinstance(values, np.ndarray):
        return False
    dtype = values.dtype
    return dtype.kind in "biufcO" or (dtype.kind in "mM" and np.datetime_data(dtype)[0] in _UNITS)


def write(source: Source, row: Values) -> None:
    """Write a column's values to memory of its dtype; nulls become NaN or NaT."""
    if not isinstance(source, ChunkedArray):
        row[...] = source
        return
    if not source.chunks:
        return
    layout = source.chunks[0].layout
    assert isinstance(layout, PrimitiveLayout)
    slots = row if row.dtype.kind == "f" else row.view(layout.dtype)
    np.concatenate([chunk.values(1) for chunk in source.chunks], out=slots)
    if not source.null_count:
        return
    start, null = 0, np.array("nan" if row.dtype.kind == "f" else "NaT", row.dtype)
    for chunk in source.chunks:
        mask = chunk.mask()
        if mask is not None:
            np.putmask(row[start : start + chunk.length], ~mask, null)
        start += chunk.length

"""pyarrow arrays of every type of the C data interface: with nulls, without, empty, sliced, nested."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

LONG = "a string that does not fit into the sixteen bytes of a view"


def plain() -> dict[str, pa.Array]:
    """One array per type, with nulls and values."""
    moments = [0, None, 1_700_000_000, -5, 86_400]
    days = [dt.date(1970, 1, 1), None, dt.date(2024, 2, 29)]
    texts = ["", None, "é", LONG, "z" * 12]
    blobs = [None if t is None else t.encode() for t in texts]
    samples: dict[str, pa.Array] = {
        "null": pa.nulls(3),
        "bool": pa.array([True, None, False] * 5),
        "date32": pa.array(days, pa.date32()),
        "date64": pa.array(days, pa.date64()),
        "float16": pa.array(np.array([1.5, -2, 0], np.float16), pa.float16(), mask=np.array([False, True, False])),
        "fixed_size_binary": pa.array([b"abc", None, b"xyz"], pa.binary(3)),
        "zero_width_binary": pa.array([b"", None, b""], pa.binary(0)),
        "month_day_nano": pa.array([(1, 2, 3), None, (-1, 0, 7)], pa.month_day_nano_interval()),
        "binary": pa.array(blobs, pa.binary()),
        "large_binary": pa.array(blobs, pa.large_binary()),
        "binary_view": pa.array(blobs, pa.binary_view()),
        "string": pa.array(texts, pa.string()),
        "large_string": pa.array(texts, pa.large_string()),
        "string_view": pa.array(texts, pa.string_view()),
        "short_string_view": pa.array(["short", None, ""], pa.string_view()),
    }
    for kind in (pa.int8, pa.int16, pa.int32, pa.int64, pa.uint8, pa.uint16, pa.uint32, pa.uint64):
        samples[kind.__name__] = pa.array([1, None, 100, 0], kind())
    for kind in (pa.float32, pa.float64):
        samples[kind.__name__] = pa.array([1.5, None, float("inf"), 0.0], kind())
    for bits, kind in ((32, pa.decimal32), (64, pa.decimal64), (128, pa.decimal128), (256, pa.decimal256)):
        samples[f"decimal{bits}"] = pa.array([Decimal("1.25"), None, Decimal("-7.00")], kind(9, 2))
    for unit in ("s", "ms", "us", "ns"):
        samples[f"timestamp_{unit}"] = pa.array(moments, pa.timestamp(unit))
        samples[f"timestamp_{unit}_tz"] = pa.array(moments, pa.timestamp(unit, "Europe/Paris"))
        samples[f"duration_{unit}"] = pa.array(moments, pa.duration(unit))
        samples[f"time_{unit}"] = pa.array([0, None, 3], pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit))
    return samples


def nested() -> dict[str, pa.Array]:
    """Arrays with children or a dictionary."""
    lists: list[Any] = [[1, 2], None, [], [None, 5]]
    structs: list[Any] = [{"a": 1, "b": "x"}, None, {"a": None, "b": LONG}]
    struct = pa.struct([pa.field("a", pa.int32(), nullable=True), pa.field("b", pa.string(), metadata={"k": "v"})])
    ids = pa.array([0, 1, 0, 1], pa.int8())
    children = [pa.array([1, 2, None, 4]), pa.array(["a", "b", "c", None])]
    dense = [pa.array([1, None]), pa.array(["b", None])]
    offsets = pa.array([0, 0, 1, 1], pa.int32())
    dictionary = pa.DictionaryArray.from_arrays(pa.array([0, None, 1, 0], pa.int16()), ["x", "y"], ordered=True)
    return {
        "list": pa.array(lists, pa.list_(pa.int64())),
        "large_list": pa.array(lists, pa.large_list(pa.field("elements", pa.int8(), nullable=True))),
        "list_view": pa.array(lists, pa.list_view(pa.int32())),
        "large_list_view": pa.array(lists, pa.large_list_view(pa.int32())),
        "fixed_size_list": pa.array([[1, 2], None, [3, None]], pa.list_(pa.int16(), 2)),
        "list_of_lists": pa.array([[["a"], None], [], None, [["b", None, "c"]]], pa.list_(pa.list_(pa.string()))),
        "struct": pa.array(structs, struct),
        "empty_struct": pa.array([{}, None, {}], pa.struct([])),
        "list_of_structs": pa.array([structs, None, []], pa.list_(struct)),
        "map": pa.array([[("a", 1), ("b", None)], None, []], pa.map_(pa.string(), pa.int32())),
        "sorted_map": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int32(), keys_sorted=True)),
        "sparse_union": pa.UnionArray.from_sparse(ids, children, ["i", "s"]),
        "dense_union": pa.UnionArray.from_dense(ids, offsets, dense, ["i", "s"]),
        "dense_union_ids": pa.UnionArray.from_dense(
            pa.array([5, 9, 5, 9], pa.int8()), offsets, dense, ["i", "s"], [5, 9]
        ),
        "dictionary": dictionary,
        "dictionary_of_lists": pa.DictionaryArray.from_arrays(
            pa.array([1, 0, None], pa.uint8()), pa.array([[1], [2, 3]])
        ),
        "list_of_dictionaries": pa.ListArray.from_arrays(pa.array([0, 1, 4], pa.int32()), dictionary),
        "run_end_encoded": pa.RunEndEncodedArray.from_arrays(
            pa.array([2, 5, 6], pa.int32()), pa.array(["a", None, "b"])
        ),
        "struct_of_views": pa.array([{"v": LONG}, None, {"v": "s"}], pa.struct([("v", pa.string_view())])),
    }


def arrays() -> dict[str, pa.Array]:
    """All arrays, also without nulls, empty, and sliced from the middle."""
    whole = plain() | nested()
    samples = dict(whole)
    samples |= {f"{name}, sliced": array.slice(1, max(len(array) - 2, 1)) for name, array in whole.items()}
    samples |= {f"{name}, empty": array.slice(0, 0) for name, array in whole.items()}
    samples |= {f"{name}, empty at the end": array.slice(len(array)) for name, array in whole.items()}
    samples |= {f"{name}, made empty": pa.array([], array.type) for name, array in plain().items()}
    samples |= {f"{name}, no nulls": array.slice(2) for name, array in plain().items()}
    return samples


ARRAYS = arrays()

"""One Bowstring array for each layout and kind of value, with nulls."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import bowstring as bs

LONG = "a string that does not fit into the sixteen bytes of a view"
TEXTS = ["", None, "é", LONG]
BLOBS = [None if text is None else text.encode() for text in TEXTS]
DAYS = [dt.date(1970, 1, 1), None, dt.date(2024, 2, 29)]
LISTS = [[1, 2], None, [], [None, 5]]
RECORD = bs.struct({"a": bs.int32(), "b": bs.string()})
RECORDS = [{"a": 1, "b": "x"}, None, {"a": None, "b": LONG}]
INTEGERS = [bs.int8(), bs.int16(), bs.int32(), bs.int64(), bs.uint8(), bs.uint16(), bs.uint32(), bs.uint64()]
DECIMALS: dict[str, Callable[..., bs.DataType]] = {
    "decimal32": bs.decimal32, "decimal64": bs.decimal64, "decimal128": bs.decimal128, "decimal256": bs.decimal256,
}  # fmt: skip
MEMBERS = {"i": bs.int64(), "s": bs.string()}


def _units(make: Callable[[Any], bs.DataType], name: str, values: list[Any]) -> dict[str, bs.Array]:
    return {f"{name}_{unit}": bs.array(values, make(unit)) for unit in ("s", "ms", "us", "ns")}


LAYOUTS: dict[str, bs.Array] = {
    "null": bs.array([None, None, None], bs.null()),
    "bool": bs.array([True, None, False]),
    **{str(type_): bs.array([1, None, 100, 0], type_) for type_ in INTEGERS},
    **{
        f"float{t.bit_width}": bs.array([1.5, None, float("inf")], t)
        for t in (bs.float16(), bs.float32(), bs.float64())
    },
    **{name: bs.array([Decimal("1.25"), None, Decimal("7.00")], make(9, 2)) for name, make in DECIMALS.items()},
    "date32": bs.array(DAYS, bs.date32()),
    "date64": bs.array(DAYS, bs.date64()),
    **_units(lambda u: bs.time32(u) if u in ("s", "ms") else bs.time64(u), "time", [0, None, 3_000]),
    **_units(bs.timestamp, "timestamp", [0, None, 1_700_000_000]),
    **_units(lambda unit: bs.timestamp(unit, "Europe/Paris"), "zoned", [0, None, 1_700_000_000]),
    **_units(bs.duration, "duration", [0, None, -5_000]),
    "month_interval": bs.array([1, None, 3], bs.month_interval()),
    "day_time_interval": bs.array([(1, 2), None, (3, 4)], bs.day_time_interval()),
    "month_day_nano_interval": bs.array([(1, 2, 3000), None, (0, 0, 0)], bs.month_day_nano_interval()),
    "fixed_size_binary": bs.array([b"abc", None, b"xyz"], bs.binary(3)),
    "binary": bs.array(BLOBS, bs.binary()),
    "large_binary": bs.array(BLOBS, bs.large_binary()),
    "binary_view": bs.array(BLOBS, bs.binary_view()),
    "string": bs.array(TEXTS),
    "large_string": bs.array(TEXTS, bs.large_string()),
    "string_view": bs.array(TEXTS, bs.string_view()),
    "list": bs.array(LISTS),
    "large_list": bs.array(LISTS, bs.large_list(bs.int64())),
    "list_view": bs.array(LISTS, bs.list_view(bs.int64())),
    "large_list_view": bs.array(LISTS, bs.large_list_view(bs.int64())),
    "fixed_size_list": bs.array([[1, 2], None, [3, None]], bs.list_(bs.int16(), 2)),
    "struct": bs.array(RECORDS, RECORD),
    "list_of_structs": bs.array([RECORDS, None, []], bs.list_(RECORD)),
    "map": bs.array([[("a", 1), ("b", None)], None, []], bs.map_(bs.string(), bs.int32())),
    "sparse_union": bs.array([1, "b", None], bs.sparse_union(MEMBERS)),
    "dense_union": bs.array([1, "b", None], bs.dense_union(MEMBERS)),
    "dictionary": bs.array(["x", "y", None, "x"], bs.dictionary(bs.int16(), bs.string())),
    "run_end_encoded": bs.array(["a", "a", None, "b"], bs.run_end_encoded(bs.int32(), bs.string())),
}

CUTS: dict[str, Callable[[bs.Array], list[bs.Array]]] = {
    "whole": lambda array: [array],
    "sliced": lambda array: [array.slice(1)],
    "empty": lambda array: [array.slice(0, 0)],
    "in two batches": lambda array: [array.slice(0, 2), array.slice(2)],
}
"""Functions that split an array into the batches of a table."""


def table_of(name: str, cut: str) -> bs.Table:
    """A table with one column `a` of a layout, split into batches."""
    array = LAYOUTS[name]
    schema = bs.schema([("a", array.type)])
    return bs.Table.from_batches(
        [bs.RecordBatch.from_arrays([part], schema=schema) for part in CUTS[cut](array)], schema
    )

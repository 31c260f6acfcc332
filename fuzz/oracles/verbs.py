"""The verbs of an array, each against what Python makes of its values."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import bowstring as bs
from bowstring.errors import DataTypeError, UsageError
from fuzz.promises import promise

_TARGETS = (bs.string(), bs.large_binary(), bs.int64(), bs.uint8(), bs.float32(), bs.decimal128(20, 3), bs.date32(),
            bs.timestamp("ns"), bs.bool_(), bs.string_view(), bs.dictionary(bs.int8(), bs.string()))  # fmt: skip
_ORDERED = (int, str, bytes)


def check_verbs(column: bs.Array, values: list[Any]) -> None:
    """What has to hold of an array that passed full validation, and of what it spells out to: one of it, by chance."""
    chosen = crc32(repr(values).encode("utf-8", "replace"))
    _VERBS[chosen % len(_VERBS)](column, values, chosen)


def _is(made: bs.Array, values: list[Any], what: str) -> None:
    made.validate(full=True)
    promise(repr(made.to_pylist()) == repr(values), f"{what}, values differ")


def _select(column: bs.Array, values: list[Any], chosen: int) -> None:
    mask = [number % 2 == chosen // 8 % 2 for number in range(len(values))]
    _is(column.filter(mask), [value for value, is_in in zip(values, mask, strict=True) if is_in], "filtered")
    _is(column.is_null(), [value is None for value in values], "told for nulls")
    _is(column.drop_null(), [value for value in values if value is not None], "without nulls")


def _fill(column: bs.Array, values: list[Any], _chosen: int) -> None:
    filler = next((value for value in values if value is not None), None)
    if filler is None or all(value is not None for value in values):
        return
    try:
        made = column.fill_null(filler)
    except DataTypeError:
        return  # what it spells out to need not be what it is made of
    made.validate(full=True)
    promise(len(made) == len(values), "filled, there are other slots")


def _sort(column: bs.Array, values: list[Any], _chosen: int) -> None:
    for order in ("ascending", "descending"):
        try:
            found = column.sort_indices(order).to_pylist()
        except DataTypeError:
            return  # it has none
        promise(sorted(found) == list(range(len(values))), "an order has other slots")
        ranked = [values[at] for at in found if values[at] is not None]
        if all(type(value) is type(ranked[0]) and isinstance(value, _ORDERED) for value in ranked):
            promise(ranked == sorted(ranked, reverse=order == "descending"), f"{order}, values are not in order")


def _encode(column: bs.Array, values: list[Any], _chosen: int) -> None:
    distinct = column.unique()
    distinct.validate(full=True)
    promise(len(distinct) <= len(values), "more distinct values than values")
    encoded = column.dictionary_encode()
    encoded.validate(full=True)
    _is(encoded.dictionary_decode(), values, "decoded from a dictionary")
    runs = column.run_end_encode()
    runs.validate(full=True)
    _is(runs.run_end_decode(), values, "decoded from runs")


def _cast(column: bs.Array, values: list[Any], chosen: int) -> None:
    target = (column.type, *_TARGETS)[chosen // 8 % (1 + len(_TARGETS))]
    try:
        made = column.cast(target, bool(chosen & 4))
    except DataTypeError:
        return
    made.validate(full=True)
    promise(made.type == target and len(made) == len(values), f"a cast to {target} gives something else")


def _spell(column: bs.Array, values: list[Any], _chosen: int) -> None:
    try:
        promise(len(column.to_numpy(zero_copy_only=False)) == len(values), "NumPy has other slots")
    except UsageError:
        pass  # a type that NumPy has not


_VERBS = (_select, _fill, _sort, _encode, _cast, _cast, _spell)

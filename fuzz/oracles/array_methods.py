"""Array methods, compared with the same operations on Python values."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import bowstring as bs
from bowstring.errors import InvalidArgumentError, TypeMismatchError
from fuzz.expectations import expect

_TARGETS = (bs.string(), bs.large_binary(), bs.int64(), bs.uint8(), bs.float32(), bs.decimal128(20, 3), bs.date32(),
            bs.timestamp("ns"), bs.bool_(), bs.string_view(), bs.dictionary(bs.int8(), bs.string()))  # fmt: skip
_ORDERED = (int, str, bytes)


def check_array_methods(column: bs.Array, values: list[Any]) -> None:
    """Check one method of an array that passed full validation; the checksum of its values selects the method."""
    checksum = crc32(repr(values).encode("utf-8", "replace"))
    _CHECKS[checksum % len(_CHECKS)](column, values, checksum)


def _expect_values(array: bs.Array, values: list[Any], operation: str) -> None:
    array.validate(full=True)
    expect(repr(array.to_pylist()) == repr(values), f"{operation}: values differ")


def _select(column: bs.Array, values: list[Any], checksum: int) -> None:
    mask = [number % 2 == checksum // 8 % 2 for number in range(len(values))]
    _expect_values(
        column.filter(mask), [value for value, is_selected in zip(values, mask, strict=True) if is_selected], "filter"
    )
    _expect_values(column.is_null(), [value is None for value in values], "is_null")
    _expect_values(column.drop_null(), [value for value in values if value is not None], "drop_null")


def _fill(column: bs.Array, values: list[Any], _checksum: int) -> None:
    filler = next((value for value in values if value is not None), None)
    if filler is None or all(value is not None for value in values):
        return
    try:
        filled = column.fill_null(filler)
    except TypeMismatchError:
        return  # to_pylist may return values that array does not accept
    filled.validate(full=True)
    expect(len(filled) == len(values), "fill_null returns a different length")


def _sort(column: bs.Array, values: list[Any], _checksum: int) -> None:
    for order in ("ascending", "descending"):
        try:
            indices = column.sort_indices(order).to_pylist()
        except TypeMismatchError:
            return  # the type has no order
        expect(sorted(indices) == list(range(len(values))), "sort_indices is not a permutation")
        sorted_values = [values[index] for index in indices if values[index] is not None]
        if all(type(value) is type(sorted_values[0]) and isinstance(value, _ORDERED) for value in sorted_values):
            expect(
                sorted_values == sorted(sorted_values, reverse=order == "descending"),
                f"{order}: values are not in order",
            )


def _encode(column: bs.Array, values: list[Any], _checksum: int) -> None:
    distinct = column.unique()
    distinct.validate(full=True)
    expect(len(distinct) <= len(values), "unique returns more values")
    encoded = column.dictionary_encode()
    encoded.validate(full=True)
    _expect_values(encoded.dictionary_decode(), values, "dictionary_decode")
    runs = column.run_end_encode()
    runs.validate(full=True)
    _expect_values(runs.run_end_decode(), values, "run_end_decode")


def _cast(column: bs.Array, values: list[Any], checksum: int) -> None:
    target = (column.type, *_TARGETS)[checksum // 8 % (1 + len(_TARGETS))]
    try:
        converted = column.cast(target, bool(checksum & 4))
    except TypeMismatchError:
        return
    converted.validate(full=True)
    expect(
        converted.type == target and len(converted) == len(values),
        f"a cast to {target} returns a different type or length",
    )


def _convert_to_numpy(column: bs.Array, values: list[Any], _checksum: int) -> None:
    try:
        expect(len(column.to_numpy(zero_copy_only=False)) == len(values), "to_numpy returns a different length")
    except InvalidArgumentError:
        pass  # NumPy has no such type


_CHECKS = (_select, _fill, _sort, _encode, _cast, _cast, _convert_to_numpy)

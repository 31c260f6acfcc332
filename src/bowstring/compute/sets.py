"""Membership of values in a set of values."""

from __future__ import annotations

from typing import Any

import numpy as np

from bowstring.compute.operands import as_column, decode_and_cast, map_operands
from bowstring.datatypes import types as t
from bowstring.errors import TypeMismatchError
from bowstring.kernels.common_type import find_common_type
from bowstring.kernels.comparison import get_byte_strings
from bowstring.kernels.nulls import create_boolean_array
from bowstring.layouts.base import ArrayData, Indices
from bowstring.layouts.byte_strings import ByteStringLayout
from bowstring.layouts.bytes_equality_codes import find_equal_bytes
from bowstring.layouts.factorize import factorize
from bowstring.layouts.registry import primitive_layout


def is_in(values: Any, value_set: Any, *, skip_nulls: bool = False) -> Any:
    """Return whether values are in `value_set`, never null: a null is if the set has one, unless `skip_nulls`.

    NaN is in a set with NaN. Raises `TypeMismatchError` if the types have no common type.

    >>> import bowstring as bs
    >>> bs.compute.is_in(bs.array(["a", "b", None]), ["b", "c"]).to_pylist()
    [False, True, False]
    """
    members = _as_set(value_set)
    return map_operands(lambda array: create_boolean_array(_find_members(array, members, skip_nulls) >= 0), values)


def index_in(values: Any, value_set: Any, *, skip_nulls: bool = False) -> Any:
    """Return the int32 index of each value's first occurrence in `value_set`; null if it is not there. As `is_in`.

    >>> bs.compute.index_in(["b", "x", None], ["a", "b"])
    <bowstring.Array int32[3]>
    [1, null, null]
    """

    def index_array(array: ArrayData) -> ArrayData:
        indices = _find_members(array, members, skip_nulls)
        return primitive_layout(t.int32()).create_array(indices.astype(np.int32), indices >= 0)

    members = _as_set(value_set)
    return map_operands(index_array, values)


def _as_set(value_set: Any) -> ArrayData:
    if isinstance(value_set, str | bytes):
        raise TypeMismatchError(f"expected a sequence of values as value_set, found {value_set!r:.100}")
    return as_column(list(value_set) if isinstance(value_set, set | frozenset | range) else value_set)


def _find_members(array: ArrayData, members: ArrayData, skip_nulls: bool) -> Indices:
    """Return the index of each slot's value in `members`, -1 if it is not there."""
    if members.type != array.type:
        common_type = find_common_type([array.type, members.type])
        members, array = decode_and_cast(members, common_type), decode_and_cast(array, common_type)
    valid = array.layout.logical_validity_mask(array)
    indices = _find_byte_strings(array, members) if isinstance(array.layout, ByteStringLayout) else None
    if indices is None:
        codes, firsts = factorize(array.layout.concat([array, members]))
        index_by_code = np.full(len(firsts), -1)
        index_by_code[codes[array.length :][::-1]] = np.arange(members.length)[::-1]
        indices = index_by_code[codes[: array.length]]
    if skip_nulls and valid is not None:
        indices[~valid] = -1
    return indices


def _find_byte_strings(array: ArrayData, members: ArrayData) -> Indices | None:
    """As `_find_members`, for byte strings; None if their hashes collide."""
    valid, is_member = array.validity_mask(), members.validity_mask()
    data, starts, lengths = get_byte_strings(members)
    slots = np.arange(members.length) if is_member is None else np.flatnonzero(is_member)
    indices = find_equal_bytes(get_byte_strings(array), (data, starts[slots], lengths[slots]))
    if indices is None:
        return None
    indices = np.append(slots, -1)[indices]
    if valid is not None:
        indices[~valid] = -1 if is_member is None else int(np.argmin(is_member))
    return indices

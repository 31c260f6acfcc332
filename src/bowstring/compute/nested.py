"""Parts of lists and structs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bowstring.arrays.array import Array
from bowstring.arrays.chunked_array import ChunkedArray
from bowstring.arrays.scalar import Scalar
from bowstring.compute.operands import as_operand, map_operands
from bowstring.datatypes import types as t
from bowstring.errors import TypeMismatchError
from bowstring.kernels import lists
from bowstring.kernels.nulls import inherit_nulls
from bowstring.layouts.base import ArrayData


def list_value_length(lists: Any) -> Any:
    """Return the number of elements of lists, as int32, of large lists as int64; null for null.

    >>> bs.compute.list_value_length([[1, 2], [], None])
    <bowstring.Array int32[3]>
    [2, 0, null]
    """
    return map_operands(_count_elements, lists)


def list_flatten(lists: Any, recursive: bool = False) -> Any:
    """Return the elements of all lists, with `recursive` those of lists within them; nulls have none.

    >>> bs.compute.list_flatten([[1, 2], [], None, [3]])
    <bowstring.Array int64[3]>
    [1, 2, 3]
    """
    operand = as_operand(lists)
    if isinstance(operand, ChunkedArray):
        empty = _flatten(Array.from_array_data(operand.combine_chunks().slice(0, 0)), recursive)
        return ChunkedArray([_flatten(chunk, recursive) for chunk in operand.chunks], empty.type)
    return Array.from_array_data(_flatten(operand.to_array() if isinstance(operand, Scalar) else operand, recursive))


def struct_field(values: Any, indices: int | str | Sequence[int | str]) -> Any:
    """Return a field of structs by its name or index, or by a sequence of them one within another; null for null.

    Raises `NotFoundError` if there is no such field.

    >>> bs.compute.struct_field([{"x": {"y": 1}}, None], ["x", "y"])
    <bowstring.Array int64[2]>
    [1, null]
    """
    path = [indices] if isinstance(indices, int | str) else list(indices)

    def extract(array: ArrayData) -> ArrayData:
        for key in path:
            array = array.storage
            if not isinstance(array.type, t.Struct):
                raise TypeMismatchError(f"struct_field: expected structs, found {array.type}")
            array = inherit_nulls(Array.from_array_data(array).field(key), array)
        return array

    return map_operands(extract, values)


def _require_list(name: str, array: ArrayData) -> ArrayData:
    """Return the storage of an array of lists. Raises `TypeMismatchError` for another type."""
    if not isinstance(array.storage.type, t.BaseList):
        raise TypeMismatchError(f"{name}: expected lists, found {array.type}")
    return array.storage


def _count_elements(array: ArrayData) -> ArrayData:
    return lists.value_lengths(_require_list("list_value_length", array))


def _flatten(array: ArrayData, recursive: bool) -> ArrayData:
    array = lists.flatten(_require_list("list_flatten", array))
    while recursive and isinstance(array.storage.type, t.BaseList):
        array = lists.flatten(array.storage)
    return array

"""Arrays of Python objects and of NumPy arrays."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from bowstring.datatypes.types import DataType
from bowstring.errors import TypeMismatchError
from bowstring.layouts.base import ArrayData, Layout, Values, pack_validity
from bowstring.layouts.extension import ExtensionLayout
from bowstring.layouts.fixed_size_list import FixedSizeListLayout
from bowstring.layouts.registry import layout_of
from bowstring.layouts.struct_ import StructLayout
from bowstring.layouts.type_inference import infer_array, type_of_numpy_array


def array_from_python(values: Sequence[Any], type: DataType | None = None) -> ArrayData:
    """Create an array of Python objects, None for null, of a data type or of the one inferred from them.

    Scalars of Arrow libraries count as their values, and NA and NaT of pandas as None. Raises `TypeMismatchError`
    naming the first value that does not fit.
    """
    try:
        try:
            return _create_array(values, type)
        except (TypeMismatchError, ValueError) as error:
            # Only now, because few values are of other libraries, and to search millions takes time.
            try:
                known = [to_python(value) for value in values]
            except RecursionError:
                raise error from None
            if all(map(operator.is_, known, values)):
                raise
            return _create_array(known, type)
    except RecursionError:
        raise TypeMismatchError("the values are nested too deeply") from None


def _create_array(values: Sequence[Any], type: DataType | None) -> ArrayData:
    return infer_array(values) if type is None else layout_of(type).from_pylist(values)


def to_python(value: Any, visited: dict[int, Any] | None = None) -> Any:
    """Return the value of a scalar of any library, None for pandas' NA and NaT; any other value unchanged.

    `visited` has the lists and dictionaries that were visited, by their identity: a list may contain another one twice
    at each of many levels, or itself.
    """
    visited = {} if visited is None else visited
    kind = type(value)
    if kind.__name__ in ("NAType", "NaTType") and kind.__module__.startswith("pandas."):
        return None
    if not isinstance(value, list | tuple | dict):
        # The attribute of the class, because an object may compute its own.
        return value.as_py() if hasattr(kind, "as_py") else value
    if id(value) not in visited:
        visited[id(value)] = value
        children = value.values() if isinstance(value, dict) else value
        known = [to_python(child, visited) for child in children]
        if not all(map(operator.is_, known, children)):
            visited[id(value)] = dict(zip(value, known, strict=True)) if isinstance(value, dict) else known
    return visited[id(value)]


def invert_mask(mask: Values) -> Values:
    """Return the opposite of a mask, with the same shape and fields."""
    if mask.dtype.names is None:
        return ~mask
    valid = np.empty(mask.shape, mask.dtype)
    for name in mask.dtype.names:
        valid[name] = invert_mask(mask[name])
    return valid


def array_from_numpy(values: Values, type: DataType | None = None, valid: Values | None = None) -> ArrayData:
    """Create an array of a NumPy array, sharing its memory if the type allows.

    Dimensions beyond the first become fixed-size lists. `valid` is False for nulls; it has an element per row or per
    element of `values`, or fields with such arrays. Raises `TypeMismatchError` if the values do not fit the type.
    """
    if values.ndim == 0:
        raise TypeMismatchError("expected a NumPy array of at least one dimension, found a scalar")
    return _from_numpy(values, layout_of(type or type_of_numpy_array(values)), valid)


def _from_numpy(values: Values, layout: Layout, valid: Values | None) -> ArrayData:
    if values.dtype.byteorder == ">" or (values.dtype.kind in "iufmM" and not values.dtype.isnative):
        values = values.astype(values.dtype.newbyteorder("="))
    if isinstance(layout, ExtensionLayout):
        storage_values = layout.extension_type.to_storage_numpy(values)
        if storage_values is not None:
            return _from_numpy(storage_values, layout.storage, valid).with_layout(layout)
    if isinstance(layout, FixedSizeListLayout) and values.ndim > 1 and values.shape[1] == layout.size:
        flat = (values.shape[0] * values.shape[1], *values.shape[2:])
        row_mask, element_mask = (valid, None) if valid is None or valid.ndim == 1 else (None, valid.reshape(flat))
        elements = _from_numpy(values.reshape(flat), layout.children[0], element_mask)
        return ArrayData(layout, len(values), (pack_validity(row_mask),), (elements,))
    if values.ndim == 1 and isinstance(layout, StructLayout) and values.dtype.names == tuple(layout.names):
        row_mask, element_mask = (valid, None) if valid is None or valid.dtype.names is None else (None, valid)
        columns = [
            _from_numpy(values[name], child, None if element_mask is None else element_mask[name])
            for name, child in zip(layout.names, layout.children, strict=True)
        ]
        return ArrayData(layout, len(values), (pack_validity(row_mask),), tuple(columns))
    if valid is not None and (valid.ndim > 1 or valid.dtype.names is not None):
        if values.dtype.kind in "mMV":
            raise TypeMismatchError(
                f"NumPy's {values.dtype} with a mask of elements cannot be converted to {layout.type}"
            )
        return layout.from_pylist(np.where(valid, values.astype(object), np.array(None)).tolist())
    return layout.from_numpy(values, valid)

"""Arrays from and to pyarrow, whose functions `bowstring.compute` and tables call. Nothing is copied.

The structures of the C data interface are passed by address, with the type of a cache: that takes a quarter of the time
of capsules, which have a schema for each array.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache, lru_cache
from typing import Any

from bowstring.datatypes.conversion import as_type
from bowstring.errors import TypeMismatchError, require_package
from bowstring.interop.c_array import build_array_block, import_array_struct
from bowstring.layouts.base import ArrayData, Layout
from bowstring.layouts.registry import layout_of
from bowstring.memory import c_abi


@cache
def import_pyarrow() -> Any:
    """Import pyarrow and its compute functions. Raises `MissingExtraError` if it is not installed."""
    with require_package("pyarrow", "compute"):
        import pyarrow as pa
        import pyarrow.compute
    return pa


def find_expression(value: object) -> Any:
    """Return an expression of pyarrow, such as ``bs.compute.field("n") > 1``; None for anything else."""
    # Nobody has an expression unless pyarrow was imported.
    pc = sys.modules.get("pyarrow.compute")
    if pc is None:
        return None
    value = getattr(value, "pyarrow_expression", value)
    return value if isinstance(value, pc.Expression) else None


def array_to_pyarrow(array: ArrayData) -> Any:
    """Return a pyarrow array over the same memory. Raises `TypeMismatchError` for types that pyarrow lacks."""
    pa_type = layout_to_pyarrow(array.layout)
    try:
        return import_pyarrow().Array._import_from_c(build_array_block(array).address, pa_type)
    except KeyError:  # C++ has the type, Python has no class for its arrays
        raise _missing_type_error(array.layout) from None


def array_from_pyarrow(array: Any) -> ArrayData:
    """Return an array over the memory of a pyarrow array."""
    pa, pa_type = import_pyarrow(), array.type
    # Nested types of pyarrow are equal even if the metadata of their fields differ, so a cache can't have them.
    is_nested = pa_type.num_fields or isinstance(pa_type, (pa.DictionaryType, pa.BaseExtensionType))
    layout = layout_of(as_type(pa_type)) if is_nested else _layout_from_pyarrow(pa_type)
    struct = c_abi.ArrayStruct()
    address = ctypes.addressof(struct)
    array._export_to_c(address)
    return import_array_struct(address, layout)


def is_pyarrow_scalar(value: object) -> bool:
    """Whether a value is a scalar of pyarrow."""
    pa = sys.modules.get("pyarrow")
    return pa is not None and isinstance(value, pa.Scalar)


def scalar_from_pyarrow(scalar: Any) -> ArrayData:
    """Return an array of the value of a pyarrow scalar."""
    return array_from_pyarrow(import_pyarrow().repeat(scalar, 1))


@lru_cache(maxsize=1024)
def layout_to_pyarrow(layout: Layout) -> Any:
    """Return the type of pyarrow for a layout's type. Raises `TypeMismatchError` if pyarrow lacks it."""
    pa = import_pyarrow()
    try:
        return pa.DataType._import_from_c_capsule(layout.type.__arrow_c_schema__())
    except pa.ArrowException as error:
        raise _missing_type_error(layout) from error


def _missing_type_error(layout: Layout) -> TypeMismatchError:
    return TypeMismatchError(f"pyarrow {import_pyarrow().__version__} has no arrays of {layout.type}")


@lru_cache(maxsize=1024)
def _layout_from_pyarrow(pa_type: Any) -> Layout:
    return layout_of(as_type(pa_type))


# Protocols by which plotting libraries take data frames: Altair, Plotly, seaborn and others


def to_interchange_frame(table: Any, nan_as_null: bool, allow_copy: bool) -> Any:
    """Return pyarrow's object of the interchange protocol for a batch or a table.

    See https://data-apis.org/dataframe-protocol/. Raises `MissingExtraError` without pyarrow.
    """
    return import_pyarrow().table(table).__dataframe__(nan_as_null, allow_copy)


def to_narwhals_frame(table: Any) -> Any:
    """Return narwhals' frame of pyarrow for a batch or a table. Only narwhals asks for it, so it is imported."""
    return sys.modules["narwhals"].from_native(import_pyarrow().table(table))._compliant_frame

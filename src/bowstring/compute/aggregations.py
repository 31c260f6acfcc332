"""Functions that return one scalar for all values of an argument: sums, extremes, counts and moments.

Nulls are skipped, or with `skip_nulls=False` make the result null. It is also null for fewer than `min_count` values.
Sums, extremes and counts take one chunk after the other; `any`, `all` and distinct values concatenate the chunks.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from decimal import Decimal, localcontext
from functools import partial
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from bowstring.arrays.array import Array
from bowstring.arrays.scalar import Scalar
from bowstring.compute.logic import unpack_booleans
from bowstring.compute.operands import as_chunks, as_column
from bowstring.datatypes import types as t
from bowstring.errors import InvalidArgumentError, TypeMismatchError
from bowstring.kernels import array_statistics
from bowstring.kernels.array_statistics import decode_array, get_decoded_type, is_orderable
from bowstring.kernels.cast import cast
from bowstring.kernels.cast_numeric import to_numeric_slots
from bowstring.kernels.nulls import drop_null
from bowstring.kernels.value_field import extract_value_field
from bowstring.kernels.wide_integers import sum_slots
from bowstring.layouts.base import ArrayData, Values
from bowstring.layouts.factorize import factorize
from bowstring.layouts.registry import layout_of
from bowstring.layouts.struct_ import StructLayout

CountMode: TypeAlias = Literal["only_valid", "only_null", "all"]


def sum(array: Any, *, skip_nulls: bool = True, min_count: int = 1) -> Scalar:  # noqa: A001 -- pyarrow's name
    """Return the sum of numbers or booleans: int64, uint64 or float64, or a decimal of the greatest precision.

    Integers wrap around on overflow. Raises `TypeMismatchError` for other types.

    >>> import bowstring as bs
    >>> bs.compute.sum(bs.array([1, None, 3])).as_py()
    4
    """
    chunks = as_chunks(array)
    decoded = _get_numeric_type("sum", chunks[0])
    values = _select_values(chunks, skip_nulls, min_count)
    if isinstance(decoded, t.Decimal):
        type_: t.DataType = t.Decimal(t.MAX_DECIMAL_DIGITS[decoded.bit_width], decoded.scale, decoded.bit_width)
        return _decimal_scalar(values, type_, lambda total, _: total)
    type_ = _get_sum_type(decoded)
    return _scalar(values, type_, partial(_reduce, np.add, np.dtype(str(type_))))


def product(array: Any, *, skip_nulls: bool = True, min_count: int = 1) -> Scalar:
    """Return the product of numbers or booleans, but not decimals; as `sum`.

    >>> bs.compute.product([2, None, 4])
    <bowstring.Scalar int64: 8>
    """
    chunks = as_chunks(array)
    type_ = _get_sum_type(_get_numeric_type("product", chunks[0], t.Int, t.FloatingPoint, t.Bool, t.Null))
    values = _select_values(chunks, skip_nulls, min_count)
    return _scalar(values, type_, partial(_reduce, np.multiply, np.dtype(str(type_))))


def mean(array: Any, *, skip_nulls: bool = True, min_count: int = 1) -> Scalar:
    """Return the mean of numbers or booleans as float64; of decimals as a decimal of their type, rounded half up.

    >>> bs.compute.mean([1, None, 4])
    <bowstring.Scalar double: 2.5>
    """
    chunks = as_chunks(array)
    decoded = _get_numeric_type("mean", chunks[0])
    values = _select_values(chunks, skip_nulls, min_count)
    if isinstance(decoded, t.Decimal):
        has_values = values is not None and builtins.any(map(len, values))
        return _decimal_scalar(values if has_values else None, decoded, _divide_and_round)
    return _scalar(values, t.float64(), _compute_mean)


def variance(array: Any, *, ddof: int = 0, skip_nulls: bool = True, min_count: int = 0) -> Scalar:
    """Return the variance of numbers as float64: the sum of squared deviations divided by their number minus `ddof`.

    Null if there are no more than `ddof` values.

    >>> bs.compute.variance([1, 3])
    <bowstring.Scalar double: 1.0>
    """
    chunks = as_chunks(array)
    decoded = _get_numeric_type("variance", chunks[0])
    values = _select_values(chunks, skip_nulls, builtins.max(min_count, ddof + 1, 1))
    if values is not None and isinstance(decoded, t.Decimal):
        values = [cast(chunk, t.float64()) for chunk in values]
    return _scalar(values, t.float64(), partial(_compute_variance, ddof))


def stddev(array: Any, *, ddof: int = 0, skip_nulls: bool = True, min_count: int = 0) -> Scalar:
    """Return the standard deviation of numbers as float64: the root of `variance`.

    >>> bs.compute.stddev([1, 3])
    <bowstring.Scalar double: 1.0>
    """
    square = variance(array, ddof=ddof, skip_nulls=skip_nulls, min_count=min_count)
    return Scalar(_create_array(t.float64(), None if not square.is_valid else float(np.sqrt(square.as_py()))))


def min_max(array: Any, *, skip_nulls: bool = True, min_count: int = 1) -> Scalar:
    """Return a struct of the fields `min` and `max`: the least and greatest value. NaN is skipped, unless it is alone.

    Raises `TypeMismatchError` for values without an order.

    >>> import bowstring as bs
    >>> bs.compute.min_max(["b", None, "a"]).as_py()
    {'min': 'a', 'max': 'b'}
    """
    chunks = [extract_value_field(chunk) for chunk in as_chunks(array)]
    type_ = get_decoded_type(chunks[0].type)
    layout = layout_of(type_)
    if not isinstance(type_, t.Null) and not is_orderable(layout):
        raise TypeMismatchError(f"min_max: values of {chunks[0].type} have no order")
    values = _select_values(chunks, skip_nulls, min_count) or []
    pairs = [array_statistics.min_max(chunk, truncate=False) for chunk in values]
    extremes = [bound for pair in pairs if pair is not None for bound in pair]
    bounds = array_statistics.min_max(layout.concat(extremes), truncate=False) if extremes else None
    if bounds is None:  # no values, or nothing but NaN
        bound = next((chunk.slice(0, 1) for chunk in values if chunk.length), layout.nulls(1))
        bounds = bound, bound
    struct_layout = layout_of(t.struct([("min", type_), ("max", type_)]))
    assert isinstance(struct_layout, StructLayout)
    return Scalar(Array.from_array_data(struct_layout.create_array(bounds, 1)))


def min(array: Any, *, skip_nulls: bool = True, min_count: int = 1) -> Scalar:  # noqa: A001 -- pyarrow's name
    """Return the least value; as `min_max`.

    >>> bs.compute.min([1, None, 3])
    <bowstring.Scalar int64: 1>
    """
    return Scalar(min_max(array, skip_nulls=skip_nulls, min_count=min_count).to_array().field("min"))


def max(array: Any, *, skip_nulls: bool = True, min_count: int = 1) -> Scalar:  # noqa: A001 -- pyarrow's name
    """Return the greatest value; as `min_max`.

    >>> bs.compute.max([1, None, 3])
    <bowstring.Scalar int64: 3>
    """
    return Scalar(min_max(array, skip_nulls=skip_nulls, min_count=min_count).to_array().field("max"))


def any(array: Any, *, skip_nulls: bool = True, min_count: int = 1) -> Scalar:  # noqa: A001 -- pyarrow's name
    """Return whether a boolean is true. With `skip_nulls=False` the result is null if that depends on a null.

    >>> bs.compute.any([False, None, True])
    <bowstring.Scalar bool: true>
    """
    return _find_boolean("any", True, array, skip_nulls, min_count)


def all(array: Any, *, skip_nulls: bool = True, min_count: int = 1) -> Scalar:  # noqa: A001 -- pyarrow's name
    """Return whether all booleans are true; as `any`.

    >>> bs.compute.all([True, None, True])
    <bowstring.Scalar bool: true>
    """
    return _find_boolean("all", False, array, skip_nulls, min_count)


def count(array: Any, mode: CountMode = "only_valid") -> Scalar:
    """Return the number of values: those that are valid, "only_null" those that are not, or "all".

    >>> bs.compute.count([1, None, 3]), bs.compute.count([1, None, 3], mode="only_null")
    (<bowstring.Scalar int64: 2>, <bowstring.Scalar int64: 1>)
    """
    chunks = as_chunks(array)
    _check_mode("count", mode)
    length = builtins.sum(chunk.length for chunk in chunks)
    num_valid = builtins.sum(map(_count_valid, chunks))
    number = {"only_valid": num_valid, "only_null": length - num_valid, "all": length}[mode]
    return Scalar(_create_array(t.int64(), number))


def count_distinct(array: Any, mode: CountMode = "only_valid") -> Scalar:
    """Return the number of distinct values; nulls, if they count by the mode, are one. All NaN are one, too.

    >>> import bowstring as bs
    >>> bs.compute.count_distinct([1, 1, None], mode="all").as_py()
    2
    """
    column = as_column(array)
    _check_mode("count_distinct", mode)
    has_nulls = _count_valid(column) < column.length
    number = has_nulls * (mode != "only_valid")
    if mode != "only_null":
        number += len(factorize(decode_array(drop_null(column)))[1])
    return Scalar(_create_array(t.int64(), int(number)))


def value_counts(array: Any) -> Array:
    """Return an array of structs of the distinct `values`, in order of first appearance, and their `counts`.

    All nulls are one value, and so are all NaN.

    >>> import bowstring as bs
    >>> bs.compute.value_counts(["x", None, "x"]).to_pylist()
    [{'values': 'x', 'counts': 2}, {'values': None, 'counts': 1}]
    """
    column = as_column(array)
    codes, firsts = factorize(column)
    layout = layout_of(t.struct([("values", column.type), ("counts", t.int64())]))
    assert isinstance(layout, StructLayout)
    counts = layout.children[1].from_numpy(np.bincount(codes, minlength=len(firsts)).astype(np.int64))
    return Array.from_array_data(layout.create_array([column.layout.take(column, firsts), counts], len(firsts)))


def _check_mode(function: str, mode: str) -> None:
    if mode not in get_args(CountMode):
        raise InvalidArgumentError(f"{function}: expected one of {', '.join(get_args(CountMode))}, found {mode!r}")


def _count_valid(column: ArrayData) -> int:
    valid = column.layout.logical_validity_mask(column)
    return column.length if valid is None else int(np.count_nonzero(valid))


def _get_numeric_type(function: str, column: ArrayData, *families: type[t.DataType]) -> t.DataType:
    decoded = get_decoded_type(column.type)
    if not isinstance(decoded, families or (t.Int, t.FloatingPoint, t.Bool, t.Decimal, t.Null)):
        raise TypeMismatchError(f"{function}: expected numbers or booleans, found {column.type}")
    return decoded


def _get_sum_type(type_: t.DataType) -> t.DataType:
    if isinstance(type_, t.FloatingPoint):
        return t.float64()
    is_unsigned = isinstance(type_, t.Bool) or (isinstance(type_, t.Int) and not type_.is_signed)
    return t.uint64() if is_unsigned else t.int64()


def _select_values(chunks: list[ArrayData], skip_nulls: bool, min_count: int) -> list[ArrayData] | None:
    """Return the plain valid values of chunks; None if nulls are not skipped or there are fewer than `min_count`."""
    num_valid = builtins.sum(map(_count_valid, chunks))
    if num_valid < min_count or (not skip_nulls and num_valid < builtins.sum(chunk.length for chunk in chunks)):
        return None
    return [decode_array(drop_null(chunk)) for chunk in chunks]


def _create_array(type_: t.DataType, value: Any) -> Array:
    return Array.from_array_data(layout_of(type_).from_pylist([value]))


def _scalar(
    chunks: list[ArrayData] | None, type_: t.DataType, function: Callable[[list[Values]], np.generic]
) -> Scalar:
    """Return the value of a function of the slots of numbers or booleans; null without values."""
    if chunks is None:
        return Scalar(_create_array(type_, None))
    slots = [to_numeric_slots(chunk) for chunk in chunks if not isinstance(chunk.type, t.Null)]
    with np.errstate(all="ignore"):
        return Scalar(_create_array(type_, function(slots).item()))


def _decimal_scalar(chunks: list[ArrayData] | None, type_: t.DataType, function: Callable[[int, int], int]) -> Scalar:
    """As `_scalar`, for a function of the sum of unscaled integers and their number."""
    if chunks is None:
        return Scalar(_create_array(type_, None))
    total = builtins.sum(sum_slots(chunk.buffer_values(1)) for chunk in chunks)
    integer = function(total, builtins.sum(chunk.length for chunk in chunks))
    assert isinstance(type_, t.Decimal)
    layout = layout_of(type_)
    with localcontext(prec=t.MAX_DECIMAL_DIGITS[256]):
        return Scalar(Array.from_array_data(layout.from_pylist([Decimal(integer).scaleb(-type_.scale)])))


def _reduce(ufunc: np.ufunc, dtype: np.dtype[Any], parts: list[Values]) -> Any:
    return ufunc.reduce(np.array([ufunc.reduce(part, dtype=dtype) for part in parts], dtype), dtype=dtype)


def _compute_mean(parts: list[Values]) -> Any:
    return np.float64(builtins.sum(part.sum(dtype=np.float64) for part in parts)) / builtins.sum(map(len, parts))


def _compute_variance(ddof: int, parts: list[Values]) -> Any:
    mean_value = _compute_mean(parts)
    squares = builtins.sum(((part.astype(np.float64) - mean_value) ** 2).sum() for part in parts)
    return squares / (builtins.sum(map(len, parts)) - ddof)


def _divide_and_round(total: int, length: int) -> int:
    """Return the quotient rounded half away from zero."""
    quotient, remainder = divmod(builtins.abs(total), length)
    quotient += 2 * remainder >= length
    return quotient if total >= 0 else -quotient


def _find_boolean(name: str, decisive: bool, array: Any, skip_nulls: bool, min_count: int) -> Scalar:
    """Return `decisive` if a boolean has this value, else its opposite."""
    column = as_column(array)
    booleans, num_valid = unpack_booleans(name, column), _count_valid(column)
    valid = column.layout.logical_validity_mask(column)
    is_decided = bool(((booleans == decisive) if valid is None else (booleans == decisive) & valid).any())
    depends_on_null = not skip_nulls and num_valid < column.length and not is_decided
    if depends_on_null or num_valid < min_count:
        return Scalar(_create_array(t.bool_(), None))
    return Scalar(_create_array(t.bool_(), is_decided == decisive))

"""Filters of rows, such as `[("a", ">", 5), ("b", "in", ["x", "y"])]`, in the form of pyarrow.parquet.

A list of tuples selects the rows for which all of them are true, a list of such lists those for which one of them is
(«disjunctive normal form»). A tuple has a column's name, an operator and a value: `=` or `==`, `!=`, `<`, `>`, `<=`,
`>=`, `in` and `not in` with a list of values; or a name and `is null` or `is not null`. A comparison with null is not
true, for `!=` and `not in` as well. As in pyarrow, NaN differs from every value, and no value is less or greater than
it, but `in` finds NaN if the list has it, and then `not in` excludes it.

Values are compared exactly: an integer column with `2.5`, or a column of float32 with the 64 bits of `0.1`. Dictionary-
encoded, run-end encoded and extension arrays compare by their values.
"""

from __future__ import annotations

import datetime as dt
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from typing import Any, Literal, TypeAlias, TypeGuard, get_args

import numpy as np

from bowstring.datatypes import types as t
from bowstring.datatypes.canonical.bool8 import Bool8Type
from bowstring.datatypes.extension import ExtensionType
from bowstring.datatypes.field import Field
from bowstring.datatypes.schema import Schema
from bowstring.errors import InvalidArgumentError, NotFoundError, TypeMismatchError, add_location
from bowstring.kernels.array_statistics import decode_array, get_decoded_type, is_orderable
from bowstring.kernels.cast_temporal import NANOSECONDS
from bowstring.kernels.comparison import COMPARISONS, compare, get_order_keys
from bowstring.kernels.nulls import extract_value_field
from bowstring.layouts.base import ArrayData, check_expanded_array
from bowstring.layouts.boolean import BooleanLayout
from bowstring.layouts.construction import to_python
from bowstring.layouts.dictionary import DictionaryLayout
from bowstring.layouts.factorize import factorize, scatter_valid
from bowstring.layouts.primitive import PrimitiveLayout
from bowstring.layouts.registry import layout_of, primitive_layout
from bowstring.layouts.value_codecs.decimals import DecimalCodec
from bowstring.memory.bitmap import Mask

Operator: TypeAlias = Literal["==", "!=", "<", ">", "<=", ">=", "in", "not in", "is null", "is not null"]
FiltersLike: TypeAlias = Sequence[tuple[Any, ...] | Sequence[tuple[Any, ...]]]
"""A list of tuples, all of which are true, or a list of such lists, one of which is."""

_INEXACT_OPERATORS: dict[str, Operator] = {"<": "<=", "<=": "<=", ">": ">", ">=": ">"}
"""The comparison with the next smaller value of the column's type, if it has no equal one."""


@dataclass(frozen=True, slots=True)
class Predicate:
    """A condition for one column."""

    column_index: int
    operator: Operator
    values: ArrayData | None = None
    """One value, or the values of a list, of the column's type without encoding and extension; None for a test for
    null."""

    def evaluate(self, column: ArrayData) -> Mask:
        """Return which slots of the column match, shape (length,). Raises `InvalidDataError` for a malformed column."""
        check_expanded_array(column)
        if self.values is None:
            valid = column.layout.logical_validity_mask(column)
            if valid is None:
                valid = np.ones(column.length, np.bool_)
            return valid if self.operator == "is not null" else ~valid
        array = extract_value_field(column).storage
        valid = array.layout.logical_validity_mask(array)
        if isinstance(array.layout, DictionaryLayout):
            mask = self._evaluate_dictionary(array)
        elif valid is None or isinstance(array.layout, PrimitiveLayout | BooleanLayout):
            mask = self.evaluate_plain(decode_array(array))
        else:
            mask = self.evaluate_plain(decode_array(array.layout.take(array, np.flatnonzero(valid))))
            mask = scatter_valid(mask, valid)
        return mask if valid is None else mask & valid

    def _evaluate_dictionary(self, array: ArrayData) -> Mask:
        """As `evaluate`, where each value is compared once, however often it occurs. Null slots may match."""
        layout = array.layout
        assert isinstance(layout, DictionaryLayout)
        if array.null_count == array.length:
            return np.zeros(array.length, np.bool_)
        compact = layout.compact_dictionary(array)
        mask: Mask = self.evaluate(compact.require_dictionary())[layout.indices(compact)]
        return mask

    def evaluate_plain(self, array: ArrayData) -> Mask:
        """As `evaluate`, for an array of the type of `values`. Null slots may match."""
        assert self.values is not None
        if self.operator in COMPARISONS:
            return compare(array, self.operator, self.values)
        return _is_in(array, self.values) ^ (self.operator == "not in")


def _is_in(array: ArrayData, values: ArrayData) -> Mask:
    """Return which slots have one of the values, NaN included; slots of nulls may match."""
    keys = get_order_keys(array)
    if keys is None or len(keys) > 1:
        codes, _ = factorize(array.layout.concat([array, values]))
        return np.isin(codes[: array.length], codes[array.length :])
    members = (get_order_keys(values) or ())[0]
    mask = np.isin(keys[0], members)
    if members.dtype.kind == "f" and np.isnan(members).any():
        mask |= np.isnan(keys[0])
    return mask


@dataclass(frozen=True, slots=True)
class Filters:
    """Filters of the columns of one schema: rows match if all predicates of one of the `conjunctions` do."""

    conjunctions: tuple[tuple[Predicate, ...], ...]

    @property
    def column_indices(self) -> tuple[int, ...]:
        """The indices of the columns, ascending."""
        return tuple(sorted({each.column_index for conjunction in self.conjunctions for each in conjunction}))

    def with_column_indices(self, index_by_index: Mapping[int, int]) -> Filters:
        """Return the filters for the same columns in another order."""
        return Filters(
            tuple(
                tuple(replace(each, column_index=index_by_index[each.column_index]) for each in conjunction)
                for conjunction in self.conjunctions
            )
        )

    def combine(self, evaluate: Callable[[Predicate], Mask]) -> Mask:
        """Combine the masks of the predicates."""
        return reduce(
            operator.or_, (reduce(operator.and_, map(evaluate, predicates)) for predicates in self.conjunctions)
        )

    def evaluate(self, columns: Sequence[ArrayData]) -> Mask:
        """Return which rows match, shape (rows,). Raises `InvalidDataError` for a malformed column."""
        return self.combine(lambda predicate: predicate.evaluate(columns[predicate.column_index]))


def is_filters(value: object) -> TypeGuard[FiltersLike]:
    """Whether a value has the form of filters, and not of a mask."""
    return isinstance(value, list | tuple) and bool(value) and isinstance(value[0], list | tuple)


def parse_filters(filters: FiltersLike, schema: Schema) -> Filters:
    """Check filters of the columns of a schema, and convert their values to the columns' types.

    Raises `InvalidArgumentError` for another form, an unknown operator or null as a value, `NotFoundError` for a column
    that the schema does not have or has twice, `TypeMismatchError` for a value of another type, and for a comparison of
    values without an order. The messages have the filter.
    """
    if not isinstance(filters, list | tuple) or not filters:
        raise InvalidArgumentError(
            f'filters: expected a list of tuples, such as [("a", ">", 5)], or of such lists, found {filters!r:.100}'
        )
    is_disjunction = isinstance(filters[0], list) or (bool(filters[0]) and isinstance(filters[0][0], list | tuple))
    conjunctions = filters if is_disjunction else [filters]
    for conjunction in conjunctions:
        if not isinstance(conjunction, list | tuple) or not conjunction:
            raise InvalidArgumentError(f"filters: expected a list of tuples, found {conjunction!r:.100}")
    return Filters(tuple(tuple(_parse_predicate(each, schema) for each in group) for group in conjunctions))


def _parse_predicate(condition: object, schema: Schema) -> Predicate:
    location = f"filter {condition!r:.200}"
    if not isinstance(condition, tuple) or not 2 <= len(condition) <= 3 or not isinstance(condition[0], str):
        raise InvalidArgumentError(f'{location}: expected a name, an operator and a value, such as ("a", ">", 5)')
    name: str = condition[0]
    symbol: Any = "==" if condition[1] == "=" else condition[1]
    if symbol not in get_args(Operator):
        raise InvalidArgumentError(f"{location}: expected one of the operators {', '.join(get_args(Operator))}")
    if (len(condition) == 2) != (symbol in ("is null", "is not null")):
        number = "no value" if len(condition) == 3 else "a value"
        raise InvalidArgumentError(f"{location}: expected {number} after {symbol!r}")
    try:
        index = schema.index(name)
    except NotFoundError as error:
        raise NotFoundError(f"{location}: {error}") from None
    if len(condition) == 2:
        return Predicate(index, symbol)
    try:
        predicate = _create_predicate(index, schema.field(index), symbol, condition[2])
    except InvalidArgumentError as error:
        raise add_location(error, location) from None
    return _compare_bytes_as_booleans(predicate) if _is_bool8(schema.field(index).type) else predicate


def _create_predicate(index: int, field: Field, symbol: Operator, value: object) -> Predicate:
    layout = layout_of(_get_compared_type(field.type))
    if not is_orderable(layout):
        raise TypeMismatchError(f"values of {field.type} have no order: only 'is null' and 'is not null' are supported")
    if symbol in ("in", "not in"):
        value = to_python(value)
        if isinstance(value, str | bytes) or not isinstance(value, Iterable):
            raise InvalidArgumentError(f"expected a list of values after {symbol!r}")
        # A value that the type can't represent equals none of the column's.
        positions = [_find_filter_value(field.type, each) for each in value]
        equal = [position.value for position in positions if position.is_exact and position.value is not None]
        return Predicate(index, symbol, layout.concat(equal) if equal else layout.from_pylist([]))
    position = _find_filter_value(field.type, value)
    if position.is_exact:
        return Predicate(index, symbol, position.value)
    if symbol in ("==", "!=") or position.value is None:
        is_true = symbol in ("!=", ">", ">=")
        return Predicate(index, "is not null") if is_true else Predicate(index, "in", layout.from_pylist([]))
    return Predicate(index, _INEXACT_OPERATORS[symbol], position.value)


def _is_bool8(type_: t.DataType) -> bool:
    while isinstance(type_, t.Dictionary | t.RunEndEncoded):
        type_ = type_.value_type
    return isinstance(type_, Bool8Type)


def _compare_bytes_as_booleans(predicate: Predicate) -> Predicate:
    """Return a predicate that matches all bytes but 0, which are true, or none of them."""
    if predicate.values is None:
        return predicate
    layout = predicate.values.layout
    matches_false, matches_true = predicate.evaluate_plain(layout.from_pylist([0, 1])).tolist()
    if matches_false and matches_true:
        return Predicate(predicate.column_index, "is not null")
    values = [0] if matches_false or matches_true else []
    return Predicate(predicate.column_index, "not in" if matches_true else "in", layout.from_pylist(values))


def _get_compared_type(type_: t.DataType) -> t.DataType:
    """Return the type of the values that are compared."""
    if isinstance(type_, ExtensionType) and type_.VALUE_FIELD is not None:
        type_ = type_.storage_type.fields[type_.VALUE_FIELD].type
    return get_decoded_type(type_)


# Values of filters


@dataclass(frozen=True, slots=True)
class _FilterValue:
    """Where the value of a filter is in the order of a column's values."""

    value: ArrayData | None
    """The equal value of the column's type, or if there is none, the next smaller one, if any."""
    is_exact: bool = True


def _find_filter_value(type_: t.DataType, value: Any) -> _FilterValue:
    """Return the position of a value in the order of a type. Raises `TypeMismatchError` if they can't be compared."""
    value = to_python(value)
    if value is None:
        raise InvalidArgumentError("a comparison with null is never true: use 'is null' or 'is not null'")
    while isinstance(type_, t.Dictionary | t.RunEndEncoded):
        type_ = type_.value_type
    compared_type = _get_compared_type(type_)
    if isinstance(type_, ExtensionType) and type_.VALUE_FIELD is None:
        return _FilterValue(decode_array(layout_of(type_).from_pylist([value])))
    number = to_python_number(value)
    if isinstance(number, int | float | Decimal | Fraction) and not isinstance(number, bool):
        if isinstance(compared_type, t.FloatingPoint):
            return _find_float(compared_type, number)
        if isinstance(compared_type, t.Int | t.Decimal):
            return _find_number(compared_type, number)
    if isinstance(compared_type, t.BaseTemporal):
        return _find_time(compared_type, value)
    return _FilterValue(layout_of(compared_type).from_pylist([value]))


def to_python_number(value: Any) -> Any:
    """Return a number of NumPy as one of Python; any other value unchanged."""
    # NumPy derives durations from integers, as which nanoseconds would lose their unit.
    return value.item() if isinstance(value, np.number) and not isinstance(value, np.timedelta64) else value


def _find_float(type_: t.FloatingPoint, number: float | Decimal | Fraction) -> _FilterValue:
    layout = primitive_layout(type_)
    try:
        rounded = float(number)
    except OverflowError:  # an integer or a fraction
        rounded = math.inf if number > 0 else -math.inf
    except ValueError:  # a decimal that is a signaling NaN
        rounded = math.nan
    with np.errstate(over="ignore"):
        slot = layout.dtype.type(rounded)
    try:
        exact = Fraction(number)
    except (OverflowError, ValueError):  # an infinity, or NaN
        return _FilterValue(layout.create_array(np.array([slot])))
    # In fractions, which are exact: comparing a float32 with the 64 bits of 0.1 in floats would round one of them.
    is_greater = slot > 0 if np.isinf(slot) else Fraction(float(slot)) > exact
    is_exact = not np.isinf(slot) and Fraction(float(slot)) == exact
    if is_greater:
        # The next smaller value of the type, with which `<=` and `>` give what `<` and `>=` would with the exact
        # number.
        slot = np.nextafter(slot, layout.dtype.type(-np.inf))
    return _FilterValue(layout.create_array(np.array([slot])), is_exact)


def _find_number(type_: t.Int | t.Decimal, number: float | Decimal | Fraction) -> _FilterValue:
    """As `_find_filter_value`, for a number and integers; decimals are integers in units of the last digit."""
    if isinstance(type_, t.Decimal):
        scale, high = Fraction(10) ** type_.scale, 10**type_.precision - 1
        low = -high
    else:
        limits = np.iinfo(primitive_layout(type_).dtype)
        scale, low, high = Fraction(1), int(limits.min), int(limits.max)
    try:
        exact = Fraction(number) * scale
    except OverflowError:  # an infinity: beyond all slots
        exact = Fraction(high + 1 if number > 0 else low - 1)
    except ValueError:
        raise TypeMismatchError(f"NaN can't be compared with {type_}") from None
    return _find_slot(type_, exact, low, high)


def _find_slot(type_: t.DataType, exact: Fraction, low: int, high: int) -> _FilterValue:
    """Return the position of a number among the integers from `low` to `high`, which are the slots of a type."""
    layout = primitive_layout(type_)
    slot = min(math.floor(exact), high)
    if slot < low:
        return _FilterValue(None, is_exact=False)
    codec = layout.codec
    slots = codec.encode_unscaled([slot]) if isinstance(codec, DecimalCodec) else np.array([slot], layout.dtype)
    return _FilterValue(layout.create_array(slots), slot == exact)


def _find_time(type_: Any, value: Any) -> _FilterValue:
    """As `_find_filter_value`, for values that may be finer than the unit of a temporal type, or out of its range."""
    finer_class = t.Timestamp if isinstance(type_, t.Date) else type(type_)
    limits = np.iinfo(primitive_layout(type_).dtype)
    first_error: TypeMismatchError | None = None
    # Python's times have microseconds, NumPy's and pandas' may have nanoseconds. As a date, a datetime is its midnight.
    is_finer = isinstance(type_, t.Date) and isinstance(value, dt.datetime)
    for each in (*(() if is_finer else (type_,)), finer_class("us"), finer_class("ns")):
        try:
            (units,) = layout_of(each).from_pylist([value]).buffer_values(1).tolist()
        except TypeMismatchError as error:
            first_error = first_error or error
            continue
        exact = Fraction(units * NANOSECONDS[each.unit], NANOSECONDS[type_.unit])
        return _find_slot(type_, exact, int(limits.min), int(limits.max))
    assert first_error is not None
    raise first_error

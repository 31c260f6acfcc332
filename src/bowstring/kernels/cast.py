"""Casting arrays to other types, exactly or with `safe=False` approximately.

A table lists the families of types and the functions that cast between them. Encoded arrays are decoded first, nested
arrays are cast child by child. A safe cast raises `TypeMismatchError` if a value overflows, would be truncated or can't
be parsed. Rounding to the nearest float or decimal is allowed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from bowstring.datatypes import types as t
from bowstring.datatypes.conversion import TypeLike, as_type
from bowstring.datatypes.extension import ExtensionType
from bowstring.errors import InvalidDataError, LimitError, TypeMismatchError, prefix_errors
from bowstring.kernels import cast_numeric, cast_string, cast_temporal
from bowstring.kernels.encode import dictionary_encode, run_end_decode, run_end_encode
from bowstring.kernels.ml_vectors import is_matrix, is_vector, to_lists
from bowstring.kernels.nulls import check_no_nulls, extract_value_field, insert_nulls, insert_nulls_at
from bowstring.layouts.base import ArrayData, Layout, check_expanded_array, find_first_true
from bowstring.layouts.dictionary import DictionaryLayout, decode_dictionary
from bowstring.layouts.fixed_size_list import FixedSizeListLayout
from bowstring.layouts.gather import take_ranges
from bowstring.layouts.list_ import ListLayout
from bowstring.layouts.list_view import ListViewLayout
from bowstring.layouts.registry import layout_of, layout_of_class
from bowstring.layouts.struct_ import StructLayout
from bowstring.layouts.union import UnionLayout
from bowstring.layouts.validation import validate

Caster: TypeAlias = Callable[[ArrayData, Any, bool], ArrayData]


def cast(array: ArrayData, target_type: TypeLike, safe: bool = True) -> ArrayData:
    """Cast an array to `target_type`: a Bowstring type, a type of another library, or the name of a type.

    Returns the array itself if it has that type. Raises `TypeMismatchError` if the cast is not supported, or is safe
    and a value can't be converted; `InvalidArgumentError` if the target is not a data type.
    """
    source = array.type
    target_type = as_type(target_type, "cast")
    if source == target_type:
        return replace_fields(array, layout_of(target_type))
    check_expanded_array(array)
    try:
        for source_types, target_types, convert in _CASTS:
            if isinstance(source, source_types) and isinstance(target_type, target_types):
                return convert(array, target_type, safe)
        return _cast_children(array, target_type, safe)
    except LimitError:
        raise
    except InvalidDataError as error:
        validate(array, full=True)  # raises if the array itself is invalid
        raise TypeMismatchError(f"can't cast {source} to {target_type}: {error}") from None


def _cast_children(array: ArrayData, target: t.DataType, safe: bool) -> ArrayData:
    source = array.type
    fits = type(source) is type(target) and source.num_fields == target.num_fields > 0
    if not fits or any(getattr(source, name, None) != getattr(target, name, None) for name in ("mode", "type_ids")):
        raise TypeMismatchError(f"can't cast {source} to {target}")
    compact = _drop_null_and_compact(array)
    children = []
    for child, source_field, target_field in zip(compact.children, source.fields, target.fields, strict=True):
        with prefix_errors(f"field {source_field.name!r}"):
            if isinstance(target, t.Struct) and source_field.name != target_field.name:
                raise TypeMismatchError(f"has the name {target_field.name!r} in {target}")
            has_same_names = not isinstance(target, t.Map)  # the field names in a map are not significant
            source_child = (
                child
                if has_same_names
                else child.with_layout(layout_of(_rename_struct_fields(source_field.type, target_field.type)))
            )
            children.append(cast(source_child, target_field.type, safe))
            if not (isinstance(target, t.Union) or target_field.nullable):
                check_no_nulls(children[-1])
    return insert_nulls(
        ArrayData(layout_of(target), compact.length, compact.own_buffers, tuple(children), None, compact.null_count),
        array,
    )


def _rename_struct_fields(struct: t.DataType, target: t.DataType) -> t.Struct:
    pairs = zip(struct.fields, target.fields, strict=True)
    return t.Struct(tuple(field.with_name(other.name) for field, other in pairs))


def _drop_null_and_compact(array: ArrayData) -> ArrayData:
    """Select the valid slots, without children's values that are not referenced."""
    mask = array.validity_mask()
    if mask is None and isinstance(array.layout, (StructLayout, ListLayout, FixedSizeListLayout)):
        return array.compact()
    return array.layout.take(array, np.arange(array.length) if mask is None else np.flatnonzero(mask))


def replace_fields(array: ArrayData, layout: Layout) -> ArrayData:
    """Return an array with the field names and nullability of another layout of its kind at every depth, without
    copying.
    """
    if array.layout is layout:
        return array
    children = tuple(map(replace_fields, array.children, layout.children))
    dictionary = array.dictionary
    if dictionary is not None and layout.dictionary is not None:
        dictionary = replace_fields(dictionary, layout.dictionary)
    return ArrayData(
        layout, array.length, array.own_buffers, children, dictionary, array.known_null_count, array.offset
    )


def _cast_lists(array: ArrayData, target: Any, safe: bool) -> ArrayData:
    """Cast between list types; to fixed-size lists if all lists have that size."""
    compact = _drop_null_and_compact(array)
    starts, sizes = compact.layout.offsets_and_sizes(compact)  # type: ignore[attr-defined]
    (child,) = compact.children
    ends = np.cumsum(sizes)
    if sizes.sum() != child.length or (starts != ends - sizes).any():
        child = take_ranges(child, starts, sizes)
    with prefix_errors(f"field {array.type.fields[0].name!r}"):
        elements = cast(child, target.value_type, safe)
        if not target.value_field.nullable:
            check_no_nulls(elements)
    layout = layout_of(target)
    if isinstance(layout, (ListLayout, ListViewLayout)):
        return insert_nulls(layout.create_array(sizes, elements, None), array)
    if (sizes != target.list_size).any():
        index, mask = find_first_true(sizes != target.list_size), array.validity_mask()
        slot = index if mask is None else np.flatnonzero(mask)[index]
        raise TypeMismatchError(f"value {slot}: expected {target.list_size} elements ({target}), found {sizes[index]}")
    return insert_nulls(ArrayData(layout, compact.length, (None,), (elements,)), array)


def _cast_vectors(array: ArrayData, target: t.BaseList, safe: bool) -> ArrayData:
    """Cast ML vectors to lists of their values, and matrices to lists of rows."""
    if not is_vector(array.type) and not is_matrix(array.type):
        return _cast_children(array, target, safe)  # raises
    value_type: t.DataType = target
    while isinstance(value_type, t.BaseList):
        value_type = value_type.value_type
    if safe or not isinstance(value_type, t.FloatingPoint):
        value_type = t.FloatingPoint(64)  # `to_lists` makes values beyond float32 infinite, a safe cast raises an error
    return cast(to_lists(array, value_type), target, safe)


def _cast_union_to_struct(array: ArrayData, target: t.Struct, safe: bool) -> ArrayData:
    """Cast a union to a struct with a field for each child, which is null in the slots of the other children."""
    assert isinstance(array.layout, UnionLayout)
    names = [field.name for field in target.fields]
    if array.layout.names != names:
        raise TypeMismatchError(f"can't cast {array.type} to {target}: expected the fields {array.layout.names}")
    columns = []
    for (slots, child), field in zip(array.layout.split_by_child(array), target.fields, strict=True):
        with prefix_errors(f"child {field.name!r}"):
            values = cast(child, field.type, safe)
            is_active = np.zeros(array.length, np.bool_)
            is_active[slots] = True
            columns.append(insert_nulls_at(values, ~is_active))
            if not field.nullable:
                check_no_nulls(columns[-1])
    layout = layout_of_class(target, StructLayout)
    return layout.create_array(columns, array.length)


def _cast_from_dictionary(array: ArrayData, target: t.DataType, safe: bool) -> ArrayData:
    """Cast each referenced dictionary value once."""
    layout = array.layout
    assert isinstance(layout, DictionaryLayout)
    if isinstance(target, t.Dictionary):
        return _cast_between_dictionaries(array, target, safe)
    compact = layout.compact_dictionary(array)
    values = _cast_dictionary_values(compact, target, safe)
    dictionary_layout = layout_of_class(t.Dictionary(layout.index_layout.type, target), DictionaryLayout)  # type: ignore[arg-type]
    return decode_dictionary(dictionary_layout.create_array(compact, values))


def _cast_between_dictionaries(array: ArrayData, target: t.Dictionary, safe: bool) -> ArrayData:
    """Cast dictionary values and indices separately, which preserves the order of the values.

    Unreferenced values are dropped if values have to be cast or are too many for the indices.
    """
    source, layout = array.layout, layout_of_class(target, DictionaryLayout)
    assert isinstance(source, DictionaryLayout)
    max_index = np.iinfo(layout.index_layout.dtype).max
    keeps_values = (
        array.dictionary is not None and source.dictionary is layout.dictionary and len(array.dictionary) <= max_index
    )
    compact = array if keeps_values else source.compact_dictionary(array)
    values, indices = _cast_dictionary_values(compact, target.value_type, safe), source.indices(compact)
    return layout.create_from_int64_indices(indices, compact.validity_mask(), values)


def _cast_dictionary_values(array: ArrayData, target: t.DataType, safe: bool) -> ArrayData:
    with prefix_errors("dictionary"):
        return cast(array.require_dictionary(), target, safe)


def _cast_from_extension(array: ArrayData, target: t.DataType, safe: bool) -> ArrayData:
    values = extract_value_field(array)
    return cast(values if type(values.type) is type(target) else array.storage, target, safe)


def _cast_to_extension(array: ArrayData, target: ExtensionType, safe: bool) -> ArrayData:
    array = cast(array, target.storage_type, safe).with_layout(layout_of(target))
    validate(array, full=True)
    return array


def _cast_to_dictionary(array: ArrayData, target: t.Dictionary, safe: bool) -> ArrayData:
    values = cast(array, target.value_type, safe)
    return dictionary_encode(values, target.index_type, allow_nested=True).with_layout(layout_of(target))


def _cast_to_run_end_encoded(array: ArrayData, target: t.RunEndEncoded, safe: bool) -> ArrayData:
    values = cast(array, target.value_type, safe)
    return run_end_encode(values, target.run_end_type, allow_nested=True).with_layout(layout_of(target))


_NUMBERS = (t.Int, t.FloatingPoint, t.Bool)
_TEXTUAL = (*_NUMBERS, t.Decimal, t.Date, t.Time, t.Timestamp)
_DATES = (t.Date, t.Timestamp)
_BYTES = (t.BaseString, t.BaseBinary)

_Types: TypeAlias = type[t.DataType] | tuple[type[t.DataType], ...]
_CASTS: tuple[tuple[_Types, _Types, Caster], ...] = (
    # Types that wrap another type
    (t.Null, t.DataType, lambda array, target, _: layout_of(target).nulls(array.length)),
    (ExtensionType, t.DataType, _cast_from_extension),
    (t.Dictionary, t.DataType, _cast_from_dictionary),
    (t.RunEndEncoded, t.DataType, lambda array, target, safe: cast(run_end_decode(array), target, safe)),
    (t.DataType, ExtensionType, _cast_to_extension),
    (t.DataType, t.Dictionary, _cast_to_dictionary),
    (t.DataType, t.RunEndEncoded, _cast_to_run_end_encoded),
    # Others
    (_NUMBERS, _NUMBERS, cast_numeric.cast_numbers),
    (_NUMBERS, t.Decimal, cast_numeric.cast_to_decimal),
    (t.Decimal, _NUMBERS, cast_numeric.cast_from_decimal),
    (t.Decimal, t.Decimal, cast_numeric.cast_decimals),
    (_BYTES, _BYTES, cast_string.cast_strings_and_bytes),
    (_TEXTUAL, t.BaseString, cast_string.format_as_strings),
    (t.BaseString, _TEXTUAL, cast_string.parse_strings),
    (_DATES, _DATES, cast_temporal.cast_dates_and_timestamps),
    (t.Time, t.Time, cast_temporal.cast_times_and_durations),
    (t.Duration, t.Duration, cast_temporal.cast_times_and_durations),
    (t.Timestamp, t.Time, cast_temporal.cast_to_time_of_day),
    (t.BaseTemporal, t.Int, cast_temporal.cast_temporal_to_integers),
    (t.Int, t.BaseTemporal, cast_temporal.cast_integers_to_temporal),
    (t.Interval, t.Int, cast_temporal.cast_months_to_integers),
    (t.Interval, t.Struct, lambda array, target, safe: cast(cast_temporal.split_intervals(array), target, safe)),
    (t.Union, t.Struct, _cast_union_to_struct),
    (t.BaseList, t.BaseList, _cast_lists),
    (t.Struct, t.BaseList, _cast_vectors),
)
"""The function that casts between two families of types; the first row that fits applies."""

"""Casting arrays to other types: exactly, or with `safe=False` as near as the target comes.

A pair of type classes leads to the function that casts between them. Encoded arrays are cast by what they stand for,
nested ones child by child. A safe cast raises `DataTypeError` where a value overflows, would lose part of itself or is
no text of the target's; rounding to a float's or decimal's nearest value is no loss.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, TypeAlias

import numpy as np

from bowstring.compute import cast_numeric, cast_string, cast_temporal
from bowstring.compute.cast_string import spread
from bowstring.compute.encode import encode_as_dictionary, encode_as_runs, run_end_decode
from bowstring.compute.nulls import check_no_nulls
from bowstring.datatypes import types as t
from bowstring.datatypes.base import TypeLike, as_type
from bowstring.datatypes.extension import ExtensionType
from bowstring.errors import DataTypeError, InvalidDataError
from bowstring.layouts.array import Array
from bowstring.layouts.base import error_context, first_true
from bowstring.layouts.dictionary import DictionaryLayout, decode_dictionary, nulls
from bowstring.layouts.fixed_size_list import FixedSizeListLayout
from bowstring.layouts.gather import check_length, take_ranges
from bowstring.layouts.list_ import ListLayout
from bowstring.layouts.list_view import ListViewLayout
from bowstring.layouts.registry import layout_of
from bowstring.layouts.struct_ import StructLayout

Cast: TypeAlias = Callable[[Array, Any, bool], Array]

_NUMBERS = (t.Int, t.FloatingPoint, t.Bool)
_TEXTS = (t.Utf8, t.LargeUtf8, t.Utf8View)
_BYTES = (t.Binary, t.LargeBinary, t.BinaryView, t.FixedSizeBinary)
_MOMENTS = (t.Date, t.Time, t.Timestamp)
_LISTS = (t.List, t.LargeList, t.ListView, t.LargeListView, t.FixedSizeList)

_CASTS: dict[tuple[type[t.DataType], type[t.DataType]], Cast] = {
    **dict.fromkeys(product(_NUMBERS, _NUMBERS), cast_numeric.numbers),
    **dict.fromkeys(product(_NUMBERS, (t.Decimal,)), cast_numeric.to_decimal),
    **dict.fromkeys(product((t.Decimal,), _NUMBERS), cast_numeric.from_decimal),
    (t.Decimal, t.Decimal): cast_numeric.rescaled,
    **dict.fromkeys(product((*_TEXTS, *_BYTES), (*_TEXTS, *_BYTES)), cast_string.strings),
    **dict.fromkeys(product((*_NUMBERS, t.Decimal, *_MOMENTS), _TEXTS), cast_string.shown),
    **dict.fromkeys(product(_TEXTS, (*_NUMBERS, t.Decimal, *_MOMENTS)), cast_string.parsed),
    **dict.fromkeys(product((t.Date, t.Timestamp), (t.Date, t.Timestamp)), cast_temporal.moments),
    **dict.fromkeys([(t.Time, t.Time), (t.Duration, t.Duration)], cast_temporal.spans),
    (t.Timestamp, t.Time): cast_temporal.time_of_day,
    **dict.fromkeys(product((*_MOMENTS, t.Duration), (t.Int,)), cast_temporal.counts),
    **dict.fromkeys(product((t.Int,), (*_MOMENTS, t.Duration)), cast_temporal.from_counts),
}


def cast(array: Array, target_type: TypeLike, safe: bool = True) -> Array:
    """The array as one of `target_type` (one of ours or of another library, or the name of one); the array itself where
    it has that type.

    Raises `DataTypeError` where there is no such cast, or where it is safe and a value does not go through it;
    `UsageError` for a target that is no data type.
    """
    source = array.type
    target_type = as_type(target_type, "cast")
    if source == target_type:
        return array
    check_length(array)
    try:
        for kind, opened in _OPENED.items():
            if isinstance(source, kind):
                return opened(array, target_type, safe)
        for kind, closed in _CLOSED.items():
            if isinstance(target_type, kind):
                return closed(array, target_type, safe)
        found = _CASTS.get((type(source), type(target_type)))
        if found is not None:
            return found(array, target_type, safe)
        if isinstance(source, _LISTS) and isinstance(target_type, _LISTS):
            return _lists(array, target_type, safe)
        return _children(array, target_type, safe)
    except InvalidDataError as error:
        raise DataTypeError(f"{source} does not become {target_type}: {error}") from None


def _children(array: Array, target: t.DataType, safe: bool) -> Array:
    source = array.type
    fits = type(source) is type(target) and source.num_fields == target.num_fields > 0
    if not fits or any(getattr(source, name, None) != getattr(target, name, None) for name in ("mode", "type_ids")):
        raise DataTypeError(f"{source} is not cast to {target}")
    own = _shown(array)
    children = []
    for child, old, new in zip(own.children, source.fields, target.fields, strict=True):
        with error_context(f"field {old.name!r}"):
            if isinstance(target, t.Struct) and old.name != new.name:
                raise DataTypeError(f"is called {new.name!r} in {target}")
            is_named_alike = not isinstance(target, t.Map)  # how a map's parts are called is no matter
            held = child if is_named_alike else child.with_layout(layout_of(_named_as(old.type, new.type)))
            children.append(cast(held, new.type, safe))
            if not (isinstance(target, t.Union) or new.nullable):
                check_no_nulls(children[-1])
    return spread(Array(layout_of(target), own.length, own.buffers, tuple(children), None, own.null_count), array)


def _named_as(entries: t.DataType, others: t.DataType) -> t.Struct:
    pairs = zip(entries.fields, others.fields, strict=True)
    return t.Struct(tuple(field.with_name(other.name) for field, other in pairs))


def _shown(array: Array) -> Array:
    """The slots that are not null, with nothing in the children that they do not show."""
    mask = array.mask()
    if mask is None and isinstance(array.layout, (StructLayout, ListLayout, FixedSizeListLayout)):
        return array.compact()
    return array.layout.take(array, np.arange(array.length) if mask is None else np.flatnonzero(mask))


def _lists(array: Array, target: Any, safe: bool) -> Array:
    """Lists of each kind as another; to lists of one size where all have it."""
    own = _shown(array)
    starts, sizes = own.layout.list_ranges(own)  # type: ignore[attr-defined]
    (child,) = own.children
    ends = np.cumsum(sizes)
    if sizes.sum() != child.length or (starts != ends - sizes).any():
        child = take_ranges(child, starts, sizes)
    with error_context(f"field {array.type.fields[0].name!r}"):
        elements = cast(child, target.value_type, safe)
        if not target.value_field.nullable:
            check_no_nulls(elements)
    layout = layout_of(target)
    if isinstance(layout, (ListLayout, ListViewLayout)):
        return spread(layout.of(sizes, elements, None), array)
    if (sizes != target.list_size).any():
        at, mask = first_true(sizes != target.list_size), array.mask()
        where = at if mask is None else np.flatnonzero(mask)[at]
        raise DataTypeError(f"value {where} has {sizes[at]} elements, {target} has {target.list_size}")
    return spread(Array(layout, own.length, (None,), (elements,)), array)


def _from_null(array: Array, target: t.DataType, safe: bool) -> Array:  # noqa: ARG001 -- as every cast
    return nulls(layout_of(target), array.length)


def _from_storage(array: Array, target: t.DataType, safe: bool) -> Array:
    return cast(array.storage, target, safe)


def _from_words(array: Array, target: t.DataType, safe: bool) -> Array:
    """Each word that is used is cast once."""
    layout = array.layout
    assert isinstance(layout, DictionaryLayout)
    if isinstance(target, t.Dictionary):
        return _recoded(array, target, safe)
    own = layout.compact_dictionary(array)
    words = _cast_words(own, target, safe)
    made = t.Dictionary(layout.index_layout.type, target)  # type: ignore[arg-type]
    return decode_dictionary(Array(layout_of(made), own.length, own.buffers, (), words, own._null_count, own.offset))


def _recoded(array: Array, target: t.Dictionary, safe: bool) -> Array:
    """Words and indices cast apart, so that the order of the words stays; unused words are left out where they change,
    or are too many for the indices.
    """
    source, layout = array.layout, layout_of(target)
    assert isinstance(source, DictionaryLayout)
    assert isinstance(layout, DictionaryLayout)
    most = np.iinfo(layout.index_layout.dtype).max
    is_kept = array.dictionary is not None and source.dictionary is layout.dictionary and len(array.dictionary) <= most
    own = array if is_kept else source.compact_dictionary(array)
    words, keys = _cast_words(own, target.value_type, safe), source.indices(own)
    if keys.size and keys.max() > most:
        raise DataTypeError(f"{words.length} distinct values are too many for indices of {target.index_type}")
    return layout.of(layout.index_layout.of(keys.astype(layout.index_layout.dtype), own.mask()), words)


def _cast_words(array: Array, target: t.DataType, safe: bool) -> Array:
    assert array.dictionary is not None
    with error_context("dictionary"):
        return cast(array.dictionary, target, safe)


def _to_storage(array: Array, target: ExtensionType, safe: bool) -> Array:
    made = cast(array, target.storage_type, safe).with_layout(layout_of(target))
    made.validate(full=True)
    return made


def _from_runs(array: Array, target: t.DataType, safe: bool) -> Array:
    return cast(run_end_decode(array), target, safe)


def _to_words(array: Array, target: t.Dictionary, safe: bool) -> Array:
    return encode_as_dictionary(cast(array, target.value_type, safe), target.index_type).with_layout(layout_of(target))


def _to_runs(array: Array, target: t.RunEndEncoded, safe: bool) -> Array:
    return encode_as_runs(cast(array, target.value_type, safe), target.run_end_type).with_layout(layout_of(target))


_OPENED: dict[type[t.DataType], Cast] = {
    t.Null: _from_null,
    ExtensionType: _from_storage,
    t.Dictionary: _from_words,
    t.RunEndEncoded: _from_runs,
}
"""Casts of what shows the values of another type."""

_CLOSED: dict[type[t.DataType], Cast] = {
    ExtensionType: _to_storage,
    t.Dictionary: _to_words,
    t.RunEndEncoded: _to_runs,
}
"""Casts to what shows the values of another type."""

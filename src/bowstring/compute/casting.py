"""Casting arrays to other types: exactly, or with `safe=False` as near as the target comes.

A pair of type classes leads to the function that casts between them. Encoded arrays are cast by what they stand for,
nested ones child by child. A safe cast raises `DataTypeError` where a value overflows, would lose part of itself or is
no text of the target's; rounding to a float's or decimal's nearest value is no loss.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, TypeAlias

from bowstring.compute import number_casts, text_casts, time_casts
from bowstring.compute.encoding import dictionary_encode, run_end_decode, run_end_encode
from bowstring.datatypes import types as t
from bowstring.datatypes.extension import ExtensionType
from bowstring.errors import DataTypeError, InvalidDataError
from bowstring.layouts.array import Array
from bowstring.layouts.base import place
from bowstring.layouts.dictionary import decode, nulls
from bowstring.layouts.gather import check_length
from bowstring.layouts.registry import layout_of

Cast: TypeAlias = Callable[[Array, Any, bool], Array]

_NUMBERS = (t.Int, t.FloatingPoint, t.Bool)
_TEXTS = (t.Utf8, t.LargeUtf8, t.Utf8View)
_BYTES = (t.Binary, t.LargeBinary, t.BinaryView, t.FixedSizeBinary)
_MOMENTS = (t.Date, t.Time, t.Timestamp)

_CASTS: dict[tuple[type[t.DataType], type[t.DataType]], Cast] = {
    **dict.fromkeys(product(_NUMBERS, _NUMBERS), number_casts.numbers),
    **dict.fromkeys(product(_NUMBERS, (t.Decimal,)), number_casts.to_decimal),
    **dict.fromkeys(product((t.Decimal,), _NUMBERS), number_casts.from_decimal),
    (t.Decimal, t.Decimal): number_casts.rescaled,
    **dict.fromkeys(product((*_TEXTS, *_BYTES), (*_TEXTS, *_BYTES)), text_casts.strings),
    **dict.fromkeys(product((*_NUMBERS, t.Decimal, *_MOMENTS), _TEXTS), text_casts.shown),
    **dict.fromkeys(product(_TEXTS, (*_NUMBERS, t.Decimal, *_MOMENTS)), text_casts.parsed),
    **dict.fromkeys(product((t.Date, t.Timestamp), (t.Date, t.Timestamp)), time_casts.moments),
    **dict.fromkeys([(t.Time, t.Time), (t.Duration, t.Duration)], time_casts.spans),
    (t.Timestamp, t.Time): time_casts.time_of_day,
    **dict.fromkeys(product((*_MOMENTS, t.Duration), (t.Int,)), time_casts.counts),
    **dict.fromkeys(product((t.Int,), (*_MOMENTS, t.Duration)), time_casts.from_counts),
}


def cast(array: Array, target_type: t.DataType, safe: bool = True) -> Array:
    """The array as one of `target_type`; the array itself where it has that type.

    Raises `DataTypeError` where there is no such cast, or where it is safe and a value does not go through it.
    """
    source = array.type
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
        return _children(array, target_type, safe)
    except InvalidDataError as error:
        raise DataTypeError(f"{source} does not become {target_type}: {error}") from None


def _children(array: Array, target: t.DataType, safe: bool) -> Array:
    source = array.type
    fits = type(source) is type(target) and source.num_fields == target.num_fields > 0
    likeness = ("list_size", "mode", "type_ids")
    if not fits or any(getattr(source, name, None) != getattr(target, name, None) for name in likeness):
        raise DataTypeError(f"{source} is not cast to {target}")
    own = array.rebased()
    children = []
    for child, old, new in zip(own.children, source.fields, target.fields, strict=True):
        with place(f"field {old.name!r}"):
            if isinstance(target, t.Struct) and old.name != new.name:
                raise DataTypeError(f"is called {new.name!r} in {target}")
            children.append(cast(child, new.type, safe))
    return Array(layout_of(target), own.length, own.buffers, tuple(children), None, own.null_count)


def _from_null(array: Array, target: t.DataType, safe: bool) -> Array:  # noqa: ARG001 -- as every cast
    return nulls(layout_of(target), array.length)


def _from_storage(array: Array, target: t.DataType, safe: bool) -> Array:
    return cast(array.storage, target, safe)


def _from_words(array: Array, target: t.DataType, safe: bool) -> Array:
    if isinstance(target, t.Dictionary) or array.dictionary is None:
        return cast(decode(array), target, safe)
    own = decode(array) if array.length < array.dictionary.length else None
    if own is not None:
        return cast(own, target, safe)
    words = cast(array.dictionary, target, safe)
    made = t.Dictionary(array.type.index_type, target)  # type: ignore[attr-defined]
    return decode(Array(layout_of(made), array.length, array.buffers, (), words, array._null_count, array.offset))


def _to_storage(array: Array, target: ExtensionType, safe: bool) -> Array:
    made = cast(array, target.storage_type, safe).seen_as(layout_of(target))
    made.validate(full=True)
    return made


def _from_runs(array: Array, target: t.DataType, safe: bool) -> Array:
    return cast(run_end_decode(array), target, safe)


def _to_words(array: Array, target: t.Dictionary, safe: bool) -> Array:
    made = dictionary_encode(cast(array, target.value_type, safe), target.index_type)
    return made.seen_as(layout_of(target))


def _to_runs(array: Array, target: t.RunEndEncoded, safe: bool) -> Array:
    return run_end_encode(cast(array, target.value_type, safe), target.run_end_type).seen_as(layout_of(target))


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

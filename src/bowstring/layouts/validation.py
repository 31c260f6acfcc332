"""Validation: a walk over the layouts' declaration, and then what each layout checks of its own values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bowstring.errors import InvalidDataError
from bowstring.layouts.base import Role, place

if TYPE_CHECKING:
    from bowstring.layouts.array import Array


def validate(array: Array, full: bool) -> None:
    """Check the structure, and with `full` every value; raises `InvalidDataError` whose message names the place."""
    if array.length < 0 or array.offset < 0:
        raise InvalidDataError(f"length {array.length} and offset {array.offset} must not be negative")
    _check_buffers(array)
    _check_null_count(array, full)
    _check_children(array, full)
    if array.length or array.offset:
        array.layout.check(array)
        if full:
            array.layout.check_full(array)


def _check_buffers(array: Array) -> None:
    layout = array.layout
    count, declared = len(array.buffers), len(layout.buffers)
    if count < declared or (count > declared and not layout.VARIADIC):
        raise InvalidDataError(f"{layout.type} has {declared} buffers, not {count}")
    slots = array.offset + array.length
    for spec, buffer in zip(layout.buffers, array.buffers, strict=False):
        needed = spec.size_bytes(slots)
        if buffer is None:
            if spec.role is not Role.VALIDITY and slots and needed:
                raise InvalidDataError(f"the {spec.role.value} buffer is absent")
        elif buffer.size < needed and (slots or buffer.size):
            raise InvalidDataError(
                f"the {spec.role.value} buffer has {buffer.size} bytes, {slots} slots need {needed} ({layout.type})"
            )


def _check_null_count(array: Array, full: bool) -> None:
    stated = array._null_count
    if stated > array.length:
        raise InvalidDataError(f"the null count of {stated} exceeds the length of {array.length}")
    if not array.layout.buffers and not array.layout.children:
        return
    if stated > 0 and (not array.layout.has_validity or array.buffers[0] is None):
        raise InvalidDataError(f"the null count is {stated}, but there is no validity bitmap ({array.type})")
    if full and stated >= 0 and array.layout.has_validity:
        found = array.layout.null_count(array)
        if found != stated:
            raise InvalidDataError(f"the null count is {stated}, but the validity bitmap has {found} nulls")


def _check_children(array: Array, full: bool) -> None:
    layout = array.layout
    if len(array.children) != len(layout.children):
        raise InvalidDataError(f"{layout.type} has {len(layout.children)} children, not {len(array.children)}")
    for field, wanted, child in zip(layout.type.fields, layout.children, array.children, strict=True):
        with place(field.name or "child"):
            if child.type != wanted.type:
                raise InvalidDataError(f"is {child.type}, not {wanted.type}")
            validate(child, full)
    if array.dictionary is not None:
        with place("dictionary"):
            if layout.dictionary is None or array.dictionary.type != layout.dictionary.type:
                raise InvalidDataError(f"{layout.type} has no dictionary of {array.dictionary.type}")
            validate(array.dictionary, full)

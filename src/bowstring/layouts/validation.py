"""Validate arrays: check the structure that the layout declares, then the values with the layout's own checks."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import NamedTuple

from bowstring.errors import InvalidDataError, add_location
from bowstring.layouts.base import ArrayData


class ArrayFault(NamedTuple):
    """An error in an array, with the path to the child or dictionary, outermost first."""

    path: tuple[str, ...]
    error: InvalidDataError

    def __str__(self) -> str:
        return f"{' → '.join(self.path)}: {self.error}" if self.path else str(self.error)


def validate(array: ArrayData, full: bool) -> None:
    """Check the structure, and with `full` every value; raises `InvalidDataError` naming the location."""
    for fault in find_faults(array, full):
        # A copy: the traceback of `fault.error` would refer to this frame, and this frame to the error. Such a cycle
        # keeps the array, and memory that was imported from other libraries, until the next garbage collection.
        raise add_location(fault.error, " → ".join(fault.path)) if fault.path else copy(fault.error)


def find_faults(array: ArrayData, full: bool, visited: dict[int, ArrayData] | None = None) -> Iterator[ArrayFault]:
    """Yield all faults of an array, its children and its dictionaries, but only the first invalid value of each.

    Dictionaries in `visited`, by their `id`, are skipped, and others are added to it, so that a dictionary that several
    batches share is checked once.
    """
    if array.length < 0 or array.offset < 0:
        yield ArrayFault((), InvalidDataError(f"length {array.length} and offset {array.offset} must not be negative"))
        return
    array_faults = [ArrayFault((), error) for error in _find_buffer_faults(array)]
    if not array_faults:
        array_faults = [ArrayFault((), error) for error in _find_null_count_faults(array, full)]
    nested_faults = list(_find_child_faults(array, full, visited))
    yield from array_faults
    yield from nested_faults
    has_all_children = len(array.children) == len(array.layout.children)
    is_ignored = not (full or array.length or array.offset)  # reading an empty array uses none of its values
    if array_faults or not has_all_children or is_ignored:
        return
    try:
        array.layout.check(array)
        if full and not (nested_faults and array.layout.CHECKS_CHILD_VALUES):
            array.layout.check_full(array)
    except InvalidDataError as error:
        yield ArrayFault((), error)


def _find_buffer_faults(array: ArrayData) -> Iterator[InvalidDataError]:
    layout = array.layout
    count, declared = len(array.own_buffers), len(layout.buffers)
    if count < declared or (count > declared and not layout.VARIADIC):
        yield InvalidDataError(f"{layout.type} requires {declared} buffers, found {count}")
        return
    slots = array.offset + array.length
    for index, buffer in enumerate(array.own_buffers[:declared]):
        error = layout.buffer_size_error(index, buffer, slots)
        if error is not None:
            yield error


def _find_null_count_faults(array: ArrayData, full: bool) -> Iterator[InvalidDataError]:
    null_count = array.known_null_count
    if null_count > array.length:
        yield InvalidDataError(f"the null count of {null_count} exceeds the length of {array.length}")
    elif not array.layout.buffers and not array.layout.children:
        return
    elif null_count > 0 and (not array.layout.has_validity or array.own_buffers[0] is None):
        yield InvalidDataError(f"the null count is {null_count}, but there is no validity bitmap ({array.type})")
    elif full and null_count >= 0 and array.layout.has_validity:
        count = array.layout.count_nulls(array)
        if count != null_count:
            yield InvalidDataError(f"the null count is {null_count}, but the validity bitmap has {count} nulls")


def _find_child_faults(array: ArrayData, full: bool, visited: dict[int, ArrayData] | None) -> Iterator[ArrayFault]:
    layout = array.layout
    if len(array.children) != len(layout.children):
        message = f"{layout.type} requires {len(layout.children)} children, found {len(array.children)}"
        yield ArrayFault((), InvalidDataError(message))
        return
    for index, (child_layout, child) in enumerate(zip(layout.children, array.children, strict=True)):
        name = layout.child_name(index)
        if child.type != child_layout.type:
            yield ArrayFault((name,), InvalidDataError(f"the type is {child.type}, expected {child_layout.type}"))
        else:
            yield from _prefix_paths(name, find_faults(child, full, visited))
    values = array.dictionary
    if values is None:
        return
    if layout.dictionary is None or values.type != layout.dictionary.type:
        yield ArrayFault(("dictionary",), InvalidDataError(f"{layout.type} cannot have a dictionary of {values.type}"))
    elif visited is None or id(values) not in visited:
        if visited is not None:
            visited[id(values)] = values
        yield from _prefix_paths("dictionary", find_faults(values, full, visited))


def _prefix_paths(name: str, faults: Iterator[ArrayFault]) -> Iterator[ArrayFault]:
    for fault in faults:
        yield ArrayFault((name, *fault.path), fault.error)

"""Validation: a walk over the layouts' declaration, and then what each layout checks of its own values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from bowstring.errors import InvalidDataError
from bowstring.layouts.base import Role

if TYPE_CHECKING:
    from bowstring.layouts.array import Array


class Fault(NamedTuple):
    """One thing that is wrong with an array: where inside of it, from the outside in, and what."""

    path: tuple[str, ...]
    problem: InvalidDataError

    def __str__(self) -> str:
        return f"{' → '.join(self.path)}: {self.problem}" if self.path else str(self.problem)


def validate(array: Array, full: bool) -> None:
    """Check the structure, and with `full` every value; raises `InvalidDataError` whose message names the place."""
    for fault in find_faults(array, full):
        raise type(fault.problem)(str(fault)) from None


def find_faults(array: Array, full: bool, known: dict[int, Array] | None = None) -> Iterator[Fault]:
    """Every fault of an array, its children and its dictionaries; of the values of one array the first that is wrong.

    What is in `known`, by its `id`, has been looked at before; dictionaries are added to it, so that one which several
    batches share is told once.
    """
    if array.length < 0 or array.offset < 0:
        yield Fault((), InvalidDataError(f"length {array.length} and offset {array.offset} must not be negative"))
        return
    own = [Fault((), problem) for problem in _of_buffers(array)]
    if not own:
        own = [Fault((), problem) for problem in _of_null_count(array, full)]
    inside = list(_of_children(array, full, known))
    yield from own
    yield from inside
    is_whole = len(array.children) == len(array.layout.children)
    if own or not is_whole or not (array.length or array.offset):
        return
    try:
        array.layout.check(array)
        if full and not (inside and array.layout.CHECKS_CHILD_VALUES):
            array.layout.check_full(array)
    except InvalidDataError as error:
        yield Fault((), error)


def _of_buffers(array: Array) -> Iterator[InvalidDataError]:
    layout = array.layout
    count, declared = len(array.buffers), len(layout.buffers)
    if count < declared or (count > declared and not layout.VARIADIC):
        yield InvalidDataError(f"{layout.type} has {declared} buffers, not {count}")
        return
    slots = array.offset + array.length
    for spec, buffer in zip(layout.buffers, array.buffers, strict=False):
        needed = spec.size_bytes(slots)
        if buffer is None:
            if spec.role is not Role.VALIDITY and slots and needed:
                yield InvalidDataError(f"the {spec.role.value} buffer is absent")
        elif buffer.size < needed and (slots or buffer.size):
            yield InvalidDataError(
                f"the {spec.role.value} buffer has {buffer.size} bytes, {slots} slots need {needed} ({layout.type})"
            )


def _of_null_count(array: Array, full: bool) -> Iterator[InvalidDataError]:
    stated = array._null_count
    if stated > array.length:
        yield InvalidDataError(f"the null count of {stated} exceeds the length of {array.length}")
    elif not array.layout.buffers and not array.layout.children:
        return
    elif stated > 0 and (not array.layout.has_validity or array.buffers[0] is None):
        yield InvalidDataError(f"the null count is {stated}, but there is no validity bitmap ({array.type})")
    elif full and stated >= 0 and array.layout.has_validity:
        found = array.layout.null_count(array)
        if found != stated:
            yield InvalidDataError(f"the null count is {stated}, but the validity bitmap has {found} nulls")


def _of_children(array: Array, full: bool, known: dict[int, Array] | None) -> Iterator[Fault]:
    layout = array.layout
    if len(array.children) != len(layout.children):
        problem = f"{layout.type} has {len(layout.children)} children, not {len(array.children)}"
        yield Fault((), InvalidDataError(problem))
        return
    for index, (wanted, child) in enumerate(zip(layout.children, array.children, strict=True)):
        place = layout.child_name(index)
        if child.type != wanted.type:
            yield Fault((place,), InvalidDataError(f"is {child.type}, not {wanted.type}"))
        else:
            yield from _inside(place, find_faults(child, full, known))
    values = array.dictionary
    if values is None:
        return
    if layout.dictionary is None or values.type != layout.dictionary.type:
        yield Fault(("dictionary",), InvalidDataError(f"{layout.type} has no dictionary of {values.type}"))
    elif known is None or id(values) not in known:
        if known is not None:
            known[id(values)] = values
        yield from _inside("dictionary", find_faults(values, full, known))


def _inside(place: str, found: Iterator[Fault]) -> Iterator[Fault]:
    for fault in found:
        yield Fault((place, *fault.path), fault.problem)

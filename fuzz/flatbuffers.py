"""Flatbuffers as editable trees of `TableNode`s."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bowstring.errors import InvalidDataError
from bowstring.flatbuf.definitions import ScalarSlot, String, StructSlot, SubTable, TableVector, UnionSlot, Vector
from bowstring.flatbuf.reader import FlatTable
from bowstring.flatbuf.tables import DEFINITIONS, read_root
from bowstring.flatbuf.writer import UnionValue, build_flatbuffer

UNIONS = {
    (definition.name, name): (f"{name}_type", slot.type.members)
    for definition in DEFINITIONS.values()
    for name, slot in definition.slots.items()
    if isinstance(slot.type, UnionSlot)
}
"""The union slots: for each, the slot with the type of its table, and the members of the union."""

_MAX_NODES = 3000
_INTEGERS = {"b": 8, "B": 8, "h": 16, "i": 32, "q": 64}


@dataclass(slots=True, eq=False)
class TableNode:
    """A table: the name of its definition and the slots that are present."""

    definition: str
    slots: dict[str, Any] = field(default_factory=dict)

    def nodes(self) -> Iterator[TableNode]:
        """This table and all its descendants, depth first."""
        yield self
        for value in self.slots.values():
            if isinstance(value, TableNode):
                yield from value.nodes()
            elif isinstance(value, list):
                for child in value:
                    yield from child.nodes()

    def copy(self) -> TableNode:
        """A deep copy."""
        return TableNode(self.definition, {name: _copy_value(value) for name, value in self.slots.items()})


def _copy_value(value: Any) -> Any:
    if isinstance(value, list):
        return [child.copy() for child in value]
    return value.copy() if isinstance(value, TableNode | np.ndarray) else value


def parse_table(raw: bytes, name: str) -> TableNode:
    """Parse a flatbuffer whose root table is a `name`. Raise `InvalidDataError` if it is invalid or too large."""
    return _parse_table(read_root(name, raw, "seed", _MAX_NODES))


def _parse_table(table: FlatTable) -> TableNode:
    node = TableNode(table.definition.name)
    for name, slot in table.definition.slots.items():
        type_ = slot.type
        if not table.locate_slot(name):
            continue
        if isinstance(type_, SubTable | UnionSlot):
            child = table[name]
            if child is not None:
                node.slots[name] = _parse_table(child)
            elif isinstance(type_, UnionSlot):
                raise InvalidDataError(f"{slot.path} has an unknown type")
        elif isinstance(type_, TableVector):
            node.slots[name] = [_parse_table(child) for child in table[name]]
        elif isinstance(type_, String):
            offset, count = table.locate_elements(name)
            node.slots[name] = bytes(table.flatbuffer.raw[offset : offset + count])
        elif isinstance(type_, Vector):
            node.slots[name] = table[name].copy()
        elif isinstance(type_, StructSlot):
            node.slots[name] = np.array([table[name]], type_.dtype)
        else:
            node.slots[name] = table[name]
    return node


def encode_table(node: TableNode) -> bytes:
    """The tree as a flatbuffer; numbers are truncated to the width of their slots."""
    return build_flatbuffer(DEFINITIONS, node.definition, _record(node))


def _record(node: TableNode) -> dict[str, Any]:
    slots = DEFINITIONS[node.definition].slots
    return {name: _value(slots[name].type, value) for name, value in node.slots.items() if name in slots}


def _value(type_: Any, value: Any) -> Any:
    if isinstance(value, TableNode):
        return UnionValue(value.definition, _record(value))
    if isinstance(value, list):
        return [_record(child) for child in value]
    if isinstance(type_, StructSlot):
        return value[0]
    return truncate(type_.format, value) if isinstance(type_, ScalarSlot) else value


def truncate(format_: str, value: Any) -> Any:
    """The number truncated to the width of a `struct` format."""
    bits = _INTEGERS.get(format_)
    if bits is None:
        return bool(value)
    encoded = (int(value) & ((1 << bits) - 1)).to_bytes(bits // 8, "little")
    return struct.unpack(f"<{format_}", encoded)[0]

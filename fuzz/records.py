"""Flatbuffers as trees that can be changed: tables to `Node`s and back."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bowstring.errors import InvalidDataError
from bowstring.flatbuf.reader import Child, Children, Inline, Message, Scalar, Structs, Table, Text
from bowstring.flatbuf.tables import HEADERS, SPARSE_INDEXES, SPECS, TYPES
from bowstring.flatbuf.writer import UnionValue, build

UNIONS: dict[tuple[str, str], tuple[str, tuple[str, ...]]] = {
    ("Message", "header"): ("header_type", HEADERS),
    ("Field", "type"): ("type_type", TYPES),
    ("Tensor", "type"): ("type_type", TYPES),
    ("SparseTensor", "type"): ("type_type", TYPES),
    ("SparseTensor", "sparseIndex"): ("sparseIndex_type", SPARSE_INDEXES),
}
"""The slots that hold a union's table: the slot that says which, and its members."""

_MAX_NODES = 3000
_INTEGERS = {"b": 8, "B": 8, "h": 16, "i": 32, "q": 64}


@dataclass(slots=True, eq=False)
class Node:
    """A table: the name of its spec, and its present slots."""

    spec: str
    slots: dict[str, Any] = field(default_factory=dict)

    def nodes(self) -> Iterator[Node]:
        """This table and all below, depth first."""
        yield self
        for value in self.slots.values():
            if isinstance(value, Node):
                yield from value.nodes()
            elif isinstance(value, list):
                for child in value:
                    yield from child.nodes()

    def copy(self) -> Node:
        """A copy that shares nothing."""
        return Node(self.spec, {name: _copied(value) for name, value in self.slots.items()})


def _copied(value: Any) -> Any:
    if isinstance(value, list):
        return [child.copy() for child in value]
    return value.copy() if isinstance(value, Node | np.ndarray) else value


def thaw(raw: bytes, name: str) -> Node:
    """The flatbuffer with the root table of spec `name`; raises `InvalidDataError` for what is not one, or is large."""
    return _thaw(Message(raw, SPECS, "seed", _MAX_NODES).root(name))


def _thaw(table: Table) -> Node:
    node = Node(table.spec.name)
    for name, slot in table.spec.slots.items():
        kind = slot.kind
        if not table.locate(slot.number, 1):
            continue
        if isinstance(kind, Child):
            child = _union(table, name) if not kind.spec else table[name]
            if child is not None:
                node.slots[name] = _thaw(child)
        elif isinstance(kind, Children):
            node.slots[name] = [_thaw(child) for child in table[name]]
        elif isinstance(kind, Text):
            at, count = table.message.vector(table.locate(slot.number, 4), 1, name)
            node.slots[name] = bytes(table.message.data[at : at + count])
        elif isinstance(kind, Structs):
            node.slots[name] = table[name].copy()
        elif isinstance(kind, Inline):
            node.slots[name] = np.array([table[name]], kind.dtype)
        else:
            node.slots[name] = table[name]
    return node


def _union(table: Table, name: str) -> Table | None:
    which, members = UNIONS[table.spec.name, name]
    number = table[which]
    if not 0 < number < len(members):
        raise InvalidDataError(f"{table.spec.name}.{name} is of no kind that is known")
    return table.union(name, members[number])


def freeze(node: Node) -> bytes:
    """The flatbuffer of the tree; numbers are cut to the width of their slots."""
    return build(SPECS, node.spec, _record(node))


def _record(node: Node) -> dict[str, Any]:
    slots = SPECS[node.spec].slots
    return {name: _value(slots[name].kind, value) for name, value in node.slots.items() if name in slots}


def _value(kind: Any, value: Any) -> Any:
    if isinstance(value, Node):
        return UnionValue(value.spec, _record(value))
    if isinstance(value, list):
        return [_record(child) for child in value]
    if isinstance(kind, Inline):
        return value[0]
    return cut(kind.format, value) if isinstance(kind, Scalar) else value


def cut(format_: str, value: Any) -> Any:
    """A number as a slot of this `struct` format can hold it."""
    bits = _INTEGERS.get(format_)
    if bits is None:
        return bool(value)
    held = (int(value) & ((1 << bits) - 1)).to_bytes(bits // 8, "little")
    return struct.unpack(f"<{format_}", held)[0]

"""Write flatbuffers from plain records («Serialization and Interprocess Communication»), front to back.

A record maps slot names to values; `TableDefinition`s define their positions.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bowstring.flatbuf.definitions import (
    ScalarSlot,
    SlotType,
    String,
    StructSlot,
    SubTable,
    TableDefinition,
    TableVector,
    UnionSlot,
    Vector,
)

_U32 = struct.Struct("<I")
_I32 = struct.Struct("<i")

Record: TypeAlias = Mapping[str, Any]
"""A table to write: slot names to values; absent slots have their default."""


class UnionValue:
    """A table to write whose definition its slot does not determine: a union's."""

    __slots__ = ("definition", "record")

    def __init__(self, definition: str, record: Record) -> None:
        self.definition = definition
        self.record = record


class SerializedSubTable:
    """A serialized table that can be copied into several flatbuffers; `serialize_subtable` returns it."""

    __slots__ = ("definition", "raw", "root")

    def __init__(self, definition: str, raw: bytes, root: int) -> None:
        self.definition = definition
        self.raw = raw
        self.root = root


def serialize_subtable(definitions: Mapping[str, TableDefinition], name: str, record: Record) -> SerializedSubTable:
    """Serialize the table `record` with the definition `name`, for the records of other tables.

    The values are as in `build_flatbuffer`.
    """
    builder = _Builder(definitions)
    root = builder.write_table(definitions[name], record)
    return SerializedSubTable(name, bytes(builder.out), root)


def build_flatbuffer(definitions: Mapping[str, TableDefinition], name: str, record: Record) -> bytes:
    """The flatbuffer with the root table `record` with the definition `name`; its length is a multiple of 8.

    Values: numbers, strings or bytes, records for tables (`UnionValue` for unions), lists of records, and NumPy arrays
    or lists for vectors of structs. None is an absent slot.
    """
    builder = _Builder(definitions)
    builder.out += bytes(4)
    builder.patch_offset(0, builder.write_table(definitions[name], record))
    builder.pad_to(8, 0)
    return bytes(builder.out)


@dataclass(frozen=True, slots=True)
class _TableLayout:
    """The layout of tables of one definition with the same slots: their names, types and offsets; vtable; size."""

    slots: tuple[tuple[str, SlotType, int], ...]
    vtable: bytes
    size_bytes: int


def _create_table_layout(definition: TableDefinition, slot_names: tuple[str, ...]) -> _TableLayout:
    unknown = set(slot_names) - definition.slots.keys()
    assert not unknown, f"{definition.name} has no slots {unknown}"
    # The table begins 4 bytes before a multiple of 8; the widest slots are first, so that each is aligned.
    named_slots = [(name, definition.slots[name]) for name in slot_names]
    named_slots.sort(key=lambda named_slot: (-named_slot[1].type.inline_bytes, named_slot[1].index))
    offsets, slots, size = {}, [], 4
    for name, slot in named_slots:
        offsets[slot.index] = size
        slots.append((name, slot.type, size))
        # Sizes descend, and are powers of two, or structs of 64-bit numbers, so that each slot is aligned.
        size += slot.type.inline_bytes
    count = max(offsets, default=-1) + 1
    # The sizes of the vtable and of the table, then the offset of each slot.
    vtable = struct.pack(f"<{count + 2}H", 4 + 2 * count, size, *(offsets.get(i, 0) for i in range(count)))
    return _TableLayout(tuple(slots), vtable, size)


class _Builder:
    """Writes the target of an offset after the offset, because distances only go forward."""

    def __init__(self, definitions: Mapping[str, TableDefinition]) -> None:
        self.definitions = definitions
        self.out = bytearray()
        self.vtables: dict[bytes, int] = {}
        # By the names of the slots that are present: the tables of a schema have a handful of layouts.
        self.layouts: dict[tuple[str, ...], _TableLayout] = {}

    def pad_to(self, multiple: int, rest: int) -> None:
        """Grow until the length is `rest` modulo `multiple`."""
        self.out += bytes((rest - len(self.out)) % multiple)

    def patch_offset(self, at: int, target: int) -> None:
        _U32.pack_into(self.out, at, target - at)

    def write_table(self, definition: TableDefinition, record: Record, slot: int = 0) -> int:
        """Write a table, the target of the offset at `slot`; return its position."""
        slot_names = tuple([name for name, value in record.items() if value is not None])
        key = (definition.name, *slot_names)
        layout = self.layouts.get(key)
        if layout is None:
            layout = self.layouts[key] = _create_table_layout(definition, slot_names)
        position = self._begin_table(layout.vtable, layout.size_bytes, slot)
        for name, type_, offset in layout.slots:
            at, value = position + offset, record[name]
            if isinstance(type_, ScalarSlot):
                type_.packer.pack_into(self.out, at, value)
            elif isinstance(type_, StructSlot):
                self.out[at : at + type_.inline_bytes] = np.array(value, type_.dtype).tobytes()
            else:
                self.patch_offset(at, self._write_target(type_, value, at))
        return position

    def _begin_table(self, vtable: bytes, size: int, slot: int) -> int:
        """Write the vtable, unless an equal one follows `slot`, and zeros for the table; return the table's position.

        Readers such as Polars' read nothing before the slot once they have followed its offset.
        """
        if self.vtables.get(vtable, -1) < slot:
            self.pad_to(2, 0)
            self.vtables[vtable] = len(self.out)
            self.out += vtable
        self.pad_to(8, 4)
        position = len(self.out)
        self.out += bytes(size)
        _I32.pack_into(self.out, position, position - self.vtables[vtable])
        return position

    def _write_target(self, type_: String | Vector | SubTable | TableVector | UnionSlot, value: Any, slot: int) -> int:
        if isinstance(type_, String):
            return self._write_string(value.encode() if isinstance(value, str) else value)
        if isinstance(type_, Vector):
            return self._write_vector(np.asarray(value, type_.dtype))
        if isinstance(type_, TableVector):
            return self._write_table_vector(self.definitions[type_.definition], value)
        if isinstance(value, UnionValue):
            return self.write_table(self.definitions[value.definition], value.record, slot)
        if isinstance(value, SerializedSubTable):
            self.pad_to(8, 0)  # its alignment counts from its first byte
            position = len(self.out) + value.root
            self.out += value.raw
            return position
        assert isinstance(type_, SubTable), "a union's value is a UnionValue or a SerializedSubTable"
        return self.write_table(self.definitions[type_.definition], value, slot)

    def _write_string(self, text_bytes: bytes) -> int:
        self.pad_to(4, 0)
        position = len(self.out)
        self.out += _U32.pack(len(text_bytes)) + text_bytes + b"\0"
        return position

    def _write_vector(self, items: npt.NDArray[Any]) -> int:
        self.pad_to(8, 4)  # so that the elements, after the length, are aligned to 8 bytes
        position = len(self.out)
        self.out += _U32.pack(len(items)) + items.tobytes()
        return position

    def _write_table_vector(self, definition: TableDefinition, records: Sequence[Record]) -> int:
        self.pad_to(4, 0)
        position = len(self.out)
        # The offsets are known only when the tables have been written.
        self.out += _U32.pack(len(records)) + bytes(4 * len(records))
        for index, record in enumerate(records):
            at = position + 4 + 4 * index
            self.patch_offset(at, self.write_table(definition, record, at))
        return position

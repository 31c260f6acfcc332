"""Building flatbuffers out of plain records («Serialization and Interprocess Communication»), front to back.

A record is a mapping of the slots' names to values; the `TableSpec`s of `bowstring.flatbuf.reader` say where they go.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bowstring.flatbuf.reader import Child, Children, Inline, Kind, Scalar, Structs, TableSpec, Text

_U32 = struct.Struct("<I")
_I32 = struct.Struct("<i")

Record: TypeAlias = Mapping[str, Any]
"""A table to be built: slot names to values; absent ones keep their default."""


class UnionValue:
    """A table to be built whose spec is not the slot's own: a union's."""

    __slots__ = ("record", "spec")

    def __init__(self, spec: str, record: Record) -> None:
        self.spec = spec
        self.record = record


class SerializedTable:
    """A table that is built already, to be put into several flatbuffers as it is: `serialize_table` makes it."""

    __slots__ = ("raw", "root", "spec")

    def __init__(self, spec: str, raw: bytes, root: int) -> None:
        self.spec = spec
        self.raw = raw
        self.root = root


def serialize_table(specs: Mapping[str, TableSpec], name: str, record: Record) -> SerializedTable:
    """The table `record` of spec `name`, to stand for it in the records of other tables; values as in `build`."""
    builder = _Builder(specs)
    root = builder.table(specs[name], record)
    return SerializedTable(name, bytes(builder.out), root)


def build(specs: Mapping[str, TableSpec], name: str, record: Record) -> bytes:
    """The flatbuffer with the root table `record` of spec `name`; its length is a multiple of 8.

    Values: numbers, strings or bytes, records for tables (`UnionValue` for unions), lists of records, and NumPy arrays
    or lists for vectors of structs. None is an absent slot.
    """
    builder = _Builder(specs)
    builder.out += bytes(4)
    builder.patch(0, builder.table(specs[name], record))
    builder.pad_to(8, 0)
    return bytes(builder.out)


@dataclass(frozen=True, slots=True)
class _Form:
    """How tables of one spec with the same slots present lie: each slot's name, kind and offset; vtable; bytes."""

    placed: tuple[tuple[str, Kind, int], ...]
    vtable: bytes
    size_bytes: int


def _form(spec: TableSpec, present: tuple[str, ...]) -> _Form:
    unknown = set(present) - spec.slots.keys()
    assert not unknown, f"{spec.name} has no slots {unknown}"
    # The table begins 4 bytes before a multiple of 8; the widest slots come first, so that each is aligned.
    named = [(name, spec.slots[name]) for name in present]
    named.sort(key=lambda item: (-_inline_bytes(item[1].kind), item[1].number))
    offsets, placed, size = {}, [], 4
    for name, slot in named:
        offsets[slot.number] = size
        placed.append((name, slot.kind, size))
        size += _inline_bytes(slot.kind)
    count = max(offsets, default=-1) + 1
    vtable = struct.pack(f"<{count + 2}H", 4 + 2 * count, size, *(offsets.get(i, 0) for i in range(count)))
    return _Form(tuple(placed), vtable, size)


class _Builder:
    """Writes what an offset points to after the offset, as distances only go forward."""

    def __init__(self, specs: Mapping[str, TableSpec]) -> None:
        self.specs = specs
        self.out = bytearray()
        self.vtables: dict[bytes, int] = {}
        self.forms: dict[tuple[str, ...], _Form] = {}

    def pad_to(self, multiple: int, rest: int) -> None:
        """Grow until the length is `rest` modulo `multiple`."""
        self.out += bytes((rest - len(self.out)) % multiple)

    def patch(self, at: int, target: int) -> None:
        _U32.pack_into(self.out, at, target - at)

    def table(self, spec: TableSpec, record: Record, slot: int = 0) -> int:
        """Write a table that the offset at `slot` is to point to; its position."""
        present = (spec.name, *[name for name, value in record.items() if value is not None])
        form = self.forms.get(present)
        if form is None:
            form = self.forms[present] = _form(spec, present[1:])
        position = self._begin(form.vtable, form.size_bytes, slot)
        for name, kind, offset in form.placed:
            at, value = position + offset, record[name]
            if isinstance(kind, Scalar):
                kind.packer.pack_into(self.out, at, value)
            elif isinstance(kind, Inline):
                self.out[at : at + kind.dtype.itemsize] = np.array(value, kind.dtype).tobytes()
            else:
                self.patch(at, self._hung(kind, value, at))
        return position

    def _begin(self, vtable: bytes, size: int, slot: int) -> int:
        """Write the vtable, unless an equal one is behind the slot, and zeros for the table; the table's position.

        Readers such as Polars' look at nothing before the slot once they have followed its offset.
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

    def _hung(self, kind: Text | Structs | Child | Children, value: Any, slot: int) -> int:
        if isinstance(kind, Text):
            return self._text(value.encode() if isinstance(value, str) else value)
        if isinstance(kind, Structs):
            return self._structs(np.asarray(value, kind.dtype))
        if isinstance(kind, Children):
            return self._children(self.specs[kind.spec], value)
        if isinstance(value, UnionValue):
            return self.table(self.specs[value.spec], value.record, slot)
        if isinstance(value, SerializedTable):
            self.pad_to(8, 0)  # its alignment counts from its first byte
            position = len(self.out) + value.root
            self.out += value.raw
            return position
        return self.table(self.specs[kind.spec], value, slot)

    def _text(self, held: bytes) -> int:
        self.pad_to(4, 0)
        position = len(self.out)
        self.out += _U32.pack(len(held)) + held + b"\0"
        return position

    def _structs(self, items: npt.NDArray[Any]) -> int:
        self.pad_to(8, 4)
        position = len(self.out)
        self.out += _U32.pack(len(items)) + items.tobytes()
        return position

    def _children(self, spec: TableSpec, records: Sequence[Record]) -> int:
        self.pad_to(4, 0)
        position = len(self.out)
        self.out += _U32.pack(len(records)) + bytes(4 * len(records))
        for index, record in enumerate(records):
            at = position + 4 + 4 * index
            self.patch(at, self.table(spec, record, at))
        return position


def _inline_bytes(kind: Kind) -> int:
    if isinstance(kind, Scalar):
        return kind.packer.size
    return kind.dtype.itemsize if isinstance(kind, Inline) else 4

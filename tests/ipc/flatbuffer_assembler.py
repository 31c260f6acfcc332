"""Builds malformed flatbuffers: shared tables, circular offsets and other structures that no valid writer produces.

Offsets are unsigned, so a target is placed after its references. Slot numbers are those of `bowstring.flatbuf.tables`.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from bowstring.flatbuf.definitions import ScalarSlot
from bowstring.flatbuf.tables import DEFINITIONS, TYPES
from bowstring.ipc.message import frame_message


class FlatbufferAssembler:
    """Labelled parts of a flatbuffer and the offsets between them."""

    def __init__(self) -> None:
        self._out = bytearray(8)
        self._labels: dict[str, int] = {}
        self._references: list[tuple[int, int, str]] = [(0, 1, "root")]

    def table(self, label: str, definition: str, **slots: Any) -> None:
        """Add a table: scalar slots take numbers, the others take labels."""
        numbers = {
            DEFINITIONS[definition].slots[name].index: (DEFINITIONS[definition].slots[name].type, value)
            for name, value in slots.items()
        }
        count = max(numbers, default=-1) + 1
        offsets = {number: 8 + 8 * at for at, number in enumerate(numbers)}
        size = 8 + 8 * len(numbers)
        vtable = struct.pack(f"<{count + 2}H", 4 + 2 * count, size, *(offsets.get(n, 0) for n in range(count)))
        self._out += vtable + bytes(-len(vtable) % 8)
        position = self._labels[label] = len(self._out)
        self._out += struct.pack("<i", len(vtable) + (-len(vtable) % 8)) + bytes(size - 4)
        for number, (kind, value) in numbers.items():
            at = position + offsets[number]
            if isinstance(value, str):
                self._references.append((at, 1, value))
            else:
                assert isinstance(kind, ScalarSlot)
                kind.packer.pack_into(self._out, at, value)

    def offsets(self, label: str, *targets: str) -> None:
        """Add a vector of tables."""
        self._begin_vector(label, len(targets))
        for target in targets:
            self._references.append((len(self._out), 1, target))
            self._out += bytes(4)
        self._out += bytes(-len(self._out) % 8)

    def repeated(self, label: str, target: str, count: int) -> None:
        """Add a vector whose elements all refer to the same table."""
        self._begin_vector(label, count)
        self._references.append((len(self._out), count, target))
        self._out += bytes(4 * count + (-(len(self._out) + 4 * count) % 8))

    def text(self, label: str, content: bytes, claimed: int | None = None) -> None:
        """Add a string or another vector of bytes."""
        self._begin_vector(label, len(content) if claimed is None else claimed)
        self._out += content + bytes(-(len(self._out) + len(content)) % 8)

    def _begin_vector(self, label: str, count: int) -> None:
        self._labels[label] = len(self._out)
        self._out += struct.pack("<I", count)

    def to_bytes(self) -> bytes:
        """Return the flatbuffer."""
        out = self._out
        for at, count, label in self._references:
            places = at + 4 * np.arange(count, dtype=np.int64)
            out[at : at + 4 * count] = (self._labels[label] - places).astype("<u4").tobytes()
        return bytes(out)

    def schema_message(self, fields: str) -> None:
        """Add the root: a schema message whose fields are the vector with this label."""
        self.table("root", "Message", version=4, header_type=1, header="schema")
        self.table("schema", "Schema", fields=fields)

    def to_message(self) -> bytes:
        """Return the flatbuffer as an encapsulated message."""
        return frame_message(self.to_bytes())


def number(name: str) -> int:
    """Return the index of a type in its union."""
    return TYPES.index(name)

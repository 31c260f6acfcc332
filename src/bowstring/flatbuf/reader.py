"""Read the tables of a flatbuffer («Serialization and Interprocess Communication»); `bowstring.flatbuf.writer` writes
them.

`FlatTable` reads a table from untrusted bytes as its `TableDefinition` describes it: each offset is checked when it is
followed, and work is bounded by the size of the flatbuffer.

The format in short: a table begins with a signed distance back to its vtable. The vtable contains its own size, the
table's size, and the offset of each slot in the table (0: absent, the default applies). Strings, vectors and tables are
referenced by unsigned distances forward. A zero byte follows each string. All integers are little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from bowstring.errors import InvalidDataError, LimitError, TruncatedError
from bowstring.flatbuf.definitions import (
    ScalarSlot,
    Slot,
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
_VTABLE = struct.Struct("<HH")


class Flatbuffer:
    """The bytes of one flatbuffer, with budgets for reading them.

    `location` names the bytes in errors. Reading visits at most `max_tables` tables, and never more than the bytes can
    contain; text is limited to a few times the flatbuffer's size. Shared or circular offsets therefore cost no more
    than valid data. Raises `TruncatedError` if the bytes are too few.
    """

    __slots__ = ("definitions", "location", "max_tables", "raw", "size", "tables_left", "text_left")

    def __init__(
        self, raw: bytes, definitions: Mapping[str, TableDefinition], location: str, max_tables: int = 1_000_000
    ) -> None:
        self.raw = raw
        self.size = len(raw)
        if self.size < 8:
            raise TruncatedError(f"{location}: {self.size} bytes are too few for a flatbuffer")
        self.definitions = definitions
        self.location = location
        self.max_tables = max_tables
        # Tables that share no bytes take at least 4 each. Offsets may share one, and then this many visits are left.
        self.tables_left = min(max_tables, self.size // 4)
        # Writers may store equal strings once, so a valid flatbuffer can have more text than bytes, but hardly four
        # times as much.
        self.text_left = 4 * self.size

    def get_root_table(self, name: str) -> FlatTable:
        """Return the root table, with the definition `name`."""
        return FlatTable(self, name, 0, name)

    def invalid_data_error(self, problem: str, position: int) -> InvalidDataError:
        """Return an error that names the flatbuffer and the byte."""
        return InvalidDataError(f"{self.location}: byte {position} of {self.size}: {problem}")

    def check_table_limit(self, count: int) -> None:
        """Raise `LimitError` if `count` more tables exceed the limit, before any of them is visited."""
        if count > self.tables_left:
            limit = min(self.max_tables, self.size // 4)
            raise LimitError(
                f"{self.location}: {limit - self.tables_left + count} tables or more, beyond the limit of {limit} for "
                f"its {self.size} bytes (max_tables is {self.max_tables})"
            )

    def follow_offset(self, position: int, path: str) -> int:
        """Return the target of the offset at `position`, at least 4 bytes before the end."""
        if position + 4 > self.size:
            raise self.invalid_data_error(f"the offset of {path} is beyond the end", position)
        distance = _U32.unpack_from(self.raw, position)[0]
        target: int = position + distance
        # Forward, to at least 4 bytes: a distance to a vtable or a length.
        if not distance or target + 4 > self.size:
            raise self.invalid_data_error(f"the offset of {path} is {distance}, which is out of bounds", position)
        return target

    def locate_vector(self, position: int, item_bytes: int, path: str) -> tuple[int, int]:
        """Return the start of the elements and the length of the vector that the offset at `position` points to."""
        start = self.follow_offset(position, path)
        length: int = _U32.unpack_from(self.raw, start)[0]
        if start + 4 + length * item_bytes > self.size:
            raise self.invalid_data_error(f"{path} has {length} elements of {item_bytes} bytes, beyond the end", start)
        return start + 4, length


class FlatTable:
    """One table of a flatbuffer, with the definition `definition_name`; the offset at `offset_position` points to it.

    `table["name"]` reads a slot. `path` names the offset in errors. All slots are located when the table is visited;
    strings, vectors and tables that they refer to are checked when they are read.
    """

    __slots__ = ("_slot_positions", "definition", "flatbuffer", "position", "size", "vtable", "vtable_size")

    def __init__(self, flatbuffer: Flatbuffer, definition_name: str, offset_position: int, path: str) -> None:
        self.flatbuffer = flatbuffer
        self.definition = definition = flatbuffer.definitions[definition_name]
        self.position = position = flatbuffer.follow_offset(offset_position, path)
        if flatbuffer.tables_left < 1:
            flatbuffer.check_table_limit(1)
        flatbuffer.tables_left -= 1
        # The distance is signed, and the vtable may be before or after the table: both ends are checked.
        raw, end = flatbuffer.raw, flatbuffer.size
        self.vtable = vtable = position - _I32.unpack_from(raw, position)[0]
        if not 0 <= vtable <= end - 4:
            raise flatbuffer.invalid_data_error(f"the vtable of {definition.name} is at {vtable}", position)
        self.vtable_size, self.size = vtable_size, size = _VTABLE.unpack_from(raw, vtable)
        is_vtable_whole = vtable_size >= 4 and vtable_size % 2 == 0 and vtable + vtable_size <= end
        if not is_vtable_whole or size < 4 or position + size > end:
            raise flatbuffer.invalid_data_error(
                f"{definition.name} has {size} bytes, its vtable at {vtable} has {vtable_size}", position
            )
        # A vtable may be shorter than the definition, as writers omit trailing slots that are absent, or longer, as
        # the format may grow.
        slot_count = min(len(definition.slots), vtable_size // 2 - 2)
        positions: dict[str, int] = {}
        self._slot_positions = positions
        for offset, (name, inline_bytes) in zip(
            definition.vtable_entries[slot_count].unpack_from(raw, vtable + 4), definition.inline_bytes, strict=False
        ):
            if offset:
                # The first 4 bytes of a table are the distance to its vtable.
                if offset < 4 or offset + inline_bytes > size:
                    raise flatbuffer.invalid_data_error(
                        f"{definition.name}.{name} is at byte {offset} of a table of {size}", position
                    )
                positions[name] = position + offset
        for name in definition.required:
            if name not in positions:
                raise flatbuffer.invalid_data_error(f"{definition.name}.{name} is required but absent", position)

    def __getitem__(self, name: str) -> Any:
        slot, flatbuffer = self.definition.slots[name], self.flatbuffer
        type_, position = slot.type, self._slot_positions.get(name)
        if position is None:
            return type_.default
        if isinstance(type_, ScalarSlot):
            return type_.packer.unpack_from(flatbuffer.raw, position)[0]
        if isinstance(type_, String):
            return self._read_string(slot, position, type_.is_utf8)
        if isinstance(type_, StructSlot):
            return np.frombuffer(flatbuffer.raw, type_.dtype, 1, position)[0]
        if isinstance(type_, SubTable):
            return FlatTable(flatbuffer, type_.definition, position, slot.path)
        if isinstance(type_, UnionSlot):
            index: int = self[f"{name}_type"]
            if index >= len(type_.members):
                raise flatbuffer.invalid_data_error(
                    f"expected a {slot.path}_type below {len(type_.members)}, found {index}", self.position
                )
            return FlatTable(flatbuffer, type_.members[index], position, slot.path) if index else None
        start, length = flatbuffer.locate_vector(position, type_.item_bytes, slot.path)
        if not length:
            return type_.default
        if isinstance(type_, Vector):
            return np.frombuffer(flatbuffer.raw, type_.dtype, length, start)
        if length > flatbuffer.tables_left:
            flatbuffer.check_table_limit(length)
        return [FlatTable(flatbuffer, type_.definition, start + 4 * index, slot.path) for index in range(length)]

    def locate_slot(self, name: str) -> int:
        """Return the position of a slot in the flatbuffer, 0 if absent."""
        return self._slot_positions.get(name, 0)

    def locate_elements(self, name: str) -> tuple[int, int]:
        """Return the position of the elements of a string or vector and its length; (0, 0) if absent.

        A number or a struct counts as one element.
        """
        slot, position = self.definition.slots[name], self._slot_positions.get(name, 0)
        if position and isinstance(slot.type, String | Vector | TableVector):
            return self.flatbuffer.locate_vector(position, slot.type.item_bytes, slot.path)
        return position, int(position > 0)

    def get_element_table(self, name: str, index: int) -> FlatTable:
        """Return one table of a vector of tables; `index` must be less than its length."""
        slot = self.definition.slots[name]
        assert isinstance(slot.type, TableVector)
        return FlatTable(self.flatbuffer, slot.type.definition, self.locate_elements(name)[0] + 4 * index, slot.path)

    def _read_string(self, slot: Slot, position: int, is_utf8: bool) -> str | bytes:
        flatbuffer = self.flatbuffer
        start, length = flatbuffer.locate_vector(position, 1, slot.path)
        flatbuffer.text_left -= length  # strings may share bytes, but only a few times
        if flatbuffer.text_left < 0:
            size = flatbuffer.size
            raise LimitError(f"{flatbuffer.location}: text of more than {4 * size} bytes in a flatbuffer of {size}")
        text = bytes(flatbuffer.raw[start : start + length])
        # Readers need only the length, but with a damaged one the text would be cut off, or include other bytes.
        if flatbuffer.raw[start + length : start + length + 1] != b"\0":
            raise flatbuffer.invalid_data_error(f"{slot.path} is not followed by a zero byte", start + length)
        if not is_utf8:
            return text
        try:
            return text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise flatbuffer.invalid_data_error(
                f"{slot.path} is not valid UTF-8: {error.reason}", start + error.start
            ) from None

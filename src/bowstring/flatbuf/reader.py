"""Read the tables of a flatbuffer («Serialization and Interprocess Communication»); `bowstring.flatbuf.writer` writes
them.

A `TableSpec` lists the slots of a table as data. `Table` reads a table from untrusted bytes: each offset is checked
when it is followed, and work is bounded by the size of the message.

The format in short: a table begins with a signed distance back to its vtable. The vtable contains its own size, the
table's size, and the offset of each slot in the table (0: absent, the default applies). Strings, vectors and tables are
referenced by unsigned distances forward. All integers are little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bowstring.errors import InvalidDataError, LimitError, TruncatedError

_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_I32 = struct.Struct("<i")
_VTABLE = struct.Struct("<HH")


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number of a `struct` format, stored inline."""

    format: str
    packer: struct.Struct = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "packer", struct.Struct(f"<{self.format}"))


@dataclass(frozen=True, slots=True)
class Text:
    """A string in UTF-8, or any bytes if `raw`."""

    raw: bool = False


@dataclass(frozen=True, slots=True)
class Structs:
    """A vector of structs or numbers, read as one NumPy view of `dtype`."""

    dtype: np.dtype[Any]


@dataclass(frozen=True, slots=True)
class Inline:
    """One struct of `dtype`, inline in the table."""

    dtype: np.dtype[Any]


@dataclass(frozen=True, slots=True)
class Child:
    """A table, by the name of its spec; empty for a union's table, whose spec the reader chooses."""

    spec: str = ""


@dataclass(frozen=True, slots=True)
class Children:
    """A vector of tables, by the name of their spec."""

    spec: str


Kind: TypeAlias = Scalar | Text | Structs | Inline | Child | Children


@dataclass(frozen=True, slots=True)
class Slot:
    """One slot of a table: its number, kind and default."""

    name: str
    number: int
    kind: Kind
    default: Any = None


class TableSpec:
    """The slots of one table."""

    __slots__ = ("name", "slots")

    def __init__(self, name: str, *slots: Slot) -> None:
        self.name = name
        self.slots = {slot.name: slot for slot in slots}

    def __repr__(self) -> str:
        return f"TableSpec({self.name})"


class Message:
    """The bytes of one flatbuffer, with budgets for reading them.

    `where` names the bytes in errors. Reading visits at most `max_tables` tables, and never more than the bytes can
    contain; text is limited to a few times the message's size. Shared or circular offsets therefore cost no more than
    valid data.
    """

    __slots__ = ("data", "limit", "size", "specs", "tables_left", "text_left", "where")

    def __init__(self, data: bytes, specs: Mapping[str, TableSpec], where: str, max_tables: int = 1_000_000) -> None:
        self.data = data
        self.size = len(data)
        self.specs = specs
        self.where = where
        self.limit = max_tables
        self.tables_left = min(max_tables, self.size // 4)
        self.text_left = 4 * self.size

    def root(self, name: str) -> Table:
        """Return the root table, as spec `name`."""
        if self.size < 8:
            raise TruncatedError(f"{self.where}: {self.size} bytes are too few for a flatbuffer")
        return Table(self, self.specs[name], self.follow(0, name))

    def error(self, problem: str, at: int) -> InvalidDataError:
        """Return an error with the name of the message and the byte."""
        return InvalidDataError(f"{self.where}: byte {at} of {self.size}: {problem}")

    def expect_tables(self, count: int) -> None:
        """Raise `LimitError` if `count` more tables exceed the limit, before any of them is visited."""
        if count > self.tables_left:
            limit = min(self.limit, self.size // 4)
            raise LimitError(
                f"{self.where}: {limit - self.tables_left + count} tables or more, beyond the limit of {limit} for its "
                f"{self.size} bytes (max_tables is {self.limit})"
            )

    def follow(self, at: int, what: str) -> int:
        """Return the target of the offset at `at`, at least 4 bytes before the end."""
        if at + 4 > self.size:
            raise self.error(f"the offset of {what} is beyond the end", at)
        distance = _U32.unpack_from(self.data, at)[0]
        target: int = at + distance
        if distance == 0 or target + 4 > self.size:
            raise self.error(f"the offset of {what} is {distance}, which is out of bounds", at)
        return target

    def vector(self, at: int, item_bytes: int, what: str) -> tuple[int, int]:
        """Return the start of the items and the length of the vector that the offset at `at` points to."""
        start = self.follow(at, what)
        count: int = _U32.unpack_from(self.data, start)[0]
        if start + 4 + count * item_bytes > self.size:
            raise self.error(f"{what} has {count} items of {item_bytes} bytes, beyond the end", start)
        return start + 4, count


class Table:
    """One table in a message; `table["name"]` reads a slot."""

    __slots__ = ("message", "position", "size", "spec", "vtable", "vtable_size")

    def __init__(self, message: Message, spec: TableSpec, position: int) -> None:
        self.message = message
        self.spec = spec
        self.position = position
        message.expect_tables(1)
        message.tables_left -= 1
        self.vtable = vtable = position - _I32.unpack_from(message.data, position)[0]
        if not 0 <= vtable <= message.size - 4:
            raise message.error(f"the vtable of {spec.name} is at {vtable}", position)
        self.vtable_size, self.size = _VTABLE.unpack_from(message.data, vtable)
        if self.vtable_size < 4 or self.vtable_size % 2 or vtable + self.vtable_size > message.size:
            raise message.error(f"the vtable of {spec.name} has {self.vtable_size} bytes", vtable)
        if self.size < 4 or position + self.size > message.size:
            raise message.error(f"{spec.name} has {self.size} bytes", vtable)

    def locate(self, number: int, size_bytes: int) -> int:
        """Return the byte offset of a slot of `size_bytes` bytes in the message, or 0 if it is absent."""
        entry = 4 + 2 * number
        if entry >= self.vtable_size:
            return 0
        offset: int = _U16.unpack_from(self.message.data, self.vtable + entry)[0]
        if offset == 0:
            return 0
        if offset < 4 or offset + size_bytes > self.size:
            raise self.message.error(f"slot {number} of {self.spec.name} is at {offset} of {self.size}", self.position)
        return self.position + offset

    def __getitem__(self, name: str) -> Any:
        slot = self.spec.slots[name]
        return _READERS[type(slot.kind)](self, slot)

    def union(self, name: str, spec: str) -> Table | None:
        """Return the table of a union's slot, as spec `spec`; None if absent."""
        slot = self.spec.slots[name]
        at = self.locate(slot.number, 4)
        if not at:
            return None
        message = self.message
        return Table(message, message.specs[spec], message.follow(at, name))

    def children_span(self, name: str) -> tuple[int, int]:
        """Return the start of the offsets of a vector of tables, and its length; (0, 0) if absent."""
        at = self.locate(self.spec.slots[name].number, 4)
        return self.message.vector(at, 4, name) if at else (0, 0)

    def child_at(self, name: str, index: int) -> Table:
        """Return one table of a vector of tables; `index` has to be less than its length."""
        kind = self.spec.slots[name].kind
        assert isinstance(kind, Children)
        start, _ = self.children_span(name)
        message = self.message
        return Table(message, message.specs[kind.spec], message.follow(start + 4 * index, name))

    def span(self, name: str) -> tuple[int, int]:
        """Return the start of a number, or of a vector of structs, and the length; (0, 0) if absent."""
        slot = self.spec.slots[name]
        if isinstance(slot.kind, Scalar):
            at = self.locate(slot.number, slot.kind.packer.size)
            return at, int(at > 0)
        assert isinstance(slot.kind, Structs)
        at = self.locate(slot.number, 4)
        return self.message.vector(at, slot.kind.dtype.itemsize, f"{self.spec.name}.{name}") if at else (0, 0)


def _read_scalar(table: Table, slot: Slot) -> Any:
    packer = slot.kind.packer  # type: ignore[union-attr]
    at = table.locate(slot.number, packer.size)
    return packer.unpack_from(table.message.data, at)[0] if at else slot.default


def _read_text(table: Table, slot: Slot) -> str | bytes | None:
    at = table.locate(slot.number, 4)
    if not at:
        return None
    message = table.message
    start, count = message.vector(at, 1, slot.name)
    message.text_left -= count
    if message.text_left < 0:
        raise LimitError(f"{message.where}: text of more than {4 * message.size} bytes in a message of {message.size}")
    text_bytes = bytes(message.data[start : start + count])
    if slot.kind.raw:  # type: ignore[union-attr]
        return text_bytes
    try:
        return text_bytes.decode("utf-8")
    except UnicodeDecodeError as error:
        raise message.error(
            f"{table.spec.name}.{slot.name} is not valid UTF-8: {error.reason}", start + error.start
        ) from None


def _read_structs(table: Table, slot: Slot) -> npt.NDArray[Any]:
    dtype = slot.kind.dtype  # type: ignore[union-attr]
    start, count = table.span(slot.name)
    return np.frombuffer(table.message.data, dtype, count, start) if count else np.empty(0, dtype)


def _read_inline(table: Table, slot: Slot) -> Any:
    dtype = slot.kind.dtype  # type: ignore[union-attr]
    at = table.locate(slot.number, dtype.itemsize)
    return np.frombuffer(table.message.data, dtype, 1, at)[0] if at else slot.default


def _read_child(table: Table, slot: Slot) -> Table | None:
    return table.union(slot.name, slot.kind.spec)  # type: ignore[union-attr]


def _read_children(table: Table, slot: Slot) -> list[Table]:
    at = table.locate(slot.number, 4)
    if not at:
        return []
    message = table.message
    spec = message.specs[slot.kind.spec]  # type: ignore[union-attr]
    start, count = message.vector(at, 4, slot.name)
    message.expect_tables(count)
    return [Table(message, spec, message.follow(start + 4 * i, slot.name)) for i in range(count)]


_READERS: dict[type[Kind], Callable[[Table, Slot], Any]] = {
    Scalar: _read_scalar,
    Text: _read_text,
    Structs: _read_structs,
    Inline: _read_inline,
    Child: _read_child,
    Children: _read_children,
}

"""Definitions of flatbuffer tables as data: the slots of a table, and the type and default of each.

The reader and the writer walk these definitions; `bowstring.flatbuf.tables` has Arrow's. A type's `default` is the
value of an absent slot. `inline_bytes` is the size of a value in the table: the size of the value itself for scalars
and structs, 4 for an offset to anything else. `item_bytes` is the size of an element of a string or vector.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class ScalarSlot:
    """A number of a `struct` format."""

    format: str
    default: Any = 0
    packer: struct.Struct = field(init=False, repr=False, compare=False)
    inline_bytes: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "packer", struct.Struct(f"<{self.format}"))
        object.__setattr__(self, "inline_bytes", self.packer.size)


@dataclass(frozen=True, slots=True)
class StructSlot:
    """One struct of `dtype`, inline in the table."""

    dtype: np.dtype[Any]
    default: ClassVar[None] = None
    inline_bytes: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "inline_bytes", self.dtype.itemsize)


@dataclass(frozen=True, slots=True)
class String:
    """A string in UTF-8, or any bytes if not `is_utf8`."""

    is_utf8: bool = True
    default: ClassVar[None] = None
    inline_bytes: ClassVar[int] = 4
    item_bytes: ClassVar[int] = 1


@dataclass(frozen=True, slots=True)
class Vector:
    """A vector of numbers or structs, read as one NumPy view of `dtype`."""

    dtype: np.dtype[Any]
    default: npt.NDArray[Any] = field(init=False, repr=False, compare=False)
    inline_bytes: ClassVar[int] = 4
    item_bytes: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "default", np.frombuffer(b"", self.dtype))
        object.__setattr__(self, "item_bytes", self.dtype.itemsize)


@dataclass(frozen=True, slots=True)
class SubTable:
    """A table, by the name of its definition."""

    definition: str
    default: ClassVar[None] = None
    inline_bytes: ClassVar[int] = 4


@dataclass(frozen=True, slots=True)
class TableVector:
    """A vector of tables, by the name of their definition."""

    definition: str
    default: ClassVar[tuple[()]] = ()
    inline_bytes: ClassVar[int] = 4
    item_bytes: ClassVar[int] = 4


@dataclass(frozen=True, slots=True)
class UnionSlot:
    """A table of one of several definitions.

    The preceding slot, called like this one with `_type` appended, has the index into `members`.
    """

    members: tuple[str, ...]
    default: ClassVar[None] = None
    inline_bytes: ClassVar[int] = 4


SlotType: TypeAlias = ScalarSlot | StructSlot | String | Vector | SubTable | TableVector | UnionSlot


@dataclass(frozen=True, slots=True)
class Slot:
    """One slot of a table: its full name (such as "Field.name"), its index in vtables, and its type."""

    path: str
    index: int
    type: SlotType


class TableDefinition:
    """The slots of one table by name, in the order of their indices; those in `required` must be present."""

    __slots__ = ("inline_bytes", "name", "required", "slots", "vtable_entries")

    def __init__(self, name: str, /, required: tuple[str, ...] = (), **types: SlotType) -> None:
        self.name = name
        self.required = required
        self.slots = {
            slot_name: Slot(f"{name}.{slot_name}", index, type_)
            for index, (slot_name, type_) in enumerate(types.items())
        }
        self.inline_bytes = tuple((slot_name, type_.inline_bytes) for slot_name, type_ in types.items())
        """The name and the size in the table of each slot."""
        self.vtable_entries = [struct.Struct(f"<{count}H") for count in range(len(types) + 1)]
        """The offsets of the first 0, 1, … slots in a vtable."""

    def __repr__(self) -> str:
        return f"TableDefinition({self.name})"

"""What the bytes of a file or a stream are, as values: segments end to end, and in each of them leaves end to end.

«IPC File Format» and «IPC Streaming Format» say what the segments are, «Encapsulated message format» what is in them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from bowstring.inspection.report import Inspection
from bowstring.ipc.tools.scan import BatchSpan


class Segment(Enum):
    """What a stretch of the file is as a whole."""

    START = "start"
    SCHEMA = "schema"
    DICTIONARY_BATCH = "dictionary batch"
    RECORD_BATCH = "record batch"
    TENSOR = "tensor"
    SPARSE_TENSOR = "sparse tensor"
    END = "end of stream"
    FOOTER = "footer"
    UNCLAIMED = "unclaimed"
    UNREAD = "unread"
    OMITTED = "left out"


class Leaf(IntEnum):
    """What the bytes of a leaf are. `BODY` is a body whose buffers are not told apart."""

    MAGIC = 0
    CONTINUATION = 1
    LENGTH = 2
    METADATA = 3
    PADDING = 4
    BUFFER = 5
    BODY = 6
    FOOTER_LENGTH = 7
    UNCLAIMED = 8
    UNREAD = 9
    OMITTED = 10


@dataclass(frozen=True, slots=True, eq=False)
class Leaves:
    """Leaves end to end, each an entry of three arrays of shape (n,): length in bytes (int64, never 0), `Leaf` (uint8),
    and for a `BUFFER` its number among the buffers of its message (int32), else -1.

    Bytes that several buffers claim belong to the first of them.
    """

    lengths_bytes: npt.NDArray[np.int64]
    kinds: npt.NDArray[np.uint8]
    buffers: npt.NDArray[np.int32]

    @classmethod
    def of(cls, *leaves: tuple[int, Leaf]) -> Leaves:
        """Leaves without buffers; empty ones are left out."""
        non_empty = [(size, kind) for size, kind in leaves if size > 0]
        return cls(
            np.array([size for size, _ in non_empty], np.int64),
            np.array([kind for _, kind in non_empty], np.uint8),
            np.full(len(non_empty), -1, np.int32),
        )

    def then(self, other: Leaves) -> Leaves:
        """These leaves, and others after them."""
        return Leaves(
            np.concatenate([self.lengths_bytes, other.lengths_bytes]),
            np.concatenate([self.kinds, other.kinds]),
            np.concatenate([self.buffers, other.buffers]),
        )

    @property
    def total_bytes(self) -> int:
        """The bytes of all of them."""
        return int(self.lengths_bytes.sum())

    def __len__(self) -> int:
        return len(self.kinds)


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One segment of the file: a message, the beginning, the footer, or bytes that nothing claims.

    - `number`: which one of its kind; a file's batches count as the footer does. -1 where that means nothing
    - `span`: of a record or dictionary batch its header and the place of its body
    - `offsets`, `lengths`: of each buffer of its body, int64 of shape (buffers,), as the header says
    - `plan`: which of the `Anatomy.plans` names its buffers; -1 for none
    - `is_listed`: whether the file's footer refers to it
    """

    kind: Segment
    start: int
    leaves: Leaves
    number: int = -1
    span: BatchSpan | None = None
    offsets: npt.NDArray[np.int64] | None = None
    lengths: npt.NDArray[np.int64] | None = None
    plan: int = -1
    is_listed: bool = True

    @property
    def stop(self) -> int:
        """The byte after the last."""
        return self.start + self.leaves.total_bytes


@dataclass(frozen=True, slots=True)
class PlanField:
    """A field of a plan, flattened («RecordBatch message»): `parent` is the position of the field it is in (-1: none),
    `column` the column of the schema.
    """

    name: str
    parent: int
    type: str
    column: int


@dataclass(frozen=True, slots=True)
class Slot:
    """What one buffer of a body is («Buffer Listing for Each Layout»): the position of its field (and field node) in
    the plan, its role, and what an element is: a NumPy dtype in short, "bit", or "" for bytes.

    After a slot `is_variadic` come the data buffers of its field, as many as the message says («Variadic buffers»).
    """

    field: int
    role: str
    element: str
    is_variadic: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """The fields and buffers of one kind of body, in the format's order; `dictionary_id` is None for the columns."""

    dictionary_id: int | None
    version: int
    fields: tuple[PlanField, ...]
    slots: tuple[Slot, ...]

    @property
    def is_variadic(self) -> bool:
        """Whether the number of buffers differs from message to message."""
        return any(slot.is_variadic for slot in self.slots)

    def slots_of(self, variadic_counts: tuple[int, ...]) -> npt.NDArray[np.int64]:
        """The slot of each buffer of a message, shape (buffers,), and ~slot for the data buffers behind the slot."""
        variadic = [n for n, slot in enumerate(self.slots) if slot.is_variadic]
        repeats = np.ones(len(self.slots), np.int64)
        repeats[variadic] += np.array(variadic_counts, np.int64)
        slots = np.repeat(np.arange(len(self.slots)), repeats)
        is_repeated = np.zeros(len(slots), np.bool_)
        is_repeated[1:] = slots[1:] == slots[:-1]
        return np.where(is_repeated, ~slots, slots)


@dataclass(frozen=True, slots=True)
class Damage:
    """What is wrong, at which byte, and in the words of the error that a reader would raise. Names are not escaped."""

    at: int
    message: str


@dataclass(frozen=True, slots=True, eq=False)
class Anatomy:
    """Whose every byte of a file or a stream is: the leaves of the parts, end to end, are all of its bytes.

    `inspection` is what `bowstring.inspect` says of the batches that are sound, None where there is no schema.
    `damages` are the first faults of structure, `damage_count` all of them; values are not looked at. Where
    `is_shortened`, a limit was reached: a part that is `OMITTED` stands for the messages that follow, and `inspection`
    is of those before it.
    """

    source: str
    format: Literal["file", "stream"]
    total_bytes: int
    parts: tuple[Part, ...]
    plans: tuple[Plan, ...]
    damages: tuple[Damage, ...]
    damage_count: int
    inspection: Inspection | None
    role_bytes: dict[tuple[int, str], int]
    """The bytes of each column's buffers of each role, by position of the column and role, dictionaries left out."""
    is_shortened: bool = False

    def leaf_at(self, position: int) -> tuple[Part, int, int, Leaf, int]:
        """Whose a byte is: the part, start and stop of the leaf, its kind, and the number of its buffer (-1: none)."""
        starts: npt.NDArray[Any] = np.array([part.start for part in self.parts], np.int64)
        part = self.parts[int(np.searchsorted(starts, position, "right")) - 1]
        ends = part.start + np.cumsum(part.leaves.lengths_bytes)
        index = int(np.searchsorted(ends, position, "right"))
        stop = int(ends[index])
        kind, number = Leaf(int(part.leaves.kinds[index])), int(part.leaves.buffers[index])
        return part, stop - int(part.leaves.lengths_bytes[index]), stop, kind, number

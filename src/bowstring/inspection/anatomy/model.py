"""The anatomy of a file or a stream: consecutive sections, each of consecutive byte ranges, cover all bytes.

«IPC File Format» and «IPC Streaming Format» define the sections, «Encapsulated message format» their contents.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Literal

import numpy as np
import numpy.typing as npt

from bowstring.inspection.report import Inspection
from bowstring.ipc.tools.scan import BatchMessage


class FileSectionKind(Enum):
    """The kind of a section: a message by its type, another section of the format, or bytes outside all of these."""

    START = "start"
    SCHEMA = "schema"
    DICTIONARY_BATCH = "dictionary batch"
    RECORD_BATCH = "record batch"
    END = "end of stream"
    FOOTER = "footer"
    UNCLAIMED = "unclaimed"
    UNREAD = "unread"
    OMITTED = "left out"


class ByteRangeKind(IntEnum):
    """The kind of a range of bytes with one meaning. `BODY` is a body that is not split into buffers."""

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
class ByteRanges:
    """Consecutive ranges of bytes, each an entry of three arrays of shape (n,).

    The arrays have the length in bytes (int64, never 0), the `ByteRangeKind` (uint8), and for a `BUFFER` its index
    among the buffers of its message (int32), else -1. Bytes of several overlapping buffers belong to the first of them.
    """

    lengths_bytes: npt.NDArray[np.int64]
    kinds: npt.NDArray[np.uint8]
    buffers: npt.NDArray[np.int32]

    @classmethod
    def from_sizes(cls, *sizes_and_kinds: tuple[int, ByteRangeKind]) -> ByteRanges:
        """Create ranges from sizes and kinds, without buffers, omitting empty ones."""
        non_empty = [(size, kind) for size, kind in sizes_and_kinds if size > 0]
        return cls(
            np.array([size for size, _ in non_empty], np.int64),
            np.array([kind for _, kind in non_empty], np.uint8),
            np.full(len(non_empty), -1, np.int32),
        )

    def concat(self, other: ByteRanges) -> ByteRanges:
        """Return these ranges followed by others."""
        return ByteRanges(
            np.concatenate([self.lengths_bytes, other.lengths_bytes]),
            np.concatenate([self.kinds, other.kinds]),
            np.concatenate([self.buffers, other.buffers]),
        )

    def head(self, count: int) -> ByteRanges:
        """Return the first ranges."""
        return ByteRanges(self.lengths_bytes[:count], self.kinds[:count], self.buffers[:count])

    @property
    def total_bytes(self) -> int:
        """The total size of the ranges."""
        return int(self.lengths_bytes.sum())

    def __len__(self) -> int:
        return len(self.kinds)


@dataclass(frozen=True, slots=True, eq=False)
class FileSection:
    """A message, the start of a file, the footer, or unclaimed bytes.

    - `number`: the index among sections of its kind, in the footer's order for batches of a file; -1 if not applicable
    - `message`: the header and the body's offset of a record or dictionary batch
    - `layout_index`: the index in `Anatomy.layouts` of the layout of its body, or -1 if it contradicts the schema
    - `is_listed`: whether the file's footer refers to it
    """

    kind: FileSectionKind
    start: int
    byte_ranges: ByteRanges
    number: int = -1
    message: BatchMessage | None = None
    layout_index: int = -1
    is_listed: bool = True

    @property
    def buffers(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The offsets and lengths of the body's buffers, as in the header of a batch, each of shape (buffers,)."""
        assert self.message is not None
        buffers = self.message.header.buffers()
        return buffers["offset"].astype(np.int64), buffers["length"].astype(np.int64)

    @property
    def stop(self) -> int:
        """The offset after the last byte."""
        return self.start + self.byte_ranges.total_bytes


@dataclass(frozen=True, slots=True)
class BodyField:
    """A field of a body, flattened («RecordBatch message»).

    `parent` is the index of its parent field, or -1; `column` is the index of its column in the schema.
    """

    name: str
    parent: int
    type: str
    column: int


@dataclass(frozen=True, slots=True)
class BodyBuffer:
    """The description of one buffer of a body («Buffer Listing for Each Layout»).

    It has the index of its field (and field node) in the layout, its role, and its element: a short NumPy dtype, "bit",
    or "" for bytes. A buffer with `is_variadic` is followed by the data buffers of its field, whose number is in the
    message («Variadic buffers»).
    """

    field: int
    role: str
    element: str
    is_variadic: bool = False


@dataclass(frozen=True, slots=True)
class BodyLayout:
    """The fields and buffers of a kind of body in the format's order; `dictionary_id` is None for record batches."""

    dictionary_id: int | None
    version: int
    fields: tuple[BodyField, ...]
    buffers: tuple[BodyBuffer, ...]

    @property
    def is_variadic(self) -> bool:
        """Whether the number of buffers depends on the message."""
        return any(buffer.is_variadic for buffer in self.buffers)

    def buffer_indices(self, variadic_counts: tuple[int, ...]) -> npt.NDArray[np.int64]:
        """Return the index in `buffers` of each buffer of a message, shape (n,); ~index for variadic data buffers."""
        variadic = [index for index, buffer in enumerate(self.buffers) if buffer.is_variadic]
        repeats = np.ones(len(self.buffers), np.int64)
        repeats[variadic] += np.array(variadic_counts, np.int64)
        indices = np.repeat(np.arange(len(self.buffers)), repeats)
        is_repeated = np.zeros(len(indices), np.bool_)
        is_repeated[1:] = indices[1:] == indices[:-1]
        return np.where(is_repeated, ~indices, indices)


@dataclass(frozen=True, slots=True)
class FaultAtOffset:
    """An error: its offset, and the message of the error that a reader would raise. Names are not escaped."""

    offset: int
    message: str


@dataclass(frozen=True, slots=True, eq=False)
class Anatomy:
    """The meaning of every byte of a file or a stream: the consecutive byte ranges of the sections cover all bytes.

    `inspection` is the report of `inspect` on the valid batches, or None without a schema. `faults` are the first
    errors in the structure, `fault_count` is their total; values are not checked. If `is_shortened`, a limit was
    reached: a section of kind `OMITTED` replaces the remaining messages, and `inspection` covers only those before it.
    """

    source: str
    format: Literal["file", "stream"]
    total_bytes: int
    sections: tuple[FileSection, ...]
    layouts: tuple[BodyLayout, ...]
    faults: tuple[FaultAtOffset, ...]
    fault_count: int
    inspection: Inspection | None
    role_bytes: dict[tuple[int, str], int]
    """The total size of the buffers of each column and role, without dictionaries."""
    is_shortened: bool = False

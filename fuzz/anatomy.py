"""Streams, files and tensor streams as pieces: taken apart leniently, put together so that mutations get deep.

Lengths, padding, end markers and the footer's blocks are made anew, so that a change of a message does not merely
break the framing. What a mutation wants to be wrong, it says: `lies` of a piece, `edits` of the footer.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from bowstring.errors import InvalidDataError
from bowstring.flatbuf.tables import BLOCK, HEADERS
from bowstring.ipc.message import CONTINUATION, END_OF_STREAM, FILE_START, MAGIC, frame_message, is_file_start
from fuzz.records import Node, cut, freeze, thaw

_TRAILER_BYTES = 10
_MAX_PIECES = 200
Edit = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]


@dataclass(slots=True)
class Piece:
    """An encapsulated message: its flatbuffer as a tree, and its body."""

    message: Node
    body: bytearray
    is_legacy: bool = False
    alignment: int = 8
    lies: dict[str, int] = field(default_factory=dict)
    """What to say in place of the truth: "metadata" or "body", in bytes."""

    @property
    def kind(self) -> str:
        """Which header the message has, as its number says."""
        number = self.message.slots.get("header_type", 0)
        return HEADERS[number] if 0 <= number < len(HEADERS) else ""

    @property
    def header(self) -> Node | None:
        """The header's tree."""
        found = self.message.slots.get("header")
        return found if isinstance(found, Node) else None

    @property
    def batch(self) -> Node | None:
        """The `RecordBatch` table of a record batch or of a dictionary batch."""
        header = self.header
        if header is not None and header.spec == "DictionaryBatch":
            header = header.slots.get("data")
        return header if isinstance(header, Node) and header.spec == "RecordBatch" else None

    def copy(self) -> Piece:
        """A copy that shares nothing."""
        return Piece(self.message.copy(), bytearray(self.body), self.is_legacy, self.alignment, dict(self.lies))

    def render(self, position: int) -> tuple[bytes, int]:
        """The message as it lies from byte `position` on, and how long it is up to its body."""
        if self.body or "bodyLength" in self.message.slots or "body" in self.lies:
            self.message.slots["bodyLength"] = self.lies.get("body", len(self.body))
        framed = frame_message(freeze(self.message), position, self.alignment, self.is_legacy)
        if "metadata" in self.lies:
            at = 0 if self.is_legacy else 4
            framed = framed[:at] + struct.pack("<i", cut("i", self.lies["metadata"])) + framed[at + 4 :]
        return framed + bytes(self.body), len(framed)


@dataclass(slots=True)
class Anatomy:
    """A stream, or with a `footer` a file."""

    pieces: list[Piece]
    footer: Node | None = None
    tail: bytes = b""
    edits: dict[str, Edit] = field(default_factory=dict)
    """Changes to the footer's blocks, by the name of their slot."""

    def trees(self) -> list[Node]:
        """The root of each flatbuffer."""
        return [piece.message for piece in self.pieces] + ([] if self.footer is None else [self.footer])

    def render(self) -> bytes:
        """The bytes."""
        out = bytearray(b"" if self.footer is None else FILE_START)
        blocks: dict[str, list[tuple[int, int, int, int]]] = {"DictionaryBatch": [], "RecordBatch": []}
        for piece in self.pieces:
            start = len(out)
            raw, framed_bytes = piece.render(start)
            out += raw
            if piece.kind in blocks:
                blocks[piece.kind].append((start, framed_bytes, 0, len(piece.body)))
        if self.footer is None:
            return bytes(out + self.tail)
        out += END_OF_STREAM
        for name, kind in (("dictionaries", "DictionaryBatch"), ("recordBatches", "RecordBatch")):
            made = np.array(blocks[kind], BLOCK)
            self.footer.slots[name] = self.edits[name](made) if name in self.edits else made
        footer = freeze(self.footer)
        return bytes(out + footer + struct.pack("<i", len(footer)) + MAGIC)


def dissect(data: bytes) -> Anatomy | None:
    """The pieces of a stream, a file or a tensor stream; None where there is not even one."""
    try:
        if not is_file_start(data):
            pieces, end = _pieces(data, 0)
            return Anatomy(pieces, None, data[end:][:64]) if pieces else None
        length = struct.unpack_from("<i", data, len(data) - _TRAILER_BYTES)[0]
        footer_at = len(data) - _TRAILER_BYTES - length
        if length <= 0 or footer_at < len(FILE_START):
            return None
        pieces, _ = _pieces(data[:footer_at], len(FILE_START))
        footer = thaw(data[footer_at : footer_at + length], "Footer")
        if pieces and pieces[0].kind == "Schema" and pieces[0].header is not None:
            footer.slots["schema"] = pieces[0].header  # one tree: what changes here changes there
        return Anatomy(pieces, footer) if pieces else None
    except (InvalidDataError, struct.error, RecursionError):
        return None


def _pieces(data: bytes, at: int) -> tuple[list[Piece], int]:
    pieces: list[Piece] = []
    while at + 8 <= len(data) and len(pieces) < _MAX_PIECES:
        is_legacy = data[at : at + 4] != CONTINUATION
        start = at + (4 if is_legacy else 8)
        length = struct.unpack_from("<i", data, start - 4)[0]
        if length <= 0 or start + length > len(data):
            break
        try:
            message = thaw(data[start : start + length], "Message")
        except InvalidDataError:
            break
        body_bytes = max(message.slots.get("bodyLength", 0), 0)
        body = bytearray(data[start + length : start + length + body_bytes])
        pieces.append(Piece(message, body, is_legacy, 64 if (start + length) % 64 == 0 else 8))
        at = start + length + len(body)
    return pieces, at

"""Streams, files and tensor streams as lists of editable messages, parsed leniently.

Encoding recomputes lengths, padding, end markers and the footer's blocks, so that an edited message has valid framing
and its error is deeper. Invalid framing is requested explicitly: `false_lengths` of a message, `block_edits` of the
footer.
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
from fuzz.flatbuffers import TableNode, encode_table, parse_table, truncate

_TRAILER_BYTES = 10
_MAX_MESSAGES = 200
BlockEdit = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]


@dataclass(slots=True)
class EditableMessage:
    """An encapsulated message: its flatbuffer as a tree of tables, and its body."""

    message: TableNode
    body: bytearray
    is_legacy: bool = False
    alignment: int = 8
    false_lengths: dict[str, int] = field(default_factory=dict)
    """Lengths in bytes to write instead of the real ones, for "metadata" or "body"."""

    @property
    def kind(self) -> str:
        """The name of the header's type."""
        number = self.message.slots.get("header_type", 0)
        return HEADERS[number] if 0 <= number < len(HEADERS) else ""

    @property
    def header(self) -> TableNode | None:
        """The header's table."""
        header = self.message.slots.get("header")
        return header if isinstance(header, TableNode) else None

    @property
    def batch(self) -> TableNode | None:
        """The `RecordBatch` table of a record batch or of a dictionary batch."""
        header = self.header
        if header is not None and header.definition == "DictionaryBatch":
            header = header.slots.get("data")
        return header if isinstance(header, TableNode) and header.definition == "RecordBatch" else None

    def copy(self) -> EditableMessage:
        """A deep copy."""
        return EditableMessage(
            self.message.copy(), bytearray(self.body), self.is_legacy, self.alignment, dict(self.false_lengths)
        )

    def encode(self, offset: int) -> tuple[bytes, int]:
        """The message at byte `offset` of its stream, and its length without the body."""
        if self.body or "bodyLength" in self.message.slots or "body" in self.false_lengths:
            self.message.slots["bodyLength"] = self.false_lengths.get("body", len(self.body))
        message = frame_message(encode_table(self.message), offset, self.alignment, self.is_legacy)
        if "metadata" in self.false_lengths:
            length_offset = 0 if self.is_legacy else 4
            message = (
                message[:length_offset]
                + struct.pack("<i", truncate("i", self.false_lengths["metadata"]))
                + message[length_offset + 4 :]
            )
        return message + bytes(self.body), len(message)


@dataclass(slots=True)
class EditableStream:
    """A stream, or a file if it has a `footer`."""

    messages: list[EditableMessage]
    footer: TableNode | None = None
    trailing: bytes = b""
    block_edits: dict[str, BlockEdit] = field(default_factory=dict)
    """Functions that change the footer's blocks, by slot name."""

    def roots(self) -> list[TableNode]:
        """The root of each flatbuffer."""
        return [message.message for message in self.messages] + ([] if self.footer is None else [self.footer])

    def encode(self) -> bytes:
        """The bytes."""
        out = bytearray(b"" if self.footer is None else FILE_START)
        blocks: dict[str, list[tuple[int, int, int, int]]] = {"DictionaryBatch": [], "RecordBatch": []}
        for message in self.messages:
            start = len(out)
            raw, metadata_bytes = message.encode(start)
            out += raw
            if message.kind in blocks:
                blocks[message.kind].append((start, metadata_bytes, 0, len(message.body)))
        if self.footer is None:
            return bytes(out + self.trailing)
        out += END_OF_STREAM
        for name, kind in (("dictionaries", "DictionaryBatch"), ("recordBatches", "RecordBatch")):
            block_array = np.array(blocks[kind], BLOCK)
            self.footer.slots[name] = self.block_edits[name](block_array) if name in self.block_edits else block_array
        footer = encode_table(self.footer)
        return bytes(out + footer + struct.pack("<i", len(footer)) + MAGIC)


def parse_stream(data: bytes) -> EditableStream | None:
    """The messages of a stream, a file or a tensor stream; None if there are none."""
    try:
        if not is_file_start(data):
            messages, end = _parse_messages(data, 0)
            return EditableStream(messages, None, data[end:][:64]) if messages else None
        length = struct.unpack_from("<i", data, len(data) - _TRAILER_BYTES)[0]
        footer_offset = len(data) - _TRAILER_BYTES - length
        if length <= 0 or footer_offset < len(FILE_START):
            return None
        messages, _ = _parse_messages(data[:footer_offset], len(FILE_START))
        footer = parse_table(data[footer_offset : footer_offset + length], "Footer")
        if messages and messages[0].kind == "Schema" and messages[0].header is not None:
            footer.slots["schema"] = messages[0].header  # the same object: edits apply to both
        return EditableStream(messages, footer) if messages else None
    except (InvalidDataError, struct.error, RecursionError):
        return None


def _parse_messages(data: bytes, offset: int) -> tuple[list[EditableMessage], int]:
    messages: list[EditableMessage] = []
    while offset + 8 <= len(data) and len(messages) < _MAX_MESSAGES:
        is_legacy = data[offset : offset + 4] != CONTINUATION
        start = offset + (4 if is_legacy else 8)
        length = struct.unpack_from("<i", data, start - 4)[0]
        if length <= 0 or start + length > len(data):
            break
        try:
            root = parse_table(data[start : start + length], "Message")
        except InvalidDataError:
            break
        body_bytes = max(root.slots.get("bodyLength", 0), 0)
        body = bytearray(data[start + length : start + length + body_bytes])
        messages.append(EditableMessage(root, body, is_legacy, 64 if (start + length) % 64 == 0 else 8))
        offset = start + length + len(body)
    return messages, offset

"""Ends of messages and padding («Encapsulated message format», «Buffer Alignment and Padding»)."""

from __future__ import annotations

from bowstring.io.sources import RandomAccess
from bowstring.ipc.tools.scan import BatchSpan

_MAX_PADDING_BYTES = 64


def next_message_offset(span: BatchSpan) -> int:
    """Return the offset of the next message: messages are padded to multiples of 8 bytes, wherever they begin."""
    size_bytes = span.metadata_bytes + span.header.body_bytes
    return span.start + size_bytes + -size_bytes % 8


def next_offset_by_buffers(span: BatchSpan) -> int:
    """Return the offset of the next message by the buffers, in case the body length is too large because of damage."""
    buffers = span.header.buffers()
    used = int((buffers["offset"] + buffers["length"]).max()) if len(buffers) else 0
    size_bytes = span.metadata_bytes + min(used + -used % 64, span.header.body_bytes)
    return span.start + size_bytes + -size_bytes % 8


def has_nonzero_padding(span: BatchSpan, source: RandomAccess) -> bool:
    """Whether bytes between the buffers of a body, or after the last one, are not zero as writers leave them."""
    buffers, paddings, end = span.header.buffers(), [], 0
    for start, stop in sorted(
        zip(buffers["offset"].tolist(), (buffers["offset"] + buffers["length"]).tolist(), strict=True)
    ):
        if stop > start:
            if 0 < start - end < _MAX_PADDING_BYTES:
                paddings.append((span.body_at + end, start - end))
            end = max(end, stop)
    chunks = source.fetch(paddings)
    return any(any(chunks.read(*padding)) for padding in paddings) or any(read_end_padding(span, source))


def read_end_padding(span: BatchSpan, source: RandomAccess) -> bytes:
    """Return the padding after the last buffer of a body."""
    buffers = span.header.buffers()
    end = int((buffers["offset"] + buffers["length"]).max()) if len(buffers) else 0
    return source.read_at(span.body_at + end, min(_MAX_PADDING_BYTES, span.header.body_bytes - end))

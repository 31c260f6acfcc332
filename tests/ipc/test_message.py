"""Encapsulated messages, read from bytes without I/O."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from bowstring.errors import FormatMismatchError, InvalidDataError, LimitError, TruncatedError
from bowstring.ipc.limits import ReadLimits
from bowstring.ipc.message import (
    CONTINUATION,
    END_OF_STREAM,
    LEGACY_END_OF_STREAM,
    EndOfStream,
    Message,
    MessageLocation,
    MessageReader,
    check_body_limit,
    frame_message,
)

METADATA = b"24 bytes of metadata....."[:24]
BODY = bytes(16)


@dataclass
class Header:
    """A decoded header: its bytes, and the size of its body."""

    raw: bytes
    body_bytes: int


def read_header(raw: bytes, _location: MessageLocation) -> Header:
    return Header(raw, len(BODY))


def reader_of(limits: ReadLimits | None = None, **options: object) -> MessageReader[Header]:
    return MessageReader("a.arrows", limits or ReadLimits(), read_header, **options)  # type: ignore[arg-type]


def read_all(raw: bytes, reader: MessageReader[Header]) -> list[Message[Header] | EndOfStream]:
    """Read a stream from its beginning, and skip the bodies."""
    events: list[Message[Header] | EndOfStream] = []
    position = 0

    def read(offset: int, size: int) -> bytes:
        nonlocal position
        assert offset == position
        chunk = raw[position : position + size]
        position += len(chunk)
        return chunk

    while not events or isinstance(events[-1], Message):
        events.append(reader.read(read))
        if isinstance(events[-1], Message):
            assert position == events[-1].body_offset
            reader.check_body_is_complete(events[-1], len(raw) - position)
            position = events[-1].stop
    return events


@pytest.mark.parametrize("is_legacy", [False, True])
def test_a_reader_gives_the_positions_of_messages_in_both_framings(is_legacy: bool) -> None:
    prefix_bytes = 4 if is_legacy else 8
    first = frame_message(METADATA, is_legacy_framing=is_legacy) + BODY
    second = frame_message(METADATA, len(first), is_legacy_framing=is_legacy) + BODY
    marker = LEGACY_END_OF_STREAM if is_legacy else END_OF_STREAM
    *messages, end = read_all(first + second + marker, reader_of())
    assert [(m.offset, m.stop) for m in messages if isinstance(m, Message)] == [
        (0, len(first)),
        (len(first), len(first) + len(second)),
    ]
    for message in messages:
        assert isinstance(message, Message)
        assert message.prefix_bytes == prefix_bytes
        assert message.header.raw.startswith(METADATA)
        assert message.body_bytes == len(BODY)
    assert end == EndOfStream(len(first) + len(second), len(marker))


def test_a_stream_may_end_without_a_marker() -> None:
    raw = frame_message(METADATA) + BODY
    assert read_all(raw, reader_of())[-1] == EndOfStream(len(raw), 0)


def test_a_sequential_reader_needs_no_byte_after_a_legacy_end_marker() -> None:
    requests: list[tuple[int, int]] = []

    def read_at(offset: int, size: int) -> bytes:
        requests.append((offset, size))
        return LEGACY_END_OF_STREAM

    assert reader_of().read(read_at) == EndOfStream(0, 4)
    assert requests == [(0, len(LEGACY_END_OF_STREAM))]


@pytest.mark.parametrize("is_legacy", [False, True])
def test_a_seekable_reader_reads_messages_at_any_offset(is_legacy: bool) -> None:
    raw = bytes(40) + frame_message(METADATA, is_legacy_framing=is_legacy) + BODY

    def read_at(offset: int, size: int) -> bytes:
        return raw[offset : offset + size]

    reader = reader_of(is_seekable=True)
    reader.seek(40)
    message = reader.read(read_at, len(raw))
    assert isinstance(message, Message)
    assert (message.offset, message.stop) == (40, len(raw))
    reader.seek(40)
    with pytest.raises(TruncatedError, match=r"a\.arrows: message at byte 40: expected \d+ bytes of metadata at byte"):
        reader.read(read_at, 60)


@pytest.mark.parametrize("is_legacy", [False, True])
def test_a_stream_that_is_cut_off_within_a_message_is_truncated(is_legacy: bool) -> None:
    raw = frame_message(METADATA, is_legacy_framing=is_legacy) + BODY
    for stop in range(1, len(raw)):
        with pytest.raises(TruncatedError, match=r"a\.arrows: message 0 at byte 0: expected .* at byte \d+, found \d+"):
            read_all(raw[:stop], reader_of())


def test_limits_are_applied_before_bytes_are_read() -> None:
    limits = ReadLimits(max_metadata_bytes=1 << 10, max_body_bytes=8)
    with pytest.raises(LimitError, match=r"1025 bytes of metadata exceed the limit of 1024 \(max_metadata_bytes\)"):
        read_all(CONTINUATION + (1025).to_bytes(4, "little"), reader_of(limits))
    raw = frame_message(METADATA)
    message = reader_of(limits).read(lambda offset, size: raw[offset : offset + size])
    assert isinstance(message, Message)
    with pytest.raises(LimitError, match=r"a body of 16 bytes exceeds the limit of 8 \(max_body_bytes\)"):
        check_body_limit("a.arrows", message.offset, message.body_bytes, limits)


def test_a_negative_metadata_length_is_malformed() -> None:
    with pytest.raises(InvalidDataError, match="expected a metadata length of 0 or more, found -2"):
        read_all(CONTINUATION + (-2).to_bytes(4, "little", signed=True), reader_of())


@pytest.mark.parametrize(
    ("start", "name"),
    [
        (b"PAR1\0\0\0\0", "a Parquet file"),
        (b"ARROW1\0\0", "an Arrow file: use open_file"),
        (b"a,b\n1,2\n", "text, perhaps CSV"),
        ("größe,b".encode(), "text, perhaps CSV"),
        (b'{"a": 1}', "text, perhaps JSON"),
        (b" \0\0\0\0\0\0", "other bytes"),
    ],
)
def test_other_formats_are_recognised_at_the_beginning(start: bytes, name: str) -> None:
    with pytest.raises(FormatMismatchError, match=f"a.arrows: expected an Arrow stream, found {name}"):
        read_all(start, reader_of(expected_format="an Arrow stream"))

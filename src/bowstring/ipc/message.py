"""Encapsulated messages («Encapsulated message format»), current and legacy framing, without I/O.

A message begins with the marker 0xFFFFFFFF and the size of its metadata. Before format version 0.15 it began with the
size. `MessageReader` reads both; `frame_message` writes the current framing, or the legacy one by option.
"""

from __future__ import annotations

import struct
import sys
from codecs import getincrementaldecoder
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from bowstring.errors import FormatMismatchError, InvalidDataError, LimitError, NoDataError, TruncatedError
from bowstring.ipc.limits import ReadLimits

MAGIC = b"ARROW1"
MEDIA_TYPES = {"file": "application/vnd.apache.arrow.file", "stream": "application/vnd.apache.arrow.stream"}
"""Media types of the formats, as registered with IANA."""
FILE_START = MAGIC + b"\0\0"
CONTINUATION = b"\xff\xff\xff\xff"
END_OF_STREAM = CONTINUATION + bytes(4)
LEGACY_END_OF_STREAM = bytes(4)
# «Encapsulated message format»: the continuation marker and the length, before Arrow 0.15 only the length.
PREFIX_BYTES = 8
LEGACY_PREFIX_BYTES = 4
MAX_ALIGNMENT_BYTES = 64
"""The alignment that the format recommends, and no writer exceeds: padding is shorter."""

_LENGTH = struct.Struct("<i")

_CONVERT_HINT = "bowstring convert and bowstring.read_table read Parquet, and CSV and JSON by the extension of the name"
_DECOMPRESS_HINT = "decompress it; bowstring convert reads compressed CSV and JSON directly"
_FOREIGN_FORMATS = (
    (b"PAR1", "a Parquet file", _CONVERT_HINT),
    (b"PARE", "an encrypted Parquet file", ""),
    (b"FEA1", "a Feather file of version 1", "pyarrow.feather.read_table reads it, and bowstring.table its result"),
    (b"ORC", "an ORC file", "pyarrow.orc.read_table reads it, and bowstring.table its result"),
    (b"\x1f\x8b", "data compressed with gzip", _DECOMPRESS_HINT),
    (b"\x28\xb5\x2f\xfd", "data compressed with Zstandard", _DECOMPRESS_HINT),
    (b"\x04\x22\x4d\x18", "data compressed with LZ4", _DECOMPRESS_HINT),
    (b"BZh", "data compressed with bzip2", _DECOMPRESS_HINT),
    (b"PK\x03\x04", "a ZIP archive", ""),
    (b"SQLite format 3", "an SQLite database", ""),
    (b"Obj\x01", "an Avro file", ""),
    (b"\x89HDF", "an HDF5 file", ""),
)
"""The first bytes of other formats, their names, and a way to read them, if any."""


Header = TypeVar("Header")
MessageLocation: TypeAlias = tuple[object, ...]
"""The words that name a message in errors; they are joined with spaces only if there is an error."""


class Message(NamedTuple, Generic[Header]):
    """A message without its body: the decoded header and the positions of its parts.

    `offset` is the first byte, `metadata_bytes` the size up to the body, which includes the prefix of `prefix_bytes`
    (8, or 4 in the legacy framing) and padding.
    """

    header: Header
    offset: int
    prefix_bytes: int
    metadata_bytes: int
    body_bytes: int

    @property
    def body_offset(self) -> int:
        """The first byte of the body."""
        return self.offset + self.metadata_bytes

    @property
    def block(self) -> Block:
        """The message's position, as in a footer."""
        return self.offset, self.metadata_bytes, self.body_bytes

    @property
    def stop(self) -> int:
        """The byte after the body."""
        return self.offset + self.metadata_bytes + self.body_bytes


class EndOfStream(NamedTuple):
    """The end of a stream: the marker at `offset` has 8 bytes, 4 in the legacy framing, 0 if the source ended."""

    offset: int
    size_bytes: int

    @property
    def stop(self) -> int:
        """The byte after the marker."""
        return self.offset + self.size_bytes


Block: TypeAlias = tuple[int, int, int]
"""The position of a message in a file («Block» in the footer): offset, metadata_bytes as in `Message`, body_bytes."""


class MessageReader(Generic[Header]):
    """Reads encapsulated messages with a function of the caller. The caller reads, maps or skips the bodies.

    `name` is the name of the source. `read_header` decodes the metadata; its result has the attribute `body_bytes`
    unless the message has no body. With `expected_format`, bytes of another format at the beginning raise
    `FormatMismatchError`. `is_seekable` says that bytes after a message may be read; otherwise nothing after the end
    marker of the legacy framing, which has 4 bytes, is needed.
    """

    __slots__ = ("_expected_format", "_first_bytes", "_index", "_limits", "_name", "_read_header", "_start")

    def __init__(
        self,
        name: str,
        limits: ReadLimits,
        read_header: Callable[[bytes, MessageLocation], Header],
        offset: int = 0,
        expected_format: str | None = None,
        is_seekable: bool = False,
    ) -> None:
        self._name = f"{name}:"
        self._limits = limits
        self._read_header = read_header
        self._start = offset
        self._expected_format = expected_format
        self._index: int | None = 0
        self._first_bytes = PREFIX_BYTES if is_seekable else LEGACY_PREFIX_BYTES

    def seek(self, offset: int) -> None:
        """Expect a message at a byte offset. Errors then name messages by their offset only."""
        self._index = None
        self._start = offset

    def read(self, read_at: Callable[[int, int], bytes], stop: int = sys.maxsize) -> Message[Header] | EndOfStream:
        """Read the next message without its body; the one after the body is next.

        `read_at(offset, size)` returns the bytes at an offset, fewer only at the end of the source; unless the reader
        is seekable, the calls are in order and without gaps. Nothing from byte `stop` on is read. Raises
        `TruncatedError` if the source ends within a message, `LimitError` for metadata above `max_metadata_bytes`,
        `FormatMismatchError`, and the errors of `read_header`.
        """
        start = self._start
        prefix = read_at(start, min(self._first_bytes, stop - start))
        if prefix == CONTINUATION:
            # Only now ask for the length: a socket may end with the legacy end marker, which has 4 bytes.
            prefix += read_at(start + LEGACY_PREFIX_BYTES, min(LEGACY_PREFIX_BYTES, stop - start - LEGACY_PREFIX_BYTES))
        elif not prefix:
            return EndOfStream(start, 0)
        prefix_bytes = get_prefix_size(prefix)
        prefix = prefix[:prefix_bytes]
        if len(prefix) < prefix_bytes:
            raise self._truncated_error("a message's length", start, prefix_bytes, len(prefix))
        size_bytes: int = _LENGTH.unpack_from(prefix, prefix_bytes - 4)[0]
        # The first bytes of another format would be read as a legacy prefix.
        may_be_other_format = prefix_bytes == LEGACY_PREFIX_BYTES and self._index == 0 and self._expected_format
        if may_be_other_format:
            self._reject_other_formats(prefix, size_bytes)
        if not size_bytes:
            self._start = start + prefix_bytes
            return EndOfStream(start, prefix_bytes)
        location = self._get_location()
        check_metadata_size(size_bytes, location, self._limits)
        metadata_offset = start + prefix_bytes
        metadata = read_at(metadata_offset, min(size_bytes, stop - metadata_offset))
        if len(metadata) < size_bytes:
            if may_be_other_format and not is_stream_start(prefix + metadata):
                raise self._format_mismatch_error(prefix + metadata)
            raise self._truncated_error("metadata", metadata_offset, size_bytes, len(metadata))
        header = self._read_header(metadata, location)
        message = Message(header, start, prefix_bytes, prefix_bytes + size_bytes, getattr(header, "body_bytes", 0))
        if self._index is not None:
            self._index += 1
        self._start = message.stop
        return message

    def check_body_is_complete(self, message: Message[Any], size_bytes: int) -> None:
        """Raise `TruncatedError` if the source has only `size_bytes` bytes of a message's body."""
        if size_bytes < message.body_bytes:
            # The reader expects the next message already, but the error is about this one.
            self._start = message.offset
            if self._index is not None:
                self._index -= 1
            raise self._truncated_error("a body", message.body_offset, message.body_bytes, size_bytes)

    def _get_location(self) -> MessageLocation:
        if self._index is None:
            return (self._name, "message", "at byte", self._start)
        return (self._name, "message", self._index, "at byte", self._start)

    def _truncated_error(self, part: str, offset: int, expected: int, actual: int) -> TruncatedError:
        location = format_location(self._get_location())
        return TruncatedError(
            f"{location}: expected {expected} bytes of {part} at byte {offset}, found {actual}: the stream is cut off"
        )

    def _reject_other_formats(self, prefix: bytes, size_bytes: int) -> None:
        if MAGIC.startswith(prefix):
            raise FormatMismatchError(
                f"{self._name} expected {self._expected_format}, found an Arrow file: use open_file"
            )
        if _detect_foreign_format(prefix) or not 0 <= size_bytes <= self._limits.max_metadata_bytes:
            raise self._format_mismatch_error(prefix)

    def _format_mismatch_error(self, first_bytes: bytes) -> FormatMismatchError | TruncatedError:
        return format_mismatch_error(self._name[:-1], str(self._expected_format), first_bytes)


def format_location(location: MessageLocation) -> str:
    """Join the words that name a message."""
    return " ".join(map(str, location))


def check_metadata_size(size_bytes: int, location: MessageLocation, limits: ReadLimits) -> None:
    """Raise `InvalidDataError` for a negative size of metadata, `LimitError` for one above `max_metadata_bytes`."""
    if size_bytes < 0:
        raise InvalidDataError(
            f"{format_location(location)}: expected a metadata length of 0 or more, found {size_bytes}"
        )
    if size_bytes > limits.max_metadata_bytes:
        raise metadata_limit_error(size_bytes, location, limits)


def check_body_limit(name: str, offset: int, body_bytes: int, limits: ReadLimits) -> None:
    """Raise `LimitError` if a body to be read into new memory exceeds the limit; its message is at `offset` of the
    source called `name`.
    """
    if body_bytes > limits.max_body_bytes:
        raise LimitError(
            f"{name}: message at byte {offset}: a body of {body_bytes} bytes exceeds the limit of "
            f"{limits.max_body_bytes} (max_body_bytes)"
        )


def metadata_limit_error(size_bytes: int, location: MessageLocation, limits: ReadLimits) -> LimitError:
    """Return the error for metadata above `max_metadata_bytes`."""
    return LimitError(
        f"{format_location(location)}: {size_bytes} bytes of metadata exceed the limit of {limits.max_metadata_bytes} "
        "(max_metadata_bytes)"
    )


def get_prefix_size(first_bytes: bytes | memoryview) -> int:
    """The size in bytes of the prefix of a message that starts with these bytes: 8, or 4 in the legacy framing."""
    return PREFIX_BYTES if first_bytes[:4] == CONTINUATION else LEGACY_PREFIX_BYTES


def parse_prefix(first_bytes: bytes | memoryview) -> tuple[int, int]:
    """The size in bytes of the prefix of a message that starts with these 8 bytes, and of the metadata after it."""
    prefix_bytes = get_prefix_size(first_bytes)
    return prefix_bytes, _LENGTH.unpack_from(first_bytes, prefix_bytes - 4)[0]


def parse_first_message_prefix(start: bytes, available_bytes: int) -> tuple[int, int]:
    """The sizes in bytes of the metadata and the prefix of the first message of a file; zeros if it is not valid or not
    within `available_bytes`. `start` are the bytes after the magic. Readers do not need this message.
    """
    if len(start) < PREFIX_BYTES or not is_stream_start(start):
        return 0, 0
    prefix_bytes, size_bytes = parse_prefix(start)
    return (size_bytes, prefix_bytes) if 0 <= size_bytes <= available_bytes - prefix_bytes else (0, 0)


def frame_message(metadata: bytes, position: int = 0, alignment: int = 8, is_legacy_framing: bool = False) -> bytes:
    """Return marker, length, metadata and padding of a message at byte `position`, so that its body is aligned.

    The legacy framing has no marker.
    """
    marker = b"" if is_legacy_framing else CONTINUATION
    padding = -(position + len(marker) + LEGACY_PREFIX_BYTES + len(metadata)) % alignment
    return marker + _LENGTH.pack(len(metadata) + padding) + metadata + bytes(padding)


def is_file_start(first_bytes: bytes) -> bool:
    """Whether bytes begin with the magic of the file format."""
    return first_bytes[: len(MAGIC)] == MAGIC


def is_stream_start(first_bytes: bytes) -> bool:
    """Whether bytes may begin a stream: with the marker, or a plausible legacy length and root offset."""
    if first_bytes[:4] == CONTINUATION:
        return True
    if len(first_bytes) < 8:
        return False
    length_bytes, root = struct.unpack_from("<iI", first_bytes)
    return bool(0 < length_bytes < 1 << 28 and length_bytes % 4 == 0 and 4 <= root < min(length_bytes, 1 << 12))


def format_mismatch_error(name: str, expected: str, first_bytes: bytes) -> FormatMismatchError | TruncatedError:
    """Return the error for a source that begins with these bytes, which are not Arrow data or too few to decide.

    A note names a way to read the format, if any.
    """
    if not first_bytes:
        return NoDataError(f"{name}: expected {expected}, but it is empty")
    if MAGIC.startswith(first_bytes):
        return TruncatedError(f"{name}: expected {expected}, found only {len(first_bytes)} bytes")
    actual, hint = _detect_foreign_format(first_bytes) or _describe_text(first_bytes) or ("other bytes", "")
    error = FormatMismatchError(f"{name}: expected {expected}, found {actual} (it begins with {first_bytes[:8]!r})")
    if hint:
        error.add_note(hint)
    return error


def _detect_foreign_format(first_bytes: bytes) -> tuple[str, str] | None:
    """Return the name of another format and a way to read it, None if unknown."""
    return next(((name, hint) for magic, name, hint in _FOREIGN_FORMATS if first_bytes.startswith(magic)), None)


def _describe_text(first_bytes: bytes) -> tuple[str, str] | None:
    """Return what text may be and a way to read it, None for bytes that are not UTF-8, or have control characters."""
    try:
        # Incrementally, because the last character may be cut off.
        text = getincrementaldecoder("utf-8")().decode(first_bytes).removeprefix("\ufeff")
    except UnicodeDecodeError:
        return None
    if not all(character.isprintable() or character.isspace() for character in text):
        return None
    return f"text, perhaps {'JSON' if text.lstrip()[:1] in ('{', '[') else 'CSV'}", _CONVERT_HINT


@dataclass(frozen=True, slots=True, weakref_slot=True)
class MessageCounts:
    """Numbers of messages that were written or read: all of them, the schema included, and those with record batches
    and with dictionaries. As `pyarrow.ipc.WriteStats` and `ReadStats`.

    >>> table = bs.table({"a": [1, 2]})
    >>> with bs.new_file("a.arrow", table.schema) as writer:
    ...     writer.write_table(table)
    >>> writer.stats
    MessageCounts(num_messages=2, num_record_batches=1, num_dictionary_batches=0)
    """

    num_messages: int
    num_record_batches: int
    num_dictionary_batches: int

"""Encapsulated messages («Encapsulated message format»): where one begins and how long its metadata is. No input or
output.

Since format version 0.15 a message begins with the marker 0xFFFFFFFF; before, it began with the length itself. Both are
read; the current one is written, and the older one by option.
"""

from __future__ import annotations

import struct

from bowstring.errors import FormatMismatchError, InvalidDataError, LimitError

MAGIC = b"ARROW1"
MEDIA_TYPES = {"file": "application/vnd.apache.arrow.file", "stream": "application/vnd.apache.arrow.stream"}
"""What the formats are called where they are sent, as registered with IANA."""
FILE_START = MAGIC + b"\0\0"
CONTINUATION = b"\xff\xff\xff\xff"
END_OF_STREAM = CONTINUATION + bytes(4)
LEGACY_END_OF_STREAM = bytes(4)
PREFIX_BYTES = 8
LEGACY_PREFIX_BYTES = 4

_LENGTH = struct.Struct("<i")

_FOREIGN = (
    (b"PAR1", "a Parquet file"),
    (b"PARE", "an encrypted Parquet file"),
    (b"FEA1", "a Feather file of version 1"),
    (b"ORC", "an ORC file"),
    (b"\x1f\x8b", "compressed with gzip"),
    (b"\x28\xb5\x2f\xfd", "compressed with Zstandard"),
    (b"\x04\x22\x4d\x18", "compressed with LZ4"),
    (b"BZh", "compressed with bzip2"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"SQLite format 3", "an SQLite database"),
    (b"Obj\x01", "an Avro file"),
    (b"\x89HDF", "an HDF5 file"),
    (b"{", "text that looks like JSON"),
)


def parse_prefix(prefix: bytes, where: str, max_bytes: int) -> tuple[int, int]:
    """The length in bytes of the metadata after `prefix`, and the length of the prefix itself (8, or 4 in the legacy
    form).

    `prefix` is the first 8 bytes of a message, or the first 4 where they are zero: a length of 0 ends the stream.
    Raises `InvalidDataError` for a negative length, `LimitError` for one above `max_bytes`.
    """
    if prefix[:4] == CONTINUATION:
        length_bytes, prefix_bytes = _LENGTH.unpack_from(prefix, 4)[0], PREFIX_BYTES
    else:
        length_bytes, prefix_bytes = _LENGTH.unpack_from(prefix, 0)[0], LEGACY_PREFIX_BYTES
    if length_bytes < 0:
        raise InvalidDataError(f"{where}: expected a metadata length of 0 or more, found {length_bytes}")
    if length_bytes > max_bytes:
        raise LimitError(
            f"{where}: {length_bytes} bytes of metadata are more than the limit of {max_bytes} (max_metadata_bytes)"
        )
    return length_bytes, prefix_bytes


def parse_leading_prefix(start: bytes, room_bytes: int) -> tuple[int, int]:
    """The length of the metadata of the message that a file begins with, and of its prefix; zeros where none lies
    within so many bytes. `start` is what comes behind the magic. No reader of a file needs it: it may be damaged.
    """
    if len(start) < PREFIX_BYTES or not is_stream_start(start):
        return 0, 0
    try:
        length_bytes, prefix_bytes = parse_prefix(start, "schema", room_bytes)
    except InvalidDataError:
        return 0, 0
    return (length_bytes, prefix_bytes) if prefix_bytes + length_bytes <= room_bytes else (0, 0)


def frame_message(metadata: bytes, position: int = 0, alignment: int = 8, is_legacy: bool = False) -> bytes:
    """Marker, length, metadata and padding of a message that begins at byte `position`, so that its body is aligned.

    The legacy form has no marker.
    """
    marker = b"" if is_legacy else CONTINUATION
    padding = -(position + len(marker) + LEGACY_PREFIX_BYTES + len(metadata)) % alignment
    return marker + _LENGTH.pack(len(metadata) + padding) + metadata + bytes(padding)


def detect_foreign_format(start: bytes) -> str | None:
    """What the first bytes of something that is no Arrow data say it is; None where they say nothing."""
    return next((name for magic, name in _FOREIGN if start.startswith(magic)), None)


def is_file_start(start: bytes) -> bool:
    """Whether bytes begin as the file format does."""
    return start[: len(MAGIC)] == MAGIC


def is_stream_start(start: bytes) -> bool:
    """Whether bytes may begin a stream: the marker, or in the legacy form a plausible length and root offset."""
    if start[:4] == CONTINUATION:
        return True
    if len(start) < 8:
        return False
    length_bytes, root = struct.unpack_from("<iI", start)
    return bool(0 < length_bytes < 1 << 28 and length_bytes % 4 == 0 and 4 <= root < min(length_bytes, 1 << 12))


def format_mismatch(where: str, expected: str, found: str) -> FormatMismatchError:
    """The error for bytes of another format."""
    return FormatMismatchError(f"{where}: expected {expected}, found {found}")

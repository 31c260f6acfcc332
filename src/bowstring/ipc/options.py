"""Options for writing messages, with the variants of the format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from bowstring.errors import UsageError
from bowstring.ipc.codecs import compressor
from bowstring.ipc.metadata.schema import V4, V5
from bowstring.layouts.base import Layout

ByteOrder = Literal["little", "big"]
MetadataVersion = Literal["V4", "V5"]
DictionaryDeltas = Literal["auto", "always", "never"]


@dataclass(frozen=True, slots=True)
class IpcWriteOptions:
    """The form of a stream or a file. Readers recognise each of them; the defaults are what everything reads, but that
    some readers know no deltas.

    - `byte_order`: of the numbers in bodies, "little" or "big" («Schema message», endianness)
    - `metadata_version`: "V5", or "V4", in which unions and run-end encoded arrays have a validity buffer
    - `is_legacy_framing`: messages begin with their length, without the marker before it, as they did up to Arrow 0.14
    - `compression`, `compression_level`: of bodies, "lz4" or "zstd" («Compression»); a level of None is a quick one
    - `dictionary_deltas`: "auto" writes the end of a dictionary that goes on where the one before ended, not all of it
      («Dictionary Messages»); but one with dictionaries inside only in a file, where it can't be replaced, as pyarrow
      reads no such delta. "always" in streams, too. "never": it is replaced, and refused in a file
    - `share_dictionaries`: fields that have one dictionary, the same memory, in the first batch share its id, and it is
      written once; the schema then goes out with that batch
    - `unify_dictionaries`: for readers that know neither deltas nor replacements nor shared ids: each field has one
      dictionary for all batches, `write_table` unites those of its batches, and a value that comes later is refused

    Raises `UsageError` for a value that is none of these, `MissingExtraError` where the codec is not installed.
    """

    byte_order: ByteOrder = "little"
    metadata_version: MetadataVersion = "V5"
    is_legacy_framing: bool = False
    compression: str | None = None
    compression_level: int | None = None
    dictionary_deltas: DictionaryDeltas = "auto"
    share_dictionaries: bool = True
    unify_dictionaries: bool = False

    def __post_init__(self) -> None:
        for name, value, choices in (
            ("byte_order", self.byte_order, get_args(ByteOrder)),
            ("metadata_version", self.metadata_version, get_args(MetadataVersion)),
            ("dictionary_deltas", self.dictionary_deltas, get_args(DictionaryDeltas)),
        ):
            if value not in choices:
                raise UsageError(f"{name} is {' or '.join(map(repr, choices))}, not {value!r}")
        if self.compression is not None:
            if self.metadata_version == "V4":
                raise UsageError("bodies are compressed from metadata version V5 on: others read V4 as not compressed")
            compressor(self.compression, self.compression_level)
        elif self.compression_level is not None:
            raise UsageError(f"compression_level {self.compression_level!r} without compression")

    @property
    def version(self) -> int:
        """The number of the metadata version."""
        return V4 if self.metadata_version == "V4" else V5

    @property
    def is_big_endian(self) -> bool:
        """Whether numbers in bodies are big-endian."""
        return self.byte_order == "big"


DEFAULT_WRITE_OPTIONS = IpcWriteOptions()


def has_legacy_validity(layout: Layout) -> bool:
    """Whether metadata version 4 gives a layout a validity buffer that it does not declare: all had one but null."""
    return not layout.has_validity and bool(layout.buffers or layout.children)

"""Options for writing streams and files: byte order, metadata version, framing, compression, dictionaries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from bowstring.display.objects import repr_options
from bowstring.errors import InvalidArgumentError
from bowstring.ipc.codecs import CodecName, create_compressor
from bowstring.ipc.metadata.schema import V4, V5

ByteOrder = Literal["little", "big"]
MetadataVersion = Literal["V4", "V5"]
DictionaryDeltas = Literal["auto", "always", "never"]


@dataclass(frozen=True, slots=True, weakref_slot=True)
class IpcWriteOptions:
    """How streams and files are written. Every reader of Bowstring recognizes all variants.

    - `byte_order`: of the numbers in bodies, "little" or "big" («Schema message», endianness)
    - `metadata_version`: "V5", or "V4", in which unions and run-end encoded arrays have a validity buffer
    - `is_legacy_framing`: messages begin with their length, without a continuation marker, as up to Arrow 0.14
    - `compression`: of bodies, "lz4" or "zstd" («Compression»), or None
    - `compression_level`: -1000 to 16 for "lz4" (from 3 on slower and smaller), -131072 to 22 for "zstd", or None for
      a fast one
    - `dictionary_deltas`: "auto" writes only the new values of a dictionary that starts with the previous one
      («Dictionary Messages»); a dictionary with nested dictionaries is written as a delta only in a file, where it
      can't be replaced, because pyarrow does not read such deltas. "always" writes these in streams, too. "never"
      replaces the dictionary, which is an error in a file
    - `share_dictionaries`: fields whose dictionaries share memory in the first batch also share an id, so the
      dictionary is written once; the schema message is then written together with that batch
    - `unify_dictionaries`: for readers without deltas, replacements and shared ids: each field has one dictionary for
      all batches. `write_table` unifies the dictionaries of its batches; a value that is added later is an error

    Raises `InvalidArgumentError` for another value, `MissingExtraError` if the codec is not installed.

    >>> options = bs.ipc.IpcWriteOptions(compression="lz4", byte_order="big")
    >>> with bs.new_file("big-endian.arrow", {"n": "int64"}, options=options) as writer:
    ...     writer.write(bs.record_batch({"n": [1, 2]}))
    >>> bs.read_table("big-endian.arrow")["n"].to_pylist()
    [1, 2]
    >>> options
    IpcWriteOptions(byte_order='big', compression='lz4')
    """

    byte_order: ByteOrder = "little"
    metadata_version: MetadataVersion = "V5"
    is_legacy_framing: bool = False
    compression: CodecName | None = None
    compression_level: int | None = None
    dictionary_deltas: DictionaryDeltas = "auto"
    share_dictionaries: bool = True
    unify_dictionaries: bool = False

    __repr__ = repr_options

    def __post_init__(self) -> None:
        for name, value, choices in (
            ("byte_order", self.byte_order, get_args(ByteOrder)),
            ("metadata_version", self.metadata_version, get_args(MetadataVersion)),
            ("dictionary_deltas", self.dictionary_deltas, get_args(DictionaryDeltas)),
        ):
            if value not in choices:
                raise InvalidArgumentError(f"{name} must be {' or '.join(map(repr, choices))}, not {value!r}")
        if self.compression is not None:
            if self.metadata_version == "V4":
                raise InvalidArgumentError(
                    "bodies of metadata version V4 can't be compressed: other readers don't expect it"
                )
            create_compressor(self.compression, self.compression_level)
        elif self.compression_level is not None:
            raise InvalidArgumentError(f"compression_level {self.compression_level!r} without compression")

    @property
    def metadata_version_number(self) -> int:
        """The metadata version as a number."""
        return V4 if self.metadata_version == "V4" else V5

    @property
    def is_big_endian(self) -> bool:
        """Whether numbers in bodies are big-endian."""
        return self.byte_order == "big"


DEFAULT_WRITE_OPTIONS = IpcWriteOptions()

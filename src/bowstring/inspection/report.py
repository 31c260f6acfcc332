"""What there is to know of an Arrow file or stream without reading its data: values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bowstring.datatypes.field import Metadata
from bowstring.ipc.message import MEDIA_TYPES


@dataclass(frozen=True, slots=True)
class DictionaryUse:
    """How a field is dictionary-encoded: the dictionary's id, the type of the indices, whether it is ordered."""

    id: int
    index_type: str
    ordered: bool


@dataclass(frozen=True, slots=True)
class FieldReport:
    """A field and what is inside it («Schema message»).

    `type` is the whole type in words, `head` leaves the children out. `extension` is the name of its extension type,
    known or not. The children of a dictionary-encoded field are those of its values.
    """

    name: str
    type: str
    head: str
    nullable: bool
    dictionary: DictionaryUse | None
    extension: str | None
    metadata: Metadata
    children: tuple[FieldReport, ...]


@dataclass(frozen=True, slots=True)
class ColumnReport:
    """What a top-level column takes, in bytes as stored: nested children included.

    `buffer_bytes` is in record batches, `dictionary_bytes` in the dictionary batches of the dictionaries that it uses:
    one that several columns use counts for each. `share` is the fraction of the bytes of all buffers. `null_count` is
    what the headers say.
    """

    index: int
    field: FieldReport
    buffer_bytes: int
    dictionary_bytes: int
    share: float
    null_count: int

    @property
    def name(self) -> str:
        """The field's name, as it stands in the file: not escaped."""
        return self.field.name

    @property
    def total_bytes(self) -> int:
        """The bytes of its buffers and of its dictionaries."""
        return self.buffer_bytes + self.dictionary_bytes


@dataclass(frozen=True, slots=True)
class DictionaryReport:
    """A dictionary («Dictionary Messages»): its batches, how many of them are deltas, values and bytes of all of them.

    `columns` are the positions of the columns that use it.
    """

    id: int
    value_type: str
    batches: int
    deltas: int
    values: int
    total_bytes: int
    columns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BatchesReport:
    """The record batches («RecordBatch message»): how many, their rows (None where there is no batch), and more."""

    count: int
    rows_min: int | None
    rows_median: float | None
    rows_max: int | None
    with_metadata: int


@dataclass(frozen=True, slots=True)
class BytesReport:
    """Where the bytes are; the parts add up to `total`.

    `buffers` and `padding` are the bodies; `schema` and `headers` the framed metadata of messages; `footer` its
    flatbuffer; `framing` magic, trailer and end marker; `other` what no message covers, such as bytes after a stream.
    """

    total: int
    buffers: int
    padding: int
    schema: int
    headers: int
    footer: int
    framing: int
    other: int

    @property
    def metadata(self) -> int:
        """All that is neither body nor unknown."""
        return self.schema + self.headers + self.footer + self.framing


@dataclass(frozen=True, slots=True)
class Encoding:
    """How the bytes are written down.

    - `metadata_version`: "V4" or "V5", the oldest that a batch has (some writers' footers say another one)
    - `endianness`: of the bodies, "little" or "big"
    - `alignment_bytes`: the largest power of two, at most 64, at whose multiples all buffers that are not empty begin,
      counted from the start of the file or stream; None where there is none
    - `codecs`: what bodies are compressed with, "lz4" or "zstd"; `compressed_batches`: how many of them
    - `legacy_framing`: whether messages lack the marker that format version 0.15 brought
    - `end_marker`: whether a stream ends with its end marker; None for a file
    """

    metadata_version: str
    endianness: Literal["little", "big"]
    alignment_bytes: int | None
    codecs: tuple[str, ...]
    compressed_batches: int
    legacy_framing: bool
    end_marker: bool | None
    features: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Inspection:
    """What `bowstring.inspect` found. `columns` are in the order of the schema. Names and metadata are not escaped."""

    source: str
    format: Literal["file", "stream"]
    rows: int
    batches: BatchesReport
    dictionaries: tuple[DictionaryReport, ...]
    columns: tuple[ColumnReport, ...]
    bytes: BytesReport
    encoding: Encoding
    schema_metadata: Metadata
    footer_metadata: Metadata

    @property
    def media_type(self) -> str:
        """What the bytes are called where they are sent."""
        return MEDIA_TYPES[self.format]

    def columns_by_size(self) -> list[ColumnReport]:
        """The columns, largest first; equal ones in the order of the schema."""
        return sorted(self.columns, key=lambda column: -column.total_bytes)

    @property
    def dictionary_batches(self) -> int:
        """How many dictionary batches there are."""
        return sum(dictionary.batches for dictionary in self.dictionaries)

    @property
    def delta_batches(self) -> int:
        """How many of the dictionary batches are deltas."""
        return sum(dictionary.deltas for dictionary in self.dictionaries)

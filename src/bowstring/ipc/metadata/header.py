"""Message headers («RecordBatch message», «Dictionary Messages»), read and written by template, because the headers of
one file differ in few bytes.

A `HeaderTemplate` holds everything in a header except its numbers: the positions of lengths, nodes and buffers in the
metadata. Headers of equal length usually share a template, so a header is first compared with the last template of its
length (a few slices) and parsed only if it differs. The writer builds a template once and then only fills in the
numbers.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from bowstring.datatypes.field import Metadata
from bowstring.errors import InvalidDataError, UnsupportedError
from bowstring.flatbuf.reader import FlatTable
from bowstring.flatbuf.tables import BUFFER, DEFINITIONS, FIELD_NODE, HEADERS, VERSIONS, read_root
from bowstring.flatbuf.writer import Record, SerializedSubTable, UnionValue, build_flatbuffer
from bowstring.ipc.codecs import CODECS, CodecName
from bowstring.ipc.limits import ReadLimits
from bowstring.ipc.message import MessageLocation, format_location
from bowstring.ipc.metadata.field import create_metadata_records, read_custom_metadata
from bowstring.ipc.metadata.schema import V4, V5, BatchColumnPositions

SCHEMA, DICTIONARY_BATCH, RECORD_BATCH = "Schema", "DictionaryBatch", "RecordBatch"
V4_COMPRESSION_KEY = b"ARROW:experimental_compression"
"""Key of the body's codec in the custom metadata of version 4, which Arrow 0.17 wrote before the format had a field."""
# One per length of header: the lengths of a source differ by schema, dictionaries and counts of variadic buffers, not
# by batch.
_MAX_TEMPLATES = 32
# Columns read from one header before it is copied.
_MAX_READS = 8
_INT64 = struct.Struct("<q")


class MetadataBytes(Protocol):
    """The bytes of a message's metadata: bytes, a memoryview, or an object that reads them on access."""

    def __len__(self) -> int: ...
    def __getitem__(self, key: slice, /) -> bytes | memoryview: ...


@dataclass(frozen=True, slots=True)
class HeaderTemplate:
    """The common part of many message headers.

    `..._at` are byte offsets in the header, 0 if absent. `constants` are the byte ranges (start, stop, bytes) that are
    equal in all of them.
    """

    kind: str
    version: int
    compression: CodecName | None
    pairs: Metadata
    dictionary_id: int
    is_delta: bool
    length_at: int
    body_length_at: int
    nodes_at: int
    node_count: int
    buffers_at: int
    buffer_count: int
    variadic_at: int
    variadic_count: int
    constants: tuple[tuple[int, int, bytes], ...]


class BatchHeader:
    """The header of a record batch or a dictionary batch: its template and the bytes with its numbers.

    `length` is the number of rows, `body_bytes` the length of the body. Both are checked here; nodes and buffers are
    checked when a column is created.
    """

    __slots__ = ("_reads", "body_bytes", "length", "raw", "template")

    def __init__(self, raw: MetadataBytes, template: HeaderTemplate, location: MessageLocation = ()) -> None:
        self.raw = raw
        self.template = template
        self._reads = 0
        length_at, body_length_at = template.length_at, template.body_length_at
        self.length: int = 0
        self.body_bytes: int = 0
        if length_at:
            self.length = _INT64.unpack(raw[length_at : length_at + 8])[0]
        if body_length_at:
            self.body_bytes = _INT64.unpack(raw[body_length_at : body_length_at + 8])[0]
        if self.length < 0 or self.body_bytes < 0:
            raise InvalidDataError(
                f"{format_location(location)}: expected a number of rows and a body length of 0 or more, found "
                f"{self.length} and {self.body_bytes}"
            )

    def unpack_from(self, packer: struct.Struct, offset: int) -> tuple[int, ...]:
        """Return the numbers at a byte offset of the header."""
        raw = self.raw
        if type(raw) is bytes:
            return packer.unpack_from(raw, offset)
        # Slices of a memoryview cost more than slices of bytes, but copying a wide header to read one column costs more
        # than both.
        self._reads += 1
        if self._reads > _MAX_READS:
            self.raw = bytes(raw[:])
        return packer.unpack(raw[offset : offset + packer.size])

    def nodes(self) -> npt.NDArray[np.void]:
        """Return length and null count of each field node, as a view of dtype `FIELD_NODE`."""
        at, count = self.template.nodes_at, self.template.node_count
        return np.frombuffer(self.raw[at : at + 16 * count], FIELD_NODE)

    def buffers(self) -> npt.NDArray[np.void]:
        """Return offset in the body and length of each buffer, as a view of dtype `BUFFER`."""
        at, count = self.template.buffers_at, self.template.buffer_count
        return np.frombuffer(self.raw[at : at + 16 * count], BUFFER)

    def check(self, positions: BatchColumnPositions, body_size: int, location: MessageLocation) -> tuple[int, ...]:
        """Check the number of nodes and buffers against a schema, and the size of the body; return the variadic counts.

        Nodes and buffers themselves are checked when a column is created, or all of them by `find_problem`. Raises
        `InvalidDataError`.
        """
        template, counts = self.template, self.variadic_counts() if self.template.variadic_count else ()
        has_valid_counts = not counts or 0 <= min(counts) <= max(counts) <= template.buffer_count
        if len(counts) != positions.variadic_count or not has_valid_counts:
            raise InvalidDataError(
                f"{format_location(location)}: expected {positions.variadic_count} variadic counts, none above "
                f"{template.buffer_count}, found {list(counts[:8])}"
            )
        buffer_count = positions.buffer_count + sum(counts)
        if template.node_count != positions.node_count or template.buffer_count != buffer_count:
            raise InvalidDataError(
                f"{format_location(location)}: expected {positions.node_count} nodes and {buffer_count} buffers "
                f"for its schema, found {template.node_count} and {template.buffer_count}"
            )
        if self.body_bytes > body_size:
            raise InvalidDataError(
                f"{format_location(location)}: expected a body of {self.body_bytes} bytes, found {body_size}"
            )
        return counts

    def find_problem(self) -> str | None:
        """Describe a node with more nulls than slots, or a buffer that is outside the body or not aligned; None if all
        are valid.
        """
        nodes, buffers = self.nodes(), self.buffers()
        is_invalid = (nodes["null_count"] < 0) | (nodes["null_count"] > nodes["length"])
        if is_invalid.any():
            index = int(is_invalid.argmax())
            return f"node {index} has {nodes['length'][index]} slots and {nodes['null_count'][index]} nulls"
        offsets, lengths = buffers["offset"], buffers["length"]
        # Written as a difference, because the sum of two untrusted int64 could wrap around; `body_bytes` and lengths
        # that are not negative can't.
        is_outside = (offsets < 0) | (lengths < 0) | (offsets > self.body_bytes - lengths)
        if is_outside.any():
            index = int(is_outside.argmax())
            return f"buffer {index} of {lengths[index]} bytes at byte {offsets[index]} of a body of {self.body_bytes}"
        return "a buffer does not begin at a multiple of 8 bytes" if (offsets[lengths > 0] & 7).any() else None

    def to_values(self) -> BatchHeaderValues:
        """Return the numbers of the header, for another one."""
        return BatchHeaderValues(
            self.length,
            self.nodes().view(np.int64).reshape(-1, 2),
            self.buffers().view(np.int64).reshape(-1, 2),
            np.array(self.variadic_counts(), np.int64),
        )

    def variadic_counts(self) -> tuple[int, ...]:
        """Return the number of data buffers of each field with a variadic layout."""
        template = self.template
        return self.unpack_from(struct.Struct(f"<{template.variadic_count}q"), template.variadic_at)


class HeaderReader:
    """Reads the headers of one source and caches their templates."""

    __slots__ = ("_templates", "limits")

    def __init__(self, limits: ReadLimits) -> None:
        self.limits = limits
        self._templates: dict[int, HeaderTemplate] = {}

    def find_template_by_size(self, size_bytes: int) -> HeaderTemplate | None:
        """Return the last template of headers of this length, framing included, if any."""
        return self._templates.get(size_bytes)

    def read_with_template(self, raw: MetadataBytes, location: MessageLocation) -> BatchHeader | None:
        """Return the header in `raw` if it differs from the last one of its length in its numbers only, else None.

        All bytes are compared, including those before the flatbuffer.
        """
        template = self._templates.get(len(raw))
        if template is None:
            return None
        # These bytes include every offset of the flatbuffer, so what was checked when the template was parsed holds
        # here, too: only the numbers are still hostile.
        for start, stop, expected in template.constants:
            if raw[start:stop] != expected:
                return None
        return BatchHeader(raw, template, location)

    def read(self, raw: MetadataBytes, location: MessageLocation) -> BatchHeader | FlatTable:
        """Read the header in `raw`, a flatbuffer: a batch header, or the table of a schema message.

        `location` names the header in errors. Raises `InvalidDataError` for malformed bytes and `UnsupportedError` for
        tensors and old versions.
        """
        return self.read_with_template(raw, location) or self.parse(raw, 0, location)

    def parse(self, raw: MetadataBytes, flatbuffer_offset: int, location: MessageLocation) -> BatchHeader | FlatTable:
        """Parse the header in `raw`, whose flatbuffer begins at `flatbuffer_offset`, and keep its template; as `read`.

        The bytes determine the offset: those of a file begin with a prefix, those of a stream never.
        """
        name = format_location(location)
        root = read_root("Message", bytes(raw[flatbuffer_offset:]), name, self.limits.max_tables)
        kind = read_header_kind(root)
        inner: FlatTable | None = root["header"]
        if inner is None:
            raise InvalidDataError(f"{name}: the message has no header")
        if kind == SCHEMA:
            if root["bodyLength"]:
                raise InvalidDataError(
                    f"{name}: expected a schema message without a body, found a body of {root['bodyLength']} bytes"
                )
            return inner
        template = _read_template(root, inner, raw, flatbuffer_offset)
        # All, because keeping the order of use would cost every header.
        if len(self._templates) >= _MAX_TEMPLATES:
            self._templates.clear()
        self._templates[len(raw)] = template
        return BatchHeader(raw, template, location)


def format_metadata_version(version: int) -> str:
    """Return the name of a metadata version, such as "V5", or an unknown number as text."""
    return VERSIONS[version] if 0 <= version < len(VERSIONS) else str(version)


def check_metadata_version(version: int, location: str) -> None:
    """Raise `UnsupportedError` for a metadata version other than V4 and V5."""
    if version not in (V4, V5):
        raise UnsupportedError(
            f"{location}: metadata version {format_metadata_version(version)} is not supported: expected V4 or V5"
        )


def read_header_kind(root: FlatTable) -> str:
    """Return the kind of header of a `Message`: "Schema", "DictionaryBatch" or "RecordBatch"."""
    location, version, number = root.flatbuffer.location, root["version"], root["header_type"]
    check_metadata_version(version, location)
    if not 0 < number < len(HEADERS):
        raise InvalidDataError(f"{location}: unknown message header type {number}")
    kind = HEADERS[number]
    if kind not in (SCHEMA, DICTIONARY_BATCH, RECORD_BATCH):
        hint = ": use open_tensor_stream" if "Tensor" in kind else ""
        raise UnsupportedError(f"{location}: a stream of batches has no {kind} messages{hint}")
    return kind


def find_order_error(
    header: BatchHeader | FlatTable, has_schema: bool, location: MessageLocation
) -> InvalidDataError | None:
    """Return the error for a message of a stream unless its only schema is the first message; None if there is none.

    `has_schema` is whether it preceded this message, which `location` names.
    """
    if has_schema == isinstance(header, BatchHeader):
        return None
    expected = "a second schema" if has_schema else f"expected a schema first, found a {header.template.kind}"  # type: ignore[union-attr]
    return InvalidDataError(f"{format_location(location)}: {expected}")


def _read_template(root: FlatTable, inner: FlatTable, raw: MetadataBytes, flatbuffer_offset: int) -> HeaderTemplate:
    kind = inner.definition.name
    batch = inner["data"] if kind == DICTIONARY_BATCH else inner
    if batch is None:
        raise InvalidDataError(f"{root.flatbuffer.location}: a dictionary batch without data")
    nodes, buffers, variadic = (
        batch.locate_elements("nodes"),
        batch.locate_elements("buffers"),
        batch.locate_elements("variadicBufferCounts"),
    )
    body_length, length = root.locate_elements("bodyLength"), batch.locate_elements("length")
    number_ranges = []
    for (at, count), size in ((body_length, 8), (length, 8), (nodes, 16), (buffers, 16), (variadic, 8)):
        if count:
            number_ranges.append((at + flatbuffer_offset, at + flatbuffer_offset + count * size))
    # Constants are the gaps between the ranges of numbers.
    constants, end = [], 0
    for start, stop in (*sorted(number_ranges), (len(raw), len(raw))):
        # Numbers at the same bytes would not be compared with anything, and could contradict each other.
        if start < end:
            raise InvalidDataError(f"{root.flatbuffer.location}: nodes, buffers and lengths overlap")
        if start > end:
            constants.append((end, start, bytes(raw[end:start])))
        end = stop
    pairs = read_custom_metadata(root)
    return HeaderTemplate(
        kind,
        root["version"],
        _read_codec(root, batch, pairs),
        _remove_codec(pairs) if root["version"] == V4 else pairs,
        inner["id"] if kind == DICTIONARY_BATCH else 0,
        kind == DICTIONARY_BATCH and inner["isDelta"],
        length[0] + flatbuffer_offset if length[1] else 0,
        body_length[0] + flatbuffer_offset if body_length[1] else 0,
        nodes[0] + flatbuffer_offset,
        nodes[1],
        buffers[0] + flatbuffer_offset,
        buffers[1],
        variadic[0] + flatbuffer_offset,
        variadic[1],
        tuple(constants),
    )


def _read_codec(root: FlatTable, batch: FlatTable, pairs: Metadata) -> CodecName | None:
    """Return the codec of a body, which metadata of version 4 may name in the custom metadata."""
    codec: CodecName | None = None
    compression, location = batch["compression"], root.flatbuffer.location
    if compression is not None:
        number, method = compression["codec"], compression["method"]
        if not 0 <= number < len(CODECS) or method != 0:
            raise UnsupportedError(f"{location}: unknown compression codec {number} or method {method}")
        codec = list(CODECS.values())[number].name
    if not pairs or root["version"] != V4:
        return codec
    encoded_name = next((value for key, value in pairs if key == V4_COMPRESSION_KEY), None)
    if encoded_name is None:
        return codec
    name = encoded_name.decode("ascii", "replace").lower()
    if name not in (*CODECS, "uncompressed"):
        raise UnsupportedError(f"{location}: unknown compression codec {name!r:.60}")
    if codec not in (None, name):
        raise InvalidDataError(f"{location}: two codecs for one body: {codec} and {name}")
    return CODECS[name].name if name in CODECS else None


def _remove_codec(pairs: Metadata) -> Metadata:
    return tuple(pair for pair in pairs if pair[0] != V4_COMPRESSION_KEY)


# Writing


def build_schema_message(schema: SerializedSubTable, version: int = V5) -> bytes:
    """Return the flatbuffer of a schema message."""
    return build_flatbuffer(DEFINITIONS, "Message", _create_message_record(SCHEMA, schema, version, ()))


def _create_message_record(kind: str, header: UnionValue | SerializedSubTable, version: int, pairs: Metadata) -> Record:
    return {
        "version": version,
        "header_type": HEADERS.index(kind),
        "header": header,
        "bodyLength": 0,
        "custom_metadata": create_metadata_records(pairs),
    }


@dataclass(frozen=True, slots=True)
class DictionaryHeader:
    """The fields of a dictionary batch besides its values."""

    id: int
    is_delta: bool = False


class BatchHeaderBuilder:
    """Builds batch headers: serializes one per combination of counts, then only fills in the numbers.

    Serializing each takes longer to write small batches to a stream: 2.2 times for one column, 1.9 times for five. All
    headers have one metadata version and one codec, or none.
    """

    __slots__ = ("_blanks", "_codec", "_compression", "_version")

    def __init__(self, version: int = V5, compression: str | None = None) -> None:
        self._version = version
        self._codec = compression
        self._compression = None if compression is None else {"codec": list(CODECS).index(compression), "method": 0}
        self._blanks: dict[tuple[object, ...], tuple[bytearray, HeaderTemplate]] = {}

    def build(
        self,
        header_values: BatchHeaderValues,
        body_bytes: int,
        pairs: Metadata = (),
        dictionary: DictionaryHeader | None = None,
    ) -> bytes:
        """Return the flatbuffer of a record batch, or of a dictionary batch if `dictionary` is given; its length is a
        multiple of 8.
        """
        key = (len(header_values.nodes), len(header_values.buffers), len(header_values.variadic), pairs, dictionary)
        blank = self._blanks.get(key)
        if blank is None:
            if len(self._blanks) >= _MAX_TEMPLATES:
                self._blanks.clear()
            blank = self._blanks[key] = self._build_template(header_values, pairs, dictionary)
        out, template = blank
        _INT64.pack_into(out, template.length_at, header_values.length)
        _INT64.pack_into(out, template.body_length_at, body_bytes)
        for at, numbers in (
            (template.nodes_at, header_values.nodes),
            (template.buffers_at, header_values.buffers),
            (template.variadic_at, header_values.variadic),
        ):
            if len(numbers):
                out[at : at + numbers.nbytes] = numbers.tobytes()
        # A copy, because the next header fills the same template.
        return bytes(out)

    def _build_template(
        self, header_values: BatchHeaderValues, pairs: Metadata, dictionary: DictionaryHeader | None
    ) -> tuple[bytearray, HeaderTemplate]:
        record: dict[str, Any] = {
            "length": 0,
            "nodes": np.zeros(len(header_values.nodes), FIELD_NODE),
            "buffers": np.zeros(len(header_values.buffers), BUFFER),
            "compression": self._compression,
            "variadicBufferCounts": header_values.variadic if len(header_values.variadic) else None,
        }
        kind = RECORD_BATCH
        if dictionary is not None:
            kind, record = DICTIONARY_BATCH, {"id": dictionary.id, "data": record, "isDelta": dictionary.is_delta}
        if self._version == V4:  # its readers expect the codec under this key
            pairs = _remove_codec(pairs)
            if self._codec is not None:
                pairs = (*pairs, (V4_COMPRESSION_KEY, self._codec.upper().encode()))
        raw = build_flatbuffer(
            DEFINITIONS, "Message", _create_message_record(kind, UnionValue(kind, record), self._version, pairs)
        )
        root = read_root("Message", raw, "header")
        return bytearray(raw), _read_template(root, root["header"], raw, 0)


@dataclass(frozen=True, slots=True)
class BatchHeaderValues:
    """The values in the header of a batch («RecordBatch message»): rows, field nodes of shape (n, 2), buffers of shape
    (m, 2), variadic counts; int64.
    """

    length: int
    nodes: npt.NDArray[np.int64]
    buffers: npt.NDArray[np.int64]
    variadic: npt.NDArray[np.int64]

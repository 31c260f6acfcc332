"""Message headers («RecordBatch message», «Dictionary Messages»): read by template, as those of one file differ in few
bytes.

A `Shape` is what a header says apart from its numbers: where in the metadata the lengths, nodes and buffers are.
Headers of equal length mostly have equal shapes, so one is compared with the last shape of its length (a few slices),
and only parsed where it differs. Writing uses the same idea: a shape of our own, into which the numbers are put.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from bowstring.datatypes.field import Metadata
from bowstring.errors import InvalidDataError, UnsupportedError
from bowstring.flatbuf.reader import Message, Table
from bowstring.flatbuf.tables import BUFFER, FIELD_NODE, HEADERS, SPECS, VERSIONS
from bowstring.flatbuf.writer import Built, Finished, Record, build
from bowstring.ipc.limits import ReadLimits
from bowstring.ipc.metadata import schema as schema_tables
from bowstring.ipc.metadata.schema import V4, V5

SCHEMA, DICTIONARY_BATCH, RECORD_BATCH = "Schema", "DictionaryBatch", "RecordBatch"
CODECS = ("lz4", "zstd")
V4_COMPRESSION_KEY = b"ARROW:experimental_compression"
"""In a message's custom metadata of version 4: the codec of its body, as Arrow 0.17 wrote it before there was a field
for that.
"""
_MAX_SHAPES = 32
_MAX_PIECES = 8
_LONG = struct.Struct("<q")


class HeaderBytes(Protocol):
    """The bytes of a message's metadata: bytes, a memoryview, or something that reads them when they are asked for."""

    def __len__(self) -> int: ...
    def __getitem__(self, key: slice, /) -> bytes | memoryview: ...


@dataclass(frozen=True, slots=True)
class Shape:
    """What the headers of many messages have in common.

    `..._at` are positions in the header's bytes, 0 for what is absent. `fixed` are the stretches that have to be equal.
    """

    kind: str
    version: int
    compression: str | None
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
    fixed: tuple[tuple[int, int, bytes], ...]


class BatchHeader:
    """The header of a record batch or a dictionary batch: its shape and the bytes with its numbers.

    `length` is the number of rows, `body_bytes` the length of the body. Counts are checked, the numbers of nodes and
    buffers are not: that is done when a column is made.
    """

    __slots__ = ("_pieces", "body_bytes", "length", "raw", "shape")

    def __init__(self, raw: HeaderBytes, shape: Shape) -> None:
        self.raw = raw
        self.shape = shape
        self._pieces = 0
        at, body_at = shape.length_at, shape.body_length_at
        self.length: int = 0
        self.body_bytes: int = 0
        if type(raw) is bytes:
            if at:
                self.length = _LONG.unpack_from(raw, at)[0]
            if body_at:
                self.body_bytes = _LONG.unpack_from(raw, body_at)[0]
        else:
            if at:
                self.length = _LONG.unpack(raw[at : at + 8])[0]
            if body_at:
                self.body_bytes = _LONG.unpack(raw[body_at : body_at + 8])[0]
        if self.length < 0 or self.body_bytes < 0:
            raise InvalidDataError(f"a header claims {self.length} rows in {self.body_bytes} bytes")

    def unpack(self, form: struct.Struct, at: int) -> tuple[int, ...]:
        """The numbers at a place of the header."""
        raw = self.raw
        if type(raw) is bytes:
            return form.unpack_from(raw, at)
        self._pieces += 1
        if self._pieces > _MAX_PIECES:
            self.raw = bytes(raw[:])
        return form.unpack(raw[at : at + form.size])

    def nodes(self) -> npt.NDArray[Any]:
        """Length and null count of each field node, as a view of dtype `FIELD_NODE`."""
        at, count = self.shape.nodes_at, self.shape.node_count
        return np.frombuffer(self.raw[at : at + 16 * count], FIELD_NODE)

    def buffers(self) -> npt.NDArray[Any]:
        """Offset in the body and length of each buffer, as a view of dtype `BUFFER`."""
        at, count = self.shape.buffers_at, self.shape.buffer_count
        return np.frombuffer(self.raw[at : at + 16 * count], BUFFER)

    def variadic_counts(self) -> tuple[int, ...]:
        """How many data buffers each field of a variadic layout has."""
        shape = self.shape
        return self.unpack(struct.Struct(f"<{shape.variadic_count}q"), shape.variadic_at)


class HeaderReader:
    """Reads the headers of one source, keeping the shapes that it met."""

    __slots__ = ("_shapes", "limits")

    def __init__(self, limits: ReadLimits) -> None:
        self.limits = limits
        self._shapes: dict[tuple[int, int], Shape] = {}

    def shape_of(self, size_bytes: int) -> Shape | None:
        """The shape of the last header of this length, its framing included; None where there was none."""
        return self._shapes.get((size_bytes, 8)) or self._shapes.get((size_bytes, 4))

    def known(self, raw: HeaderBytes, skip: int) -> BatchHeader | None:
        """The header in `raw` where it differs from the last one of its length in nothing but its numbers, else None.

        All bytes are compared, those before the flatbuffer too.
        """
        shape = self._shapes.get((len(raw), skip))
        if shape is None:
            return None
        for start, stop, held in shape.fixed:
            if raw[start:stop] != held:
                return None
        return BatchHeader(raw, shape)

    def read(self, raw: HeaderBytes, skip: int, where: str | tuple[object, ...]) -> BatchHeader | Table:
        """The header in `raw`, whose flatbuffer begins at byte `skip`: of a batch, or the table of a schema message.

        `where` names it in errors; as a tuple, its parts. Raises `InvalidDataError` for malformed bytes and
        `UnsupportedError` for tensors and old versions.
        """
        known = self.known(raw, skip)
        if known is not None:
            return known
        if not isinstance(where, str):
            where = " ".join(map(str, where))
        message = Message(bytes(raw[skip:]), SPECS, where, self.limits.max_tables)
        root = message.root("Message")
        kind = header_kind(root)
        inner = root.union("header", kind)
        if inner is None:
            raise InvalidDataError(f"{where}: the message has no header")
        if kind == SCHEMA:
            if root["bodyLength"]:
                raise InvalidDataError(
                    f"{where}: a schema message has no body, this one claims {root['bodyLength']} bytes"
                )
            return inner
        shape = _shape_of(root, inner, raw, skip)
        if len(self._shapes) >= _MAX_SHAPES:
            self._shapes.clear()
        self._shapes[len(raw), skip] = shape
        return BatchHeader(raw, shape)


def header_kind(root: Table) -> str:
    """Which header a `Message` has: "Schema", "DictionaryBatch" or "RecordBatch"."""
    where, version, number = root.message.where, root["version"], root["header_type"]
    if version not in (V4, V5):
        name = VERSIONS[version] if 0 <= version < len(VERSIONS) else str(version)
        raise UnsupportedError(f"{where}: metadata version {name} is not supported: only V4 and V5 are")
    if not 0 < number < len(HEADERS):
        raise InvalidDataError(f"{where}: message header type {number} is not known")
    kind = HEADERS[number]
    if kind not in (SCHEMA, DICTIONARY_BATCH, RECORD_BATCH):
        hint = ": use open_tensors" if "Tensor" in kind else ""
        raise UnsupportedError(f"{where}: a stream of batches has no {kind} messages{hint}")
    return kind


def _shape_of(root: Table, inner: Table, raw: HeaderBytes, skip: int) -> Shape:
    kind = inner.spec.name
    batch = inner["data"] if kind == DICTIONARY_BATCH else inner
    if batch is None:
        raise InvalidDataError(f"{root.message.where}: a dictionary batch without data")
    spans = [batch.span("nodes"), batch.span("buffers"), batch.span("variadicBufferCounts")]
    numbers = [root.span("bodyLength"), batch.span("length")]
    sizes = (8, 8, 16, 16, 8)
    taken = sorted((at + skip, at + skip + n * size) for (at, n), size in zip(numbers + spans, sizes, strict=True) if n)
    ends = [0, *(end for _, end in taken)]
    starts = [*(start for start, _ in taken), len(raw)]
    if any(start < end for start, end in zip(starts, ends, strict=True)):
        raise InvalidDataError(f"{root.message.where}: nodes, buffers and lengths overlap")
    fixed = tuple((end, start, bytes(raw[end:start])) for end, start in zip(ends, starts, strict=True) if start > end)
    (nodes, buffers, variadic), (body_length, length) = spans, numbers
    pairs, codec = _pairs_and_codec(root, batch)
    return Shape(
        kind,
        root["version"],
        codec,
        pairs,
        inner["id"] if kind == DICTIONARY_BATCH else 0,
        kind == DICTIONARY_BATCH and inner["isDelta"],
        length[0] + skip if length[1] else 0,
        body_length[0] + skip if body_length[1] else 0,
        nodes[0] + skip,
        nodes[1],
        buffers[0] + skip,
        buffers[1],
        variadic[0] + skip,
        variadic[1],
        fixed,
    )


def _pairs_and_codec(root: Table, batch: Table) -> tuple[Metadata, str | None]:
    """A message's custom metadata, and what its body is compressed with: metadata of version 4 may say that, too."""
    pairs, codec = schema_tables.read_pairs(root), _codec(batch["compression"])
    told = [value for key, value in pairs if key == V4_COMPRESSION_KEY] if root["version"] == V4 else []
    if not told:
        return pairs, codec
    name, where = told[0].decode("ascii", "replace").lower(), root.message.where
    if name not in (*CODECS, "uncompressed"):
        raise UnsupportedError(f"{where}: compression codec {name!r:.60} is not known")
    if codec not in (None, name):
        raise InvalidDataError(f"{where}: says that its body is compressed with {codec}, and with {name}")
    return _without_codec(pairs), None if name == "uncompressed" else name


def _without_codec(pairs: Metadata) -> Metadata:
    return tuple(pair for pair in pairs if pair[0] != V4_COMPRESSION_KEY)


def _codec(compression: Table | None) -> str | None:
    if compression is None:
        return None
    codec, where = compression["codec"], compression.message.where
    if not 0 <= codec < len(CODECS) or compression["method"] != 0:
        raise UnsupportedError(f"{where}: compression codec {codec}, method {compression['method']} are not known")
    return CODECS[codec]


# Writing


def schema_message(schema: Finished, version: int = V5) -> bytes:
    """The flatbuffer of a schema message."""
    return build(SPECS, "Message", _message(SCHEMA, schema, version, ()))


def _message(kind: str, header: Built | Finished, version: int, pairs: Metadata) -> Record:
    return {
        "version": version,
        "header_type": HEADERS.index(kind),
        "header": header,
        "bodyLength": 0,
        "custom_metadata": schema_tables.write_pairs(pairs),
    }


@dataclass(frozen=True, slots=True)
class DictionaryMark:
    """What a dictionary batch says beside its data."""

    id: int
    is_delta: bool = False


class HeaderWriter:
    """Writes batch headers: one is built for each combination of counts, then only its numbers are put in.

    They are of one metadata version, for bodies that are compressed with one codec or not at all.
    """

    __slots__ = ("_codec", "_compression", "_made", "_version")

    def __init__(self, version: int = V5, compression: str | None = None) -> None:
        self._version = version
        self._codec = compression
        self._compression = None if compression is None else {"codec": CODECS.index(compression), "method": 0}
        self._made: dict[tuple[object, ...], tuple[bytearray, Shape]] = {}

    def write(
        self, numbers: BatchNumbers, body_bytes: int, pairs: Metadata = (), dictionary: DictionaryMark | None = None
    ) -> bytes:
        """The flatbuffer of a record batch, or with a mark of a dictionary batch; its length is a multiple of 8."""
        key = (len(numbers.nodes), len(numbers.buffers), len(numbers.variadic), pairs, dictionary)
        made = self._made.get(key)
        if made is None:
            if len(self._made) >= _MAX_SHAPES:
                self._made.clear()
            made = self._made[key] = self._blank(numbers, pairs, dictionary)
        out, shape = made
        _LONG.pack_into(out, shape.length_at, numbers.length)
        _LONG.pack_into(out, shape.body_length_at, body_bytes)
        for at, held in (
            (shape.nodes_at, numbers.nodes),
            (shape.buffers_at, numbers.buffers),
            (shape.variadic_at, numbers.variadic),
        ):
            if len(held):
                out[at : at + held.nbytes] = held.tobytes()
        return bytes(out)

    def _blank(
        self, numbers: BatchNumbers, pairs: Metadata, dictionary: DictionaryMark | None
    ) -> tuple[bytearray, Shape]:
        record: dict[str, Any] = {
            "length": 0,
            "nodes": np.zeros(len(numbers.nodes), FIELD_NODE),
            "buffers": np.zeros(len(numbers.buffers), BUFFER),
            "compression": self._compression,
            "variadicBufferCounts": numbers.variadic if len(numbers.variadic) else None,
        }
        kind = RECORD_BATCH
        if dictionary is not None:
            kind, record = DICTIONARY_BATCH, {"id": dictionary.id, "data": record, "isDelta": dictionary.is_delta}
        if self._version == V4:  # where readers take the key for what it was
            pairs = _without_codec(pairs)
            if self._codec is not None:
                pairs = (*pairs, (V4_COMPRESSION_KEY, self._codec.upper().encode()))
        raw = build(SPECS, "Message", _message(kind, Built(kind, record), self._version, pairs))
        root = Message(raw, SPECS, "header").root("Message")
        inner = root.union("header", kind)
        assert inner is not None
        return bytearray(raw), _shape_of(root, inner, raw, 0)


@dataclass(frozen=True, slots=True)
class BatchNumbers:
    """The numbers of a batch: rows, field nodes of shape (n, 2), buffers of shape (m, 2), variadic counts; int64."""

    length: int
    nodes: npt.NDArray[np.int64]
    buffers: npt.NDArray[np.int64]
    variadic: npt.NDArray[np.int64]

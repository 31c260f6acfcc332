"""Walking through a file or a stream message by message, whatever is wrong with it («IPC Streaming Format», «IPC File
Format»): what can be read becomes parts, what can't becomes a damage with its place.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from bowstring.errors import InvalidDataError, TruncatedError, UnsupportedError
from bowstring.flatbuf.reader import Message, Table
from bowstring.flatbuf.tables import HEADERS, SPECS
from bowstring.inspection.anatomy.leaves import flatbuffer_bytes, metadata_leaves
from bowstring.inspection.anatomy.model import Damage, Leaf, Leaves, Part, Segment
from bowstring.io.byte_ranges import GAP_BYTES, Span
from bowstring.io.memory_source import MemorySource
from bowstring.io.range_source import ROUND_BYTES
from bowstring.io.sources import RandomAccess
from bowstring.ipc.footer import TRAILER
from bowstring.ipc.format_detection import make_file_reader
from bowstring.ipc.limits import ReadLimits
from bowstring.ipc.message import CONTINUATION, FILE_START, LEGACY_PREFIX_BYTES, MAGIC, PREFIX_BYTES, parse_prefix
from bowstring.ipc.metadata.header import BatchHeader, HeaderReader
from bowstring.ipc.metadata.schema import read_pairs
from bowstring.ipc.tools.scan import BatchSpan

_MAX_DAMAGES = 100
_MAX_PREFETCHED = 10_000
_KINDS = {"RecordBatch": Segment.RECORD_BATCH, "DictionaryBatch": Segment.DICTIONARY_BATCH}
_LEAF_OF_REST = {
    Segment.UNREAD: Leaf.UNREAD,
    Segment.UNCLAIMED: Leaf.UNCLAIMED,
    Segment.OMITTED: Leaf.OMITTED,
}
_TENSORS = {"Tensor": Segment.TENSOR, "SparseTensor": Segment.SPARSE_TENSOR}


class Walker:
    """Walks over the parts of a source and records its errors.

    `schema`, `schema_offset`, `version` and `footer_metadata` are from the footer if it is valid, else from the first
    schema message. `parts` yields the parts in the order of their offsets; the body of a batch is a single leaf.
    """

    def __init__(self, source: RandomAccess, is_file: bool, limits: ReadLimits, max_parts: int) -> None:
        self.source = source
        self.is_file = is_file
        self.schema: Table | None = None
        self.schema_offset = 0
        self.version = -1
        self.footer_metadata: Any = ()
        self.damages: list[Damage] = []
        self.damage_count = 0
        self.is_shortened = False
        self.has_end_marker = False
        self._limits = limits
        self._headers = HeaderReader(limits)
        self._flatbuffer_sizes: dict[int, tuple[object, int]] = {}
        self._counts = dict.fromkeys(Segment, 0)
        self._remaining_parts = max_parts

    def add_damage(self, offset: int, error: InvalidDataError | str) -> None:
        """Take note of a fault."""
        self.damage_count += 1
        if len(self.damages) < _MAX_DAMAGES:
            self.damages.append(Damage(offset, str(error).removeprefix(f"{self.source.name}: ")))

    def parts(self) -> Iterator[Part]:
        """Every part."""
        source = self.source
        if not self.is_file:
            offset = yield from self._messages(source.position, source.size)
            if self.schema is None and not self.damages and not any(self._counts[kind] for kind in _TENSORS.values()):
                self.add_damage(
                    offset, TruncatedError(f"{source.name}: the stream ends at byte {offset}, before a schema")
                )
            yield from self._remainder(
                offset, source.size, Segment.UNCLAIMED if self.has_end_marker else Segment.UNREAD
            )
            return
        start = len(FILE_START)
        head = source.read_at(0, min(start, source.size))
        yield Part(
            Segment.START,
            0,
            Leaves.of((min(len(MAGIC), len(head)), Leaf.MAGIC), (len(head) - len(MAGIC), Leaf.PADDING)),
        )
        try:
            footer = _Footer(source, self._limits)
        except InvalidDataError as error:
            yield from self._without_footer(start, error)
            return
        self.schema, self.version, self.footer_metadata = footer.schema, footer.version, footer.pairs
        self.schema_offset = footer.at
        offset = yield from self._footer_batches(footer, start)
        offset = yield from self._gap(offset, footer.at)
        yield Part(Segment.FOOTER, offset, footer.leaves)

    # A file

    def _without_footer(self, start: int, error: InvalidDataError) -> Iterator[Part]:
        source = self.source
        has_magic = source.read_at(source.size - 6, 6) == MAGIC if source.size >= start + 6 else False
        self.add_damage(max(start, source.size - (TRAILER.size if has_magic else 0)), error)
        offset = yield from self._messages(start, source.size)
        yield from self._remainder(offset, source.size, Segment.UNREAD)

    def _footer_batches(self, footer: _Footer, offset: int) -> Generator[Part, None, int]:
        """The batches of the footer in the order of their bytes, and what lies between them."""
        for start, stop, kind, number in self._prefetched_blocks(footer):
            where = f"{kind.value} {number}"
            if start < offset or stop > footer.at:
                before = "before" if start < offset else "in"
                self.add_damage(
                    min(max(start, 0), self.source.size),
                    f"{where}: the footer puts it at bytes {start} to {stop}, {before} what is there already",
                )
                continue
            if self._is_limit_reached():
                break
            offset = yield from self._gap(offset, start)
            part = self._block(start, footer, kind, number)
            yield part
            offset = part.stop
        return offset

    def _prefetched_blocks(self, footer: _Footer) -> Iterator[tuple[int, int, Segment, int]]:
        """The footer's blocks; of a file that is far away the headers of many are fetched at once."""
        if isinstance(self.source, MemorySource):
            yield from footer.blocks
            return
        group: list[tuple[int, int, Segment, int]] = []
        spans: list[Span] = []
        fetched_bytes, reach = 0, len(FILE_START)
        for start, stop, kind, number in footer.blocks:
            head_bytes = footer.head_bytes(kind, number)
            if fetched_bytes + head_bytes > ROUND_BYTES or len(group) == _MAX_PREFETCHED:
                self.source.expect(spans)
                yield from group
                group, spans, fetched_bytes = [], [], 0
            group.append((start, stop, kind, number))
            if reach <= start and stop <= footer.at and 0 < head_bytes <= self._limits.max_metadata_bytes:
                first = reach if start - reach <= GAP_BYTES else start
                spans.append((first, start + head_bytes - first))
                fetched_bytes += spans[-1][1]
                reach = stop
        self.source.expect(spans)
        yield from group

    def _block(self, start: int, footer: _Footer, kind: Segment, number: int) -> Part:
        name, metadata_bytes = f"{kind.value} {number}", footer.head_bytes(kind, number)
        body_bytes = int(footer.listed[kind]["bodyLength"][number])
        whole = metadata_bytes + body_bytes
        try:
            if metadata_bytes < PREFIX_BYTES:
                raise InvalidDataError(f"{name}: {metadata_bytes} bytes of metadata are too few for a message")
            parse_prefix(metadata_bytes.to_bytes(4, "little"), name, self._limits.max_metadata_bytes)
            raw = self.source.read_at(start, metadata_bytes)
            prefix_bytes = _prefix_bytes(raw)
            length, _ = parse_prefix(raw[:8], name, self._limits.max_metadata_bytes)
            if not 0 < length <= metadata_bytes - prefix_bytes:
                raise InvalidDataError(
                    f"{name} at byte {start}: expected a metadata length of up to {metadata_bytes - prefix_bytes}, "
                    f"found {length}"
                )
            header = self._headers.read(raw, prefix_bytes, f"{name} at byte {start}")
            if not isinstance(header, BatchHeader) or _KINDS[header.template.kind] is not kind:
                raise InvalidDataError(f"{name} at byte {start}: expected a {kind.value}, found another message")
        except InvalidDataError as error:
            self.add_damage(start, error)
            return Part(Segment.UNREAD, start, Leaves.of((whole, Leaf.UNREAD)), number)
        return self._batch(start, raw, header, body_bytes, number)

    def _gap(self, offset: int, stop: int) -> Generator[Part, None, int]:
        """What lies between messages of the footer: the schema message, the end marker, messages it does not list."""
        if offset < stop:
            offset = yield from self._messages(offset, stop, is_listed=False)
            yield from self._remainder(offset, stop, Segment.UNCLAIMED)
        return stop

    # Messages in a row

    def _messages(self, offset: int, stop: int, is_listed: bool = True) -> Generator[Part, None, int]:
        """Message after message as far as they can be read; gives the byte after the last."""
        must_read = is_listed  # what a footer does not list may be anything
        while offset < stop:
            if self._is_limit_reached():
                return offset
            name = f"message at byte {offset}"
            prefix = self.source.read_at(offset, min(PREFIX_BYTES, stop - offset))
            try:
                if len(prefix) < _prefix_bytes(prefix):
                    raise TruncatedError(f"{name}: expected {_prefix_bytes(prefix)} bytes, found {len(prefix)}")
                length, prefix_bytes = parse_prefix(prefix, name, self._limits.max_metadata_bytes)
                if length == 0:
                    if not is_listed and prefix_bytes == LEGACY_PREFIX_BYTES and offset + prefix_bytes < stop:
                        return offset  # zeros between messages need not be the marker of the legacy form
                    marker = prefix_bytes - LEGACY_PREFIX_BYTES
                    yield Part(Segment.END, offset, Leaves.of((marker, Leaf.CONTINUATION), (4, Leaf.LENGTH)))
                    self.has_end_marker = True
                    return offset + prefix_bytes
                if offset + prefix_bytes + length > stop:
                    raise TruncatedError(
                        f"{name}: expected {length} bytes of metadata, found {stop - offset - prefix_bytes}"
                    )
                part = self._message(offset, self.source.read_at(offset, prefix_bytes + length), stop, is_listed)
            except InvalidDataError as error:
                if must_read:
                    self.add_damage(offset, error)
                return offset
            if part.stop > stop or (part.kind is Segment.UNREAD and not must_read):
                return offset
            yield part
            offset = part.stop
        return offset

    def _message(self, offset: int, raw: bytes, stop: int, is_listed: bool) -> Part:
        """One message; raises `InvalidDataError` where its header can't be read."""
        prefix_bytes, name = _prefix_bytes(raw), f"message at byte {offset}"
        try:
            header = self._headers.read(raw, prefix_bytes, name)
        except UnsupportedError as error:
            tensor = self._tensor(offset, raw, stop)
            if tensor is None:
                raise error from None
            return tensor
        if not isinstance(header, BatchHeader):
            size_bytes = flatbuffer_bytes(raw[prefix_bytes:], "Message", name, self._limits.max_tables)
            if self.schema is None:
                self.schema, self.version = header, header.message.root("Message")["version"]
                self.schema_offset = offset
            elif not self.is_file:
                raise InvalidDataError(f"{name}: a second schema")
            return Part(Segment.SCHEMA, offset, metadata_leaves(raw, prefix_bytes, size_bytes))
        if self.schema is None and is_listed:
            self.add_damage(offset, f"{name}: expected a schema first, found a {header.template.kind}")
        kind = _KINDS[header.template.kind]
        number = self._counts[kind] if is_listed else -1
        found_bytes = min(header.body_bytes, stop - offset - len(raw))
        if found_bytes < header.body_bytes:
            if not is_listed:
                raise TruncatedError(f"{name}: its body is not there")
            body_offset = offset + len(raw)
            self.add_damage(
                stop, f"{name}: expected {header.body_bytes} bytes of a body at byte {body_offset}, found {found_bytes}"
            )
        self._counts[kind] += is_listed
        return self._batch(offset, raw, header, found_bytes, number, is_listed)

    def _batch(
        self, offset: int, raw: bytes, header: BatchHeader, body_bytes: int, number: int, is_listed: bool = True
    ) -> Part:
        prefix_bytes, kind = _prefix_bytes(raw), _KINDS[header.template.kind]
        leaves = metadata_leaves(raw, prefix_bytes, self._flatbuffer_bytes(raw, prefix_bytes, header))
        span = BatchSpan(
            header,
            offset + len(raw),
            body_bytes,
            len(raw),
            prefix_bytes == 4,
            f"{self.source.name}: {kind.value} {number}",
        )
        buffers = header.buffers()
        offsets, lengths = buffers["offset"].astype(np.int64), buffers["length"].astype(np.int64)
        body = Leaves.of((body_bytes, Leaf.BODY))
        return Part(kind, offset, leaves.then(body), number, span, offsets, lengths, is_listed=is_listed)

    def _flatbuffer_bytes(self, raw: bytes, prefix_bytes: int, header: BatchHeader) -> int:
        """Headers of one template differ in nothing but numbers."""
        template = header.template
        cached = self._flatbuffer_sizes.get(id(template))
        if cached is None or cached[0] is not template:
            size_bytes = flatbuffer_bytes(raw[prefix_bytes:], "Message", "header", self._limits.max_tables)
            cached = self._flatbuffer_sizes[id(template)] = (template, size_bytes)
        return cached[1]

    def _tensor(self, offset: int, raw: bytes, stop: int) -> Part | None:
        """A tensor, sparse or not; None where the message is none."""
        prefix_bytes, name = _prefix_bytes(raw), f"message at byte {offset}"
        root = Message(raw[prefix_bytes:], SPECS, name, self._limits.max_tables).root("Message")
        kind = HEADERS[root["header_type"]] if 0 < root["header_type"] < len(HEADERS) else ""
        inner = root.union("header", kind) if kind in _TENSORS else None
        body_bytes = root["bodyLength"]
        if inner is None or body_bytes < 0:
            return None
        found_bytes = min(body_bytes, stop - offset - len(raw))
        if found_bytes < body_bytes:
            self.add_damage(
                stop,
                f"{name}: expected {body_bytes} bytes of a body at byte {offset + len(raw)}, found {found_bytes}",
            )
        held = [inner["data"], *_index_buffers(inner)] if kind == "SparseTensor" else [inner["data"]]
        offsets, lengths = (np.array([0 if b is None else int(b[n]) for b in held], np.int64) for n in (0, 1))
        size_bytes = flatbuffer_bytes(raw[prefix_bytes:], "Message", name, self._limits.max_tables)
        leaves = metadata_leaves(raw, prefix_bytes, size_bytes).then(Leaves.of((found_bytes, Leaf.BODY)))
        segment = _TENSORS[kind]
        number = self._counts[segment]
        self._counts[segment] += 1
        return Part(segment, offset, leaves, number, None, offsets, lengths)

    def _remainder(self, offset: int, stop: int, kind: Segment) -> Iterator[Part]:
        if offset < stop:
            kind = Segment.OMITTED if self.is_shortened else kind
            leaf = _LEAF_OF_REST[kind]
            yield Part(kind, offset, Leaves.of((stop - offset, leaf)))

    def _is_limit_reached(self) -> bool:
        self._remaining_parts -= 1
        self.is_shortened = self._remaining_parts < 0
        return self.is_shortened


class _Footer:
    """A file's footer, once it has been found sound."""

    def __init__(self, source: RandomAccess, limits: ReadLimits) -> None:
        self.reader = make_file_reader(source, None, limits)
        self.at, root = self.reader.footer_at, self.reader.footer
        raw, where = root.message.data, root.message.where
        schema = root["schema"]
        if schema is None:
            raise InvalidDataError(f"{where}: there is no schema")
        self.schema: Table = schema
        self.version: int = root["version"]
        self.pairs = read_pairs(root)
        self.listed = {
            Segment.DICTIONARY_BATCH: self.reader.dictionary_blocks,
            Segment.RECORD_BATCH: self.reader.blocks,
        }
        size_bytes = flatbuffer_bytes(raw, "Footer", where, limits.max_tables)
        self.leaves = Leaves.of(
            (size_bytes, Leaf.METADATA), (len(raw) - size_bytes, Leaf.PADDING), (4, Leaf.FOOTER_LENGTH), (6, Leaf.MAGIC)
        )

    def head_bytes(self, kind: Segment, number: int) -> int:
        """How long the footer says that a message is up to its body."""
        return int(self.listed[kind]["metaDataLength"][number])

    @property
    def blocks(self) -> Iterator[tuple[int, int, Segment, int]]:
        """Start and stop of each block, its kind and its number, by start."""
        kinds = list(self.listed.items())
        rows: list[npt.NDArray[np.int64]] = []
        for which, (_, blocks) in enumerate(kinds):
            starts, numbers = blocks["offset"].astype(np.int64), np.arange(len(blocks))
            sizes = blocks["metaDataLength"].astype(np.int64).clip(0) + blocks["bodyLength"].clip(0, 1 << 61)
            starts = starts.clip(-1, 1 << 61)
            rows.append(np.stack([starts, starts + sizes, np.full(len(blocks), which), numbers], axis=1))
        table = np.concatenate(rows)
        for start, stop, which, number in table[np.argsort(table[:, 0], kind="stable")].tolist():
            yield start, stop, kinds[which][0], number


def _prefix_bytes(start: bytes) -> int:
    is_current = start[:4] == CONTINUATION
    return PREFIX_BYTES if is_current else LEGACY_PREFIX_BYTES


def _index_buffers(sparse: Table) -> list[Any]:
    """The buffers of a sparse tensor's index («SparseTensor»), in the order of its table."""
    number, names = sparse["sparseIndex_type"], ("", "SparseTensorIndexCOO", "SparseMatrixIndexCSX")
    if number == len(names):
        index = sparse.union("sparseIndex", "SparseTensorIndexCSF")
        return [] if index is None else [*index["indptrBuffers"], *index["indicesBuffers"]]
    index = sparse.union("sparseIndex", names[number]) if 0 < number < len(names) else None
    if index is None:
        return []
    return [index["indicesBuffer"]] if number == 1 else [index["indptrBuffer"], index["indicesBuffer"]]

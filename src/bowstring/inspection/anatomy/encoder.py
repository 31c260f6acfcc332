"""Encode an anatomy for the page: a JSON header, typed arrays and a sample of the bytes of the file, compressed."""

from __future__ import annotations

import json
import sys
import tomllib
import zlib
from base64 import b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt

from bowstring.display.objects import repr_options
from bowstring.display.printable_text import to_printable
from bowstring.errors import MissingExtraError
from bowstring.inspection.anatomy.model import (
    Anatomy,
    BodyLayout,
    ByteRangeKind,
    ByteRanges,
    FileSection,
    FileSectionKind,
)
from bowstring.io.byte_ranges import Span
from bowstring.io.range_source import MAX_ROUND_BYTES, RangeSource
from bowstring.io.sources import RandomAccessSource
from bowstring.ipc.codecs import CODECS
from bowstring.ipc.record_batch.compression import decompress_first_bytes
from bowstring.memory.thread_pool import group_by_size

# Of the arrays: JavaScript's typed arrays of float64 need it.
_ALIGNMENT = 8
# Limits on the size of the page: texts of a hostile file can be long, and fields and buffers many.
_NAME_CHARACTERS = 120
_TYPE_CHARACTERS = 200
_MESSAGE_CHARACTERS = 600
_MAX_FIELDS = 50_000
_MAX_SHARED = 200
_MAX_DECOMPRESSED = 2000
_MAX_COMPRESSED_BYTES = (1 << 20) + 1024
_GAP_BYTES = 1 << 13  # read, too, between two spans: less than another request of a store costs
_SECTION_KINDS = {kind: number for number, kind in enumerate(FileSectionKind)}
# Bits of a section's flags, which the scripts of the page test by these numbers.
_LISTED, _DELTA, _LEGACY, _WITH_METADATA = 1, 2, 4, 8
_SPECIFICATION = "https://arrow.apache.org/docs/format/Columnar.html#"

MEANINGS: dict[str, Any] = tomllib.loads(
    files(__package__).joinpath("assets", "glossary.toml").read_text(encoding="utf-8")
)
"""The `title` and `text` of each section, and the `headings` of the specification that define it."""


@dataclass(frozen=True, slots=True)
class PageLimits:
    """Limits on the contents of a page.

    - `max_byte_ranges`: the number of byte ranges after which the body of a batch becomes a single one
    - `max_whole_bytes`: the size up to which the page has the whole file
    - `max_sample_bytes`: the number of bytes of a larger file, from its first batches and its last
    - `sample_bytes`, `header_sample_bytes`: the number of bytes of each buffer and of each header
    """

    max_byte_ranges: int = 1_500_000
    max_whole_bytes: int = 256 << 10
    max_sample_bytes: int = 1_250_000
    sample_bytes: int = 64
    header_sample_bytes: int = 2048

    __repr__ = repr_options


class _ArrayPacker:
    """Consecutive named arrays, each at a multiple of 8 bytes."""

    def __init__(self) -> None:
        self.descriptors: dict[str, tuple[str, int, int]] = {}
        self._chunks: list[bytes] = []
        self._size_bytes = 0

    def add(self, name: str, values: npt.ArrayLike, dtype: str) -> None:
        """Add an array of a dtype such as "u1", "i4" or "f8"; "u4" becomes "f8" for larger values."""
        array = np.asarray(values)
        if dtype == "u4" and array.size and int(array.max()) > 0xFFFFFFFF:
            dtype = "f8"
        raw = array.astype(f"<{dtype}").tobytes()
        self.descriptors[name] = (dtype, self._size_bytes, array.size)
        self._chunks.append(raw + bytes(-len(raw) % _ALIGNMENT))
        self._size_bytes += len(self._chunks[-1])

    def to_bytes(self) -> bytes:
        """Return all arrays."""
        return b"".join(self._chunks)


def encode_anatomy(anatomy: Anatomy, source: RandomAccessSource, name: str, limits: PageLimits) -> str:
    """Return the data of the page in base64: zlib over the length of a JSON header, the header and the arrays."""
    arrays = _ArrayPacker()
    sections, is_detailed = _limit_byte_ranges(anatomy.sections, limits.max_byte_ranges)
    shared = _add_sections(arrays, sections, is_detailed, anatomy.layouts)
    ranges = _merge_ranges(_sampled_ranges(sections, anatomy.total_bytes, limits))
    _add_file_bytes(arrays, ranges, source)
    _add_decompressed_bytes(arrays, sections, ranges, source, limits)
    inspection = anatomy.inspection
    header = {
        "name": name,
        "format": anatomy.format,
        "total": anatomy.total_bytes,
        "big": inspection is not None and inspection.encoding.endianness == "big",
        "section_kinds": [kind.value for kind in FileSectionKind],
        "layouts": [_layout_to_json(layout) for layout in anatomy.layouts],
        "columns": [] if inspection is None else [_printable_name(c.name) for c in inspection.columns[:_MAX_FIELDS]],
        "dictionaries": {} if inspection is None else {str(d.id): list(d.columns) for d in inspection.dictionaries},
        "faults": [[fault.offset, to_printable(fault.message, _MESSAGE_CHARACTERS)] for fault in anatomy.faults],
        "shared": shared,
        "whole": sum(is_detailed) == len(sections),
        "glossary": _glossary_to_json(),
        "arrays": arrays.descriptors,
    }
    text = json.dumps(header, ensure_ascii=True, separators=(",", ":")).encode("ascii")
    text += b" " * (-(len(text) + 8) % _ALIGNMENT)
    return b64encode(zlib.compress(len(text).to_bytes(8, "little") + text + arrays.to_bytes(), 6)).decode("ascii")


def _printable_name(text: str) -> str:
    return to_printable(text, _NAME_CHARACTERS)


def _layout_to_json(layout: BodyLayout) -> dict[str, Any]:
    is_small = len(layout.fields) <= _MAX_FIELDS
    return {
        "dictionary": None if layout.dictionary_id is None else str(layout.dictionary_id),
        "fields": [
            [_printable_name(f.name), f.parent, to_printable(f.type, _TYPE_CHARACTERS), f.column] for f in layout.fields
        ]
        if is_small
        else [],
        "buffers": [[b.field, b.role, b.element, int(b.is_variadic)] for b in layout.buffers] if is_small else [],
    }


def _limit_byte_ranges(
    sections: tuple[FileSection, ...], max_byte_ranges: int
) -> tuple[list[tuple[FileSection, ByteRanges]], list[bool]]:
    """Return the sections with the byte ranges that the page shows, and for each whether these are all."""
    visible_sections, is_detailed, range_count = [], [], 0
    for section in sections:
        byte_ranges = section.byte_ranges
        range_count += len(byte_ranges)
        # A section with few ranges would not become smaller. Of others, the buffers become one range: the body.
        is_complete = range_count <= max_byte_ranges or len(byte_ranges) <= 5
        if not is_complete:
            is_buffer = byte_ranges.kinds == ByteRangeKind.BUFFER
            count = int(np.argmax(is_buffer)) if is_buffer.any() else len(byte_ranges)
            body = ByteRanges.from_sizes((int(byte_ranges.lengths_bytes[count:].sum()), ByteRangeKind.BODY))
            byte_ranges = byte_ranges.head(count).concat(body)
        visible_sections.append((section, byte_ranges))
        is_detailed.append(is_complete)
    return visible_sections, is_detailed


def _add_sections(
    arrays: _ArrayPacker,
    sections: list[tuple[FileSection, ByteRanges]],
    is_detailed: list[bool],
    layouts: tuple[BodyLayout, ...],
) -> dict[str, list[list[int]]]:
    """Add the arrays of the sections; return the spans of buffers of messages with overlapping buffers."""
    nodes, variadic = [], []
    shared: dict[str, list[list[int]]] = {}
    columns = {
        name: np.full(len(sections), -1, np.int64)
        for name in ("number", "layout", "rows", "codec", "body_offset", "body_bytes")
    }
    columns |= {name: np.zeros(len(sections), np.int64) for name in ("flags", "leaves", "buffers", "nodes", "kind")}
    dictionary = [""] * len(sections)
    for index, (section, byte_ranges) in enumerate(sections):
        columns["kind"][index], columns["number"][index] = _SECTION_KINDS[section.kind], section.number
        columns["leaves"][index] = len(byte_ranges)
        columns["flags"][index] = _LISTED * section.is_listed
        message = section.message
        if is_detailed[index]:
            has_layout = section.layout_index >= 0 and len(layouts[section.layout_index].fields) <= _MAX_FIELDS
            columns["layout"][index] = section.layout_index if has_layout else -1
            columns["buffers"][index] = 0 if message is None else len(section.buffers[0])
            if message is not None and len(shared) < _MAX_SHARED:
                offsets, lengths = section.buffers
                buffer_bytes = int(byte_ranges.lengths_bytes[byte_ranges.kinds == ByteRangeKind.BUFFER].sum())
                # The page computes spans from the ranges, unless buffers overlap.
                if buffer_bytes != int(lengths.clip(0).sum()):
                    spans = zip(offsets[:1000].tolist(), lengths[:1000].tolist(), strict=True)
                    shared[str(index)] = list(map(list, spans))
        if message is None:
            continue
        template = message.header.template
        columns["rows"][index], columns["body_offset"][index] = message.header.length, message.body_offset
        columns["body_bytes"][index] = message.header.body_bytes
        columns["codec"][index] = list(CODECS).index(template.compression) if template.compression else -1
        columns["flags"][index] |= (
            _DELTA * template.is_delta | _LEGACY * message.is_legacy_framing | _WITH_METADATA * bool(template.pairs)
        )
        dictionary[index] = str(template.dictionary_id) if section.kind is FileSectionKind.DICTIONARY_BATCH else ""
        if columns["layout"][index] >= 0:
            node_array = message.header.nodes()
            columns["nodes"][index] = len(node_array)
            nodes.append(np.stack([node_array["length"], node_array["null_count"]], axis=1).astype(np.int64))
            if layouts[section.layout_index].is_variadic:
                variadic.append(np.array(message.header.variadic_counts(), np.int64))
    for name, values in columns.items():
        arrays.add(f"section_{name}", values, "u1" if name in ("kind", "flags") else "f8" if name != "leaves" else "u4")
    arrays.add("section_dictionary", [int(key) if key else -1 for key in dictionary], "f8")
    all_ranges = [byte_ranges for _, byte_ranges in sections]
    arrays.add("leaf_length", np.concatenate([ranges.lengths_bytes for ranges in all_ranges]), "u4")
    arrays.add("leaf_kind", np.concatenate([ranges.kinds for ranges in all_ranges]), "u1")
    arrays.add("leaf_buffer", np.concatenate([ranges.buffers for ranges in all_ranges]), "i4")
    arrays.add("nodes", np.concatenate([np.zeros((0, 2), np.int64), *nodes]).ravel().clip(-1), "f8")
    arrays.add("variadic", np.concatenate([np.zeros(0, np.int64), *variadic]), "i4")
    return shared


# The file's own bytes


def _sampled_ranges(
    sections: list[tuple[FileSection, ByteRanges]], total_bytes: int, limits: PageLimits
) -> Iterator[tuple[int, int]]:
    """Yield start and stop of the ranges of the file in the page, unordered."""
    if total_bytes <= limits.max_whole_bytes:
        yield 0, total_bytes
        return
    batches = [(section, byte_ranges) for section, byte_ranges in sections if section.message is not None]
    others = [(section, byte_ranges) for section, byte_ranges in sections if section.message is None]
    remaining_bytes = limits.max_sample_bytes
    # Metadata first, then the first three batches and the last one, then the others until the limit.
    for section, byte_ranges in [*others, *batches[:3], *batches[-1:], *batches[3:-1]]:
        is_small = (byte_ranges.kinds == ByteRangeKind.BUFFER) | (byte_ranges.kinds == ByteRangeKind.PADDING)
        max_bytes = np.where(is_small, limits.sample_bytes, limits.header_sample_bytes)
        sizes = np.minimum(byte_ranges.lengths_bytes, max_bytes)
        remaining_bytes -= int(sizes.sum())
        if remaining_bytes < 0:
            return
        starts = section.start + np.cumsum(byte_ranges.lengths_bytes) - byte_ranges.lengths_bytes
        yield from zip(starts.tolist(), (starts + sizes).tolist(), strict=True)


def _merge_ranges(ranges: Iterable[tuple[int, int]]) -> list[list[int]]:
    merged_ranges: list[list[int]] = []
    for start, stop in sorted(ranges):
        if merged_ranges and start <= merged_ranges[-1][1]:
            merged_ranges[-1][1] = max(merged_ranges[-1][1], stop)
        elif stop > start:
            merged_ranges.append([start, stop])
    return merged_ranges


def _add_file_bytes(arrays: _ArrayPacker, ranges: list[list[int]], source: RandomAccessSource) -> None:
    arrays.add("range_start", [start for start, _ in ranges], "f8")
    arrays.add("range_length", [stop - start for start, stop in ranges], "u4")
    spans = [(start, stop - start) for start, stop in ranges]
    fetched_ranges = source.fetch(spans, _GAP_BYTES)
    content = b"".join(fetched_ranges.read(*span) for span in spans)
    arrays.add("bytes", np.frombuffer(content, np.uint8), "u1")


def _add_decompressed_bytes(
    arrays: _ArrayPacker,
    sections: list[tuple[FileSection, ByteRanges]],
    ranges: list[list[int]],
    source: RandomAccessSource,
    limits: PageLimits,
) -> None:
    """Add the first decompressed bytes of each compressed buffer with bytes in the page."""
    starts = np.array([start for start, _ in ranges], np.int64)
    requests: list[tuple[int, str, Span]] = []
    first_leaf, remaining_bytes = 0, MAX_ROUND_BYTES if isinstance(source, RangeSource) else sys.maxsize
    for section, byte_ranges in sections:
        codec = None if section.message is None else section.message.header.template.compression
        if codec is not None and len(requests) < _MAX_DECOMPRESSED and remaining_bytes > 0:
            offsets = section.start + np.cumsum(byte_ranges.lengths_bytes) - byte_ranges.lengths_bytes
            for leaf in np.flatnonzero(byte_ranges.kinds == ByteRangeKind.BUFFER).tolist():
                offset, size = int(offsets[leaf]), int(byte_ranges.lengths_bytes[leaf])
                range_index = int(np.searchsorted(starts, offset, "right")) - 1
                if (
                    range_index < 0
                    or offset >= ranges[range_index][1]
                    or len(requests) >= _MAX_DECOMPRESSED
                    or remaining_bytes <= 0
                ):
                    continue
                requests.append((first_leaf + leaf, codec, (offset, min(size, _MAX_COMPRESSED_BYTES))))
                remaining_bytes -= requests[-1][2][1]
        first_leaf += len(byte_ranges)
    leaves, chunks = [], []
    for group in group_by_size(requests, [size for _, _, (_, size) in requests], MAX_ROUND_BYTES):
        fetched_ranges = source.fetch([span for _, _, span in group], _GAP_BYTES)
        for leaf, codec_name, span in group:
            try:
                decompressed = decompress_first_bytes(codec_name, fetched_ranges.read(*span), limits.sample_bytes)
            except MissingExtraError:
                decompressed = b""
            if decompressed:
                leaves.append(leaf)
                chunks.append(decompressed)
    arrays.add("decompressed_leaf", leaves, "u4")
    arrays.add("decompressed_length", [len(chunk) for chunk in chunks], "u4")
    arrays.add("decompressed_bytes", np.frombuffer(b"".join(chunks), np.uint8), "u1")


# Glossary


def _glossary_to_json() -> dict[str, Any]:
    """Return the meanings for the page: title, text, and the name and URL of each heading."""
    return {
        key: [meaning["title"], meaning["text"], [[heading, _heading_url(heading)] for heading in meaning["headings"]]]
        for key, meaning in MEANINGS.items()
    }


def _heading_url(heading: str) -> str:
    """Return the URL of a heading in the specification."""
    anchor = "".join(c if c.isalnum() else "-" for c in heading.lower()).strip("-")
    return _SPECIFICATION + anchor

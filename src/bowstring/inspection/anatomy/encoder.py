"""Encode an anatomy for the page: a JSON header, typed arrays and a sample of the bytes of the file, compressed."""

from __future__ import annotations

import json
import sys
import zlib
from base64 import b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bowstring.errors import MissingExtraError
from bowstring.inspection.anatomy.glossary import to_json_data
from bowstring.inspection.anatomy.model import Anatomy, BodyBufferPlan, ByteRangeKind, Leaves, Part, PartKind
from bowstring.inspection.text import printable
from bowstring.io.byte_ranges import Span
from bowstring.io.range_source import MAX_ROUND_BYTES, RangeSource
from bowstring.io.sources import RandomAccessSource
from bowstring.ipc.record_batch.compression import decompress_first_bytes
from bowstring.memory.thread_pool import group_by_size

_ALIGNMENT = 8
_NAME_CHARACTERS = 120
_TYPE_CHARACTERS = 200
_MESSAGE_CHARACTERS = 600
_MAX_FIELDS = 50_000
_MAX_SHARED = 200
_MAX_DECOMPRESSED = 2000
_MAX_COMPRESSED_BYTES = (1 << 20) + 1024
_GAP_BYTES = 1 << 13
_PART_KINDS = {kind: number for number, kind in enumerate(PartKind)}
_LISTED, _DELTA, _LEGACY, _WITH_METADATA = 1, 2, 4, 8


@dataclass(frozen=True, slots=True)
class PageLimits:
    """Limits on the contents of a page.

    - `max_leaves`: the number of leaves after which the body of a batch becomes a single leaf
    - `max_whole_bytes`: the size up to which the page has the whole file
    - `max_sample_bytes`: the number of bytes of a larger file, from its first batches and its last
    - `sample_bytes`, `header_sample_bytes`: the number of bytes of each buffer and of each header
    """

    max_leaves: int = 1_500_000
    max_whole_bytes: int = 256 << 10
    max_sample_bytes: int = 1_250_000
    sample_bytes: int = 64
    header_sample_bytes: int = 2048


class _Arrays:
    """Consecutive named arrays, each at a multiple of 8 bytes."""

    def __init__(self) -> None:
        self.positions: dict[str, tuple[str, int, int]] = {}
        self._parts: list[bytes] = []
        self._at = 0

    def add(self, name: str, values: npt.ArrayLike, dtype: str) -> None:
        """Add an array of a dtype such as "u1", "i4" or "f8"; "u4" becomes "f8" for larger values."""
        array = np.asarray(values)
        if dtype == "u4" and array.size and int(array.max()) > 0xFFFFFFFF:
            dtype = "f8"
        raw = array.astype(f"<{dtype}").tobytes()
        self.positions[name] = (dtype, self._at, array.size)
        self._parts.append(raw + bytes(-len(raw) % _ALIGNMENT))
        self._at += len(self._parts[-1])

    def to_bytes(self) -> bytes:
        """Return all arrays."""
        return b"".join(self._parts)


def encode_anatomy(anatomy: Anatomy, source: RandomAccessSource, name: str, limits: PageLimits) -> str:
    """Return the data of the page in base64: zlib over the length of a JSON header, the header and the arrays."""
    arrays = _Arrays()
    parts, is_detailed = _limit_leaves(anatomy.parts, limits.max_leaves)
    shared = _add_parts(arrays, parts, is_detailed, anatomy.plans)
    ranges = _merge_ranges(_ranges(parts, anatomy.total_bytes, limits))
    _add_file_bytes(arrays, ranges, source)
    _add_decompressed(arrays, parts, ranges, source, limits)
    inspection = anatomy.inspection
    header = {
        "name": name,
        "format": anatomy.format,
        "total": anatomy.total_bytes,
        "big": inspection is not None and inspection.encoding.endianness == "big",
        "part_kinds": [kind.value for kind in PartKind],
        "plans": [_plan(plan) for plan in anatomy.plans],
        "columns": [] if inspection is None else [_text(c.name) for c in inspection.columns[:_MAX_FIELDS]],
        "dictionaries": {} if inspection is None else {str(d.id): list(d.columns) for d in inspection.dictionaries},
        "faults": [[fault.offset, printable(fault.message, _MESSAGE_CHARACTERS)] for fault in anatomy.faults],
        "shared": shared,
        "whole": sum(is_detailed) == len(parts),
        "glossary": to_json_data(),
        "arrays": arrays.positions,
    }
    text = json.dumps(header, ensure_ascii=True, separators=(",", ":")).encode("ascii")
    text += b" " * (-(len(text) + 8) % _ALIGNMENT)
    return b64encode(zlib.compress(len(text).to_bytes(8, "little") + text + arrays.to_bytes(), 6)).decode("ascii")


def _text(text: str) -> str:
    return printable(text, _NAME_CHARACTERS)


def _plan(plan: BodyBufferPlan) -> dict[str, Any]:
    is_small = len(plan.fields) <= _MAX_FIELDS
    return {
        "dictionary": None if plan.dictionary_id is None else str(plan.dictionary_id),
        "fields": [[_text(f.name), f.parent, printable(f.type, _TYPE_CHARACTERS), f.column] for f in plan.fields]
        if is_small
        else [],
        "slots": [[s.field, s.role, s.element, int(s.is_variadic)] for s in plan.slots] if is_small else [],
    }


def _limit_leaves(parts: tuple[Part, ...], max_leaves: int) -> tuple[list[tuple[Part, Leaves]], list[bool]]:
    """Return the parts with the leaves that the page shows, and for each whether these are all."""
    out, is_detailed, leaf_count = [], [], 0
    for part in parts:
        leaves = part.leaves
        leaf_count += len(leaves)
        fits = leaf_count <= max_leaves or len(leaves) <= 5
        if not fits:
            first = (
                int(np.argmax(leaves.kinds == ByteRangeKind.BUFFER))
                if (leaves.kinds == ByteRangeKind.BUFFER).any()
                else len(leaves)
            )
            head = Leaves(leaves.lengths_bytes[:first], leaves.kinds[:first], leaves.buffers[:first])
            leaves = head.concat(Leaves.of((int(leaves.lengths_bytes[first:].sum()), ByteRangeKind.BODY)))
        out.append((part, leaves))
        is_detailed.append(fits)
    return out, is_detailed


def _add_parts(
    arrays: _Arrays, parts: list[tuple[Part, Leaves]], is_detailed: list[bool], plans: tuple[BodyBufferPlan, ...]
) -> dict[str, list[list[int]]]:
    """Add the arrays of the parts; return the spans of buffers of messages with overlapping buffers."""
    nodes, variadic = [], []
    shared: dict[str, list[list[int]]] = {}
    rows = {name: np.full(len(parts), -1, np.int64) for name in ("number", "plan", "rows", "codec", "body", "claimed")}
    rows |= {name: np.zeros(len(parts), np.int64) for name in ("flags", "leaves", "buffers", "nodes", "kind")}
    dictionary = [""] * len(parts)
    for index, (part, leaves) in enumerate(parts):
        rows["kind"][index], rows["number"][index] = _PART_KINDS[part.kind], part.number
        rows["leaves"][index] = len(leaves)
        rows["flags"][index] = _LISTED * part.is_listed
        span = part.span
        if is_detailed[index]:
            rows["plan"][index] = part.plan if part.plan < 0 or len(plans[part.plan].fields) <= _MAX_FIELDS else -1
            rows["buffers"][index] = 0 if part.lengths is None else len(part.lengths)
            if part.lengths is not None and part.offsets is not None and len(shared) < _MAX_SHARED:
                own = int(leaves.lengths_bytes[leaves.kinds == ByteRangeKind.BUFFER].sum())
                if own != int(part.lengths.clip(0).sum()):
                    spans = zip(part.offsets[:1000].tolist(), part.lengths[:1000].tolist(), strict=True)
                    shared[str(index)] = list(map(list, spans))
        if span is None:
            continue
        template = span.header.template
        rows["rows"][index], rows["body"][index] = span.header.length, span.body_offset
        rows["claimed"][index] = span.header.body_bytes
        rows["codec"][index] = ("lz4", "zstd").index(template.compression) if template.compression else -1
        rows["flags"][index] |= (
            _DELTA * template.is_delta | _LEGACY * span.is_legacy_framing | _WITH_METADATA * bool(template.pairs)
        )
        dictionary[index] = str(template.dictionary_id) if part.kind is PartKind.DICTIONARY_BATCH else ""
        if rows["plan"][index] >= 0:
            node_array = span.header.nodes()
            rows["nodes"][index] = len(node_array)
            nodes.append(np.stack([node_array["length"], node_array["null_count"]], axis=1).astype(np.int64))
            if plans[part.plan].is_variadic:
                variadic.append(np.array(span.header.variadic_counts(), np.int64))
    for name, values in rows.items():
        arrays.add(f"part_{name}", values, "u1" if name in ("kind", "flags") else "f8" if name != "leaves" else "u4")
    arrays.add("part_dictionary", [int(key) if key else -1 for key in dictionary], "f8")
    every = [leaves for _, leaves in parts]
    arrays.add("leaf_length", np.concatenate([e.lengths_bytes for e in every]), "u4")
    arrays.add("leaf_kind", np.concatenate([e.kinds for e in every]), "u1")
    arrays.add("leaf_buffer", np.concatenate([e.buffers for e in every]), "i4")
    arrays.add("nodes", np.concatenate([np.zeros((0, 2), np.int64), *nodes]).ravel().clip(-1), "f8")
    arrays.add("variadic", np.concatenate([np.zeros(0, np.int64), *variadic]), "i4")
    return shared


# The file's own bytes


def _ranges(parts: list[tuple[Part, Leaves]], total_bytes: int, limits: PageLimits) -> Iterator[tuple[int, int]]:
    """Yield start and stop of the ranges of the file in the page, unordered."""
    if total_bytes <= limits.max_whole_bytes:
        yield 0, total_bytes
        return
    batches = [(part, leaves) for part, leaves in parts if part.lengths is not None]
    others = [(part, leaves) for part, leaves in parts if part.lengths is None]
    remaining_bytes = limits.max_sample_bytes
    for part, leaves in [*others, *batches[:3], *batches[-1:], *batches[3:-1]]:
        is_small = (leaves.kinds == ByteRangeKind.BUFFER) | (leaves.kinds == ByteRangeKind.PADDING)
        max_bytes = np.where(is_small, limits.sample_bytes, limits.header_sample_bytes)
        sizes = np.minimum(leaves.lengths_bytes, max_bytes)
        remaining_bytes -= int(sizes.sum())
        if remaining_bytes < 0:
            return
        starts = part.start + np.cumsum(leaves.lengths_bytes) - leaves.lengths_bytes
        yield from zip(starts.tolist(), (starts + sizes).tolist(), strict=True)


def _merge_ranges(ranges: Iterable[tuple[int, int]]) -> list[list[int]]:
    merged_ranges: list[list[int]] = []
    for start, stop in sorted(ranges):
        if merged_ranges and start <= merged_ranges[-1][1]:
            merged_ranges[-1][1] = max(merged_ranges[-1][1], stop)
        elif stop > start:
            merged_ranges.append([start, stop])
    return merged_ranges


def _add_file_bytes(arrays: _Arrays, ranges: list[list[int]], source: RandomAccessSource) -> None:
    arrays.add("range_start", [start for start, _ in ranges], "f8")
    arrays.add("range_length", [stop - start for start, stop in ranges], "u4")
    spans = [(start, stop - start) for start, stop in ranges]
    pieces = source.fetch(spans, _GAP_BYTES)
    content = b"".join(pieces.read(*span) for span in spans)
    arrays.add("bytes", np.frombuffer(content, np.uint8), "u1")


def _add_decompressed(
    arrays: _Arrays,
    parts: list[tuple[Part, Leaves]],
    ranges: list[list[int]],
    source: RandomAccessSource,
    limits: PageLimits,
) -> None:
    """Add the first decompressed bytes of each compressed buffer with bytes in the page."""
    starts = np.array([start for start, _ in ranges], np.int64)
    requests: list[tuple[int, str, Span]] = []
    first, remaining_bytes = 0, MAX_ROUND_BYTES if isinstance(source, RangeSource) else sys.maxsize
    for part, leaves in parts:
        codec = None if part.span is None else part.span.header.template.compression
        if codec is not None and len(requests) < _MAX_DECOMPRESSED and remaining_bytes > 0:
            offsets = part.start + np.cumsum(leaves.lengths_bytes) - leaves.lengths_bytes
            for leaf in np.flatnonzero(leaves.kinds == ByteRangeKind.BUFFER).tolist():
                offset, size = int(offsets[leaf]), int(leaves.lengths_bytes[leaf])
                around = int(np.searchsorted(starts, offset, "right")) - 1
                if (
                    around < 0
                    or offset >= ranges[around][1]
                    or len(requests) >= _MAX_DECOMPRESSED
                    or remaining_bytes <= 0
                ):
                    continue
                requests.append((first + leaf, codec, (offset, min(size, _MAX_COMPRESSED_BYTES))))
                remaining_bytes -= requests[-1][2][1]
        first += len(leaves)
    numbers, chunks = [], []
    for group in group_by_size(requests, [size for _, _, (_, size) in requests], MAX_ROUND_BYTES):
        pieces = source.fetch([span for _, _, span in group], _GAP_BYTES)
        for number, codec, span in group:
            try:
                decompressed = decompress_first_bytes(codec, pieces.read(*span), limits.sample_bytes)
            except MissingExtraError:
                decompressed = b""
            if decompressed:
                numbers.append(number)
                chunks.append(decompressed)
    arrays.add("decompressed_leaf", numbers, "u4")
    arrays.add("decompressed_length", [len(chunk) for chunk in chunks], "u4")
    arrays.add("decompressed_bytes", np.frombuffer(b"".join(chunks), np.uint8), "u1")

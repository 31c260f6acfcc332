"""Build the anatomy of a source («RecordBatch message», «Dictionary Messages»)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bowstring.datatypes.field import Metadata
from bowstring.errors import InvalidDataError
from bowstring.flatbuf.reader import Table
from bowstring.inspection.anatomy.buffer_roles import column_plan, dictionary_plan, tensor_plan
from bowstring.inspection.anatomy.leaves import body_leaves, clip_buffers
from bowstring.inspection.anatomy.model import Anatomy, BodyBufferPlan, ByteRangeKind, Leaves, Part, PartKind
from bowstring.inspection.anatomy.walker import Walker
from bowstring.inspection.inspector import inspect_scan
from bowstring.inspection.report import Inspection
from bowstring.inspection.sizes import Tally
from bowstring.io.sources import RandomAccessSource, as_random_access, open_source
from bowstring.ipc.footer import TRAILER
from bowstring.ipc.format_detection import MAX_PIPED_BYTES, detect_format
from bowstring.ipc.limits import DEFAULT_LIMITS, ReadLimits
from bowstring.ipc.metadata.schema import V4, V5, WireSchema, read_wire_schema
from bowstring.ipc.tools.scan import BatchMessage, Overhead
from bowstring.memory.closable import close_on_error

MAX_PARTS = 100_000
_ADVANCE_EVERY = 500
_NO_ROLES: dict[tuple[int, str], int] = {}


def build_anatomy(
    source: Any,
    limits: ReadLimits = DEFAULT_LIMITS,
    max_piped_bytes: int = MAX_PIPED_BYTES,
    max_parts: int = MAX_PARTS,
) -> Anatomy:
    """Build the anatomy of an Arrow file or stream («Serialization and Interprocess Communication (IPC)»).

    `source` is anything that `inspect` accepts. Headers are read, bodies are not; of a URL only headers and readahead
    are fetched. A stream that cannot seek is kept in memory. Damaged data does not raise: the readable parts are
    returned, and `faults` has the errors. After `max_parts` messages the others are one part.

    Raises `LimitError` for a stream that cannot seek and exceeds `max_piped_bytes`, `FormatMismatchError` for other
    formats, `TruncatedError` for an empty source, `NotFoundError` for a missing path.
    """
    opened, is_file = open_seekable(source, max_piped_bytes)
    try:
        return build_from_source(opened, is_file, limits, max_parts)
    finally:
        opened.close()


def open_seekable(source: Any, max_piped_bytes: int = MAX_PIPED_BYTES) -> tuple[RandomAccessSource, bool]:
    """Open a source with random access from its position on; return it and whether it is a file."""
    opened = open_source(source)
    with close_on_error(opened):
        is_file, ready = detect_format(opened, max_piped_bytes)
        seekable = as_random_access(ready, max_piped_bytes)
    if seekable is not opened:
        opened.close()
    return seekable, is_file


def build_from_source(
    source: RandomAccessSource,
    is_file: bool,
    limits: ReadLimits,
    max_parts: int,
    report_progress: Callable[[int, int | None], None] | None = None,
) -> Anatomy:
    """Build the anatomy of a source, which stays open. `report_progress(done, total)` gets numbers of parts."""
    walk = Walker(source, is_file, limits, max_parts)
    parts_without_bodies = list(walk.parts())
    bodies = _BodySplitter(walk, limits)
    split: list[Part] = []
    for part in parts_without_bodies:
        if report_progress is not None and len(split) % _ADVANCE_EVERY == 0:
            report_progress(len(split), len(parts_without_bodies))
        split.append(bodies.split(part))
    if report_progress is not None:
        report_progress(len(parts_without_bodies), len(parts_without_bodies))
    parts = tuple(split)
    inspection = bodies.inspection(parts)
    return Anatomy(
        source.name,
        "file" if is_file else "stream",
        source.size,
        parts,
        tuple(bodies.plans),
        tuple(walk.faults.entries),
        walk.faults.count,
        inspection,
        _NO_ROLES if inspection is None else _role_bytes(parts, bodies.plans),
        walk.is_shortened,
    )


class _BodySplitter:
    """Splits bodies into buffers, finds their plans, and excludes batches that contradict the schema."""

    def __init__(self, walk: Walker, limits: ReadLimits) -> None:
        self.plans: list[BodyBufferPlan] = []
        self._walk = walk
        self._limits = limits
        self._intact_spans: list[BatchMessage] = []
        self._is_tally_complete = True
        self._plan_indices: dict[tuple[object, ...], int] = {}
        self._wire: WireSchema | None = None
        if walk.schema is not None:
            try:
                self._wire = read_wire_schema(walk.schema.table, limits)
                self._tally = Tally(self._wire)
            except InvalidDataError as error:
                walk.faults.add(walk.schema.offset, error)

    def split(self, part: Part) -> Part:
        """Return the part with its body split into leaves."""
        offsets, lengths, leaves = part.offsets, part.lengths, part.leaves
        if offsets is None or lengths is None:
            return part
        body_bytes = int(leaves.lengths_bytes[-1]) if len(leaves) and leaves.kinds[-1] == ByteRangeKind.BODY else 0
        plan = self._plan(part)
        if body_bytes:
            head = Leaves(leaves.lengths_bytes[:-1], leaves.kinds[:-1], leaves.buffers[:-1])
            if plan < 0 or part.span is None or part.span.header.body_bytes > body_bytes:
                offsets, lengths = clip_buffers(offsets, lengths, body_bytes)
            leaves = head.concat(body_leaves(offsets, lengths, body_bytes))
        return replace(part, leaves=leaves, plan=plan)

    def _plan(self, part: Part) -> int:
        span = part.span
        if span is None:
            roles = _tensor_roles(0 if part.offsets is None else len(part.offsets))
            return self._plan_index((part.kind, roles), lambda: tensor_plan(roles, part.kind.value, V5))
        wire = self._wire
        if wire is None:
            return -1
        template = span.header.template
        try:
            self._tally.add(span)
        except InvalidDataError as error:
            if span.body_bytes == span.header.body_bytes:  # otherwise the walker has recorded the truncation
                self._walk.faults.add(part.start, error)
            self._is_tally_complete = False
            return -1
        if part.is_listed:
            self._intact_spans.append(span)
        else:
            self._is_tally_complete = False
        if part.kind is PartKind.RECORD_BATCH:
            return self._plan_index((None, template.version), lambda: column_plan(wire, template.version))
        node = wire.by_id[template.dictionary_id]
        return self._plan_index((node.id, template.version), lambda: dictionary_plan(node, template.version))

    def _plan_index(self, key: tuple[object, ...], make: Any) -> int:
        index = self._plan_indices.get(key)
        if index is None:
            index = self._plan_indices[key] = len(self.plans)
            self.plans.append(make())
        return index

    def inspection(self, parts: tuple[Part, ...]) -> Inspection | None:
        """Return the report of `bowstring.inspection.inspect` on the valid batches."""
        walk = self._walk
        if walk.schema is None or self._wire is None or walk.schema.version not in (V4, V5):
            return None
        scan = _IntactBatches(
            walk.schema.table,
            walk.schema.version,
            walk.footer_metadata,
            self._intact_spans,
            _measure_overhead(walk, parts),
        )
        try:
            tally = self._tally if self._is_tally_complete else None
            inspection = inspect_scan(scan, walk.source.name, self._limits, tally)
            return replace(inspection, format="file" if walk.is_file else "stream")
        except InvalidDataError as error:
            walk.faults.add(walk.schema.offset, error)
            return None


@dataclass(slots=True)
class _IntactBatches:
    """The valid batches with the interface of a scan."""

    schema: Table
    version: int
    footer_metadata: Metadata
    spans: list[BatchMessage]
    measured_overhead: Overhead

    def batches(self) -> Iterator[BatchMessage]:
        return iter(self.spans)

    def overhead(self) -> Overhead:
        return self.measured_overhead


def _measure_overhead(walk: Walker, parts: tuple[Part, ...]) -> Overhead:
    sizes = dict.fromkeys(PartKind, 0)
    for part in parts:
        sizes[part.kind] += part.leaves.total_bytes
    first = next((part for part in parts if part.kind is PartKind.SCHEMA), None)
    is_legacy_framing = first is not None and first.leaves.kinds[0] == ByteRangeKind.LENGTH
    trailer_bytes = TRAILER.size if sizes[PartKind.FOOTER] else 0
    return Overhead(
        walk.source.size,
        sizes[PartKind.SCHEMA],
        sizes[PartKind.FOOTER] - trailer_bytes,
        sizes[PartKind.START] + sizes[PartKind.END] + trailer_bytes,
        None if walk.is_file else walk.has_end_marker,
        is_legacy_framing,
    )


def _tensor_roles(count: int) -> tuple[str, ...]:
    """Return the roles of a tensor's buffers: the values, then those of its index."""
    index = {0: (), 1: ("indices",), 2: ("index pointers", "indices")}.get(count - 1)
    if index is None:
        pointers = (count - 2) // 2
        index = (*["index pointers"] * pointers, *["indices"] * (count - 1 - pointers))
    return ("values", *index)[:count]


def _role_bytes(parts: tuple[Part, ...], plans: list[BodyBufferPlan]) -> dict[tuple[int, str], int]:
    """Add up the buffers of record batches by column and role; variadic buffers count as data."""
    sums = [np.zeros(len(plan.slots), np.int64) for plan in plans]
    variadic_sums = [np.zeros(len(plan.slots), np.int64) for plan in plans]
    for part in parts:
        if part.kind is not PartKind.RECORD_BATCH or part.plan < 0 or not part.is_listed or part.lengths is None:
            continue
        plan = plans[part.plan]
        if plan.is_variadic and part.span is not None:
            slots = plan.slots_of(part.span.header.variadic_counts())
            declared = slots >= 0
            sums[part.plan] += part.lengths[declared]
            np.add.at(variadic_sums[part.plan], ~slots[~declared], part.lengths[~declared])
        else:
            sums[part.plan] += part.lengths
    out: dict[tuple[int, str], int] = {}
    for plan, own, extra in zip(plans, sums, variadic_sums, strict=True):
        if plan.dictionary_id is None:
            for slot, size, more in zip(plan.slots, own.tolist(), extra.tolist(), strict=True):
                column = plan.fields[slot.field].column
                for role, size_bytes in ((slot.role, size), ("data", more)):
                    out[column, role] = out.get((column, role), 0) + size_bytes
    return out

"""Errors in values, as `FaultAtOffset` records with their offset, in addition to errors in the structure."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from bowstring.inspection.anatomy.model import Anatomy, FaultAtOffset, FilePart, FilePartKind
from bowstring.inspection.validation import Fault, Validator
from bowstring.io.memory_source import MemorySource
from bowstring.ipc.limits import ReadLimits

_MAX_FAULTS = 100
_BUFFER_NAME = re.compile(r"(\w+)\[")


def add_value_errors(anatomy: Anatomy, source: MemorySource, limits: ReadLimits) -> Anatomy:
    """Return the anatomy with the errors in values added to `faults`, each at a buffer of its column.

    Batches with a damaged structure are skipped, because `faults` already has their errors.
    """
    batches = {part.number: part for part in anatomy.parts if part.kind is FilePartKind.RECORD_BATCH and part.is_listed}
    damaged = {number for number, part in batches.items() if _has_structural_fault(part, anatomy.faults)}
    faults, count = list(anatomy.faults), anatomy.fault_count
    for fault in Validator(MemorySource(source.memory, source.name), True, limits).faults():
        if fault.record_batch in damaged or (fault.record_batch is None and not fault.path):
            continue
        offset = _fault_offset(fault, anatomy, batches)
        if offset is None:
            continue
        count += 1
        if len(faults) < _MAX_FAULTS:
            faults.append(FaultAtOffset(offset, _format_message(fault)))
    return replace(anatomy, faults=tuple(faults), fault_count=count)


def _has_structural_fault(part: FilePart, faults: tuple[FaultAtOffset, ...]) -> bool:
    return part.layout_index < 0 or any(part.start <= fault.offset < part.stop for fault in faults)


def _fault_offset(fault: Fault, anatomy: Anatomy, batches: dict[int, FilePart]) -> int | None:
    """Return the offset of the buffer with the error, or of its message if the buffer is unknown."""
    if fault.record_batch is None:
        name = fault.path[0]
        parts = (part for part in anatomy.parts if part.kind is FilePartKind.DICTIONARY_BATCH and part.span is not None)
        return next(
            (p.start for p in parts if p.span and name == f"dictionary {p.span.header.template.dictionary_id}"), None
        )
    part = batches.get(fault.record_batch)
    if part is None or part.span is None or part.offsets is None or part.lengths is None:
        return None
    layout = anatomy.layouts[part.layout_index]
    indices = (
        layout.buffer_indices(part.span.header.variadic_counts())
        if layout.is_variadic
        else np.arange(len(part.lengths))
    )
    buffer_name = _BUFFER_NAME.match(fault.message)
    first_offset: int | None = None
    for index, offset, length in zip(indices.tolist(), part.offsets.tolist(), part.lengths.tolist(), strict=True):
        buffer = layout.buffers[index if index >= 0 else ~index]
        if not length or layout.fields[buffer.field].column != fault.column:
            continue
        buffer_offset = part.span.body_offset + int(offset)
        if buffer_name is not None and buffer.role == {"values": "data"}.get(buffer_name[1], buffer_name[1]):
            return buffer_offset
        first_offset = buffer_offset if first_offset is None else first_offset
    return part.start if first_offset is None else first_offset


def _format_message(fault: Fault) -> str:
    path = [] if fault.record_batch is None else [f"record batch {fault.record_batch}, column {fault.column_name!r}"]
    return f"{' → '.join([*path, *fault.path])}: {fault.message}"

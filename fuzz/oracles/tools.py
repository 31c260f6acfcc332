"""File tools: recover, concat, append; and the statistics in a file's footer.

A damaged source may result in a damaged copy, because bodies are not decoded. A valid source results in a valid copy
with the same rows.
"""

from __future__ import annotations

import base64
import io
from functools import lru_cache
from typing import Any
from zlib import crc32

import bowstring as bs
from bowstring.errors import BowstringError, InvalidArgumentError, InvalidDataError
from bowstring.inspection.validation import Validator
from bowstring.ipc.api import open_any
from bowstring.ipc.file_statistics import METADATA_KEY
from bowstring.ipc.message import is_file_start
from fuzz.editable_stream import parse_stream
from fuzz.expectations import LIMITS, MAX_ROWS, expect
from fuzz.temporary_files import write_file


def check_tools(data: bytes) -> bool:
    """Check the file tools on a file or stream."""
    batches = _read_valid(data)
    _recover(data, batches)
    if crc32(data) % 2:
        _concat(data, batches)
    elif is_file_start(data):
        _append(data, batches)
    return batches is not None


def _read_valid(data: bytes, *, has_checked_dictionaries: bool = True) -> list[bs.RecordBatch] | None:
    """The batches; None if validation reports an error or there are many rows.

    Without `has_checked_dictionaries`, errors of dictionaries that no batch uses are ignored.
    """
    for fault in Validator(data, True, LIMITS).faults():
        is_unused_dictionary = fault.record_batch is None and (fault.path or "inside dictionary" in fault.message)
        if has_checked_dictionaries or not is_unused_dictionary:
            return None
    with open_any(data, limits=LIMITS) as reader:
        batches = list(reader)
    return batches if sum(batch.num_rows for batch in batches) <= MAX_ROWS else None


def _expect_same_batches(expected: list[bs.RecordBatch], actual: list[bs.RecordBatch], operation: str) -> None:
    expect(len(expected) == len(actual), f"{operation}: {len(actual)} batches, not {len(expected)}")
    for left, right in zip(expected, actual, strict=True):
        expect(left.equals(right, nans_equal=True), f"{operation}: different data")


def _recover(data: bytes, batches: list[bs.RecordBatch] | None) -> None:
    sink = io.BytesIO()
    try:
        report = bs.ipc.recover(data, sink, limits=LIMITS)
    except InvalidDataError as error:
        expect(batches is None, f"recover rejects valid data: {error}")
        return
    recovered = _read_valid(sink.getvalue(), has_checked_dictionaries=False)
    if recovered is None:
        with open_any(sink.getvalue()) as reader:  # raises unless there are many rows
            expect(sum(batch.num_rows for batch in reader) > MAX_ROWS, "the recovered file is not valid")
        return
    expect(len(recovered) == report.record_batches, "the report has a different number of batches")
    expect(sum(batch.num_rows for batch in recovered) == report.rows, "the report has a different number of rows")
    if batches is not None and report.is_intact:
        _expect_same_batches(batches, recovered, "recover")


def _concat(data: bytes, batches: list[bs.RecordBatch] | None) -> None:
    as_stream = bool(crc32(data) & 2)
    sink = io.BytesIO()
    try:
        summary = bs.ipc.concat_files([data, data], sink, as_stream, limits=LIMITS)
    except InvalidArgumentError:
        return  # e.g. a replaced dictionary in a file
    except InvalidDataError as error:
        expect(batches is None, f"concat rejects valid data: {error}")
        return
    expect(summary.size_bytes == len(sink.getvalue()), "the summary has a different size")
    if batches is not None:
        with open_any(sink.getvalue()) as reader:
            _expect_same_batches([*batches, *batches], list(reader), "concat")


def _append(data: bytes, batches: list[bs.RecordBatch] | None) -> None:
    path = write_file("appended.arrow", data)
    added: list[bs.RecordBatch] = []
    try:
        with bs.ipc.append_to_file(path, limits=LIMITS) as writer:
            if batches:
                added = [batches[0]]
                writer.write(batches[0])
    except (InvalidDataError, InvalidArgumentError) as error:
        expect(path.read_bytes() == data, "a failed append changes the file")
        expect(batches is None or isinstance(error, InvalidArgumentError), f"append rejects a valid file: {error}")
        return
    if batches is not None:
        with bs.open_file(path) as reader:
            _expect_same_batches([*batches, *added], list(reader), "append")


# Statistics


@lru_cache
def file_with_statistics() -> bytes:
    """A file of three batches with all statistics."""
    sink = io.BytesIO()
    batches = [bs.record_batch({"n": [i, i + 1, None], "s": ["a" * i, None, "b"], "x": [0.5, None, i]}) for i in (1, 4)]
    with bs.new_file(sink, batches[0].schema) as writer:
        writer.enable_statistics(distinct=True)
        for batch in (*batches, batches[0].slice(0, 0)):
            writer.write(batch)
    return sink.getvalue()


def encoded_statistics(data: bytes) -> bytes:
    """The stream of statistics in a file's footer."""
    with bs.open_file(data) as reader:
        return base64.b64decode(reader.metadata[METADATA_KEY])


def check_statistics(data: bytes) -> bool:
    """Check a stream of statistics in the footer of a file."""
    structure = parse_stream(file_with_statistics())
    assert structure is not None
    assert structure.footer is not None
    for node in structure.footer.slots["custom_metadata"]:
        if node.slots["key"] == METADATA_KEY:
            node.slots["value"] = base64.b64encode(data)
    with bs.open_file(structure.encode(), limits=LIMITS) as reader:
        try:
            statistics = reader.statistics
        except InvalidDataError:
            return False
        if statistics is None:
            return False
        bounds: list[tuple[str, Any, Any]] = [("n", 2, None), ("n", None, 1), ("s", "aa", "b"), ("x", 0.1, 0.7)]
        for name, low, high in bounds:
            try:
                indices = reader.find_batches(name, low, high)
            except BowstringError as error:
                expect(isinstance(error, InvalidArgumentError), f"find_batches raises {error}")
                continue
            expect(set(indices) <= set(range(3)), "find_batches returns an invalid index")
        try:
            reader.check_statistics()
        except InvalidDataError:
            return False  # the statistics do not match the values
    return True

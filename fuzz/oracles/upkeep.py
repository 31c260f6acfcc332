"""What is done to whole files: recovered, put together, appended to; and what a footer says of its batches.

A damaged source may make a damaged copy, as bodies are not decoded; a sound one makes a sound one, with its rows.
"""

from __future__ import annotations

import base64
import io
from functools import lru_cache
from typing import Any
from zlib import crc32

import bowstring as bs
from bowstring.errors import BowstringError, InvalidDataError, UsageError
from bowstring.inspection.validation import Validator
from bowstring.ipc.format_detection import open_any
from bowstring.ipc.message import is_file_start
from bowstring.ipc.statistics import KEY
from fuzz.anatomy import dissect
from fuzz.places import put
from fuzz.promises import LIMITS, MOST_ROWS, promise


def check_upkeep(data: bytes) -> bool:
    """The oracle of files and streams that something is done to."""
    sound = _sound(data)
    _recover(data, sound)
    if crc32(data) % 2:
        _concat(data, sound)
    elif is_file_start(data):
        _append(data, sound)
    return sound is not None


def _sound(data: bytes) -> list[bs.RecordBatch] | None:
    """The batches, where validation finds no fault and they are not large."""
    if next(Validator(data, True, LIMITS).faults(), None) is not None:
        return None
    with open_any(data, limits=LIMITS) as reader:
        batches = list(reader)
    return batches if sum(batch.num_rows for batch in batches) <= MOST_ROWS else None


def _same(mine: list[bs.RecordBatch], theirs: list[bs.RecordBatch], what: str) -> None:
    promise(len(mine) == len(theirs), f"{what}: {len(theirs)} batches, not {len(mine)}")
    for left, right in zip(mine, theirs, strict=True):
        promise(left.equals(right, nans_equal=True), f"{what}: other data")


def _recover(data: bytes, sound: list[bs.RecordBatch] | None) -> None:
    sink = io.BytesIO()
    try:
        report = bs.recover(data, sink, limits=LIMITS)
    except InvalidDataError as error:
        promise(sound is None, f"sound data can't be recovered: {error}")
        return
    got = _sound(sink.getvalue())
    if got is None:
        with open_any(sink.getvalue()) as reader:  # it raises, or there are many rows
            promise(sum(batch.num_rows for batch in reader) > MOST_ROWS, "what is recovered is not sound")
        return
    promise(len(got) == report.record_batches, "other batches are recovered than reported")
    promise(sum(batch.num_rows for batch in got) == report.rows, "other rows are recovered than reported")
    if sound is not None and report.is_intact:
        _same(sound, got, "recovered")


def _concat(data: bytes, sound: list[bs.RecordBatch] | None) -> None:
    as_stream = bool(crc32(data) & 2)
    sink = io.BytesIO()
    try:
        done = bs.concat_files([data, data], sink, as_stream, limits=LIMITS)
    except UsageError:
        return  # a replaced dictionary in a file, and the like
    except InvalidDataError as error:
        promise(sound is None, f"sound data can't be put together: {error}")
        return
    promise(done.size_bytes == len(sink.getvalue()), "what is put together has another size than reported")
    if sound is not None:
        with open_any(sink.getvalue()) as reader:
            _same([*sound, *sound], list(reader), "put together")


def _append(data: bytes, sound: list[bs.RecordBatch] | None) -> None:
    path = put("appended.arrow", data)
    added: list[bs.RecordBatch] = []
    try:
        with bs.append_file(path, limits=LIMITS) as writer:
            if sound:
                added = [sound[0]]
                writer.write(sound[0])
    except (InvalidDataError, UsageError) as error:
        promise(path.read_bytes() == data, "an append that fails changes the file")
        promise(sound is None or isinstance(error, UsageError), f"a sound file can't be appended to: {error}")
        return
    if sound is not None:
        with bs.open_file(path) as reader:
            _same([*sound, *added], list(reader), "appended to")


# Statistics


@lru_cache
def file_with_statistics() -> bytes:
    """A file of three batches that says all that files say of their batches."""
    sink = io.BytesIO()
    batches = [bs.record_batch({"n": [i, i + 1, None], "s": ["a" * i, None, "b"], "x": [0.5, None, i]}) for i in (1, 4)]
    with bs.new_file(sink, batches[0].schema) as writer:
        writer.collect_statistics(distinct=True)
        for batch in (*batches, batches[0].slice(0, 0)):
            writer.write(batch)
    return sink.getvalue()


def said_of(data: bytes) -> bytes:
    """The stream that a file's footer holds of its batches."""
    with bs.open_file(data) as reader:
        return base64.b64decode(reader.metadata[KEY])


def check_statistics(data: bytes) -> bool:
    """The oracle of what a footer says: a stream, which takes the place of what the file's own footer says."""
    anatomy = dissect(file_with_statistics())
    assert anatomy is not None
    assert anatomy.footer is not None
    for node in anatomy.footer.slots["custom_metadata"]:
        if node.slots["key"] == KEY:
            node.slots["value"] = base64.b64encode(data)
    with bs.open_file(anatomy.render(), limits=LIMITS) as reader:
        try:
            held = reader.statistics
        except InvalidDataError:
            return False
        if held is None:
            return False
        bounds: list[tuple[str, Any, Any]] = [("n", 2, None), ("n", None, 1), ("s", "aa", "b"), ("x", 0.1, 0.7)]
        for name, low, high in bounds:
            try:
                found = reader.find_batches(name, low, high)
            except BowstringError as error:
                promise(isinstance(error, UsageError), f"finding by statistics says {error}")
                continue
            promise(set(found) <= set(range(3)), "statistics lead to batches that there are not")
        try:
            reader.check_statistics()
        except InvalidDataError:
            return False  # they are not those of the values, and are told to be so
    return True

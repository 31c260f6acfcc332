"""Malformed data: truncated, flipped or forged bytes give valid data or a Bowstring error."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bowstring as bs
from bowstring import errors
from bowstring.flatbuf.tables import DEFINITIONS
from bowstring.flatbuf.writer import UnionValue, build_flatbuffer
from bowstring.ipc.message import CONTINUATION, frame_message
from fuzz.editable_stream import parse_stream
from tests.ipc import samples
from tests.ipc.formats import ENCODERS, EVERY_FORMAT, OPENERS


def read_batches(format_: str, data: bytes) -> list[bs.RecordBatch]:
    batches = list(OPENERS[format_](data))
    for batch in batches:
        batch.validate(full=True)
    return batches


@EVERY_FORMAT
def test_truncation_at_any_byte_is_an_error_or_loses_whole_batches(format_: str) -> None:
    batch = samples.batch()
    data = ENCODERS[format_](batch, batch, alignment=8)
    for size in range(len(data)):
        try:
            batches = read_batches(format_, data[:size])
        except errors.InvalidDataError:
            continue
        assert format_ == "stream", f"a file cut to {size} of {len(data)} bytes was read"
        assert len(batches) <= 2
        assert all(batch_read.equals(batch) for batch_read in batches)


@EVERY_FORMAT
def test_flipped_bits_give_a_bowstring_error_or_valid_data(format_: str) -> None:
    batch = samples.batch()
    data = ENCODERS[format_](batch, alignment=8)
    rng = random.Random(7)
    outcomes = {"read": 0, "refused": 0}
    for _ in range(600):
        mutated = bytearray(data)
        for _ in range(rng.choice([1, 1, 2, 5])):
            mutated[rng.randrange(len(mutated))] ^= 1 << rng.randrange(8)
        try:
            read_batches(format_, bytes(mutated))
            outcomes["read"] += 1
        except errors.InvalidDataError:
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 20, outcomes


@EVERY_FORMAT
def test_extreme_numbers_give_a_bowstring_error_or_valid_data(format_: str) -> None:
    data = ENCODERS[format_](samples.batch(), alignment=8)
    values = (b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff", b"\0\0\0\x80", b"\xff" * 7 + b"\x7f")
    for index, at in enumerate(range(0, len(data) - 8, 8)):
        for value in values[index % 2 :: 2]:
            mutated = data[:at] + value + data[at + len(value) :]
            try:
                read_batches(format_, mutated)
            except errors.InvalidDataError:
                pass


@EVERY_FORMAT
@pytest.mark.parametrize(("name", "buffer"), [("int", 1), ("text", 2), ("list", 3), ("dictionary", 1)])
def test_a_buffer_that_is_not_aligned_is_an_error(format_: str, name: str, buffer: int) -> None:
    """pyarrow rejects it, too. One flipped bit of an offset led to other values."""
    stream = parse_stream(ENCODERS[format_](samples.batch(name)))
    assert stream is not None
    header = stream.messages[-1].batch
    assert header is not None
    header.slots["buffers"]["offset"][buffer] ^= 4
    with pytest.raises(errors.InvalidDataError, match=f"column '{name}': a buffer at byte .*, not at a multiple of 8"):
        read_batches(format_, stream.encode())
    header.slots["buffers"]["length"][buffer] = 0
    with pytest.raises(errors.InvalidDataError, match=r"has 0 bytes|not within the data buffer's size of 0"):
        read_batches(format_, stream.encode())


def schema_message(fields: list[dict[str, Any]]) -> bytes:
    record = {"version": 4, "header_type": 1, "header": UnionValue("Schema", {"fields": fields})}
    return frame_message(build_flatbuffer(DEFINITIONS, "Message", record))


def nested_field(depth: int) -> dict[str, Any]:
    field: dict[str, Any] = {"name": "x", "type_type": 2, "type": UnionValue("Int", {"bitWidth": 8})}
    for _ in range(depth):
        field = {"name": "x", "type_type": 12, "type": UnionValue("List", {}), "children": [field]}
    return field


def test_nesting_is_limited_by_an_option() -> None:
    data = schema_message([nested_field(63)])
    assert len(bs.open_stream(data).schema) == 1
    with pytest.raises(errors.LimitError, match="63"):
        bs.open_stream(data, limits=bs.ipc.ReadLimits(max_nesting=63))


def test_more_tables_than_the_limit_are_rejected() -> None:
    data = schema_message([nested_field(0) for _ in range(100)])
    assert len(bs.open_stream(data).schema) == 100
    with pytest.raises(errors.LimitError, match="tables"):
        bs.open_stream(data, limits=bs.ipc.ReadLimits(max_tables=50))


def test_metadata_size_is_limited_by_an_option() -> None:
    data = samples.as_stream(samples.batch())
    with pytest.raises(errors.LimitError, match="limit of 100"):
        bs.open_stream(data, limits=bs.ipc.ReadLimits(max_metadata_bytes=100))


def test_a_claimed_body_of_a_terabyte_takes_no_memory(tmp_path: Path) -> None:
    batch = samples.batch("int")
    data = bytearray(samples.as_stream(batch))
    start = data.index(CONTINUATION, 8)
    header = bs.open_file(samples.as_file(batch)).read_batch_message(0)[0]
    at = start + header.template.body_length_at
    data[at : at + 8] = np.int64(1 << 40).tobytes()
    path = tmp_path / "claims.arrows"
    path.write_bytes(bytes(data))
    with pytest.raises(errors.InvalidDataError):
        list(bs.open_stream(path))
    with path.open("rb") as file, pytest.raises(errors.InvalidDataError, match="limit"):
        list(bs.open_stream(file))


@pytest.mark.parametrize(
    ("start", "what"),
    [
        (b"PAR1", "Parquet"),
        (b"FEA1", "Feather"),
        (b"\x1f\x8b\x08\0", "gzip"),
        (b"hello world, this", "text, perhaps CSV"),
    ],
)
@EVERY_FORMAT
def test_foreign_formats_are_named(format_: str, start: bytes, what: str) -> None:
    with pytest.raises(errors.FormatMismatchError, match=what):
        OPENERS[format_](start + bytes(100))


def test_streams_opened_as_files_and_files_as_streams_get_a_hint() -> None:
    with pytest.raises(errors.FormatMismatchError, match="use open_stream"):
        bs.open_file(samples.as_stream(samples.batch("int")))
    with pytest.raises(errors.FormatMismatchError, match="use open_file"):
        bs.open_stream(samples.as_file(samples.batch("int")))


@EVERY_FORMAT
def test_empty_data_is_truncated(format_: str) -> None:
    with pytest.raises(errors.TruncatedError):
        OPENERS[format_](b"")


def test_truncation_names_the_message_and_the_byte() -> None:
    data = samples.as_stream(samples.batch("int"), samples.batch("int"))
    reader = bs.open_stream(data[:-100])
    assert reader.read_next_batch().num_rows == 3
    with pytest.raises(errors.TruncatedError, match=r"message 2.* at byte \d+"):
        reader.read_next_batch()


@pytest.mark.parametrize(
    ("index", "place"), [(1, "record batch 0|message 1 at byte"), (2, "record batch 1|message 2 at")]
)
@EVERY_FORMAT
def test_a_batch_with_a_negative_number_of_rows_is_named(format_: str, index: int, place: str) -> None:
    stream = parse_stream(ENCODERS[format_](samples.batch("int"), samples.batch("int")))
    assert stream is not None
    header = stream.messages[index].header
    assert header is not None
    header.slots["length"] = -3
    with pytest.raises(errors.InvalidDataError, match=rf"({place}).*: expected a number of rows .* found -3 and \d+"):
        list(OPENERS[format_](stream.encode()))


@pytest.mark.parametrize(("column", "buffer"), [("int", 1), ("text", 1), ("text", 2)])
@pytest.mark.parametrize(("slot", "number"), [("offset", -8), ("offset", 1 << 40), ("length", -1), ("length", 1 << 62)])
def test_a_buffer_outside_the_body_is_named_with_its_column(column: str, buffer: int, slot: str, number: int) -> None:
    stream = parse_stream(samples.as_file(samples.batch(column)))
    assert stream is not None
    header = stream.messages[1].header
    assert header is not None
    header.slots["buffers"][slot][buffer] = number
    with pytest.raises(errors.InvalidDataError, match=f"record batch 0, column '{column}': buffers .* in a body of"):
        bs.open_file(stream.encode()).get_batch(0).column(0)


def test_a_schema_message_with_a_body_is_rejected() -> None:
    record = {
        "version": 4,
        "header_type": 1,
        "header": UnionValue("Schema", {"fields": [nested_field(0)]}),
        "bodyLength": 8,
    }
    with pytest.raises(errors.InvalidDataError, match="schema message without a body, found a body of 8 bytes"):
        bs.open_stream(frame_message(build_flatbuffer(DEFINITIONS, "Message", record)) + bytes(8))

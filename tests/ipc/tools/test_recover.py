"""Recovering damaged files and streams: which batches are kept and which are dropped."""

from __future__ import annotations

import io
import os
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import bowstring as bs
from bowstring import errors
from bowstring.inspection.validation import Validator
from fuzz.editable_stream import parse_stream
from tests.ipc import samples
from tests.ipc.samples import as_file, as_stream, batch, dictionary_batch

MARKER = b"\xff\xff\xff\xff"


def recover(raw: bytes | Path, **options: object) -> tuple[bs.ipc.RecoveryReport, list[bs.RecordBatch]]:
    """Return the report and the recovered batches."""
    sink = io.BytesIO()
    report = bs.ipc.recover(raw, sink, **options)  # type: ignore[arg-type]
    reader = bs.open_file(sink.getvalue()) if report.format == "file" else bs.open_stream(sink.getvalue())
    batches = list(reader)
    assert (report.record_batches, report.rows) == (len(batches), sum(map(len, batches)))
    return report, batches


def is_saved(actual: bs.RecordBatch, written: list[bs.RecordBatch]) -> bool:
    """Whether each column is that of one of the written batches, or null, and one is not null."""
    return any(
        any(column.equals(right[index]) for index, column in enumerate(actual.columns))
        and all(
            column.equals(right[index]) or column.null_count == len(column)
            for index, column in enumerate(actual.columns)
        )
        for right in written
    )


def batch_ends(raw: bytes) -> list[int]:
    """Return the end offset of each record batch of a file."""
    blocks = bs.open_file(raw).blocks
    return (blocks["offset"] + blocks["metaDataLength"] + blocks["bodyLength"]).tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("make", [as_file, as_stream])
def test_intact_data_is_reported_as_intact_and_unchanged(make: object) -> None:
    whole = batch()
    raw = make(whole, whole.slice(1))  # type: ignore[operator]
    report, batches = recover(raw)
    assert report.is_intact
    assert report.dropped == ()
    assert report.footer_problem is None
    assert [actual.equals(expected) for actual, expected in zip(batches, [whole, whole.slice(1)], strict=True)] == [
        True,
        True,
    ]


def test_footer_metadata_is_preserved_if_there_is_a_footer() -> None:
    sink = io.BytesIO()
    bs.ipc.recover(as_file(batch("int"), metadata={"k": "v"}), sink)
    assert bs.open_file(sink.getvalue()).metadata == {b"k": b"v"}


def test_all_complete_batches_of_a_truncated_file_are_recovered() -> None:
    rows = batch("text", "dictionary")
    expected = [rows, rows.slice(1), rows.slice(2)]
    raw = as_file(*expected, alignment=8)
    stops = batch_ends(raw)
    schema_ends = int(bs.open_file(raw).dictionary_blocks["offset"][0])
    for size in sorted({*range(0, len(raw), 5), *(stop + step for stop in stops for step in (-1, 0, 1))}):
        if size < schema_ends:
            with pytest.raises(errors.InvalidDataError):
                recover(raw[:size])
            continue
        report, batches = recover(raw[:size])
        whole = sum(stop <= size for stop in stops)
        assert len(batches) == whole, size
        assert not report.is_intact
        assert report.footer_problem is not None
        assert all(actual.equals(right) for actual, right in zip(batches, expected[:whole], strict=True)), size


def test_all_complete_batches_of_a_truncated_stream_are_recovered() -> None:
    expected = batch("text", "dictionary")
    raw = as_stream(expected, expected, alignment=8)
    sizes = set()
    for size in range(len(raw)):
        try:
            report, batches = recover(raw[:size])
        except errors.InvalidDataError:
            continue
        sizes.add(len(batches))
        assert all(actual.equals(expected) for actual in batches)
        if len(batches) < 2:
            cut = [dropped for dropped in report.dropped if dropped.stop == size]
            assert cut or raw[:size].endswith(b"\0" * 8) or len(raw[:size]) % 8 == 0
    assert sizes == {0, 1, 2}


@pytest.mark.parametrize("junk", [b"\0" * 64, b"junk" * 6, MARKER * 5, MARKER + b"\x10\0\0\0" + b"\x55" * 40, b"x"])
@pytest.mark.parametrize("keeps_footer", [True, False])
def test_junk_between_batches_is_skipped_and_reported(junk: bytes, keeps_footer: bool) -> None:
    rows = batch("int", "text", "dictionary", "view")
    raw = as_file(rows, rows.slice(1), rows)
    at = batch_ends(raw)[0]
    with_junk = raw[:at] + junk + raw[at : None if keeps_footer else -12]
    report, batches = recover(with_junk)
    assert [len(actual) for actual in batches] == [3, 2, 3]
    assert all(actual.equals(right) for actual, right in zip(batches, [rows, rows.slice(1), rows], strict=True))
    assert any(dropped.start == at and dropped.stop == at + len(junk) for dropped in report.dropped)
    assert not report.is_intact


def test_only_the_batch_with_a_damaged_header_is_dropped() -> None:
    rows = batch("int", "text", "dictionary", "list")
    raw = bytearray(as_file(rows, rows.slice(1), rows))
    block = bs.open_file(bytes(raw)).blocks[1]
    raw[int(block["offset"]) + 8 : int(block["offset"]) + 40] = os.urandom(32)
    report, batches = recover(bytes(raw))
    assert [len(actual) for actual in batches] == [3, 3]
    (dropped,) = report.dropped
    assert dropped.start == block["offset"]
    assert dropped.stop == batch_ends(bytes(raw))[1]
    assert report.footer_problem is None


def test_flipped_bits_never_give_an_invalid_batch() -> None:
    rows = batch("int", "text", "dictionary", "list", "view", "dense", "runs")
    raw = as_file(rows, rows, rows)
    rng = random.Random(7)
    intact = 0
    for _ in range(250):
        damaged = bytearray(raw)
        for _ in range(rng.choice((1, 1, 2, 5))):
            damaged[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        try:
            report, batches = recover(bytes(damaged))
        except errors.InvalidDataError:
            continue
        for record_batch in batches:
            record_batch.validate(full=True)
        intact += len(batches)
        assert len(batches) == 3 or report.dropped
    assert intact > 400


def test_flipped_bits_of_a_compressed_file_never_give_an_invalid_batch() -> None:
    rows = bs.record_batch({"n": np.arange(2000), "s": [str(number) * 3 for number in range(2000)]})
    raw = as_file(rows, rows, compression="zstd")
    rng = random.Random(8)
    for _ in range(100):
        damaged = bytearray(raw)
        damaged[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        try:
            _, batches = recover(bytes(damaged))
        except errors.InvalidDataError:
            continue
        for record_batch in batches:
            record_batch.validate(full=True)


def test_a_batch_inside_a_too_long_body_is_recovered() -> None:
    rows = batch("int", "text")
    raw = bytearray(as_stream(rows, rows, rows))
    first = raw.index(MARKER, 16)
    second = raw.index(MARKER, first + 8)
    body = second - first - 8 - int.from_bytes(raw[first + 4 : first + 8], "little")
    at = raw.index(body.to_bytes(8, "little"), first)
    raw[at : at + 8] = (body + 264).to_bytes(8, "little")
    report, batches = recover(bytes(raw))
    assert [actual.equals(rows) for actual in batches] == [True, True, True]
    assert report.dropped


def numbered_batches(count: int) -> list[bs.RecordBatch]:
    """Return different batches of several buffers each."""
    return [
        bs.record_batch(
            {
                "n": np.arange(100 * number, 100 * number + 77),
                "s": [f"value {number} {row}" for row in range(77)],
                "d": bs.array([f"word {row % (number + 1)}" for row in range(77)]).dictionary_encode(),
            }
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("keeps_end", [True, False])
@pytest.mark.parametrize("make", [as_file, as_stream])
def test_a_batch_with_missing_or_extra_bytes_is_dropped(make: object, keeps_end: bool) -> None:
    expected = numbered_batches(4)
    raw = make(*expected)  # type: ignore[operator]
    body_offset = raw.index(expected[1]["n"].to_numpy().tobytes())
    rng = random.Random(11)
    for _ in range(60):
        at, size = body_offset + rng.randrange(600), rng.randint(1, 200)
        changed = raw[:at] + raw[at + size :] if rng.random() < 0.5 else raw[:at] + rng.randbytes(size) + raw[at:]
        report, batches = recover(changed if keeps_end else changed[:-12])
        assert 1 <= len(batches) <= 3
        assert all(is_saved(actual, expected) for actual in batches), (at, size)
        assert report.dropped


@pytest.mark.parametrize("make", [as_file, as_stream])
def test_damaged_headers_never_give_a_batch_that_was_not_written(make: object) -> None:
    expected = numbered_batches(6)
    raw = make(*expected)  # type: ignore[operator]
    starts = [match.start() for match in re.finditer(MARKER, raw)][1:-1]
    rng = random.Random(12)
    for _ in range(60):
        changed = bytearray(raw)
        for start in rng.sample(starts, rng.randint(1, 3)):
            at = start + rng.randrange(int.from_bytes(raw[start + 4 : start + 8], "little") - 64)
            changed[at : at + rng.choice((4, 16, 64))] = rng.randbytes(rng.choice((4, 16, 64)))
        report, batches = recover(bytes(changed))
        assert all(is_saved(match, expected) for match in batches)
        assert len(batches) == 6 or report.dropped


@pytest.mark.parametrize("make", [as_file, as_stream])
def test_missing_and_extra_bytes_never_give_a_batch_that_was_not_written(make: object) -> None:
    expected = numbered_batches(6)
    raw = make(*expected)  # type: ignore[operator]
    begin = raw.index(MARKER, 24)
    rng = random.Random(13)
    for _ in range(100):
        changed = bytearray(raw)
        for _ in range(rng.randint(1, 2)):
            at, size = rng.randrange(begin, len(changed)), rng.choice((1, 8, 64, 300, 2000))
            cut = rng.random() < 0.5
            changed[at : at + size * cut] = rng.randbytes(size * (not cut))
        _, batches = recover(bytes(changed[: None if rng.random() < 0.8 else rng.randrange(begin, len(raw))]))
        assert all(is_saved(actual, expected) for actual in batches)


def test_a_lost_schema_is_read_from_the_footer_or_recovery_fails() -> None:
    rows = batch("int", "text")
    raw = bytearray(as_file(rows, rows))
    raw[8:80] = bytes(72)
    report, batches = recover(bytes(raw))
    assert len(batches) == 2
    assert "schema" in report.dropped[0].reason
    with pytest.raises(errors.InvalidDataError, match="nothing can be recovered: no schema at the beginning"):
        recover(bytes(raw[:-20]))


def test_junk_before_the_schema_is_skipped() -> None:
    rows = batch("int", "text")
    report, batches = recover(b"HTTP/1.1 200 OK\r\n\r\n" + as_stream(rows, rows))
    assert len(batches) == 2
    assert report.dropped[0].stop == 19


def test_bytes_after_the_end_of_a_stream_are_reported() -> None:
    raw = as_stream(batch("int"))
    report, batches = recover(raw + b"tail")
    assert len(batches) == 1
    assert [(dropped.start, dropped.stop) for dropped in report.dropped] == [(len(raw), len(raw) + 4)]


def test_batches_stored_in_a_column_are_not_recovered() -> None:
    inner_schema = bs.schema([("b", bs.binary())])
    inner = bs.record_batch([bs.array([b"inner"], bs.binary())], schema=inner_schema)
    outer = bs.record_batch([bs.array([as_stream(inner, inner), b"outer"], bs.binary())], schema=inner_schema)
    raw = bytearray(as_file(outer, outer))
    at = int(bs.open_file(bytes(raw)).blocks[0]["offset"])
    raw[at + 8 : at + 24] = bytes(16)
    for damaged in (bytes(raw), bytes(raw[:-10])):
        _, batches = recover(damaged)
        assert [actual.equals(outer) for actual in batches] == [True]


def test_legacy_framing_is_recovered_up_to_the_damage_or_by_the_footer() -> None:
    rows = batch("int", "text")
    raw = bytearray(as_file(rows, rows, rows, options=bs.ipc.IpcWriteOptions(is_legacy_framing=True)))
    at = int(bs.open_file(bytes(raw)).blocks[1]["offset"])
    raw[at : at + 12] = bytes(range(12))
    assert len(recover(bytes(raw))[1]) == 2
    assert len(recover(bytes(raw[:-10]))[1]) == 1


@pytest.mark.parametrize("is_legacy_framing", [False, True])
@pytest.mark.parametrize("make", [as_file, as_stream])
def test_a_batch_whose_values_were_shifted_is_dropped(make: Callable[..., bytes], is_legacy_framing: bool) -> None:
    batches = [bs.record_batch({"n": [index, 10 + index, 20 + index]}) for index in range(1, 4)]
    raw = make(*batches, options=bs.ipc.IpcWriteOptions(is_legacy_framing=is_legacy_framing))
    at = raw.index((12).to_bytes(8, "little"))
    # Without a marker, the next message is not found where fewer bytes precede it.
    for shifted in (raw[:at] + bytes(8) + raw[at:], *([] if is_legacy_framing else [raw[: at - 8] + raw[at:]])):
        report, saved = recover(shifted)
        assert not report.is_intact
        assert all(any(rows.equals(each) for each in batches) for rows in saved)
        assert saved[0].equals(batches[0])


@pytest.mark.parametrize("is_legacy_framing", [False, True])
@pytest.mark.parametrize("lost", [{0}, {1}, {2}, {0, 1}, {1, 2}, {0, 1, 2}])
def test_a_length_that_becomes_zero_is_no_end_of_a_file(lost: set[int], is_legacy_framing: bool) -> None:
    batches = [batch("int", "text").slice(0, num_rows) for num_rows in (1, 2, 3)]
    raw = bytearray(as_file(*batches, options=bs.ipc.IpcWriteOptions(is_legacy_framing=is_legacy_framing)))
    offsets = bs.open_file(bytes(raw)).blocks["offset"].tolist()
    for index in lost:
        at = offsets[index] + (0 if is_legacy_framing else 4)
        raw[at : at + 4] = bytes(4)
    report, saved = recover(bytes(raw))
    assert [rows.num_rows for rows in saved] == [index + 1 for index in range(3) if index not in lost]
    assert not report.is_intact
    for index in lost:
        assert any(dropped.start <= offsets[index] + 8 < dropped.stop for dropped in report.dropped)


@pytest.mark.parametrize(
    ("kind", "listed", "is_intact"),
    [
        ("recordBatches", [], False),
        ("recordBatches", [0], False),
        ("recordBatches", [0, 2], False),
        ("recordBatches", [0, 2, 1], True),
        ("recordBatches", [0, 1, 2, 2], False),
        ("dictionaries", [], False),
        ("dictionaries", [0], True),
        ("dictionaries", [0, 0], False),
    ],
)
def test_messages_that_a_footer_does_not_list_are_saved_and_reported(
    kind: str, listed: list[int], is_intact: bool
) -> None:
    whole = bs.record_batch({"n": [1, 2, 3], "word": bs.array(["a", "b", "a"]).dictionary_encode()})
    batches = [whole.slice(0, num_rows) for num_rows in (1, 2, 3)]
    stream = parse_stream(as_file(*batches))
    assert stream is not None
    stream.block_edits[kind] = lambda blocks: blocks[listed]
    report, saved = recover(stream.encode())
    assert report.is_intact == is_intact
    order = listed if kind == "recordBatches" and is_intact else range(3)
    assert [rows.to_pydict() for rows in saved] == [batches[index].to_pydict() for index in order]


@pytest.mark.parametrize("kind", ["dictionaries", "recordBatches"])
@pytest.mark.parametrize("change", [0, -8, 8, 1 << 20])
@pytest.mark.parametrize("field", ["metaDataLength", "bodyLength"])
def test_wrong_lengths_in_a_footer_are_reported(kind: str, field: str, change: int) -> None:
    rows = bs.record_batch({"word": bs.array(["a", "b", "a"]).dictionary_encode()})
    stream = parse_stream(as_file(rows))
    assert stream is not None

    def edit(blocks: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        blocks[field] += change
        return blocks

    stream.block_edits[kind] = edit
    raw = stream.encode()
    report, saved = recover(raw)
    assert saved[0].equals(rows)
    assert report.is_intact == (change == 0) == (not list(Validator(raw).faults()))


# Damaged columns


def test_a_damaged_column_without_a_null_drops_its_batch() -> None:
    union = bs.Array.from_buffers(bs.dense_union([]), 2, [bytes(2), bytes(8)])
    rows = bs.record_batch({"n": [1, 2], "u": union})
    report, saved = recover(as_file(rows, rows.slice(0, 0)))
    assert [batch.num_rows for batch in saved] == [0]
    assert [dropped.reason for dropped in report.dropped] == [
        "column 'u': type_ids[0] = 0 is not one of the type's ids ()"
    ]


def damage(raw: bytes, column: bytes) -> bytes:
    """Return the data with the second occurrence of these bytes replaced by some that are not text."""
    at = raw.index(column, raw.index(column) + 1)
    return raw[:at] + b"\xff" * len(column) + raw[at + len(column) :]


@pytest.mark.parametrize("options", [{}, {"compression": "zstd"}, {"options": bs.ipc.IpcWriteOptions("big", "V4")}])
@pytest.mark.parametrize("make", [as_file, as_stream])
def test_100_damaged_bytes_in_a_column_leave_the_13_others(make: Callable[..., bytes], options: dict[str, Any]) -> None:
    names = [f"c{number}" for number in range(14)]
    written = bs.record_batch({name: [f"{name} {'x' * 90} {row}" for row in range(50)] for name in names})
    raw = make(written, written, written, **options)
    text = f"c5 {'x' * 90} 7".encode()
    if "compression" in options:
        text = raw[raw.index(b"\x28\xb5\x2f\xfd", len(raw) // 2 - 600) :][:20]
    damaged = damage(raw, text)
    report, batches = recover(damaged)
    (lost,) = report.damaged_columns
    assert (lost.record_batch, lost.rows, report.dropped, report.is_intact) == (1, 50, (), False)
    assert [batch.equals(written) for batch in batches] == [True, False, True]
    assert batches[1][lost.name].null_count == 50
    assert [name for name in names if batches[1][name].equals(written[name])] == [n for n in names if n != lost.name]
    report, batches = recover(damaged, damaged_columns="drop")
    assert ([batch.equals(written) for batch in batches], report.damaged_columns) == ([True, True], ())
    (dropped,) = report.dropped
    assert dropped.reason == f"column {lost.name!r}: {lost.reason}"


@pytest.mark.parametrize("lost", [name for name in samples._COLUMNS if name not in ("null", "int")])
def test_damaged_columns_of_each_layout_become_null(lost: str) -> None:
    whole = batch(lost, "int")
    raw = bytearray(as_file(whole, whole))
    reader = bs.open_file(bytes(raw))
    header, _ = reader.read_batch_message(1)
    body_offset = int(reader.blocks[1]["offset"] + reader.blocks[1]["metaDataLength"])
    size = int(header.buffers()["offset"][-2])  # up to the buffers of "int"
    raw[body_offset : body_offset + size] = b"\xff" * size
    report, batches = recover(bytes(raw))
    assert [damaged.name for damaged in report.damaged_columns] == [lost]
    assert batches[0].equals(whole)
    assert batches[1]["int"].equals(whole["int"])
    assert batches[1][lost].to_pylist() == [None] * 3


@pytest.mark.parametrize("make", [as_file, as_stream])
def test_a_batch_is_dropped_if_its_damaged_column_is_not_nullable_or_the_only_one(make: Callable[..., bytes]) -> None:
    schema = bs.schema([bs.field("n", bs.int64()), bs.field("s", bs.string(), nullable=False)])
    for written in (bs.record_batch({"n": [1], "s": ["text"]}, schema=schema), bs.record_batch({"s": ["text"]})):
        report, batches = recover(damage(make(written, written), b"text"))
        assert ([batch.equals(written) for batch in batches], report.damaged_columns) == ([True], ())
        assert report.dropped[0].reason.startswith("column 's': values[0] is not valid UTF-8")


def test_a_column_whose_dictionary_is_lost_is_null_and_the_others_are_saved() -> None:
    columns = dictionary_batch("a", "b", keys=["a", "b"])
    written = bs.record_batch({"w": columns["w"], "n": [1, 2]})
    for raw in (as_file(written, written), as_stream(written, written)):
        at = raw.index(b"ab")  # the values of the dictionary
        report, batches = recover(raw[:at] + b"\xff" + raw[at + 1 :])
        assert [dropped.kind for dropped in report.dropped] == ["dictionary batch"]
        assert [batch.to_pydict() for batch in batches] == [{"w": [None, None], "n": [1, 2]}] * 2
        assert [damaged.reason for damaged in report.damaged_columns] == ["dictionary 0 has not been defined"] * 2


def test_damaged_columns_is_null_or_drop() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="damaged_columns: expected 'null' or 'drop', found 'keep'"):
        recover(as_file(batch("int")), damaged_columns="keep")


# Dictionaries


def _overwrite_message(raw: bytes, kind: str, number: int) -> bytes:
    """Return a stream with one message of a kind overwritten."""
    damaged, at, matches = bytearray(raw), 0, -1
    decoder_at = raw.index(MARKER)
    assert decoder_at == 0
    from bowstring.io.sources import open_sequential
    from bowstring.ipc.limits import DEFAULT_LIMITS
    from bowstring.ipc.tools.scan import StreamScan

    for span in StreamScan(open_sequential(raw), DEFAULT_LIMITS).batch_messages():
        matches += span.header.template.kind == kind
        if matches == number and span.header.template.kind == kind:
            at = span.start
            damaged[at : span.body_offset] = b"\x77" * (span.body_offset - at)
            return bytes(damaged)
    raise AssertionError(f"there is no {kind} {number}")


def test_batches_are_dropped_after_their_dictionary_is_lost_until_the_next_one() -> None:
    expected = [
        dictionary_batch("a", keys=["a"]),
        dictionary_batch("b", keys=["b"]),
        dictionary_batch("b", keys=["b"]),
        dictionary_batch("c", keys=["c", "d"]),
    ]
    raw = _overwrite_message(as_stream(*expected), "DictionaryBatch", 1)
    report, batches = recover(raw)
    assert [actual["w"].to_pylist() for actual in batches] == [["a"], ["c"]]
    assert [dropped.rows for dropped in report.dropped if dropped.kind == "record batch"] == [1, 1]
    assert any("dictionary 0 has not been defined" in dropped.reason for dropped in report.dropped)


def test_after_a_lost_delta_batches_of_earlier_values_are_kept() -> None:
    expected = [
        dictionary_batch("a", keys=["a"]),
        dictionary_batch("b", keys=["a", "b"]),
        dictionary_batch("c", keys=["a", "b", "c"]),
    ]
    expected.append(dictionary_batch("a", keys=["a", "b", "c"]))
    raw = bytearray(as_file(*expected))
    reader = bs.open_file(bytes(raw))
    assert reader.num_dictionary_batches == 3
    at = int(reader.dictionary_blocks[1]["offset"])
    raw[at : at + 60] = b"\x77" * 60
    for damaged in (bytes(raw), bytes(raw[:-10])):
        report, batches = recover(damaged)
        assert [actual["w"].to_pylist() for actual in batches] == [["a"], ["a"]]
        assert any("delta" in dropped.reason for dropped in report.dropped)


def test_with_a_footer_dictionaries_stay_valid_after_a_damaged_batch() -> None:
    expected = [
        dictionary_batch("a", keys=["a"]),
        dictionary_batch("b", keys=["a", "b"]),
        dictionary_batch("b", keys=["a", "b"]),
    ]
    raw = bytearray(as_file(*expected, dictionary_batch("c", keys=["a", "b", "c"])))
    at = int(bs.open_file(bytes(raw)).blocks[2]["offset"])
    raw[at : at + 60] = b"\x77" * 60
    assert [actual["w"].to_pylist() for actual in recover(bytes(raw))[1]] == [["a"], ["b"], ["c"]]
    assert [actual["w"].to_pylist() for actual in recover(bytes(raw[:-10]))[1]] == [["a"], ["b"]]


# Files of other writers and malformed files


@pytest.mark.parametrize("cut", [1, 100, 700_000])
def test_a_truncated_real_file_is_recovered(shared_folder: Path, cut: int) -> None:
    raw = (shared_folder / "data" / "flights-200k.arrow").read_bytes()
    report, batches = recover(raw[:-cut])
    assert sum(map(len, batches)) == (200_000 if cut < 1000 else 0)
    assert (report.dropped != ()) == (cut == 700_000)


def test_many_false_message_starts_take_linear_time() -> None:
    bait = MARKER + (1 << 20).to_bytes(4, "little")
    raw = as_stream(batch("int")) + b"x" * 8 + bait * 300_000
    report, batches = recover(raw)
    assert len(batches) == 1
    assert report.dropped[-1].stop == len(raw)


@pytest.mark.parametrize("raw", [b"", b"PAR1" * 10, b"{}" * 20, bytes(100), MARKER * 100])
def test_other_data_is_rejected(raw: bytes) -> None:
    with pytest.raises(errors.InvalidDataError):
        recover(raw)


@pytest.mark.parametrize("size", range(12))
def test_the_beginning_of_a_file_is_rejected_as_such(size: int, tmp_path: Path) -> None:
    path = tmp_path / "start.arrow"
    path.write_bytes(as_file(batch("int"))[:size])
    for source in (path, path.read_bytes()):
        with pytest.raises(errors.InvalidDataError):
            recover(source)


def test_a_path_appears_only_when_the_file_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "out.arrow"
    with pytest.raises(errors.InvalidDataError):
        bs.ipc.recover(b"nothing of the kind", target)
    assert os.listdir(tmp_path) == []
    bs.ipc.recover(as_file(batch())[:-5], target)
    assert bs.open_file(target).read_all().num_rows == 3


def test_a_foreign_format_is_named() -> None:
    with pytest.raises(errors.FormatMismatchError, match="found a Parquet file"):
        recover(b"PAR1" + bytes(100))


def test_a_file_whose_messages_have_another_version_than_its_footer_is_intact() -> None:
    batch = pa.record_batch({"a": pa.array(["x", "y"]).dictionary_encode()})
    sink, recovered = io.BytesIO(), io.BytesIO()
    options = pa.ipc.IpcWriteOptions(metadata_version=pa.ipc.MetadataVersion.V4)  # its footer has version 5
    with pa.ipc.new_file(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    assert bs.ipc.recover(sink.getvalue(), recovered).is_intact
    assert pa.ipc.open_file(recovered.getvalue()).read_all() == pa.table(batch)


@pytest.mark.parametrize("lost_bytes", [0, 20, 200])
def test_files_of_polars_are_recovered(lost_bytes: int) -> None:
    """Polars 2.1 writes the schema message without a prefix."""
    frame = pl.DataFrame({"a": range(10), "b": ["x"] * 10})
    sink = io.BytesIO()
    frame.write_ipc(sink, record_batch_size=3)
    report, batches = recover(sink.getvalue()[: sink.tell() - lost_bytes])
    assert report.is_intact == (lost_bytes == 0)
    assert not report.dropped
    assert [row["a"] for batch in batches for row in batch.to_pylist()] == list(range(10))

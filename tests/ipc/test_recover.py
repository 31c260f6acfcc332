"""What is taken of damaged files and streams, what is dropped, and that nothing else comes out."""

from __future__ import annotations

import io
import os
import random
import re
from pathlib import Path

import numpy as np
import pytest

import bowstring as bs
from bowstring import errors
from tests.ipc.samples import as_file, as_stream, batch

MARKER = b"\xff\xff\xff\xff"


def recovered(raw: bytes, **options: object) -> tuple[bs.RecoveryReport, list[bs.RecordBatch]]:
    """The report and the batches of what was written."""
    sink = io.BytesIO()
    report = bs.recover(raw, sink, **options)  # type: ignore[arg-type]
    made = bs.open_file(sink.getvalue()) if report.format == "file" else bs.open_stream(sink.getvalue())
    batches = list(made)
    assert (report.record_batches, report.rows) == (len(batches), sum(map(len, batches)))
    return report, batches


def ends(raw: bytes) -> list[int]:
    """Where each record batch of a file ends."""
    blocks = bs.open_file(raw).blocks
    return (blocks["offset"] + blocks["metaDataLength"] + blocks["bodyLength"]).tolist()  # type: ignore[no-any-return]


def words(*values: str, keys: list[str]) -> bs.RecordBatch:
    """A batch of one dictionary-encoded column with this dictionary."""
    indices = np.array([keys.index(value) for value in values], np.int8)
    type_ = bs.dictionary(bs.int8(), bs.string())
    return bs.record_batch({"w": bs.Array.from_buffers(type_, len(values), [None, indices], dictionary=bs.array(keys))})


@pytest.mark.parametrize("make", [as_file, as_stream])
def test_what_is_intact_is_said_to_be_and_stays_the_same(make: object) -> None:
    held = batch()
    raw = make(held, held.slice(1))  # type: ignore[operator]
    report, batches = recovered(raw)
    assert report.is_intact
    assert report.dropped == ()
    assert report.footer_problem is None
    assert [found.equals(made) for found, made in zip(batches, [held, held.slice(1)], strict=True)] == [True, True]


def test_footer_metadata_is_kept_where_there_is_a_footer() -> None:
    sink = io.BytesIO()
    bs.recover(as_file(batch("int"), metadata={"k": "v"}), sink)
    assert bs.open_file(sink.getvalue()).metadata == {b"k": b"v"}


def test_of_a_file_that_is_cut_off_at_any_byte_every_complete_batch_is_there() -> None:
    held = batch("text", "dictionary")
    made = [held, held.slice(1), held.slice(2)]
    raw = as_file(*made, alignment=8)
    stops = ends(raw)
    schema_ends = int(bs.open_file(raw).dictionary_blocks["offset"][0])
    for size in range(len(raw)):
        if size < schema_ends:
            with pytest.raises(errors.InvalidDataError):
                recovered(raw[:size])
            continue
        report, batches = recovered(raw[:size])
        whole = sum(stop <= size for stop in stops)
        assert len(batches) == whole, size
        assert not report.is_intact
        assert report.footer_problem is not None
        assert all(found.equals(right) for found, right in zip(batches, made[:whole], strict=True)), size


def test_of_a_stream_that_is_cut_off_at_any_byte_every_complete_batch_is_there() -> None:
    held = batch("text", "dictionary")
    raw = as_stream(held, held, alignment=8)
    sizes = set()
    for size in range(len(raw)):
        try:
            report, batches = recovered(raw[:size])
        except errors.InvalidDataError:
            continue
        sizes.add(len(batches))
        assert all(found.equals(held) for found in batches)
        if len(batches) < 2:
            cut = [lost for lost in report.dropped if lost.stop == size]
            assert cut or raw[:size].endswith(b"\0" * 8) or len(raw[:size]) % 8 == 0
    assert sizes == {0, 1, 2}


@pytest.mark.parametrize("junk", [b"\0" * 64, b"junk" * 6, MARKER * 5, MARKER + b"\x10\0\0\0" + b"\x55" * 40, b"x"])
@pytest.mark.parametrize("keeps_footer", [True, False])
def test_junk_between_batches_is_stepped_over_and_reported(junk: bytes, keeps_footer: bool) -> None:
    held = batch("int", "text", "dictionary", "view")
    raw = as_file(held, held.slice(1), held)
    at = ends(raw)[0]
    broken = raw[:at] + junk + raw[at : None if keeps_footer else -12]
    report, batches = recovered(broken)
    assert [len(found) for found in batches] == [3, 2, 3]
    assert all(found.equals(right) for found, right in zip(batches, [held, held.slice(1), held], strict=True))
    assert any(lost.start == at and lost.stop == at + len(junk) for lost in report.dropped)
    assert not report.is_intact


def test_a_batch_whose_header_is_damaged_is_dropped_and_those_after_it_are_found() -> None:
    held = batch("int", "text", "dictionary", "list")
    raw = bytearray(as_file(held, held.slice(1), held))
    block = bs.open_file(bytes(raw)).blocks[1]
    raw[int(block["offset"]) + 8 : int(block["offset"]) + 40] = os.urandom(32)
    report, batches = recovered(bytes(raw))
    assert [len(found) for found in batches] == [3, 3]
    (lost,) = report.dropped
    assert lost.start == block["offset"]
    assert lost.stop == ends(bytes(raw))[1]
    assert report.footer_problem is None


def test_flipped_bits_never_crash_and_never_make_a_batch_that_is_not_valid() -> None:
    held = batch("int", "text", "dictionary", "list", "view", "dense", "runs")
    raw = as_file(held, held, held)
    chance = random.Random(7)
    kept = 0
    for _ in range(250):
        damaged = bytearray(raw)
        for _ in range(chance.choice((1, 1, 2, 5))):
            damaged[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
        try:
            report, batches = recovered(bytes(damaged))
        except errors.InvalidDataError:
            continue
        for found in batches:
            found.validate(full=True)
        kept += len(batches)
        assert len(batches) == 3 or report.dropped
    assert kept > 400


def test_flipped_bits_of_a_compressed_file_are_found_out_or_do_no_harm() -> None:
    held = bs.record_batch({"n": np.arange(2000), "s": [str(number) * 3 for number in range(2000)]})
    raw = as_file(held, held, compression="zstd")
    chance = random.Random(8)
    for _ in range(100):
        damaged = bytearray(raw)
        damaged[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
        try:
            _, batches = recovered(bytes(damaged))
        except errors.InvalidDataError:
            continue
        for found in batches:
            found.validate(full=True)


def test_a_length_that_swallows_the_next_batch_does_not_lose_it() -> None:
    held = batch("int", "text")
    raw = bytearray(as_stream(held, held, held))
    first = raw.index(MARKER, 16)
    second = raw.index(MARKER, first + 8)
    body = second - first - 8 - int.from_bytes(raw[first + 4 : first + 8], "little")
    at = raw.index(body.to_bytes(8, "little"), first)
    raw[at : at + 8] = (body + 264).to_bytes(8, "little")
    report, batches = recovered(bytes(raw))
    assert [found.equals(held) for found in batches] == [True, True, True]
    assert report.dropped


def numbered(count: int) -> list[bs.RecordBatch]:
    """Batches that differ, of several buffers each."""
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
def test_a_batch_that_lost_or_got_bytes_in_between_is_not_taken(make: object, keeps_end: bool) -> None:
    made = numbered(4)
    raw = make(*made)  # type: ignore[operator]
    body_at = raw.index(made[1]["n"].to_numpy().tobytes())
    chance = random.Random(11)
    for _ in range(60):
        at, size = body_at + chance.randrange(600), chance.randint(1, 200)
        changed = raw[:at] + raw[at + size :] if chance.random() < 0.5 else raw[:at] + chance.randbytes(size) + raw[at:]
        report, batches = recovered(changed if keeps_end else changed[:-12])
        assert 1 <= len(batches) <= 3
        assert all(any(found.equals(right) for right in made) for found in batches), (at, size)
        assert report.dropped


@pytest.mark.parametrize("make", [as_file, as_stream])
def test_whatever_happens_to_headers_only_batches_that_were_there_come_out(make: object) -> None:
    made = numbered(6)
    raw = make(*made)  # type: ignore[operator]
    starts = [found.start() for found in re.finditer(MARKER, raw)][1:-1]
    chance = random.Random(12)
    for _ in range(60):
        changed = bytearray(raw)
        for start in chance.sample(starts, chance.randint(1, 3)):
            at = start + chance.randrange(int.from_bytes(raw[start + 4 : start + 8], "little") - 64)
            changed[at : at + chance.choice((4, 16, 64))] = chance.randbytes(chance.choice((4, 16, 64)))
        report, batches = recovered(bytes(changed))
        assert all(any(found.equals(right) for right in made) for found in batches)
        assert len(batches) == 6 or report.dropped


@pytest.mark.parametrize("make", [as_file, as_stream])
def test_whatever_is_cut_out_or_put_in_only_batches_that_were_there_come_out(make: object) -> None:
    made = numbered(6)
    raw = make(*made)  # type: ignore[operator]
    begin = raw.index(MARKER, 24)
    chance = random.Random(13)
    for _ in range(100):
        changed = bytearray(raw)
        for _ in range(chance.randint(1, 2)):
            at, size = chance.randrange(begin, len(changed)), chance.choice((1, 8, 64, 300, 2000))
            cut = chance.random() < 0.5
            changed[at : at + size * cut] = chance.randbytes(size * (not cut))
        _, batches = recovered(bytes(changed[: None if chance.random() < 0.8 else chance.randrange(begin, len(raw))]))
        assert all(any(found.equals(right) for right in made) for found in batches)


def test_a_lost_schema_is_taken_from_the_footer_and_without_one_nothing_can_be_done() -> None:
    held = batch("int", "text")
    raw = bytearray(as_file(held, held))
    raw[8:80] = bytes(72)
    report, batches = recovered(bytes(raw))
    assert len(batches) == 2
    assert "schema" in report.dropped[0].reason
    with pytest.raises(errors.InvalidDataError, match="nothing can be recovered: no schema at the beginning"):
        recovered(bytes(raw[:-20]))


def test_junk_before_the_beginning_is_stepped_over() -> None:
    held = batch("int", "text")
    report, batches = recovered(b"HTTP/1.1 200 OK\r\n\r\n" + as_stream(held, held))
    assert len(batches) == 2
    assert report.dropped[0].stop == 19


def test_what_follows_the_end_of_a_stream_is_reported() -> None:
    raw = as_stream(batch("int"))
    report, batches = recovered(raw + b"tail")
    assert len(batches) == 1
    assert [(lost.start, lost.stop) for lost in report.dropped] == [(len(raw), len(raw) + 4)]


def test_a_stream_within_a_column_is_not_taken_for_the_batches_around_it() -> None:
    inner_schema = bs.schema([("b", bs.binary())])
    inner = bs.record_batch([bs.array([b"inner"], bs.binary())], schema=inner_schema)
    outer = bs.record_batch([bs.array([as_stream(inner, inner), b"outer"], bs.binary())], schema=inner_schema)
    raw = bytearray(as_file(outer, outer))
    at = int(bs.open_file(bytes(raw)).blocks[0]["offset"])
    raw[at + 8 : at + 24] = bytes(16)
    for damaged in (bytes(raw), bytes(raw[:-10])):
        _, batches = recovered(damaged)
        assert [found.equals(outer) for found in batches] == [True]


def test_the_legacy_framing_is_recovered_up_to_the_damage_and_beyond_by_the_footer() -> None:
    held = batch("int", "text")
    raw = bytearray(as_file(held, held, held, options=bs.IpcWriteOptions(is_legacy_framing=True)))
    at = int(bs.open_file(bytes(raw)).blocks[1]["offset"])
    raw[at : at + 12] = bytes(range(12))
    assert len(recovered(bytes(raw))[1]) == 2
    assert len(recovered(bytes(raw[:-10]))[1]) == 1


# Dictionaries


def _without(raw: bytes, kind: str, number: int) -> bytes:
    """A stream whose message of a kind is overwritten, header and all."""
    damaged, at, seen = bytearray(raw), 0, -1
    decoder_at = raw.index(MARKER)
    assert decoder_at == 0
    from bowstring.io.sources import open_sequential
    from bowstring.ipc.limits import DEFAULT_LIMITS
    from bowstring.ipc.tools.scan import StreamScan

    for span in StreamScan(open_sequential(raw), DEFAULT_LIMITS).batches():
        seen += span.header.template.kind == kind
        if seen == number and span.header.template.kind == kind:
            at = span.start
            damaged[at : span.body_at] = b"\x77" * (span.body_at - at)
            return bytes(damaged)
    raise AssertionError(f"there is no {kind} {number}")


def test_a_batch_whose_dictionary_was_lost_is_dropped_until_there_is_one_again() -> None:
    made = [words("a", keys=["a"]), words("b", keys=["b"]), words("b", keys=["b"]), words("c", keys=["c", "d"])]
    raw = _without(as_stream(*made), "DictionaryBatch", 1)
    report, batches = recovered(raw)
    assert [found["w"].to_pylist() for found in batches] == [["a"], ["c"]]
    assert [lost.rows for lost in report.dropped if lost.kind == "record batch"] == [1, 1]
    assert any("dictionary 0 has not been defined" in lost.reason for lost in report.dropped)


def test_after_a_lost_delta_of_a_file_only_what_the_dictionary_still_says_is_kept() -> None:
    made = [words("a", keys=["a"]), words("b", keys=["a", "b"]), words("c", keys=["a", "b", "c"])]
    made.append(words("a", keys=["a", "b", "c"]))
    raw = bytearray(as_file(*made))
    reader = bs.open_file(bytes(raw))
    assert reader.num_dictionary_batches == 3
    at = int(reader.dictionary_blocks[1]["offset"])
    raw[at : at + 60] = b"\x77" * 60
    for damaged in (bytes(raw), bytes(raw[:-10])):
        report, batches = recovered(damaged)
        assert [found["w"].to_pylist() for found in batches] == [["a"], ["a"]]
        assert any("delta" in lost.reason for lost in report.dropped)


def test_with_a_footer_a_damaged_batch_does_not_bring_dictionaries_into_doubt() -> None:
    made = [words("a", keys=["a"]), words("b", keys=["a", "b"]), words("b", keys=["a", "b"])]
    raw = bytearray(as_file(*made, words("c", keys=["a", "b", "c"])))
    at = int(bs.open_file(bytes(raw)).blocks[2]["offset"])
    raw[at : at + 60] = b"\x77" * 60
    assert [found["w"].to_pylist() for found in recovered(bytes(raw))[1]] == [["a"], ["b"], ["c"]]
    assert [found["w"].to_pylist() for found in recovered(bytes(raw[:-10]))[1]] == [["a"], ["b"]]


# Files of others, and hostile ones


@pytest.mark.parametrize("cut", [1, 100, 700_000])
def test_a_real_file_that_is_cut_off(shared_folder: Path, cut: int) -> None:
    raw = (shared_folder / "data" / "flights-200k.arrow").read_bytes()
    report, batches = recovered(raw[:-cut])
    assert sum(map(len, batches)) == (200_000 if cut < 1000 else 0)
    assert (report.dropped != ()) == (cut == 700_000)


def test_what_only_looks_like_messages_costs_no_time() -> None:
    bait = MARKER + (1 << 20).to_bytes(4, "little")
    raw = as_stream(batch("int")) + b"x" * 8 + bait * 300_000
    report, batches = recovered(raw)
    assert len(batches) == 1
    assert report.dropped[-1].stop == len(raw)


@pytest.mark.parametrize("raw", [b"", b"ARROW1", b"PAR1" * 10, b"{}" * 20, bytes(100), MARKER * 100])
def test_what_is_no_arrow_data_is_refused(raw: bytes) -> None:
    with pytest.raises(errors.InvalidDataError):
        recovered(raw)


def test_a_path_appears_only_when_all_is_written(tmp_path: Path) -> None:
    target = tmp_path / "out.arrow"
    with pytest.raises(errors.InvalidDataError):
        bs.recover(b"nothing of the kind", target)
    assert os.listdir(tmp_path) == []
    bs.recover(as_file(batch())[:-5], target)
    assert bs.open_file(target).read_all().num_rows == 3


def test_a_foreign_format_is_named() -> None:
    with pytest.raises(errors.FormatMismatchError, match="found a Parquet file"):
        recovered(b"PAR1" + bytes(100))

"""Looking into what is behind a URL: few questions and few bytes, and the same answers as for a file beside us."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import bowstring as bs
from bowstring import errors
from bowstring.cli.main import main
from bowstring.inspection.anatomy import walker
from bowstring.inspection.anatomy.model import Part
from bowstring.inspection.anatomy.page import render_page
from bowstring.inspection.validation import Fault, Validator
from bowstring.io import range_source
from bowstring.ipc import range_reader
from tests.ipc import samples
from tests.ipc.remote import SlowFileSystem, serving, span_bytes

MAKE = {"file": samples.as_file, "stream": samples.as_stream}
FORMATS = pytest.mark.parametrize("format_", MAKE)


@pytest.fixture(scope="module")
def large() -> dict[str, bytes]:
    """40 batches of 800 KB, 32 MB in all."""
    part = bs.record_batch({"n": np.arange(50_000), "x": np.arange(50_000) / 2})
    return {name: make(*[part] * 40) for name, make in MAKE.items()}


def faults(source: Any) -> tuple[list[Fault], int]:
    """What is wrong with a source, and its rows."""
    validator = Validator(source)
    return list(validator.faults()), validator.validation.rows


def test_a_large_file_is_told_by_its_ends_and_its_headers(large: dict[str, bytes], put: Callable[[bytes], str]) -> None:
    found = bs.inspect(put(large["file"]))
    assert found == replace(bs.inspect(large["file"]), source="slow://held.arrow")
    assert SlowFileSystem.questions <= 4
    assert SlowFileSystem.sent_bytes < len(large["file"]) // 6  # an eighth are the ends


def test_of_a_large_stream_the_bodies_are_skipped(put: Callable[[bytes], str]) -> None:
    part = bs.record_batch({"n": np.arange(1 << 20)})
    data = samples.as_stream(*[part] * 4)
    found = bs.inspect(put(data))
    assert found == replace(bs.inspect(data), source="slow://held.arrow")
    assert SlowFileSystem.sent_bytes < len(data) // 4


def test_a_web_server_sends_a_file_s_ends_and_headers(
    large: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(large=large["file"]) as site:
        for command in ("info", "sizes", "head"):
            site.requests.clear()
            assert main([command, f"{site.url}/large"]) == 0
            asked = [ask for verb, _, ask in site.requests if verb == "GET"]
            assert all(asked)
            assert sum(map(span_bytes, asked)) < len(large["file"]) // 4
            assert len(asked) <= 3 + (3 if command == "head" else 40)
    said = capsys.readouterr().out
    assert "2,000,000 in 40 record batches" in said


@FORMATS
@pytest.mark.parametrize("columns", [(), ("dictionary", "view", "int")])
@pytest.mark.parametrize("compression", [None, "lz4"])
def test_everything_is_told_as_it_is_of_a_file_beside_us(
    format_: str, columns: tuple[str, ...], compression: str | None, put: Callable[[bytes], str]
) -> None:
    batch = samples.batch(*columns)
    data = MAKE[format_](batch, batch.slice(1), compression=compression)
    url = put(data)
    assert bs.inspect(url) == replace(bs.inspect(data), source=url)
    assert faults(url) == faults(data) == ([], 5)


def test_wide_headers_are_fetched_as_a_whole(put: Callable[[bytes], str]) -> None:
    batch = bs.record_batch({f"c{number}": np.arange(3) for number in range(9000)})
    data = samples.as_file(batch, batch, batch)
    url = put(data)
    assert bs.inspect(url) == replace(bs.inspect(data), source=url)
    assert SlowFileSystem.questions <= 5


def test_many_headers_come_in_several_rounds(put: Callable[[bytes], str], monkeypatch: pytest.MonkeyPatch) -> None:
    batch = samples.batch("int", "dictionary")
    data = samples.as_file(*[batch] * 25)
    monkeypatch.setattr(range_reader, "_MAX_HEADERS", 10)
    url = put(data)
    assert bs.inspect(url) == replace(bs.inspect(data), source=url)


def test_a_file_larger_than_what_a_pipe_may_bring_is_told_and_validated(put: Callable[[bytes], str]) -> None:
    batch = samples.batch("int", "text")
    url = put(samples.as_file(batch))
    assert bs.inspect(url, max_piped_bytes=10).rows == 3
    assert list(Validator(url, max_piped_bytes=10).faults()) == []


def test_validating_a_file_takes_a_question_a_batch(large: dict[str, bytes], put: Callable[[bytes], str]) -> None:
    assert faults(put(large["file"])) == ([], 2_000_000)
    assert SlowFileSystem.questions <= 40 + 4


@FORMATS
def test_faults_are_found_where_they_are(format_: str, put: Callable[[bytes], str]) -> None:
    batch = bs.record_batch({"n": [1, 2, 3], "text": ["first", "second", "third"]})
    data = bytearray(MAKE[format_](batch, batch))
    data[data.rindex(b"second")] = 0xFF
    found, rows = faults(put(bytes(data)))
    assert (found, rows) == faults(bytes(data))
    assert [(fault.record_batch, fault.column_name) for fault in found] == [(1, "text")]


def told(source: Any) -> Any:
    """What is told of a source, without its name, or the kind of error."""
    try:
        return replace(bs.inspect(source), source="it")
    except errors.BowstringError as error:
        return type(error)


def damaged_forms(data: bytes) -> Iterator[bytes]:
    """The data cut off at many places, and with a few bits of it turned."""
    random = np.random.default_rng(11)
    yield from (data[:size] for size in range(0, len(data), 29))
    for _ in range(150):
        broken = bytearray(data)
        for at in random.integers(0, len(data), 3):
            broken[at] ^= 1 << random.integers(0, 8)
        yield bytes(broken)


def test_what_is_no_arrow_data_or_not_there_is_told(put: Callable[[bytes], str]) -> None:
    with pytest.raises(errors.FormatMismatchError, match=r"slow://held.arrow: .*text, perhaps CSV"):
        bs.inspect(put(b"a,b\n1,2\n3,4\n5,6\n"))
    with pytest.raises(errors.TruncatedError, match="empty"):
        bs.inspect(put(b""))
    with pytest.raises(errors.NotFoundError):
        bs.inspect("slow://nowhere.arrow")


# Anatomy


def leaves_of(part: Part) -> tuple[Any, ...]:
    """What the leaves of a part are, as arrays."""
    return part.leaves.lengths_bytes, part.leaves.kinds, part.leaves.buffers


def drawn(source: Any) -> Any:
    """What the anatomy of a source is, without its name, or the kind of error."""
    try:
        found = bs.anatomy(source)
    except errors.BowstringError as error:
        return type(error)
    parts = [
        (part.kind, part.number, part.start, part.plan, part.is_listed, *map(bytes, leaves_of(part)))
        for part in found.parts
    ]
    damages = [(damage.at, damage.message.replace(f"{found.source}: ", "")) for damage in found.damages]
    inspection = None if found.inspection is None else replace(found.inspection, source="it")
    return parts, found.plans, damages, found.damage_count, inspection, found.role_bytes


@FORMATS
@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_the_page_of_a_url_is_that_of_a_file_beside_us(
    format_: str, compression: str | None, put: Callable[[bytes], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SlowFileSystem, "latency_s", 0.0)
    batch = samples.batch()
    big = bs.record_batch({"n": np.arange(40_000), "s": [f"value {n}" for n in range(40_000)]})
    for data in (
        MAKE[format_](batch, batch.slice(1), compression=compression),
        MAKE[format_](big, big.slice(5), compression=compression),
    ):
        url = put(data)
        assert drawn(url) == drawn(data)
        assert bs.anatomy_page(url, "it") == render_page(data, "it", full=False)[0]


@pytest.mark.parametrize("edge_bytes", [16, 1 << 16])
@FORMATS
@pytest.mark.parametrize(("look", "batches"), [(told, 2), (drawn, 4)])
def test_damaged_data_is_told_and_drawn_as_it_is_of_a_file_beside_us(
    look: Callable[[Any], Any],
    batches: int,
    format_: str,
    edge_bytes: int,
    put: Callable[[bytes], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SlowFileSystem, "latency_s", 0.0)
    monkeypatch.setattr(range_source, "_EDGE_BYTES", edge_bytes)
    monkeypatch.setattr(walker, "_MAX_PREFETCHED", 2)
    data = MAKE[format_](*[samples.batch("int", "dictionary")] * batches)
    outcomes = [(look(held), look(put(held))) for held in damaged_forms(data)]
    assert all(near == far for near, far in outcomes)
    refused = sum(isinstance(near, type) for near, _ in outcomes)
    assert 0 < refused < len(outcomes) // (2 if look is drawn else 1)


def test_of_a_large_file_headers_are_fetched_and_the_bytes_that_are_shown(
    large: dict[str, bytes], put: Callable[[bytes], str]
) -> None:
    url = put(large["file"])
    assert len(bs.anatomy(url).parts) == 44
    assert SlowFileSystem.questions <= 4
    assert SlowFileSystem.sent_bytes < len(large["file"]) // 6
    SlowFileSystem.reset()
    bs.anatomy_page(url)
    assert SlowFileSystem.questions <= 6
    assert SlowFileSystem.sent_bytes < len(large["file"]) // 4


def test_of_a_large_stream_bodies_are_stepped_over_when_it_is_drawn(put: Callable[[bytes], str]) -> None:
    part = bs.record_batch({"n": np.arange(1 << 20)})
    data = samples.as_stream(*[part] * 4)
    bs.anatomy_page(put(data))
    assert SlowFileSystem.questions <= 8
    assert SlowFileSystem.sent_bytes < len(data) // 4


def test_a_file_larger_than_what_a_pipe_may_bring_is_drawn(put: Callable[[bytes], str]) -> None:
    url = put(samples.as_file(samples.batch("int", "text")))
    assert bs.anatomy(url, max_piped_bytes=10).inspection is not None

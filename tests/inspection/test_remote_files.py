"""Inspection of URLs: few requests and bytes, and the same results as for local files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import bowstring as bs
from bowstring import errors
from bowstring.cli.main import main
from bowstring.inspection.anatomy.model import FileSection
from bowstring.inspection.anatomy.page import build_page_and_count_faults
from bowstring.inspection.validation import Fault, Validator
from bowstring.io import range_source
from bowstring.ipc import remote_file
from bowstring.ipc.tools import scan
from tests.ipc import samples
from tests.ipc.formats import ENCODERS, EVERY_FORMAT
from tests.ipc.remote_stores import SlowFileSystem, serve_files, span_bytes


@pytest.fixture(scope="module")
def large() -> dict[str, bytes]:
    """40 batches of 800 KB, 32 MB in all."""
    part = bs.record_batch({"n": np.arange(50_000), "x": np.arange(50_000) / 2})
    return {name: make(*[part] * 40) for name, make in ENCODERS.items()}


def find_faults(source: Any) -> tuple[list[Fault], int]:
    """The errors of a source, and its rows."""
    validator = Validator(source)
    return list(validator.faults()), validator.validation.rows


def test_inspecting_a_remote_file_reads_its_ends_and_headers(
    large: dict[str, bytes], upload: Callable[[bytes], str]
) -> None:
    inspection = bs.inspection.inspect(upload(large["file"]))
    assert inspection == replace(bs.inspection.inspect(large["file"]), source="slow://stored.arrow")
    assert SlowFileSystem.requests <= 4
    assert SlowFileSystem.sent_bytes < len(large["file"]) // 6  # an eighth are the ends


def test_inspecting_a_remote_stream_skips_the_bodies(upload: Callable[[bytes], str]) -> None:
    part = bs.record_batch({"n": np.arange(1 << 20)})
    data = samples.as_stream(*[part] * 4)
    inspection = bs.inspection.inspect(upload(data))
    assert inspection == replace(bs.inspection.inspect(data), source="slow://stored.arrow")
    assert SlowFileSystem.sent_bytes < len(data) // 4


def test_a_web_server_sends_only_the_ends_and_headers_of_a_file(
    large: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    with serve_files(large=large["file"]) as site:
        for command in (["info"], ["info", "--sizes"], ["head"]):
            site.requests.clear()
            assert main([*command, f"{site.url}/large"]) == 0
            requested_ranges = [ask for verb, _, ask in site.requests if verb == "GET"]
            assert all(requested_ranges)
            assert sum(map(span_bytes, requested_ranges)) < len(large["file"]) // 4
            assert len(requested_ranges) <= 3 + (3 if command == ["head"] else 40)
    output = capsys.readouterr().out
    assert "2,000,000 in 40 record batches" in output


@EVERY_FORMAT
@pytest.mark.parametrize("columns", [(), ("dictionary", "view", "int")])
@pytest.mark.parametrize("compression", [None, "lz4"])
def test_a_remote_file_is_described_like_a_local_one(
    format_: str, columns: tuple[str, ...], compression: str | None, upload: Callable[[bytes], str]
) -> None:
    batch = samples.batch(*columns)
    data = ENCODERS[format_](batch, batch.slice(1), compression=compression)
    url = upload(data)
    assert bs.inspection.inspect(url) == replace(bs.inspection.inspect(data), source=url)
    assert find_faults(url) == find_faults(data) == ([], 5)


def test_wide_headers_are_fetched_completely(upload: Callable[[bytes], str]) -> None:
    batch = bs.record_batch({f"c{number}": np.arange(3) for number in range(9000)})
    data = samples.as_file(batch, batch, batch)
    url = upload(data)
    assert bs.inspection.inspect(url) == replace(bs.inspection.inspect(data), source=url)
    assert SlowFileSystem.requests <= 5


def test_many_headers_are_fetched_in_several_rounds(
    upload: Callable[[bytes], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = samples.batch("int", "dictionary")
    data = samples.as_file(*[batch] * 25)
    monkeypatch.setattr(remote_file, "_MAX_HEADERS_PER_FETCH", 10)
    url = upload(data)
    assert bs.inspection.inspect(url) == replace(bs.inspection.inspect(data), source=url)


def test_a_remote_file_larger_than_the_pipe_limit_is_inspected_and_validated(upload: Callable[[bytes], str]) -> None:
    batch = samples.batch("int", "text")
    url = upload(samples.as_file(batch))
    assert bs.inspection.inspect(url, max_piped_bytes=10).rows == 3
    assert list(Validator(url, max_piped_bytes=10).faults()) == []


def test_validating_a_remote_file_takes_one_request_per_batch(
    large: dict[str, bytes], upload: Callable[[bytes], str]
) -> None:
    assert find_faults(upload(large["file"])) == ([], 2_000_000)
    assert SlowFileSystem.requests <= 40 + 4


@EVERY_FORMAT
def test_errors_in_a_remote_file_have_the_same_locations(format_: str, upload: Callable[[bytes], str]) -> None:
    batch = bs.record_batch({"n": [1, 2, 3], "text": ["first", "second", "third"]})
    data = bytearray(ENCODERS[format_](batch, batch))
    data[data.rindex(b"second")] = 0xFF
    validation_errors, rows = find_faults(upload(bytes(data)))
    assert (validation_errors, rows) == find_faults(bytes(data))
    assert [(fault.record_batch, fault.column_name) for fault in validation_errors] == [(1, "text")]


def inspect_or_error(source: Any) -> Any:
    """The inspection of a source without its name, or the class of the error."""
    try:
        return replace(bs.inspection.inspect(source), source="it")
    except errors.BowstringError as error:
        return type(error)


def damaged_forms(data: bytes) -> Iterator[bytes]:
    """The data cut off at many places, and with a few bits of it turned."""
    random = np.random.default_rng(11)
    yield from (data[:size] for size in range(0, len(data), 29))
    for _ in range(150):
        damaged_file = bytearray(data)
        for at in random.integers(0, len(data), 3):
            damaged_file[at] ^= 1 << random.integers(0, 8)
        yield bytes(damaged_file)


def test_remote_data_that_is_not_arrow_or_missing_is_an_error(upload: Callable[[bytes], str]) -> None:
    with pytest.raises(errors.FormatMismatchError, match=r"slow://stored.arrow: .*text, perhaps CSV"):
        bs.inspection.inspect(upload(b"a,b\n1,2\n3,4\n5,6\n"))
    with pytest.raises(errors.TruncatedError, match="empty"):
        bs.inspection.inspect(upload(b""))
    with pytest.raises(errors.NotFoundError):
        bs.inspection.inspect("slow://nowhere.arrow")


# Anatomy


def leaves_of(section: FileSection) -> tuple[Any, ...]:
    """The leaves of a section as arrays."""
    return section.byte_ranges.lengths_bytes, section.byte_ranges.kinds, section.byte_ranges.buffers


def describe_anatomy(source: Any) -> Any:
    """The anatomy of a source without its name, or the class of the error."""
    try:
        anatomy = bs.inspection.build_anatomy(source)
    except errors.BowstringError as error:
        return type(error)
    sections = [
        (
            section.kind,
            section.number,
            section.start,
            section.layout_index,
            section.is_listed,
            *map(bytes, leaves_of(section)),
        )
        for section in anatomy.sections
    ]
    faults = [(fault.offset, fault.message.replace(f"{anatomy.source}: ", "")) for fault in anatomy.faults]
    inspection = None if anatomy.inspection is None else replace(anatomy.inspection, source="it")
    return sections, anatomy.layouts, faults, anatomy.fault_count, inspection, anatomy.role_bytes


@EVERY_FORMAT
@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_the_page_of_a_url_equals_that_of_a_local_file(
    format_: str, compression: str | None, upload: Callable[[bytes], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SlowFileSystem, "latency_s", 0.0)
    batch = samples.batch()
    big = bs.record_batch({"n": np.arange(40_000), "s": [f"value {n}" for n in range(40_000)]})
    for data in (
        ENCODERS[format_](batch, batch.slice(1), compression=compression),
        ENCODERS[format_](big, big.slice(5), compression=compression),
    ):
        url = upload(data)
        assert describe_anatomy(url) == describe_anatomy(data)
        assert bs.inspection.build_anatomy_page(url, "it") == build_page_and_count_faults(data, "it", full=False)[0]


@pytest.mark.thorough
@pytest.mark.parametrize("edge_bytes", [16, 1 << 16])
@EVERY_FORMAT
@pytest.mark.parametrize(("look", "batches"), [(inspect_or_error, 2), (describe_anatomy, 4)])
def test_damaged_remote_data_is_described_like_local_data(
    look: Callable[[Any], Any],
    batches: int,
    format_: str,
    edge_bytes: int,
    upload: Callable[[bytes], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SlowFileSystem, "latency_s", 0.0)
    monkeypatch.setattr(range_source, "_MIN_EDGE_BYTES", edge_bytes)
    monkeypatch.setattr(scan, "_MAX_PREFETCHED_HEADERS", 2)
    data = ENCODERS[format_](*[samples.batch("int", "dictionary")] * batches)
    outcomes = [(look(content), look(upload(content))) for content in damaged_forms(data)]
    assert all(near == far for near, far in outcomes)
    num_errors = sum(isinstance(near, type) for near, _ in outcomes)
    assert 0 < num_errors < len(outcomes) // (2 if look is describe_anatomy else 1)


def test_the_anatomy_of_a_remote_file_fetches_headers_and_shown_bytes(
    large: dict[str, bytes], upload: Callable[[bytes], str]
) -> None:
    url = upload(large["file"])
    assert len(bs.inspection.build_anatomy(url).sections) == 44
    assert SlowFileSystem.requests <= 4
    assert SlowFileSystem.sent_bytes < len(large["file"]) // 6
    SlowFileSystem.reset()
    bs.inspection.build_anatomy_page(url)
    assert SlowFileSystem.requests <= 6
    assert SlowFileSystem.sent_bytes < len(large["file"]) // 4


def test_the_anatomy_of_a_remote_stream_skips_the_bodies(upload: Callable[[bytes], str]) -> None:
    part = bs.record_batch({"n": np.arange(1 << 20)})
    data = samples.as_stream(*[part] * 4)
    bs.inspection.build_anatomy_page(upload(data))
    assert SlowFileSystem.requests <= 8
    assert SlowFileSystem.sent_bytes < len(data) // 4


def test_a_remote_file_larger_than_the_pipe_limit_has_an_anatomy(upload: Callable[[bytes], str]) -> None:
    url = upload(samples.as_file(samples.batch("int", "text")))
    assert bs.inspection.build_anatomy(url, max_piped_bytes=10).inspection is not None

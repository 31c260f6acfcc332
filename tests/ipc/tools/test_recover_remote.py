"""Recovering remote data by URL with the same outcome as local data, and drawing it."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import bowstring as bs
from bowstring import errors
from bowstring.cli.main import main
from bowstring.io import sources
from bowstring.io.range_source import MAX_ROUND_BYTES
from tests.ipc import samples
from tests.ipc.formats import ENCODERS, EVERY_FORMAT
from tests.ipc.remote_stores import SlowFileSystem, serve_files, span_bytes


@pytest.fixture(autouse=True)
def _without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SlowFileSystem, "latency_s", 0.0)


def without_source_name(message: str) -> str:
    """Remove the source's name from a message: a cached schema is reported under its earlier name."""
    return re.sub("(slow://stored.arrow|bytes|http://[^ ]*): ", "", message)


def recover(source: Any, **options: Any) -> Any:
    """Return the report without the source's name and the recovered batches, or the error's type."""
    sink = io.BytesIO()
    try:
        report = bs.ipc.recover(source, sink, **options)
    except errors.BowstringError as error:
        return type(error)
    reader = bs.open_file(sink.getvalue()) if report.format == "file" else bs.open_stream(sink.getvalue())
    dropped = tuple(
        replace(dropped_range, reason=without_source_name(dropped_range.reason)) for dropped_range in report.dropped
    )
    problem = None if report.footer_problem is None else without_source_name(report.footer_problem)
    features = bs.inspection.inspect(sink.getvalue()).encoding.features
    return replace(report, source="it", dropped=dropped, footer_problem=problem), reader.read_all(), features


def is_equal(local: Any, remote: Any) -> bool:
    """Return whether two outcomes are equal."""
    if isinstance(local, type) or isinstance(remote, type):
        return local is remote
    return bool(local[0] == remote[0] and local[1].equals(remote[1]) and local[2] == remote[2])


def damaged_forms(data: bytes) -> Iterator[bytes]:
    """Yield the data itself, truncated, with flipped bits, with extra bytes and with missing bytes."""
    random = np.random.default_rng(5)
    yield data
    yield from (data[:size] for size in range(0, len(data), len(data) // 15 + 1))
    for _ in range(25):
        damaged_file = bytearray(data)
        for at in random.integers(0, len(data), 2):
            damaged_file[at] ^= 1 << random.integers(0, 8)
        yield bytes(damaged_file)
    for at, size in random.integers(0, len(data), (15, 2)).tolist():
        yield data[:at] + bytes(size % 300) + data[at:]
        yield data[:at] + data[at + size % 300 :]


@EVERY_FORMAT
@pytest.mark.parametrize("round_bytes", [300, MAX_ROUND_BYTES])
def test_the_same_batches_are_recovered_from_a_url_and_from_local_data(
    format_: str, round_bytes: int, upload: Callable[[bytes], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "MAX_ROUND_BYTES", round_bytes)
    batch = samples.batch("int", "text", "dictionary", "view", "list")
    other = bs.record_batch({"n": np.arange(40), "s": [f"value {n}" for n in range(40)]})
    for batches in ([batch, batch.slice(1), batch], [other, other.slice(3), other]):
        outcomes = [
            (recover(data), recover(upload(data))) for data in list(damaged_forms(ENCODERS[format_](*batches)))[::4]
        ]
        assert [is_equal(local, remote) for local, remote in outcomes] == [True] * len(outcomes)
        assert sum(not isinstance(local, type) for local, _ in outcomes) > len(outcomes) // 2


@EVERY_FORMAT
def test_every_byte_is_requested_once(format_: str, upload: Callable[[bytes], str]) -> None:
    data = ENCODERS[format_](*[bs.record_batch({"n": np.arange(1 << 20)})] * 4)
    assert bs.ipc.recover(upload(data), io.BytesIO(), max_piped_bytes=10).is_intact
    assert SlowFileSystem.sent_bytes < 1.3 * len(data)


def test_a_page_of_a_web_server_s_file_needs_its_headers_only() -> None:
    part = bs.record_batch({"n": np.arange(50_000), "x": np.arange(50_000) / 2})
    data = {name: make(*[part] * 20) for name, make in ENCODERS.items()}
    data["cut"] = data["file"][:-1000]
    with serve_files(**data) as site:
        for name, raw in data.items():
            assert is_equal(recover(raw), recover(f"{site.url}/{name}"))
            site.requests.clear()
            bs.inspection.build_anatomy(f"{site.url}/{name}")
            ranges = [ask for method, _, ask in site.requests if method == "GET"]
            assert len(ranges) <= 30
            assert sum(map(span_bytes, ranges)) < len(raw) * (0.1 if name == "file" else 0.4)


class TruncatingFileSystem(SlowFileSystem):
    """A store that empties a file when it is opened for writing, as file systems do."""

    protocol = "truncating"
    latency_s = 0.0

    def open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        options.pop("autocommit", None)
        return super().open(path, mode, **options)

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        file = super()._open(path, mode, **options)
        if "w" in mode:
            self.store[self._strip_protocol(path)] = file
            file.commit = lambda: None
        return file

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return SlowFileSystem._strip_protocol(path.removeprefix("truncating://"))


def test_a_remote_file_is_not_replaced_by_its_recovered_batches(upload: Callable[[bytes], str]) -> None:
    fsspec.register_implementation("truncating", TruncatingFileSystem, clobber=True)
    batch = bs.record_batch({"n": np.arange(300_000)})
    upload(samples.as_file(batch, batch)[:-10])
    before = MemoryFileSystem.store["/stored.arrow"].getvalue()
    with pytest.raises(errors.InvalidArgumentError, match="is both input and output"):
        bs.ipc.recover("truncating://stored.arrow", "truncating://stored.arrow")
    assert MemoryFileSystem.store["/stored.arrow"].getvalue() == before


def test_a_file_that_is_cut_off_during_the_download_raises_and_leaves_no_output(
    upload: Callable[[bytes], str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    url = upload(samples.as_file(*[bs.record_batch({"n": np.arange(50_000)})] * 4))
    monkeypatch.setattr(sources, "MAX_ROUND_BYTES", 500_000)

    def forget(_done: int, _of: int | None) -> None:
        MemoryFileSystem.store["/stored.arrow"].truncate(100_000)

    with pytest.raises((errors.ResourceError, errors.TruncatedError)):
        bs.ipc.recover(url, tmp_path / "out.arrow", report_progress=forget)
    assert os.listdir(tmp_path) == []


def test_the_command_takes_a_url(
    upload: Callable[[bytes], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = upload(samples.as_file(samples.batch("int"), samples.batch("int"))[:-10])
    assert main(["recover", url, str(tmp_path / "out.arrow"), "--max-piped-bytes", "10"]) == 0
    assert "no footer" in capsys.readouterr().out
    assert bs.open_file(tmp_path / "out.arrow").read_all().num_rows == 6


# Memory

_LARGE_STREAM = """
    import sys
    import numpy as np
    import fsspec
    from fsspec.spec import AbstractFileSystem
    import bowstring as bs
    from tests.peak_memory import peak_bytes
    import io

    columns = {f"c{n}": np.arange(1 << 17) for n in range(32)}
    held = bs.record_batch(columns)
    sink = io.BytesIO()
    with bs.new_stream(sink, held.schema) as writer:
        writer.write(held)
    raw = sink.getvalue()[:-8]
    start = int.from_bytes(raw[4:8], "little") + 8
    head, message = raw[:start], raw[start:]
    COUNT = 24
    SIZE = len(head) + COUNT * len(message)

    class Long(AbstractFileSystem):
        protocol = "long"

        def info(self, path, **options):
            return {"name": path, "size": SIZE, "type": "file"}

        def cat_file(self, path, start=None, end=None, **options):
            out = bytearray()
            while start < end:
                if start < len(head):
                    part = head[start : min(end, len(head))]
                else:
                    at = (start - len(head)) % len(message)
                    part = message[at : at + end - start]
                out += part
                start += len(part)
            return bytes(out)

    fsspec.register_implementation("long", Long)
    before = peak_bytes()
    anatomy = bs.inspection.build_anatomy("long://it")
    assert len(anatomy.sections) == COUNT + 1
    print(SIZE >> 20, (peak_bytes() - before) >> 20)
"""


def test_drawing_a_large_stream_takes_a_fraction_of_its_size() -> None:
    process = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(_LARGE_STREAM)],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    size_mib, grown_mib = map(int, process.stdout.split())
    assert size_mib > 700
    assert grown_mib < 300

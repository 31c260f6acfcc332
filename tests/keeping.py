"""`--keep-written FOLDER`: what the tests of this process write as streams and files is kept there, for other readers.

Only what is whole and valid is kept: tests also write what must not be, to see that readers tell. Each content is kept
once, and of each test a few.
"""

from __future__ import annotations

import functools
import os
import re
from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

MAX_BYTES = 4 << 20
MAX_PER_TEST = 12


class Keeper:
    """Listens to the sinks of `bowstring.ipc`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written: dict[int, bytearray] = {}
        self._seen: set[bytes] = set()
        self._per_test: Counter[str] = Counter()
        self._busy = False
        folder.mkdir(parents=True, exist_ok=True)

    def listen(self) -> None:
        """Hear what is written from now on."""
        from bowstring.ipc.places import sinks

        for kind in (sinks.VectorSink, sinks.ObjectSink):
            for name, parts_of in (
                ("write", lambda parts, _: parts),
                ("write_message", lambda head, body, _: [head, *body]),
            ):
                setattr(kind, name, self._heard(getattr(kind, name), parts_of))
        for each in (sinks.VectorSink, sinks.PathSink, sinks._DescriptorSink, sinks.ObjectSink, sinks.StoreSink):
            setattr(each, "finish", self._finished(each.finish))  # noqa: B010
            setattr(each, "abandon", self._abandoned(each.abandon))  # noqa: B010

    def _heard(self, write: Callable[..., None], parts_of: Callable[..., Any]) -> Callable[..., None]:
        @functools.wraps(write)
        def heard(sink: Any, *given: Any) -> None:
            if self._busy:
                return write(sink, *given)
            self._busy = True
            try:
                write(sink, *given)
                held = self._written.setdefault(id(sink), bytearray())
                if len(held) <= MAX_BYTES:
                    for part in parts_of(*given):
                        held += memoryview(part).tobytes()
            finally:
                self._busy = False
            return None

        return heard

    def _finished(self, finish: Callable[[Any], None]) -> Callable[[Any], None]:
        @functools.wraps(finish)
        def finished(sink: Any) -> None:
            finish(sink)
            data = bytes(self._written.pop(id(sink), b""))
            test = os.environ.get("PYTEST_CURRENT_TEST", "")
            name = re.sub(r"\W+", "-", test.partition(" ")[0].rpartition("/")[2]).strip("-")[:90]
            digest = sha256(data).digest()
            if 0 < len(data) <= MAX_BYTES and digest not in self._seen and self._per_test[name] < MAX_PER_TEST:
                self._seen.add(digest)
                self._busy = True
                try:
                    if _is_sound(data):
                        self._per_test[name] += 1
                        suffix = "arrow" if data.startswith(b"ARROW1") else "arrows"
                        (self._folder / f"{name}-{self._per_test[name]}.{suffix}").write_bytes(data)
                finally:
                    self._busy = False

        return finished

    def _abandoned(self, abandon: Callable[[Any], None]) -> Callable[[Any], None]:
        @functools.wraps(abandon)
        def abandoned(sink: Any) -> None:
            self._written.pop(id(sink), None)
            abandon(sink)

        return abandoned


def _is_sound(data: bytes) -> bool:
    import bowstring as bs

    try:
        with (bs.open_file if data.startswith(b"ARROW1") else bs.open_stream)(data) as reader:
            for batch in reader:
                batch.validate(full=True)
    except bs.BowstringError:
        return False
    return True


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--keep-written", metavar="FOLDER", help="keep the streams and files that tests write there")


def pytest_configure(config: pytest.Config) -> None:
    folder = config.getoption("--keep-written")
    if folder:
        Keeper(Path(folder).resolve()).listen()

"""`--keep-written FOLDER`: what the tests write as streams and files is kept there, for other readers.

Only what is whole and valid is kept: tests also write what must not be, to see that readers tell. Nothing is kept that
pyarrow is known not to read, nor what peers are known to give otherwise: each difference is news. Each content is kept
once, and of each test a few. Processes that tests start write it, too: commands, servers, Spark's workers. Python reads
a `sitecustomize` of ours when they begin.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable
from hashlib import sha256
from importlib.abc import MetaPathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

MAX_BYTES = 4 << 20
MAX_PER_TEST = 12
CHILDREN_KEY = "BOWSTRING_TESTS_KEEP_WRITTEN"
_SINKS = "bowstring.ipc.places.sinks"
_HOME = Path(__file__).resolve().parent


class Keeper:
    """Listens to the sinks of `bowstring.ipc`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written: dict[int, bytearray] = {}
        self._seen: set[bytes] = set()
        self._busy = False
        folder.mkdir(parents=True, exist_ok=True)

    def listen(self, sinks: Any = None) -> None:
        """Hear what is written from now on, to the sinks of this module."""
        if sinks is None:
            from bowstring.ipc.places import sinks

        for kind in (sinks.VectorSink, sinks.ObjectSink):
            for name, parts_of in (
                ("write", lambda parts, _: parts),
                ("write_message", lambda head, body, _: [head, *body]),
            ):
                setattr(kind, name, self._heard(getattr(kind, name), parts_of))
        sinks.MemorySink.write_again = self._written_again(sinks.MemorySink.write_again)
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

    def _written_again(self, write: Callable[[Any, int, bytes], None]) -> Callable[[Any, int, bytes], None]:
        @functools.wraps(write)
        def written_again(sink: Any, at: int, data: bytes) -> None:
            write(sink, at, data)
            if id(sink) in self._written:
                self._written[id(sink)][at : at + len(data)] = data

        return written_again

    def _finished(self, finish: Callable[[Any], None]) -> Callable[[Any], None]:
        @functools.wraps(finish)
        def finished(sink: Any) -> None:
            finish(sink)
            data = bytes(self._written.pop(id(sink), b""))
            path = Path(getattr(sink, "_path", ""))
            if path.is_file():  # not all that is in a file went through its sink
                data = path.read_bytes() if path.stat().st_size <= MAX_BYTES else b""
            digest = sha256(data).digest()
            if 0 < len(data) <= MAX_BYTES and digest not in self._seen:
                self._seen.add(digest)
                self._keep(data, digest.hex()[:12])

        return finished

    def _keep(self, data: bytes, digest: str) -> None:
        test = os.environ.get("PYTEST_CURRENT_TEST", "")
        name = re.sub(r"\W+", "-", test.partition(" ")[0].rpartition("/")[2]).strip("-")[:90]
        is_known = next(self._folder.glob(f"*-{digest}.*"), None) is not None
        if is_known or len(list(self._folder.glob(f"{name}-*"))) >= MAX_PER_TEST:
            return
        self._busy = True
        try:
            if _is_sound(data):
                suffix = "arrow" if data.startswith(b"ARROW1") else "arrows"
                (self._folder / f"{name}-{digest}.{suffix}").write_bytes(data)
        finally:
            self._busy = False

    def _abandoned(self, abandon: Callable[[Any], None]) -> Callable[[Any], None]:
        @functools.wraps(abandon)
        def abandoned(sink: Any) -> None:
            self._written.pop(id(sink), None)
            abandon(sink)

        return abandoned


def is_swapped_by_pyarrow(type_: Any) -> bool:
    """Whether pyarrow reads a type of the other byte order."""
    from bowstring.datatypes import types as t

    if isinstance(type_, t.BinaryView | t.Utf8View | t.ListView | t.LargeListView | t.RunEndEncoded):
        return False
    if isinstance(type_, t.Dictionary):
        return is_swapped_by_pyarrow(type_.value_type)
    return all(is_swapped_by_pyarrow(field.type) for field in type_.fields)


def _is_sound(data: bytes) -> bool:
    """Whether data is valid, and none that peers are known not to read."""
    import bowstring as bs

    is_file = data.startswith(b"ARROW1")
    try:
        with (bs.open_file if is_file else bs.open_stream)(data) as reader:
            report, names = bs.inspect(data), reader.schema.names
            if report.encoding.endianness == "big" and not (
                is_file and all(map(is_swapped_by_pyarrow, reader.schema.types))
            ):  # arro3 takes streams of the other byte order for its own
                return False
            if report.batches.with_metadata and report.encoding.metadata_version == "V4":  # pyarrow refuses that
                return False
            if any("\0" in name for name in names):  # C strings, which peers hand on, end there
                return False
            if len(set(names)) < len(names) and not report.batches.count:  # polars gives one column of each name
                return False
            if "arrow.uuid" in repr(reader.schema):  # polars gives the bytes
                return False
            for batch in reader:
                batch.validate(full=True)
    except bs.BowstringError:
        return False
    return True


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--keep-written", metavar="FOLDER", help="keep the streams and files that tests write there")


def pytest_configure(config: pytest.Config) -> None:
    folder = config.getoption("--keep-written")
    if folder and CHILDREN_KEY not in os.environ:  # a worker of pytest-xdist listens already, as a process of this one
        kept = Path(folder).resolve()
        Keeper(kept).listen()
        os.environ[CHILDREN_KEY] = str(kept)
        os.environ["PYTHONPATH"] = os.pathsep.join(
            [str(_HOME / "started_by_tests"), *filter(None, [os.environ.get("PYTHONPATH")])]
        )


class Late(MetaPathFinder):
    """Listens in a process that a test started, from when it imports the sinks: many tests look at what is imported."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        """Find the sinks' module; no other."""
        if name != _SINKS:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        assert spec is not None
        loader: Any = spec.loader
        execute = loader.exec_module

        def execute_and_listen(module: Any) -> None:
            execute(module)
            Keeper(Path(os.environ[CHILDREN_KEY])).listen(module)

        loader.exec_module = execute_and_listen
        return spec

"""`--keep-written=FOLDER`: keep the streams and files that tests write, to compare them with other readers.

Only complete and valid data is kept. FOLDER gets the data for all readers. Data that a reader is known to misread goes
to a folder next to it, named after the remaining readers, so that every difference is new. Each content is kept once,
and a few files per test. Processes that tests start are included (commands, servers, Spark's workers), by
`child_process_startup/sitecustomize.py`.
"""

from __future__ import annotations

import functools
import glob
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from importlib.abc import MetaPathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pytest

    import bowstring as bs
    from bowstring.inspection.report import Inspection

MAX_BYTES = 4 << 20
MAX_PER_TEST = 12
CHILDREN_KEY = "BOWSTRING_TESTS_KEEP_WRITTEN"
_SINKS = "bowstring.io.sinks"
READERS = ("pyarrow", "polars", "nanoarrow", "arro3")
"""The readers of `../shared/tools/peer_check.py`, which compares the others with pyarrow."""
NOT_PYARROW = "not-pyarrow"


class Recorder:
    """Records what is written to the sinks of `bowstring.ipc`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written: dict[int, bytearray] = {}
        self._digests: set[bytes] = set()
        self._busy = False

    def attach(self, sinks: Any = None) -> None:
        """Record all writes to the sinks of this module from now on."""
        if sinks is None:
            from bowstring.io import sinks

        for kind in (sinks.VectoredSink, sinks.FileObjectSink):
            for name, parts_of in (
                ("write", lambda parts, _: parts),
                ("write_message", lambda head, body, _: [head, *body]),
            ):
                setattr(kind, name, self._record_writes(getattr(kind, name), parts_of))
        for sink_type in (
            sinks.VectoredSink,
            sinks.PathSink,
            sinks._SpecialFileSink,
            sinks.FileObjectSink,
            sinks.ObjectStoreSink,
        ):
            setattr(sink_type, "finish", self._record_finish(sink_type.finish))  # noqa: B010
            setattr(sink_type, "abandon", self._record_abandon(sink_type.abandon))  # noqa: B010

    def _record_writes(self, write: Callable[..., None], parts_of: Callable[..., Any]) -> Callable[..., None]:
        @functools.wraps(write)
        def recorded(sink: Any, *arguments: Any) -> None:
            if self._busy:
                return write(sink, *arguments)
            self._busy = True
            try:
                write(sink, *arguments)
                content = self._written.setdefault(id(sink), bytearray())
                if len(content) <= MAX_BYTES:
                    for part in parts_of(*arguments):
                        content += memoryview(part).tobytes()
            finally:
                self._busy = False
            return None

        return recorded

    def _record_finish(self, finish: Callable[[Any], None]) -> Callable[[Any], None]:
        @functools.wraps(finish)
        def finished(sink: Any) -> None:
            finish(sink)
            data = bytes(self._written.pop(id(sink), b""))
            path = Path(getattr(sink, "_path", ""))
            if path.is_file():  # the sink does not write the whole file
                data = path.read_bytes() if path.stat().st_size <= MAX_BYTES else b""
            digest = sha256(data).digest()
            if 0 < len(data) <= MAX_BYTES and digest not in self._digests:
                self._digests.add(digest)
                self._save(data, digest.hex()[:12])

        return finished

    def _save(self, data: bytes, digest: str) -> None:
        test = os.environ.get("PYTEST_CURRENT_TEST", "")
        name = re.sub(r"\W+", "-", test.partition(" ")[0].rpartition("/")[2]).strip("-")[:90]
        names = [path.name for folder in folders_of(self._folder) for path in folder.iterdir()]
        of_test = sum(file.startswith(f"{name}-") for file in names)
        if of_test >= MAX_PER_TEST or any(f"-{digest}." in file for file in names):
            return
        self._busy = True
        try:
            readers = readers_of(data)
            if readers is not None:
                folder = folder_for(self._folder, readers)
                folder.mkdir(parents=True, exist_ok=True)
                suffix = "arrow" if data.startswith(b"ARROW1") else "arrows"
                (folder / f"{name}-{digest}.{suffix}").write_bytes(data)
        finally:
            self._busy = False

    def _record_abandon(self, abandon: Callable[[Any], None]) -> Callable[[Any], None]:
        @functools.wraps(abandon)
        def abandoned(sink: Any) -> None:
            self._written.pop(id(sink), None)
            abandon(sink)

        return abandoned


def is_swapped_by_pyarrow(type_: Any) -> bool:
    """Return whether pyarrow reads a type in non-native byte order."""
    from bowstring.datatypes import types as t

    if isinstance(type_, t.BinaryView | t.Utf8View | t.ListView | t.LargeListView | t.RunEndEncoded):
        return False
    if isinstance(type_, t.Dictionary):
        return is_swapped_by_pyarrow(type_.value_type)
    return all(is_swapped_by_pyarrow(field.type) for field in type_.fields)


class Written(NamedTuple):
    """The content of a stream or file that a test wrote."""

    is_file: bool
    report: Inspection
    schema: bs.Schema
    batches: list[bs.RecordBatch]

    @property
    def is_big_endian(self) -> bool:
        """Whether bodies are big-endian."""
        return self.report.encoding.endianness == "big"


def _read(data: bytes) -> Written | None:
    """Read the data; return None if it is not valid."""
    import bowstring as bs

    is_file = data.startswith(b"ARROW1")
    try:
        with (bs.open_file if is_file else bs.open_stream)(data) as reader:
            batches = list(reader)
            for batch in batches:
                batch.validate(full=True)
            return Written(is_file, bs.inspection.inspect(data), reader.schema, batches)
    except bs.BowstringError:
        return None


def _fields(fields: Iterable[bs.Field]) -> Iterator[bs.Field]:
    """Yield the fields and their descendants."""
    from bowstring.datatypes.types import Dictionary

    for field in fields:
        yield field
        yield from _fields((field.type.value_type if isinstance(field.type, Dictionary) else field.type).fields)


def _is_not_swapped(written: Written) -> bool:
    is_swapped = all(map(is_swapped_by_pyarrow, written.schema.types))
    return written.is_big_endian and bool(written.batches) and not is_swapped


def _has_metadata_under_v4(written: Written) -> bool:
    encoding, with_metadata = written.report.encoding, written.report.batches.with_metadata
    return encoding.metadata_version == "V4" and with_metadata > encoding.compressed_batches


def _has_deltas_on_nested_dictionaries(written: Written) -> bool:
    return any(one.deltas and "dictionary<" in one.value_type for one in written.report.dictionaries)


def _has_dictionaries_of_extensions(written: Written) -> bool:
    from bowstring.datatypes.extension import ExtensionType
    from bowstring.datatypes.types import Dictionary

    types = [field.type for field in _fields(written.schema.fields)]
    return any(isinstance(type_, Dictionary) and isinstance(type_.value_type, ExtensionType) for type_ in types)


def _has_nul_in_names(written: Written) -> bool:
    return any("\0" in field.name for field in _fields(written.schema.fields))


def _has_names_twice_and_no_batches(written: Written) -> bool:
    names = written.schema.names
    return len(set(names)) < len(names) and not written.batches


def _has_uuids(written: Written) -> bool:
    return "arrow.uuid" in repr(written.schema)


def _is_big_endian_stream(written: Written) -> bool:
    return written.is_big_endian and not written.is_file


MISREAD: dict[Callable[[Written], bool], tuple[str, ...]] = {
    _is_not_swapped: ("pyarrow",),
    _has_metadata_under_v4: ("pyarrow",),  # read as the codec of Arrow 0.17
    _has_deltas_on_nested_dictionaries: ("pyarrow",),
    _has_dictionaries_of_extensions: ("pyarrow",),  # reads the indices as the extension's storage
    _has_nul_in_names: ("polars", "nanoarrow", "arro3"),  # the tool passes C strings, which end there
    _has_names_twice_and_no_batches: ("polars",),  # returns one column per name
    _has_uuids: ("polars",),  # returns the bytes
    _is_big_endian_stream: ("arro3",),  # reads them as little-endian
}
"""Data that pyarrow rejects or that other readers misread, with the readers to exclude."""


def readers_of(data: bytes) -> tuple[str, ...] | None:
    """Return the readers to compare for the data, or None if it is not valid."""
    written = _read(data)
    if written is None:
        return None
    excluded = {reader for applies, readers in MISREAD.items() if applies(written) for reader in readers}
    return tuple(reader for reader in READERS if reader not in excluded)


def folder_for(folder: Path, readers: tuple[str, ...]) -> Path:
    """Return the folder for the data of these readers: `folder` or one next to it."""
    if readers == READERS:
        return folder
    return folder.with_name(f"{folder.name}.{','.join(readers) if 'pyarrow' in readers else NOT_PYARROW}")


def folders_of(folder: Path) -> list[Path]:
    """Return the folder and those next to it that exist."""
    adjacent = sorted(folder.parent.glob(f"{glob.escape(folder.name)}.*")) if folder.parent.is_dir() else []
    return [path for path in (folder, *adjacent) if path.is_dir()]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--keep-written", metavar="FOLDER", help="keep the streams and files that tests write in this folder"
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    folder = config.getoption("--keep-written")
    for path in folders_of(Path(folder).resolve()) if folder else ():
        readers = path.name.rpartition(".")[2]
        how = {Path(folder).name: f"peer_check.py {path}", NOT_PYARROW: f"{path}: nothing to compare with"}
        count = len(list(path.iterdir()))
        terminalreporter.write_line(f"{count:6,}  " + how.get(readers, f"peer_check.py --peers {readers} {path}"))


def pytest_configure(config: pytest.Config) -> None:
    folder = config.getoption("--keep-written")
    if folder and CHILDREN_KEY not in os.environ:  # workers of pytest-xdist are recording already
        target = Path(folder).resolve()
        Recorder(target).attach()
        os.environ[CHILDREN_KEY] = str(target)


class LateRecorder(MetaPathFinder):
    """Attaches a recorder when a process imports the sinks: many tests check which modules are imported."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        """Find the module of the sinks only."""
        if name != _SINKS:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        assert spec is not None
        loader: Any = spec.loader
        execute = loader.exec_module

        def execute_and_attach(module: Any) -> None:
            execute(module)
            Recorder(Path(os.environ[CHILDREN_KEY])).attach(module)

        loader.exec_module = execute_and_attach
        return spec

"""`--keep-written=FOLDER`: what the tests write as streams and files is kept there, for other readers.

All that is whole and valid is kept: tests also write what must not be, to see that readers tell. FOLDER has what all
readers are asked about; what one of them is known to read wrong lies beside it, in a folder that is named after the
others, so that each difference is news. Each content is kept once, and of each test a few. Processes that tests start
write it, too: commands, servers, Spark's workers. Python reads a `sitecustomize` of ours when they begin.
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
from itertools import pairwise
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
_HOME = Path(__file__).resolve().parent
READERS = ("pyarrow", "polars", "nanoarrow", "arro3")
"""Those of `../shared/tools/peer_check.py`, which compares what the others read with what pyarrow reads."""
NOT_PYARROW = "not-pyarrow"


class Keeper:
    """Listens to the sinks of `bowstring.ipc`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written: dict[int, bytearray] = {}
        self._seen: set[bytes] = set()
        self._busy = False

    def listen(self, sinks: Any = None) -> None:
        """Hear what is written from now on, to the sinks of this module."""
        if sinks is None:
            from bowstring.io import sinks

        for kind in (sinks.VectorSink, sinks.ObjectSink):
            for name, parts_of in (
                ("write", lambda parts, _: parts),
                ("write_message", lambda head, body, _: [head, *body]),
            ):
                setattr(kind, name, self._heard(getattr(kind, name), parts_of))
        sinks.MemorySink.overwrite = self._written_again(sinks.MemorySink.overwrite)
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
        held = [path.name for kept in folders_of(self._folder) for path in kept.iterdir()]
        of_test = sum(file.startswith(f"{name}-") for file in held)
        if of_test >= MAX_PER_TEST or any(f"-{digest}." in file for file in held):
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


class Written(NamedTuple):
    """What a test wrote, read again."""

    is_file: bool
    report: Inspection
    schema: bs.Schema
    batches: list[bs.RecordBatch]

    @property
    def is_big_endian(self) -> bool:
        """Whether bodies are of the other byte order than this machine's."""
        return self.report.encoding.endianness == "big"


def _read(data: bytes) -> Written | None:
    """What is in the data; None where that is not valid."""
    import bowstring as bs

    is_file = data.startswith(b"ARROW1")
    try:
        with (bs.open_file if is_file else bs.open_stream)(data) as reader:
            batches = list(reader)
            for batch in batches:
                batch.validate(full=True)
            return Written(is_file, bs.inspect(data), reader.schema, batches)
    except bs.BowstringError:
        return None


def _fields(fields: Iterable[bs.Field]) -> Iterator[bs.Field]:
    """The fields and all within them."""
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


def _has_odd_runs_without_slots(written: Written) -> bool:
    from bowstring.datatypes.types import RunEndEncoded

    def has(array: bs.Array) -> bool:
        if isinstance(array.type, RunEndEncoded) and not array.length:
            ends = array.children[0].to_pylist()
            return any(end <= before for before, end in pairwise([0, *ends]))
        return any(map(has, array.children))

    return any(has(column) for batch in written.batches for column in batch.columns)


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
    _has_metadata_under_v4: ("pyarrow",),  # looked through for the codec of Arrow 0.17
    _has_deltas_on_nested_dictionaries: ("pyarrow",),
    _has_dictionaries_of_extensions: ("pyarrow",),  # the indices are taken for the extension's storage
    _has_odd_runs_without_slots: ("pyarrow",),  # whose run ends, which mean nothing, have to ascend all the same
    _has_nul_in_names: ("polars", "nanoarrow", "arro3"),  # the tool has them hand on C strings, which end there
    _has_names_twice_and_no_batches: ("polars",),  # gives one column of each name
    _has_uuids: ("polars",),  # gives the bytes
    _is_big_endian_stream: ("arro3",),  # takes them for little-endian ones
}
"""What pyarrow is known to refuse, and other readers to give otherwise than it was written."""


def readers_of(data: bytes) -> tuple[str, ...] | None:
    """Which of the readers are to be asked about the data; None where it is not valid."""
    written = _read(data)
    if written is None:
        return None
    left_out = {reader for applies, readers in MISREAD.items() if applies(written) for reader in readers}
    return tuple(reader for reader in READERS if reader not in left_out)


def folder_for(folder: Path, readers: tuple[str, ...]) -> Path:
    """Where that is kept which these readers are asked about: the folder itself, or one beside it."""
    if readers == READERS:
        return folder
    return folder.with_name(f"{folder.name}.{','.join(readers) if 'pyarrow' in readers else NOT_PYARROW}")


def folders_of(folder: Path) -> list[Path]:
    """The folder and those beside it, as far as they are there."""
    beside = sorted(folder.parent.glob(f"{glob.escape(folder.name)}.*")) if folder.parent.is_dir() else []
    return [path for path in (folder, *beside) if path.is_dir()]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--keep-written", metavar="FOLDER", help="keep the streams and files that tests write there")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    folder = config.getoption("--keep-written")
    for kept in folders_of(Path(folder).resolve()) if folder else ():
        readers = kept.name.rpartition(".")[2]
        how = {Path(folder).name: f"peer_check.py {kept}", NOT_PYARROW: f"{kept}: nothing to compare with"}
        count = len(list(kept.iterdir()))
        terminalreporter.write_line(f"{count:6,}  " + how.get(readers, f"peer_check.py --peers {readers} {kept}"))


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

"""What commands read from and write to: paths, pipes, terminals; and progress bars, on a terminal only."""

from __future__ import annotations

import io
import select
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, TypeAlias

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bowstring.errors import DataTypeError, InvalidDataError, LimitError
from bowstring.ipc.file import FileReader
from bowstring.ipc.opening import MAX_PIPED_BYTES
from bowstring.ipc.places.sinks import Sink, reject_same_file, sink_for
from bowstring.tabular.batch import RecordBatch

Advance: TypeAlias = Callable[[int, int | None], None]
"""Is told how much is done, and of how much where that is known."""

PATH = click.Path(allow_dash=True, readable=False)
"""A path or "-" as it is given: whether it can be read or written is told by who tries."""

max_piped_option = click.option(
    "--max-piped-bytes",
    type=click.IntRange(min=0),
    default=MAX_PIPED_BYTES,
    show_default=True,
    help="The most to take from a pipe of what has to be kept in memory: a file, not a stream.",
)


def given(file: str | None) -> Any:
    """The source that a FILE argument names: a path, or standard input for "-" and for none.

    Raises `click.UsageError` where that is a terminal, or the name is empty, as a variable may be, and `UsageError` if
    standard output goes to the same file.
    """
    if file == "":
        raise click.UsageError("a FILE has an empty name")
    is_path = file is not None and file != "-"
    if not is_path and (sys.stdin is None or sys.stdin.isatty()):
        raise click.UsageError("standard input is a terminal: give a FILE, or send a file or stream through a pipe")
    source = file if is_path else sys.stdin
    reject_same_file([source], sys.stdout)
    return source


def named(file: str | None) -> str:
    """What to call that source."""
    return "standard input" if file is None or file == "-" else file


def quiet(file: str | None) -> Callable[[], bool]:
    """A function that tells whether a source that comes through standard input has nothing more to give just now."""
    return lambda: file in (None, "-") and not select.select([sys.stdin], [], [], 0)[0]


@contextmanager
def telling(file: str | None) -> Iterator[None]:
    """Put a source's name before what is found wrong in its data, where the message does not begin with it."""
    try:
        yield
    except (InvalidDataError, DataTypeError) as error:
        if str(error).startswith(f"{named(file)}: "):
            raise
        told = type(error)(f"{named(file)}: {error}")
        for note in getattr(error, "__notes__", ()):
            told.add_note(note)
        raise told from None


@contextmanager
def binary_output(path: str, *files: str | None) -> Iterator[str | int | BinaryIO]:
    """Where binary data goes: the path, or standard output for "-", which must be no terminal. It is given by its
    descriptor, so that nothing waits in a buffer where it is a pipe. Raises `UsageError` if the path is one of the
    files that the FILE arguments `files` name.
    """
    if path != "-":
        reject_same_file(map(given, files), path)
        yield path
        return
    if sys.stdout.isatty():
        raise click.UsageError("standard output is a terminal: give a path, or send the bytes through a pipe")
    sys.stdout.flush()
    try:
        out: int | BinaryIO = sys.stdout.fileno()
    except OSError:  # it is no file: somebody's object in its place
        out = sys.stdout.buffer
    yield out


@contextmanager
def sink_to(out: str | int | BinaryIO) -> Iterator[Sink]:
    """A sink for the bytes that the block makes: it is finished where the block ends well, else a path gets no file."""
    sink = sink_for(out)
    try:
        yield sink
        sink.finish()
    except BaseException:
        sink.abandon()
        raise


class Bounded(io.RawIOBase):
    """A pipe of which no more than `most_bytes` may come, as all of it will be kept. Raises `LimitError`."""

    def __init__(self, pipe: BinaryIO, name: str, most_bytes: int) -> None:
        super().__init__()
        self._pipe = pipe
        self._name = name
        self._most_bytes = most_bytes
        self._left_bytes = most_bytes

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill `buffer`, or a part of it; how many bytes came."""
        part = self._pipe.read(min(len(buffer), self._left_bytes + 1))
        buffer[: len(part)] = part
        self._left_bytes -= len(part)
        if self._left_bytes < 0:
            raise LimitError(
                f"{self._name}: more than {self._most_bytes} bytes, and all of them have to be kept in memory here: "
                "give the path of a file, or raise --max-piped-bytes"
            )
        return len(part)


class SinkFile(io.RawIOBase):
    """A sink as a file object, for those who write to one."""

    def __init__(self, sink: Sink) -> None:
        super().__init__()
        self._sink = sink
        self._position = 0

    def writable(self) -> bool:
        """Always."""
        return True

    def tell(self) -> int:
        """How many bytes were written."""
        return self._position

    def write(self, data: Any) -> int:
        """Take all of `data`."""
        held = bytes(data)
        self._sink.write([held], len(held))
        self._position += len(held)
        return len(held)


@contextmanager
def progress(what: str) -> Iterator[Advance]:
    """A function that shows how much is done, and of how much: a bar on standard error where that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _done, _of: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)


def counted(batches: Iterable[RecordBatch], advance: Advance, count: int | None = None) -> Iterator[RecordBatch]:
    """The batches of a reader, or `count` others, with a word to `advance` for each that is done with."""
    of = len(batches) if isinstance(batches, FileReader) else count
    for number, batch in enumerate(batches, 1):
        yield batch
        advance(number, of)

"""What commands read from and write to: paths, pipes, terminals; and progress bars, on a terminal only."""

from __future__ import annotations

import io
import os
import select
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, TypeAlias

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from bowstring.arrays.record_batch import RecordBatch
from bowstring.errors import DataTypeError, InvalidDataError
from bowstring.inspection.text import human_bytes
from bowstring.io.sinks import Sink, open_sink, reject_same_file
from bowstring.ipc.file import FileReader
from bowstring.ipc.format_detection import MAX_PIPED_BYTES

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
    sink = open_sink(out)
    try:
        yield sink
        sink.finish()
    except BaseException:
        sink.abandon()
        raise


class SinkFile(io.RawIOBase):
    """A sink as a file object."""

    def __init__(self, sink: Sink) -> None:
        super().__init__()
        self._sink = sink
        self._position = 0

    def writable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """How many bytes were written."""
        return self._position

    def write(self, data: Any) -> int:
        """Write all of `data`."""
        size_bytes = memoryview(data).nbytes
        self._sink.write([bytes(data)], size_bytes)
        self._position += size_bytes
        return size_bytes


@contextmanager
def progress(what: str, unit: str = "record batches") -> Iterator[Advance]:
    """A function that shows how much is done, and of how much, as a bar on standard error.

    There is no bar if standard error is not a terminal, nor if standard output is a pipe: its reader may write to the
    same terminal. The bar disappears when the block ends.
    """
    if not sys.stderr.isatty() or _is_pipe(sys.stdout):
        yield lambda _done, _of: None
        return

    def state(done: int, of: int | None) -> str:
        if unit == "bytes":
            return human_bytes(done) + ("" if of is None else f" of {human_bytes(of)}")
        return f"{done:,}" + ("" if of is None else f" of {of:,}") + f" {unit}"

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[state]}", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None, state="")
        yield lambda done, of: bar.update(task, completed=done, total=of, state=state(done, of))


def _is_pipe(file: Any) -> bool:
    try:
        mode = os.fstat(file.fileno()).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def counted(batches: Iterable[RecordBatch], advance: Advance) -> Iterator[RecordBatch]:
    """The batches of a reader; `advance` is called before the first one, and after each when the next is asked for."""
    of = len(batches) if isinstance(batches, FileReader) else None
    advance(0, of)
    for number, batch in enumerate(batches, 1):
        yield batch
        advance(number, of)

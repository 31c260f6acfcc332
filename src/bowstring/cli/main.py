"""Where the command `bowstring` starts, and where every failure becomes one line and an exit status.

This module imports no optional package, so that it can say which one is missing.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NoReturn

from bowstring.cli.settings import FAILED, INTERRUPTED, Settings, failure_line
from bowstring.errors import BowstringError, FormatMismatchError, MissingExtraError, NoDataError, TruncatedError

_CLI_PACKAGES = ("click", "rich")
_CONVERTIBLE = ("Parquet", "CSV", "JSON")
_WORDLESS = {"MemoryError": "there is not enough memory"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line `arguments` (without the program's name; by default the process's own); its exit status."""
    settings = Settings(debug=bool(os.environ.get("BOWSTRING_DEBUG")))
    _stand_in_for_closed_streams()
    _forgive_letters()
    try:
        with _ending_in_order():
            status = _run(arguments, settings)
            sys.stdout.flush()
            return status
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        if _came_of(error, KeyboardInterrupt):  # as py4j's do when it is interrupted in the middle of a call
            return INTERRUPTED
        if _came_of(error, BrokenPipeError) and _nobody_reads_our_output():
            return FAILED
        if settings.debug or not isinstance(error, (BowstringError, OSError, MemoryError)):
            raise
        sys.stderr.write(one_line(error) + "\n")
        return FAILED
    finally:
        _drop_what_cannot_be_written()


@contextmanager
def _ending_in_order() -> Iterator[None]:
    """Let whoever ends the process by SIGTERM or SIGHUP find nothing half written: what is begun is given up first."""

    def leave(number: int, _frame: object) -> NoReturn:
        raise SystemExit(128 + number)

    is_main = threading.current_thread() is threading.main_thread()  # others may not set handlers
    ends = [n for n in (signal.SIGTERM, signal.SIGHUP) if is_main and signal.getsignal(n) is signal.SIG_DFL]
    for number in ends:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in ends:
            signal.signal(number, signal.SIG_DFL)


def _came_of(error: BaseException | None, kind: type[BaseException]) -> bool:
    while error is not None and not isinstance(error, kind):
        error = error.__cause__ or error.__context__
    return error is not None


def _nobody_reads_our_output() -> bool:
    """Whether whoever read it has seen enough."""
    poll = select.poll()
    with suppress(OSError):  # what is no descriptor has no other end
        poll.register(sys.stdout.fileno(), 0)
    return bool(poll.poll(0))


def _drop_what_cannot_be_written() -> None:
    """Keep the interpreter from failing, once more, as it flushes standard output at its end."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _forgive_letters() -> None:
    """Let a terminal that lacks a letter show an escape; that is no reason to fail."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")


def _stand_in_for_closed_streams() -> None:
    """Where a standard stream is closed, the next file that is opened would become it: open one that refuses what is
    asked of it, or for errors takes it.
    """
    for name, mode, flags in (("stdin", "r", os.O_WRONLY), ("stdout", "w", os.O_RDONLY), ("stderr", "w", os.O_WRONLY)):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, flags), mode, closefd=False))


def one_line(error: Exception) -> str:
    """What the user reads of `error`: one printable line, with a hint if there is something to do about it."""
    text = str(error).strip() or _WORDLESS.get(type(error).__name__, type(error).__name__)
    return failure_line(text, next(iter(getattr(error, "__notes__", [])), _hint(error, text)))


def _hint(error: Exception, text: str) -> str:
    """What to do about an error, if anything."""
    if isinstance(error, TruncatedError) and not isinstance(error, NoDataError):
        return "bowstring recover saves the intact batches, if any"
    if isinstance(error, FormatMismatchError) and any(name in text for name in _CONVERTIBLE):
        return f"bowstring convert reads {', '.join(_CONVERTIBLE[:-1])} and {_CONVERTIBLE[-1]}"
    return ""


def _run(arguments: Sequence[str] | None, settings: Settings) -> int:
    try:
        from bowstring.cli.program import run

        return run(arguments, settings)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in _CLI_PACKAGES:
            raise MissingExtraError.of(package, "cli") from error
        raise

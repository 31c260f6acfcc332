"""Entry point of the command `bowstring`: turns every failure into one line and an exit status.

This module imports no optional package, so that it can report a missing one.
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

from bowstring.cli.error_messages import EXIT_FAILURE, EXIT_INTERRUPTED, ErrorOptions, format_error_line
from bowstring.errors import BowstringError, MissingExtraError, NoDataError, TruncatedError
from bowstring.io.io_errors import translate_io_error

_CLI_PACKAGES = ("click", "rich")
_DEFAULT_MESSAGES = {"MemoryError": "out of memory"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status. `arguments` exclude the program's name; default: sys.argv."""
    options = ErrorOptions(debug=bool(os.environ.get("BOWSTRING_DEBUG")))
    _replace_closed_streams()
    _escape_unencodable_characters()
    try:
        with _exit_on_signals():
            status = _import_and_run(arguments, options)
            sys.stdout.flush()
            return status
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except Exception as error:
        if _is_caused_by(error, KeyboardInterrupt):  # for example py4j's, if interrupted during a call
            return EXIT_INTERRUPTED
        if _is_caused_by(error, BrokenPipeError) and _is_output_pipe_broken():
            return EXIT_FAILURE
        if options.debug or not isinstance(error, (BowstringError, OSError, MemoryError)):
            raise
        sys.stderr.write(format_error(_name_standard_output(error)) + "\n")
        return EXIT_FAILURE
    finally:
        _discard_unwritten_output()


@contextmanager
def _exit_on_signals() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into `SystemExit`, so that incomplete output is removed."""

    def exit_with_signal(number: int, _frame: object) -> NoReturn:
        raise SystemExit(128 + number)

    is_main = threading.current_thread() is threading.main_thread()  # other threads can't set handlers
    default_signals = [n for n in (signal.SIGTERM, signal.SIGHUP) if is_main and signal.getsignal(n) is signal.SIG_DFL]
    for number in default_signals:
        signal.signal(number, exit_with_signal)
    try:
        yield
    finally:
        for number in default_signals:
            signal.signal(number, signal.SIG_DFL)


def _is_caused_by(error: BaseException | None, kind: type[BaseException]) -> bool:
    while error is not None and not isinstance(error, kind):
        error = error.__cause__ or error.__context__
    return error is not None


def _name_standard_output(error: Exception) -> Exception:
    """Translate an error of standard output. It is the only file that is written without naming it in errors."""
    if isinstance(error, BowstringError | FileNotFoundError) or not isinstance(error, OSError) or error.filename:
        return error  # an open file is never missing
    return translate_io_error(error, "standard output", "written")


def _is_output_pipe_broken() -> bool:
    """Return whether the reader of standard output has closed its end."""
    poll = select.poll()
    with suppress(OSError):  # not a descriptor
        poll.register(sys.stdout.fileno(), 0)
    return bool(poll.poll(0))


def _discard_unwritten_output() -> None:
    """Prevent a second failure when the interpreter flushes standard output at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _escape_unencodable_characters() -> None:
    """Write characters as escapes that the encoding of standard output lacks."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")


def _replace_closed_streams() -> None:
    """Open /dev/null for closed standard streams; else the next file opened would take their descriptor.

    Reading standard input and writing standard output fail; standard error is discarded.
    """
    for name, mode, flags in (("stdin", "r", os.O_WRONLY), ("stdout", "w", os.O_RDONLY), ("stderr", "w", os.O_WRONLY)):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, flags), mode, closefd=False))


def format_error(error: Exception) -> str:
    """Return one printable line for `error`, with a hint, if any."""
    text = str(error).strip() or _DEFAULT_MESSAGES.get(type(error).__name__, type(error).__name__)
    return format_error_line(text, next(reversed(getattr(error, "__notes__", [])), _error_hint(error)))


def _error_hint(error: Exception) -> str:
    """Return a hint for an error, or empty text."""
    if isinstance(error, TruncatedError) and not isinstance(error, NoDataError):
        return "bowstring recover saves the intact batches, if any"
    return ""


def _import_and_run(arguments: Sequence[str] | None, options: ErrorOptions) -> int:
    try:
        from bowstring.cli.commands import run_command_line

        return run_command_line(arguments, options)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in _CLI_PACKAGES:
            raise MissingExtraError.for_package(package, "cli") from error
        raise

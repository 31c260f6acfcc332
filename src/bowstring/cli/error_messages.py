"""Exit statuses and error messages of all commands."""

from __future__ import annotations

from dataclasses import dataclass

from bowstring.display.printable_text import to_printable
from bowstring.redaction import redact

EXIT_FAILURE, EXIT_INTERRUPTED = 1, 130
"""Exit statuses in addition to 0 for success and click's 2 for usage errors."""


def format_error_line(text: str, hint: str) -> str:
    """Return one printable line for a failure, with a hint, if any.

    Control characters are shown as escapes, because the text may contain bytes of a hostile file.
    """
    return f"bowstring: {to_printable(redact(' '.join(text.split())))}" + (f" ({hint})" if hint else "")


@dataclass(slots=True)
class ErrorOptions:
    """How to report a failure: whether to show the traceback, and the command to name in a hint."""

    debug: bool = False
    command: str = "bowstring"

"""Exit statuses, messages and settings of all commands."""

from __future__ import annotations

from dataclasses import dataclass

from bowstring.inspection.text import printable

FAILED, INTERRUPTED = 1, 130
"""Exit statuses in addition to 0 for success and click's 2 for usage errors."""


def failure_line(text: str, hint: str) -> str:
    """Return one printable line for a failure, with a hint, if any.

    Control characters are shown as escapes, because the text may contain bytes of a hostile file.
    """
    return f"bowstring: {printable(' '.join(text.split()))}" + (f" ({hint})" if hint else "")


@dataclass(slots=True)
class Settings:
    """Settings of every command: whether to show tracebacks, and the name of the command."""

    debug: bool = False
    command: str = "bowstring"

"""What all commands have in common: their exit statuses, how a failure is told, and the settings that hold for all."""

from __future__ import annotations

from dataclasses import dataclass

from bowstring.inspection.text import printable

FAILED, INTERRUPTED = 1, 130
"""Exit statuses beside 0, which says that all is done, and click's 2, that the call is wrong."""


def failure_line(text: str, hint: str) -> str:
    """What the user reads of a failure: one printable line, with a hint where there is one.

    A text may quote bytes of a hostile file, so control characters are shown as escapes.
    """
    return f"bowstring: {printable(' '.join(text.split()))}" + (f" ({hint})" if hint else "")


@dataclass(slots=True)
class Settings:
    """What holds for every command: `debug` lets a failure show its traceback, `command` is what was called."""

    debug: bool = False
    command: str = "bowstring"

"""What all commands have in common: their exit statuses, and the settings that hold for every one."""

from __future__ import annotations

from dataclasses import dataclass

FAILED, CALLED_WRONGLY, INTERRUPTED = 1, 2, 130
"""Exit statuses beside 0, which says that all is done."""


@dataclass(slots=True)
class Settings:
    """What holds for every command: `debug` lets a failure show its traceback."""

    debug: bool = False

"""Examples at the end of help texts."""

from __future__ import annotations


def examples(*lines: str) -> str:
    """Return the end of a command's help: command lines to copy, which are never wrapped."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)

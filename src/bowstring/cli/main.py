"""Where the command `bowstring` starts, and where every failure becomes one line and an exit status.

This module imports no optional package, so that it can say which one is missing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from bowstring.cli.settings import FAILED, INTERRUPTED, Settings
from bowstring.errors import BowstringError, MissingExtraError
from bowstring.inspection.text import printable

_CLI_PACKAGES = ("click", "rich")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line `arguments` (without the program's name; by default the process's own); its exit status."""
    settings = Settings(debug=bool(os.environ.get("BOWSTRING_DEBUG")))
    try:
        return _run(arguments, settings)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough; keep the interpreter from failing on the last flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except (BowstringError, OSError) as error:
        if _is_interrupted(error):
            return INTERRUPTED
        if settings.debug:
            raise
        sys.stderr.write(one_line(error) + "\n")
        return FAILED
    except Exception as error:
        if _is_interrupted(error):
            return INTERRUPTED
        raise


def _is_interrupted(error: BaseException | None) -> bool:
    """Whether an error came of an interrupt, as py4j's do when it is interrupted in the middle of a call."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def one_line(error: Exception) -> str:
    """What the user reads of `error`: one printable line, with a hint where more is to be had.

    A message may quote bytes of a hostile file, so control characters are shown as escapes.
    """
    text = " ".join(str(error).split()) or type(error).__name__
    hint = "" if isinstance(error, MissingExtraError) else " (bowstring --debug shows where)"
    return f"bowstring: {printable(text)}{hint}"


def _run(arguments: Sequence[str] | None, settings: Settings) -> int:
    try:
        from bowstring.cli.program import run

        return run(arguments, settings)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in _CLI_PACKAGES:
            raise MissingExtraError.of(package, "cli") from error
        raise

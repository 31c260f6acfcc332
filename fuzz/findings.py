"""What went wrong: each kind of finding once, as a folder with the input, what happened, and how to see it again."""

from __future__ import annotations

import re
import traceback
from dataclasses import dataclass
from pathlib import Path

from fuzz.inputs import KINDS, Input

_OURS = re.compile(r".*/(?:src/)?(bowstring/.*|fuzz/oracles/.*)\.py$")


@dataclass(frozen=True, slots=True)
class Finding:
    """A folder with an input that something went wrong with."""

    folder: Path

    @property
    def name(self) -> str:
        """What went wrong, and where."""
        return self.folder.name

    @property
    def path(self) -> Path:
        """The input, as small as it is known."""
        return next(path for path in sorted(self.folder.iterdir(), reverse=True) if path.suffix[1:] in KINDS)

    @property
    def given(self) -> Input:
        """The input itself."""
        return load(self.path)

    def replace(self, given: Input) -> None:
        """Put a smaller input in the place of the one that is there."""
        self.path.write_bytes(given.data)


class Findings:
    """A folder of findings."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def all(self) -> list[Finding]:
        """All of them, by name."""
        return [Finding(path) for path in sorted(self._folder.glob("*")) if path.is_dir()]

    def keep(self, given: Input, name: str, story: str) -> bool:
        """Keep an input; whether nothing of this name was known."""
        folder = self._folder / name
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            return False
        (folder / f"input.{given.kind}").write_bytes(given.data)
        again = f"python -m fuzz --again {folder / f'input.{given.kind}'}"
        (folder / "story.txt").write_text(f"{story}\n\nTo see it again: {again}\n")
        return True

    def keep_error(self, given: Input, error: BaseException) -> bool:
        """Keep an input by what it raised; whether nothing of this name was known."""
        return self.keep(given, signature(error), "".join(traceback.format_exception(error)))


def signature(error: BaseException) -> str:
    """What was raised and where, as a name for a folder: errors of one signature have one cause, mostly."""
    place = ""
    for frame in traceback.extract_tb(error.__traceback__):
        found = _OURS.match(frame.filename)
        if found:
            module = found[1].removeprefix("bowstring/").replace("/", ".")
            place = f"{module}-{frame.lineno}"
    words = str(error).partition(":")[0][:60] if type(error).__module__.startswith("fuzz") else ""
    words = re.sub(r"[^a-zA-Z]+", "-", words).strip("-")
    return "-".join(filter(None, (type(error).__name__, place, words)))


def load(path: Path) -> Input:
    """The input in a file whose suffix says its kind."""
    return Input(path.suffix[1:], path.read_bytes())

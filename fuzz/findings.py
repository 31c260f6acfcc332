"""Findings: one folder per kind of failure, with the input, a report and the command that replays it."""

from __future__ import annotations

import re
import traceback
from dataclasses import dataclass
from pathlib import Path

from fuzz.inputs import KINDS, FuzzInput

_OWN_CODE = re.compile(r".*/(?:src/)?(bowstring(?:_networks)?/.*|fuzz/oracles/.*)\.py$")


@dataclass(frozen=True, slots=True)
class Finding:
    """A folder with an input that fails."""

    folder: Path

    @property
    def name(self) -> str:
        """The failure and its location."""
        return self.folder.name

    @property
    def path(self) -> Path:
        """The file of the smallest known input."""
        return next(path for path in sorted(self.folder.iterdir(), reverse=True) if path.suffix[1:] in KINDS)

    @property
    def fuzz_input(self) -> FuzzInput:
        """The input."""
        return load_input(self.path)

    @property
    def report(self) -> str:
        """The error, and the command that replays it."""
        return (self.folder / "report.txt").read_text()

    def replace(self, fuzz_input: FuzzInput) -> None:
        """Replace the input with a smaller one."""
        self.path.write_bytes(fuzz_input.data)


class Findings:
    """A folder of findings."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def all(self) -> list[Finding]:
        """All of them, by name."""
        return [Finding(path) for path in sorted(self._folder.glob("*")) if path.is_dir()]

    def add(self, fuzz_input: FuzzInput, name: str, report: str) -> bool:
        """Store an input; return False if there is already a finding of this name."""
        folder = self._folder / name
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            return False
        (folder / f"input.{fuzz_input.kind}").write_bytes(fuzz_input.data)
        command = f"python -m fuzz --replay {folder / f'input.{fuzz_input.kind}'}"
        (folder / "report.txt").write_text(f"{report}\n\nTo replay it: {command}\n")
        return True

    def add_error(self, fuzz_input: FuzzInput, error: BaseException) -> bool:
        """Store an input under the signature of its error; return False if there is already one."""
        return self.add(fuzz_input, signature(error), "".join(traceback.format_exception(error)))


def signature(error: BaseException) -> str:
    """A folder name from the error's type and location. Errors with the same signature usually have the same cause."""
    location = ""
    for frame in traceback.extract_tb(error.__traceback__):
        match = _OWN_CODE.match(frame.filename)
        if match:
            module = match[1].removeprefix("bowstring/").replace("/", ".")
            location = f"{module}-{frame.lineno}"
    message = str(error).partition(":")[0][:60] if type(error).__module__.startswith("fuzz") else ""
    message = re.sub(r"[^a-zA-Z]+", "-", message).strip("-")
    return "-".join(filter(None, (type(error).__name__, location, message)))


def load_input(path: Path) -> FuzzInput:
    """Read an input; the file's suffix is its kind."""
    return FuzzInput(path.suffix[1:], path.read_bytes())

"""Reads hostile files in many ways, each file in a process of its own: `each_alone.py FOLDER SECONDS BYTES`.

Processes are forked from one that has imported everything. Each line of the output says what became of a file.
"""

from __future__ import annotations

import io
import json
import os
import resource
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

import bowstring as bs
from bowstring.cli import anatomy, head, info, recover, sizes, validate
from bowstring.cli.main import main as command

COMMANDS = (anatomy, head, info, recover, sizes, validate)


def read(path: Path) -> None:
    """Read everything and look at every value."""
    opened = bs.open_file if path.read_bytes()[:6] == b"ARROW1" else bs.open_stream
    with opened(path) as reader:
        for batch in reader:
            batch.validate(full=True)


def read_tensors(path: Path) -> None:
    """Read the messages of a stream of tensors."""
    for tensor in bs.open_tensors(path):
        tensor.validate(full=True)


def asked(*arguments: str) -> None:
    """Run a command; it ends with 0, or with 1 and one line."""
    sys.stderr = io.StringIO()
    status = command(list(arguments))
    said = sys.stderr.getvalue()
    assert status in (0, 1), f"{arguments[0]} ends with {status}: {said}"
    assert "Traceback" not in said, said


def recovered(path: Path) -> None:
    """What is recovered is sound."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "target"
        asked("recover", str(path), str(target))
        if target.exists():
            read(target)


WAYS: dict[str, Callable[[Path], None]] = {
    "read": read,
    "tensors": read_tensors,
    "validate": lambda path: asked("validate", str(path)),
    "info": lambda path: asked("info", str(path)),
    "sizes": lambda path: asked("sizes", str(path)),
    "head": lambda path: asked("head", "--format", "jsonl", str(path)),
    "recover": recovered,
}


def try_all(path: Path) -> list[str]:
    """What went wrong that is no error of ours."""
    wrong = []
    for name, way in WAYS.items():
        try:
            way(path)
        except bs.errors.InvalidDataError as error:
            if not str(error) or name == "recover":
                wrong.append(f"{name}: {error!r}")
        except Exception:  # noqa: BLE001 -- that is what we look for
            wrong.append(f"{name}: {traceback.format_exc()}")
    return wrong


def main() -> None:
    folder, seconds, memory_bytes = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        there, here = os.pipe()
        child = os.fork()
        if not child:
            signal.alarm(seconds)
            resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
            sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 -- until the process ends
            wrong = try_all(path)
            os.write(here, json.dumps(wrong).encode()[:60_000])
            os._exit(0)
        os.close(here)
        with open(there, "rb") as answers:
            answer = answers.read()
        _, status = os.waitpid(child, 0)
        ended = os.waitstatus_to_exitcode(status)
        wrong = json.loads(answer) if ended == 0 else [f"the process ended with {ended}"]
        print(json.dumps({"path": str(path.relative_to(folder)), "wrong": wrong}), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()

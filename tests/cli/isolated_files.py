"""Read hostile files with every command, each file in its own process: `isolated_files.py FOLDER SECONDS BYTES`.

The processes are forked from one that has imported everything. Each line of the output has the failures of a file.
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
from bowstring.cli import anatomy, head, info, recover, validate
from bowstring.cli.main import main as command

COMMANDS = (anatomy, head, info, recover, validate)


def read(path: Path) -> None:
    """Read and validate all batches."""
    opened = bs.open_file if path.read_bytes()[:6] == b"ARROW1" else bs.open_stream
    with opened(path) as reader:
        for batch in reader:
            batch.validate(full=True)


def read_tensors(path: Path) -> None:
    """Read the messages of a stream of tensors."""
    for tensor in bs.tensors.open_tensor_stream(path):
        tensor.validate(full=True)


def run_command(*arguments: str) -> None:
    """Run a command, which must exit with 0 or 1 and without a traceback."""
    sys.stderr = io.StringIO()
    status = command(list(arguments))
    errors = sys.stderr.getvalue()
    assert status in (0, 1), f"{arguments[0]} exits with {status}: {errors}"
    assert "Traceback" not in errors, errors


def recover_and_read(path: Path) -> None:
    """Recover a file and validate the copy."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "target"
        run_command("recover", str(path), str(target))
        if target.exists():
            read(target)


CHECKS: dict[str, Callable[[Path], None]] = {
    "read": read,
    "tensors": read_tensors,
    "validate": lambda path: run_command("validate", str(path)),
    "info": lambda path: run_command("info", str(path)),
    "sizes": lambda path: run_command("info", "--sizes", str(path)),
    "head": lambda path: run_command("head", "--format", "jsonl", str(path)),
    "recover": recover_and_read,
}


def run_checks(path: Path) -> list[str]:
    """The failures that are not Bowstring errors."""
    failures = []
    for name, check in CHECKS.items():
        try:
            check(path)
        except bs.errors.InvalidDataError as error:
            if not str(error) or name == "recover":
                failures.append(f"{name}: {error!r}")
        except Exception:  # noqa: BLE001 -- a failure
            failures.append(f"{name}: {traceback.format_exc()}")
    return failures


def main() -> None:
    folder, seconds, memory_bytes = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            signal.alarm(seconds)
            resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
            sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 -- until the process ends
            failures = run_checks(path)
            os.write(writer, json.dumps(failures).encode()[:60_000])
            os._exit(0)
        os.close(writer)
        with open(reader, "rb") as pipe:
            output = pipe.read()
        _, status = os.waitpid(child, 0)
        exit_code = os.waitstatus_to_exitcode(status)
        failures = json.loads(output) if exit_code == 0 else [f"the process exited with {exit_code}"]
        print(json.dumps({"path": str(path.relative_to(folder)), "failures": failures}), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()

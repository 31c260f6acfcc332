"""The command line as a process of its own, with real pipes."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pyarrow as pa


def run_command(*arguments: object, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Run `bowstring` with these arguments."""
    command = [sys.executable, "-m", "bowstring", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, timeout=60, check=False, **options)


def through_a_pipe(path: Path, *arguments: object) -> subprocess.CompletedProcess[bytes]:
    """Run `bowstring` with the bytes of a file on a pipe."""
    with subprocess.Popen(["cat", str(path)], stdout=subprocess.PIPE) as cat:
        return run_command(*arguments, stdin=cat.stdout)


def terminal(
    width: int,
    *arguments: object,
    stdin_is_terminal: bool = False,
    stdout_is_terminal: bool = True,
    stdout: int = subprocess.DEVNULL,
) -> tuple[int, str]:
    """The exit status, and what a terminal of so many columns was sent; `stdout` is standard output if that is not the
    terminal.
    """
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-m", "bowstring", *map(str, arguments)],
        stdin=follower if stdin_is_terminal else subprocess.DEVNULL,
        stdout=follower if stdout_is_terminal else stdout,
        stderr=follower,
        env={**environment, "TERM": "xterm"},
    )
    os.close(follower)
    held = b""
    try:
        while part := os.read(leader, 65536):
            held += part
    except OSError:  # how Linux tells that the other side is closed
        pass
    finally:
        os.close(leader)
        status = process.wait(timeout=60)
    return status, held.decode("utf-8")


def on_a_terminal(width: int, *arguments: object) -> list[str]:
    """The lines that a terminal of so many columns was sent, without colours; the command has to end well."""
    status, held = terminal(width, *arguments)
    assert status == 0, held
    return re.sub(r"\x1b\[[0-9;]*m", "", held).replace("\r", "").splitlines()


def write(path: Path, table: pa.Table, batch_rows: int | None = None) -> Path:
    """Write a table with pyarrow: a stream where the path ends in .arrows, else a file."""
    new = pa.ipc.new_stream if path.suffix == ".arrows" else pa.ipc.new_file
    with new(path, table.schema) as writer:
        writer.write_table(table, batch_rows)
    return path

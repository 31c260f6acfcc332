"""Run the command line in its own process, with real pipes and terminals."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa


def run_command(*arguments: object, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Run `bowstring` with these arguments."""
    command = [sys.executable, "-m", "bowstring", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, timeout=60, check=False, **options)


@contextmanager
def running_server(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Run `bowstring serve` with these arguments; it is killed at the end of the block."""
    command = [sys.executable, "-m", "bowstring", "serve", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def read_uri(server: subprocess.Popen[str]) -> str:
    """The next URI that `bowstring serve` writes."""
    assert server.stdout is not None
    uri = server.stdout.readline().strip()
    assert uri, server.communicate(timeout=60)[1]
    return uri


def run_with_pipe(path: Path, *arguments: object) -> subprocess.CompletedProcess[bytes]:
    """Run `bowstring` with a file piped to standard input."""
    with subprocess.Popen(["cat", str(path)], stdout=subprocess.PIPE) as cat:
        return run_command(*arguments, stdin=cat.stdout)


def run_in_terminal(
    width: int,
    *arguments: object,
    stdin_is_terminal: bool = False,
    stdout_is_terminal: bool = True,
    stdout: int = subprocess.DEVNULL,
) -> tuple[int, str]:
    """Run `bowstring` in a terminal with this number of columns; return the exit status and the terminal's output.

    `stdout` is standard output unless that is the terminal.
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
    output = b""
    try:
        while part := os.read(leader, 65536):
            output += part
    except OSError:  # on Linux, the other end is closed
        pass
    finally:
        os.close(leader)
        status = process.wait(timeout=60)
    return status, output.decode("utf-8")


def terminal_lines(width: int, *arguments: object) -> list[str]:
    """The lines that a successful command writes to a terminal, without escapes."""
    status, output = run_in_terminal(width, *arguments)
    assert status == 0, output
    return re.sub(r"\x1b\[[0-9;]*m", "", output).replace("\r", "").splitlines()


def write(path: Path, table: pa.Table, batch_rows: int | None = None) -> Path:
    """Write a table with pyarrow: a stream if the suffix is .arrows, else a file."""
    new = pa.ipc.new_stream if path.suffix == ".arrows" else pa.ipc.new_file
    with new(path, table.schema) as writer:
        writer.write_table(table, batch_rows)
    return path

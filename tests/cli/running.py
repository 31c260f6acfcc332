"""The command line as a process of its own, with real pipes."""

from __future__ import annotations

import subprocess
import sys
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


def write(path: Path, table: pa.Table, batch_rows: int | None = None) -> Path:
    """Write a table with pyarrow: a stream where the path ends in .arrows, else a file."""
    new = pa.ipc.new_stream if path.suffix == ".arrows" else pa.ipc.new_file
    with new(path, table.schema) as writer:
        writer.write_table(table, batch_rows)
    return path

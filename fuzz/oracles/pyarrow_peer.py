"""Compare valid data with what pyarrow reads from it, in another process, because pyarrow may crash."""

from __future__ import annotations

import atexit
import resource
import select
import subprocess
import sys
import time
from pathlib import Path

import bowstring as bs
from fuzz.expectations import ALLOWED_ERRORS, expect
from fuzz.pyarrow_worker import LENGTH

_ROOT = Path(__file__).resolve().parent.parent.parent
_TIMEOUT_S = 15.0


class NoReplyError(Exception):
    """The peer crashed, hangs, or cannot be started."""


class PyarrowProcess:
    """A `fuzz.pyarrow_worker` process; started by the first request, and again after a crash."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def request(self, data: bytes) -> tuple[bytes, bytes] | None:
        """The status and content of the reply; None if the process crashes or hangs."""
        if self._process is None:
            self._process = self._start_process()
        pipe = self._process.stdin
        assert pipe is not None
        try:
            pipe.write(LENGTH.pack(len(data)) + data)
            pipe.flush()
            deadline = time.monotonic() + _TIMEOUT_S
            prefix = self._read(1 + LENGTH.size, deadline)
            return prefix[:1], self._read(LENGTH.unpack(prefix[1:])[0], deadline)
        except (NoReplyError, OSError):
            self.stop()
            return None

    def _start_process(self) -> subprocess.Popen[bytes]:
        # The memory limit of this process is too small to import pyarrow; the worker sets its own.
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
        try:
            return subprocess.Popen(
                [sys.executable, "-m", "fuzz.pyarrow_worker"],
                cwd=_ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))

    def _read(self, size: int, deadline: float) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        content = b""
        while len(content) < size:
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            chunk = self._process.stdout.read1(size - len(content)) if ready else b""  # type: ignore[attr-defined]
            if not chunk:
                raise NoReplyError
            content += chunk
        return content

    def stop(self) -> None:
        """Kill the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


_peer = PyarrowProcess()
atexit.register(_peer.stop)


def compare_with_pyarrow(data: bytes, table: bs.Table) -> None:
    """Compare the table with what pyarrow reads from the data, in columns of the same type."""
    reply = _peer.request(data)
    if reply is None or reply[0] != b"=":
        return  # pyarrow crashed, or does not support the data
    pa_table = bs.open_stream(reply[1]).read_all()
    expect(pa_table.num_rows == table.num_rows, f"pyarrow reads {pa_table.num_rows} rows, not {table.num_rows}")
    expect(pa_table.num_columns == table.num_columns, "pyarrow reads other columns")
    for index in range(table.num_columns):
        column, pa_column = table.column(index), pa_table.column(index)
        if column.type == pa_column.type:
            try:
                values = repr(column.to_pylist())
            except ALLOWED_ERRORS:
                continue
            expect(values == repr(pa_column.to_pylist()), f"pyarrow reads other values of {column.type}")

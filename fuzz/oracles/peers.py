"""A second opinion: what pyarrow reads from sound data is what we read. It reads in a process that may crash."""

from __future__ import annotations

import atexit
import resource
import select
import subprocess
import sys
import time
from pathlib import Path

import bowstring as bs
from fuzz.peer import LENGTH
from fuzz.promises import TOO_MUCH, promise

_ROOT = Path(__file__).resolve().parent.parent.parent
_TIMEOUT_S = 15.0


class _SilentError(Exception):
    """The peer crashed, hangs, or cannot be started."""


class Peer:
    """A process that answers as `fuzz.peer` does; started when it is first asked, and again after it died."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, data: bytes) -> tuple[bytes, bytes] | None:
        """Its answer; None where it gives none."""
        if self._process is None:
            self._process = self._started()
        pipe = self._process.stdin
        assert pipe is not None
        try:
            pipe.write(LENGTH.pack(len(data)) + data)
            pipe.flush()
            until = time.monotonic() + _TIMEOUT_S
            head = self._read(1 + LENGTH.size, until)
            return head[:1], self._read(LENGTH.unpack(head[1:])[0], until)
        except (_SilentError, OSError):
            self.stop()
            return None

    def _started(self) -> subprocess.Popen[bytes]:
        # The limit of this process would not even let pyarrow be imported there; it sets its own.
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
        try:
            return subprocess.Popen(
                [sys.executable, "-m", "fuzz.peer"],
                cwd=_ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))

    def _read(self, size: int, until: float) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        held = b""
        while len(held) < size:
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, until - time.monotonic()))
            part = self._process.stdout.read1(size - len(held)) if ready else b""  # type: ignore[attr-defined]
            if not part:
                raise _SilentError
            held += part
        return held

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


_peer = Peer()
atexit.register(_peer.stop)


def compare_with_peer(data: bytes, table: bs.Table) -> None:
    """Compare what pyarrow reads from the data with the table, where it reads it and in the same types."""
    answer = _peer.ask(data)
    if answer is None or answer[0] != b"=":
        return  # it crashed, or there is something that it does not read
    theirs = bs.open_stream(answer[1]).read_all()
    promise(theirs.num_rows == table.num_rows, f"pyarrow reads {theirs.num_rows} rows, not {table.num_rows}")
    promise(theirs.num_columns == table.num_columns, "pyarrow reads other columns")
    for index in range(table.num_columns):
        mine, other = table.column(index), theirs.column(index)
        if mine.type == other.type:
            try:
                values = repr(mine.to_pylist())
            except TOO_MUCH:
                continue
            promise(values == repr(other.to_pylist()), f"pyarrow reads other values of {mine.type}")

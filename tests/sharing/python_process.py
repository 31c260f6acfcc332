"""A Python process with its own memory and descriptors, which a test controls and may kill."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import pytest

_MAIN = """
import pickle, sys
code, values = pickle.load(sys.stdin.buffer)
def send(value):
    sys.stdout.buffer.write(pickle.dumps(value)); sys.stdout.buffer.flush()
def receive():
    return pickle.load(sys.stdin.buffer)
exec(code, {**values, "send": send, "receive": receive})
"""


needs_user_namespaces = pytest.mark.skipif(
    os.getuid() != 0
    or shutil.which("unshare") is None
    or subprocess.run(["unshare", "--user", "true"], capture_output=True, check=False).returncode != 0,
    reason="requires root and user namespaces",
)


class PythonProcess:
    """Runs `code` with the globals `values`, and `send` and `receive` to exchange values with the test.

    `network` is the name of a network namespace; `isolation` are options of the command `unshare`.
    """

    def __init__(self, code: str, *, network: str | None = None, isolation: Sequence[str] = (), **values: Any) -> None:
        prefix = ["ip", "netns", "exec", network] if network is not None else []
        prefix += ["unshare", *isolation] if isolation else []
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-c", _MAIN],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.send((code, values))

    def send(self, value: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(pickle.dumps(value))
        self.process.stdin.flush()

    def receive(self) -> Any:
        assert self.process.stdout is not None
        try:
            return pickle.load(self.process.stdout)
        except EOFError:
            assert self.process.stderr is not None
            self.process.wait(30)
            raise AssertionError(self.process.stderr.read().decode()) from None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.communicate()


def run_python(code: str, **values: Any) -> Any:
    """Return the first value that `code` sends."""
    with PythonProcess(code, **values) as process:
        return process.receive()

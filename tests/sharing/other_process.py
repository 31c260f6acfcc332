"""Another Python process that runs what a test says, so that a peer is really a peer, and really dies."""

from __future__ import annotations

import pickle
import subprocess
import sys
from types import TracebackType
from typing import Any, Self

_BOOT = """
import pickle, sys
code, values = pickle.load(sys.stdin.buffer)
def say(value):
    sys.stdout.buffer.write(pickle.dumps(value)); sys.stdout.buffer.flush()
def hear():
    return pickle.load(sys.stdin.buffer)
exec(code, {**values, "say": say, "hear": hear})
"""


class Other:
    """Runs `code`, which has `values` as its globals, and talks with the test by `say` and `hear`.

    `network` is the name of a network namespace.
    """

    def __init__(self, code: str, *, network: str | None = None, **values: Any) -> None:
        prefix = ["ip", "netns", "exec", network] if network is not None else []
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-c", _BOOT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.tell((code, values))

    def tell(self, value: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(pickle.dumps(value))
        self.process.stdin.flush()

    def hear(self) -> Any:
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


def run(code: str, **values: Any) -> Any:
    """What `code` says first."""
    with Other(code, **values) as other:
        return other.hear()

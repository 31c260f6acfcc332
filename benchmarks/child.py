"""A process at the other end: one of our modules, told what to do by lines of JSON and answering with them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

_END_S = 10.0


class Child:
    """Runs `python -m benchmarks.MODULE ARGUMENTS`; ready to be asked when it has been made. A context manager."""

    def __init__(self, module: str, *arguments: str, descriptors: tuple[int, ...] = ()) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"benchmarks.{module}", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            pass_fds=descriptors,
            cwd=os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
        )
        self.ready: dict[str, Any] = {}
        try:
            self.ready = self.answer()
        except BaseException:
            self.close()
            raise

    def tell(self, order: str, **details: Any) -> None:
        """Give an order."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"order": order, **details}) + "\n")

    def answer(self) -> dict[str, Any]:
        """The next line that it says. Raises `RuntimeError` where it ended instead."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._process.args!r} ended with status {self._process.wait()}; see above")
        found: dict[str, Any] = json.loads(line)
        return found

    def ask(self, order: str, **details: Any) -> dict[str, Any]:
        """Give an order and wait for the answer."""
        self.tell(order, **details)
        return self.answer()

    def close(self) -> None:
        """End it: it ends by itself when nobody talks to it any more, else it is killed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def obey(orders: Mapping[str, Callable[..., dict[str, Any] | None]], **ready: Any) -> None:
    """The child's part: say that it is ready, then follow orders until there are no more."""
    say(ready)
    for line in sys.stdin:
        details = json.loads(line)
        say(orders[details.pop("order")](**details) or {})


def say(answer: dict[str, Any]) -> None:
    """One line to whoever asked."""
    print(json.dumps(answer), flush=True)

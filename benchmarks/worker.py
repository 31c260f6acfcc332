"""Worker processes of a benchmark: modules of this package that answer requests, both as lines of JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

_EXIT_TIMEOUT_S = 10.0


class WorkerProcess:
    """A process that runs `python -m benchmarks.MODULE ARGUMENTS`. A context manager.

    The constructor waits until the process is ready. `ready` is its first message.
    """

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
            self.ready = self.receive()
        except BaseException:
            self.close()
            raise

    def send(self, method: str, **parameters: Any) -> None:
        """Send a request."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"method": method, **parameters}) + "\n")

    def receive(self) -> dict[str, Any]:
        """Wait for the next message. Raise `RuntimeError` if the process has exited."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._process.args!r} exited with status {self._process.wait()}; see above")
        message: dict[str, Any] = json.loads(line)
        return message

    def request(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a request and wait for its reply."""
        self.send(method, **parameters)
        return self.receive()

    def close(self) -> None:
        """Close the pipe, which ends the process; kill it if it does not exit."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(_EXIT_TIMEOUT_S)
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


def serve_requests(methods: Mapping[str, Callable[..., dict[str, Any] | None]], **ready: Any) -> None:
    """Run the worker: send `ready`, then answer requests until the pipe is closed."""
    send_message(ready)
    for line in sys.stdin:
        parameters = json.loads(line)
        send_message(methods[parameters.pop("method")](**parameters) or {})


def send_message(message: dict[str, Any]) -> None:
    """Send one message to the parent process."""
    print(json.dumps(message), flush=True)

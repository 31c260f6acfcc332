"""Reaching the keeper of this host, and starting it: what a Spark task, and the driver, ask of it.

The keeper listens at an abstract unix address that its key names. Whoever finds nobody there takes the address itself,
which only one process can, starts the keeper with the listening socket, and forgets it: so there is no file to lock
and none to leave behind, no keeper is started twice, and who comes next waits in the socket's queue while the keeper
starts.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from bowstring.errors import ConnectionLostError, ProtocolError, ResourceError, translate_os_error
from bowstring.memory.closable import Closable, close_on_error
from bowstring.memory.region import Region
from bowstring.sharing.processes import Process, java_above
from bowstring.sharing.uris import decode_error
from bowstring.transports.base import Deadline, TransportOptions
from bowstring.transports.unix import UnixTransport
from bowstring.transports.unix_address import socket_name

DEFAULT_TTL_S = 86_400.0

# The parent of this process ends at once, so that the keeper is nobody's child; only then is anything imported.
_LAUNCH = (
    "import os, sys\nos.fork() and os._exit(0)\nfrom bowstring.sharing.host_agent import main\nmain(int(sys.argv[1]))"
)
_BACKLOG = 512
_RETRY_S = 0.02
_LAUNCH_S = 30.0


@dataclass(frozen=True, slots=True)
class KeeperKey:
    """Which keeper: one for each host and each owner. Travels to the executors with a job."""

    token: str
    owner: Process
    ttl_s: float = DEFAULT_TTL_S

    @classmethod
    def new(cls, ttl_s: float = DEFAULT_TTL_S) -> KeeperKey:
        """A key that belongs to this process: its keepers end when it ends."""
        return cls(secrets.token_hex(16), Process.current(), ttl_s)

    @property
    def address(self) -> str:
        """Where its keeper listens, on whichever host."""
        return f"@bowstring-keeper-{os.getuid()}-{self.token}"

    def owner_here(self) -> Process:
        """Whose end is the keeper's end: the owner's if it is of this host, else that of the Java process that we
        descend from.
        """
        return self.owner if self.owner.is_local else java_above() or Process.current()


class Keeper(Closable):
    """A connection to the keeper of this host. A context manager."""

    def __init__(self, transport: UnixTransport, *, needs_commit: bool = True) -> None:
        self._transport = transport
        self._needs_commit = needs_commit

    @classmethod
    def open(cls, key: KeeperKey, *, start: bool = True, timeout_s: float = 30.0) -> Self:
        """Connect to the keeper of this host; with `start`, start it where there is none.

        Raises `ConnectionLostError` where there is none, `DeadlineError` where it does not answer, `ResourceError`
        where it can't be started.
        """
        deadline = Deadline(timeout_s)
        while True:
            try:
                made = cls(_connected(key, deadline), needs_commit=key.owner.is_local)
                with close_on_error(made):
                    made._ask({"op": "hello", "owner": _as_json(key.owner_here())})
                return made
            except ConnectionLostError:
                if not start or not deadline.remaining_s():
                    raise
            if not launch(key.address):
                time.sleep(_RETRY_S)

    def put(
        self, dataset: str, place: tuple[int, int], region: Region, *, rows: int, ttl_s: float = DEFAULT_TTL_S
    ) -> str:
        """Hand over the memory of a partition: (number, attempt); the URI at which it can be read once the attempt is
        confirmed.

        Raises `UsageError` where the data set is complete or dropped already.
        """
        index = self._transport.send_region(region)
        request = {"op": "put", "dataset": dataset, "place": place, "region": index, "rows": rows, "ttl_s": ttl_s}
        request["needs_commit"] = self._needs_commit
        return str(self._ask(request)["uri"])

    def commit(self, dataset: str, attempts: Mapping[int, int]) -> list[int]:
        """Confirm the attempt that counts of each partition, and drop all others; the partitions that the keeper does
        not have.
        """
        answer = self._ask({"op": "commit", "dataset": dataset, "attempts": sorted(attempts.items())})
        return [int(partition) for partition in answer["missing"]]

    def drop(self, dataset: str) -> None:
        """Let the memory of a data set go. Raises `NotFoundError` where there is no such data set."""
        self._ask({"op": "drop", "dataset": dataset})

    def status(self) -> dict[str, Any]:
        """The keeper's process (`pid`), and for each data set its partitions, rows and bytes."""
        return self._ask({"op": "status"})

    def close(self) -> None:
        """End the connection; the keeper keeps what it has."""
        self._transport.close()

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        self._transport.send((json.dumps(request).encode(),))
        received = self._transport.receive()
        if received.tag is not None:
            raise decode_error(received.data, "keeper")
        try:
            answer = json.loads(bytes(received.data))
        except ValueError:
            raise ProtocolError(f"keeper: expected JSON, found {bytes(received.data[:80])!r}") from None
        if not isinstance(answer, dict):
            raise ProtocolError(f"keeper: expected a JSON object, found {type(answer).__name__}")
        return answer


def _connected(key: KeeperKey, deadline: Deadline) -> UnixTransport:
    left_s = max(deadline.remaining_s(), 0.001)
    return UnixTransport.connect(key.address, timeout_s=left_s, options=TransportOptions(timeout_s=deadline.timeout_s))


def launch(address: str) -> bool:
    """Start a keeper at an address; False where another process is listening, or about to, there.

    The keeper gets a session of its own and none of our descriptors: Spark talks to its workers by pipes and sockets,
    and waits for whoever still holds them. Raises `ResourceError`.
    """
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            try:
                listener.bind(socket_name(address))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    return False
                raise
            listener.listen(_BACKLOG)
            code = _run_keeper(listener.fileno())
    except (OSError, subprocess.SubprocessError) as error:
        message = f"the keeper can't be started: {error}"
        raise translate_os_error(error, message) if isinstance(error, OSError) else ResourceError(message) from error
    if code != 0:
        raise ResourceError(f"the keeper can't be started: {sys.executable} ended with code {code}")
    return True


def _run_keeper(descriptor: int) -> int:
    """Start a process whose child is the keeper; how it ended."""
    paths = os.pathsep.join(os.path.abspath(path) for path in sys.path)
    environment = {**os.environ, "PYTHONPATH": paths, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", _LAUNCH, str(descriptor)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(descriptor,),
        start_new_session=True,
        env=environment,
        cwd="/",
    ) as launched:
        try:
            return launched.wait(_LAUNCH_S)
        except BaseException:
            launched.kill()
            raise


def _as_json(process: Process) -> list[Any]:
    return [process.pid, process.start_time, process.host]

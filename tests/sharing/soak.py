"""`make soak`: servers and a host agent for a long time, with flat memory, threads, descriptors and shared memory.

Clients connect over unix and tcp, read by address and as bytes, in a few batches and in thousands, cancel, keep arrays
after their data set, send garbage, and are killed. Meanwhile the server adds and removes data sets, and tasks publish
some through the host agent.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import bowstring as bs
from bowstring.dissociated.uri import parse_uri
from bowstring.errors import NotFoundError
from bowstring.sharing.agent.client import AgentClient, AgentKey
from bowstring.transports.sockets.tcp_address import parse_address
from bowstring.transports.sockets.unix import encode_unix_address
from tests.polling import wait_until
from tests.sharing.faults.children import LONG_BATCHES, NUM_CHANGING, PLAIN_SCHEMES, numbers
from tests.sharing.faults.processes import Child, Children, Usage

WARM_UP_S = 5.0
_HOUR_S = 3600.0
_REPORT_S = 60.0
_TIMEOUT_S = 60.0
_MAX_STEPS = 40
_MAX_AGENT_IDLE_S = 30.0
"""On a slow machine minutes may pass until chance chooses to publish, and an idle host agent exits."""


class SoakTest:
    """A server, a host agent and clients, until the time is over. `counts` has the number of clients of each kind."""

    def __init__(self, children: Children, seed: int) -> None:
        self._children = children
        self._random = random.Random(seed)
        self._table = numbers()
        self._server = children.start("serve_changing")
        self._uris: dict[str, str] = self._server.receive()
        self._key = AgentKey()
        self._agent = children.start("run_agent", address=self._key.address)
        self._agent.receive()
        self._num_published = 0
        self._published_at = time.monotonic()
        self.counts = Counter[str]()

    def run(self, time_s: float, report: Callable[[str], object]) -> None:
        """Run for some seconds. Raises `AssertionError` if anything grows."""
        actions = [self._read] * 8 + [self._read_changing] * 4 + [self._cancel] * 3 + [self._keep_arrays] * 3
        actions += [self._connect_silently] * 2 + [self._send_garbage] * 2 + [self._kill] * 2
        actions += [self._publish, self._read_long, self._keep_long]
        first = list(dict.fromkeys(actions))
        started = reported = time.monotonic()
        before: dict[str, Usage] = {}
        while (now := time.monotonic()) < started + time_s or first or not before:
            is_agent_idle = now >= self._published_at + _MAX_AGENT_IDLE_S
            action = first.pop() if first else self._publish if is_agent_idle else self._random.choice(actions)
            action()
            self.counts[action.__name__.strip("_").replace("_", " ")] += 1
            if not before and now >= started + min(WARM_UP_S, time_s / 3):
                before = self._usage()
            if now >= reported + _REPORT_S:
                reported = now
                report(self._describe(now - started))
        assert wait_until(lambda: all(usage.is_flat(before[name]) for name, usage in self._usage().items())), (
            f"before: {before}; after: {self._usage()}"
        )
        report(self._describe(time.monotonic() - started))

    def _usage(self) -> dict[str, Usage]:
        gc.collect()
        processes = {"client": os.getpid(), "server": self._server.pid, "host agent": self._agent.pid}
        return {name: Usage.of(pid) for name, pid in processes.items()}

    def _describe(self, elapsed_s: float) -> str:
        counts = ", ".join(f"{number:,} {name}" for name, number in sorted(self.counts.items()))
        return f"{elapsed_s:,.0f} s: {self.counts.total():,} clients: {counts}; {self._usage()}"

    def _uri(self, name: str = "t") -> str:
        return self._uris[f"{self._random.choice(PLAIN_SCHEMES)} {name}"]

    def _connect(self, name: str = "t") -> bs.sharing.DatasetReader:
        return bs.connect(self._uri(name), copy=self._random.random() < 0.5, timeout_s=_TIMEOUT_S)

    def _read(self) -> None:
        """Read a data set once or twice over one connection."""
        with self._connect() as dataset:
            for _ in range(self._random.choice((1, 2))):
                assert dataset.read_all() == self._table

    def _read_long(self) -> None:
        """Read thousands of batches, and drop each when the next arrives."""
        with self._connect("long") as dataset:
            assert sum(1 for _ in dataset) == LONG_BATCHES

    def _keep_long(self) -> None:
        """Read thousands of batches, and drop them at the end."""
        with self._connect("long") as dataset:
            assert len(list(dataset)) == LONG_BATCHES

    def _read_changing(self) -> None:
        """Read a data set that is removed and added again."""
        with suppress(NotFoundError), self._connect(f"changing {self._random.randrange(NUM_CHANGING)}") as dataset:
            assert dataset.read_all() == self._table

    def _cancel(self) -> None:
        """Close a data set after its first batch."""
        with self._connect() as dataset:
            assert next(iter(dataset)).num_rows

    def _keep_arrays(self) -> None:
        """Use arrays after their data set was closed or dropped."""
        dataset = self._connect()
        table = dataset.read_all()
        if self._random.random() < 0.5:
            dataset.close()
        del dataset
        assert table == self._table

    def _raw_socket(self) -> socket.socket:
        uri = parse_uri(self._uri())
        is_unix = uri.scheme == "unix"
        connection = socket.socket(socket.AF_UNIX if is_unix else socket.AF_INET)
        connection.settimeout(_TIMEOUT_S)
        connection.connect(encode_unix_address(uri.address) if is_unix else parse_address(uri.address))
        return connection

    def _connect_silently(self) -> None:
        """Connect and disconnect."""
        self._raw_socket().close()

    def _send_garbage(self) -> None:
        """Send random bytes, until the server disconnects."""
        with self._raw_socket() as connection, suppress(ConnectionError):
            connection.sendall(self._random.randbytes(100))
            while connection.recv(1000):
                pass

    def _kill(self) -> None:
        """Kill a client at a step."""
        kill_at = self._random.randrange(_MAX_STEPS)
        copy = self._random.random() < 0.5
        self._end(self._children.start("read", uri=self._uri(), copy=copy, kill_at=kill_at))

    def _publish(self) -> None:
        """Publish a data set in a task that may be killed."""
        self._num_published += 1
        self._published_at = time.monotonic()
        kill_at = self._random.choice((None, self._random.randrange(_MAX_STEPS)))
        name = f"published {self._num_published}"
        self._end(self._children.start("publish", key=self._key, name=name, kill_at=kill_at))
        with AgentClient.open(self._key, start=False) as agent:
            for remaining in agent.status()["datasets"]:
                agent.drop(remaining)

    def _end(self, child: Child) -> None:
        if child.wait() != -signal.SIGKILL:
            steps = child.receive()
            assert isinstance(steps, list), steps


def run_soak(time_s: float, seed: int, report: Callable[[str], object]) -> Counter[str]:
    """As `Soak.run`; return the number of clients of each kind. Raises `AssertionError`."""
    shared_before = set(os.listdir("/dev/shm"))
    with Children() as children:
        soak = SoakTest(children, seed)
        soak.run(time_s, report)
    left = {entry for entry in set(os.listdir("/dev/shm")) - shared_before if "bowstring" in entry}
    assert not left, left
    return soak.counts


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--time", type=float, default=_HOUR_S, help="Seconds to run; by default an hour.")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    arguments = parser.parse_args()
    sys.stdout.write(f"seed {arguments.seed}\n")
    run_soak(arguments.time, arguments.seed, lambda line: (sys.stdout.write(f"{line}\n"), sys.stdout.flush()))
    sys.stdout.write("nothing has grown\n")


if __name__ == "__main__":
    main()

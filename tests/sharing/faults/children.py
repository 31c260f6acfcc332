"""Children: processes that are forked from one that has imported Bowstring already, and may kill themselves.

`main` runs in the process that forks; the other functions run in children, by their names. Each sends what it reports
to the test.
"""

from __future__ import annotations

import gc
import importlib
import itertools
import os
import pickle
import resource
import select
import signal
import socket
import sys
import tempfile
import time
import traceback
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

import bowstring as bs
from bowstring.errors import BowstringError
from bowstring.sharing.agent import client as agent_client
from bowstring.sharing.agent.client import AgentClient, AgentKey
from bowstring.sharing.agent.host_agent import TRANSPORT_OPTIONS, HostAgent
from bowstring.sharing.agent.memory_budget import MemoryRequest
from bowstring.sharing.server.options import ServerOptions
from bowstring.sharing.stored_parts import store_in_region
from bowstring.transports.observer import ObservedEvent
from bowstring.transports.registry import TRANSPORTS, find_transport
from bowstring.transports.sockets.unix import UNIX, UnixListener, encode_unix_address
from bowstring.transports.tls import TlsOptions
from bowstring_networks.ucx.channel import UcxChannel
from bowstring_networks.ucx.transport import UCX, UcxOptions
from tests.transports.observed_transport import ObservedTransport

CHILD_S = 60.0
"""The time after which a child that has not ended is killed, and reported."""
ROWS, BATCHES = 5000, 3
SCHEMES = ("unix", "tcp", "tcp+tls")
PLAIN_SCHEMES = ("unix", "tcp")
NUM_CHANGING = 4
LONG_BATCHES, LONG_COLUMNS = 10_000, 20
_PAUSE_S = 0.005
_REGISTERED_BYTES = 1 << 22
Step: TypeAlias = tuple[str, str]
"""The direction and kind of an entry."""


def numbers(rows: int = ROWS) -> bs.Table:
    """The table that is served: too large to be sent with the schema, and bodies that are offered."""
    batches = [bs.record_batch({"n": np.arange(rows) + rows * index}) for index in range(BATCHES)]
    return bs.Table.from_batches(batches)


def report(value: Any) -> None:
    """Send a value to the test, in one write."""
    os.write(1, pickle.dumps((os.getpid(), value)))


def main() -> None:
    """Fork a child for each command, and wait for children, until standard input ends."""
    bs.connect, bs.share, bs.new_file, bs.concat_tables  # noqa: B018 -- imports the modules, once for all children
    importlib.import_module("ssl")
    numbers()
    while True:
        try:
            command, values = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        if command == "wait":
            report(_wait(**values))
            continue
        pid = os.fork()
        if not pid:
            _run(globals()[command], values)
        report(pid)


def _run(function: Callable[..., None], values: dict[str, Any]) -> None:
    code = 1
    try:
        function(**values)
        code = 0
    except BaseException:  # noqa: BLE001 -- reported to the test
        report(traceback.format_exc())
    finally:
        os._exit(code)


def _wait(pid: int) -> int | None:
    """The exit code of a child, negative for a signal; None if it had to be killed."""
    descriptor = os.pidfd_open(pid)
    has_ended = bool(select.select([descriptor], [], [], CHILD_S)[0])
    os.close(descriptor)
    if not has_ended:
        os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return code if has_ended else None


class KillingObserver:
    """Records the steps of sessions, and at one of them kills a process, by default this one."""

    def __init__(self, kill_at: int | None, victim: int | None = None) -> None:
        self._kill_at = kill_at
        self._victim = os.getpid() if victim is None else victim
        self.steps: list[Step] = []

    def __call__(self, entry: ObservedEvent) -> None:
        if len(self.steps) == self._kill_at:
            os.kill(self._victim, signal.SIGKILL)
        self.steps.append((str(entry.direction), str(entry.kind)))


def observe(kill_at: int | None) -> KillingObserver:
    """Observe all transports of this process."""
    observer = KillingObserver(kill_at)
    for scheme in (*SCHEMES, UCX.scheme):
        TRANSPORTS[scheme] = ObservedTransport(find_transport(scheme, scheme), observer)
    return observer


def configure_ucx(shares_memory: bool) -> None:
    """Let UCX share as much memory as the data set needs."""
    UCX.configure(UcxOptions(shares_memory=shares_memory, registered_bytes=_REGISTERED_BYTES))


def read(uri: str, copy: bool, kill_at: int | None = None, pause: bool = False, shares_memory: bool = False) -> None:
    """Read a data set; with `pause`, stop this process after the first batch."""
    configure_ucx(shares_memory)
    observer = observe(kill_at)
    with bs.connect(uri, copy=copy, timeout_s=CHILD_S) as dataset:
        batches = []
        for batch in dataset:
            batches.append(batch)
            if pause:
                report(None)
                os.kill(os.getpid(), signal.SIGSTOP)
        assert bs.Table.from_batches(batches) == numbers()
        del batch, batches
        gc.collect()
    report(observer.steps)


def serve(
    name: str, scheme: str, tls: TlsOptions | None = None, kill_at: int | None = None, shares_memory: bool = False
) -> None:
    """Serve one client."""
    configure_ucx(shares_memory)
    observer = observe(kill_at)
    with bs.serve({name: numbers()}, options=ServerOptions(tls=tls), scheme=scheme) as server:
        report(server.uri(name))
        while ("sent", "close") not in observer.steps:
            time.sleep(0.001)
    report(observer.steps)


def serve_all(rows: int = ROWS, tls: TlsOptions | None = None, **options: Any) -> None:
    """Serve any number of clients over unix and tcp; with certificates, also over tcp with TLS."""
    table = numbers(rows)
    plain = bs.serve({"t": table}, options=ServerOptions(**options), addresses={"unix": None, "tcp": None})
    servers = [plain]
    if tls is not None:
        servers.append(bs.serve({"t": table}, options=ServerOptions(tls=tls, **options), scheme="tcp+tls"))
    uris = [uri for server in servers for uri in server.locations("t").uris]
    report(dict(zip(SCHEMES, uris, strict=False)))
    signal.pause()


def serve_ucx(changes: Sequence[MessageChange] = (), shares_memory: bool = False) -> None:
    """Serve any number of clients over UCX; each change is made for one of them, in order."""
    configure_ucx(shares_memory)
    change_messages(changes)
    with bs.serve({"t": numbers()}, scheme=UCX.scheme) as server:
        report(server.uri("t"))
        signal.pause()


def try_to_read(
    uri: str,
    copy: bool,
    changes: Sequence[MessageChange | None] = (None,),
    timeout_s: float = CHILD_S,
    shares_memory: bool = False,
) -> None:
    """Read a data set once for each change of this process's messages; report the errors, if any."""
    configure_ucx(shares_memory)
    change_messages([change for change in changes if change is not None])
    report([_error_of(lambda: _read(uri, copy, timeout_s)) for _ in changes])


def serve_changing() -> None:
    """Serve any number of clients over unix and tcp; remove data sets and add them again, until this process ends."""
    table = numbers()
    batch = bs.record_batch({f"column {index}": [index] for index in range(LONG_COLUMNS)})
    long = bs.share(bs.Table(batch.schema, [batch] * LONG_BATCHES))
    servers = {scheme: bs.serve({"t": table, "long": long}, scheme=scheme) for scheme in PLAIN_SCHEMES}
    names = [f"changing {index}" for index in range(NUM_CHANGING)]
    for name in names:
        for server in servers.values():
            server.add(name, table)
    uris = {f"{scheme} {name}": server.uri(name) for scheme, server in servers.items() for name in server.names}
    report(uris)
    while True:
        for name in names:
            for server in servers.values():
                server.remove(name)
                time.sleep(_PAUSE_S)
                server.add(name, table)


@dataclass(frozen=True, slots=True)
class MessageChange:
    """A change of one message that a process sends over a connection, the one with this index."""

    index: int
    kind: str
    """"drop", "repeat", "swap" (with the next one), "tag", "prefix" or "length"."""
    argument: int = 0
    """The bit of the tag, the byte of a plain message's prefix, or the number of bytes that are added, or missing."""

    def apply(self, message: bytes, tag: int | None) -> list[tuple[bytes, int | None]]:
        """What is sent instead; of "swap", nothing yet."""
        if self.kind == "repeat":
            return [(message, tag)] * 2
        if self.kind == "tag":
            return [(message, 1 << self.argument if tag is None else tag ^ 1 << self.argument)]
        if self.kind == "prefix":
            index = self.argument
            changed = (
                message if tag is not None else message[:index] + bytes([message[index] ^ 1]) + message[index + 1 :]
            )
            return [(changed, tag)]
        if self.kind == "length":
            return [(message[: self.argument] if self.argument < 0 else message + bytes(self.argument), tag)]
        return []


def change_messages(changes: Sequence[MessageChange]) -> None:
    """Change messages that this process sends over UCX: by each change, one of a connection."""
    connections = weakref.WeakKeyDictionary[UcxChannel, Iterator[MessageChange | None]]()
    remaining, submit = iter(changes), UcxChannel.submit
    delayed = weakref.WeakKeyDictionary[UcxChannel, tuple[bytes, int | None]]()

    def submit_changed(channel: UcxChannel, parts: Sequence[Any], tag: int | None = None) -> None:
        if channel not in connections:
            change = next(remaining, None)
            count = 0 if change is None else change.index
            connections[channel] = itertools.chain(itertools.repeat(None, count), (change,), itertools.repeat(None))
        change = next(connections[channel])
        message = b"".join(bytes(memoryview(part).cast("B")) for part in parts)
        messages = [(message, tag)] if change is None else change.apply(message, tag)
        if change is not None and change.kind == "swap":
            delayed[channel] = message, tag
        elif channel in delayed:
            messages.append(delayed.pop(channel))
        for content, each_tag in messages:
            submit(channel, (content,), each_tag)

    if changes:
        UcxChannel.submit = submit_changed  # type: ignore[method-assign, assignment]


def read_with_few_descriptors(uri: str, copy: bool, num_free: int) -> None:
    """Read a data set while this process can open only a few descriptors; report the error, if any."""
    count, previous = len(os.listdir("/proc/self/fd")), resource.getrlimit(resource.RLIMIT_NOFILE)
    limit_descriptors(os.getpid(), num_free)
    error = _error_of(lambda: _read(uri, copy))
    resource.setrlimit(resource.RLIMIT_NOFILE, previous)
    assert len(os.listdir("/proc/self/fd")) == count
    report(error)


def limit_descriptors(pid: int, num_free: int) -> None:
    """Let a process open only a few more descriptors."""
    numbers_in_use = {
        int(number) for number in os.listdir(f"/proc/{pid}/fd") if os.path.lexists(f"/proc/{pid}/fd/{number}")
    }
    free = (number for number in itertools.count() if number not in numbers_in_use)
    limit = next(itertools.islice(free, num_free, None))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def _read(uri: str, copy: bool, timeout_s: float = CHILD_S) -> None:
    with bs.connect(uri, copy=copy, timeout_s=timeout_s) as dataset:
        assert dataset.read_all() == numbers()


def share_with_small_files(size_bytes: int) -> None:
    """Share, serve and write a table while files and shared memory can't grow beyond a size; report the errors."""
    table = numbers()
    with tempfile.TemporaryDirectory() as folder, bs.serve({}) as server:
        path = Path(folder) / "file"
        count = len(os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, size_bytes))
        report(
            {
                "share": _error_of(lambda: bs.share(table)),
                "serve": _error_of(lambda: server.add("t", table)),
                "file": _error_of(lambda: _write(path, table)),
            }
        )
        assert len(os.listdir("/proc/self/fd")) == count
        assert not list(Path(folder).iterdir())


def _write(path: Path, table: bs.Table) -> None:
    with bs.new_file(path, table.schema) as writer:
        writer.write_table(table)


def _error_of(call: Callable[[], object]) -> type[BowstringError] | None:
    try:
        call()
    except BowstringError as error:
        return type(error)
    return None


def run_agent(address: str) -> None:
    """Run a host agent, as `bowstring.sharing.agent.client.launch` does in a new interpreter."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(encode_unix_address(address))
        listener.listen()
        report(None)
        agent = HostAgent()
        agent.listen(UnixListener.from_socket(listener, TRANSPORT_OPTIONS))
        agent.run()


def publish(key: AgentKey, name: str, kill_at: int | None = None, victim: int | None = None) -> None:
    """Publish a data set with two partitions, read and drop it. If the victim is another process, report the error."""
    observer = KillingObserver(kill_at, victim)
    vars(agent_client)["UNIX"] = TRANSPORTS["unix"] = ObservedTransport(UNIX, observer)
    try:
        with AgentClient.open(key, start=False) as agent:
            uris = []
            for index in range(2):
                region, rows = store_in_region(numbers(), name)
                agent.reserve(MemoryRequest(region.size_bytes, region.size_bytes, 0, None, None))
                with region:
                    uris.append(agent.put(name, (index, 7), region, num_rows=rows).uris[0])
            assert agent.commit_attempts(name, {0: 7, 1: 7}) == []
            with bs.connect(uris, timeout_s=CHILD_S) as dataset:
                assert dataset.read_all() == bs.concat_tables([numbers(), numbers()])
            agent.drop(name)
    except BowstringError as error:
        report(type(error))
        return
    report(observer.steps)

"""Client of the host agent, for Spark tasks and the driver; starts the agent if it does not run.

The agent listens at an abstract unix address that its key determines. A client that finds no listener binds the address
itself, which only one process can do, and starts the agent with the listening socket. This needs no lock file, never
starts two agents, and other clients wait in the socket's queue while the agent starts. Other users can bind the address
first: then the agent has another one, which clients find by the user of its socket.
"""

from __future__ import annotations

import errno
import math
import os
import re
import secrets
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, astuple, dataclass, field
from datetime import datetime
from functools import partial
from itertools import chain, count
from typing import Any, Self

from bowstring.errors import (
    AccessDeniedError,
    BowstringError,
    ConnectionLostError,
    DeadlineError,
    ProtocolError,
    ResourceError,
    translate_os_error,
)
from bowstring.memory.closable import Closable, call_on_error
from bowstring.memory.descriptors import new_memfd
from bowstring.memory.region import Region
from bowstring.sharing.agent.control import (
    MAX_GREETING_BYTES,
    NONCE_BYTES,
    ControlSession,
    RemoteAccess,
    check_nonce,
)
from bowstring.sharing.agent.memory_budget import MemoryRequest
from bowstring.sharing.agent.messages import decode_message, encode_message
from bowstring.sharing.agent.publications import Publication, PublishedSummary, parse_time
from bowstring.sharing.json_fields import read_field, read_list
from bowstring.sharing.processes import ProcessIdentity, find_java_ancestor, find_python, is_stopped
from bowstring.sharing.uris import decode_error_message
from bowstring.transports.address_scope import network_scope
from bowstring.transports.base import Deadline, TransportOptions
from bowstring.transports.blocking import BlockingChannel
from bowstring.transports.registry import find_transport
from bowstring.transports.sockets.unix import UNIX, encode_unix_address, try_connect
from bowstring.transports.sockets.unix_users import is_trusted_user, list_abstract_addresses, peer_credentials

DEFAULT_TTL_S = 86_400.0  # a day: a forgotten data set does not keep its memory for ever

# All publishers of the user share the agent, whatever the limits of the first; importing needs memory already.
# The parent of the agent exits when the agent is ready, so that it has no parent to wait for it. If it never is, the
# parent exits with its exit code.
_LAUNCH_SCRIPT = """
import os, sys
ready, report_ready = os.pipe()
process = os.fork()
if process:
    os.close(report_ready)
    if os.read(ready, 1):
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    os._exit(code if code > 0 else 128 - code)
os.close(ready)
from bowstring.sharing.processes import lift_inherited_limits
lift_inherited_limits()
from bowstring.sharing.agent.host_agent import main
main(int(sys.argv[1]), report_ready)
"""
_MAX_LAUNCHES = 3
"""An agent that was just started waits for its first owner: if several do not answer, the next will not either."""
# All tasks of a host may begin at once, while the agent is starting.
_BACKLOG = 512
# An agent takes some tenths of a second to start.
_RETRY_INTERVAL_S = 0.02
# An agent takes a fraction of a second to start, much longer on a host whose processors are all busy with tasks.
_LAUNCH_TIMEOUT_S = 60.0
_SUBJECT = "host agent"  # of an error
_MAX_ERROR_TEXT = 500  # of the line that an agent wrote before it ended


def agent_address_prefix() -> str:
    """Return the beginning of the addresses of all agents of this user; others' agents have their user's number."""
    return f"@bowstring-agent-{os.getuid()}-"


def list_agent_addresses(prefix: str) -> tuple[set[str], set[str]]:
    """Return the bound addresses that begin with `prefix`: those of this user or root, and those of other users.

    Raises `ResourceError` if the system does not list its sockets, or can't distinguish this user from others.
    """
    if not is_trusted_user(os.getuid()):
        raise AccessDeniedError(
            f"host agents can't be used by user {os.getuid()}: the user namespace does not map all users, and this "
            "number stands for the others"
        )
    own, others = set[str](), set[str]()
    for address, user_id in list_abstract_addresses(prefix).items():
        is_own = _is_own_listener(address) if user_id is None else is_trusted_user(user_id)
        (own if is_own else others).add(address)
    return own, others


def _is_own_listener(address: str) -> bool:
    """Whether no other user listens at an address, as far as connecting shows."""
    try:
        connection, is_connected = try_connect(address)
        with connection:
            # While the listener's queue is full, the kernel does not report whose it is; connecting waits, and checks.
            return not is_connected or is_trusted_user(peer_credentials(connection)[1])
    except BowstringError:
        return True  # no process listens


def _find_agent_address(name: str) -> str:
    """Return the address of the agent with a name: where it runs, or else where it is to be started.

    The address is the name. Other users can occupy that, too: then a number follows, the first that is free.
    """
    own, others = list_agent_addresses(name)
    running = [address for address in own if re.fullmatch(r"(-\d+)?", address.removeprefix(name))]
    if running:
        return min(running, key=lambda address: (len(address), address))
    candidates = chain([name], (f"{name}-{number}" for number in count(1)))
    return next(address for address in candidates if address not in others)


@dataclass(frozen=True, slots=True)
class AgentKey:
    """Identifies the host agents of one owner, one per host. Sent to the executors with a job."""

    token: str = field(default_factory=partial(secrets.token_hex, 16))
    owner: ProcessIdentity = field(default_factory=ProcessIdentity.current)
    """The process whose end ends the agents."""
    ttl_s: float = DEFAULT_TTL_S
    memory_limit_bytes: int | None = None
    """The memory of an agent up to which partitions are not written to files; None is the available memory."""
    access: RemoteAccess | None = None
    """How the agents are reached from other hosts, if they are; agents of other keys listen only on their host."""
    is_detached: bool = False
    """Whether data sets that need no commit of the owner outlive it."""
    scope: str = field(default_factory=network_scope)
    """The network in which the owner can reach an agent by its unix address."""

    @property
    def is_local(self) -> bool:
        """Whether the agent that this process reaches is on the owner's host."""
        return self.owner.is_local and self.scope == network_scope()

    @property
    def address(self) -> str:
        """The address of the agent; the same on every host."""
        return f"{agent_address_prefix()}{self.token}"

    @classmethod
    def of_others(cls, address: str, access: RemoteAccess) -> AgentKey:
        """The key of agents that another process owns, by the address of the agent of this host."""
        return cls(address.removeprefix(agent_address_prefix()), access=access)

    def find_local_owner(self) -> ProcessIdentity:
        """The process of this host whose end ends the agent: the owner if it runs here, else the executor's JVM."""
        return self.owner if self.owner.is_local else find_java_ancestor() or ProcessIdentity.current()


@dataclass(frozen=True, slots=True)
class AttemptLocation:
    """Where an attempt of a partition is."""

    uris: tuple[str, ...] = field(repr=False)
    """The URIs for readers, the nearest first."""
    control_uri: str
    """The agent that has it, for `AgentClient.dial`; empty if it is reached only on its host."""


@dataclass(frozen=True, slots=True)
class PublishedEntry:
    """A published data set of an agent."""

    summary: PublishedSummary
    control_uris: tuple[str, ...]
    """As of its `Publication`."""
    description: bytes
    access: RemoteAccess | None
    """How its agents are reached from other hosts, if they are."""


@dataclass(frozen=True, slots=True)
class MissingEntry:
    """The reply of an agent that has no such published data set."""

    ended: str
    """Why the last one with the name or ID has ended; empty if the agent had none, or has forgotten it."""
    newest: tuple[PublishedSummary, ...]
    """The newest data sets that it has."""


class AgentClient(Closable):
    """A connection to the host agent. A context manager."""

    def __init__(
        self,
        channel: BlockingChannel,
        key: AgentKey | None = None,
        session: ControlSession | None = None,
        address: str = "",
    ) -> None:
        self._channel = channel
        self._key = key
        self._session = session
        self.address = address
        """The agent's address on this host; empty after `dial`."""
        self.control_uri = ""
        """The agent's address for `dial`, if `open` connected to one with access for other hosts; otherwise empty."""

    @classmethod
    def open(cls, key: AgentKey, *, start: bool = True, timeout_s: float = 30.0) -> Self:
        """Connect to the agent of this host; with `start`, start it if it does not run.

        Raises `ConnectionLostError` if it does not run, `DeadlineError` if it does not answer, `ResourceError` if it
        can't be started.
        """
        request: dict[str, Any] = {"op": "hello", "owner": astuple(key.find_local_owner())}
        if key.access is not None:
            request["access"] = key.access.resolve_host().to_json()
        client, reply = cls._open(key.address, key, request, start=start, timeout_s=timeout_s)
        with call_on_error(client.close):
            client.control_uri = read_field(reply, "control_uri", str, _SUBJECT)
        return client

    @classmethod
    def connect(cls, address: str, *, start: bool = False, timeout_s: float = 30.0) -> Self:
        """Connect to the agent at an address of this host, which this process does not own. Otherwise as `open`."""
        return cls._open(address, None, {"op": "use" if start else "ping"}, start=start, timeout_s=timeout_s)[0]

    @classmethod
    def connect_to_listed(cls, address: str, *, timeout_s: float, waits_if_stopped: bool) -> Self:
        """Connect to an agent of this user, which `list_agent_addresses` has just shown. Otherwise as `connect`.

        Without `waits_if_stopped`, an agent whose process is stopped is a `DeadlineError` at once.
        """
        return cls._dial(address, None, Deadline(timeout_s), {"op": "ping"}, waits_if_stopped=waits_if_stopped)[0]

    @classmethod
    def _open(
        cls,
        name: str,
        key: AgentKey | None,
        request: dict[str, Any],
        *,
        start: bool,
        timeout_s: float,
    ) -> tuple[Self, dict[str, Any]]:
        """Connect, and return the reply to the first request: an agent that is about to end does not answer it."""
        deadline, launches = Deadline(timeout_s), 0
        while True:
            # Not without looking: a connection to a process of another user can wait until its queue has space.
            address = _find_agent_address(name)
            try:
                return cls._dial(address, key, deadline, request)
            except ConnectionLostError as error:
                if launches == _MAX_LAUNCHES:
                    message = f"the host agent ended {launches} times before it answered, when it had just been started"
                    raise ResourceError(message) from error
                if not start or not deadline.remaining_s():
                    raise
            if key is not None:
                key.find_local_owner().check_alive("host agent")  # a late task must not start an agent without an owner
            if try_launch_agent(address):
                launches += 1
            else:  # another process starts it, or it is about to end
                time.sleep(_RETRY_INTERVAL_S)

    @classmethod
    def _dial(
        cls,
        address: str,
        key: AgentKey | None,
        deadline: Deadline,
        request: dict[str, Any],
        waits_if_stopped: bool = True,
    ) -> tuple[Self, dict[str, Any]]:
        channel = BlockingChannel.dial(
            UNIX,
            address,
            timeout_s=max(deadline.remaining_s(), 0.001),
            options=TransportOptions(timeout_s=deadline.timeout_s),
        )
        client = cls(channel, key, address=address)
        with call_on_error(client.close):
            peer = channel.channel.traits.peer
            if not waits_if_stopped and peer is not None and is_stopped(peer.process_id or 0):
                raise DeadlineError(f"host agent at {address}: its process is stopped")
            reply = client._request(request)
            _warn_of_limits(reply)
            return client, reply

    @classmethod
    def dial(cls, key: AgentKey, control_uri: str, timeout_s: float = 30.0) -> Self:
        """Connect to the agent of any host by `AttemptLocation.control_uri`, for other calls than `reserve` and `put`.

        Raises `ConnectionLostError` if it does not run or has another secret, `DeadlineError` if it does not answer.
        """
        assert key.access is not None
        scheme, _, address = control_uri.partition(":")
        options = TransportOptions(timeout_s=timeout_s, tls=key.access.tls)
        channel = BlockingChannel.dial(find_transport(scheme, control_uri), address, options=options)
        with call_on_error(channel.close):
            nonce = secrets.token_bytes(NONCE_BYTES)
            channel.send((nonce,))
            agent_nonce = check_nonce(channel.receive(max_bytes=MAX_GREETING_BYTES).data)
            session = ControlSession(key.access.secret, nonce, agent_nonce, is_agent=False)
            client = cls(channel, session=session)
            client._request({"op": "ping"}, MAX_GREETING_BYTES)  # no memory for one that does not have the secret
            return client

    def own(self, owner: ProcessIdentity) -> None:
        """Own the agent until this connection ends; needs `dial`. A later connection of `owner` replaces this one."""
        self._request({"op": "own", "owner": astuple(owner)})

    @property
    def descriptor(self) -> int:
        """The descriptor of the connection, which becomes readable when the agent ends it; -1 if it is closed."""
        return next(iter(self._channel.channel.descriptors()), -1)

    def reserve(self, request: MemoryRequest) -> tuple[int, str]:
        """Reserve memory for the partition that this process writes, until `put` or `close`. A request replaces the
        one before it. Return the reserved bytes, and why an earlier request still determines them, or "".
        """
        reply = self._request({"op": "reserve", "memory": asdict(request)})
        return read_field(reply, "reserved_bytes", int, _SUBJECT), read_field(reply, "shortage", str, _SUBJECT)

    def put(
        self,
        dataset: str,
        attempt: tuple[int, int],
        region: Region,
        *,
        num_rows: int,
        ttl_s: float = DEFAULT_TTL_S,
        is_temporary: bool = False,
    ) -> AttemptLocation:
        """Pass on the memory of one attempt (partition index, attempt ID). Return where it can be read once it is
        committed. If it is temporary, it needs no commit, and the data set ends with this connection unless it is
        published before.

        Raises `InvalidArgumentError` if the data set is complete or dropped already.
        """
        key = self._key
        request = {
            "op": "put",
            "dataset": dataset,
            "attempt": attempt,
            "region": self._channel.export(region).index,
            "num_rows": num_rows,
            "ttl_s": float(ttl_s),
            # Agents of other hosts that can't be reached from here are never told which attempts to keep.
            "needs_commit": not is_temporary and (key is None or key.is_local or key.access is not None),
            "is_detached": key is not None and key.is_detached,
            "is_temporary": is_temporary,
        }
        return AttemptLocation(read_list(self._request(request), "locations", str, _SUBJECT), self.control_uri)

    def find_missing(self, dataset: str, attempts: Mapping[int, int]) -> list[int]:
        """Return the partitions whose attempts the agent lacks. Raises `NotFoundError` if it has no such data set."""
        reply = self._request({"op": "find_missing", "dataset": dataset, "attempts": sorted(attempts.items())})
        return list(read_list(reply, "missing", int, _SUBJECT))

    def reopen(self, dataset: str) -> None:
        """Accept attempts again until the next commit; those that were committed can be read meanwhile.

        Raises `NotFoundError` if there is no such data set.
        """
        self._request({"op": "reopen", "dataset": dataset})

    def commit_attempts(self, dataset: str, attempts: Mapping[int, int], ttl_s: float | None = None) -> list[int]:
        """Commit one attempt of each partition and drop all others. Return the partitions that the agent lacks; if
        there are any, nothing is committed. The data set expires `ttl_s` after its first commit, by default the `ttl_s`
        of its first attempt.
        """
        request = {"op": "commit", "dataset": dataset, "attempts": sorted(attempts.items())}
        reply = self._request(request if ttl_s is None else {**request, "ttl_s": float(ttl_s)})
        return list(read_list(reply, "missing", int, _SUBJECT))

    def drop(self, dataset: str, reason: str = "was dropped", *, is_replaced: bool = False) -> None:
        """Free the memory of a data set; of a replaced one a few seconds later, for those that have found it before.

        Later requests for it get `reason`, the predicate of a sentence. Raises `NotFoundError` if it does not
        exist any more.
        """
        self._request({"op": "drop", "dataset": dataset, "reason": reason, "is_replaced": is_replaced})

    def publish(self, dataset: str, publication: Publication) -> datetime | None:
        """Publish a committed data set, or update what was published. Return when it expires, None for never.

        Raises `NotFoundError` if there is no such data set.
        """
        request = {"op": "publish", "dataset": dataset, "publication": publication.to_json()}
        return parse_time(self._request({**request, "description": publication.description}).get("expires_at"))

    def renew(self, dataset: str, ttl_s: float) -> datetime | None:
        """Let a data set expire `ttl_s` from now; return when, None for never. Raises `NotFoundError`."""
        return parse_time(self._request({"op": "renew", "dataset": dataset, "ttl_s": float(ttl_s)}).get("expires_at"))

    def find_published(self, name: str) -> PublishedEntry | MissingEntry:
        """Return the published data set with an ID, or else the newest with a name."""
        reply = self._request({"op": "find", "name": name})
        if "summary" not in reply:
            newest = map(PublishedSummary.from_json, read_field(reply, "newest", list, _SUBJECT))
            return MissingEntry(read_field(reply, "ended", str, _SUBJECT), tuple(newest))
        try:
            access = None if reply.get("access") is None else RemoteAccess.from_json(reply["access"])
        except (LookupError, TypeError, ValueError):
            raise ProtocolError("host agent: access: expected the secret and the host of agents") from None
        summary = PublishedSummary.from_json(reply["summary"])
        control_uris = read_list(reply["summary"], "control_uris", str, _SUBJECT)
        return PublishedEntry(summary, control_uris, reply.get("description", b""), access)

    def list_published(self, name: str | None = None) -> list[PublishedSummary]:
        """Return the published data sets, or those with a name or ID, in the order in which they were put."""
        datasets = read_field(self._request({"op": "list", "name": name}), "datasets", list, _SUBJECT)
        return [PublishedSummary.from_json(dataset) for dataset in datasets]

    def status(self) -> dict[str, Any]:
        """The agent's process (`pid`), the partitions, rows and bytes of each data set, and the `memory` of all:
        `held_bytes`, `reserved_bytes` by tasks that write partitions, and `spilled_bytes`, which are in files.
        """
        status = self._request({"op": "status"})
        read_field(status, "pid", int, _SUBJECT)
        read_field(status, "datasets", dict, _SUBJECT)
        return status

    def close(self) -> None:
        """Close the connection; the agent keeps its data sets."""
        self._channel.close()

    def _request(self, request: dict[str, Any], max_reply_bytes: float = math.inf) -> dict[str, Any]:
        message = encode_message(request)
        self._channel.send((message,) if self._session is None else self._session.sign(message))
        tag, received = self._channel.receive(max_bytes=max_reply_bytes)
        if self._session is not None:
            received = self._session.verify(received, tag)
        if tag is not None:
            raise decode_error_message(received, _SUBJECT)
        return decode_message(received, _SUBJECT)


def _warn_of_limits(reply: dict[str, Any]) -> None:
    """Warn of the limits that the agent has inherited from its first publisher, and can't lift."""
    limits = reply.get("limits")
    if limits:
        message = f"the host agent, which all publishers share, has limits of the one that started it: {limits}"
        warnings.warn(message[:_MAX_ERROR_TEXT], RuntimeWarning, stacklevel=2)


def try_launch_agent(address: str) -> bool:
    """Start an agent at an address; False if another process has bound it.

    The agent runs in a new session and inherits no other descriptors, because Spark waits for every process that has
    its workers' pipes and sockets open. Raises `ResourceError`.
    """
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            # Bound and listening before the agent runs: only one process can start it, and clients wait in the backlog.
            try:
                listener.bind(encode_unix_address(address))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    return False
                raise
            listener.listen(_BACKLOG)
            _spawn_agent(listener.fileno())
    except OSError as error:
        if isinstance(error, ResourceError):
            raise
        raise translate_os_error(error, f"the host agent can't be started: {error}") from error
    return True


def _spawn_agent(descriptor: int) -> None:
    """Start a process whose child is the agent; wait until that is ready. Raises `ResourceError`, `OSError`."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(_iter_import_folders()),
        # Threads of linear algebra are of no use to the agent.
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }
    python = find_python()
    # Memory and not a pipe, which a process that the agent inherits or starts could keep open.
    with (
        open(new_memfd("errors"), "r+b") as errors,
        subprocess.Popen(
            [python, "-c", _LAUNCH_SCRIPT, str(descriptor)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            pass_fds=(descriptor,),
            start_new_session=True,
            env=environment,
            cwd="/",  # the file system of another folder could not be unmounted
        ) as process,
        call_on_error(process.kill),
    ):
        problem = f"the host agent can't be started: {python}"
        try:
            code = process.wait(_LAUNCH_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise ResourceError(f"{problem} was not ready after {_LAUNCH_TIMEOUT_S:g} s") from None
        if code != 0:
            errors.seek(0)
            *_, last_line = errors.read().decode(errors="backslashreplace").split("\n")[-2:-1] or [""]
            raise ResourceError(f"{problem} exited with code {code}{last_line and ': '}{last_line[:_MAX_ERROR_TEXT]}")


def _iter_import_folders() -> Iterator[str]:
    """The folders and archives in which this process finds packages, also in an archive that Spark has shipped."""
    try:
        working_folder = os.getcwd()
    except FileNotFoundError:  # it was removed, and relative paths with it
        working_folder = ""
    for path in sys.path:
        absolute_path = os.path.join(working_folder, path)
        if os.path.isabs(absolute_path):
            yield absolute_path

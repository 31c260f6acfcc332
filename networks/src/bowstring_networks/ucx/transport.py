"""The transport `ucx`: URIs such as `ucx://127.0.0.1:31337?want_data=1`.

By default it listens at a port of 127.0.0.1. It needs the extra `ucx` or another libucp (`UcxOptions`).
UCX neither authenticates nor encrypts, and trusts its peers: use it among processes and hosts that trust each other.

By default bodies are sent as bytes. `UcxOptions.shares_memory` lets a server export memory and clients map it or fetch
from it; every peer can then read, and over tcp also write, all memory of this process (see the module `context`).
"""

from __future__ import annotations

import logging
import os
import resource
import socket
import threading
import time
import weakref
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import ClassVar

from bowstring.display.objects import repr_options
from bowstring.errors import ClosedError, ConnectionLostError, InvalidArgumentError, UnsupportedError
from bowstring.memory.closable import call_on_error
from bowstring.transports.address_scope import network_scope
from bowstring.transports.base import (
    DEFAULT_OPTIONS,
    RECEIVE,
    Channel,
    Interest,
    Listener,
    RemoteMemory,
    Transport,
    TransportOptions,
)
from bowstring.transports.sockets.tcp_address import format_address, is_loopback_host, loopback_scope, parse_address
from bowstring_networks.message_channel import RETRY_S, advance_until_armed
from bowstring_networks.timer import Timer
from bowstring_networks.ucx.channel import ACTIVE_MESSAGE_IDS, UcxChannel
from bowstring_networks.ucx.context import DEFAULT_FEATURES, Context
from bowstring_networks.ucx.libucp import Feature
from bowstring_networks.ucx.memory import RegisteredUcxMemory, RemoteUcxMemory
from bowstring_networks.ucx.ucp import UcpListener, Worker

_LOG = logging.getLogger(__name__)
_LOG.addHandler(logging.NullHandler())
_DEFAULT_ADDRESS = "//127.0.0.1:0"
_MAX_UNKNOWN = 256
"""As `ServerOptions.max_silent`; or an eighth of the descriptors that the process may have, if that is less."""
_CHECK_INTERVAL_S = 1.0
"""libucp does not wake the listener for connections that request nothing."""


@dataclass(frozen=True, slots=True)
class UcxOptions:
    """How this process uses UCX."""

    library: str | os.PathLike[str] | None = None
    """The path of libucp, such as the system's; None for the library in the wheel `libucx-cu12`."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of libucp, without the prefix `UCX_`; they have priority over the environment."""
    shares_memory: bool = False
    """Whether servers export memory, and clients read it. Only for trusted peers."""
    registered_bytes: int = 1 << 30
    """The size of the memory that a listener exports; pages are allocated when they are used. What does not fit is
    sent as bytes.
    """

    __repr__ = repr_options


class UcxListener(Listener):
    """Listens at a port. Each accepted channel has its own worker."""

    def __init__(self, transport: UcxTransport, address: str, options: TransportOptions) -> None:
        host, port = parse_address(address, transport.scheme)
        self.options = options
        self.is_closed = False
        self.registered_memory: RegisteredUcxMemory | None = None
        self._transport = transport
        context = transport.acquire_context()
        with ExitStack() as on_error:
            on_error.callback(transport.release_context)
            self._timer = Timer()
            on_error.callback(self._timer.close)
            self._worker, self._listener = _listen(context, host, port)
            on_error.callback(self._worker.close)
            if transport.settings.shares_memory:
                self.registered_memory = RegisteredUcxMemory(context, transport.settings.registered_bytes)
                self.remote_handle = self.registered_memory.handle
            on_error.pop_all()
        self._channels: weakref.WeakSet[UcxChannel] = weakref.WeakSet()
        self._next_check_at = time.monotonic() + _CHECK_INTERVAL_S
        self.address = format_address(*self._listener.address)
        self.is_local = is_loopback_host(self._listener.address[0])
        self.address_scope = network_scope() if self.is_local else None
        self._arm()

    def accept(self, limit: int = 16) -> list[Channel]:
        if self.is_closed:
            raise ClosedError(f"ucx {self.address}: the listener is closed")
        # Before the progress, so that what arrives after it sets the timer or makes the descriptor readable again.
        self._timer.clear()
        if self._worker.is_closed:
            self._timer.set(_CHECK_INTERVAL_S)  # to try again, if this fails
            self._worker, self._listener = _listen(self._worker.context, *self._listener.address)
        elif time.monotonic() >= self._next_check_at:
            self._next_check_at = time.monotonic() + _CHECK_INTERVAL_S
            if self._has_many_unknown_connections:
                _LOG.warning("ucx %s: restarts: too many connections without a request", self.address)
                # Not at once: what waits for the descriptors of the worker has to forget them first.
                self._worker.close()
                self._timer.set()
                return []
        self._worker.progress()
        channels: list[Channel] = []
        for _ in range(limit):  # attempts, as in `StreamListener.accept`
            if not self._listener.requests:
                break
            request = self._listener.requests[0]
            # libucp does not report the sender of a tagged message, so a connection needs a worker of its own.
            worker = self._transport.create_worker()
            try:
                endpoint = worker.accept(request)
            except BaseException as error:
                worker.close()
                self._transport.release_context()
                # A request that was not taken would be the next one again, for ever.
                with suppress(InvalidArgumentError):
                    request.reject()
                if isinstance(error, ConnectionLostError | InvalidArgumentError | UnsupportedError):
                    continue  # the client has left
                if channels:  # the next call reports it, if it lasts
                    break
                raise
            channel = UcxChannel(endpoint, self.options, self._transport.release_context)
            channel.registered_memory = self.registered_memory
            channels.append(channel)
            self._channels.add(channel)
        self._arm()
        return channels

    @property
    def _has_many_unknown_connections(self) -> bool:
        """Whether libucp has accepted many more connections than it has reported.

        It keeps those that send nothing. Of those that send other bytes and close, it keeps the descriptors until the
        worker is closed (1.22).
        """
        max_descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        limit = sum(not channel.is_closed for channel in self._channels) + min(_MAX_UNKNOWN, max_descriptors // 8)
        try:
            names = os.listdir("/proc/self/fd")
        except OSError:  # there is no descriptor left
            return True
        return len(names) > limit and sum(map(self._is_accepted, names)) > limit

    def _is_accepted(self, name: str) -> bool:
        """Whether a descriptor of this process is a socket that was accepted at the listener's port."""
        try:
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                return False
            connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM, fileno=int(name))
        except OSError:  # closed meanwhile
            return False
        try:
            is_listening = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            return not is_listening and connection.getsockname()[1:2] == self._listener.address[1:]
        except OSError:
            return False
        finally:
            connection.detach()

    def interests(self) -> list[Interest]:
        return [Interest(descriptor, RECEIVE) for descriptor in self.descriptors()] if not self.is_closed else []

    def descriptors(self) -> list[int]:
        """As `Listener.descriptors`: those that are known; libucp has more."""
        return [each for each in (self._timer.descriptor, self._worker.event_descriptor) if each >= 0]

    def shut_down(self) -> None:
        self.is_closed = True
        self._timer.set()

    def close(self) -> None:
        """As `Listener.close`; channels that were accepted keep the exported memory."""
        self.is_closed = True
        registered_memory, self.registered_memory = self.registered_memory, None
        if registered_memory is not None:
            registered_memory.close()
        if self._timer.descriptor >= 0:
            self._worker.close()
            self._timer.close()
            self._transport.release_context()

    def _arm(self) -> None:
        worker = self._worker
        previous_count = worker.progress_count
        is_armed = advance_until_armed(worker.progress, worker.arm)
        if self._listener.requests:  # also one that this progress has received, which no descriptor reports any more
            self._timer.set()
        elif not is_armed:
            self._timer.set(RETRY_S if worker.progress_count == previous_count else 0.0)
        else:
            self._timer.set(_CHECK_INTERVAL_S)


def _listen(context: Context, host: str, port: int) -> tuple[Worker, UcpListener]:
    """Raises as `Worker` and `UcpListener`."""
    worker = Worker(context, ())
    with call_on_error(worker.close):
        return worker, UcpListener(worker, host, port)


class UcxTransport(Transport):
    """Connections over UCX. All channels of a process share one context, which is closed with the last of them."""

    scheme: ClassVar[str] = "ucx"
    distance: ClassVar[float] = 30

    def __init__(self, settings: UcxOptions | None = None) -> None:
        self.settings = settings or UcxOptions()
        self._context: Context | None = None
        self._num_users = 0
        self._lock = threading.Lock()

    def configure(self, settings: UcxOptions) -> None:
        """Change the options of this process. Raises `InvalidArgumentError` if there are connections or listeners."""
        with self._lock:
            if self._num_users:
                raise InvalidArgumentError("ucx: options can't be changed while there are connections")
            self.settings = settings

    def acquire_context(self) -> Context:
        """Return the context, which stays open until the matching `release_context`. Raises as `Context`."""
        with self._lock:
            # A context that is closed belongs to the parent of this process, whose users do not count here.
            if self._context is None or self._context.is_closed:
                features = DEFAULT_FEATURES | Feature.RMA if self.settings.shares_memory else DEFAULT_FEATURES
                self._context = Context(features, self.settings.options, self.settings.library)
                self._num_users = 0
            self._num_users += 1
            return self._context

    def release_context(self) -> None:
        """Undo one `acquire_context`."""
        with self._lock:
            self._num_users -= 1
            if self._num_users == 0 and self._context is not None:
                context, self._context = self._context, None
                context.close()

    def create_worker(self) -> Worker:
        """Create a worker for one channel; `release_context` follows when it is closed. Raises as `Context`."""
        context = self.acquire_context()
        with call_on_error(self.release_context):
            return Worker(context, ACTIVE_MESSAGE_IDS)

    def listen(self, address: str | None = None, options: TransportOptions = DEFAULT_OPTIONS) -> UcxListener:
        """As `Transport.listen`, at `//host:port`; by default at a free port of 127.0.0.1."""
        return UcxListener(self, _DEFAULT_ADDRESS if address is None else address, options)

    def dial(self, address: str, options: TransportOptions = DEFAULT_OPTIONS) -> UcxChannel:
        """As `Transport.dial`: does not wait for the listener; the channel reports `DirectionEnded`
        if there is none.
        """
        host, port = parse_address(address, self.scheme)
        worker, can_map = self.create_worker(), self.settings.shares_memory
        try:
            return UcxChannel(worker.connect(host, port), options, self.release_context, needs_all_lanes=can_map)
        except BaseException:
            worker.close()
            self.release_context()
            raise

    def open_remote_memory(self, channel: Channel, remote_handle: bytes | None) -> RemoteMemory | None:
        """As `Transport.open_remote_memory`: none without a key in the URI, or `UcxOptions.shares_memory`."""
        assert isinstance(channel, UcxChannel)
        if remote_handle is None or not self.settings.shares_memory:
            return None
        return RemoteUcxMemory(channel, remote_handle)

    def address_scope(self, address: str) -> str | None:
        """As `Transport.address_scope`: the network namespace of a loopback address."""
        return loopback_scope(*parse_address(address, self.scheme))


UCX = UcxTransport()

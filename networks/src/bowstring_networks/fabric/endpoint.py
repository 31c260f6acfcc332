"""The objects of libfabric: domains, registered memory, endpoints and operations.

A `Domain` is the use of one provider at one interface of this machine. An `Endpoint` sends to and receives from any
endpoint whose address was inserted, without a connection. Sending, receiving and fetching start an `Operation` at once;
`Endpoint.progress` returns those that have ended, and never blocks. When nothing is left, `Endpoint.try_wait` prepares
`Endpoint.event_descriptor`, which is readable as soon as there is work again.

libfabric does not check arguments, so everything that could end the process is checked here. Buffers stay alive until
their operation has ended. A domain may be used by several threads, an endpoint by one at a time.

After a fork all objects belong to the parent: in the child `close` does nothing, and everything else raises
`ClosedError`.
"""

from __future__ import annotations

import ctypes
import os
import socket
import threading
from collections.abc import Iterable
from typing import Any

from bowstring.errors import (
    AbortedConnectionError,
    BowstringError,
    ClosedError,
    ConnectionLostError,
    InvalidArgumentError,
    ProtocolError,
    ResourceError,
    UnsupportedError,
)
from bowstring.memory.buffer import Memory
from bowstring.memory.closable import Closable, call_on_error
from bowstring.memory.forks import process_token
from bowstring_networks.fabric import libfabric

FAULTY_PROVIDERS = {
    "shm": "it loses messages that arrive early, and leaves files in /dev/shm",
}
"""Providers that are not used, by the components of their names, and why."""
POLLED_PROVIDERS = {"net"}
"""Providers whose descriptor is readable all the time (libfabric 1.17), so that they have to be polled."""
TAG_BITS = 60
"""The number of bits of tags in use; a few providers need the others."""
_MODES = libfabric.CONTEXT | libfabric.CONTEXT2
_REGISTRATION_MODES = libfabric.MR_VIRT_ADDR | libfabric.MR_ALLOCATED | libfabric.MR_PROV_KEY
# More than the operations that one connection has at a time: its frames, and some messages.
_QUEUE_ENTRIES = 256
_READ_ENTRIES = 32  # completions of one call
MAX_ADDRESS_BYTES = 512
"""The limit for the address of an endpoint, whose format is the provider's; addresses of sockets have 16 or 28
bytes."""
_CANCELED, _NO_MEMORY, _TOO_MANY_FILES = 125, 12, 24  # FI_ECANCELED, FI_ENOMEM, FI_EMFILE

_libc = ctypes.CDLL(None)
_strdup: Any = _libc.strdup
_strdup.restype, _strdup.argtypes = ctypes.c_void_p, [ctypes.c_char_p]


def reject_faulty_provider(name: str) -> None:
    """Raise `UnsupportedError` for a provider with known faults."""
    for component in name.split(";"):
        if component in FAULTY_PROVIDERS:
            raise UnsupportedError(f"fabric: the provider {component} is not supported: {FAULTY_PROVIDERS[component]}")


class Domain(Closable):
    """A provider at the interface with the IP address `host`.

    Raises what `libfabric.load` raises, `UnsupportedError` if the provider is faulty or not available there, and
    `ResourceError`.
    """

    def __init__(self, provider: str, host: str, library: str | os.PathLike[str] | None = None) -> None:
        reject_faulty_provider(provider)
        self.library = libfabric.load(library)
        self.name = f"fabric: {provider}"
        self._process = process_token()
        self._handles: list[int] = []
        """The objects to close, in the order in which they were opened."""
        self.info = self._query_info(provider, host)
        with call_on_error(self.close):
            attributes = self.info.contents
            self.provider: str = ctypes.string_at(attributes.fabric_attr.contents.prov_name).decode()
            """The full name of the provider."""
            reject_faulty_provider(self.provider)
            self.num_buffers: int = min(attributes.tx_attr.contents.iov_limit, 16)
            """The maximum number of buffers of one message."""
            self.address_format: int = attributes.addr_format
            self.has_virtual_addresses = bool(attributes.domain_attr.contents.mr_mode & libfabric.MR_VIRT_ADDR)
            """Whether peers refer to registered memory by its address, not by the offset in it."""
            self.max_key_bytes: int = min(attributes.domain_attr.contents.mr_key_size, 8)
            self.handle = self._open()

    @property
    def is_inherited(self) -> bool:
        """Whether the domain belongs to the parent of this process."""
        return self._process is not process_token()

    def libfabric_error(self, purpose: str, code: int) -> BowstringError:
        """Return the error for a code of libfabric."""
        error_types = {_NO_MEMORY: ResourceError, _TOO_MANY_FILES: ResourceError, _CANCELED: AbortedConnectionError}
        error_type = error_types.get(abs(code), ConnectionLostError)
        return error_type(f"{self.name}: {purpose}: {libfabric.error_text(self.library, code)}")

    def check_call(self, purpose: str, code: int) -> None:
        """Raise `ResourceError` if a call that creates something has failed, `ClosedError` after a fork."""
        if code < 0:
            raise ResourceError(f"{self.name}: {purpose}: {libfabric.error_text(self.library, code)}")

    def check_open(self) -> None:
        """Raise `ClosedError` if the domain was closed, or belongs to the parent process."""
        if self.is_inherited:
            raise ClosedError(f"{self.name}: objects of the parent process can't be used after a fork")
        if not self._handles:
            raise ClosedError(f"{self.name}: the domain is closed")

    def close(self) -> None:
        """As `Closable.close`. Endpoints and registered memory have to be closed before."""
        if not self.is_inherited:
            while self._handles:
                close_object(self._handles.pop())
            if self.info:
                self.library.fi_freeinfo(self.info)
        self._handles.clear()
        self.info = libfabric.InfoPointer()

    def _query_info(self, provider: str, host: str) -> Any:
        """Return the first description of an endpoint that has all required capabilities."""
        hints = self.library.fi_dupinfo(None)
        try:
            request = hints.contents
            request.caps = libfabric.MSG | libfabric.TAGGED | libfabric.RMA
            request.mode = _MODES
            request.ep_attr.contents.type = libfabric.EP_RDM
            request.domain_attr.contents.threading = libfabric.THREAD_SAFE
            request.domain_attr.contents.mr_mode = _REGISTRATION_MODES
            # `fi_freeinfo` frees it, so it must be memory of malloc.
            request.fabric_attr.contents.prov_name = _strdup(provider.encode())
            info = libfabric.InfoPointer()
            major, minor = libfabric.version(self.library)
            arguments = major << 16 | minor, host.encode(), None, libfabric.SOURCE, hints, ctypes.byref(info)
            code = self.library.fi_getinfo(*arguments)
        finally:
            self.library.fi_freeinfo(hints)
        if code < 0:
            text = libfabric.error_text(self.library, code)
            raise UnsupportedError(f"{self.name}: not available at {host}: {text}")
        if info.contents.ep_attr.contents.mem_tag_format.bit_length() < TAG_BITS:
            self.library.fi_freeinfo(info)
            raise UnsupportedError(f"{self.name}: tags have less than {TAG_BITS} bits")
        return info

    def _open(self) -> int:
        handle = ctypes.c_void_p()
        attributes = self.info.contents.fabric_attr
        self.check_call("fabric", self.library.fi_fabric(attributes, ctypes.byref(handle), None))
        self.fabric = int(handle.value or 0)
        self._handles.append(self.fabric)
        fabric = libfabric.FidFabric.from_address(self.fabric)
        self.trywait = fabric.ops.contents.trywait
        self.check_call("domain", fabric.ops.contents.domain(self.fabric, self.info, ctypes.byref(handle), None))
        self._handles.append(int(handle.value or 0))
        return self._handles[-1]


class DomainPool:
    """The domains of a process, each shared by its users and closed with the last of them. Thread-safe."""

    def __init__(self) -> None:
        self._domains: dict[tuple[str, str], Domain] = {}
        self._num_users: dict[Domain, int] = {}
        self._lock = threading.Lock()

    @property
    def has_users(self) -> bool:
        """Whether a domain is in use."""
        return any(not domain.is_inherited for domain in self._num_users)

    def acquire(self, provider: str, host: str, library: str | os.PathLike[str] | None = None) -> Domain:
        """Return the domain of a provider at an interface, until the matching `release`. Raises as `Domain`."""
        with self._lock:
            domain = self._domains.get((provider, host))
            if domain is None or domain.is_inherited:
                domain = self._domains[provider, host] = Domain(provider, host, library)
            self._num_users[domain] = self._num_users.get(domain, 0) + 1
            return domain

    def release(self, domain: Domain) -> None:
        """Undo one `acquire`."""
        with self._lock:
            self._num_users[domain] -= 1
            if not self._num_users[domain]:
                del self._num_users[domain]
                self._domains = {key: other for key, other in self._domains.items() if other is not domain}
                domain.close()


class MemoryRegistration(Closable):
    """Memory of this process that peers may read, and its key. Raises `ResourceError`, `ClosedError`."""

    def __init__(self, domain: Domain, memory: Memory, key: int) -> None:
        domain.check_open()
        self._domain = domain
        self._memory = memory
        handle = ctypes.c_void_p()
        objects = libfabric.FidDomain.from_address(domain.handle)
        size_bytes, access = memory.size, libfabric.REMOTE_READ
        arguments = domain.handle, memory.address, size_bytes, access, 0, key, 0, ctypes.byref(handle), None
        domain.check_call(f"memory of {size_bytes} bytes", objects.mr.contents.reg(*arguments))
        self._handle = int(handle.value or 0)
        self.key: int = libfabric.FidMr.from_address(self._handle).key
        self.base_address = memory.address if domain.has_virtual_addresses else 0
        """The address of the first byte for peers."""

    def close(self) -> None:
        """End the peers' access. Idempotent."""
        handle, self._handle = self._handle, 0
        if handle and not self._domain.is_inherited:
            close_object(handle)


class Operation:
    """Sending, receiving or fetching. `length_bytes` is the length of the received message."""

    __slots__ = ("buffers", "context", "error", "is_done", "length_bytes", "purpose")

    def __init__(self, purpose: str, buffers: object) -> None:
        self.context = (ctypes.c_uint64 * 8)()
        """Space for the provider (`struct fi_context2`); its address identifies the operation."""
        self.purpose = purpose
        self.buffers = buffers
        self.is_done = False
        self.error: BowstringError | None = None
        self.length_bytes = 0


class Endpoint(Closable):
    """Sends and receives. Raises `ResourceError`, `ClosedError`."""

    def __init__(self, domain: Domain) -> None:
        domain.check_open()
        self.domain = domain
        self._handles: list[int] = []
        self._peers: set[int] = set()
        # They keep the buffers alive that libfabric writes and reads, even if the caller drops an operation.
        self._operations: dict[int, Operation] = {}
        self._entries = (libfabric.CqEntry * _READ_ENTRIES)()
        self.num_operations_ended = 0
        self.is_full = False
        """Whether an operation was refused since the last `progress`. Nothing reports when the queue has space."""
        with call_on_error(self.close):
            self._open()
            self.address = self._query_address()
            """The address for peers, in the format of the provider."""

    @property
    def is_closed(self) -> bool:
        """Whether the endpoint was closed, or belongs to the parent process."""
        return not self._handles or self.domain.is_inherited

    def add_peer(self, address: bytes, host: str) -> int:
        """Return the number of a peer with this address.

        Raises `ProtocolError` if it is not valid, or a socket address of another host than the IP address `host`.
        """
        self._check_open()
        # libfabric reads as many bytes as its format has, whatever the peer sent.
        if len(address) != len(self.address):
            raise ProtocolError(f"{self.domain.name}: the peer's address has {len(address)} bytes")
        # Otherwise a peer could make this end send its messages to another host.
        address_host = _parse_host(address, self.domain.address_format)
        if address_host not in (None, host.partition("%")[0]):
            raise ProtocolError(f"{self.domain.name}: a peer at {host} has an endpoint at {address_host}")
        peer = ctypes.c_uint64()
        if self._av.ops.contents.insert(self._handles[0], address, 1, ctypes.byref(peer), 0, None) != 1:
            raise ProtocolError(f"{self.domain.name}: the peer's address is not valid")
        self._peers.add(peer.value)
        return peer.value

    def send(self, memory: Memory, size_bytes: int, peer: int) -> Operation | None:
        """Send the first bytes of a buffer without a tag; None if the queue is full: try again after `progress`.

        Raises `InvalidArgumentError` for an unknown peer, as all methods that have one.
        """
        self._check_peer(peer)
        operation = Operation("send", memory)
        function, arguments = self._msg.send, (memory.address, size_bytes, None, peer)
        return self._start_operation(operation, function, arguments)

    def receive(self, memory: Memory) -> Operation | None:
        """Receive a message without a tag into a buffer; None if the queue is full."""
        operation = Operation("receive", memory)
        function, arguments = self._msg.recv, (memory.address, memory.size, None, libfabric.ADDR_UNSPEC)
        return self._start_operation(operation, function, arguments)

    def send_tagged(self, buffers: Iterable[Memory], peer: int, tag: int) -> Operation | None:
        """Send a message of at most `Domain.num_buffers` buffers; None if the queue is full."""
        memories = tuple(buffers)
        iovecs = (libfabric.Iovec * len(memories))(
            *[libfabric.Iovec(memory.address, memory.size) for memory in memories]
        )
        self._check_peer(peer)
        operation = Operation("send", (memories, iovecs))
        return self._start_operation(operation, self._tagged.sendv, (iovecs, None, len(memories), peer, tag))

    def receive_tagged(self, memory: Memory, tag: int) -> Operation | None:
        """Receive the message with this tag, which must not be longer than the buffer; None if the queue is full."""
        operation = Operation("receive", memory)
        arguments = memory.address, memory.size, None, libfabric.ADDR_UNSPEC, tag, 0
        return self._start_operation(operation, self._tagged.recv, arguments)

    def fetch(self, memory: Memory, peer: int, address: int, key: int) -> Operation | None:
        """Copy a peer's registered memory into a buffer (RMA read); None if the queue is full."""
        self._check_peer(peer)
        operation = Operation("fetch", memory)
        arguments = memory.address, memory.size, None, peer, address, key
        return self._start_operation(operation, self._rma.read, arguments)

    def progress(self) -> list[Operation]:
        """Return the operations that have ended, without waiting. Raises `ClosedError`, `ConnectionLostError`."""
        self._check_open()
        self.is_full = False
        operations: list[Operation] = []
        while True:
            count = self._cq.ops.contents.read(self._handles[1], self._entries, _READ_ENTRIES)
            if count == libfabric.AVAILABLE_ERROR:
                operations += self._read_error()
            elif count > 0:
                for entry in self._entries[:count]:
                    operations += self._complete(entry.op_context, entry.len, None)
            elif count in (0, libfabric.AGAIN):
                break
            else:
                raise self.domain.libfabric_error("completion queue", count)
        self.num_operations_ended += len(operations)
        return operations

    def try_wait(self) -> bool:
        """Prepare the event descriptor; return False if `progress` has to be called first."""
        self._check_open()
        if self.event_descriptor < 0:
            return False
        queues = (ctypes.c_void_p * 1)(self._handles[1])
        return int(self.domain.trywait(self.domain.fabric, queues, 1)) == 0

    def close(self) -> None:
        """Cancel all operations, and close. Idempotent."""
        if not self.domain.is_inherited:
            while self._handles:
                close_object(self._handles.pop())
        self._handles.clear()
        # After the endpoint is closed, because libfabric may use the buffers until then.
        self._operations.clear()

    def _open(self) -> None:
        """Open the address vector, the completion queue and the endpoint: the order of `_handles`."""
        domain, handle = self.domain, ctypes.c_void_p()
        objects = libfabric.FidDomain.from_address(domain.handle).ops.contents
        av_attr = libfabric.AvAttr(type=libfabric.AV_TABLE, count=1)
        domain.check_call("address vector", objects.av_open(domain.handle, av_attr, ctypes.byref(handle), None))
        self._handles.append(int(handle.value or 0))
        self._av = libfabric.FidAv.from_address(self._handles[-1])
        self.event_descriptor = self._open_completion_queue(objects)
        """Readable after a successful `try_wait` when there is work; -1 if the provider has none."""
        self._cq = libfabric.FidCq.from_address(self._handles[-1])
        domain.check_call("endpoint", objects.endpoint(domain.handle, domain.info, ctypes.byref(handle), None))
        self._handles.append(int(handle.value or 0))
        self._ep = libfabric.FidEp.from_address(self._handles[-1])
        operations = self._ep.fid.ops.contents
        for other, flags in ((self._handles[1], libfabric.SEND | libfabric.RECV), (self._handles[0], 0)):
            domain.check_call("bind", operations.bind(self._handles[2], other, flags))
        domain.check_call("enable", operations.control(self._handles[2], libfabric.ENABLE, None))
        self._msg = self._ep.msg.contents
        self._rma = self._ep.rma.contents
        self._tagged = self._ep.tagged.contents

    def _open_completion_queue(self, objects: Any) -> int:
        """Open the completion queue, with a descriptor if the provider supports it; return the descriptor or -1."""
        domain, handle, descriptor = self.domain, ctypes.c_void_p(), ctypes.c_int(-1)
        attributes = libfabric.CqAttr(size=_QUEUE_ENTRIES, format=libfabric.CQ_FORMAT_TAGGED)
        if domain.provider not in POLLED_PROVIDERS:
            attributes.wait_obj = libfabric.WAIT_FD
            if objects.cq_open(domain.handle, attributes, ctypes.byref(handle), None) == 0:
                self._handles.append(int(handle.value or 0))
                control = libfabric.FidCq.from_address(self._handles[-1]).fid.ops.contents.control
                if control(self._handles[-1], libfabric.GETWAIT, ctypes.addressof(descriptor)) == 0:
                    return descriptor.value
                close_object(self._handles.pop())
        attributes.wait_obj = libfabric.WAIT_NONE
        domain.check_call("completion queue", objects.cq_open(domain.handle, attributes, ctypes.byref(handle), None))
        self._handles.append(int(handle.value or 0))
        return -1

    def _query_address(self) -> bytes:
        buffer, size = ctypes.create_string_buffer(MAX_ADDRESS_BYTES), ctypes.c_size_t(MAX_ADDRESS_BYTES)
        code = self._ep.cm.contents.getname(self._handles[2], buffer, ctypes.byref(size))
        self.domain.check_call("address", code)
        return buffer.raw[: size.value]

    def _start_operation(self, operation: Operation, function: Any, arguments: tuple[Any, ...]) -> Operation | None:
        self._check_open()
        context = ctypes.addressof(operation.context)
        code = function(self._handles[2], *arguments, context)
        if code == libfabric.AGAIN:
            self.is_full = True
            return None
        if code < 0:
            raise self.domain.libfabric_error(operation.purpose, code)
        # After the call: an operation that was refused never ends. It can't have ended yet, since only `progress` reads
        # the queue.
        self._operations[context] = operation
        return operation

    def _read_error(self) -> list[Operation]:
        entry = libfabric.CqErrorEntry()
        count = self._cq.ops.contents.readerr(self._handles[1], entry, 0)
        return self._complete(entry.op_context, entry.len, entry.err) if count > 0 else []

    def _complete(self, context: int, length_bytes: int, code: int | None) -> list[Operation]:
        operation = self._operations.pop(context, None)
        if operation is None:
            return []
        operation.is_done = True
        operation.length_bytes = length_bytes
        if code is not None:
            operation.error = self.domain.libfabric_error(operation.purpose, code)
        return [operation]

    def _check_peer(self, peer: int) -> None:
        if peer not in self._peers:
            raise InvalidArgumentError(f"{self.domain.name}: {peer} is not a peer of this endpoint")

    def _check_open(self) -> None:
        if self.is_closed:
            raise ClosedError(f"{self.domain.name}: the endpoint is closed")


def _parse_host(address: bytes, address_format: int) -> str | None:
    """Return the IP address in the address of an endpoint; None for other formats."""
    if address_format == libfabric.SOCKADDR_IN:
        return socket.inet_ntop(socket.AF_INET, address[4:8])
    if address_format == libfabric.SOCKADDR_IN6:
        return socket.inet_ntop(socket.AF_INET6, address[8:24])
    return None


def close_object(handle: int) -> None:
    """Call `fi_close`."""
    libfabric.Fid.from_address(handle).ops.contents.close(handle)

"""The arguments of libucp, which does not check them: what could end the process is checked here."""

from __future__ import annotations

import ctypes
import socket
import struct
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from bowstring.errors import InvalidArgumentError, RefusedConnectionError
from bowstring.memory.buffer import Memory
from bowstring.memory.iovec import PaddedBuffers
from bowstring.transports.ucx import libucp

HostAndPort: TypeAlias = tuple[str, int]
"""Host and port."""
MessageParts: TypeAlias = Sequence[Any] | PaddedBuffers
"""The bytes of a message: objects with the buffer protocol, in order."""

MAX_TAG = (1 << 64) - 1
_SMALL_BYTES = 256


def read_handle(handle: Any) -> int:
    """Return the address of an object of libucp that was written to `handle`."""
    return int(handle.value or 0)


def encode_option(text: str) -> bytes:
    """Return the name or value of an option. Raises `InvalidArgumentError`."""
    if "\0" in text:
        raise InvalidArgumentError(f"UCX: the option {text!r} contains a null character")
    return text.encode()


def check_tag(tag: int) -> None:
    """Raise `InvalidArgumentError` if it is not an unsigned 64-bit number."""
    if not 0 <= tag <= MAX_TAG:
        raise InvalidArgumentError(f"tag {tag}: expected an unsigned 64-bit number")


def check_address_range(address: int, size_bytes: int) -> None:
    """Raise `InvalidArgumentError` if a range is not inside the address space."""
    if address < 0 or size_bytes < 0 or address + size_bytes > 1 << 64:
        raise InvalidArgumentError(f"{size_bytes} bytes at address {address} are not in an address space of 64 bits")


def send_buffer_arguments(parts: MessageParts) -> tuple[int, int, int, object]:
    """Return the address, count and datatype of a message for libucp, and what must stay alive."""
    if isinstance(parts, PaddedBuffers):
        iovecs = parts.iovecs()
        owners: object = (parts, iovecs)
    else:
        memories = list(map(Memory, _join_small_parts(parts)))
        iovecs = np.array([(memory.address, memory.size) for memory in memories], np.intp).reshape(-1, 2)
        owners = (memories, iovecs)
    if len(iovecs) == 0:
        return 0, 0, libucp.DATATYPE_BYTES, None
    if len(iovecs) == 1:
        return int(iovecs[0, 0]), int(iovecs[0, 1]), libucp.DATATYPE_BYTES, owners
    return iovecs.ctypes.data, len(iovecs), libucp.DATATYPE_IOV, owners


def _join_small_parts(parts: Sequence[Any]) -> Iterator[Any]:
    """Yield the parts that are not empty. Runs of small ones are joined: libucp would copy them one by one."""
    small: list[Any] = []
    for part in parts:
        size_bytes = len(part) if part.__class__ is bytes else memoryview(part).nbytes
        if size_bytes > _SMALL_BYTES:
            if small:
                yield b"".join(small)
                small = []
            yield part
        elif size_bytes:
            small.append(part)
    if small:
        yield b"".join(small)


def receive_buffer_arguments(buffer: Any, length_bytes: int | None) -> tuple[int, int, object]:
    """Return the address and size of a buffer, and what must stay alive.

    Raises `InvalidArgumentError` if it is unsuitable.
    """
    try:
        view = memoryview(buffer)
    except TypeError:
        raise InvalidArgumentError(f"expected a buffer, found {type(buffer).__name__}") from None
    if view.readonly or not view.c_contiguous:
        raise InvalidArgumentError("expected a writable, contiguous buffer")
    if length_bytes is not None and view.nbytes != length_bytes:
        raise InvalidArgumentError(f"expected a buffer of {length_bytes} bytes, found {view.nbytes}")
    return (Memory(view.cast("B")).address if view.nbytes else 0), view.nbytes, view


def pack_socket_address(host: str, port: int) -> Any:
    """Return a `struct sockaddr` in a C array.

    Raises `RefusedConnectionError` if the host has no address, and `InvalidArgumentError` for an invalid port.
    """
    if not 0 <= port <= 0xFFFF:
        raise InvalidArgumentError(f"port {port}: expected a number from 0 to 65535")
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise RefusedConnectionError(f"UCX: {host} has no address: {error}") from None
    family, *_, address = infos[0]
    start = struct.pack("=H", family) + struct.pack("!H", port)
    if family == socket.AF_INET6:
        _, _, flow, scope = address  # type: ignore[misc]
        packed = socket.inet_pton(family, str(address[0]).partition("%")[0])
        packed = start + struct.pack("!I", flow) + packed + struct.pack("=I", scope)
    else:
        packed = start + socket.inet_pton(family, str(address[0])) + bytes(8)
    return ctypes.create_string_buffer(packed, len(packed))


def unpack_socket_address(storage: libucp.SocketStorage) -> HostAndPort:
    """Return the content of a `struct sockaddr`."""
    packed = bytes(storage)
    family, port = struct.unpack_from("=H", packed)[0], struct.unpack_from("!H", packed, 2)[0]
    if family == socket.AF_INET6:
        return socket.inet_ntop(family, packed[8:24]), port
    return socket.inet_ntop(socket.AF_INET, packed[4:8]), port

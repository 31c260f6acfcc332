"""The arguments of libucp, which does not check them: errors that could end the process are found here."""

from __future__ import annotations

import ctypes
import socket
import struct
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from bowstring.dissociated.messages import BytesLike
from bowstring.errors import InvalidArgumentError
from bowstring.memory.buffer import Memory
from bowstring.transports.sockets.tcp_address import resolve_host
from bowstring_networks.message_channel import join_small_parts
from bowstring_networks.ucx import libucp

HostAndPort: TypeAlias = tuple[str, int]
"""Host and port."""

MAX_TAG = (1 << 64) - 1  # `ucp_tag_t`
# Up to here, joining parts takes less time than their entries in libucp's vector.
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


def send_buffer_arguments(parts: Sequence[BytesLike]) -> tuple[int, int, int, object]:
    """Return the address, count and datatype of a message for libucp, and the objects that must stay alive."""
    memories = [Memory(part) for part in join_small_parts(parts, _SMALL_BYTES)]  # libucp would copy them one by one
    if len(memories) < 2:
        memory = memories[0] if memories else Memory(b"")
        return memory.address, memory.size, libucp.DATATYPE_BYTES, memory
    iovecs = np.array([(memory.address, memory.size) for memory in memories], np.intp)
    return iovecs.ctypes.data, len(iovecs), libucp.DATATYPE_IOV, (memories, iovecs)


def pack_socket_address(host: str, port: int) -> Any:
    """Return a `struct sockaddr` in a C array. Raises as `resolve_host`."""
    family, name = resolve_host(host, port)[0]
    start = struct.pack("=H", family) + struct.pack("!H", port)
    if family == socket.AF_INET6:
        address, _, flow, scope = name
        packed = socket.inet_pton(family, address.partition("%")[0])
        packed = start + struct.pack("!I", flow) + packed + struct.pack("=I", scope)
    else:
        packed = start + socket.inet_pton(family, name[0]) + bytes(8)
    return ctypes.create_string_buffer(packed, len(packed))


def unpack_socket_address(storage: libucp.SocketStorage) -> HostAndPort:
    """Return the content of a `struct sockaddr`."""
    packed = bytes(storage)
    family, port = struct.unpack_from("=H", packed)[0], struct.unpack_from("!H", packed, 2)[0]
    if family == socket.AF_INET6:
        return socket.inet_ntop(family, packed[8:24]), port
    return socket.inet_ntop(socket.AF_INET, packed[4:8]), port

"""The unix transport: frames over a unix socket, and memory as passed descriptors (SCM_RIGHTS).

Addresses that begin with "@", the default, are abstract: they exist in the kernel only as long as their process. Any
user of the machine can connect to them or bind the name first, so both sides check the peer's user (SO_PEERCRED) before
anything else. Other addresses are paths, with the file system's permissions; a killed server leaves the socket's file,
which the next listener at the path replaces.

The socket is a stream socket with Bowstring's own frames (docs/explanation/dissociated.md), because a message of a
sequenced-packet socket has to fit the socket's buffer of some 200 KB; a schema of ten thousand columns does not.
"""

from __future__ import annotations

import errno
import os
import secrets
import socket
import stat
import struct
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from bowstring.errors import (
    ConnectionLostError,
    InvalidArgumentError,
    ProtocolError,
    translate_os_error,
)
from bowstring.memory.closable import call_on_error
from bowstring.memory.region import Region
from bowstring.transports.address_scope import directory_scope, network_scope
from bowstring.transports.base import (
    BOTH_DIRECTIONS,
    DEFAULT_OPTIONS,
    Channel,
    ExportedRegion,
    MemoryExporter,
    PeerIdentity,
    Transport,
    TransportOptions,
    Wait,
)
from bowstring.transports.regions import MAX_REGIONS, ReceivedRegions, encode_region_address
from bowstring.transports.sockets.frames import REGION_BODY, FrameKind
from bowstring.transports.sockets.stream_channel import StreamChannel
from bowstring.transports.sockets.stream_listener import BACKLOG, StreamListener
from bowstring.transports.sockets.tcp_address import is_host_and_port
from bowstring.transports.sockets.unix_users import is_trusted_user, peer_credentials

MAX_ADDRESS_BYTES = 107  # `sun_path` has 108, one of them for the null at the beginning or end
# poll does not report when a listener's queue has room again, which takes a server one turn.
CONNECT_RETRY_S = 0.01
# A body is sent in few calls, while the reader runs; the kernel caps it at net.core.wmem_max without an error.
_SOCKET_BUFFER_BYTES = 4 << 20
_DESCRIPTOR_BYTES = 4  # a C int
_RIGHTS_BYTES = socket.CMSG_SPACE(_DESCRIPTOR_BYTES)
# Plain integers: the enum flags of the socket module are slow in a loop.
_CLOSE_ON_EXEC = int(getattr(socket, "MSG_CMSG_CLOEXEC", 0))
_NO_SIGNAL = int(getattr(socket, "MSG_NOSIGNAL", 0))
_TRUNCATED = int(socket.MSG_CTRUNC)


def random_abstract_address() -> str:
    """Return a random abstract address."""
    return f"@bowstring-{secrets.token_hex(16)}"


def encode_unix_address(address: object) -> bytes:
    """Return the kernel's name for an address.

    Raises `InvalidArgumentError` if it is not a path or name, empty or too long.
    """
    try:
        encoded = os.fsencode(address) if isinstance(address, str) else b""
    except UnicodeEncodeError:  # surrogates that stand for no byte
        encoded = b""
    if not encoded or encoded == b"@" or b"\0" in encoded:
        raise InvalidArgumentError(f"unix socket address {address!r}: expected a path, or '@' and a name")
    if len(encoded) > MAX_ADDRESS_BYTES:
        raise InvalidArgumentError(
            f"unix socket address {address!r}: {len(encoded)} bytes, at most {MAX_ADDRESS_BYTES} fit"
        )
    return b"\0" + encoded[1:] if encoded.startswith(b"@") else encoded


def unix_address_scope(address: str) -> str | None:
    """Return the scope of an address: the network namespace of an abstract one, the directory of a path."""
    return network_scope() if address.startswith("@") else directory_scope(address)


def _create_socket() -> socket.socket:
    try:
        return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    except OSError as error:
        raise translate_os_error(error, f"unix socket: {error.strerror}") from error


def try_connect(address: str, connection: socket.socket | None = None) -> tuple[socket.socket, bool]:
    """Return a non-blocking socket, and whether it is connected; if not, because the listener's queue is full, call it
    again with the socket after `CONNECT_RETRY_S`.

    Raises `ConnectionLostError` if there is no listener, `AccessDeniedError`, `InvalidArgumentError`; the socket is
    then closed.
    """
    name = encode_unix_address(address)
    if connection is None:
        connection = _create_socket()
    with call_on_error(connection.close):
        connection.setblocking(False)
        try:
            connection.connect(name)
        except BlockingIOError:  # poll can't wait for it
            return connection, False
        except OSError as error:
            message = f"unix socket {address!r}: nothing is listening there ({error.strerror})"
            if isinstance(error, FileNotFoundError):
                raise ConnectionLostError(message, error, address) from error
            raise translate_os_error(error, message, address) from error
    return connection, True


class UnixChannel(StreamChannel):
    """One end of a connection; created by `dial` or `UnixListener.accept`."""

    def __init__(self, connection: socket.socket, options: TransportOptions = DEFAULT_OPTIONS) -> None:
        receives_regions = options.max_regions > 0
        super().__init__(connection, "unix socket", options, receives_regions=receives_regions)
        # Without any space, the kernel closes the descriptors: to inspect or close a file of a peer may block.
        self._rights_bytes = _RIGHTS_BYTES if receives_regions else 0
        self.memory = ReceivedRegions(options.max_regions)
        """The received regions, as the events `RemoteMemoryUpdated` report them."""
        self.num_regions_sent = 0
        self._pending_address: str | None = None

    @classmethod
    def from_socket(cls, connection: socket.socket, options: TransportOptions = DEFAULT_OPTIONS) -> UnixChannel:
        """Wrap a connected socket. If its peer is another user, close it and raise `ConnectionLostError`."""
        channel = cls(connection, options)
        with call_on_error(channel.close):
            channel._identify_peer()
        return channel

    @classmethod
    def dial(cls, address: str, options: TransportOptions = DEFAULT_OPTIONS) -> UnixChannel:
        """As `Transport.dial`. The first frame is a HELLO."""
        connection, is_connected = try_connect(address)
        channel = cls(connection, options)
        channel._dial()
        with call_on_error(channel.close):
            if is_connected:
                channel._identify_peer()
            else:
                channel._pending_address, channel.is_connected = address, False
        return channel

    def next_wait(self, directions: int = BOTH_DIRECTIONS) -> Wait:
        return super().next_wait(directions) if self.is_connected else Wait([], CONNECT_RETRY_S)

    @property
    def wait_description(self) -> str:
        return super().wait_description if self.is_connected else f"unix socket {self._pending_address!r}: connecting"

    @property
    def exporter(self) -> MemoryExporter | None:  # type: ignore[override]
        """As `Channel.exporter`: passes descriptors."""
        return RegionExporter(self)  # a new one: a channel that referred to itself would not end when it is dropped

    def close(self) -> None:
        """As `Channel.close`; also closes the received regions."""
        super().close()
        self.memory.close()

    def _identify_peer(self) -> None:
        """Identify the peer of the connected socket, before a byte is received. Raises `ConnectionLostError` if it is
        another user, unless the options permit that.
        """
        # The credentials are those at the time of `connect` or `listen`, so a peer can't change them.
        process_id, user_id, _ = peer_credentials(self._socket)
        if not self.options.allow_other_users and not is_trusted_user(user_id):
            # As in `is_trusted_user`.
            problem = ", which is any user that the user namespace does not map" if user_id == os.getuid() else ""
            raise ConnectionLostError(f"unix socket: refused a peer of user {user_id}; we are {os.getuid()}{problem}")
        self.traits = replace(self.traits, peer=PeerIdentity(user_id, process_id))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER_BYTES)

    def _continue_connecting(self) -> bool:
        """Try to connect again, because the listener's queue was full, for which poll can't wait."""
        assert self._pending_address is not None
        _, is_connected = try_connect(self._pending_address, self._socket)
        if is_connected:
            self._identify_peer()
        return is_connected

    def _read(self, size_bytes: int) -> bytes:
        """Receive bytes of frames and a descriptor."""
        # There is space for one descriptor, or two because of alignment: the kernel closes others, and reports that as
        # truncated. It ends a read after the bytes sent with a descriptor, so these are the last ones.
        received, ancillary, flags, _ = self._socket.recvmsg(size_bytes, self._rights_bytes, _CLOSE_ON_EXEC)
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                count = len(payload) // _DESCRIPTOR_BYTES
                self._parser.descriptors.extend(struct.unpack_from(f"{count}i", payload))
        # After the descriptors are recorded: the parser closes them with the connection.
        if flags & _TRUNCATED:
            problem = "more than one descriptor with a frame, or this process can't open more (ulimit -n)"
            raise ProtocolError(
                f"unix socket: {problem if self._rights_bytes else 'a descriptor, of which none is received'}"
            )
        return received

    def _write(self, views: list[bytes | memoryview], region: Region | None) -> int:
        rights: list[tuple[int, int, bytes]] = []
        if region is not None:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", region.descriptor))]
        return self._socket.sendmsg(views, rights, _NO_SIGNAL)

    def __repr__(self) -> str:
        return f"<UnixChannel {'closed' if self.is_closed else 'open'}, {len(self.memory)} regions received>"


class RegionExporter(MemoryExporter):
    """Sends regions over a channel, and numbers them."""

    __slots__ = ("_channel",)

    def __init__(self, channel: UnixChannel) -> None:
        self._channel = channel

    def export(self, region: Region) -> ExportedRegion:
        self.check_capacity(1)
        index = self._channel.num_regions_sent
        body = REGION_BODY.pack(region.size_bytes, region.is_sealed)
        # Of its own description: else one peer could unlock an arena's memory for all.
        region = region if region.is_sealed else region.reopen()
        self._channel.submit_frame(FrameKind.REGION, index, (body,), region)
        self._channel.num_regions_sent += 1
        return ExportedRegion(encode_region_address(index, 0), index)

    def retire(self, exported_region: ExportedRegion) -> None:
        count = self._channel.num_regions_sent
        if not 0 <= exported_region.index < count:
            raise InvalidArgumentError(f"region {exported_region.index}: this end has sent {count} regions")
        self._channel.submit_frame(FrameKind.RETIRE, exported_region.index, ())

    def check_capacity(self, num_regions: int) -> None:
        num_sent = self._channel.num_regions_sent
        if num_sent + num_regions > MAX_REGIONS:
            raise InvalidArgumentError(f"this connection has sent {num_sent} regions: open another one")


class UnixListener(StreamListener):
    """Listens at an address, by default a new abstract one. Peers of other users are refused."""

    def __init__(self, address: str | None = None, *, options: TransportOptions = DEFAULT_OPTIONS) -> None:
        """Listen.

        Raises `UnavailableAddressError`, `InvalidArgumentError`, `MissingFileError` and `AccessDeniedError` as the
        folder of a path, `ResourceError` if no descriptors are left.
        """
        address = random_abstract_address() if address is None else address
        if is_host_and_port(address):
            raise InvalidArgumentError(
                f"unix socket address {address!r}: expected a path, or '@' and a name, found a host and a port: "
                "use the scheme tcp or tcp+tls, or './' before a path"
            )
        sockaddr = encode_unix_address(address)
        super().__init__(_create_socket(), address, options, f"unix socket {address!r}")
        self._inode: tuple[int, int] | None = None
        self._listen(sockaddr)
        self.address_scope = unix_address_scope(address)

    @classmethod
    def from_socket(cls, listening_socket: socket.socket, options: TransportOptions = DEFAULT_OPTIONS) -> UnixListener:
        """Return a listener for a socket that listens already; it owns the socket."""
        listener = cls.__new__(cls)
        StreamListener.__init__(listener, listening_socket, "", options, "unix socket ''")
        listener._inode = None
        listening_socket.listen(BACKLOG)  # again: the credentials that peers get are of the process that did so last
        listening_socket.setblocking(False)
        return listener

    def close(self) -> None:
        self.shut_down()
        inode, self._inode = self._inode, None
        if inode is not None:
            try:
                status = os.lstat(self.address)
                # Another process may have removed the path and bound it again.
                if (status.st_dev, status.st_ino) == inode:
                    Path(self.address).unlink()
            except OSError:
                pass
        super().close()

    def _create_channel(self, connection: socket.socket) -> Channel:
        return UnixChannel.from_socket(connection, self.options)

    def _bind(self, sockaddr: bytes) -> None:
        if sockaddr.startswith(b"\0"):
            self._socket.bind(sockaddr)
            return
        try:
            self._socket.bind(sockaddr)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or not _is_stale_socket(self.address):
                raise
            Path(self.address).unlink()
            self._socket.bind(sockaddr)
        status = os.lstat(self.address)
        self._inode = (status.st_dev, status.st_ino)
        # Before `listen`: until then no process can connect with the permissions of the umask.
        Path(self.address).chmod(0o666 if self.options.allow_other_users else 0o600)


def _is_stale_socket(path: str) -> bool:
    """Whether `path` is the socket of a process that has ended."""
    if not stat.S_ISSOCK(os.lstat(path).st_mode):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False


class UnixTransport(Transport):
    """Connections between processes of this machine and user."""

    scheme: ClassVar[str] = "unix"
    is_local: ClassVar[bool] = True
    distance: ClassVar[float] = 10
    identifies_users: ClassVar[bool] = True

    def listen(self, address: str | None = None, options: TransportOptions = DEFAULT_OPTIONS) -> UnixListener:
        """As `Transport.listen`; the default is a new abstract address."""
        return UnixListener(address, options=options)

    def dial(self, address: str, options: TransportOptions = DEFAULT_OPTIONS) -> UnixChannel:
        return UnixChannel.dial(address, options)

    def open_remote_memory(self, channel: Channel, remote_handle: bytes | None) -> ReceivedRegions:  # noqa: ARG002 - not needed
        """As `Transport.open_remote_memory`: the received regions."""
        assert isinstance(channel, UnixChannel)
        return channel.memory

    def address_scope(self, address: str) -> str | None:
        """As `Transport.address_scope`: the network namespace of an abstract address, the directory of a path."""
        return unix_address_scope(address)


UNIX = UnixTransport()

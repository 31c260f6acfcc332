"""How host agents are reached from other hosts: their addresses, their secret, and authenticated control messages.

The driver and the agents of a data set share a secret, which the agent gets from the first task of its host, over a
unix socket. The key of signed tickets is derived from it, and the keys of control connections: the client sends 32
random bytes, the agent answers with 32 others, and every following message of either end begins with the HMAC-SHA256
of its number, its tag and its bytes, by a key of this connection and direction. So neither end accepts a message that
the other did not send as the next one of this connection: messages can't be forged, changed, repeated or reflected.
Over plain TCP they can be read.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import struct
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, Self

from bowstring.errors import AccessDeniedError, InvalidArgumentError
from bowstring.transports.base import TransportOptions
from bowstring.transports.sockets.tcp_address import format_address, resolve_host
from bowstring.transports.tls import TlsOptions

SECRET_BYTES = NONCE_BYTES = 32  # 256 bits, as the digest has
MAX_GREETING_BYTES = 1 << 10
"""The maximum length of a message before the client is authenticated; no memory is allocated for a longer one."""
CONTROL_OPTIONS = TransportOptions(
    max_plain_bytes=1 << 26,
    max_tagged_bytes=0,
    eager_bytes=MAX_GREETING_BYTES,
    credit_messages=4,
    credit_bytes=4 * MAX_GREETING_BYTES,
    max_regions=0,
    allow_other_hosts=True,
)

_LABEL = b"bowstring agent control 1"
_DIGEST_BYTES = 32  # of SHA-256
# Resolving a host and connecting a UDP socket need some port; nothing is sent to it.
_ANY_PORT = 9
_ANY_REMOTE_ADDRESS = "192.0.2.1"
"""An address for documentation (RFC 5737): packets to it take the default route."""
_NUMBER_AND_TAG = struct.Struct("<Q?Q")


@dataclass(frozen=True, slots=True)
class RemoteAccess:
    """The settings of an agent that serves other hosts. Sent to the executors with a job, and by them to the agent."""

    secret: bytes = field(default_factory=partial(secrets.token_bytes, SECRET_BYTES), repr=False, kw_only=True)
    host: str | None = None
    """The name or address of the agent's host in URIs; by default the address from which it reaches `gateway`."""
    gateway: str | None = None
    """A host that the agents' hosts reach through the network of the readers; by default any that is not local."""
    bind_address: str | None = None
    """The address at which the agent listens, if it is not `host`; "0.0.0.0" for all of the host."""
    tls: TlsOptions | None = None
    """The certificates of the agent and of the driver, by paths that exist on all hosts."""

    def __post_init__(self) -> None:
        if len(self.secret) < SECRET_BYTES:
            raise InvalidArgumentError(f"secret of host agents: expected at least {SECRET_BYTES} bytes")

    def resolve_host(self) -> RemoteAccess:
        """Return the access to the agent of this host. Raises `InvalidArgumentError` if it has no route elsewhere."""
        if self.host is not None:
            return self
        gateway = _ANY_REMOTE_ADDRESS if self.gateway is None or is_loopback_name(self.gateway) else self.gateway
        return replace(self, host=find_address_towards(gateway))

    @property
    def scheme(self) -> str:
        """The scheme of URIs for other hosts."""
        return "tcp" if self.tls is None else "tcp+tls"

    @property
    def listen_address(self) -> str:
        """The address to listen at, with an unused port."""
        return format_address(self.bind_address or self.host or "", 0)

    @property
    def ticket_key(self) -> bytes:
        """The key of the agents' signed tickets."""
        return hmac.digest(self.secret, b"bowstring agent tickets 1", "sha256")

    def to_json(self) -> dict[str, Any]:
        """Return the settings as JSON values, for `from_json`."""
        tls = self.tls and {each.name: _to_json(getattr(self.tls, each.name)) for each in fields(self.tls)}
        return {"secret": self.secret.hex(), "host": self.host, "bind_address": self.bind_address, "tls": tls}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """Return the access of `to_json`."""
        tls = value["tls"] and TlsOptions(**value["tls"])
        secret = bytes.fromhex(value["secret"])
        return cls(str(value["host"]), bind_address=value["bind_address"], tls=tls, secret=secret)


class ControlSession:
    """Signs and verifies the messages of one end of a control connection."""

    __slots__ = ("_num_received", "_num_sent", "_receive_key", "_send_key")

    def __init__(self, secret: bytes, client_nonce: bytes, agent_nonce: bytes, *, is_agent: bool) -> None:
        key = hmac.digest(secret, _LABEL + client_nonce + agent_nonce, "sha256")
        from_client, from_agent = (hmac.digest(key, sender, "sha256") for sender in (b"client", b"agent"))
        self._send_key, self._receive_key = (from_agent, from_client) if is_agent else (from_client, from_agent)
        self._num_sent = self._num_received = 0

    def sign(self, message: bytes, tag: int | None = None) -> tuple[bytes, bytes]:
        """Return the parts of the next message to send."""
        digest = _compute_digest(self._send_key, self._num_sent, tag, message)
        self._num_sent += 1
        return digest, message

    def verify(self, received: bytes | memoryview, tag: int | None = None) -> memoryview:
        """Return the next received message without its digest. Raises `AccessDeniedError`, also for all later ones."""
        view = memoryview(received)
        digest, message = view[:_DIGEST_BYTES], view[_DIGEST_BYTES:]
        if not hmac.compare_digest(_compute_digest(self._receive_key, self._num_received, tag, message), digest):
            raise AccessDeniedError("host agent: a message is not signed with the secret of both ends")
        self._num_received += 1
        return message


def find_address_towards(host: str) -> str:
    """Return the address of this host from which it sends packets to another; none is sent.

    Raises `InvalidArgumentError` if there is no route.
    """
    reason = "it has no address"
    try:
        for family, _, _, _, name in socket.getaddrinfo(host, _ANY_PORT, type=socket.SOCK_DGRAM):
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect(name)
                return str(probe.getsockname()[0])
    except (OSError, UnicodeError) as error:
        reason = str(error)
    raise InvalidArgumentError(
        f"host agents for other hosts: this host has no route to {host} ({reason}): set the option host"
    )


def is_loopback_name(host: str) -> bool:
    """Whether a host name or address is this host's."""
    return all(address.is_loopback for address in resolve_host(host, _ANY_PORT))


def check_nonce(received: bytes | memoryview) -> bytes:
    """Return the first message of a connection. Raises `AccessDeniedError` for another length."""
    if len(received) != NONCE_BYTES:
        raise AccessDeniedError(f"host agent: expected {NONCE_BYTES} bytes, found {len(received)}")
    return bytes(received)


def _compute_digest(key: bytes, number: int, tag: int | None, message: bytes | memoryview) -> bytes:
    digest = hmac.new(key, _NUMBER_AND_TAG.pack(number, tag is not None, tag or 0), "sha256")
    digest.update(message)
    return digest.digest()


def _to_json(value: Any) -> Any:
    return value if value is None or isinstance(value, bool) else str(value)

"""Scopes of addresses: whether two processes mean the same listener by an address.

An abstract unix address or 127.0.0.1 may exist on every host and in every container, with another listener. A scope is
a digest that is equal in all processes for which such an address is the same.
"""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path

from bowstring.errors import ResourceError
from bowstring.memory.descriptors import translate_shortage_errors

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NETWORK_NAMESPACE = "/proc/thread-self/ns/net"


def network_scope() -> str:
    """Return the scope of abstract unix addresses and loopback addresses: the host's network namespace.

    Raises `ResourceError` as `directory_scope`.
    """
    try:
        return _digest("network", os.readlink(_NETWORK_NAMESPACE))
    except OSError:  # not Linux: one network for each host
        return _digest("network")


def directory_scope(path: str) -> str | None:
    """Return the scope of a socket's path: the host and the directory. None if there is no such directory.

    Raises `ResourceError` if descriptors or memory are exhausted before the first scope is known.
    """
    try:
        status = os.stat(os.path.dirname(os.path.abspath(path)))
    except OSError:
        return None
    return _digest("directory", str(status.st_dev), str(status.st_ino))


def _digest(*parts: str) -> str:
    """Return 128 bits, so that URIs do not disclose the identity of a host."""
    return hashlib.sha256("\0".join((_read_host_id(), *parts)).encode()).hexdigest()[:32]


@cache
def _read_host_id() -> str:
    """Return the ID of the host since it was started, or its name if it has none. Read once: it needs a descriptor."""
    try:
        with translate_shortage_errors("read", str(_BOOT_ID)):
            return _BOOT_ID.read_text().strip()
    except ResourceError:
        raise  # with the name, this process would take its own host for another one
    except OSError:
        return os.uname().nodename

"""What needs no libfabric: addresses, options, and the errors without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bowstring.errors import InvalidArgumentError, UnmetRequirementError, UnsupportedError
from bowstring.transports.base import TransportOptions
from bowstring.transports.tls import TlsOptions
from bowstring_networks.fabric.transport import FabricOptions, FabricTransport, parse_fabric_address

LISTEN_AND_DIAL = [lambda transport, *a: transport.listen(*a), lambda transport, *a: transport.dial(*a)]


def test_an_address_may_contain_a_provider() -> None:
    assert parse_fabric_address("//127.0.0.1:5", "tcp") == ("127.0.0.1", 5, "tcp")
    assert parse_fabric_address("localhost:5/", "tcp") == ("localhost", 5, "tcp")
    assert parse_fabric_address("//[::1]:0/tcp;ofi_rxm", "net") == ("::1", 0, "tcp;ofi_rxm")


@pytest.mark.parametrize("address", ["", "//127.0.0.1", "//:1", "//h:65536", "//h:1/a b", "//h:1/a/b", "//h:1/;a"])
def test_an_invalid_address_is_rejected(address: str) -> None:
    with pytest.raises(InvalidArgumentError, match="expected"):
        parse_fabric_address(address, "tcp")


@pytest.mark.parametrize("call", LISTEN_AND_DIAL)
def test_an_error_names_the_missing_system_library(call: Callable[..., Any]) -> None:
    transport = FabricTransport(FabricOptions(library="/nonexistent/libfabric.so.1"))
    with pytest.raises(UnmetRequirementError, match=r"the system library libfabric cannot be loaded: .*nonexistent"):
        call(transport, "//127.0.0.1:0/tcp")


@pytest.mark.parametrize("provider", ["shm", "shm;ofi_rxm"])
@pytest.mark.parametrize("call", LISTEN_AND_DIAL)
def test_a_faulty_provider_is_rejected_by_name(call: Callable[..., Any], provider: str) -> None:
    with pytest.raises(UnsupportedError, match="provider shm is not supported: it loses messages"):
        call(FabricTransport(), f"//127.0.0.1:0/{provider}")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("keep_descriptors", TransportOptions(keep_descriptors=True)),
        ("allow_other_users", TransportOptions(allow_other_users=True)),
        ("tls", TransportOptions(tls=TlsOptions())),
    ],
)
@pytest.mark.parametrize("call", LISTEN_AND_DIAL)
def test_an_unsupported_option_is_rejected(call: Callable[..., Any], name: str, options: TransportOptions) -> None:
    with pytest.raises(InvalidArgumentError, match=f"the option {name} is not supported"):
        call(FabricTransport(), "//127.0.0.1:0", options)

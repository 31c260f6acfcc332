"""The defaults of transports."""

from __future__ import annotations

from bowstring.transports.base import TransportOptions
from bowstring_networks.fabric.transport import FabricOptions
from bowstring_networks.ucx.transport import UcxOptions


def test_options_that_need_trusted_peers_are_off_by_default() -> None:
    options = TransportOptions()
    assert not options.allow_other_users
    assert not options.allow_other_hosts
    assert not UcxOptions().shares_memory, "a client maps the memory writable"
    assert not FabricOptions().shares_memory

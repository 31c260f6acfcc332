"""Processes whose versions of the frames differ: both ends get a clear error at once, and do not wait."""

from __future__ import annotations

import logging

import pytest

import bowstring as bs
from bowstring.errors import BowstringError, ProtocolError
from bowstring.sharing.agent.client import AgentClient, AgentKey
from bowstring.sharing.server.server import Server
from tests.sharing.python_process import PythonProcess, run_python

VERSION = """
import bowstring as bs
from bowstring.transports.sockets import frames, stream_channel
frames.VERSION = stream_channel.VERSION = version
"""
READ = """
try: bs.connect(uri, timeout_s=60)
except bs.BowstringError as error: send((type(error).__name__, str(error)))
"""
OPEN_AGENT = """
from bowstring.sharing.agent.client import AgentClient
try: AgentClient.open(key, start=False, timeout_s=60)
except bs.BowstringError as error: send((type(error).__name__, str(error)))
"""
SERVE = """
server = bs.serve({"t": bs.table({"a": [1, 2]})}, scheme=scheme)
send(server.uri("t")); receive()
"""


@pytest.mark.parametrize(("scheme", "version"), [("unix", 0), ("unix", 2), ("tcp", 2)])
def test_a_client_without_a_common_version_gets_an_error(
    scheme: str, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "bowstring.sharing.server")
    with Server(scheme=scheme) as server:
        uri = server.add("t", bs.table({"a": [1, 2]}))
        name, message = run_python(VERSION + READ, version=version, uri=uri)
        assert name == "ProtocolError"
        assert f"the peer receives frames of version 1 to 1, this end sends {version}" in message
        assert bs.connect(uri).read_all().num_rows == 2
    assert "refused: " in caplog.text
    assert f"the peer receives frames of version {version} to {version}, this end sends 1" in caplog.text


@pytest.mark.parametrize(("scheme", "version"), [("unix", 0), ("unix", 2), ("tcp", 2)])
def test_a_server_without_a_common_version_is_an_error(scheme: str, version: int) -> None:
    with (
        PythonProcess(VERSION + SERVE, version=version, scheme=scheme) as other,
        pytest.raises(ProtocolError, match=f"version {version} to {version}, this end sends 1"),
    ):
        bs.connect(other.receive(), timeout_s=60)


@pytest.mark.parametrize("version", [0, 2])
def test_a_host_agent_without_a_common_version_is_an_error_at_once(version: int) -> None:
    key = AgentKey()
    with AgentClient.open(key) as agent:
        name, message = run_python(VERSION + OPEN_AGENT, version=version, key=key)
        assert name == "ProtocolError"
        assert f"the peer receives frames of version 1 to 1, this end sends {version}" in message
        assert agent.status()["datasets"] == {}


def test_a_host_agent_names_a_request_that_it_does_not_have_and_ignores_unknown_fields() -> None:
    with AgentClient.open(AgentKey()) as agent:
        with pytest.raises(BowstringError, match=r"expected a request, found .*of a later version"):
            agent._request({"op": "of a later version"})
        assert agent._request({"op": "status", "field": "of a later version"}) == agent.status()

"""Conformance tests with recorded sessions, for clients and servers in any language; they run with pytest.

Subclass `ClientConformance` with a client, or `ServerConformance` with a server. Other ways to use the sessions are in
`tests/sessions/data/README.md`.
"""

from __future__ import annotations

from abc import abstractmethod
from contextlib import AbstractContextManager
from typing import Any
from urllib.parse import quote

import pytest

from bowstring import errors
from tests.sessions.recorded_sessions import RecordedSession, recorded_sessions
from tests.sessions.replay import ReplayServer, replay_client

TIMEOUT_S = 20.0
_ERRORS = {
    "not-found": errors.NotFoundError,
    "connection-lost": errors.ConnectionLostError,
    "invalid-data": errors.InvalidDataError,
    "protocol-error": errors.ProtocolError,
}
"""The class of the error that a client has to detect, by its name in a session."""


def sessions_for_side(side: str) -> list[RecordedSession]:
    """Return the sessions that test a `client` or a `server`."""
    return [session for session in recorded_sessions() if side in session.sides]


def _session_name(session: RecordedSession) -> str:
    return session.name


class ClientConformance:
    """Tests of a client: a recorded server is played to it. A subclass implements `read`."""

    scheme = "unix"
    is_ordered = True
    """Whether the client relies on the order of metadata messages."""
    codecs: tuple[str, ...] = ("lz4", "zstd")
    """The codecs of compressed buffers that the client supports."""

    @abstractmethod
    def read(self, uri: str) -> list[dict[str, Any]]:
        """Read the data set of a URI, then disconnect; return its rows.

        Raises an error of `bowstring.errors`: `NotFoundError`, `ConnectionLostError`, or one for a violation. The URI
        has the parameter `bodies` for a second connection.
        """

    @pytest.mark.parametrize("session", sessions_for_side("client"), ids=_session_name)
    def test_a_client_reads_the_rows_of_a_session_or_detects_its_error(self, session: RecordedSession) -> None:
        if self.is_ordered and not session.is_ordered:
            pytest.skip("the transport keeps the order of metadata")
        if session.first_sequence:
            pytest.skip("for clients that can be set to begin with another sequence number than 0")
        if session.compression not in (None, *self.codecs):
            pytest.skip(f"for clients that support {session.compression}")
        entries = session.to_recording()
        ticket = next(entry.body.decode() for entry in session.entries if entry.sender == "client")
        with ReplayServer(entries, scheme=self.scheme, timeout_s=TIMEOUT_S) as server:
            uri = server.uri(ticket)
            if session.num_connections > 1:
                uri += f"&bodies={quote(server.uri(ticket, 1), safe='')}"
            if session.error is None:
                assert self.read(uri) == list(session.rows or ())
            else:
                with pytest.raises(_ERRORS[session.error]):
                    self.read(uri)
            differences = server.wait_for_differences()
            assert not differences, "; ".join(map(str, differences))


class ServerConformance:
    """Tests of a server: a recorded client is played to it. A subclass implements `serve`."""

    @abstractmethod
    def serve(self, *, has_addresses: bool) -> AbstractContextManager[str]:
        """Serve `recorded_sessions.numbers_table()` with the ticket `numbers`, with bodies of addresses or of bytes.

        The context is the server's URI; its tags have to be those of the session.
        """

    @pytest.mark.parametrize("session", sessions_for_side("server"), ids=_session_name)
    def test_a_server_answers_the_client_of_a_session_as_recorded(self, session: RecordedSession) -> None:
        with self.serve(has_addresses=session.has_addresses) as uri:
            differences = replay_client(session.to_recording(), uri, timeout_s=TIMEOUT_S)
        assert not differences, "; ".join(map(str, differences))

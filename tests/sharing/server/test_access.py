"""Who may connect to a server, and which data sets a client's certificate opens."""

from __future__ import annotations

import os
import pickle
import socket
import tempfile
from contextlib import ExitStack
from dataclasses import replace

import pytest

import bowstring as bs
from bowstring.errors import AccessDeniedError, ConnectionLostError, InvalidArgumentError
from bowstring.sharing.server.options import ServerOptions
from bowstring.sharing.server.server import Server
from bowstring.transports.base import PeerIdentity
from bowstring.transports.sockets.tcp_address import parse_address
from bowstring.transports.tls import TlsOptions
from bowstring_networks.flight import FlightServer
from tests.sharing.python_process import PythonProcess, needs_user_namespaces, run_python
from tests.transports.certificates import Authority

TABLE = bs.table({"a": list(range(10_000))})
NAMES = {"commonName=alice": ["visits", "missing"], "commonName=bob": {"people"}, "commonName=nobody": []}

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="requires root, to be several users")

# Other users


IMPORTS = """
import ctypes, os, pickle
import bowstring as bs
from bowstring.sharing.server.options import ServerOptions
table = bs.table({"a": list(range(10_000))})
"""
BECOME_USER = f"""{IMPORTS}
with bs.serve({{"t": table}}) as server:  # imports what the user may have no permission to read
    with bs.connect(server.uri("t")) as dataset: pickle.loads(pickle.dumps(dataset)).read_all()["a"].to_pylist()
os.setgroups([])
os.setgid(user)
os.setuid(user)
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE, as after execve: /proc/self/fd is the user's
"""
SERVE_AS_THIS_USER = f"""{IMPORTS}
server = bs.serve({{"t": table}}, address, ServerOptions(allow_other_users=allow))
send(server.uri("t"))
receive()
"""
SERVE = f"{BECOME_USER}{SERVE_AS_THIS_USER}"
READ_AS_THIS_USER = f"""{IMPORTS}
try:
    with bs.connect(uri, allow_other_users=allow) as dataset:
        with pickle.loads(pickle.dumps(dataset)) as again:
            send(dataset.read_all() == again.read_all() and dataset.read_all()["a"].to_pylist()[-1])
except bs.errors.ConnectionLostError as error:
    send(str(error))
"""
READ = f"{BECOME_USER}{READ_AS_THIS_USER}"


@needs_root
@pytest.mark.parametrize("has_path", [False, True], ids=["abstract", "path"])
def test_another_user_reads_if_both_sides_allow_it(has_path: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:  # other users can't enter pytest's folder
        os.chmod(folder, 0o777)
        address = f"{folder}/socket" if has_path else None
        with PythonProcess(SERVE, user=65533, address=address, allow=True) as server:
            uri = server.receive()
            assert run_python(READ, user=65534, uri=uri, allow=True) == 9999
            assert "refused a peer of user 65533" in run_python(READ, user=65534, uri=uri, allow=False)


@needs_root
def test_another_user_is_refused_by_default() -> None:
    with PythonProcess(SERVE, user=65533, address=None, allow=False) as server:
        assert "disconnected" in run_python(READ, user=65534, uri=server.receive(), allow=True)


# In such a namespace, the kernel reports one number for this user and all others.
@needs_user_namespaces
@pytest.mark.parametrize("is_allowed", [False, True])
def test_a_server_whose_user_is_not_mapped_refuses_all_users_by_default(is_allowed: bool) -> None:
    with PythonProcess(SERVE_AS_THIS_USER, isolation=["--user"], address=None, allow=is_allowed) as server:
        reply = run_python(READ, user=65533, uri=server.receive(), allow=True)
        assert reply == 9999 if is_allowed else "disconnected" in reply


@needs_user_namespaces
@pytest.mark.parametrize("is_allowed", [False, True])
def test_a_client_whose_user_is_not_mapped_trusts_no_server_by_default(is_allowed: bool) -> None:
    with PythonProcess(SERVE, user=65533, address=None, allow=True) as server:
        reply = run_python(READ_AS_THIS_USER, isolation=["--user"], uri=server.receive(), allow=is_allowed)
        assert reply == 9999 if is_allowed else "peer of user 65534; we are 65534, which is any" in reply


def test_other_users_can_only_be_allowed_where_users_are_known() -> None:
    with pytest.raises(InvalidArgumentError, match="tcp: the option allow_other_users is not supported"):
        Server(options=ServerOptions(allow_other_users=True), scheme="tcp")
    with bs.serve(
        {"t": TABLE}, options=ServerOptions(allow_other_users=True), addresses={"tcp": None, "unix": None}
    ) as (server):
        for uri in server.locations("t").uris:
            with bs.connect(uri, allow_other_users=True) as dataset:
                assert dataset.read_all() == TABLE


# Certificates


def options_of(authority: Authority) -> ServerOptions:
    return ServerOptions(tls=authority.server(checks_clients=True), names_by_certificate=NAMES)


def test_a_certificate_opens_only_the_data_sets_of_its_list(authority: Authority) -> None:
    with bs.serve({"visits": TABLE, "people": TABLE}, options=options_of(authority), scheme="tcp+tls") as server:
        for client, name in (("alice", "visits"), ("bob", "people")):
            with bs.connect(server.uri(name), tls=authority.client(client)) as dataset:
                assert dataset.read_all() == TABLE
                with pickle.loads(pickle.dumps(dataset)) as again:
                    assert again.read_all() == TABLE
        problem = "access denied: the client's certificate does not open this data set"
        for client, name in (("alice", "people"), ("bob", "visits"), ("bob", "missing"), ("nobody", "visits")):
            with pytest.raises(AccessDeniedError, match=problem):
                bs.connect(server.uri("visits"), name, tls=authority.client(client))
        with pytest.raises(AccessDeniedError, match=problem):
            bs.connect(server.uri("visits"), tls=authority.client("carol"))
        with pytest.raises(AccessDeniedError, match=problem):
            bs.connect(server.uri("visits"), "\0visits\0people\0", tls=authority.client("alice"))
        with pytest.raises(bs.errors.NotFoundError):
            bs.connect(server.uri("visits"), "missing", tls=authority.client("alice"))
        with pytest.raises(ConnectionLostError):
            bs.connect(server.uri("visits"), tls=authority.client())


def test_a_name_that_looks_like_several_does_not_open_what_these_open(authority: Authority) -> None:
    names = {"commonName=alice, organizationName=Staff": ["visits"]}
    options = replace(options_of(authority), names_by_certificate=names)
    with bs.serve({"visits": TABLE}, options=options, scheme="tcp+tls") as server:
        with bs.connect(server.uri("visits"), tls=authority.client("alice", "/CN=alice/O=Staff")) as dataset:
            assert dataset.read_all() == TABLE
        for subject in ("/CN=alice, organizationName=Staff", "/CN=alice+O=Staff"):
            with pytest.raises(AccessDeniedError):
                bs.connect(server.uri("visits"), tls=authority.client("alice", subject))


@pytest.mark.parametrize(("days", "reason"), [(-1, "certificate expired"), (None, "certificate required")])
def test_a_client_learns_why_its_certificate_is_refused(authority: Authority, days: int | None, reason: str) -> None:
    tls = authority.client()
    if days is not None:
        certificate, key = authority.issue("dave", days)
        tls = replace(tls, certificate=certificate, key=key)
    with bs.serve({"visits": TABLE}, options=options_of(authority), scheme="tcp+tls") as server:
        for _ in range(3):  # the server may be faster or slower than the client
            with pytest.raises(ConnectionLostError, match=f"the peer ended the connection: {reason}"):
                bs.connect(server.uri("visits"), tls=tls)


def test_a_certificate_needs_a_signed_ticket_too(authority: Authority) -> None:
    options = replace(options_of(authority), ticket_key=bytes(32), ticket_lifetime_s=60)
    with bs.serve({"visits": TABLE, "people": TABLE}, options=options, scheme="tcp+tls") as server:
        with bs.connect(server.uri("visits"), tls=authority.client("alice")) as dataset:
            assert dataset.read_all() == TABLE
        for client, ticket in (("alice", "visits"), ("bob", None)):
            with pytest.raises(AccessDeniedError):
                bs.connect(server.uri("visits"), ticket, tls=authority.client(client))


def test_processes_of_the_same_user_need_no_certificate(authority: Authority) -> None:
    addresses = {"unix": None, "tcp+tls": None}
    with bs.serve({"people": TABLE}, options=options_of(authority), addresses=addresses) as server:
        with bs.connect(server.uri("people")) as dataset:
            assert dataset.read_all() == TABLE
        with pytest.raises(AccessDeniedError):
            bs.connect(server.locations("people").uris[1], tls=authority.client("alice"))


def test_lists_of_names_can_t_be_evaded(authority: Authority) -> None:
    options = options_of(authority)
    with pytest.raises(InvalidArgumentError, match=r"tcp: names_by_certificate: .* does not identify clients"):
        Server(options=options, addresses={"tcp+tls": None, "tcp": None})
    for tls in (None, authority.server()):
        with pytest.raises(InvalidArgumentError, match="names_by_certificate: the option tls with authorities is req"):
            Server(options=replace(options, tls=tls), scheme="unix" if tls is None else "tcp+tls")
    with pytest.raises(InvalidArgumentError, match="'commonName=alice': expected several names, found 'visits'"):
        Server(options=replace(options, names_by_certificate={"commonName=alice": "visits"}), scheme="tcp+tls")
    with Server(options=options, scheme="tcp+tls") as server:
        with pytest.raises(InvalidArgumentError, match="flight: names_by_certificate can't be used"):
            FlightServer(server)
        for peer in (None, PeerIdentity(), PeerIdentity(name="alice"), PeerIdentity(name="commonName=alice, x=y")):
            with pytest.raises(AccessDeniedError):
                server.find_parts("visits", peer)
    assert TlsOptions().authorities is None


def test_connections_without_a_tls_handshake_are_closed_at_the_limit(authority: Authority) -> None:
    options = ServerOptions(tls=authority.server(), max_silent=2)
    with bs.serve({"visits": TABLE}, options=options, scheme="tcp+tls") as server, ExitStack() as stack:
        host, port = parse_address(server.address)
        silent = [stack.enter_context(socket.create_connection((host, port))) for _ in range(6)]
        # Well before the end of the time in which a client that is refused may receive the reason.
        for connection in silent[:4]:
            connection.settimeout(1.0)
            assert connection.recv(1) == b""
        with bs.connect(server.uri("visits"), tls=authority.client()) as dataset:
            assert dataset.read_all() == TABLE

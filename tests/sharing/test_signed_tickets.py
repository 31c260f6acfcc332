"""Signed tickets: only their holders can request the data set, until they expire; they are in no text."""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, strategies as st

import bowstring as bs
from bowstring.dissociated.events import DataRequested
from bowstring.dissociated.uri import parse_uri
from bowstring.errors import AccessDeniedError, BowstringError, InvalidArgumentError, NotFoundError
from bowstring.redaction import redact
from bowstring.sharing.client.part_requests import PartRequest
from bowstring.sharing.dataset_locations import DatasetLocations
from bowstring.sharing.server.options import ServerOptions
from bowstring.sharing.server.server import Server
from bowstring.sharing.signed_tickets import CLOCK_TOLERANCE_S, TicketSigner
from bowstring.sharing.uris import Ticket, create_server_uri, format_dataset_uri
from bowstring_testing.descriptors import assert_descriptors_closed
from networks.tests.ucx.ucp_processes import require_libucp
from tests.polling import wait_until
from tests.sharing.python_process import run_python
from tests.transports.certificates import Authority

KEY = bytes(range(32))
OPTIONS = ServerOptions(ticket_key=KEY)
SIGNER = TicketSigner(KEY, "tcp://127.0.0.1:5000")
TABLE = bs.table({"a": [1, 2, 3]})
READ = """
import bowstring as bs
def read(uri, copy):
    try:
        with bs.connect(uri, copy=copy) as data: return data.read_all().to_pydict()
    except bs.errors.AccessDeniedError as error: return str(error)
send([read(uri, copy) for uri in uris for copy in (False, True)])
"""


def signature_of(uri: str) -> str:
    match = re.search(r"~([A-Za-z0-9_-]{43})$", uri)
    assert match is not None, uri
    return match[1]


@pytest.fixture(params=["unix", "tcp"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with bs.serve({"t": TABLE, "u": TABLE}, options=OPTIONS, scheme=request.param) as signing_server:
        yield signing_server


@given(st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1), st.none() | st.integers(1000))
def test_a_ticket_is_verified_with_the_key_that_signed_it(name: str, expires_at: int | None) -> None:
    assert SIGNER.verify(SIGNER.sign(name, expires_at), now=1000.0) == name


@pytest.mark.parametrize(
    "ticket",
    [
        "",
        "t",
        "t~~",
        "~~",
        SIGNER.sign("t")[:-1],
        SIGNER.sign("t") + "=",
        SIGNER.sign("t") + "é",
        SIGNER.sign("t") + "\udcff",
        SIGNER.sign("t").replace("t~", "u~"),
        SIGNER.sign("t").replace("~~", "~9999999999~"),
        SIGNER.sign("t", 1000).replace("~1000~", "~~"),
        SIGNER.sign("t", 1000).replace("~1000~", "~2000~"),
        SIGNER.sign("t", 1000).replace("t~1000~", "t~10~00~"),
        TicketSigner(KEY[::-1], SIGNER.server).sign("t"),
        TicketSigner(KEY, "tcp://127.0.0.1:5001").sign("t"),
    ],
)
def test_any_other_ticket_is_denied(ticket: str) -> None:
    with pytest.raises(AccessDeniedError, match=r"^access denied: the ticket is not valid for this server$"):
        SIGNER.verify(ticket, now=500.0)


def test_a_ticket_expires_with_a_tolerance() -> None:
    ticket = SIGNER.sign("t", 1000)
    assert SIGNER.verify(ticket, now=1000.0 + CLOCK_TOLERANCE_S) == "t"
    with pytest.raises(AccessDeniedError, match="the ticket has expired"):
        SIGNER.verify(ticket, now=1000.1 + CLOCK_TOLERANCE_S)


@pytest.mark.parametrize("key", [b"", KEY[:31], bytearray(KEY), "k" * 32])
def test_a_key_is_at_least_32_bytes(key: bytes) -> None:
    with pytest.raises(
        InvalidArgumentError,
        match=r"ticket_key: expected (bytes|at least 32 random bytes), found (0|31|bytearray|str)$",
    ):
        Server(options=ServerOptions(ticket_key=key))


def test_another_process_reads_with_the_uri_of_the_server_and_with_no_other(server: Server) -> None:
    uri = server.uri("t")
    replies = run_python(READ, uris=[uri, uri.replace("ticket=t~", "ticket=u~")])
    assert replies[:2] == [TABLE.to_pydict()] * 2
    assert replies[2:] == ["data set 'u~~…': access denied: the ticket is not valid for this server"] * 2
    assert wait_until(lambda: not server.num_clients), "a refused client keeps its place"


@pytest.mark.parametrize("ticket", ["t", "missing", "t~~" + "A" * 43, "\0packed"])
def test_a_refusal_does_not_reveal_which_data_sets_exist(server: Server, ticket: str) -> None:
    with pytest.raises(AccessDeniedError, match=r": access denied: the ticket is not valid for this server$"):
        bs.connect(server.uri("t"), ticket)


def test_a_ticket_is_not_valid_at_another_server_with_the_same_key(server: Server) -> None:
    with bs.serve({"t": TABLE}, options=OPTIONS) as other, pytest.raises(AccessDeniedError):
        bs.connect(server.uri("t"), parse_uri(other.uri("t")).get_parameter("ticket"))


def test_a_ticket_can_be_passed_apart_from_the_uri(server: Server) -> None:
    uri = server.uri("t")
    with bs.connect(uri.partition("&ticket=")[0], parse_uri(uri).get_parameter("ticket")) as data:
        assert data.read_all() == TABLE


def test_a_valid_ticket_of_a_removed_data_set_is_not_found(server: Server) -> None:
    uri = server.uri("t")
    server.remove("t")
    with pytest.raises(NotFoundError, match="the server has no data set 't'"):
        bs.connect(uri)


def test_each_data_set_of_a_request_needs_its_own_ticket(server: Server) -> None:
    uris = [server.uri("t"), server.uri("u"), server.uri("t").replace("ticket=t~", "ticket=u~")]
    with bs.connect(uris[:2]) as data:
        assert len(data._requests) == 1
        assert data.read_all().num_rows == 6
    with bs.connect(uris) as data:
        batches = iter(data)
        assert [next(batches).num_rows for _ in range(2)] == [3, 3]
        with pytest.raises(AccessDeniedError):
            next(batches)


def test_an_expired_ticket_is_denied(server: Server) -> None:
    signer = server._signer
    assert signer is not None
    with pytest.raises(AccessDeniedError, match="the ticket has expired"):
        bs.connect(server.uri("t"), signer.sign("t", int(time.time()) - 60))
    with bs.connect(server.uri("t"), signer.sign("t", int(time.time()) + 60)) as data:
        assert data.read_all() == TABLE


def test_the_lifetime_of_a_ticket_has_a_default_in_the_options() -> None:
    def lifetime_s(uri: str) -> float:
        expiry = (parse_uri(uri).get_parameter("ticket") or "").split("~")[1]
        return float(expiry or math.inf) - time.time()

    options = ServerOptions(ticket_key=KEY, ticket_lifetime_s=10_000)
    with bs.serve({"t": TABLE}, options=options) as server:
        for uri in (server.uri("t"), server.uris["t"], server.add("new", TABLE)):
            assert 9_000 < lifetime_s(uri) <= 10_001
        assert 90_000 < lifetime_s(server.uri("t", lifetime_s=100_000)) <= 100_001
        assert lifetime_s(server.uri("t", lifetime_s=math.inf)) == math.inf
        for value in (0, -1, math.nan):
            with pytest.raises(InvalidArgumentError, match="expected a positive number of seconds"):
                server.uri("t", lifetime_s=value)


def test_a_ticket_is_valid_at_all_locations_of_a_server() -> None:
    with bs.serve({"t": TABLE}, options=OPTIONS, addresses={"unix": None, "tcp": None}) as server:
        locations = server.locations("t", lifetime_s=60)
        assert len({parse_uri(uri).get_parameter("ticket") for uri in locations.uris}) == 1
        for uri in (str(locations), *locations.uris):
            with bs.connect(uri) as data:
                assert data.read_all() == TABLE
        with pytest.raises(AccessDeniedError, match=r"no location of the data set can be used: unix:.*; tcp:.*"):
            bs.connect(locations, "t")


def test_a_lifetime_needs_a_key() -> None:
    with bs.serve({"t": TABLE}) as server, pytest.raises(InvalidArgumentError, match="only with ServerOptions"):
        server.uri("t", lifetime_s=60)


def test_plain_tcp_at_all_addresses_needs_a_key() -> None:
    with pytest.raises(InvalidArgumentError, match="or signed tickets"):
        Server("0.0.0.0:0", scheme="tcp")
    options = ServerOptions(ticket_key=KEY, ticket_lifetime_s=1000)
    with Server("0.0.0.0:0", options, scheme="tcp") as server:
        uri = re.sub("//[^:]+:", "//127.0.0.1:", server.add("t", TABLE))
        with bs.connect(uri) as data:
            assert data.read_all() == TABLE
        with pytest.raises(AccessDeniedError):
            bs.connect(uri, "t")


@pytest.mark.parametrize("scheme", ["tcp", "tcp+tls", "ucx"])
def test_tickets_need_a_lifetime_where_other_hosts_can_connect(scheme: str, authority: Authority) -> None:
    if scheme == "ucx":
        require_libucp()
    tls = authority.server() if scheme == "tcp+tls" else None
    problem = rf"^{re.escape(scheme)}://.*: other hosts can connect there: ticket_key requires ticket_lifetime_s"
    for addresses in ({scheme: "0.0.0.0:0"}, {"unix": None, scheme: "0.0.0.0:0"}):
        with assert_descriptors_closed(), pytest.raises(InvalidArgumentError, match=problem):
            Server(options=ServerOptions(ticket_key=KEY, tls=tls), addresses=addresses)
    for lifetime_s in (1000, math.inf):
        Server("0.0.0.0:0", ServerOptions(ticket_key=KEY, ticket_lifetime_s=lifetime_s, tls=tls), scheme=scheme).close()
    Server("127.0.0.1:0", ServerOptions(ticket_key=KEY, tls=tls), scheme=scheme).close()


def messages(uri: str) -> Iterator[str]:
    """The errors that users of a URI can get."""
    other = bs.serve({"t": bs.table({"b": [1.5]})})
    calls: list[Callable[[], object]] = [
        lambda: bs.connect(uri[:-1]),  # not valid
        lambda: bs.connect(uri.replace(":", "+other:", 1)),
        lambda: bs.connect(uri + "é"),
        lambda: bs.connect(uri.replace("want_data", "other")),
        lambda: bs.connect(uri.replace("want_data=1", "want_data=x")),
        lambda: bs.connect(uri + "&remote_handle=*"),
        lambda: bs.connect(other.uri("t"), parse_uri(uri).get_parameter("ticket")),  # the wrong server
        lambda: bs.connect([other.uri("t"), uri]).read_all(),  # another schema
    ]
    with other:
        for call in calls:
            with pytest.raises(BowstringError) as caught:
                call()
            yield str(caught.value)


def test_messages_do_not_show_signatures(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "bowstring")
    uri = server.uri("t")
    texts = list(messages(uri))
    with bs.connect(uri) as data:
        data.read_all()
        server.close()
        with pytest.raises(ConnectionError) as caught:
            data.read_all()
        texts.append(str(caught.value))
    texts += caplog.messages
    assert not [text for text in texts if signature_of(uri)[:20] in text]
    assert any(re.search(r"t~~…|%7E…", text) for text in texts), "no message names the ticket"


def test_a_repr_does_not_show_keys_and_signatures(server: Server) -> None:
    uri = server.uri("t")
    parsed = parse_uri(uri)
    ticket = Ticket((parsed.get_parameter("ticket") or "",))
    with bs.connect(uri) as data:
        values = (server, server._signer, OPTIONS, data, parsed, ticket, DataRequested(ticket.encode()))
        for value in (*values, PartRequest(parsed, parsed, ticket), str(ticket), ticket.redacted_label):
            assert signature_of(uri)[:8] not in repr(value)
            assert repr(KEY) not in repr(value)


def test_the_signature_in_a_uri_of_flight_is_hidden() -> None:
    texts = []
    for scheme in ("grpc+other", "grcp"):
        uri = f"{scheme}://127.0.0.1:1/{SIGNER.sign('t')}"
        locations = DatasetLocations((uri,))
        texts.append(repr(locations))
        for target in (uri, locations):
            with pytest.raises(BowstringError) as caught:
                bs.connect(target)
            texts.append(str(caught.value))
    assert not [text for text in texts if SIGNER.sign("t")[-43:-20] in text], texts


def test_signatures_are_hidden_wherever_they_are_in_a_text() -> None:
    ticket = SIGNER.sign("a~b", 1000)
    uri = format_dataset_uri(create_server_uri("@server"), ticket)
    for text in (ticket, uri, f"{uri}, {uri}", uri.replace("~", "%7E")):
        assert ticket[-43:] not in redact(text)
    assert redact(f"{ticket}: {ticket}") == "a~b~1000~…: a~b~1000~…"
    assert redact("people~1") == "people~1"
    for expiry in ("abc", "-1", "1.5", "1e9", "%20", "١", "", "1:2"):
        for text in (f"t~{expiry}~{ticket[-43:]}", f"t%7E{expiry}%7e{ticket[-43:]}'", f"a~b~{expiry}~{ticket[-43:]}"):
            assert ticket[-10:] not in redact(text)
    assert redact("t~1000~12-abc") == "t~1000~…"

"""Tickets for one data set and for several."""

from __future__ import annotations

from hypothesis import example, given, strategies as st

from bowstring.dissociated.uri import parse_uri
from bowstring.sharing.uris import (
    MAX_TICKETS,
    Ticket,
    create_server_uri,
    format_dataset_uri,
    parse_max_tickets,
    shorten_uri,
)

NAMES = st.lists(st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1), min_size=1, max_size=5)


@given(NAMES, st.booleans())
@example(["a", "packed"], False)
@example(["packed"], True)
def test_a_ticket_round_trips(names: list[str], packed: bool) -> None:
    ticket = Ticket(tuple(names), packed)
    assert Ticket.decode(ticket.encode()) == ticket


@given(st.binary())
@example(b"\xff\0packed")
def test_any_bytes_are_a_ticket(data: bytes) -> None:
    ticket = Ticket.decode(data)
    assert ticket.names
    assert data.startswith(b"\0") or ticket.encode() == data


def test_the_ticket_of_one_data_set_is_its_name() -> None:
    assert Ticket(("d/1",)).encode() == b"d/1"
    assert Ticket(("d/1",), is_packed=True).encode() == b"d/1\0packed"
    assert Ticket(("a", "b")).encode() == b"\0a\0b\0"


def test_an_abbreviated_ticket_is_one_line_that_can_be_encoded() -> None:
    assert Ticket(("visits",)).redacted_label == "data set 'vis…'"
    assert Ticket.decode(b"\xff\nforged entry of a log").redacted_label.startswith("data set '\\udcff\\nforged")
    assert Ticket(("a", "b")).redacted_label == "data set '…' and 1 more"


def test_a_uri_without_max_tickets_allows_one_ticket_per_request() -> None:
    uri = format_dataset_uri(create_server_uri("@server"), "t")
    assert parse_max_tickets(parse_uri(uri)) == MAX_TICKETS
    assert parse_max_tickets(parse_uri(uri.replace(f"max_tickets={MAX_TICKETS}&", ""))) == 1
    assert parse_max_tickets(parse_uri(uri.replace(f"max_tickets={MAX_TICKETS}", "max_tickets=many"))) == 1
    assert parse_max_tickets(parse_uri(uri.replace(f"max_tickets={MAX_TICKETS}", "max_tickets=7"))) == 7
    assert parse_max_tickets(parse_uri(uri.replace(f"max_tickets={MAX_TICKETS}", "max_tickets=0"))) == 1


def test_a_short_uri_keeps_its_address_tags_handle_and_ticket() -> None:
    uri = format_dataset_uri(create_server_uri("@address", remote_handle=b"handle", scope="host"), "a b")
    short = parse_uri(shorten_uri(uri))
    assert (short.address, short.want_data, short.free_data, short.remote_handle) == ("@address", 1, 2, b"handle")
    assert short.parameters == (("ticket", "a b"),)

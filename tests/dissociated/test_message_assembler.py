"""Metadata and bodies in any order of arrival come out in order, once, and each with its own."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from bowstring.dissociated.events import StreamMessage
from bowstring.dissociated.limits import ProtocolLimits
from bowstring.dissociated.message_assembler import MessageAssembler
from bowstring.dissociated.messages import PackedBody
from bowstring.errors import BowstringError, LimitError, ProtocolError

starts = st.sampled_from([0, 1, 2**31, 2**32 - 3, 2**32 - 1]) | st.integers(0, 2**32 - 1)


def header(number: int) -> bytes:
    return b"header %d" % number


def body(number: int) -> PackedBody:
    return PackedBody.from_parts(b"body %d" % number)


@st.composite
def arrivals(draw: st.DrawFn) -> tuple[int, list[bool], list[tuple[str, int]]]:
    """A first number, which messages have bodies, and the order in which everything arrives."""
    has_body = draw(st.lists(st.booleans(), min_size=1, max_size=12))
    arrivals_in_order = [("metadata", n) for n in range(len(has_body))] + [("end", len(has_body))]
    arrivals_in_order += [("body", n) for n, has in enumerate(has_body) if has]
    return draw(starts), has_body, draw(st.permutations(arrivals_in_order))


def add_arrival(
    assembler: MessageAssembler, arrival: tuple[str, int], start: int, has_body: list[bool]
) -> list[StreamMessage]:
    kind, number = arrival
    sequence = (start + number) % 2**32
    if kind == "metadata":
        return assembler.add_metadata(sequence, header(number), has_body[number])
    if kind == "body":
        return assembler.add_body(sequence, body(number))
    assembler.add_end(sequence)
    return []


@given(arrivals())
def test_messages_that_arrive_in_any_order_are_delivered_in_order(
    case: tuple[int, list[bool], list[tuple[str, int]]],
) -> None:
    start, has_body, arrivals_in_order = case
    assembler = MessageAssembler(start=start)
    out: list[StreamMessage] = []
    for arrival in arrivals_in_order:
        assert not assembler.is_complete
        out += add_arrival(assembler, arrival, start, has_body)
    assert [message.sequence for message in out] == [(start + n) % 2**32 for n in range(len(has_body))]
    assert [message.header for message in out] == [header(n) for n in range(len(has_body))]
    for number, message in enumerate(out):
        message_body = message.body
        assert (message_body is not None) == has_body[number]
        if isinstance(message_body, PackedBody):
            assert message_body.parts == body(number).parts
    assert assembler.is_complete
    assert (assembler.num_pending, assembler.pending_bytes) == (0, 0)


@given(arrivals(), st.data())
def test_duplicates_are_an_error(case: tuple[int, list[bool], list[tuple[str, int]]], data: st.DataObject) -> None:
    start, has_body, arrivals_in_order = case
    assembler = MessageAssembler(start=start)
    count = data.draw(st.integers(1, len(arrivals_in_order)))
    for arrival in arrivals_in_order[:count]:
        add_arrival(assembler, arrival, start, has_body)
    with pytest.raises(ProtocolError):
        add_arrival(assembler, data.draw(st.sampled_from(arrivals_in_order[:count])), start, has_body)


@given(arrivals(), st.integers(0, 11))
def test_a_stream_with_a_missing_message_is_not_complete(
    case: tuple[int, list[bool], list[tuple[str, int]]], missing_index: int
) -> None:
    start, has_body, arrivals_in_order = case
    assembler = MessageAssembler(start=start)
    missing = arrivals_in_order[missing_index % len(arrivals_in_order)]
    for arrival in arrivals_in_order:
        if arrival != missing:
            add_arrival(assembler, arrival, start, has_body)
    assert not assembler.is_complete
    if missing[0] != "end":
        assert f"message {(start + missing[1]) % 2**32}" in assembler.describe_missing_messages()


@given(
    st.lists(st.tuples(st.sampled_from(["metadata", "bare", "body", "end"]), st.integers(-5, 20)), max_size=30), starts
)
def test_any_sequence_of_events_is_a_stream_or_an_error_of_bowstring(events: list[tuple[str, int]], start: int) -> None:
    assembler = MessageAssembler(ProtocolLimits(max_pending_messages=8), start=start)
    expected = start
    for kind, offset in events:
        sequence = (start + offset) % 2**32
        try:
            if kind == "end":
                assembler.add_end(sequence)
                continue
            out = (
                assembler.add_body(sequence, body(0))
                if kind == "body"
                else assembler.add_metadata(sequence, b"h", kind == "metadata")
            )
        except BowstringError:
            break
        for message in out:
            assert message.sequence == expected
            expected = (expected + 1) % 2**32
        assert assembler.num_pending <= 8


def test_a_body_for_a_header_without_one_is_an_error_in_both_orders() -> None:
    assembler = MessageAssembler()
    assembler.add_body(0, body(0))
    with pytest.raises(ProtocolError, match="message 0, whose header has none"):
        assembler.add_metadata(0, b"h", False)
    assembler = MessageAssembler()
    assembler.add_metadata(1, b"h", False)
    with pytest.raises(ProtocolError, match="message 1, whose header has none"):
        assembler.add_body(1, body(1))


def test_messages_after_the_end_are_an_error_in_both_orders() -> None:
    assembler = MessageAssembler()
    assembler.add_end(2)
    with pytest.raises(ProtocolError, match="body 2 is after the end"):
        assembler.add_body(2, body(2))
    assembler = MessageAssembler()
    assembler.add_metadata(2, b"h", False)
    with pytest.raises(ProtocolError, match="message 2 came, but the end of stream has number 2"):
        assembler.add_end(2)


def test_an_end_before_delivered_messages_is_an_error() -> None:
    assembler = MessageAssembler()
    assembler.add_metadata(0, b"h", False)
    assembler.add_metadata(1, b"h", False)
    with pytest.raises(ProtocolError, match="number 1, but message 2 is the next one"):
        assembler.add_end(1)


def test_a_sequence_number_too_far_ahead_is_an_error_that_names_the_limit() -> None:
    assembler = MessageAssembler(ProtocolLimits(max_pending_messages=3))
    assembler.add_body(2, body(2))
    with pytest.raises(LimitError, match="body 3 is 3 messages ahead of message 0, max_pending_messages = 3"):
        assembler.add_body(3, body(3))


def test_pending_bytes_are_limited_but_not_the_size_of_a_complete_message() -> None:
    limits = ProtocolLimits(max_pending_bytes=100)
    assembler = MessageAssembler(limits)
    assembler.add_metadata(0, b"h", True)
    assert len(assembler.add_body(0, PackedBody.from_parts(bytes(1000)))) == 1
    with pytest.raises(LimitError, match="max_pending_bytes = 100"):
        assembler.add_body(1, PackedBody.from_parts(bytes(101)))

"""Metadata and bodies in any order of arrival come out in order, once, and each with its own."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from bowstring.dissociated.limits import Limits
from bowstring.dissociated.pairing import MessageAssembler, StreamMessage
from bowstring.dissociated.wire import PackedBody
from bowstring.errors import BowstringError, LimitError, ProtocolError

starts = st.sampled_from([0, 1, 2**31, 2**32 - 3, 2**32 - 1]) | st.integers(0, 2**32 - 1)


def header(position: int) -> bytes:
    return b"header %d" % position


def body(position: int) -> PackedBody:
    return PackedBody.of(b"body %d" % position)


@st.composite
def arrivals(draw: st.DrawFn) -> tuple[int, list[bool], list[tuple[str, int]]]:
    """A first number, which messages have bodies, and the order in which everything arrives."""
    has_body = draw(st.lists(st.booleans(), min_size=1, max_size=12))
    items = [("metadata", n) for n in range(len(has_body))] + [("end", len(has_body))]
    items += [("body", n) for n, has in enumerate(has_body) if has]
    return draw(starts), has_body, draw(st.permutations(items))


def arrive(pairing: MessageAssembler, item: tuple[str, int], start: int, has_body: list[bool]) -> list[StreamMessage]:
    kind, position = item
    sequence = (start + position) % 2**32
    if kind == "metadata":
        return pairing.add_metadata(sequence, header(position), has_body[position])
    if kind == "body":
        return pairing.add_body(sequence, body(position))
    pairing.add_end(sequence)
    return []


@given(arrivals())
def test_any_order_of_arrival_gives_the_stream(case: tuple[int, list[bool], list[tuple[str, int]]]) -> None:
    start, has_body, items = case
    pairing = MessageAssembler(start=start)
    out: list[StreamMessage] = []
    for item in items:
        assert not pairing.is_complete
        out += arrive(pairing, item, start, has_body)
    assert [message.sequence for message in out] == [(start + n) % 2**32 for n in range(len(has_body))]
    assert [message.header for message in out] == [header(n) for n in range(len(has_body))]
    for position, message in enumerate(out):
        found = message.body
        assert (found is not None) == has_body[position]
        if isinstance(found, PackedBody):
            assert found.parts == body(position).parts
    assert pairing.is_complete
    assert (pairing.num_pending, pairing.pending_bytes) == (0, 0)


@given(arrivals(), st.data())
def test_whatever_arrives_twice_is_refused(
    case: tuple[int, list[bool], list[tuple[str, int]]], data: st.DataObject
) -> None:
    start, has_body, items = case
    pairing = MessageAssembler(start=start)
    count = data.draw(st.integers(1, len(items)))
    for item in items[:count]:
        arrive(pairing, item, start, has_body)
    with pytest.raises(ProtocolError):
        arrive(pairing, data.draw(st.sampled_from(items[:count])), start, has_body)


@given(arrivals(), st.integers(0, 11))
def test_without_one_message_the_stream_is_never_complete(
    case: tuple[int, list[bool], list[tuple[str, int]]], lost: int
) -> None:
    start, has_body, items = case
    pairing = MessageAssembler(start=start)
    missing = items[lost % len(items)]
    for item in items:
        if item != missing:
            arrive(pairing, item, start, has_body)
    assert not pairing.is_complete
    if missing[0] != "end":
        assert f"message {(start + missing[1]) % 2**32}" in pairing.missing()


@given(
    st.lists(st.tuples(st.sampled_from(["metadata", "bare", "body", "end"]), st.integers(-5, 20)), max_size=30), starts
)
def test_any_sequence_of_events_is_a_stream_or_a_clean_error(events: list[tuple[str, int]], start: int) -> None:
    pairing = MessageAssembler(Limits(max_unpaired_messages=8), start=start)
    expected = start
    for kind, offset in events:
        sequence = (start + offset) % 2**32
        try:
            if kind == "end":
                pairing.add_end(sequence)
                continue
            out = (
                pairing.add_body(sequence, body(0))
                if kind == "body"
                else pairing.add_metadata(sequence, b"h", kind == "metadata")
            )
        except BowstringError:
            break
        for message in out:
            assert message.sequence == expected
            expected = (expected + 1) % 2**32
        assert pairing.num_pending <= 8


def test_a_body_for_a_header_without_one_is_refused_in_both_orders() -> None:
    pairing = MessageAssembler()
    pairing.add_body(0, body(0))
    with pytest.raises(ProtocolError, match="message 0, whose header has none"):
        pairing.add_metadata(0, b"h", False)
    pairing = MessageAssembler()
    pairing.add_metadata(1, b"h", False)
    with pytest.raises(ProtocolError, match="message 1, whose header has none"):
        pairing.add_body(1, body(1))


def test_what_comes_after_the_end_is_refused_in_both_orders() -> None:
    pairing = MessageAssembler()
    pairing.add_end(2)
    with pytest.raises(ProtocolError, match="body 2 lies after the end"):
        pairing.add_body(2, body(2))
    pairing = MessageAssembler()
    pairing.add_metadata(2, b"h", False)
    with pytest.raises(ProtocolError, match="message 2 came, but the end of stream has number 2"):
        pairing.add_end(2)


def test_an_end_that_lies_behind_is_refused() -> None:
    pairing = MessageAssembler()
    pairing.add_metadata(0, b"h", False)
    pairing.add_metadata(1, b"h", False)
    with pytest.raises(ProtocolError, match="number 1, but message 2 is the next one"):
        pairing.add_end(1)


def test_running_too_far_ahead_is_refused_with_the_limit_named() -> None:
    pairing = MessageAssembler(Limits(max_unpaired_messages=3))
    pairing.add_body(2, body(2))
    with pytest.raises(LimitError, match="body 3 is 3 messages ahead of message 0, max_unpaired_messages = 3"):
        pairing.add_body(3, body(3))


def test_too_many_waiting_bytes_are_refused_but_one_big_complete_message_is_not() -> None:
    limits = Limits(max_unpaired_bytes=100)
    pairing = MessageAssembler(limits)
    pairing.add_metadata(0, b"h", True)
    assert len(pairing.add_body(0, PackedBody.of(bytes(1000)))) == 1
    with pytest.raises(LimitError, match="max_unpaired_bytes = 100"):
        pairing.add_body(1, PackedBody.of(bytes(101)))

"""Decode the entries of recordings: messages that no server of Bowstring would send or receive."""

from __future__ import annotations

import pytest

from bowstring.sharing.recording.trace import decode_trace
from bowstring.transports.observer import EventDirection, ObservedEvent, ObservedEventKind


@pytest.mark.parametrize(
    ("parameters", "tag", "kind"),
    [
        ("want_data=1", None, "invalid"),
        ("want_data=1&free_data=2", None, "invalid"),
        ("want_data=1&free_data=2", 2, "free_data"),
        ("want_data=1&free_data=2", 1, "want_data"),
        ("want_data=1&free_data=2", 3, "invalid"),
    ],
)
def test_a_message_of_a_client_is_what_its_tag_means(parameters: str, tag: int | None, kind: str) -> None:
    sent = EventDirection.SENT
    entries = [
        ObservedEvent(0, 0, sent, ObservedEventKind.CONNECTION, 0, text=f"unix:@server?{parameters}"),
        ObservedEvent(1, 0, sent, ObservedEventKind.MESSAGE, 0, tag=tag, length_bytes=16, parts=(bytes(16),)),
    ]
    _, message = decode_trace(entries)
    assert message.kind == kind

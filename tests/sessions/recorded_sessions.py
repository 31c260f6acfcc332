"""Recorded sessions of the protocol: the JSON files in `data`, which need no Python.

`data/README.md` describes the format, for implementations in any language.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from bowstring.arrays.table import Table
from bowstring.dissociated.uri import StreamURI
from bowstring.ipc.api import open_file
from bowstring.transports.observer import EventDirection, ObservedEvent, ObservedEventKind

SESSIONS_FOLDER = Path(__file__).parent / "data"


@dataclass(frozen=True, slots=True)
class SessionEntry:
    """A message, a region, or the end of a connection."""

    sender: str
    kind: str
    note: str
    tag: int | None
    body: bytes
    address: int | None
    connection: int

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> SessionEntry:
        """Return the entry of a JSON object."""
        return cls(
            document["sender"],
            document["kind"],
            document["note"],
            _parse_tag(document["tag"]),
            bytes.fromhex(document["body"]),
            document["address"],
            document["connection"],
        )


@dataclass(frozen=True, slots=True)
class RecordedSession:
    """A session between a client and a server; the attributes are the members of its file."""

    name: str
    purpose: str
    sides: tuple[str, ...]
    is_ordered: bool
    first_sequence: int
    compression: str | None
    want_data: tuple[int, ...]
    free_data: int | None
    error_data: int
    rows: list[dict[str, Any]] | None
    error: str | None
    entries: tuple[SessionEntry, ...]

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> RecordedSession:
        """Return the session of the object in a JSON file."""
        error_data = _parse_tag(document["error_data"])
        assert document["format_version"] == 1
        assert error_data is not None
        return cls(
            document["name"],
            document["purpose"],
            tuple(document["sides"]),
            document["is_ordered"],
            document["first_sequence"],
            document["compression"],
            tuple(int(tag, 16) for tag in document["want_data"]),
            _parse_tag(document["free_data"]),
            error_data,
            document["rows"],
            document["error"],
            tuple(map(SessionEntry.from_json, document["entries"])),
        )

    @property
    def num_connections(self) -> int:
        """The number of connections, which the client opens in the order of their indices."""
        return 1 + max(entry.connection for entry in self.entries)

    @property
    def has_addresses(self) -> bool:
        """Whether a body consists of addresses: the server has to export memory."""
        return any(entry.kind == "region" for entry in self.entries)

    def to_recording(self) -> list[ObservedEvent]:
        """Return the session as a recording of its client, for `tests.sessions.replay`."""
        entries: list[ObservedEvent] = []
        for connection in range(self.num_connections):
            tag = self.want_data[min(connection, len(self.want_data) - 1)]
            uri = StreamURI("session", "", tag, self.free_data, None, (("error_data", str(self.error_data)),))
            entries.append(
                ObservedEvent(0, connection, EventDirection.SENT, ObservedEventKind.CONNECTION, 0, text=str(uri))
            )
        if len(self.want_data) == 1:  # a later connection begins after the end of an earlier one
            entries = entries[:1]
        for entry in self.entries:
            if all(entry.connection != other.connection for other in entries):
                entries.append(replace(entries[0], connection=entry.connection))
            direction = EventDirection.SENT if entry.sender == "client" else EventDirection.RECEIVED
            kind, length_bytes = ObservedEventKind(entry.kind), len(entry.body)
            if entry.kind == "close" and entry.sender == "server":
                kind = ObservedEventKind.LOSS
            parts, address = (entry.body,), entry.address
            entries.append(
                ObservedEvent(0, entry.connection, direction, kind, 0, entry.tag, address, length_bytes, parts)
            )
        return entries


def _parse_tag(text: str | None) -> int | None:
    return None if text is None else int(text, 16)


@cache
def recorded_sessions() -> tuple[RecordedSession, ...]:
    """Return all sessions, in the order of their names."""
    return tuple(
        RecordedSession.from_json(json.loads(path.read_text(encoding="utf-8")))
        for path in sorted(SESSIONS_FOLDER.glob("*.json"))
    )


def numbers_table() -> Table:
    """Return the data set `numbers`, which a server under test has to serve."""
    with open_file(SESSIONS_FOLDER / "numbers.arrow") as reader:
        return reader.read_all()

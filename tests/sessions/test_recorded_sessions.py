"""The recorded sessions, with our own client and server, and their files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import bowstring as bs
from bowstring.dissociated.client import ClientStream
from bowstring.dissociated.events import StreamMessage
from bowstring.dissociated.messages import PackedBody
from bowstring.ipc.stream import Decoder, Encoder
from bowstring.memory.buffer import Buffer
from bowstring.sharing import ServerOptions
from tests.sessions.recorded_sessions import SESSIONS_FOLDER, RecordedSession, numbers_table, recorded_sessions
from tests.sessions.session_conformance import ClientConformance, ServerConformance


class TestUnixClient(ClientConformance):
    def read(self, uri: str) -> list[dict[str, Any]]:
        with bs.connect(uri, timeout_s=20) as dataset:
            return dataset.read_all().to_pylist()


class TestUnixServer(ServerConformance):
    scheme = "unix"

    @contextmanager
    def serve(self, *, has_addresses: bool) -> Iterator[str]:
        options = ServerOptions(inline_bytes=0 if has_addresses else 1 << 14)
        with bs.serve({"numbers": numbers_table()}, options=options, scheme=self.scheme) as server:
            yield server.uri("numbers")


def find_session(name: str) -> RecordedSession:
    return next(each for each in recorded_sessions() if each.name == name)


def read_without_io(own: RecordedSession, **options: Any) -> bs.Table:
    """Read the table of a session with bodies of bytes; `options` are those of the client."""
    decoder = Decoder()
    received = [entry for entry in own.entries if (entry.sender, entry.kind) == ("server", "message")]
    headers = {entry.body[5:] for entry in received if "header of a batch" in entry.note}
    client = ClientStream(1, 2, has_body=lambda header: bytes(header) in headers, **options)
    client.request(b"numbers")
    events = [event for entry in received for event in client.receive(entry.tag, entry.body)]
    batches = []
    for message in (event for event in events if isinstance(event, StreamMessage)):
        body = Buffer.of(message.body.parts[0] if isinstance(message.body, PackedBody) else b"")
        batches.append(decoder.decode(bytes(message.header), body))
    assert client.is_complete
    return bs.Table.from_batches([batch for batch in batches if batch is not None])


def test_a_client_of_an_unordered_transport_accepts_metadata_in_any_order() -> None:
    assert read_without_io(find_session("out-of-order"), in_order=False) == numbers_table()


def test_a_client_that_begins_at_the_first_number_of_a_session_reads_through_the_roll_over() -> None:
    own = find_session("roll-over")
    assert own.first_sequence == 0xFFFFFFFE
    tags = [entry.tag for entry in own.entries if entry.sender == "server" and entry.tag is not None]
    assert tags == [0xFFFFFFFF, 0]
    assert read_without_io(own, first_sequence=own.first_sequence) == numbers_table()


def test_the_sessions_have_dictionaries_that_grow_or_change_and_both_codecs() -> None:
    dictionaries = [entry.note for entry in find_session("dictionary-delta").entries if "dictionary 0" in entry.note]
    assert [", a delta" in note for note in dictionaries] == [False, True]
    replacements = [
        entry.note for entry in find_session("dictionary-replacement").entries if "dictionary 0" in entry.note
    ]
    assert [", a delta" in note for note in replacements] == [False, False]
    (lz4_body,) = (
        entry.body for entry in find_session("compressed-lz4").entries if entry.tag == 1 and entry.sender == "server"
    )
    (zstd_body,) = (
        entry.body for entry in find_session("compressed-zstd").entries if entry.tag == 1 and entry.sender == "server"
    )
    assert b"\x04\x22\x4d\x18" in lz4_body  # the magic number of an LZ4 frame
    assert b"\x28\xb5\x2f\xfd" in zstd_body


def test_every_session_is_described_and_expects_rows_or_an_error() -> None:
    text = (SESSIONS_FOLDER / "README.md").read_text(encoding="utf-8")
    members = set(re.findall(r"`([a-z_]+)`", "\n".join(re.findall(r"^\| (`.*?) \|", text, re.MULTILINE))))
    sessions = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(SESSIONS_FOLDER.glob("*.json"))]
    assert len(sessions) == 49
    for session in sessions:
        assert session.keys() | set().union(*session["entries"]) <= members
        assert (session["rows"] is None) != (session["error"] is None) or session["sides"] == ["server"]
        assert all(entry["note"] for entry in session["entries"])
    errors = {session["error"] for session in sessions} - {None}
    assert all(f"| `{error}` |" in text for error in errors)


def test_the_file_of_the_served_table_has_the_rows_of_the_sessions() -> None:
    assert numbers_table().to_pylist() == find_session("bytes").rows
    assert [batch.num_rows for batch in numbers_table().to_batches()] == [3, 3]


def test_the_metadata_of_the_sessions_are_what_is_written_now() -> None:
    """Recorded bytes that are not up to date would still be valid, but test less."""
    encoder = Encoder(numbers_table().schema)
    written = [encoder.encode_schema_message().metadata]
    written += [message.metadata for batch in numbers_table().to_batches() for message in encoder.encode_batch(batch)]
    recorded = [
        e.body for e in find_session("bytes").entries if (e.sender, e.tag, e.kind) == ("server", None, "message")
    ]
    assert [body[5:] for body in recorded[:-1]] == [bytes(metadata) for metadata in written]


def test_the_page_of_the_protocol_names_only_sessions_that_exist(repository: Path) -> None:
    page = (repository / "docs" / "explanation" / "dissociated.md").read_text(encoding="utf-8")
    page = page.partition("## What the specification leaves open")[2].partition("\n## ")[0]
    names = {name for group in re.findall(r"\((`[^()]+`)\)", page) for name in re.findall(r"`([^`]+)`", group)}
    assert len(names) > 15
    assert names <= {session.name for session in recorded_sessions()}

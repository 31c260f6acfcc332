"""Recordings of servers and clients: what they contain, and what is left of them if a process is killed."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bowstring as bs
from bowstring.dissociated.messages import decode_addresses
from bowstring.errors import (
    BowstringError,
    ConnectionLostError,
    FormatMismatchError,
    InvalidDataError,
    MissingFileError,
    NoDataError,
    ResourceError,
)
from bowstring.sharing import Recorder, ServerOptions, read_entries, read_recording
from bowstring.transports.base import TransportOptions
from bowstring.transports.observer import ObservedEvent
from bowstring.transports.regions import decode_region_address
from bowstring.transports.sockets.unix import UNIX
from bowstring_testing.transport_conformance import connect_pair
from tests.polling import wait_until
from tests.transports.observed_transport import ObservedTransport

TABLE = bs.Table.from_batches([bs.record_batch({"n": range(start, start + 3000)}) for start in (0, 3000)])
KILLED_SERVER = """
import os, signal, sys
import bowstring as bs
from bowstring.sharing import Recorder, ServerOptions

class Killed(Recorder):
    def write_event(self, entry):
        super().write_event(entry)
        if (entry.direction, entry.kind, entry.index) == ("sent", "message", 2):
            os.kill(os.getpid(), signal.SIGKILL)

batches = [bs.record_batch({"n": range(5000)})] * 3
with bs.serve({"n": bs.Table.from_batches(batches)}, options=ServerOptions(record=Killed(sys.argv[1]))) as server:
    print(server.uri("n"), flush=True)
    sys.stdin.read()
"""

FORKING_PROCESS = """
import os, sys
from bowstring.sharing import Recorder
from bowstring_testing.transport_conformance import connect_pair
from bowstring.transports.sockets.unix import UNIX
from tests.transports.observed_transport import ObservedTransport

with Recorder(sys.argv[1]) as recorder:
    one, other = connect_pair(ObservedTransport(UNIX, recorder.write_event))
    with one, other:
        child = os.fork()
        if not child:
            one.channel.submit([b"of the child"])
            recorder.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        one.send([b"of the parent"])
"""


def describe_entries(entries: list[ObservedEvent], kinds: str = "message") -> list[tuple[str, str, int | None, int]]:
    return [(e.direction, e.kind, e.tag, e.length_bytes) for e in entries if e.kind in kinds.split()]


def message_bytes(entries: list[ObservedEvent], direction: str) -> list[tuple[int | None, bytes]]:
    return [(e.tag, e.to_bytes()) for e in entries if (e.direction, e.kind) == (direction, "message")]


def record_both_ends(tmp_path: Path, scheme: str, **options: Any) -> tuple[list[ObservedEvent], list[ObservedEvent]]:
    """The recordings of a client that reads `TABLE`, and of its server."""
    client_path, server_path = tmp_path / "client", tmp_path / "server"
    server_options = ServerOptions(record=server_path)
    with bs.serve({"t": TABLE}, options=server_options, scheme=scheme) as server:
        with bs.connect(server.uri("t"), record=client_path, **options) as dataset:
            assert dataset.read_all() == TABLE
        assert wait_until(lambda: not server.num_clients)
    return read_recording(client_path), read_recording(server_path)


def test_both_ends_record_the_same_messages_and_memory(tmp_path: Path) -> None:
    client, server = record_both_ends(tmp_path, "unix")
    assert message_bytes(client, "sent")[0] == (1, b"t")
    assert message_bytes(client, "sent") == message_bytes(server, "received")
    assert message_bytes(client, "received") == message_bytes(server, "sent")
    (client_region,), (server_region,) = ([e for e in entries if e.kind == "region"] for entries in (client, server))
    assert client_region.to_bytes() == server_region.to_bytes()
    assert (client_region.address, client_region.text) == (server_region.address, "sealed memory")
    bodies = [decode_addresses(e.view()) for e in client if (e.tag or 0) >> 56 == 1]
    for number, body in enumerate(bodies):
        (_, offset), length = decode_region_address(int(body.addresses[-1])), int(body.lengths[-1])
        values = client_region.view()[offset : offset + length].cast("q")
        assert values.tolist() == list(range(number * 3000, number * 3000 + 3000))
    freed = [e.to_bytes() for e in client if e.tag == 2]
    assert sum(map(len, freed)) == 8 * sum(body.addresses.size for body in bodies)
    for entries, first in ((client, "sent"), (server, "received")):
        assert (entries[0].direction, entries[0].kind) == (first, "connection")
        assert entries[0].text.startswith("unix:")
        assert "want_data=1&free_data=2&error_data=" in entries[0].text
        assert "ticket=" not in entries[0].text
        assert entries[-1].kind == "close"
        assert all(a.time_ns <= b.time_ns for a, b in pairwise(entries))


def test_bodies_sent_as_bytes_are_recorded(tmp_path: Path) -> None:
    client, server = record_both_ends(tmp_path, "tcp")
    bodies = [entry for entry in client if entry.tag in (1, 2) and entry.direction == "received"]
    assert [e.to_bytes() for e in bodies] == [e.to_bytes() for e in server if e.tag in (1, 2) and e.direction == "sent"]
    assert [e.length_bytes for e in bodies] == [24_000, 24_000]
    assert not describe_entries(client, "region")


def test_the_contents_of_regions_can_be_left_out(tmp_path: Path) -> None:
    with bs.serve({"t": TABLE}) as server, Recorder(tmp_path / "r", has_region_contents=False) as recorder:
        with bs.connect(server.uri("t"), record=recorder) as dataset:
            assert dataset.read_all() == TABLE
        with bs.connect(server.uri("t"), record=recorder) as dataset:
            assert dataset.read_all() == TABLE
    entries = read_recording(tmp_path / "r")
    regions = [entry for entry in entries if entry.kind == "region"]
    assert [entry.connection for entry in regions] == [0, 1]
    assert not any(entry.parts for entry in regions)
    assert all(entry.length_bytes > 48_000 for entry in regions)
    assert (tmp_path / "r").stat().st_size < 90_000


def test_other_arrow_implementations_read_recordings(tmp_path: Path) -> None:
    record_both_ends(tmp_path, "unix")
    with pa.ipc.open_stream(tmp_path / "client") as reader:
        table = reader.read_all()
    entries = read_recording(tmp_path / "client")
    rows = table.to_pylist()
    assert len(rows) == len(entries)
    assert [(r["time_ns"], r["kind"], r["tag"], r["length_bytes"]) for r in rows] == [
        (e.time_ns, e.kind, e.tag, e.length_bytes) for e in entries
    ]
    assert [r["body"] for r in rows if r["body"] is not None] == [
        e.to_bytes() for e in entries if e.kind in ("message", "region")
    ]


def test_a_killed_process_leaves_a_recording_of_what_it_sent(tmp_path: Path) -> None:
    path = tmp_path / "recording"
    with subprocess.Popen(
        [sys.executable, "-c", KILLED_SERVER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        with pytest.raises(ConnectionLostError):
            bs.connect(server.stdout.readline().strip()).read_all()
        assert server.wait(20) == -signal.SIGKILL
    entries = read_recording(path)
    assert [step[:3] for step in describe_entries(entries)] == [
        ("received", "message", 1),
        ("sent", "message", None),
        ("sent", "message", None),
        ("sent", "message", 1 << 56 | 1),
    ]


def test_a_recording_is_readable_up_to_its_last_complete_entry_wherever_it_is_cut(tmp_path: Path) -> None:
    record_both_ends(tmp_path, "unix")
    whole = (tmp_path / "client").read_bytes()
    entries = read_recording(whole)
    lengths = {len(read_recording(whole[:size])) for size in [*range(2000, len(whole), 97), len(whole)]}
    assert lengths == set(range(min(lengths), len(entries) + 1))
    iterator = read_entries(whole[: len(whole) // 2])
    with pytest.raises(bs.errors.TruncatedError):
        list(iterator)


def test_only_the_user_can_read_a_recording(tmp_path: Path) -> None:
    with Recorder(tmp_path / "r"):
        assert stat.S_IMODE((tmp_path / "r").stat().st_mode) == 0o600


def test_a_path_that_cannot_be_written_is_an_error_and_nothing_is_served(tmp_path: Path) -> None:
    for path, error in ((tmp_path / "missing" / "r", MissingFileError), (tmp_path, bs.errors.IsDirectoryError)):
        with pytest.raises(error, match=path.name):
            bs.serve({"t": TABLE}, options=ServerOptions(record=path))
        with bs.serve({"t": TABLE}) as server, pytest.raises(error, match=path.name):
            bs.connect(server.uri("t"), record=path)


def test_a_recording_that_cannot_be_continued_ends_the_connection(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with bs.serve({"t": TABLE}) as server, Recorder(tmp_path / "pipe", has_region_contents=False) as recorder:
        bs.connect(server.uri("t"), record=recorder).close()
        os.close(reader)
        with pytest.raises(BowstringError, match="pipe"):
            bs.connect(server.uri("t"), record=recorder)
        with bs.connect(server.uri("t"), record=recorder) as other:  # not recorded
            assert other.read_all() == TABLE
    with pytest.raises(ResourceError, match="/dev/full"):
        Recorder("/dev/full")


def test_a_forked_child_does_not_write_to_the_recording(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", FORKING_PROCESS, str(tmp_path / "r")], check=True, timeout=60)
    assert message_bytes(read_recording(tmp_path / "r"), "sent") == [(None, b"of the parent")]


def test_several_threads_record_complete_entries(tmp_path: Path) -> None:
    with Recorder(tmp_path / "r") as recorder:
        one, other = connect_pair(ObservedTransport(UNIX, recorder.write_event), TransportOptions(timeout_s=20))
        with one, other:

            def send() -> None:
                for number in range(100):
                    one.send([bytes([number]) * number], tag=number)

            sender = threading.Thread(target=send)
            sender.start()
            received = [other.receive() for _ in range(100)]
            sender.join()
    assert len(received) == 100
    for direction in ("sent", "received"):
        assert message_bytes(read_recording(tmp_path / "r"), direction) == [(n, bytes([n]) * n) for n in range(100)]


def test_other_streams_are_not_recordings(tmp_path: Path) -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema({"n": pa.int8()})):
        pass
    with pytest.raises(InvalidDataError, match=r"expected a recording with bowstring\.recording = 1"):
        read_recording(sink.getvalue())
    record_both_ends(tmp_path, "unix")
    with pytest.raises(InvalidDataError, match="entry 0: 'upwards' is not a valid EventDirection"):
        read_recording(_replace_column(tmp_path / "client", "direction", "upwards"))


@pytest.mark.parametrize("name", ["time_ns", "connection", "direction", "kind", "length_bytes", "text"])
def test_a_recording_with_nulls_is_an_error(tmp_path: Path, name: str) -> None:
    record_both_ends(tmp_path, "unix")
    with pytest.raises(InvalidDataError, match=f"recording, column '{name}': expected no nulls, found"):
        read_recording(_replace_column(tmp_path / "client", name, None))


def _replace_column(path: Path, name: str, value: str | None) -> bytes:
    """The recording with one value in all rows of a column."""
    with pa.ipc.open_stream(path) as reader:
        table = reader.read_all()
    index = table.schema.get_field_index(name)
    field = table.schema.field(index)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.set_column(index, field, pa.array([value] * len(table), field.type)))
    return bytes(sink.getvalue())


def test_another_format_is_named_as_no_recording(tmp_path: Path) -> None:
    batch = bs.record_batch({"n": [1]})
    with (
        bs.new_file(tmp_path / "people.arrow", batch.schema) as file,
        bs.new_stream(tmp_path / "people.arrows", batch.schema) as stream,
    ):
        file.write(batch)
        stream.write(batch)
    (tmp_path / "people.csv").write_bytes(b"a,b\n1,2\n")
    for name, actual in (
        ("people.arrow", "an Arrow file"),
        ("people.arrows", "an Arrow stream without it"),
        ("people.csv", "text, perhaps CSV"),
    ):
        with pytest.raises(FormatMismatchError, match=f"expected a recording.*, found {actual}") as caught:
            read_recording(tmp_path / name)
        assert caught.value.__notes__[-1].endswith("fetch --record write recordings")
    with pytest.raises(NoDataError, match="expected a recording, but it is empty"):
        list(read_entries(b""))

"""Observed transports: they behave like the ones that they wrap, and report what passes."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import bowstring as bs
from bowstring.errors import ConnectionLostError
from bowstring.memory.region import FileRange, Region
from bowstring.transports.base import (
    Channel,
    Listener,
    MemoryExporter,
    Transport,
    TransportOptions,
)
from bowstring.transports.observer import ObservedEvent, ObservedEventKind
from bowstring.transports.regions import encode_region_address
from bowstring.transports.registry import TRANSPORTS
from bowstring.transports.sockets.unix import UNIX
from bowstring_testing.transport_conformance import TransportConformance, connect_pair
from tests.transports import observed_transport
from tests.transports.blocking import flush, retire
from tests.transports.conformance import RegionConformance, StreamConformance
from tests.transports.observed_transport import ObservedTransport

OPTIONS = TransportOptions(timeout_s=20)

SERVER = """
import os, signal, sys
import bowstring as bs
from tests.transports.conformance import RegionConformance, StreamConformance
from tests.transports.observed_transport import ObservedTransport
from bowstring.transports.registry import TRANSPORTS
from bowstring.transports.sockets.unix import UNIX

def kill_before_the_second_body(entry):
    if (entry.direction, entry.kind) == ("sent", "message") and (entry.tag or 0) & 0xFFFFFFFF == 2:
        os.kill(os.getpid(), signal.SIGKILL)

TRANSPORTS["unix"] = ObservedTransport(UNIX, kill_before_the_second_body, is_stepwise=True)
batches = [bs.record_batch({"n": list(range(5000))})] * 3
with bs.serve({"numbers": bs.Table.from_batches(batches)}) as server:
    print(server.uri("numbers"), flush=True)
    sys.stdin.read()
"""


class TestObservedUnix(TransportConformance, StreamConformance, RegionConformance):
    transport = ObservedTransport(UNIX, lambda _entry: None)


def describe_entries(entries: list[ObservedEvent]) -> list[tuple[str, str, int | None, int | None, int]]:
    return [(entry.direction, entry.kind, entry.tag, entry.address, entry.length_bytes) for entry in entries]


def test_both_ends_report_connections_messages_regions_and_the_end() -> None:
    entries: list[ObservedEvent] = []
    contents: list[bytes] = []

    def observe(entry: ObservedEvent) -> None:
        entries.append(entry)
        contents.append(entry.to_bytes())

    one, other = connect_pair(ObservedTransport(UNIX, observe), OPTIONS)
    with one, other, Region.copy_of([b"region"]) as region:
        one.send([b"plain ", b"message"])
        exported = one.export(region)
        one.send([bytes(40_000)], tag=7)
        retire(one, exported)
        one.send([b"last"])
        received = [bytes(other.receive().data) for _ in range(3)]
        one.close()
        with pytest.raises(ConnectionLostError):
            other.receive()
    assert received == [b"plain message", bytes(40_000), b"last"]
    by_connection = [[entry for entry in entries if entry.connection == index] for index in (0, 1)]
    passed = [
        ("message", None, None, 13),
        ("region", None, encode_region_address(0, 0), 6),
        ("message", 7, None, 40_000),
        ("retirement", None, encode_region_address(0, 0), 0),
        ("message", None, None, 4),
    ]
    assert describe_entries(by_connection[0]) == [
        ("sent", "connection", None, None, 0),
        *(("sent", *step) for step in passed),
        ("sent", "close", None, None, 0),
    ]
    passed.insert(2, ("offer", 7, None, 40_000))
    assert describe_entries(by_connection[1]) == [
        ("received", "connection", None, None, 0),
        *(("received", *step) for step in passed),
        ("received", "loss", None, None, 0),
        ("sent", "close", None, None, 0),
    ]
    for content, entry in zip(contents, entries, strict=True):
        assert len(content) == (entry.length_bytes if entry.kind in ("message", "region") else 0)
    assert contents.count(b"region") == contents.count(b"plain message") == contents.count(b"last") == 2
    assert [entry.index for entry in entries if (entry.direction, entry.kind) == ("sent", "message")] == [0, 1, 2]
    assert [entry.text for entry in entries if entry.kind == ObservedEventKind.REGION] == ["sealed memory"] * 2
    assert "ConnectionLostError" in next(entry.text for entry in entries if entry.kind == ObservedEventKind.LOSS)
    times = [entry.time_ns for entry in entries]
    assert times == sorted(times)


@pytest.mark.parametrize("interface", [Transport, Listener, Channel, MemoryExporter])
def test_observed_classes_override_every_default_of_their_interface(interface: type) -> None:
    (observed,) = (
        each
        for each in vars(observed_transport).values()
        if isinstance(each, type) and issubclass(each, interface) and each.__module__ == observed_transport.__name__
    )
    defaults = {name for name in vars(interface) if not name.startswith("_")}
    attributes = {*vars(observed), *observed.__init__.__code__.co_names}
    if "__annotations__" in attributes:
        attributes |= interface.__annotations__.keys()
    assert defaults - attributes == set()


def test_a_range_of_a_file_is_reported_with_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "bytes"
    path.write_bytes(b"some bytes of a file")
    contents: list[bytes] = []

    def observe(entry: ObservedEvent) -> None:
        if entry.kind == ObservedEventKind.MESSAGE:
            contents.append(entry.to_bytes())

    one, other = connect_pair(ObservedTransport(TRANSPORTS["tcp"], observe), OPTIONS)
    with one, other, Region.from_file(path) as region:
        parts: list[Any] = [FileRange(region, 5, 5)]
        one.channel.submit(parts, 1)
        flush(one)
        assert bytes(other.receive().data) == b"bytes"
    assert contents == [b"bytes", b"bytes"]


def test_an_error_of_the_observer_is_raised_by_the_channel() -> None:
    def refuse(entry: ObservedEvent) -> None:
        if entry.kind == ObservedEventKind.MESSAGE:
            raise ConnectionLostError(f"refused {entry.direction} message {entry.index}")

    one, other = connect_pair(ObservedTransport(UNIX, refuse), OPTIONS)
    with one, other, pytest.raises(ConnectionLostError, match="refused sent message 0"):
        one.send([b"text"])


def test_a_server_can_be_killed_before_a_certain_message_leaves_it() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        with bs.connect(server.stdout.readline().strip()) as dataset:
            batches = iter(dataset)
            assert next(batches).num_rows == 5000
            with pytest.raises(ConnectionLostError):
                next(batches)
        assert server.wait(20) == -signal.SIGKILL

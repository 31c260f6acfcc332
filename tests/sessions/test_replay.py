"""Recordings played against our own clients and servers, on the transport of the recording and on others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import bowstring as bs
from bowstring.dissociated.uri import parse_uri
from bowstring.errors import InvalidArgumentError
from bowstring.sharing import Recorder, ServerOptions, read_recording
from bowstring.transports.observer import ObservedEvent
from bowstring_testing.descriptors import assert_descriptors_closed
from tests.polling import wait_until
from tests.sessions.recorded_sessions import numbers_table, recorded_sessions
from tests.sessions.replay import ReplayServer, replay_client

TABLE = bs.Table.from_batches(
    [bs.record_batch({"n": range(start, start + 3000), "s": ["text", None, ""] * 1000}) for start in (0, 3000)]
)
OTHER_TABLE = bs.Table.from_batches(
    [TABLE.to_batches()[0], bs.record_batch({"n": [0] * 3000, "s": ["text", None, ""] * 1000})]
)


def record_session(path: Path, side: str, scheme: str = "unix", reads: int = 1, **options: Any) -> list[ObservedEvent]:
    """Record one side of a client that reads `TABLE`."""
    server_options = ServerOptions(record=path if side == "server" else None)
    with bs.serve({"t": TABLE}, options=server_options, scheme=scheme) as server:
        with bs.connect(server.uri("t"), record=path if side == "client" else None, **options) as dataset:
            for _ in range(reads):
                assert dataset.read_all() == TABLE
        assert wait_until(lambda: not server.num_clients)
    return read_recording(path)


@pytest.mark.parametrize("side", ["client", "server"])
@pytest.mark.parametrize(("scheme", "played"), [("unix", "unix"), ("tcp", "unix")])
def test_a_client_reads_a_played_recording_as_it_read_the_server(
    tmp_path: Path, side: str, scheme: str, played: str
) -> None:
    entries = record_session(tmp_path / "r", side, scheme, reads=2)
    with assert_descriptors_closed(), ReplayServer(entries, scheme=played, timeout_s=20) as server:
        with bs.connect(server.uri("t")) as dataset:
            assert dataset.read_all() == TABLE
            assert dataset.read_all() == TABLE
        assert server.wait_for_differences() == []


@pytest.mark.parametrize("side", ["client", "server"])
@pytest.mark.parametrize(("scheme", "played"), [("unix", "unix"), ("tcp", "tcp")])
def test_a_server_answers_a_played_client_as_recorded(tmp_path: Path, side: str, scheme: str, played: str) -> None:
    entries = record_session(tmp_path / "r", side, scheme, reads=2)
    with bs.serve({"t": TABLE}, scheme=played) as server:
        assert replay_client(entries, server.uri("t"), timeout_s=20) == []
        assert wait_until(lambda: not server.num_clients)


def test_another_ticket_of_the_client_is_a_difference(tmp_path: Path) -> None:
    entries = record_session(tmp_path / "r", "client")
    with ReplayServer(entries, timeout_s=20) as server:
        with bs.connect(server.uri("other")) as dataset:
            assert dataset.read_all() == TABLE
        (difference,) = server.wait_for_differences()
    assert str(difference) == ("connection 0: expected want_data, data set 't', found want_data, data set 'other'")


def test_a_client_that_keeps_its_memory_frees_less_than_recorded(tmp_path: Path) -> None:
    entries = record_session(tmp_path / "r", "client")
    with ReplayServer(entries, timeout_s=20) as server:
        with bs.connect(server.uri("t")) as dataset:
            table = dataset.read_all()
        (difference,) = server.wait_for_differences()
    assert str(difference) == "connection 0: expected 8 more addresses to be freed, found the end"
    assert table == TABLE


def test_other_data_of_the_server_are_differences_by_message(tmp_path: Path) -> None:
    entries = record_session(tmp_path / "r", "client")
    with bs.serve({"t": OTHER_TABLE}) as server:
        differences = list(map(str, replay_client(entries, server.uri("t"), timeout_s=20)))
    assert differences == ["connection 0: expected body 2, buffer 1, found other bytes"]
    with bs.serve({"t": TABLE.to_batches()[0]}) as server:
        differences = list(map(str, replay_client(entries, server.uri("t"), timeout_s=1)))
    assert "connection 0: expected no such message, found end of stream of number 2" in differences
    assert "connection 0: expected metadata of number 2, found no such message" in differences
    assert any("DeadlineError" in difference for difference in differences)


def test_a_server_that_lacks_the_data_set_is_a_difference(tmp_path: Path) -> None:
    entries = record_session(tmp_path / "r", "client")
    with bs.serve({"x": TABLE}) as server:
        differences = list(map(str, replay_client(entries, server.uri("x"), timeout_s=20)))
    assert any("ConnectionLostError" in difference for difference in differences)


def test_a_recording_without_the_contents_of_regions_is_played_by_a_client_only(tmp_path: Path) -> None:
    with bs.serve({"t": TABLE}) as server, Recorder(tmp_path / "r", has_region_contents=False) as recorder:
        with bs.connect(server.uri("t"), record=recorder) as dataset:
            assert dataset.read_all() == TABLE
        assert replay_client(read_recording(tmp_path / "r"), server.uri("t"), timeout_s=20) == []
    with ReplayServer(read_recording(tmp_path / "r"), timeout_s=20) as played:
        with pytest.raises(bs.errors.ConnectionLostError):
            bs.connect(played.uri("t"))
        with pytest.raises(InvalidArgumentError, match="has no contents of regions"):
            played.wait_for_differences()


def test_addresses_that_are_freed_without_a_lease_are_a_difference(tmp_path: Path) -> None:
    entries = record_session(tmp_path / "r", "client")
    frees = [entry for entry in entries if entry.tag == 2 and entry.direction == "sent"]
    repeated = [each for entry in entries for each in ([entry, replace(entry)] if entry is frees[0] else [entry])]
    with ReplayServer(entries, timeout_s=20) as server:
        assert replay_client(repeated, server.uri("t"), timeout_s=20) == []
        assert any("which is not leased" in str(difference) for difference in server.wait_for_differences())


def test_both_connections_to_two_servers_are_recorded_and_played(tmp_path: Path) -> None:
    (session,) = (each for each in recorded_sessions() if each.name == "two-connections-addresses")
    entries = session.to_recording()
    for path in (tmp_path / "first", tmp_path / "second"):
        with ReplayServer(entries, timeout_s=20) as server:
            bodies = quote(server.uri("numbers", 1), safe="")
            with bs.connect(f"{server.uri('numbers')}&bodies={bodies}", record=path) as dataset:
                assert dataset.read_all() == numbers_table()
            assert server.wait_for_differences() == []
        entries = read_recording(path)
        texts = [entry.text for entry in entries if entry.kind == "connection"]
        assert [parse_uri(text).want_data for text in texts] == [3, 4]
        assert not any("numbers" in text for text in texts)

"""`bowstring trace`: a line for each recorded message, and the same as JSON."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

import bowstring as bs
from bowstring.cli.main import main
from bowstring.sharing import Recorder, ServerOptions
from bowstring.sharing.uris import create_server_uri
from bowstring.transports.base import TransportOptions
from bowstring.transports.sockets.unix import UNIX
from bowstring_testing.transport_conformance import connect_pair
from tests.cli.command_line import read_uri, run_command, run_with_pipe, running_server
from tests.transports.observed_transport import ObservedTransport

TABLE = bs.Table.from_batches([bs.record_batch({"n": range(start, start + 3000)}) for start in (0, 3000)])


def record_stream(path: Path, scheme: str = "unix", **options: Any) -> None:
    with (
        bs.serve({"numbers": TABLE}, scheme=scheme) as server,
        bs.connect(server.uri("numbers"), record=path, **options) as dataset,
    ):
        assert dataset.read_all() == TABLE


def traced_json(capsys: pytest.CaptureFixture[str], path: Path) -> dict[str, Any]:
    assert main(["trace", "--json", str(path)]) == 0
    loaded: dict[str, Any] = json.loads(capsys.readouterr().out)
    return loaded


def test_a_stream_of_addresses_is_shown_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record_stream(tmp_path / "r")
    assert main(["trace", str(tmp_path / "r")]) == 0
    lines = capsys.readouterr().out.splitlines()
    texts = [line.split(maxsplit=2)[2] for line in lines]
    assert texts[0].startswith("client  connects to unix:@")
    assert texts[1] == "client  want_data, data set 'numbers'"
    assert texts[2].startswith("server  region at 0x0000000000000000, ")
    assert texts[2].endswith(" bytes, sealed memory")
    assert texts[3].startswith("server  metadata 0, schema, ")
    assert texts[4].startswith("server  metadata 1, record batch, ")
    assert texts[5] == "server  body 1, addresses of 2 buffers with 24,000 bytes"
    assert "server  end of stream 3" in texts
    assert texts.count("client  free_data, 2 addresses") == 2
    assert texts[-1] == "client  closes the connection"
    times = [float(line.split()[0]) for line in lines]
    assert times == sorted(times)


def test_bodies_of_bytes_and_refusals_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record_stream(tmp_path / "r", "tcp")
    options = ServerOptions(record=tmp_path / "refused")
    with bs.serve({"a": TABLE}, options=options) as server, pytest.raises(bs.errors.NotFoundError):
        bs.connect(server.uri("a"), "absent\x1b[2J")
    assert main(["trace", str(tmp_path / "r")]) == 0
    assert main(["trace", str(tmp_path / "refused")]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "server  body 2, 24,000 bytes\n" in out
    assert "server  NotFoundError: the server has no data set 'absent" in out


def test_serve_and_fetch_record_what_trace_shows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with bs.new_file(tmp_path / "numbers.arrow", TABLE.schema) as writer:
        writer.write(TABLE)
    with running_server(tmp_path / "numbers.arrow", "--record", tmp_path / "server") as server:
        output = str(tmp_path / "copy.arrow")
        assert main(["fetch", read_uri(server), output, "--record", str(tmp_path / "client")]) == 0
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
    capsys.readouterr()
    for side in ("client", "server"):
        kinds = [entry["kind"] for entry in traced_json(capsys, tmp_path / side)["entries"]]
        assert kinds[0] == "connection"
        assert {"want_data", "region", "metadata", "body", "end_of_stream"} <= set(kinds)


def test_the_json_output_has_the_documented_keys(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], repository: Path
) -> None:
    record_stream(tmp_path / "r")
    entries = traced_json(capsys, tmp_path / "r")["entries"]
    page = (repository / "docs" / "reference" / "command-line.md").read_text(encoding="utf-8")
    section = page[page.index("## trace") :]
    assert not {key for key in {"source", "entries", *entries[0]} if f"`{key}`" not in section}
    assert not {entry["kind"] for entry in entries if f"`{entry['kind']}`" not in section}
    bodies = [entry for entry in entries if entry["kind"] == "body"]
    assert [(body["sequence"], body["body_type"], body["num_addresses"]) for body in bodies] == [(1, 1, 2), (2, 1, 2)]
    assert [entry["tag"] for entry in entries if entry["kind"] == "want_data"] == [1]
    assert [entry["sequence"] for entry in entries if entry["kind"] == "metadata"] == [0, 1, 2]
    assert sum(entry["num_addresses"] for entry in entries if entry["kind"] == "free_data") == 4


def test_client_and_server_record_the_same_senders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ServerOptions(record=tmp_path / "server")
    with (
        bs.serve({"a": TABLE}, options=options) as server,
        bs.connect(server.uri("a"), record=tmp_path / "client") as dataset,
    ):
        assert dataset.read_all() == TABLE
    messages = {"want_data", "metadata", "body", "end_of_stream"}
    both = [
        [(e["sender"], e["kind"], e["sequence"], e["text"]) for e in traced_json(capsys, tmp_path / side)["entries"]]
        for side in ("client", "server")
    ]
    one, other = ([step for step in steps if step[1] in messages] for steps in both)
    assert one == other
    assert {step[1] for step in one} == messages


def test_invalid_messages_are_shown_with_their_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Recorder(tmp_path / "r") as recorder:
        observed = ObservedTransport(
            UNIX, recorder.write_event, format_uri=lambda address: str(create_server_uri(address))
        )
        client, server = connect_pair(observed, TransportOptions(timeout_s=20))
        with client, server:
            client.send([b"?"], tag=77)
            client.send([b"three"], tag=2)
            server.send([b"\x07\0\0\0\0"])
            server.send([b"\x01\0\0\0\0garbage"])
            server.send([b""], tag=1 << 40)
            server.send([b"short"], tag=1 << 56)
            for end, count in ((server, 2), (client, 4)):
                for _ in range(count):
                    end.receive()
    assert main(["trace", str(tmp_path / "r")]) == 0
    lines = capsys.readouterr().out.splitlines()
    own = [line.split(maxsplit=2)[2] for line in lines if line.split()[1] == "0"]
    assert own[1] == "client  unknown message, tag 0x000000000000004d, 1 byte"
    assert own[2].startswith("client  invalid message, tag 0x0000000000000002, 5 bytes: <free_data> message: expected")
    assert own[3].startswith("server  invalid message, plain, 5 bytes: metadata message 0: expected type 0 or 1")
    assert own[4].startswith("server  metadata 0, unknown header (header")
    assert own[5].startswith("server  invalid message, tag 0x0000010000000000, 0 bytes: tag")
    assert own[6].startswith("server  invalid message, tag 0x0100000000000000, 5 bytes: body of addresses")


def test_a_truncated_recording_is_shown_up_to_its_last_entry(tmp_path: Path) -> None:
    record_stream(tmp_path / "r")
    whole = (tmp_path / "r").read_bytes()
    (tmp_path / "r").write_bytes(whole[:-100])
    process = run_command("trace", tmp_path / "r")
    assert (process.returncode, process.stderr.count(b"\n")) == (1, 1)
    assert process.stdout.count(b"\n") > 5
    piped = run_with_pipe(tmp_path / "r", "trace", "--json")
    assert piped.returncode == 1
    assert len(json.loads(piped.stdout)["entries"]) == process.stdout.count(b"\n")


def test_another_file_is_one_error_line(tmp_path: Path) -> None:
    with bs.new_stream(tmp_path / "x.arrows", TABLE.schema) as writer:
        writer.write(TABLE)
    process = run_command("trace", tmp_path / "x.arrows")
    assert (process.returncode, process.stdout, process.stderr.count(b"\n")) == (1, b"", 1)
    assert b"expected a recording" in process.stderr

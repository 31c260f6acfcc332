"""`bowstring fetch`, in its own process, from a server of the test."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq
import pytest

import bowstring as bs
from bowstring.cli.main import main
from bowstring.dissociated.server import ServerConnection
from bowstring.dissociated.uri import parse_uri
from bowstring.sharing.server.options import ServerOptions
from bowstring.sharing.server.server import Server
from bowstring.sharing.stored_parts import RegionPart
from bowstring.transports.blocking import BlockingChannel
from tests.cli.command_line import run_command, run_in_terminal
from tests.sharing.server.test_hostile import false_server, send_messages

TABLE = pa.table({"n": range(10_000), "text": [f"row {n}" for n in range(10_000)]}).replace_schema_metadata({"k": "v"})


@pytest.fixture
def server() -> Iterator[Server]:
    batches = TABLE.to_batches(1000)
    with bs.serve({"t": bs.table(pa.Table.from_batches(batches))}) as server_of_table:
        yield server_of_table


@pytest.mark.parametrize(
    ("name", "options", "is_stream"),
    [
        ("target.arrow", (), False),
        ("target.arrows", (), True),
        ("target.arrow", ("--to", "stream"), True),
        ("target", (), False),
    ],
)
def test_the_extension_determines_the_format(
    server: Server,
    tmp_path: Path,
    name: str,
    options: tuple[str, ...],
    is_stream: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    target = tmp_path / name
    assert main(["fetch", server.uri("t"), str(target), *options]) == 0
    assert capsys.readouterr() == ("", f"{target}: 10,000 rows, 2 columns\n")
    table = (pa.ipc.open_stream if is_stream else pa.ipc.open_file)(target).read_all()
    assert table.equals(TABLE, check_metadata=True)
    assert [len(chunk) for chunk in table["n"].chunks] == [1000] * 10


@pytest.mark.parametrize(
    ("name", "read"),
    [("t.parquet", pq.read_table), ("t.CSV", pa.csv.read_csv), ("t.jsonl", pa.json.read_json)],
    ids=["Parquet", "CSV", "JSON lines"],
)
def test_other_formats_are_written_by_extension(
    server: Server, tmp_path: Path, name: str, read: Callable[[Path], pa.Table]
) -> None:
    assert main(["fetch", server.uri("t"), str(tmp_path / name)]) == 0
    assert read(tmp_path / name).equals(TABLE)
    assert main(["fetch", server.uri("t"), str(tmp_path / name), "--to", "file"]) == 0
    assert pa.ipc.open_file(tmp_path / name).read_all() == TABLE


@pytest.mark.parametrize("name", ["t.parquet", "t.CSV", "t.jsonl", "t.arrow.gz"])
def test_a_name_of_another_format_is_rejected_and_its_file_stays(
    server: Server, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    target, source = tmp_path / name, tmp_path / "source.arrow"
    target.write_bytes(b"as before")
    assert main(["fetch", server.uri("t"), str(source)]) == 0
    capsys.readouterr()
    for arguments in (
        ["concat", source, "-o", target],
        ["recover", source, target],
        *([["fetch", server.uri("t"), target]] if name.endswith(".gz") else []),
    ):
        assert main(list(map(str, arguments))) == 2
        assert name in capsys.readouterr().err
    assert target.read_bytes() == b"as before"


def test_standard_output_gets_a_stream_and_standard_input_may_have_the_uri(server: Server) -> None:
    process = run_command("fetch", "-", input=server.uri("t").encode() + b"\n")
    assert (process.returncode, process.stderr) == (0, b"")
    assert pa.ipc.open_stream(process.stdout).read_all() == TABLE


def test_a_file_has_one_dictionary_for_all_batches(server: Server, tmp_path: Path) -> None:
    batches = [pa.record_batch({"d": pa.array(texts).dictionary_encode()}) for texts in (["a", "b"], ["c", "a"])]
    uri = server.add("d", bs.table(pa.Table.from_batches(batches)))
    assert main(["fetch", uri, str(tmp_path / "target.arrow")]) == 0
    assert pa.ipc.open_file(tmp_path / "target.arrow").read_all()["d"].to_pylist() == ["a", "b", "c", "a"]
    assert main(["fetch", uri, str(tmp_path / "target.arrows")]) == 0
    stream = pa.ipc.open_stream(tmp_path / "target.arrows")
    assert [value for batch in stream for value in batch["d"].to_pylist()] == ["a", "b", "c", "a"]


def test_a_ticket_overrides_that_of_the_uri(server: Server, tmp_path: Path) -> None:
    server.add("other", bs.table({"a": [1]}))
    assert main(["fetch", server.uri("t"), str(tmp_path / "target"), "--ticket", "other"]) == 0
    assert pa.ipc.open_file(tmp_path / "target").read_all().to_pydict() == {"a": [1]}


def test_a_refusal_is_one_line_without_the_signature(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = str(tmp_path / "target.arrow")
    with bs.serve({"t": bs.table(TABLE)}, options=ServerOptions(ticket_key=bytes(32))) as server:
        ticket = parse_uri(server.uri("t")).get_parameter("ticket")
        assert ticket is not None
        assert main(["fetch", server.uri("t"), target, "--ticket", ticket.replace("t~", "u~")]) == 1
        message = "bowstring: data set 'u~~…': access denied: the ticket is not valid for this server\n"
        assert capsys.readouterr() == ("", message)
        assert main(["fetch", server.uri("t"), target]) == 0


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("unix:@bowstring-nobody?want_data=1&ticket=t", "data set 't': "),
        ("unix:@bowstring-nobody?want_data=1", "expected a ticket"),
        ("people.arrow", "there is no published data set 'people.arrow'"),
        ("ftp:host?want_data=1&ticket=t", "expected the scheme"),
    ],
)
def test_a_uri_without_a_server_is_an_error_of_one_line(
    uri: str, message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["fetch", uri, str(tmp_path / "target.arrow")]) == 1
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.startswith("bowstring: ")
    assert errors.count("\n") == 1
    assert message in errors
    assert not list(tmp_path.iterdir())


def test_an_empty_standard_input_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    assert main(["fetch", "-", str(tmp_path / "target.arrow")]) == 2
    assert "expected a URI on standard input" in capsys.readouterr().err


def test_an_error_in_the_middle_leaves_the_output_unchanged(tmp_path: Path) -> None:
    target = tmp_path / "target.arrow"
    target.write_bytes(b"before")

    def half(transport: BlockingChannel, connection: ServerConnection, dataset: RegionPart) -> None:
        send_messages(transport, connection.send(dataset.schema))
        transport.close()

    with false_server(half) as uri:
        process = run_command("fetch", uri, target)
    assert process.returncode == 1
    assert re.fullmatch(r"bowstring: data set 't': .*before the end.*\n", process.stderr.decode())
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("target.arrow", b"before")]


def test_a_terminal_shows_the_progress(server: Server, tmp_path: Path) -> None:
    status, shown = run_in_terminal(100, "fetch", server.uri("t"), tmp_path / "target.arrow", stdout_is_terminal=False)
    assert status == 0
    assert "fetching" in shown
    assert "10 record batches" in shown

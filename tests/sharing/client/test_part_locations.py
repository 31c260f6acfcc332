"""Data sets in parts, each of which has several locations: the nearest that works is read, for each part."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import bowstring as bs
from bowstring.datasets import Dataset, DatasetPart
from bowstring.errors import (
    AccessDeniedError,
    BowstringError,
    ConnectionLostError,
    InvalidArgumentError,
    InvalidDataError,
    NotFoundError,
)
from bowstring.io.store_path import StorePath
from bowstring.sharing.client.connection import Connection, ConnectionOptions
from bowstring.sharing.client.dataset_reader import DatasetReader
from bowstring.sharing.server.options import ServerOptions

SCHEMA = bs.schema([("x", "int64")])


def numbers(*values: int) -> bs.Table:
    return bs.table({"x": bs.array(values, "int64")})


def create_dataset(*locations: tuple[str, ...], rows: int = 1) -> Dataset:
    return Dataset("numbers", SCHEMA, [DatasetPart(rows, 0, each, "host") for each in locations])


def find_free_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return int(unused.getsockname()[1])


@pytest.fixture
def dead_uri() -> str:
    return f"tcp://127.0.0.1:{find_free_port()}?want_data=1&free_data=2&ticket=t"


def test_the_nearest_location_of_each_part_is_used(dead_uri: str) -> None:
    addresses = {"unix": None, "tcp": "127.0.0.1:0"}
    with bs.serve({str(i): numbers(i) for i in range(4)}, addresses=addresses) as server:
        parts = [tuple(reversed(server.locations(str(i)).uris)) for i in range(4)]
        parts[1] = (dead_uri, parts[1][0])
        with bs.connect(create_dataset(*parts)) as data:
            assert data.read_all() == numbers(0, 1, 2, 3)
            assert [uri.partition(":")[0] for uri in data.uris] == ["unix", "tcp", "unix", "unix"]
            assert pickle.loads(pickle.dumps(data)).read_all() == numbers(0, 1, 2, 3)


def test_a_server_of_another_namespace_is_not_asked(dead_uri: str) -> None:
    with bs.serve({"t": numbers(7)}, address="127.0.0.1:0", scheme="tcp") as server:
        other = "unix:@bowstring-other?want_data=1&free_data=2&scope=elsewhere&ticket=t"
        with bs.connect(create_dataset((other, server.uri("t")))) as data:
            assert data.read_all() == numbers(7)
        with pytest.raises(ConnectionLostError, match="part 0: no location of the data set can be used: unix:"):
            bs.connect(create_dataset((other, other + "&x=1"), (dead_uri,)))


def test_batches_of_parts_of_unknown_rows_have_no_location() -> None:
    with bs.serve({"a": numbers(1, 2, 3)}) as server, bs.connect([server.uri("a")] * 2) as reader:
        with pytest.raises(InvalidArgumentError, match="the rows of some parts are not known"):
            next(reader.locate_batches())
        assert reader.read_all().num_rows == 6


def test_a_reader_of_another_package_is_not_pickled_without_its_batches() -> None:
    class OtherReader(DatasetReader):
        def _read_batches(self, *_: object) -> Iterator[bs.RecordBatch]:
            return iter(numbers(1).to_batches())

    reader = OtherReader([], SCHEMA, ConnectionOptions())
    assert reader.read_all() == numbers(1)
    with pytest.raises(TypeError, match="a OtherReader can't be pickled"):
        pickle.dumps(reader)


@pytest.mark.thorough
def test_thousands_of_parts_do_not_wait_for_the_same_dead_server_again(
    dead_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialled: list[str] = []
    dial = Connection.dial

    def count_and_dial(uri: Any, *arguments: Any) -> Connection:
        dialled.append(str(uri))
        return dial(uri, *arguments)

    monkeypatch.setattr(Connection, "dial", count_and_dial)
    with bs.serve({str(i): numbers(i) for i in range(1000)}, address="127.0.0.1:0", scheme="tcp") as server:
        parts = [(dead_uri.replace("ticket=t", f"ticket={i}"), server.uri(str(i))) for i in range(1000)]
        parts[::100] = [(live, dead) for dead, live in parts[::100]]
        with bs.connect(create_dataset(*parts)) as data:
            for _ in range(2):
                assert data.read_all()["x"].to_pylist() == list(range(1000))
    assert sum(dead_uri.partition("?")[0] in uri for uri in dialled) <= 2
    assert len(dialled) < 10


def test_the_error_names_the_part_and_the_reason_of_each_location(dead_uri: str, tmp_path: Path) -> None:
    with bs.serve({"t": numbers(7)}) as server:
        missing = server.uri("t").replace("ticket=t", "ticket=missing")
        dataset = create_dataset((server.uri("t"),), (missing, dead_uri))
        with bs.connect(dataset) as data, pytest.raises(NotFoundError) as caught:
            data.read_all()
        assert "part 1: no location of the data set can be used" in str(caught.value)
        assert "no data set 'missing'" in str(caught.value)
        assert "Connection refused" in str(caught.value)
        with pytest.raises(NotFoundError, match=r"part 1: .*no\.arrow"):
            create_dataset((server.uri("t"),), (f"file:{tmp_path}/no.arrow",)).read_all()


def test_parts_may_be_files_and_streams_which_are_mapped(tmp_path: Path) -> None:
    with bs.new_file(tmp_path / "a b0.arrow", SCHEMA) as file:
        file.write_table(numbers(0))
    with bs.new_stream(tmp_path / "a b1.arrow", SCHEMA) as stream:
        stream.write_table(numbers(1))
    files = [(f"file://{tmp_path}/a%20b{index}.arrow",) for index in range(2)]
    with bs.serve({"t": numbers(7)}) as server:
        dataset = create_dataset(files[0], (server.uri("t"),), files[1])
        assert dataset.read_all() == numbers(0, 7, 1)
        assert Dataset.from_json(dataset.to_json()).read_all() == numbers(0, 7, 1)
    with bs.connect(files[0][0]) as data:
        assert data.read_all() == numbers(0)


def test_parts_may_be_objects_of_a_store() -> None:
    fsspec: Any = pytest.importorskip("fsspec")
    with fsspec.open("memory://parts/a.arrow", "wb") as file, bs.new_file(file, SCHEMA) as writer:
        writer.write_table(numbers(3, 4))
    assert create_dataset(("memory://parts/a.arrow",), rows=2).read_all() == numbers(3, 4)


def test_parts_with_other_rows_or_columns_than_described_are_an_error(tmp_path: Path) -> None:
    with bs.serve({"t": numbers(7, 8)}) as server, pytest.raises(InvalidDataError, match="expected 1 rows, found 2"):
        create_dataset((server.uri("t"),)).read_all()
    with bs.serve({"t": numbers(7, 8)}) as server:
        dataset = create_dataset((server.uri("t"),), (server.uri("t"),))
        with pytest.raises(InvalidDataError, match=r"parts 0 to 1: unix:.*: expected 2 rows, found 4"):
            dataset.read_all()
    with bs.new_file(tmp_path / "other.arrow", [("y", "int64")]) as writer:
        writer.write_table(bs.table({"y": [1]}))
    with bs.serve({"t": numbers(7)}) as server:
        dataset = create_dataset((server.uri("t"),), (f"file:{tmp_path}/other.arrow",))
        with pytest.raises(InvalidDataError, match=r"part 1: .*other\.arrow: expected"):
            dataset.read_all()


@pytest.mark.parametrize("kind", [NotFoundError, AccessDeniedError, ConnectionLostError])
def test_a_part_is_read_from_the_next_location_after_any_refusal(kind: type[BowstringError], dead_uri: str) -> None:
    options = ServerOptions(ticket_key=bytes(32) if kind is AccessDeniedError else None)
    with bs.serve({"t": numbers(1)}, options=options) as first, bs.serve({"t": numbers(7)}) as second:
        refused = {
            NotFoundError: first.uri("t").replace("ticket=t", "ticket=u"),
            AccessDeniedError: first.uri("t")[:-3],
            ConnectionLostError: dead_uri,
        }[kind]
        with bs.connect(create_dataset((refused, second.uri("t")), (second.uri("t"),))) as data:
            assert data.read_all() == numbers(7, 7)


def test_a_file_that_was_removed_or_replaced_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    with bs.new_file(path, SCHEMA) as file:
        file.write_table(numbers(0))
    dataset = Dataset("numbers", SCHEMA, [DatasetPart(1, path.stat().st_size, (path.as_uri(),))])
    assert dataset.read_all() == numbers(0)
    with bs.new_file(path, SCHEMA, metadata={"version": "2"}) as file:
        file.write_table(numbers(1))
    with pytest.raises(InvalidDataError, match=r"a\.arrow: expected \d+ bytes, as described, found \d+"):
        dataset.read_all()
    path.unlink()
    with pytest.raises(NotFoundError, match=r"a\.arrow"):
        dataset.read_all()


@pytest.mark.parametrize("kind", ["file", "stream", "object"])
def test_a_file_replaced_by_one_of_equal_size_is_noticed_by_every_read(kind: str, tmp_path: Path) -> None:
    def write(*batches: bs.Table) -> None:
        target = "memory://replaced.arrow" if kind == "object" else tmp_path / "a.arrow"
        with (bs.new_stream if kind == "stream" else bs.new_file)(target, SCHEMA) as writer:
            for batch in batches:
                writer.write_table(batch)

    write(numbers(1), numbers(2))
    dataset = bs.dataset("memory://replaced.arrow" if kind == "object" else str(tmp_path / "a.arrow"))
    write(numbers(1, 2), numbers(3, 4))
    (part,) = dataset.parts
    assert bs.dataset(part.locations[0]).nbytes == dataset.nbytes
    reads: list[Callable[[], bs.Table]] = [
        dataset.read_all,
        lambda: dataset.read_all([("x", ">", 1)]),
        lambda: dataset.read_rows(0, 1),
        lambda: dataset.head(1),
        lambda: dataset.read_rank(0, 2),
    ]
    for read in reads:
        with pytest.raises(InvalidDataError, match=r"expected 2 rows, as described, found 4: the file was replaced"):
            read()


def test_paths_of_files_are_connected_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [tmp_path / f"ä {index}?#.arrow" for index in range(2)]
    for index, path in enumerate(paths):
        bs.write_table(numbers(index), path)
    with bs.connect(paths[1]) as data:
        assert data.read_all() == numbers(1)
    monkeypatch.chdir(tmp_path)
    with bs.connect(Path(paths[0].name)) as data:
        assert pickle.loads(pickle.dumps(data)).read_all() == numbers(0)
    with bs.connect(paths) as data:
        assert data.read_all() == numbers(0, 1)
    with pytest.raises(NotFoundError, match="there is no such file"):
        bs.connect(tmp_path / "missing.arrow")
    with pytest.raises(InvalidArgumentError, match="expected a URI or an object with `parts`, found StorePath"):
        bs.connect(StorePath("memory://a"))  # type: ignore[arg-type]


@pytest.mark.parametrize("uri", ["file:a.arrow", "file:", "file:///a?b", "file:///a#b", "file:../a.arrow"])
def test_the_uri_of_a_file_has_an_absolute_path(uri: str) -> None:
    with pytest.raises(InvalidArgumentError, match="with an absolute path"):
        create_dataset((uri,)).read_all()


def test_a_file_of_another_host_is_not_read(tmp_path: Path) -> None:
    with bs.new_file(tmp_path / "a.arrow", SCHEMA) as file:
        file.write_table(numbers(0))
    assert create_dataset((f"file://localhost{tmp_path}/a.arrow",)).read_all() == numbers(0)
    with pytest.raises(ConnectionLostError, match="a file of another host"):
        create_dataset((f"file://another.example{tmp_path}/a.arrow",)).read_all()
    with bs.serve({"t": numbers(7)}) as server:
        both = create_dataset((f"file://another.example{tmp_path}/a.arrow", server.uri("t")))
        assert both.read_all() == numbers(7)

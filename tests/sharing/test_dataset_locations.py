"""Several locations of one data set: the nearest that works is used."""

from __future__ import annotations

import json
import logging
import pickle
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import bowstring as bs
from bowstring.errors import ConnectionLostError, DeadlineError, InvalidArgumentError, NotFoundError
from bowstring.sharing import DatasetLocations
from bowstring.sharing.server.options import ServerOptions
from bowstring.sharing.server.server import Server
from bowstring.transports.tls import TlsOptions
from bowstring_testing.descriptors import assert_descriptors_closed, count_open_descriptors
from tests.polling import wait_until
from tests.sharing.python_process import PythonProcess, run_python
from tests.transports.certificates import Authority

TABLE = bs.table({"a": list(range(1000))})
SERVE = """
import bowstring as bs
server = bs.serve({"t": bs.table({"a": list(range(1000))})}, addresses=addresses)
send(server.locations("t"))
receive()
"""
CONNECT = """
import bowstring as bs
with bs.connect(locations) as dataset:
    send((dataset.location, dataset.read_all()["a"].to_pylist()[-1], dict(dataset.unusable_locations)))
"""
UNREACHABLE = "unix:@bowstring-nobody?want_data=1&free_data=2&ticket=t"


@pytest.fixture
def server() -> Iterator[Server]:
    with bs.serve({"t": TABLE}, addresses={"tcp": None, "unix": None}) as server:
        yield server


@contextmanager
def no_connection_left() -> Iterator[None]:
    """As `assert_descriptors_closed`, with a server in this process, which closes its ends in its own thread."""
    before = count_open_descriptors()
    yield
    assert wait_until(lambda: count_open_descriptors() == before)


def with_other_scope(uri: str) -> str:
    changed = re.sub("scope=[0-9a-f]{32}", "scope=" + "0" * 32, uri)
    assert changed != uri
    return changed


def test_a_client_of_this_host_gets_shared_memory_whatever_the_order() -> None:
    with PythonProcess(SERVE, addresses={"tcp": None, "unix": None}) as server, assert_descriptors_closed():
        locations = server.receive()
        tcp, unix = locations.uris
        for order in (locations, DatasetLocations((unix, tcp))):
            with bs.connect(order) as dataset:
                assert dataset.location == unix
                assert dataset.unusable_locations == {}
                assert dataset.read_all() == TABLE
                assert repr(dataset).startswith("<bowstring.sharing.DatasetReader 1 part over unix>")


def test_locations_are_passed_on_pickled_as_text_and_in_json(server: Server) -> None:
    locations = server.locations("t")
    unix = locations.uris[1]
    for value in (pickle.loads(pickle.dumps(locations)), str(locations), json.loads(json.dumps(str(locations)))):
        assert run_python(CONNECT, locations=value) == (unix, 999, {})
    assert DatasetLocations.parse(str(locations)) == locations
    assert "ticket" not in repr(locations)
    assert server.uri("t") == locations.uris[0]
    assert bs.connect(server.uri("t")).location == server.uri("t")


def test_the_next_location_is_used_and_the_reasons_are_kept(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    tcp, _ = server.locations("t").uris
    foreign = "carrier+pigeon://host:1?want_data=1&ticket=t"
    with caplog.at_level(logging.DEBUG, "bowstring"), no_connection_left():
        dataset = bs.connect(DatasetLocations((foreign, tcp, UNREACHABLE, "unix:@a?nothing")))
        with dataset:
            assert dataset.location == tcp
            assert dataset.read_all() == TABLE
            reasons = dataset.unusable_locations
            assert list(reasons) == [UNREACHABLE, "unix:@a?nothing"]
            assert "nothing is listening there" in reasons[UNREACHABLE]
            assert "want_data is missing" in reasons["unix:@a?nothing"]
            assert repr(dataset).startswith("<bowstring.sharing.DatasetReader 1 part over tcp, not unix, unix>")
    messages = [record.getMessage() for record in caplog.records if record.name == "bowstring.sharing.client.connect"]
    assert len(messages) == 3
    assert messages[0].startswith("unix:@bowstring-nobody: not used: ")
    assert messages[-1] == f"{tcp.partition('?')[0]}: the nearest location that works"


@pytest.mark.parametrize("scheme", ["unix", "tcp"])
def test_the_same_address_of_another_host_is_not_used(scheme: str) -> None:
    with Server(scheme=scheme) as server:
        server.add("t", TABLE)
        uri = server.uri("t")
        with no_connection_left(), pytest.raises(ConnectionLostError, match="an address of another host"):
            bs.connect(DatasetLocations((with_other_scope(uri),)))
        with bs.connect(with_other_scope(uri)) as dataset:  # a single URI is used as it is: it may be a tunnel's
            assert dataset.read_all() == TABLE


def test_the_same_path_in_another_directory_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "one")
    with Server("socket") as first:
        first.add("t", TABLE)
        with bs.connect(first.locations("t")) as dataset:
            assert dataset.read_all() == TABLE
        monkeypatch.chdir(tmp_path / "other")
        with Server("socket") as second:
            second.add("t", bs.table({"a": [0]}))
            with pytest.raises(ConnectionLostError, match="an address of another host, network or directory"):
                bs.connect(first.locations("t"))
            with bs.connect(second.locations("t")) as dataset:
                assert dataset.read_all().num_rows == 1
    with pytest.raises(ConnectionLostError):
        bs.connect(DatasetLocations(("unix:/no/such/directory/socket?want_data=1&scope=0&ticket=t",)))


def test_an_error_names_each_location_and_its_reason(server: Server) -> None:
    tcp, unix = server.locations("t").uris
    with no_connection_left(), pytest.raises(ConnectionLostError) as caught:
        bs.connect(DatasetLocations((UNREACHABLE, with_other_scope(tcp))))
    text = str(caught.value)
    assert "unix:@bowstring-nobody: " in text
    assert "nothing is listening there" in text
    assert f"{tcp.partition('?')[0]}: " in text
    assert "want_data" not in text, "parameters may be secret"
    with no_connection_left(), pytest.raises(NotFoundError, match=r"no data set 'missing'.*no data set 'missing'"):
        bs.connect(server.locations("t"), ticket="missing")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        uri = f"tcp://127.0.0.1:{silent.getsockname()[1]}?want_data=1&ticket=t"
        with no_connection_left(), pytest.raises(DeadlineError):
            bs.connect(DatasetLocations((uri,)), timeout_s=0.1)
        with bs.connect(DatasetLocations((uri, unix)), timeout_s=20) as dataset:
            assert dataset.location == unix


def test_tls_is_used_only_for_locations_that_support_it(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path)
    addresses = {"unix": None, "tcp": None, "tcp+tls": None}
    with Server(options=ServerOptions(tls=authority.server()), addresses=addresses) as server:
        server.add("t", TABLE)
        unix, tcp, tls = server.locations("t").uris
        for uris, location in (((tls, unix), unix), ((tls, tcp), tcp), ((tls,), tls)):
            with no_connection_left(), bs.connect(DatasetLocations(uris), tls=authority.client()) as dataset:
                assert dataset.location == location
                assert dataset.read_all() == TABLE
        scope = re.sub(".*(scope=[0-9a-f]+).*", r"\1", tcp)
        remote = f"tcp://192.0.2.1:1?want_data=1&{scope}&ticket=t"  # an address for examples, with our scope
        with no_connection_left(), pytest.raises(ConnectionLostError, match="an address of another host"):
            bs.connect(DatasetLocations((remote,)), tls=authority.client())
        public = re.sub("&scope=[0-9a-f]+", "", tcp)
        with no_connection_left(), bs.connect(DatasetLocations((public, tls)), tls=authority.client()) as dataset:
            assert dataset.location == tls
            assert dataset.unusable_locations == {public: "tcp: a connection to another host that is not encrypted"}
    with no_connection_left(), pytest.raises(InvalidArgumentError, match="unix, tcp: the option tls is not supported"):
        Server(options=ServerOptions(tls=TlsOptions()), addresses={"unix": None, "tcp": None})


def test_a_server_listens_at_all_its_addresses_or_at_none() -> None:
    with Server(scheme="tcp") as other, no_connection_left():
        used = other.address
        with pytest.raises(InvalidArgumentError, match="can't listen there"):
            Server(addresses={"unix": "@bowstring-test-locations", "tcp": used})
        with Server("@bowstring-test-locations"):
            pass
    for address, scheme, addresses in (
        ("@a", "unix", {"unix": None}),
        (None, "tcp", {"unix": None}),
        (None, "unix", {}),
    ):
        with pytest.raises(InvalidArgumentError, match="either an address and a scheme, or a mapping"):
            Server(address, scheme=scheme, addresses=addresses)


def test_locations_are_not_an_element_of_a_list_of_parts(server: Server) -> None:
    locations = server.locations("t")
    with bs.connect(list(locations.uris)) as parts:  # a list has the parts of one data set
        assert parts.read_all().num_rows == 2000
        assert parts.location is None
    with pytest.raises(InvalidArgumentError, match="expected a URI, not DatasetLocations"):
        bs.connect([locations])  # type: ignore[list-item]


@pytest.mark.parametrize("uris", [(), ("unix:@a",) * 65, ["unix:@a"], "unix:@a", (1,), ("",), ("unix:@a tcp:b",)])
def test_other_values_are_not_locations(uris: tuple[str, ...]) -> None:
    with pytest.raises(InvalidArgumentError, match=r"^locations: expected"):
        DatasetLocations(uris)

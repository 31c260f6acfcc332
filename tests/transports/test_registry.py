"""Transports of other packages, which declare them as entry points."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from bowstring.entry_points import EntryPointGroup
from bowstring.errors import InvalidArgumentError
from bowstring.memory import device
from bowstring.sharing.dataset_locations import CONNECTORS, sort_by_distance
from bowstring.transports import registry
from bowstring.transports.registry import TRANSPORT_ENTRY_POINTS
from bowstring.transports.sockets.unix import UnixTransport

REPOSITORY = Path(__file__).resolve().parents[2]

TRANSPORT = """
from bowstring.transports.sockets.unix import UnixTransport

class Example(UnixTransport):
    scheme = "example"

EXAMPLE = Example()
"""

SERVE_AND_CONNECT = """
import sys
import bowstring as bs
from bowstring.transports.registry import list_schemes

assert "example" in list_schemes()
assert "example_transport" not in sys.modules
with bs.serve({"t": bs.table({"n": [1, 2]})}, scheme="example") as server:
    uri = server.uri("t")
    with bs.connect(uri) as dataset:
        print(uri.partition(":")[0], dataset.read_all()["n"].to_pylist())
"""

CONNECTOR = """
from bowstring.sharing.client.connect import connect_to_location

def connect(text, options):
    return connect_to_location(bytes.fromhex(text.partition(":")[2]).decode(), options)
"""

CONNECT = """
import bowstring as bs

with bs.serve({"t": bs.table({"n": [1, 2]})}) as server:
    with bs.connect("example:" + server.uri("t").encode().hex()) as dataset:
        print(dataset.read_all()["n"].to_pylist())
"""

FIND = "from bowstring.transports.registry import find_transport; print(find_transport({scheme!r}, 'uri'))"


def install(folder: Path, *entry_points: str, group: str = "bowstring.transports") -> None:
    """Write an installed distribution with two modules and these entry points."""
    (folder / "example_transport.py").write_text(TRANSPORT)
    (folder / "example_connector.py").write_text(CONNECTOR)
    metadata = folder / "example_transport-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: example-transport\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("\n".join([f"[{group}]", *entry_points]))


def run_python(code: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process that finds distributions in a folder, too."""
    path = os.pathsep.join([str(folder), str(REPOSITORY / "src")])
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(
        [sys.executable, *options, "-c", code], check=False, env=environment, capture_output=True, text=True, timeout=60
    )


def test_a_transport_of_another_package_is_used_once_it_is_installed(tmp_path: Path) -> None:
    install(tmp_path, "example = example_transport:EXAMPLE")
    assert run_python(SERVE_AND_CONNECT, tmp_path).stdout == "example [1, 2]\n"


def test_connect_calls_a_connector_of_another_package(tmp_path: Path) -> None:
    install(tmp_path, "example = example_connector:connect", group="bowstring.connectors")
    assert run_python(CONNECT, tmp_path).stdout == "[1, 2]\n"


@pytest.mark.parametrize(
    ("entry_point", "text"),
    [
        ("example = missing_module:EXAMPLE", "example: its entry point can't be imported: No module"),
        ("example = example_transport:OTHER", "example: its entry point can't be imported: module"),
        ("example = example_transport:Example", "example: its entry point is not a transport with this scheme: <class"),
        ("other = example_transport:EXAMPLE", "other: its entry point is not a transport with this scheme: <example"),
    ],
)
def test_an_entry_point_that_is_not_a_transport_is_reported(tmp_path: Path, entry_point: str, text: str) -> None:
    install(tmp_path, entry_point)
    process = run_python(FIND.format(scheme=entry_point.partition(" ")[0]), tmp_path)
    assert f"UnmetRequirementError: {text}" in process.stderr


def test_the_command_serve_offers_an_installed_transport(tmp_path: Path) -> None:
    install(tmp_path, "example = example_transport:EXAMPLE")
    code = "import sys; from bowstring.cli.main import main; sys.argv = ['bowstring', 'serve', '--help']; main()"
    text = run_python(code, tmp_path).stdout
    assert "[cuda+unix|example|fabric|tcp|tcp+tls|ucx|unix]" in text


def test_locations_are_sorted_by_the_distances_of_their_transports() -> None:
    schemes = ["unix", "cuda+unix", "ucx", "fabric", "tcp", "tcp+tls", "unknown"]
    uris = [f"{scheme}:address" for scheme in schemes]
    assert sort_by_distance(reversed(uris)) == uris


@pytest.mark.parametrize("scheme", ["unix", "tcp"])
def test_another_package_does_not_replace_a_transport_of_ours(tmp_path: Path, scheme: str) -> None:
    install(tmp_path, f"{scheme} = example_transport:EXAMPLE")
    assert "<bowstring.transports." in run_python(FIND.format(scheme=scheme), tmp_path).stdout


def test_of_two_packages_with_a_transport_the_first_in_the_path_is_used(tmp_path: Path) -> None:
    install(tmp_path, "ucx = example_transport:UCX")
    process = run_python(FIND.format(scheme="ucx"), tmp_path)
    assert "ucx: its entry point can't be imported: module 'example_transport' has no attribute 'UCX'" in process.stderr


@pytest.mark.parametrize("group", [TRANSPORT_ENTRY_POINTS, CONNECTORS, device._DRIVERS])
def test_the_entry_points_of_the_networks_are_those_of_their_metadata(group: EntryPointGroup) -> None:
    project = tomllib.loads((REPOSITORY / "networks" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"][group.name].keys() == group.extras.keys()
    assert set(group.extras.values()) <= {"", *project["optional-dependencies"]}
    assert all(group.load(name) is not None for name in group.extras)


@pytest.mark.parametrize(
    ("call", "extra"),
    [
        ("bs.connect('ucx://127.0.0.1:1?want_data=1&ticket=t')", "[ucx]"),
        ("bs.connect('fabric://127.0.0.1:1/tcp?want_data=1&ticket=t')", ""),
        ("bs.connect('cuda+unix:@x?want_data=1&ticket=t')", "[cuda]"),
        ("bs.connect('grpc://127.0.0.1:1/t')", "[flight]"),
        ("bs.connect('grpc+tls://127.0.0.1:1/t')", "[flight]"),
        ("bs.serve({}, scheme='ucx')", "[ucx]"),
        ("bs.sharing.device_table({'x': type('Gpu', (), {'__cuda_array_interface__': INTERFACE})()})", "[cuda]"),
    ],
)
def test_without_the_networks_an_error_names_the_command_that_installs_them(
    tmp_path: Path, call: str, extra: str
) -> None:
    for package in Path(np.__file__).parent.parent.glob("numpy*"):  # the only package, because of -S
        (tmp_path / package.name).symlink_to(package)
    code = f"import bowstring as bs; INTERFACE = {{'data': (1, 0), 'typestr': '<i4', 'shape': (1,)}}; {call}"
    process = run_python(code, tmp_path, "-S")
    command = f"pip install 'bowstring-networks{extra}', or in a clone './networks{extra}'"
    assert process.stderr.splitlines()[-1].endswith(f"bowstring-networks is not installed: {command}")


@pytest.mark.parametrize("scheme", ["unix", "ucx"])
def test_a_second_transport_with_a_scheme_is_not_registered(scheme: str) -> None:
    transport = type("Other", (UnixTransport,), {"scheme": scheme})()
    with pytest.raises(InvalidArgumentError, match=f"the scheme {scheme} already"):
        registry.register_transport(transport)


def test_a_registered_transport_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "TRANSPORTS", dict(registry.TRANSPORTS))
    transport = type("Other", (UnixTransport,), {"scheme": "registered"})()
    registry.register_transport(transport)
    registry.register_transport(transport)
    assert registry.find_transport("registered", "registered:x") is transport
    assert "registered" in registry.list_schemes()

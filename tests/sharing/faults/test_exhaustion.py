"""Descriptors, memory and connections are exhausted: a clear error, nothing is left, and the server continues."""

from __future__ import annotations

import resource
import socket
from pathlib import Path

import pytest

import bowstring as bs
from bowstring.dissociated.uri import parse_uri
from bowstring.errors import BowstringError, ResourceError
from bowstring.transports.sockets.tcp_address import parse_address
from bowstring.transports.sockets.unix import encode_unix_address
from bowstring.transports.tls import TlsOptions
from tests.polling import wait_until
from tests.sharing.faults.children import limit_descriptors, numbers
from tests.sharing.faults.conftest import MODES, FaultCounter
from tests.sharing.faults.processes import Children, Usage, nothing_left, num_descriptors
from tests.small_disk import run_on_4_mb
from tests.thorough import thorough

MAX_DESCRIPTORS = 40

SHARE_ON_SMALL_DISK = """
import os, sys
from pathlib import Path
import numpy as np
import bowstring as bs
from bowstring.errors import ResourceError
folder = Path(sys.argv[1])
table = bs.table({"n": np.arange(1 << 20)})
for count in range(3):
    try:
        with bs.new_file(folder / "full", table.schema) as writer:
            writer.write_table(table)
    except ResourceError as error:
        print(type(error).__name__, len(list(folder.iterdir())))
with bs.serve({"t": table}) as server, bs.connect(server.uri("t")) as dataset:
    print(dataset.read_all() == table)
"""


@MODES
def test_a_client_without_descriptors_gets_an_error_or_all_data(
    children: Children, scheme: str, tls: TlsOptions | None, copy: bool, count_faults: FaultCounter
) -> None:
    server = children.start("serve_all", tls=tls)
    uri = server.receive()[scheme]
    num_errors = 0
    with nothing_left(server.pid):
        for num_free in range(MAX_DESCRIPTORS):
            outcome = children.start("read_with_few_descriptors", uri=uri, copy=copy, num_free=num_free).receive()
            if outcome is None:
                break
            num_errors += 1
            assert isinstance(outcome, type), outcome
            assert issubclass(outcome, BowstringError), outcome
    server.kill()
    assert outcome is None
    assert num_errors
    count_faults("reads with few descriptors", num_errors)


@MODES
def test_a_server_without_descriptors_refuses_clients_and_recovers(
    children: Children, scheme: str, tls: TlsOptions | None, copy: bool, count_faults: FaultCounter
) -> None:
    server = children.start("serve_all", tls=tls)
    uri = server.receive()[scheme]
    num_open = num_descriptors(server.pid)
    with bs.connect(uri, copy=copy, timeout_s=20) as dataset:
        assert dataset.read_all() == numbers()
    num_errors = 0
    with nothing_left(server.pid):
        assert wait_until(lambda: num_descriptors(server.pid) == num_open)
        previous = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
        for num_free in range(3):
            limit_descriptors(server.pid, num_free)
            try:
                with bs.connect(uri, copy=copy, timeout_s=0.5) as dataset:
                    assert dataset.read_all() == numbers()
            except BowstringError:
                num_errors += 1
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, previous)
        with bs.connect(uri, copy=copy, timeout_s=20) as dataset:
            assert dataset.read_all() == numbers()
    server.kill()
    assert num_errors
    count_faults("servers with few descriptors", 3)


def test_memory_that_can_not_grow_is_a_resource_error(children: Children, count_faults: FaultCounter) -> None:
    """A limit of the size of files, which is also that of shared memory."""
    with nothing_left():
        for size_bytes in (0, 1, 1000, 100_000):
            outcomes = children.start("share_with_small_files", size_bytes=size_bytes).receive()
            assert outcomes == {"share": ResourceError, "serve": ResourceError, "file": ResourceError}
    count_faults("full memory", 12)


def test_a_full_file_system_is_a_resource_error_and_memory_is_served(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SHARE_ON_SMALL_DISK)
    folder = tmp_path / "small"
    folder.mkdir()
    process = run_on_4_mb(folder, script, folder)
    assert process.stdout.splitlines() == ["ResourceError 0"] * 3 + ["True"], process.stderr


@pytest.mark.parametrize(
    ("scheme", "num_connects"), [("unix", 1000), *thorough(("unix", 4000), ("tcp", 4000), ("tcp+tls", 800))]
)
def test_a_server_survives_many_connects(
    children: Children, scheme: str, num_connects: int, tls: TlsOptions | None, count_faults: FaultCounter
) -> None:
    """Each second one sends nothing."""
    server = children.start("serve_all", tls=tls)
    uri = server.receive()[scheme]
    address = parse_uri(uri).address
    name = encode_unix_address(address) if scheme == "unix" else parse_address(address)
    schema = numbers().schema

    def connect(count: int) -> None:
        for _ in range(count):
            with bs.connect(uri, timeout_s=20) as dataset:
                assert dataset.schema == schema
            with socket.socket(socket.AF_UNIX if scheme == "unix" else socket.AF_INET) as silent:
                silent.connect(name)

    with nothing_left(server.pid):
        connect(num_connects // 20)
        before = Usage.of(server.pid)
        connect(num_connects // 2 - num_connects // 20)
        assert wait_until(lambda: Usage.of(server.pid).is_flat(before)), f"{before}, {Usage.of(server.pid)}"
    server.kill()
    count_faults("connects", num_connects)

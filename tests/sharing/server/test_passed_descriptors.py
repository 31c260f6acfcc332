"""What a client of another user can do with the descriptors that a server has passed to it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

import bowstring as bs
from bowstring.errors import ResourceError
from bowstring.memory import Arena, Region
from bowstring.sharing.server.options import ServerOptions
from bowstring.sharing.server.server import Server
from tests.sharing.python_process import PythonProcess
from tests.sharing.server.test_access import BECOME_USER, needs_root

pytestmark = needs_root

OPTIONS = ServerOptions(allow_other_users=True)
NUM_ROWS = 100_000
TABLE = bs.table({"a": np.arange(NUM_ROWS)})
TOTAL = NUM_ROWS * (NUM_ROWS - 1) // 2
# The attacks that the kernel permits are sent.
HOSTILE = f"""{BECOME_USER}
import ctypes, fcntl, signal
from bowstring.memory.region import Region
attach, passed = Region.attach, []
def attach_and_keep(descriptor, *arguments, **options):
    passed.append(os.dup(descriptor))
    return attach(descriptor, *arguments, **options)
Region.attach = attach_and_keep
with bs.connect(uri, allow_other_users=True) as dataset:
    dataset.read_all()
def punch_hole(descriptor):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.fallocate(descriptor, 3, ctypes.c_long(0), ctypes.c_long(4096)):
        raise OSError(ctypes.get_errno(), "fallocate")
send(None)
while True:
    for name in receive():
        (descriptor,) = passed
        writable = lambda: os.open(f"/proc/self/fd/{{descriptor}}", os.O_RDWR)
        attacks = {{
            "unlock": lambda: fcntl.flock(descriptor, fcntl.LOCK_UN),
            "lock": lambda: fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB),
            "lock a range": lambda: fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB),
            "flags": lambda: fcntl.fcntl(descriptor, fcntl.F_SETFL, os.O_DIRECT | os.O_APPEND | os.O_NONBLOCK),
            "signals": lambda: fcntl.fcntl(descriptor, fcntl.F_SETOWN, server_pid),
            "lease": lambda: fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK),
            "seek": lambda: os.lseek(descriptor, 1000, os.SEEK_SET),
            "write": lambda: os.pwrite(descriptor, b"x" * 1000, 0),
            "truncate": lambda: os.ftruncate(descriptor, 100),
            "punch a hole": lambda: punch_hole(descriptor),
            "seal": lambda: fcntl.fcntl(descriptor, 1033, 4),
            "mode": lambda: os.fchmod(descriptor, 0o777),
            "time": lambda: os.utime(descriptor),
            "open for writing": lambda: os.pwrite(writable(), b"x" * 1000, 0),
            "open and truncate": lambda: os.ftruncate(writable(), 100),
            "open and punch a hole": lambda: punch_hole(writable()),
        }}
        try:
            attacks[name]()
            send(name)
        except OSError as error:
            send(None)
"""
# Keeps what it has mapped, and reads it again for each request.
READER = f"""{BECOME_USER}
import numpy as np
with bs.connect(uri, allow_other_users=True) as dataset:
    column = np.asarray(dataset.read_all()["a"].chunk(0))
send(None)
while True:
    receive()
    send(int(column.sum()))
"""
HARMLESS = {"unlock", "lock", "lock a range", "flags", "signals", "seek"}
"""They change an open file description, which is the client's own, or has nothing that the server uses."""
ATTACKS = [
    *HARMLESS,
    *("lease", "write", "truncate", "punch a hole", "seal", "mode", "time"),
    *("open for writing", "open and truncate", "open and punch a hole"),
]


@contextmanager
def two_clients(server: Server) -> Iterator[tuple[PythonProcess, PythonProcess]]:
    """A hostile client and another one, each of a user of its own, that have read the table."""
    uri = server.uri("t")
    with (
        PythonProcess(HOSTILE, user=65533, uri=uri, server_pid=os.getpid()) as hostile,
        PythonProcess(READER, user=65532, uri=uri) as reader,
    ):
        hostile.receive()
        reader.receive()
        yield hostile, reader


def attack(hostile: PythonProcess, *names: str) -> list[str]:
    """Return the names of the attacks that the kernel permitted."""
    hostile.send(names)
    return [name for name in (hostile.receive() for _ in names) if name is not None]


def read_again(reader: PythonProcess) -> int:
    reader.send(None)
    total: int = reader.receive()
    return total


def test_a_client_that_unlocks_its_descriptor_of_an_arena_changes_nothing_that_others_read() -> None:
    zeros = bs.table({"a": np.zeros(NUM_ROWS, np.int64)})
    with (
        Arena() as arena,
        bs.share(TABLE, arena=arena) as handle,
        bs.serve({"t": handle}, options=OPTIONS) as server,
        two_clients(server) as (hostile, reader),
    ):
        assert attack(hostile, "unlock") == ["unlock"]
        server.close()
        handle.close()
        with bs.share(zeros, arena=arena):
            assert read_again(reader) == TOTAL


@pytest.mark.parametrize("kind", ["sealed memory", "memory of an arena", "file"])
def test_a_client_changes_nothing_for_others_by_a_descriptor(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "file.arrow"
    with bs.new_file(path, TABLE.schema) as writer:
        writer.write_table(TABLE)
    with ExitStack() as stack:
        if kind == "file":
            descriptor = os.open(path, os.O_RDWR)
            stack.callback(os.close, descriptor)
            source = stack.enter_context(Region.from_file(descriptor))
        else:
            arena = stack.enter_context(Arena()) if kind == "memory of an arena" else None
            handle = stack.enter_context(bs.share(TABLE, arena=arena))
            (source,) = map(stack.enter_context, handle.open_regions())
        server = stack.enter_context(bs.serve({"t": source}, options=OPTIONS))
        hostile, reader = stack.enter_context(two_clients(server))
        assert set(attack(hostile, *ATTACKS)) <= HARMLESS
        assert read_again(reader) == TOTAL
        for copy in (False, True):  # mapped, and read or sent from the server's own descriptor
            with bs.connect(server.uri("t"), copy=copy) as dataset:
                assert dataset.read_all() == TABLE
        if kind != "file":
            assert bs.attach(handle) == TABLE


def test_a_client_that_locks_a_served_file_only_prevents_appending_to_it(tmp_path: Path) -> None:
    path = tmp_path / "file.arrow"
    with bs.new_file(path, TABLE.schema) as writer:
        writer.write_table(TABLE)
    with bs.serve({"t": path}, options=OPTIONS) as server:
        with two_clients(server) as (hostile, reader):
            assert attack(hostile, "lock") == ["lock"]
            with pytest.raises(ResourceError, match="another process is appending"):
                bs.ipc.append_to_file(path, TABLE)
            assert read_again(reader) == TOTAL
        bs.ipc.append_to_file(path, TABLE)


def test_a_file_that_all_may_write_is_writable_by_clients_whatever_its_folder_permits(tmp_path: Path) -> None:
    path = tmp_path / "file.arrow"
    with bs.new_file(path, TABLE.schema) as writer:
        writer.write_table(TABLE)
    os.chmod(path, 0o666)
    assert not os.stat(tmp_path).st_mode & 0o077
    with bs.serve({"t": path}, options=OPTIONS) as server, two_clients(server) as (hostile, _):
        assert attack(hostile, "open for writing") == ["open for writing"]

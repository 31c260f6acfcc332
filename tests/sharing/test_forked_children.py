"""Forked children of processes with servers, connections and arenas: what one of them does not inherit."""

from __future__ import annotations

import subprocess
import sys

import pytest

import bowstring as bs
from bowstring.errors import ConnectionLostError
from tests.sharing.python_process import PythonProcess, run_python

# `sockets` is called in a child. A server that was closed is still referenced, before and after others.
START = """
import os, resource, signal, socket, subprocess, warnings
import bowstring as bs
warnings.simplefilter("ignore")
table = bs.table({"a": [1]})
servers = [bs.serve({"t": table}, scheme=scheme) for scheme in ("unix", "tcp", "unix")]
flight = None
if with_flight:
    from bowstring_networks.flight.server import FlightServer
    flight = FlightServer(servers[1])
data = bs.connect(servers[1].uri("t"))
data.read_all()
for server in servers[::2]: server.close()
live = servers[1]
def list_sockets():
    names = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    names = [name for name in names if os.path.islink(name) and os.readlink(name).startswith("socket:")]
    return [name for name in names if not is_of_grpc(int(os.path.basename(name)))]
def is_of_grpc(descriptor):
    # gRPC listens at a path that is unlinked, so that nobody but the relay of its process can reach it.
    with socket.socket(fileno=os.dup(descriptor)) as duplicate:
        return "bowstring-flight-" in str(duplicate.getsockname())
"""


def test_a_child_keeps_no_socket_of_a_server_after_another_one_was_closed() -> None:
    code = f"""{START}
reader, writer = os.pipe()
if not (pid := os.fork()):
    os.write(writer, repr(list_sockets()).encode())
    signal.pause()
send((live.uri("t"), pid, os.read(reader, 10_000)))
receive()
"""
    with PythonProcess(code, with_flight=False) as other:
        uri, child, sockets = other.receive()
        try:
            assert sockets == b"[]"
            assert bs.connect(uri).read_all().num_rows == 1
            other.kill()
            with pytest.raises(ConnectionLostError):
                bs.connect(uri, timeout_s=5)
        finally:
            subprocess.run(["kill", "-9", str(child)], check=True)


@pytest.mark.parametrize("with_flight", [False, True], ids=["servers", "servers and Flight"])
def test_a_child_before_its_program_starts_keeps_no_socket(with_flight: bool) -> None:
    code = f"""{START}
reader, writer = os.pipe()
subprocess.run(["true"], preexec_fn=lambda: os.write(writer, repr(list_sockets()).encode()), check=True)
send((os.read(reader, 10_000), bs.connect((flight or live).uri("t")).read_all().num_rows, data.read_all().num_rows))
"""
    assert run_python(code, with_flight=with_flight) == (b"[]", 1, 1)


def test_a_child_of_multiprocessing_ends_and_the_flight_server_of_its_parent_goes_on() -> None:
    code = f"""{START}
import multiprocessing
child = multiprocessing.get_context("fork").Process(target=list_sockets)
child.start()
child.join(30)
send((child.exitcode, bs.connect(flight.uri("t")).read_all().num_rows))
"""
    assert run_python(code, with_flight=True) == (0, 1)


def test_a_child_keeps_no_socket_if_no_descriptor_is_left() -> None:
    code = f"""{START}
reader, writer = os.pipe()
opened = []
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
try:
    while True: opened.append(os.open(os.devnull, os.O_RDONLY))
except OSError: pass
if not (pid := os.fork()):
    os.closerange(opened[0], opened[0] + 1)
    os.write(writer, repr(list_sockets()).encode())
    os._exit(0)
os.waitpid(pid, 0)
send(os.read(reader, 10_000))
"""
    assert run_python(code, with_flight=False) == b"[]"


def test_an_error_of_one_object_in_a_child_does_not_keep_others_open() -> None:
    code = f"""{START}
servers[0]._loop = None
reader, writer = os.pipe()
if not (pid := os.fork()):
    os.write(writer, repr((list_sockets(), live._is_closed)).encode())
    os._exit(0)
os.waitpid(pid, 0)
send(os.read(reader, 10_000))
"""
    assert run_python(code, with_flight=False) == b"([], True)"


def test_a_closed_arena_stays_closed_in_a_child() -> None:
    code = """
import os, sys
from bowstring.memory import Arena
closed, arena = Arena(), Arena()
closed.close()
if not (pid := os.fork()):
    with arena.create_builder(1): pass
    try: closed.create_builder(1)
    except Exception as error: os._exit(type(error).__name__ == "ClosedError")
    os._exit(2)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 1

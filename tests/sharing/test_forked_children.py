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


# The thread stops before each line of `function`, and the child does the same as the thread.
FORK_AT_EACH_LINE = """
import os, queue, signal, sys, threading
import bowstring as bs
exec(preparation)
stops, continues = queue.SimpleQueue(), threading.Semaphore(0)
def trace(frame, event, argument):
    if frame.f_code.co_name != function:
        return None
    if event == "line":
        stops.put(True)
        continues.acquire()
    return trace
def run():
    sys.settrace(trace)
    exec(use)
    sys.settrace(None)
    stops.put(False)
threading.Thread(target=run, daemon=True).start()
codes = []
while not any(codes) and stops.get():
    child = os.fork()
    if not child:
        signal.alarm(5)
        exec(use)
        os._exit(0)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    continues.release()
send(codes)
"""
COMPRESSED_FILE = """
import io
with bs.new_file(sink := io.BytesIO(), {"n": "int64"}, compression="lz4") as writer:
    writer.write(bs.record_batch({"n": [0] * 1000}))
table = bs.open_file(sink.getvalue()).read_all()
"""
DELTA_DICTIONARIES = """
import io
import pyarrow as pa
words, schema = pa.array(["a", "b"]), pa.schema({"s": pa.dictionary(pa.int8(), pa.string())})
options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
with pa.ipc.new_stream(sink := io.BytesIO(), schema, options=options) as writer:
    for count in (1, 2):
        column = pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), words[:count])
        writer.write_batch(pa.record_batch([column], schema=schema))
table = bs.open_stream(sink.getvalue()).read_all()
"""


@pytest.mark.parametrize(
    ("function", "preparation", "use"),
    [
        ("read_uncompressed_lengths", COMPRESSED_FILE, "assert table['n'].to_pylist() == [0] * 1000"),
        ("names", COMPRESSED_FILE, "assert bs.open_file(sink.getvalue()).read_all()['n'].to_pylist() == [0] * 1000"),
        ("_grow", DELTA_DICTIONARIES, "assert table['s'].to_pylist() == ['a', 'a']"),
        ("get_ipc_schema", "handle = bs.share(bs.table({'n': [1]}))", "bs.attach(handle)['n'].to_pylist()"),
        ("move_struct", "import pyarrow as pa", "bs.table(pa.table({'n': [1]}))"),
        (
            "_take_first_stream",
            "server = bs.serve({'t': bs.table({'n': [1]})}); data = bs.connect(server.uri('t'))",
            "assert data.read_all()['n'].to_pylist() == [1]",
        ),
        ("_take_unused_block", "arena = bs.memory.Arena()", "bs.share(bs.table({'n': [1]}), arena=arena).close()"),
    ],
)
def test_a_child_forked_while_another_thread_has_locked_something_does_not_wait_for_it(
    function: str, preparation: str, use: str
) -> None:
    codes = run_python(FORK_AT_EACH_LINE, function=function, preparation=preparation, use=use)
    assert codes
    assert not any(codes)

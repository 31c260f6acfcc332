"""Tests of the objects of UCP, over the libucp of the wheel."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from bowstring.errors import (
    ClosedError,
    ConnectionLostError,
    InvalidArgumentError,
    LimitError,
    UnsupportedError,
)
from bowstring_networks.ucx import ucp
from bowstring_networks.ucx.context import Context
from bowstring_networks.ucx.libucp import ErrorMode, StatusCode
from bowstring_networks.ucx.ucp import RemoteKey, UcpEndpoint, UcpListener, Worker
from bowstring_testing.descriptors import count_open_descriptors
from networks.tests.ucx.ucp_processes import (
    BODY_TAG,
    DONE_TAG,
    FEATURES,
    MEMORY_TAG,
    accept_one,
    drive,
    drive_requests,
    drive_until_exit,
    peer_process,
    receive_active_message,
    receive_probed,
    receive_tagged,
    require_libucp,
)
from tests.polling import wait_until

require_libucp()

SIZES_BYTES = [0, 1, 1000, 100_000, 5_000_000]
OPTIONS = [pytest.param({}, id="all"), pytest.param({"TLS": "tcp"}, id="tcp")]


@pytest.fixture
def context() -> Iterator[Context]:
    with Context(FEATURES) as context:
        yield context


@pytest.fixture
def worker(context: Context) -> Worker:
    return Worker(context)


@pytest.fixture
def listener(worker: Worker) -> UcpListener:
    return UcpListener(worker, "127.0.0.1")


@contextmanager
def connected(worker: Worker, error_mode: ErrorMode = ErrorMode.PEER) -> Iterator[tuple[UcpEndpoint, UcpEndpoint]]:
    """Both ends of a connection of a worker to itself."""
    with UcpListener(worker, "127.0.0.1") as listener:
        client = worker.connect(*listener.address, error_mode=error_mode)
        server = accept_one(worker, listener)
        drive_requests(worker, client.flush())
        yield client, server
        close_endpoints(worker, client, server)


def close_endpoints(worker: Worker, *endpoints: UcpEndpoint) -> None:
    requests = [request for endpoint in endpoints if (request := endpoint.close()) is not None]
    drive(worker, lambda: all(request.is_done for request in requests))


@pytest.mark.parametrize("options", OPTIONS)
def test_tagged_messages_go_both_ways_between_processes(options: dict[str, str]) -> None:
    with Context(FEATURES, options) as context:
        worker = Worker(context)
        listener = UcpListener(worker, "127.0.0.1")
        with peer_process("echo", listener.address[1], **options) as process:
            endpoint = accept_one(worker, listener)
            for tag, size_bytes in enumerate(SIZES_BYTES, 0xFF00_0000_0000_0000):
                payload = os.urandom(size_bytes)
                drive_requests(
                    worker, endpoint.send_tagged([payload[: size_bytes // 3], payload[size_bytes // 3 :]], tag)
                )
                assert receive_tagged(worker) == (tag, payload)
            drive_requests(worker, endpoint.send_tagged([], DONE_TAG))
            drive_until_exit(worker, process)


@pytest.mark.thorough
@pytest.mark.parametrize("options", OPTIONS)
def test_active_messages_go_both_ways_between_processes(options: dict[str, str]) -> None:
    with Context(FEATURES, options) as context:
        worker = Worker(context)
        listener = UcpListener(worker, "127.0.0.1")
        with peer_process("echo", listener.address[1], **options) as process:
            endpoint = accept_one(worker, listener)
            for size_bytes in SIZES_BYTES:
                payload = os.urandom(size_bytes)
                drive_requests(worker, endpoint.send_active_message([payload[:2], payload[2:]]))
                assert receive_active_message(worker) == payload
            drive_requests(worker, endpoint.send_tagged([], DONE_TAG))
            drive_until_exit(worker, process)


def test_active_messages_have_number_0(worker: Worker) -> None:
    with connected(worker) as (client, _):
        requests = [client.send_active_message([b"eager"]), client.send_active_message([bytes(4 << 20)])]
        drive(worker, lambda: len(worker.active_messages) == 2)
        messages = list(worker.active_messages)
        assert {message.id for message in messages} == {0}
        assert sorted(message.payload is None for message in messages) == [False, True]
        for message in messages:
            message.discard()
        drive_requests(worker, *requests)


def receive_memory_key(worker: Worker, endpoint: UcpEndpoint) -> tuple[RemoteKey, int, int]:
    tag, described = receive_tagged(worker)
    assert tag == MEMORY_TAG
    address, size_bytes = struct.unpack_from("<QQ", described)
    return RemoteKey(endpoint, bytes(described[16:])), address, size_bytes


@pytest.mark.thorough
@pytest.mark.parametrize("options", OPTIONS)
def test_memory_of_another_process_is_fetched(options: dict[str, str]) -> None:
    with Context(FEATURES, options) as context:
        worker = Worker(context)
        listener = UcpListener(worker, "127.0.0.1")
        with peer_process("export", listener.address[1], **options) as process:
            endpoint = accept_one(worker, listener)
            key, address, size_bytes = receive_memory_key(worker, endpoint)
            content = bytes(range(256)) * 4096
            whole, part = bytearray(size_bytes), bytearray(1001)
            drive_requests(worker, key.fetch(address, whole), key.fetch(address + 77, part))
            assert bytes(whole) == content
            assert bytes(part) == content[77:1078]
            drive_requests(worker, endpoint.send_tagged([], DONE_TAG))
            drive_until_exit(worker, process)


def test_memory_of_another_process_is_mapped_without_a_copy(worker: Worker, listener: UcpListener) -> None:
    with peer_process("export", listener.address[1]) as process:
        endpoint = accept_one(worker, listener)
        key, address, size_bytes = receive_memory_key(worker, endpoint)
        view = key.map(address, size_bytes)
        part = key.map(address + 5001, 100)
        assert view is not None
        assert part is not None
        with pytest.raises(LimitError, match="not inside one shared mapping"):
            key.map(address + 5000, 1 << 40)
        process.kill()
        process.wait(30)
    worker.close()
    # The views have mappings of their own, which outlive the connection and the peer.
    assert view.readonly
    assert bytes(view) == bytes(range(256)) * 4096
    assert bytes(part) == bytes(view)[5001:5101]


def test_a_killed_sender_is_reported_and_its_message_ends(worker: Worker, listener: UcpListener) -> None:
    with peer_process("send_forever", listener.address[1]) as process:
        endpoint = accept_one(worker, listener)
        receive_tagged(worker)
        message = receive_probed(worker)
        os.kill(process.pid, signal.SIGKILL)
        request = message.receive_into(bytearray(message.length_bytes))
        drive(worker, lambda: request.is_done and endpoint.status < 0)
        assert isinstance(endpoint.error, ConnectionLostError)


def test_sends_to_a_killed_receiver_end(worker: Worker, listener: UcpListener) -> None:
    with peer_process("sleep", listener.address[1]) as process:
        endpoint = accept_one(worker, listener)
        receive_tagged(worker)
        requests = [endpoint.send_tagged([bytes(16 << 20)], BODY_TAG) for _ in range(4)]
        os.kill(process.pid, signal.SIGKILL)
        drive(worker, lambda: endpoint.status < 0)
        close_endpoints(worker, endpoint)
        assert all(isinstance(request.error, ConnectionLostError) for request in requests)


def test_an_idle_worker_sleeps_until_its_event_descriptor_is_readable(worker: Worker, listener: UcpListener) -> None:
    with peer_process("sleep", listener.address[1]):
        accept_one(worker, listener)
        receive_tagged(worker)
        while not worker.arm():
            worker.progress()
        wake_ups = 0
        for _ in range(10):
            worker.progress()
            wake_ups += not worker.arm()
            worker.wait(0.05)
        assert wake_ups <= 5


@pytest.mark.thorough
def test_descriptors_stay_flat_over_200_connections(worker: Worker) -> None:
    with UcpListener(worker, "127.0.0.1") as listener:
        counts = []
        for index in range(200):
            client = worker.connect(*listener.address)
            server = accept_one(worker, listener)
            drive_requests(worker, client.send_tagged([b"x" * 100], index))
            assert receive_tagged(worker) == (index, b"x" * 100)
            close_endpoints(worker, client, server)
            counts.append(count_open_descriptors())
        # libucp closes the sockets of a connection a little later.
        assert max(counts[100:]) <= max(counts[:100]) + 5
    assert not worker.endpoints


def test_closing_a_context_closes_all_its_descriptors() -> None:
    Context(FEATURES).close()
    before = count_open_descriptors()
    for _ in range(3):
        context = Context(FEATURES)
        worker = Worker(context)
        listener = UcpListener(worker, "127.0.0.1")
        client = worker.connect(*listener.address)
        accept_one(worker, listener)
        client.send_tagged([bytes(8 << 20)], BODY_TAG)
        context.close()
    assert count_open_descriptors() == before


def test_sent_buffers_stay_alive_until_the_request_ends(worker: Worker) -> None:
    with connected(worker) as (client, _):
        bodies = [[bytes([index]) * (1 << 20), bytes([index]) * 1000] for index in range(8)]
        requests = [client.send_tagged(body, index) for index, body in enumerate(bodies)]
        del bodies
        gc.collect()
        decoys = [bytearray(b"\xff" * (1 << 20)) for _ in range(8)]
        for _ in range(8):
            tag, body = receive_tagged(worker)
            assert body == bytes([tag]) * ((1 << 20) + 1000)
        drive_requests(worker, *requests)
        assert decoys


def test_discarded_messages_do_not_block_the_sender(worker: Worker) -> None:
    with connected(worker) as (client, _):
        requests = [client.send_tagged([bytes(4 << 20)], 5), client.send_active_message([bytes(4 << 20)])]
        message = receive_probed(worker)
        message.discard()
        drive(worker, lambda: worker.active_messages)
        worker.active_messages.popleft().discard()
        drive_requests(worker, *requests)


def test_a_rejected_client_has_a_connection_error(worker: Worker, listener: UcpListener) -> None:
    client = worker.connect(*listener.address)
    drive(worker, lambda: listener.requests)
    request = listener.requests[0]
    assert request.client_address[0] == "127.0.0.1"
    request.reject()
    drive(worker, lambda: client.status < 0)
    assert isinstance(client.error, ConnectionLostError)
    with pytest.raises(InvalidArgumentError, match="already accepted or rejected"):
        request.reject()


def test_connecting_to_a_closed_port_is_a_lost_connection(worker: Worker) -> None:
    with UcpListener(worker, "127.0.0.1") as listener:
        address = listener.address
    client = worker.connect(*address)
    drive(worker, lambda: client.status < 0)
    assert isinstance(client.error, ConnectionLostError)


def test_a_client_without_error_reports_is_accepted_without_them(worker: Worker) -> None:
    with connected(worker, error_mode=ErrorMode.NONE) as (client, server):
        assert (client.error_mode, server.error_mode) == (ErrorMode.NONE, ErrorMode.NONE)
        drive_requests(worker, client.send_tagged([b"body"], 9))
        assert receive_tagged(worker) == (9, b"body")


def test_a_client_without_error_reports_is_refused_by_an_end_that_needs_them(
    worker: Worker, listener: UcpListener
) -> None:
    worker.connect(*listener.address, error_mode=ErrorMode.NONE)
    drive(worker, lambda: listener.requests)
    with pytest.raises(UnsupportedError):
        worker.accept(listener.requests[0], error_mode=ErrorMode.PEER)


def test_wrong_arguments_never_reach_libucp(context: Context, worker: Worker) -> None:
    with connected(worker) as (client, _):
        for wrong in (-1, 1 << 64):
            with pytest.raises(InvalidArgumentError, match="expected an unsigned 64-bit number"):
                client.send_tagged([b"x"], wrong)
        with pytest.raises(InvalidArgumentError, match="packed key is empty"):
            RemoteKey(client, b"")
        client.send_tagged([b"four"], 4)
        message = receive_probed(worker)
        for buffer, description in ((bytearray(3), "3 writable"), (b"read", "4 read-only")):
            with pytest.raises(InvalidArgumentError, match=f"expected 4 writable bytes, found {description}"):
                message.receive_into(buffer)
        message.discard()
        with pytest.raises(InvalidArgumentError, match="already received"):
            message.receive_into(bytearray(4))
    with pytest.raises(InvalidArgumentError, match="at least 1 byte"):
        context.allocate(0)
    with pytest.raises(ConnectionLostError, match="no address of this host"):
        worker.connect("no.such.host.invalid", 1)


def test_an_unknown_option_is_rejected() -> None:
    with pytest.raises(InvalidArgumentError, match="null character"):
        Context(options={"TLS\0": "tcp"})
    with pytest.raises(InvalidArgumentError, match="RNDV_THRESH=nonsense"):
        Context(options={"RNDV_THRESH": "nonsense"})


def test_using_a_closed_object_is_an_error(context: Context, worker: Worker) -> None:
    with connected(worker) as (client, _):
        memory = context.allocate(4096)
        key = RemoteKey(client, memory.pack_key())
        key.close()
        with pytest.raises(ClosedError):
            key.fetch(memory.address, bytearray(10))
        memory.close()
        with pytest.raises(ClosedError):
            memory.pack_key()
        with pytest.raises(ClosedError):
            _ = memory.view
    with pytest.raises(ClosedError):
        client.send_tagged([b"x"], 1)
    worker.close()
    worker.close()
    with pytest.raises(ClosedError):
        worker.progress()
    context.close()
    with pytest.raises(ClosedError):
        Worker(context)


def test_views_of_allocated_memory_outlive_the_context() -> None:
    context = Context(FEATURES)
    memory = context.allocate(1 << 20)
    view = memory.view
    view[:4] = b"kept"
    memory.close()
    context.close()
    assert bytes(view[:5]) == b"kept\0"
    assert context._mappings
    del view
    assert not context._mappings
    assert not context.handle


def test_an_exception_in_a_callback_is_raised_by_progress(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    with connected(worker) as (client, _):

        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(ucp, "ActiveMessage", interrupt)
        client.send_active_message([b"x"])
        with pytest.raises(KeyboardInterrupt):
            drive(worker, lambda: False)
        monkeypatch.undo()
        client.send_active_message([b"next"])
        assert receive_active_message(worker) == b"next"


def test_close_during_progress_is_deferred(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    with UcpListener(worker, "127.0.0.1") as listener:
        client = worker.connect(*listener.address)
        accept_one(worker, listener)
        monkeypatch.setattr(ucp, "ActiveMessage", lambda *_: worker.close())  # as a signal handler does
        client.send_active_message([b"x"])
        with pytest.raises((ClosedError, AttributeError)):
            drive(worker, lambda: False)
        assert worker.is_closed


def _use_after_fork(context: Context, worker: Worker, pipe: Connection) -> None:
    errors = []
    calls: list[Callable[[], object]] = [worker.progress, lambda: Worker(context), lambda: Context(FEATURES)]
    for call in calls:
        try:
            call()
        except InvalidArgumentError as error:
            errors.append(str(error))
    worker.close()
    context.close()
    pipe.send(errors)


def test_a_forked_child_cannot_use_or_close_what_its_parent_opened(context: Context, worker: Worker) -> None:
    with connected(worker) as (client, _):
        fork = multiprocessing.get_context("fork")
        receiver, sender = fork.Pipe()
        child = fork.Process(target=_use_after_fork, args=(context, worker, sender))
        child.start()
        errors = receiver.recv()
        child.join(30)
        assert child.exitcode == 0
        assert [text.partition(": ")[2] for text in errors] == [
            "objects of the parent process can't be used after a fork",
            "objects of the parent process can't be used after a fork",
            "the parent used UCX when it forked this process: start processes with spawn instead",
        ]
        drive_requests(worker, client.send_tagged([b"still there"], 3))
        assert receive_tagged(worker) == (3, b"still there")


def test_a_process_may_exit_with_everything_open(worker: Worker, listener: UcpListener) -> None:
    with peer_process("leave_open", listener.address[1]) as process:
        endpoint = accept_one(worker, listener)
        assert receive_tagged(worker) == (BODY_TAG, b"left open")
        drive_until_exit(worker, process)
        drive(worker, lambda: endpoint.status < 0)
        assert endpoint.status in (StatusCode.CONNECTION_RESET, StatusCode.NOT_CONNECTED)


def test_a_killed_process_leaves_nothing_in_shared_memory(worker: Worker, listener: UcpListener) -> None:
    before = set(os.listdir("/dev/shm"))
    with peer_process("export", listener.address[1]) as process:
        endpoint = accept_one(worker, listener)
        receive_memory_key(worker, endpoint)
        os.kill(process.pid, signal.SIGKILL)
        drive(worker, lambda: endpoint.status < 0)
    # Segments of other tests, which run at the same time, are mapped by their processes.
    assert wait_until(lambda: not [name for name in set(os.listdir("/dev/shm")) - before if is_abandoned(name)])


def is_abandoned(name: str) -> bool:
    """Whether a segment of UCX is mapped by no process."""
    return "ucx" in name and not any(name in read_maps(process) for process in Path("/proc").glob("[0-9]*"))


def read_maps(process: Path) -> str:
    try:
        return (process / "maps").read_text()
    except OSError:  # it has ended
        return ""


def test_another_library_cannot_be_loaded_beside_the_first() -> None:
    with pytest.raises(InvalidArgumentError, match="already uses the wheel"):
        Context(library="libc.so.6")


def test_the_error_names_a_library_that_is_not_libucp() -> None:
    code = """
from bowstring.errors import UnmetRequirementError
from bowstring_networks.ucx import libucp
for name in ("libc.so.6", "/no/such/libucp.so"):
    try:
        libucp.load(name)
    except UnmetRequirementError as error:
        print(error)
"""
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    first, second = output.splitlines()
    assert first.startswith("UCX: libc.so.6 has no ucp_get_version")
    assert second.startswith("UCX: /no/such/libucp.so cannot be loaded")


def test_without_the_wheel_the_error_names_the_extra() -> None:
    code = """
import importlib.util
importlib.util.find_spec = lambda name: None
from bowstring_networks.ucx import libucp
try:
    libucp.load()
except ImportError as error:
    print(error)
"""
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "./networks[ucx]" in output

"""Processes for the tests of UCX: run with the name of a function, an address and options of libucp."""

from __future__ import annotations

import json
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from bowstring.errors import MissingExtraError, UnmetRequirementError
from bowstring_networks.ucx import libucp
from bowstring_networks.ucx.context import DEFAULT_FEATURES, Context, UcpMemory
from bowstring_networks.ucx.libucp import Feature
from bowstring_networks.ucx.ucp import Request, TaggedMessage, UcpEndpoint, Worker

FEATURES = DEFAULT_FEATURES | Feature.RMA
TIMEOUT_S = 30.0
DONE_TAG, MEMORY_TAG, BODY_TAG = 1, 2, 3


def require_libucp() -> None:
    """Skip the tests of a module if the extra is not installed."""
    try:
        libucp.load()
    except (MissingExtraError, UnmetRequirementError) as error:
        pytest.skip(str(error), allow_module_level=True)


def drive(worker: Worker, is_done: Callable[[], object], timeout_s: float = TIMEOUT_S) -> None:
    """Make progress until `is_done`, asleep when there is nothing to do."""
    end = time.monotonic() + timeout_s
    while not is_done():
        if time.monotonic() > end:
            raise AssertionError("nothing happened before the deadline")
        worker.progress()
        if is_done():
            return
        worker.wait(0.5)


def drive_requests(worker: Worker, *requests: Request) -> None:
    """Drive the requests to their end; raise the error of one that failed."""
    drive(worker, lambda: all(request.is_done for request in requests))
    for request in requests:
        if (error := request.error) is not None:
            raise error


def receive_probed(worker: Worker) -> TaggedMessage:
    """Wait for the next tagged message, and take it."""
    messages: list[TaggedMessage] = []

    def is_there() -> bool:
        if (message := worker.probe_tagged_message()) is not None:
            messages.append(message)
        return bool(messages)

    drive(worker, is_there)
    return messages[0]


def receive_tagged(worker: Worker) -> tuple[int, bytes]:
    """Receive the next tagged message: its tag and bytes."""
    message = receive_probed(worker)
    buffer = bytearray(message.length_bytes)
    drive_requests(worker, message.receive_into(buffer))
    return message.tag, bytes(buffer)


def receive_active_message(worker: Worker) -> bytes:
    """Receive the next active message."""
    drive(worker, lambda: worker.active_messages)
    message = worker.active_messages.popleft()
    if message.payload is not None:
        return message.payload
    buffer = bytearray(message.length_bytes)
    drive_requests(worker, message.receive_into(buffer))
    return bytes(buffer)


def memory_message(memory: UcpMemory) -> bytes:
    """Pack the address, size and key of a memory."""
    return struct.pack("<QQ", memory.address, memory.size_bytes) + memory.pack_key()


def accept_one(worker: Worker, listener: Any) -> UcpEndpoint:
    """Wait for a client and accept it."""
    drive(worker, lambda: listener.requests)
    return worker.accept(listener.requests[0])


@contextmanager
def peer_process(function: str, port: int, **options: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs a function of this module, connected to a port."""
    arguments = [sys.executable, "-m", __name__, function, str(port), json.dumps(options)]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=TIMEOUT_S)


def drive_until_exit(worker: Worker, process: subprocess.Popen[bytes]) -> None:
    """Drive a worker until a process has ended, which must have succeeded without output."""
    drive(worker, lambda: process.poll() is not None)
    output, _ = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, output) == (0, b"")


def echo(worker: Worker, endpoint: UcpEndpoint) -> None:
    """Send each message back, until a message with `DONE_TAG`."""
    while True:
        if worker.active_messages:
            drive_requests(worker, endpoint.send_active_message([receive_active_message(worker)]))
        elif (message := worker.probe_tagged_message()) is not None:
            buffer = bytearray(message.length_bytes)
            drive_requests(worker, message.receive_into(buffer))
            if message.tag == DONE_TAG:
                drive_requests(worker, endpoint.flush())
                return
            drive_requests(worker, endpoint.send_tagged([buffer], message.tag))
        else:
            worker.progress()
            if not worker.active_messages:
                worker.wait(0.1)


def export(worker: Worker, endpoint: UcpEndpoint) -> None:
    """Export memory, and serve it until a message with `DONE_TAG`."""
    memory = worker.context.allocate(1 << 20)
    memory.view[:] = bytes(range(256)) * (1 << 12)
    drive_requests(worker, endpoint.send_tagged([memory_message(memory)], MEMORY_TAG))
    tag, _ = receive_tagged(worker)
    assert tag == DONE_TAG


def send_forever(worker: Worker, endpoint: UcpEndpoint) -> None:
    """Send large bodies without an end."""
    body = bytearray(32 << 20)
    while True:
        drive_requests(worker, endpoint.send_tagged([body], BODY_TAG))


def sleep(worker: Worker, endpoint: UcpEndpoint) -> None:
    """Connect and wait to be killed."""
    drive_requests(worker, endpoint.send_tagged([], DONE_TAG))
    signal.pause()


def leave_open(worker: Worker, endpoint: UcpEndpoint) -> None:
    """Exit with operations in progress and everything open."""
    worker.context.allocate(4096)
    drive_requests(worker, endpoint.send_tagged([b"left open"], BODY_TAG))
    endpoint.send_tagged([bytearray(8 << 20)], BODY_TAG)
    sys.exit(0)


if __name__ == "__main__":
    context = Context(FEATURES, json.loads(sys.argv[3]))
    worker = Worker(context)
    endpoint = worker.connect("127.0.0.1", int(sys.argv[2]))
    globals()[sys.argv[1]](worker, endpoint)
    context.close()

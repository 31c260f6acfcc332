"""The messages of the host agent: an agent whose task sends any bytes, and a task whose agent does.

Both use real sockets. The agent answers each request with an object or an error, or closes the connection; it serves
what its answers promise, and the next task. Neither keeps descriptors.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import bowstring as bs
from bowstring.errors import BowstringError, DeadlineError, InvalidArgumentError, NotFoundError
from bowstring.sharing.agent.client import AgentClient
from bowstring.sharing.agent.host_agent import TRANSPORT_OPTIONS, HostAgent
from bowstring.sharing.agent.memory_budget import MemoryRequest
from bowstring.sharing.processes import ProcessIdentity
from bowstring.sharing.uris import ERROR_DATA
from bowstring.transports.base import TransportOptions
from bowstring.transports.blocking import BlockingChannel
from bowstring.transports.sockets.frames import HELLO_BODY, REGION_BODY, VERSION, FrameKind
from bowstring.transports.sockets.unix import UNIX, UnixListener
from bowstring_testing.descriptors import count_open_descriptors
from fuzz.expectations import expect
from fuzz.frames import EditableFrame, build_frame, encode_frames, parse_frames
from fuzz.oracles.frames import TABLE, TCP, passed_region, send_segment, split_segments
from fuzz.oracles.sessions import listen

_TIMEOUT_S = 10.0
_CHUNK_BYTES = 1 << 16
_HELLO = build_frame(FrameKind.HELLO, 0, HELLO_BODY.pack(VERSION, VERSION))
_STATUS = {"op": "status"}
_MEMORY = MemoryRequest(1000, 2000, 0, 1_000_000, 5000)


def check_agent_requests(data: bytes) -> bool:
    """Check a host agent that receives these bytes from a task."""
    options, sent = (data[0] & ~TCP, data[1:]) if data else (0, b"")
    passed_region(options & 0x30)
    descriptors_before = count_open_descriptors()
    with listen("unix") as (listening_socket, address), HostAgent() as agent:
        listener = UnixListener.from_socket(listening_socket.dup(), TRANSPORT_OPTIONS)
        agent.listen(listener)
        replies = _exchange(agent, address, split_segments(options, sent))
        status = _exchange(agent, address, iter([(encode_frames([_HELLO, _message(_STATUS)]), [])]))
        _check_status(json.loads(bytes(status[-1].payload)))
        for reply in replies:
            _check_reply(reply)
    expect(count_open_descriptors() == descriptors_before, "the agent leaves descriptors open")
    num_requests = sum(each.kind == FrameKind.PLAIN for each in parse_frames(sent))
    return (
        bool(num_requests) and [each.kind for each in replies] == [FrameKind.HELLO] + [FrameKind.PLAIN] * num_requests
    )


def check_agent_replies(data: bytes) -> bool:
    """Check a task that receives these bytes from a host agent."""
    options, received = (data[0] & ~TCP, data[1:]) if data else (0, b"")
    region = passed_region(0)
    passed_region(options & 0x30)
    descriptors_before = count_open_descriptors()
    is_valid = True
    with listen("unix") as (listening_socket, address):
        channel = BlockingChannel.dial(UNIX, address, options=TransportOptions(timeout_s=_TIMEOUT_S, max_regions=1))
        peer, _ = listening_socket.accept()
        with AgentClient(channel) as client, peer:
            for segment, descriptors in split_segments(options, received):
                send_segment(peer, segment, descriptors)
            peer.shutdown(socket.SHUT_WR)
            calls: dict[str, Callable[[], object]] = {
                "reserve": lambda: type(client.reserve(_MEMORY)[0]) is int,
                "put": lambda: isinstance(client.put("d", (0, 1), region, num_rows=TABLE.num_rows).uris, tuple),
                "commit": lambda: all(type(partition) is int for partition in client.commit_attempts("d", {0: 1})),
                "status": lambda: isinstance(client.status()["datasets"], dict),
                "drop": lambda: not client.drop("d"),  # type: ignore[func-returns-value]
            }
            for name, call in calls.items():
                try:
                    expect(bool(call()), f"{name} returns a value of another type")
                except BowstringError as error:
                    _check_error(error, received)
                    is_valid = False
    expect(count_open_descriptors() == descriptors_before, "the client leaves descriptors open")
    return is_valid


def agent_session() -> tuple[bytes, bytes]:
    """The requests of a task that publishes two partitions, and the replies to another."""
    owner = ProcessIdentity.current()
    requests = [_HELLO, _message({"op": "hello", "owner": [owner.pid, owner.start_ticks, owner.host]})]
    region = REGION_BODY.pack(passed_region(0).size_bytes, 1)
    for index in range(2):
        put = {"op": "put", "dataset": "d", "attempt": [index, 7], "region": index, "num_rows": TABLE.num_rows}
        requests += [
            _message({"op": "reserve", "memory": asdict(_MEMORY)}),
            build_frame(FrameKind.REGION, index, region),
            _message({**put, "ttl_s": 60.0, "needs_commit": not index, "is_detached": False, "is_temporary": False}),
        ]
    requests += [_message({"op": "commit", "dataset": "d", "attempts": [[0, 7], [1, 7]]}), _message(_STATUS)]
    requests += [_message({"op": "drop", "dataset": "d", "is_replaced": False, "reason": "unpublished"})]
    replies = [
        {"reserved_bytes": 1000, "shortage": ""},
        {"locations": ["unix:@a?want_data=1"]},
        {"missing": [0]},
        {"pid": 1, "datasets": {"d": {"rows": 3}}},
        {},
    ]
    return encode_frames(requests), encode_frames([_HELLO, *map(_message, replies)])


def _message(value: object) -> EditableFrame:
    """A request or a reply."""
    return build_frame(FrameKind.PLAIN, 0, json.dumps(value).encode())


def _exchange(agent: HostAgent, address: str, pieces: Iterator[tuple[bytes, list[int]]]) -> list[EditableFrame]:
    """Send bytes to the agent, and return its answers, after which it must close the connection."""
    received = b""
    with UNIX.dial(address) as channel, channel._socket.dup() as task:
        for segment, descriptors in pieces:
            try:
                send_segment(task, segment, descriptors)
            except ConnectionError:  # the agent has closed the connection
                break
            received += _step(agent, task)
        try:
            task.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        received += _step(agent, task)
        expect(_is_at_end(task), "the agent keeps a connection that has ended")
    return parse_frames(received)


def _step(agent: HostAgent, task: socket.socket) -> bytes:
    """Let the agent do all that it can; return what it sends."""
    received = b""
    while agent.step(0):
        received += _receive(task)
    return received + _receive(task)


def _receive(task: socket.socket) -> bytes:
    try:
        return task.recv(_CHUNK_BYTES, socket.MSG_DONTWAIT)
    except (BlockingIOError, ConnectionError):
        return b""


def _is_at_end(task: socket.socket) -> bool:
    try:
        return not task.recv(1, socket.MSG_DONTWAIT)
    except ConnectionError:
        return True
    except BlockingIOError:
        return False


def _check_reply(reply: EditableFrame) -> None:
    """Check an answer: a URI leads to the served table, or to nothing."""
    if reply.kind != FrameKind.PLAIN:
        expect(reply.kind == FrameKind.HELLO or reply.tag == ERROR_DATA, f"a reply has the tag {reply.tag}")
        return
    answer = json.loads(bytes(reply.payload))
    expect(isinstance(answer, dict), f"a reply is {answer!r}")
    if "locations" in answer:
        try:
            with bs.connect(answer["locations"][0], timeout_s=_TIMEOUT_S) as dataset:
                expect(dataset.read_all() == TABLE, "a partition has other values")
        except NotFoundError:
            pass


def _check_status(status: dict[str, Any]) -> None:
    for name, dataset in status["datasets"].items():
        expect(dataset["rows"] == TABLE.num_rows * dataset["partitions"], f"data set {name!r}: {dataset}")
        expect(dataset["memory_bytes"] + dataset["spilled_bytes"] >= dataset["bytes"], f"data set {name!r}: {dataset}")


def _check_error(error: BowstringError, received: bytes) -> None:
    expect(bool(str(error)), "the error has no message")
    # An agent may refuse a request with any error.
    is_refusal = any(each.kind == FrameKind.TAGGED for each in parse_frames(received))
    expect(
        not isinstance(error, InvalidArgumentError | DeadlineError) or is_refusal, f"{type(error).__name__}: {error}"
    )

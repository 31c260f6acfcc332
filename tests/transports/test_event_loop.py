from __future__ import annotations

import math
import selectors
import socket
import threading
import time
from collections.abc import Iterator

import pytest

import bowstring as bs
from bowstring.errors import ResourceError
from bowstring.transports import event_loop
from bowstring.transports.base import Interest, Wait
from bowstring.transports.event_loop import EventLoop
from bowstring_testing.descriptors import assert_descriptors_closed
from tests.polling import wait_until


class Echo:
    """Sends back what it receives, in upper case; fails on "fail"."""

    def __init__(self, loop: EventLoop) -> None:
        self.peer, self.own = socket.socketpair()
        self.loop = loop
        self.interest = selectors.EVENT_READ
        self.timeout_s = math.inf
        self.deadline = math.inf
        self.expired = 0
        self.is_closed = False
        self.peer.settimeout(10)

    def next_wait(self) -> Wait:
        return Wait([Interest(self.own.fileno(), self.interest)] if self.interest else [], self.timeout_s)

    def descriptors(self) -> list[int]:
        return [self.own.fileno()]

    def handle_events(self, events: int) -> None:
        assert events == selectors.EVENT_READ
        received = self.own.recv(100)
        if received == b"fail":
            raise RuntimeError("unexpected")
        if received == b"leave":
            self.loop.remove(self)
        self.own.sendall(received.upper())

    def handle_deadline(self) -> None:
        self.expired += 1
        self.deadline = math.inf

    def close(self) -> None:
        self.is_closed = True
        self.own.close()


@pytest.fixture
def loop() -> Iterator[EventLoop]:
    with assert_descriptors_closed(), EventLoop("test") as loop:
        yield loop


@pytest.fixture
def no_new_threads() -> Iterator[None]:
    previous_bytes = threading.stack_size(1 << 46)
    yield
    threading.stack_size(previous_bytes)


@pytest.mark.usefixtures("no_new_threads")
def test_a_thread_that_does_not_start_is_a_resource_error(loop: EventLoop) -> None:
    with pytest.raises(ResourceError, match="event loop: can't start new thread"):
        loop.start()


@pytest.mark.usefixtures("no_new_threads")
def test_a_server_whose_thread_does_not_start_leaves_no_descriptors() -> None:
    with assert_descriptors_closed(), pytest.raises(ResourceError):
        bs.serve({})


def echo(echo: Echo, text: bytes) -> bytes:
    echo.peer.sendall(text)
    return echo.peer.recv(100)


def test_handlers_are_not_closed_while_the_thread_uses_them(monkeypatch: pytest.MonkeyPatch) -> None:
    class Blocking(Echo):
        is_called, may_return = threading.Event(), threading.Event()

        def handle_events(self, events: int) -> None:
            self.is_called.set()
            self.may_return.wait(60)
            super().handle_events(events)

    monkeypatch.setattr(event_loop, "_JOIN_TIMEOUT_S", 0.01)
    with assert_descriptors_closed():
        loop = EventLoop("test")
        handler = Blocking(loop)
        loop.add(handler)
        loop.start()
        handler.peer.sendall(b"text")
        assert handler.is_called.wait(60)
        loop.close()
        assert not handler.is_closed
        handler.may_return.set()
        assert handler.peer.recv(100) == b"TEXT"
        loop._thread.join(60)
        assert handler.is_closed
        handler.peer.close()


def test_ready_handlers_are_called_and_closed_at_the_end(loop: EventLoop) -> None:
    one, other = Echo(loop), Echo(loop)
    loop.add(one)
    loop.start()
    loop.call_soon_threadsafe(lambda: loop.add(other))
    assert (echo(one, b"a"), echo(other, b"b"), echo(one, b"c")) == (b"A", b"B", b"C")
    assert echo(other, b"leave") == b"LEAVE"
    loop.close()
    loop.close()
    assert (one.is_closed, other.is_closed) == (True, False)
    for socket_ in (one.peer, other.peer, other.own):
        socket_.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_handler_that_fails_is_closed_and_reported_and_the_others_continue(
    loop: EventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[object] = []
    monkeypatch.setattr(threading, "excepthook", lambda arguments: reported.append(arguments.exc_value))
    one, other = Echo(loop), Echo(loop)
    loop.add(one)
    loop.add(other)
    loop.start()
    assert echo(one, b"fail") == b""
    assert wait_until(lambda: one.is_closed)
    assert echo(other, b"b") == b"B"
    assert [str(error) for error in reported] == ["unexpected"]
    loop.close()
    one.peer.close()
    other.peer.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_call_that_fails_is_reported_and_the_loop_continues(loop: EventLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[object] = []
    monkeypatch.setattr(threading, "excepthook", lambda arguments: reported.append(arguments.exc_type))
    handler = Echo(loop)
    loop.add(handler)
    loop.start()
    loop.call_soon_threadsafe(lambda: list[None]().pop())
    assert wait_until(lambda: bool(reported))
    assert echo(handler, b"a") == b"A"
    assert reported == [IndexError]
    loop.close()
    handler.peer.close()


class Recorder(Echo):
    """Records its turns in a list shared by several, and continues after a timeout until it has had all turns."""

    def __init__(self, loop: EventLoop, name: str, turns: list[str], num_turns: int, timeout_s: float = 0.0) -> None:
        super().__init__(loop)
        self.work_timeout_s = timeout_s
        self.name = name
        self.turns = turns
        self.num_turns = num_turns

    def handle_events(self, events: int) -> None:
        self.turns.append(self.name)
        self.num_turns -= 1
        self.timeout_s = self.work_timeout_s if self.num_turns else math.inf
        if not self.num_turns:
            self.own.recv(100)

    def handle_deadline(self) -> None:
        self.turns.append(f"{self.name} has expired")


def test_handlers_that_are_ready_and_have_more_work_take_turns_and_do_not_expire(loop: EventLoop) -> None:
    turns: list[str] = []
    recorders = [Recorder(loop, name, turns, 100) for name in "ab"]
    for recorder in recorders:
        recorder.peer.sendall(b"ready until it is received")
        loop.add(recorder)
    loop.start()
    assert wait_until(lambda: len(turns) >= 200)
    loop.close()
    assert len(turns) == 200
    assert all({*turns[index : index + 2]} == {"a", "b"} for index in range(0, 200, 2))
    for recorder in recorders:
        recorder.peer.close()


@pytest.mark.parametrize("timeout_s", [0.0, 0.0001])
def test_a_handler_continues_after_its_timeout_without_a_ready_descriptor(loop: EventLoop, timeout_s: float) -> None:
    turns: list[str] = []
    recorder = Recorder(loop, "a", turns, 100, timeout_s)
    recorder.peer.sendall(b"for the last turn")
    recorder.interest = 0
    loop.add(recorder)
    loop.start()
    loop.call_soon_threadsafe(lambda: loop.notify_handler(recorder, 0))
    assert wait_until(lambda: len(turns) == 100)
    loop.close()
    assert turns == ["a"] * 100
    recorder.peer.close()


def test_a_deadline_that_moved_expires_once(loop: EventLoop) -> None:
    moved, near = Echo(loop), Echo(loop)
    moved.deadline = time.monotonic() + 0.05
    near.deadline = time.monotonic() + 0.01
    loop.add(moved)
    loop.add(near)
    moved.deadline = time.monotonic() + 3600
    loop.start()
    assert wait_until(lambda: near.expired)
    assert not moved.expired
    moved.deadline = 0.01
    assert echo(moved, b"a") == b"A"  # a new deadline counts from the next call on
    assert wait_until(lambda: moved.expired)
    assert (moved.expired, near.expired) == (1, 1)
    loop.close()
    moved.peer.close()
    near.peer.close()


def test_a_handler_may_wait_for_nothing(loop: EventLoop) -> None:
    echo = Echo(loop)
    echo.interest = 0
    echo.deadline = 0.01
    echo.peer.sendall(b"a")
    loop.add(echo)
    loop.start()
    assert wait_until(lambda: echo.expired)
    echo.peer.setblocking(False)
    with pytest.raises(BlockingIOError):
        echo.peer.recv(1)
    loop.close()
    echo.peer.close()

"""Calls that finalizers leave to a thread, without a device: what is waited for here is a `threading.Event`."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable

import pytest

from bowstring.errors import ResourceError, UnmetRequirementError
from bowstring_networks.cuda import finalizer_thread
from bowstring_networks.cuda.finalizer_thread import FinalizerThread
from tests.polling import wait_until


class Holder:
    """Something with a finalizer."""


def flush(calls: FinalizerThread) -> None:
    """Wait until the calls so far have been made."""
    done = threading.Event()
    calls.add(lambda: None, done.set)
    assert done.wait(20)


@pytest.fixture
def calls() -> FinalizerThread:
    calls = FinalizerThread()
    calls.start()
    return calls


def test_a_finalizer_returns_before_its_call_is_made(calls: FinalizerThread) -> None:
    is_complete, made = threading.Event(), []

    def wait() -> None:
        is_complete.wait()

    holder = Holder()
    weakref.finalize(holder, calls.add, wait, lambda: made.append(threading.current_thread()))
    del holder
    gc.collect()
    assert not made
    is_complete.set()
    assert wait_until(lambda: bool(made))
    assert made[0] is not threading.current_thread()


def test_calls_are_made_in_order_after_one_wait_for_each_device(calls: FinalizerThread) -> None:
    events: list[object] = []
    with calls.pause():
        waits: list[Callable[[], None]] = [lambda: events.append("first"), lambda: events.append("second")]
        for number in range(100):
            calls.add(waits[number % 2], lambda number=number: events.append(number))  # type: ignore[misc]
        assert not events
    flush(calls)
    numbers = [event for event in events if isinstance(event, int)]
    assert numbers == list(range(100))
    # The first call may be taken from the queue alone.
    assert events.index(1) > events.index("second") > events.index("first")
    assert len(events) - len(numbers) <= 3


def test_a_call_is_not_made_while_calls_are_paused(calls: FinalizerThread) -> None:
    made = threading.Event()
    with calls.pause():
        calls.add(lambda: None, made.set)
        assert not made.wait(0.05)
    assert made.wait(20)


def test_a_wait_that_fails_is_repeated_before_the_call(calls: FinalizerThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finalizer_thread, "_RETRY_S", 0.001)
    events: list[str] = []

    def wait() -> None:
        events.append("wait")
        if len(events) < 3:
            raise ResourceError("a graph is being captured")

    calls.add(wait, lambda: events.append("call"))
    flush(calls)
    assert events == ["wait", "wait", "wait", "call"]


def test_errors_of_a_driver_that_has_ended_do_not_end_the_thread(calls: FinalizerThread) -> None:
    def fail() -> None:
        raise UnmetRequirementError("deinitialized")

    calls.add(fail, fail)
    flush(calls)


def test_many_finalizers_may_run_while_the_thread_makes_calls(calls: FinalizerThread) -> None:
    count = 0

    def increment() -> None:
        nonlocal count
        count += 1

    for _ in range(2000):
        holder = Holder()
        holder.cycle = holder  # type: ignore[attr-defined]
        weakref.finalize(holder, calls.add, lambda: None, increment)
    del holder
    gc.collect()
    flush(calls)
    assert count == 2000

"""Thread pool: results in order, the error of the first failing job, and nested jobs."""

from __future__ import annotations

import threading
import time

import pytest

from bowstring.errors import ResourceError
from bowstring.memory.thread_pool import map_in_new_threads, map_in_threads, start_thread

MANY = range(64)
LARGE = [1 << 20] * len(MANY)


def test_results_come_in_the_order_of_the_jobs() -> None:
    def work(job: int) -> int:
        time.sleep(0.001 * (job % 3))
        return job * job

    assert map_in_threads(work, MANY, LARGE) == [job * job for job in MANY]


def test_jobs_may_start_jobs() -> None:
    numbers: list[list[int]] = []

    def outer(job: int) -> int:
        return sum(map_in_threads(lambda inner: job * inner, MANY, LARGE))

    caller = threading.Thread(target=lambda: numbers.append(map_in_threads(outer, MANY, LARGE)), daemon=True)
    caller.start()
    caller.join(60)
    assert numbers == [[job * sum(MANY) for job in MANY]]


def test_the_error_of_the_first_failing_job_is_raised_and_few_more_are_started() -> None:
    begun: list[int] = []

    def work(job: int) -> None:
        begun.append(job)
        if job >= 5:
            time.sleep(0.05 * (job == 5))
            raise ValueError(f"job {job}")

    with pytest.raises(ValueError, match="job 5"):
        map_in_threads(work, MANY, LARGE)
    assert len(begun) < len(MANY)


def test_an_index_error_of_a_job_is_raised() -> None:
    def work(job: int) -> None:
        raise IndexError(job)

    with pytest.raises(IndexError, match="0"):
        map_in_threads(work, MANY, LARGE)


def test_small_jobs_run_in_the_calling_thread() -> None:
    threads = map_in_threads(lambda _: threading.get_ident(), MANY, [1] * len(MANY))
    assert set(threads) == {threading.get_ident()}


def test_calls_that_wait_for_each_other_run_in_threads_of_their_own() -> None:
    all_run = threading.Barrier(4, timeout=30)

    def wait(job: int) -> int:
        all_run.wait()
        return job * job

    assert map_in_new_threads(wait, range(4), 4) == [0, 1, 4, 9]
    assert map_in_new_threads(wait, [], 4) == []


def test_the_error_of_the_first_call_that_fails_is_raised_when_the_others_have_ended() -> None:
    both_run = threading.Barrier(2, timeout=30)

    def fail(job: int) -> None:
        both_run.wait()
        raise ValueError(f"job {job}")

    with pytest.raises(ValueError, match="job 0"):
        map_in_new_threads(fail, range(2), 2)


def test_the_caller_works_alone_if_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    threads = map_in_new_threads(lambda _: threading.get_ident(), MANY, 4)
    assert threads == [threading.get_ident()] * len(MANY)
    with pytest.raises(ResourceError, match="reader: can't start new thread"):
        start_thread(print, "reader")

"""Thread pool: results in order, the error of the first failing job, and nested jobs."""

from __future__ import annotations

import threading
import time

import pytest

from bowstring.memory.thread_pool import map_in_threads

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

"""Scheduling of tests with several workers of pytest-xdist (`-n 2`).

The tests of a file run in one worker, because they share fixtures and the examples of a page depend on each other. All
tests that start Spark count as one file. The longest files run first, so that the workers end at the same time.
"""

from __future__ import annotations

from typing import Any

import pytest

TOGETHER = ("tests/spark/",)
FIRST = (*TOGETHER, "tests/fuzz/")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Distribute whole files in collection order."""
    from xdist.scheduler import LoadFileScheduling

    config.option.loadscopereorder = False
    scheduling = LoadFileScheduling(config, log)
    file_of = scheduling._split_scope
    scheduling._split_scope = lambda test: next(filter(test.startswith, TOGETHER), file_of(test))
    return scheduling


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a worker, run the longest files first."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: not item.nodeid.startswith(FIRST))

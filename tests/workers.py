"""Several workers share the tests where pytest is told so (`-n 2`, by pytest-xdist): who runs what, and in which order.

A file's tests stay together, for what they share and because the examples of a page follow each other; all that starts
Spark counts as one file. What takes longest begins first, so that the workers end together.
"""

from __future__ import annotations

from typing import Any

import pytest

TOGETHER = ("tests/spark/",)
FIRST = (*TOGETHER, "tests/fuzz/")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out whole files, in the order of the collection."""
    from xdist.scheduler import LoadFileScheduling

    config.option.loadscopereorder = False
    scheduling = LoadFileScheduling(config, log)
    file_of = scheduling._split_scope
    scheduling._split_scope = lambda test: next(filter(test.startswith, TOGETHER), file_of(test))
    return scheduling


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a worker, put first what takes longest."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: not item.nodeid.startswith(FIRST))

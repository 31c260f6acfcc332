"""Scheduling of tests with several workers of pytest-xdist (`-n 2`).

The tests of a file run in one worker, because they share fixtures and the examples of a page depend on each other. The
tests that share a Spark session count as one file, of which there are two, and so do those that share a cluster. The
longest files run first, so that the workers end at the same time.
"""

from __future__ import annotations

from typing import Any

import pytest

SPARK = "tests/spark/"
SHARE_CLUSTER = ("folder/test_cluster.py", "publication/test_loss_cluster.py")
START_SPARK_THEMSELVES = (
    "runtime/test_java_runtime.py",
    "publication/test_publish_limited.py",
    "publication/test_remote_cluster.py",
    "source/test_stream_kills.py",
)
PUBLISH = ("publication/", "runtime/", "source/test_dataset_reader")
FIRST = (SPARK, "tests/fuzz/")


def group_of(file: str) -> str:
    """The name of the group of files that run in one worker, in order of the tests."""
    folder, _, name = file.partition(SPARK)
    if folder or not name or name in START_SPARK_THEMSELVES:
        return file
    if name in SHARE_CLUSTER:
        return "a cluster"
    return "a session that publishes" if name.startswith(PUBLISH) else "a session that writes files"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Distribute whole files in collection order."""
    from xdist.scheduler import LoadFileScheduling

    config.option.loadscopereorder = False
    scheduling = LoadFileScheduling(config, log)
    file_of = scheduling._split_scope
    scheduling._split_scope = lambda test: group_of(file_of(test))
    return scheduling


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a worker, run the longest files first."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: not item.nodeid.startswith(FIRST))

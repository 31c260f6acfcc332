"""Fixtures of the fault tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import pytest

from tests.sharing.faults.processes import Children

MODES = pytest.mark.parametrize(
    ("scheme", "copy"), [("unix", False), ("unix", True), ("tcp", False)], ids=["addresses", "bytes", "tcp"]
)
"""The scheme of a server, and whether a client requests bytes."""
CountFaults: TypeAlias = Callable[[str, int], None]


@pytest.fixture(scope="module")
def children() -> Iterator[Children]:
    with Children() as own:
        yield own


@pytest.fixture
def count_faults(record_property: Callable[[str, object], None]) -> CountFaults:
    """A function that adds to a count, which is printed at the end of the session."""
    return lambda name, number: record_property("faults", (name, number))

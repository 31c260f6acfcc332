"""What all tests have in common."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

REPOSITORY = Path(__file__).resolve().parent.parent

# Deadlines measure the machine, not the code; a busy one must not turn a test red.
settings.register_profile("default", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", settings.get_profile("default"), derandomize=False, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_unconfigure() -> None:
    """Let the end of the process find what is left: extension modules complain of what they take for leaks."""
    gc.unfreeze()


@pytest.fixture(scope="module", autouse=True)
def known_to_stay() -> None:
    """Keep the garbage collector off what was there before a file's tests: they ask for many of its rounds."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def repository() -> Path:
    """The repository's root."""
    return REPOSITORY


@pytest.fixture(scope="session")
def shared_folder() -> Path:
    """The folder `shared` beside the repository: large inputs that are no part of it."""
    folder = REPOSITORY.parent / "shared"
    if not folder.is_dir():
        pytest.skip("the folder ../shared with the large inputs is not on this machine")
    return folder


@pytest.fixture
def put() -> Iterator[Callable[[bytes], str]]:
    """Puts bytes in a store that is far away and counts what it is asked, from then on; gives their URL."""
    from tests.ipc.remote import SlowFileSystem

    yield SlowFileSystem.put
    SlowFileSystem.store.clear()

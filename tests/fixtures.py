"""Fixtures and settings of all tests."""

from __future__ import annotations

import gc
import os
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, settings

from bowstring.arrays.record_batch import RecordBatch
from bowstring.io.store_path import StorePath
from bowstring.ipc.file import FileReader
from tests.spark.s3_server import BUCKET, S3Server, run_s3_server

if TYPE_CHECKING:
    from tests.transports.certificates import Authority

REPOSITORY = Path(__file__).resolve().parent.parent

# Deadlines depend on the load of the machine, so tests have none.
# Failures are not explained: Hypothesis would trace all calls, and a trace function that is called while a consumer's
# exception is pending prevents the release of C structures, for which pyarrow aborts the process.
settings.register_profile(
    "default",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[phase for phase in Phase if phase is not Phase.explain],
)
settings.register_profile("thorough", settings.get_profile("default"), derandomize=False, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--thorough`."""
    parser.addoption("--thorough", action="store_true", help="run the tests marked thorough, too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests marked `thorough` without the option."""
    if not config.getoption("--thorough"):
        left_out = [item for item in items if item.get_closest_marker("thorough")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many faults the fault tests caused, by kind."""
    counts = Counter[str]()
    for report in terminalreporter.stats.get("passed", []):
        for name, value in getattr(report, "user_properties", ()):
            if name == "faults" and report.when == "call":
                counts[value[0]] += value[1]
    if counts:
        listed = ", ".join(f"{number:,} {kind}" for kind, number in counts.items())
        terminalreporter.write_line(f"faults: {counts.total():,}: {listed}")


def pytest_unconfigure() -> None:
    """Unfreeze objects before exit: extension modules report frozen ones as leaks."""
    gc.unfreeze()


@pytest.fixture(scope="module", autouse=True)
def frozen_garbage() -> None:
    """Exclude existing objects from garbage collection, which the tests of a file may start often."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def repository() -> Path:
    """The repository's root."""
    return REPOSITORY


@pytest.fixture(scope="session")
def shared_folder() -> Path:
    """The folder `shared` next to the repository with large inputs."""
    folder = REPOSITORY.parent / "shared"
    if not folder.is_dir():
        pytest.skip("requires the large inputs of ../shared")
    return folder


@pytest.fixture
def no_descriptor_is_left() -> Iterator[None]:
    """Assert that the test and its other fixtures close each descriptor that they open."""
    from bowstring_testing.descriptors import assert_descriptors_closed

    with assert_descriptors_closed():
        yield


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An issuer of certificates for TLS."""
    from tests.transports.certificates import Authority

    return Authority.create(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def upload() -> Iterator[Callable[[bytes], str]]:
    """A function that stores bytes remotely, resets the request counters and returns the URL."""
    from tests.ipc.remote_stores import SlowFileSystem

    yield SlowFileSystem.upload
    SlowFileSystem.store.clear()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    with run_s3_server() as server:
        yield server


@pytest.fixture
def store_folder(s3_server: S3Server) -> StorePath:
    """The path of a new folder in the server."""
    return StorePath(f"s3://{BUCKET}/{uuid.uuid4().hex}/data", s3_server.storage_options)


@pytest.fixture
def batches_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The index of each record batch that a `FileReader` has read."""
    indices: list[int] = []
    get_batch = FileReader.get_batch

    def record_index(reader: FileReader, index: int) -> RecordBatch:
        indices.append(index)
        return get_batch(reader, index)

    monkeypatch.setattr(FileReader, "get_batch", record_index)
    return indices

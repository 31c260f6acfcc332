"""Publishing in a container with little memory, on a small disk, with a full /dev/shm.

The JVM survives, with files or an error of ours.
"""

from __future__ import annotations

import json
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bowstring as bs
from tests.control_group import limit_memory

pytest.importorskip("pyspark")

JOB = Path(__file__).with_name("limited_memory_job.py")
MB = 1_000_000
GROUP_BYTES, DISK_BYTES = 1200 << 20, 1 << 30
MOUNT = """
    truncate -s "$0" "$1.img" && mkfs.ext4 -q -F "$1.img" && mount -o loop "$1.img" "$1" || exit 1
    mount -t tmpfs -o size=4k none /dev/shm || exit 1
    head -c 8192 /dev/zero > /dev/shm/full  # no space is left
    shift 1 && exec "$@"
"""


@dataclass
class LimitedJob:
    process: subprocess.Popen[str]
    folder: Path

    def read_report(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                report: dict[str, Any] = json.loads(line)
                return report
        raise AssertionError((self.folder / "log").read_text()[-5000:])

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()


@pytest.fixture
def limited_job(tmp_path: Path) -> Iterator[LimitedJob]:
    """A driver with 1200 MiB, a JVM of 500 MiB, and 1 GiB for Spark's local files."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["unshare", "--mount", "sh", "-c", MOUNT, str(DISK_BYTES), str(disk)]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*command, "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("a small disk can't be mounted: this requires root, mkfs.ext4 and a loop device")
    with limit_memory(GROUP_BYTES) as group, (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [*command, sys.executable, str(JOB), str(group), str(disk)],
            cwd=tmp_path,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            yield LimitedJob(process, tmp_path)
        finally:
            process.kill()
            process.communicate()


@pytest.mark.thorough
@pytest.mark.spark
def test_a_job_in_a_small_container_spills_or_ends_with_an_error_and_the_jvm_survives(limited_job: LimitedJob) -> None:
    published = pickle.loads(bytes.fromhex(limited_job.read_report()["published"]))
    assert published.nbytes > 700 * MB
    with bs.connect(published) as data:
        ids = np.concatenate([batch["id"].to_numpy() for batch in data])
    assert np.array_equal(np.sort(ids), np.arange(700_000))
    limited_job.go_on()
    assert_nothing_is_left(limited_job.read_report())

    report = limited_job.read_report()
    assert re.match(r"data set data-\w+, partition \d, after \d+ bytes in a file in .*, which has ", report["error"])
    assert "No space left on device" in report["error"]
    assert_nothing_is_left(report)

    assert pickle.loads(bytes.fromhex(limited_job.read_report()["published"])).num_rows == 10_000
    limited_job.go_on()
    assert_nothing_is_left(limited_job.read_report())
    assert limited_job.process.wait(60) == 0


def assert_nothing_is_left(report: dict[str, Any]) -> None:
    assert report["oom_kills"] == report["held_bytes"] == report["reserved_bytes"] == report["spilled_bytes"] == 0
    assert report["files"] == []
    assert report["used_bytes"] < 5 * MB

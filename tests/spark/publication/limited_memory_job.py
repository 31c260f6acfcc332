"""What test_publish_limited.py runs in a process of its own: publishes in a container that is too small for the data.

Usage: limited_memory_job.py GROUP FOLDER. Joins the control group, and lets Spark keep its local files in the folder.
Prints a line of JSON after each of three frames: one for which the disk suffices, a larger one, and a small one. Waits
for a line on its input after each.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import time
from pathlib import Path
from typing import Any


def describe_files(pid: int) -> list[str]:
    """The files without a name and the memory that a process has open or mapped."""
    folder = Path(f"/proc/{pid}")
    links = [os.readlink(path) for path in (folder / "fd").iterdir() if path.is_symlink()]
    return [link for link in [*links, *(folder / "maps").read_text().splitlines()] if link.endswith("(deleted)")]


def wait_for_used_bytes(folder: str) -> int:
    """The bytes in use on the disk; Spark gives a task that it has cancelled some seconds to end."""
    deadline_s = time.monotonic() + 20
    while True:
        disk = os.statvfs(folder)
        used_bytes = (disk.f_blocks - disk.f_bfree) * disk.f_frsize
        if used_bytes < 5_000_000 or time.monotonic() > deadline_s:
            return used_bytes
        time.sleep(0.2)


def main(group: str, folder: str) -> None:
    Path(group, "cgroup.procs").write_text(str(os.getpid()))

    from bowstring.errors import ResourceError
    from bowstring.sharing.agent.client import AgentClient
    from bowstring.spark import publish, session
    from bowstring.spark.publication import frame as publication

    spark = session(
        "local[2]",
        {
            "spark.driver.memory": "500m",
            "spark.local.dir": folder,
            "spark.sql.execution.arrow.maxRecordsPerBatch": 2000,
        },
    )
    for megabytes in (700, 3000, 10):
        frame = spark.range(0, megabytes * 1000, 1, 6).selectExpr("id", "repeat(chr(97 + id % 26), 990) as text")
        report: dict[str, Any] = {}
        try:
            with publish(frame) as published:
                sys.stdout.write(json.dumps({"published": pickle.dumps(published).hex()}) + "\n")
                sys.stdout.flush()
                sys.stdin.readline()
        except ResourceError as error:
            report["error"] = str(error)
        (agent_key,) = publication._agent_keys.values()
        with AgentClient.open(agent_key) as agent:
            status = agent.status()
        report |= status["memory"]
        report["files"] = describe_files(status["pid"])
        report["oom_kills"] = int(Path(group, "memory.oom_control").read_text().split()[-1])
        report["used_bytes"] = wait_for_used_bytes(folder)
        sys.stdout.write(json.dumps(report) + "\n")
        sys.stdout.flush()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""The available memory of the machine or container."""

from __future__ import annotations

from pathlib import Path

import pytest

from bowstring.memory import available_memory
from bowstring.memory.available_memory import (
    available_memory_bytes,
    check_available_memory,
    read_memory_limits,
)
from tests.control_group import limit_memory
from tests.sharing.python_process import run_python

FILL_A_CONTROL_GROUP = """
import os
from bowstring.memory.available_memory import available_memory_bytes
with open(f"{group}/cgroup.procs", "w") as file:
    file.write(str(os.getpid()))
available = [available_memory_bytes()]
memory = os.memfd_create("memory")
os.write(memory, bytes(40 << 20))
available.append(available_memory_bytes())
with open(path, "wb") as file:
    file.write(bytes(40 << 20))
    os.fsync(file.fileno())
available.append(available_memory_bytes())
os.close(memory)
available.append(available_memory_bytes())
send(available)
"""


def test_available_memory_is_measured() -> None:
    available = available_memory_bytes()
    assert available is not None
    assert 1 << 20 < available < 1 << 50


def test_the_limit_of_a_control_group_counts_memory_but_no_files(tmp_path: Path) -> None:
    with limit_memory(200 << 20) as group:
        empty, with_memory, with_file, without_memory = run_python(
            FILL_A_CONTROL_GROUP, group=str(group), path=str(tmp_path / "file")
        )
    assert 100 << 20 < empty <= 200 << 20
    assert 36 << 20 < empty - with_memory < 80 << 20
    assert abs(with_file - with_memory) < 16 << 20
    assert 36 << 20 < without_memory - with_file < 48 << 20


@pytest.mark.parametrize("root", ["/", "/system.slice/pod"])
def test_the_limits_of_all_parent_groups_apply(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: str) -> None:
    """Version 2, simulated: the machine of the tests may have version 1."""
    mount = available_memory._ControlGroupMount(tmp_path, root, is_unified=True)
    monkeypatch.setattr(available_memory, "_find_memory_mounts", lambda: [mount])
    group = tmp_path / "pod" / "container"
    monkeypatch.setattr(available_memory._ControlGroupMount, "find_group", lambda _: group)
    group.mkdir(parents=True)
    for folder, maximum, high in ((group, "max", "max"), (group.parent, "1000", "900")):
        (folder / "memory.max").write_text(maximum + "\n")
        (folder / "memory.high").write_text(high + "\n")
        (folder / "memory.current").write_text("500\n")
        (folder / "memory.stat").write_text("anon 1\nfile 300\nshmem 200\ninactive_file 60\nactive_file 40\n")
    limit = read_memory_limits()[-1]
    assert (limit.name, limit.total_bytes, limit.available_bytes) == (f"control group {group.parent}", 900, 500)
    (group / "memory.max").write_text("450\n")
    assert available_memory_bytes() == 50


@pytest.mark.parametrize(
    ("root", "path", "folder"),
    [
        ("/", "/", ""),
        ("/", "/user.slice/session", "user.slice/session"),
        ("/docker/4f", "/docker/4f", ""),
        ("/docker/4f", "/docker/4f/executor", "executor"),
        ("/docker/4f", "/docker/4fa", ""),
        ("/", "/../user.slice", ""),
    ],
)
@pytest.mark.parametrize("line", ["0::{}", "7:cpu,memory:{}"])
def test_the_group_of_this_process_is_found_below_the_mount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, root: str, path: str, folder: str
) -> None:
    class ProcPath(type(tmp_path)):  # type: ignore[misc]
        def read_text(self, *_arguments: object) -> str:
            return f"9:cpuset:/elsewhere\n{line.format(path)}\n"

    monkeypatch.setattr(available_memory, "Path", ProcPath)
    mount = available_memory._ControlGroupMount(tmp_path, root, is_unified=line.startswith("0::"))
    assert mount.find_group() == tmp_path / folder


def test_unknown_memory_is_not_looked_for_at_each_request(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[None] = []
    monkeypatch.setattr(available_memory, "available_memory_bytes", lambda: calls.append(None))
    monkeypatch.setattr(available_memory, "_unchecked_bytes", 0)
    monkeypatch.setattr(available_memory, "_max_unchecked_bytes", 64 << 20)
    for _ in range(640):
        check_available_memory(1 << 20, "part")
    assert len(calls) == 10

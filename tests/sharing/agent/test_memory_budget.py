"""The memory of the host agent: reservations of tasks, both limits, and partitions in files."""

from __future__ import annotations

import gc
import os
import pickle
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bowstring as bs
from bowstring.errors import InvalidArgumentError, InvalidDataError
from bowstring.memory.region import Region
from bowstring.sharing.agent.client import AgentClient, AgentKey
from bowstring.sharing.agent.memory_budget import MemoryBudget, MemoryRequest, MemoryReservation, find_spill_folders
from bowstring.sharing.stored_parts import store_in_region
from tests.polling import wait_until
from tests.sharing.agent.test_host_agent import read_numbers, running_agent
from tests.sharing.python_process import PythonProcess, run_python

UNLIMITED = MemoryRequest(0, 0, 0, None, None)
RESERVE = """
from bowstring.sharing.agent.client import AgentClient
agent = AgentClient.open(key, start=False)
send(agent.reserve(request))
receive()
"""
READ_WITH_64_DESCRIPTORS = """
import os, resource
import bowstring as bs
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
with bs.connect(uris) as data:
    table = data.read_all()
    num_descriptors = len(os.listdir("/proc/self/fd"))
send((table["a"].to_numpy()[::100].tolist(), num_descriptors))
"""


def request(
    needed_bytes: int, wanted_bytes: int, *, limit: int | None = None, available: int | None = None, written: int = 0
) -> MemoryRequest:
    return MemoryRequest(needed_bytes, wanted_bytes, written, limit, available)


def spill(region: Region, folder: Path) -> Region:
    with Region.create_writer("spilled") as writer:
        writer.write(region.memory)
        writer.spill([str(folder)])
        return writer.seal()


def store_number(number: int, values: int = 100) -> Region:
    return store_in_region(bs.table({"a": np.full(values, number)}))[0]


@pytest.mark.parametrize(
    ("needed", "wanted", "reserved"),
    [(40, 40, 40), (40, 100, 40), (41, 41, 0), (0, 0, 0), (20, 25, 25), (20, 26, 25), (36, 40, 37), (39, 41, 39)],
)
def test_what_is_needed_is_reserved_up_to_the_limit_and_a_quarter_of_the_rest(
    needed: int, wanted: int, reserved: int
) -> None:
    budget = MemoryBudget()
    held, other = Region.copy_of([b"x" * 25]), MemoryReservation(budget)
    budget.add_region(held)
    assert budget.reserve(other, request(35, 35, limit=100)) == ""
    reservation = MemoryReservation(budget)
    shortage = budget.reserve(reservation, request(needed, wanted, limit=100))
    assert (shortage != "") == (needed > 40)
    assert reservation.reserved_bytes == reserved
    assert budget.reserved_bytes == 35 + reserved
    if shortage:
        assert shortage == "25 bytes are held and 35 reserved of the limit, 100"
    other.close()
    assert budget.reserve(reservation, request(75, 75, limit=100)) == ""
    assert budget.reserve(reservation, request(76, 90, limit=100)) != ""
    assert budget.reserved_bytes == 75


@pytest.mark.parametrize(("needed", "reserved"), [(70, 70), (71, 0)])
def test_available_memory_covers_what_is_reserved_but_not_written(needed: int, reserved: int) -> None:
    budget = MemoryBudget()
    other, reservation = MemoryReservation(budget), MemoryReservation(budget)
    assert budget.reserve(other, request(50, 50, written=20)) == ""
    shortage = budget.reserve(reservation, request(needed, needed + 50, available=90, written=10))
    assert reservation.reserved_bytes == reserved
    assert shortage == ("" if reserved else "90 bytes can be spared, of which 30 are reserved")


def test_a_region_counts_until_it_is_freed(tmp_path: Path) -> None:
    budget = MemoryBudget()
    memory = Region.copy_of([b"x" * 10])
    file = spill(memory, tmp_path)
    budget.add_region(memory)
    budget.add_region(file)
    assert budget.to_json() == {"held_bytes": 10, "reserved_bytes": 0, "spilled_bytes": 10}
    del memory
    gc.collect()
    assert budget.to_json() == {"held_bytes": 0, "reserved_bytes": 0, "spilled_bytes": 10}
    del file
    gc.collect()
    assert budget.to_json() == {"held_bytes": 0, "reserved_bytes": 0, "spilled_bytes": 0}


def test_the_reservation_of_a_killed_task_is_returned(key: AgentKey) -> None:
    with running_agent(key, {}), AgentClient.open(key, start=False) as agent:
        with PythonProcess(RESERVE, key=key, request=request(90, 90, limit=100)) as task:
            assert task.receive() == (90, "")
            assert agent.status()["memory"]["reserved_bytes"] == 90
            assert agent.reserve(request(11, 11, limit=100)) == (
                0,
                "0 bytes are held and 90 reserved of the limit, 100",
            )
            task.kill()
        assert wait_until(lambda: agent.reserve(request(100, 100, limit=100)) == (100, ""))


def test_a_reservation_becomes_that_of_the_partition(key: AgentKey) -> None:
    with running_agent(key, {}), AgentClient.open(key, start=False) as agent:
        assert agent.reserve(request(10_000, 20_000, limit=50_000)) == (20_000, "")
        with store_number(7) as region:
            agent.put("d", (0, 0), region, num_rows=100)
            assert agent.status()["memory"] == {
                "held_bytes": region.size_bytes,
                "reserved_bytes": 0,
                "spilled_bytes": 0,
            }
        agent.drop("d")
        assert wait_until(lambda: agent.status()["memory"]["held_bytes"] == 0)


@pytest.mark.thorough
@pytest.mark.parametrize("setting", ["_NEXT_REQUEST_S", "_IDLE_S"])
def test_a_task_may_compute_for_long_between_two_reservations(key: AgentKey, setting: str) -> None:
    with running_agent(key, {}, **{setting: 0.2, "_TICK_S": 0.1}), AgentClient.open(key, start=False) as agent:
        assert agent.reserve(UNLIMITED) == (0, "")
        assert not wait_until(lambda: False, within_s=1)
        assert agent.reserve(request(5, 6)) == (6, "")


def test_partitions_in_files_are_read_like_others(key: AgentKey, tmp_path: Path) -> None:
    with running_agent(key, {}) as pid, AgentClient.open(key, start=False) as agent:
        uris = []
        for number in range(4):
            with store_number(number, 50_000) as memory, spill(memory, tmp_path) as region:
                uris.append(agent.put("d", (number, 0), region if number % 2 else memory, num_rows=50_000).uris[0])
                size_bytes = region.size_bytes
        assert agent.commit_attempts("d", dict.fromkeys(range(4), 0)) == []
        status = agent.status()
        assert status["memory"] == {
            "held_bytes": 2 * size_bytes,
            "reserved_bytes": 0,
            "spilled_bytes": 2 * size_bytes,
        }
        assert status["datasets"]["d"]["spilled_bytes"] == 2 * size_bytes
        assert read_numbers(uris) == [0, 1, 2, 3]
        with bs.connect(uris) as data:
            table = data.read_all()
            agent.drop("d")
            assert table["a"].to_numpy().sum() == 6 * 50_000
        del table, data
        assert wait_until(lambda: str(tmp_path) not in Path(f"/proc/{pid}/maps").read_text())


@pytest.mark.parametrize("scheme", ["unix", "tcp"])
@pytest.mark.parametrize("values", [100, 1_000_000])
def test_every_consumer_reads_files(tmp_path: Path, scheme: str, values: int) -> None:
    with (
        store_number(7, values) as memory,
        spill(memory, tmp_path) as region,
        bs.serve({"t": region}, scheme=scheme) as server,
    ):
        table = bs.connect(server.uri("t")).read_all()
        assert table["a"].to_numpy().sum() == 7 * values
        assert pickle.loads(pickle.dumps(table)) == table
        with bs.share(region) as shared:
            assert run_python("import bowstring as bs; send(bs.attach(handle).num_rows)", handle=shared) == values
        code = "import bowstring as bs; send(int(bs.connect(uri).read_all()['a'].to_numpy().sum()))"
        assert run_python(code, uri=server.uri("t")) == 7 * values
    assert table["a"].to_numpy().sum() == 7 * values


def test_a_reader_needs_no_descriptor_for_each_file(key: AgentKey, tmp_path: Path) -> None:
    with running_agent(key, {}, _SMALL_BYTES=0), AgentClient.open(key, start=False) as agent:
        uris = []
        for number in range(100):
            with store_number(number) as memory, spill(memory, tmp_path) as region:
                uris.append(agent.put("d", (number, 0), region, num_rows=100).uris[0])
        agent.commit_attempts("d", dict.fromkeys(range(100), 0))
        assert agent.status()["datasets"]["d"]["regions"] == 100
        numbers, num_descriptors = run_python(READ_WITH_64_DESCRIPTORS, uris=uris)
    assert numbers == list(range(100))
    assert num_descriptors < 20


def test_a_file_with_a_name_is_an_error(key: AgentKey, tmp_path: Path) -> None:
    with store_number(1) as region:
        (tmp_path / "file").write_bytes(region.memory)
    with AgentClient.open(key) as agent:
        with Region.from_file(tmp_path / "file") as named, pytest.raises(InvalidDataError, match="an unnamed file"):
            agent.put("d", (0, 0), named, num_rows=100)
        assert agent.status()["memory"]["spilled_bytes"] == 0


@pytest.mark.thorough
def test_thousands_of_small_partitions_in_files_are_packed_into_one(key: AgentKey, tmp_path: Path) -> None:
    with running_agent(key, {"RLIMIT_NOFILE": 1024}) as pid, AgentClient.open(key, start=False) as agent:
        with store_number(-1) as memory:
            content = bytes(memory.memory)
        position = content.index(np.full(100, -1).tobytes())
        uris = []
        for number in range(2000):
            changed = content[:position] + np.full(100, number).tobytes() + content[position + 800 :]
            with Region.copy_of([changed]) as memory, spill(memory, tmp_path) as region:
                uris.append(agent.put("d", (number, 0), region, num_rows=100).uris[0])
        assert agent.commit_attempts("d", dict.fromkeys(range(2000), 0)) == []
        status = agent.status()
        assert (status["datasets"]["d"]["regions"], status["memory"]["held_bytes"]) == (1, 0)
        assert 0 <= status["memory"]["spilled_bytes"] - 2000 * len(content) < 2000 * 64
        assert len(os.listdir(f"/proc/{pid}/fd")) < 50
        assert read_numbers(uris[:3] + uris[1997:]) == [0, 1, 2, 1997, 1998, 1999]


@pytest.mark.parametrize(
    "memory", [{}, {"needed_bytes": 2}, {"written_bytes": 1}, {"limit_bytes": "1"}, {"wanted_bytes": -1}, {"x": 1}, [1]]
)
def test_malformed_requests_for_memory_are_errors(key: AgentKey, memory: Any) -> None:
    fields = {**asdict(UNLIMITED), **memory} if memory and isinstance(memory, dict) else memory
    with AgentClient.open(key) as agent:
        with pytest.raises((InvalidDataError, InvalidArgumentError)):
            agent._request({"op": "reserve", "memory": fields})
        assert agent.status()["memory"]["reserved_bytes"] == 0


def test_the_local_folders_of_spark_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    first.mkdir()
    second.mkdir()
    monkeypatch.setenv("LOCAL_DIRS", str(second))
    assert find_spill_folders() == [str(second)]
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{first},{second},{tmp_path / 'missing'}")
    assert sorted(find_spill_folders()) == [str(first), str(second)]
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "missing"))
    assert str(tmp_path) not in "".join(find_spill_folders())
    assert find_spill_folders()

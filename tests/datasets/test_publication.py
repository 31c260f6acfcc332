"""Data sets with names: published by one process, and found, extended and closed by others."""

from __future__ import annotations

import os
import pickle
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

import bowstring as bs
from bowstring.datasets import PublishedDataset
from bowstring.errors import ClosedError, ConnectionLostError, InvalidArgumentError, NotFoundError
from bowstring.sharing import PublishedSummary, agent_directory, stored_dataset
from bowstring.sharing.agent_client import AgentClient, AgentKey, agent_address_prefix
from bowstring.transports.unix_socket import encode_unix_address
from tests.polling import wait_until
from tests.sharing.python_process import PythonProcess, run_python

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="requires root, to be several users")

TABLE = bs.table({"a": list(range(1000))})
SETUP = """
import bowstring as bs
from bowstring.sharing import agent_directory
agent_directory._DETACHED_TOKEN = token
"""


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An agent for this test alone, whose memory is free afterwards."""
    token = f"test-{secrets.token_hex(8)}-"
    monkeypatch.setattr(agent_directory, "_DETACHED_TOKEN", token)
    yield token
    addresses = [address for address in agent_directory.list_agent_addresses() if token in address]
    for address in addresses[-1:]:  # at the first, another user may listen
        with AgentClient.connect(address) as agent:
            remaining = list(agent.status()["datasets"])
            for dataset in remaining:  # of a test that has failed: they would stay for a day
                agent.drop(dataset)
            assert not remaining


def agent_address(token: str) -> str:
    return f"{agent_address_prefix()}{token}0"


def status(address: str) -> dict[str, Any]:
    with AgentClient.connect(address) as agent:
        datasets: dict[str, Any] = agent.status()["datasets"]
        return datasets


def held_bytes(token: str) -> int:
    with AgentClient.connect(agent_address(token)) as agent:
        return int(agent.status()["memory"]["held_bytes"])


def find(name: str) -> list[PublishedSummary]:
    return [summary for summary in bs.published() if summary.name == name]


def test_a_data_set_is_found_by_name_after_its_process_was_killed(token: str) -> None:
    code = SETUP + "dataset = bs.publish(bs.table({'a': list(range(1000))}), name='left')\nsend(dataset.id)\nreceive()"
    with PythonProcess(code, token=token) as other:
        dataset_id = other.receive()
        other.kill()
    with bs.open_published("left") as dataset:
        assert (dataset.id, dataset.name, dataset.num_rows) == (dataset_id, "left", 1000)
        table = dataset.read_all()
        assert held_bytes(token) > 0
    assert table == TABLE  # what was read stays valid
    assert wait_until(lambda: held_bytes(token) == 0)
    with pytest.raises(NotFoundError, match="no published data set 'left'"):
        bs.open_published("left")


@pytest.mark.usefixtures("token")
def test_the_list_has_the_newest_first_with_sizes_times_and_readers() -> None:
    with bs.publish(TABLE, name="listed", ttl_s=100) as first, bs.publish(TABLE, name="listed") as second:
        newest, oldest = find("listed")
        assert (newest.id, oldest.id) == (second.id, first.id)
        assert (newest.num_rows, newest.nbytes, newest.num_parts) == (1000, second.nbytes, 1)
        assert newest.hosts == (os.uname().nodename,)
        assert newest.lifetime == "detached"
        assert oldest.expires_at is not None
        assert 0 < (oldest.expires_at - datetime.now(UTC)).total_seconds() < 100
        assert 0 <= oldest.age_s < 100
        assert bs.open_published("listed").id == second.id
        assert bs.open_published(first.id).id == first.id
        with (
            bs.connect(first),
            bs.connect(first) as reader,
            PythonProcess(
                "import bowstring as bs\nreader = bs.connect(uri)\nsend(reader.read_all().num_rows)\nreceive()",
                uri=first.uris[0],
            ) as other,
        ):
            assert other.receive() == reader.read_all().num_rows
            assert [summary.num_readers for summary in find("listed")] == [0, 2]  # processes, not connections
        assert wait_until(lambda: [summary.num_readers for summary in find("listed")] == [0, 0])


def test_memory_is_freed_after_the_time_to_live_unless_it_is_extended(token: str) -> None:
    short = bs.publish(TABLE, name="short", ttl_s=1)
    longer = bs.publish(TABLE, name="longer", ttl_s=1)
    before = longer.expires_at
    longer.extend(3600)
    assert before is not None
    assert longer.expires_at is not None
    assert longer.expires_at > before
    assert wait_until(lambda: not find("short"))
    assert longer.read_all() == TABLE
    with pytest.raises(NotFoundError, match=f"data set '{short.id}' expired at .* UTC"):
        short.read_all()
    with pytest.raises(NotFoundError):
        short.extend(5)
    longer.extend(0.01)
    assert wait_until(lambda: held_bytes(token) == 0)


@pytest.mark.usefixtures("token")
def test_a_closed_data_set_can_not_be_used_and_a_copy_only_closes_itself() -> None:
    dataset = bs.publish(TABLE, name="copied")
    copy: PublishedDataset = pickle.loads(pickle.dumps(dataset))
    assert copy == dataset
    assert (copy.id, copy.expires_at) == (dataset.id, dataset.expires_at)
    with pytest.raises(InvalidArgumentError, match="an unpickled copy"):
        copy.extend(5)
    copy.close()
    assert dataset.read_all() == TABLE
    dataset.close()
    dataset.close()
    for use in (
        dataset.read_all,
        dataset.to_json,
        lambda: dataset.extend(5),
        lambda: pickle.dumps(dataset),
        copy.read_all,
    ):
        with pytest.raises(ClosedError, match=dataset.id):
            use()
    assert dataset.is_closed


@pytest.mark.parametrize("way", ["end", "kill"])
def test_with_the_lifetime_of_the_application_it_ends_with_the_process(way: str) -> None:
    name = f"attached-{secrets.token_hex(4)}"
    code = """
import bowstring as bs
send(bs.publish(bs.table({"a": [1, 2]}), name=name, lifetime="application"))
receive()
"""
    with PythonProcess(code, name=name) as other:
        dataset: PublishedDataset = other.receive()
        assert dataset.read_all().num_rows == 2
        assert [summary.lifetime for summary in find(name)] == ["application"]
        if way == "kill":
            other.kill()
        else:
            other.send(None)
        assert wait_until(lambda: not find(name))
        with pytest.raises(ConnectionLostError):
            dataset.read_all()


@pytest.mark.parametrize("step", ["put", "commit_attempts", "publish"])
def test_a_process_that_is_killed_while_it_publishes_leaves_nothing_or_all(token: str, step: str) -> None:
    code = f"""{SETUP}
import os
from bowstring.sharing.agent_client import AgentClient
call = AgentClient.{step}
def call_and_die(*args, **options):
    call(*args, **options)
    os.kill(os.getpid(), 9)
AgentClient.{step} = call_and_die
bs.publish(bs.table({{"a": [1]}}), name="part")
"""
    with PythonProcess(code, token=token) as other:
        assert other.process.wait(60) == -signal.SIGKILL
    if step == "publish":
        bs.open_published("part").close()
    assert wait_until(lambda: not status(agent_address(token)))
    assert held_bytes(token) == 0


@pytest.mark.parametrize("kind", ["table", "batches", "reader", "pandas", "polars", "path", "handle", "region"])
@pytest.mark.usefixtures("token")
def test_the_sources_are_those_of_share(kind: str, tmp_path: Path) -> None:
    path = str(tmp_path / "t.arrow")
    with bs.new_file(path, TABLE.schema) as writer:
        writer.write_table(TABLE)
    if kind in ("pandas", "polars"):
        source: Any = pytest.importorskip(kind).DataFrame({"a": list(range(1000))})
    else:
        sources: dict[str, Callable[[], Any]] = {
            "table": lambda: TABLE,
            "batches": lambda: iter(TABLE.to_batches()),
            "reader": lambda: bs.open_file(path),
            "path": lambda: path,
            "handle": lambda: bs.share(TABLE),
            "region": lambda: bs.memory.Region.from_file(path),
        }
        source = sources[kind]()
    with bs.publish(source) as dataset:
        os.truncate(path, 0)  # a file is copied
        assert dataset.name == "data"
        assert dataset.read_all()["a"].to_pylist() == list(range(1000))


@pytest.mark.usefixtures("token")
def test_a_large_table_is_published_in_several_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_dataset, "_PART_BYTES", 1 << 12)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    table = bs.concat_tables([TABLE] * 8)
    with bs.publish(table) as dataset:
        assert len(dataset.parts) == 4
        assert dataset.read_all() == table
        assert bs.open_published(dataset.id).parts == dataset.parts


@pytest.mark.usefixtures("token")
def test_invalid_options_are_errors_that_name_them() -> None:
    wrong: Any = "forever"
    for options in ({"name": "a/b"}, {"name": ""}, {"name": "x" * 201}, {"ttl_s": 0}, {"ttl_s": float("nan")}):
        arguments: Any = options
        with pytest.raises(InvalidArgumentError, match=next(iter(options))):
            bs.publish(TABLE, **arguments)
    with pytest.raises(InvalidArgumentError, match="lifetime: expected one of"):
        bs.publish(TABLE, lifetime=wrong)
    with pytest.raises(InvalidArgumentError, match="timeout_s"):
        bs.published(0)


def publish_number(token: str, number: int) -> str:
    agent_directory._DETACHED_TOKEN = token
    return bs.publish(bs.table({"a": [number]}), name=f"n{number}").id


@pytest.mark.parametrize("method", ["fork", "spawn", "threads"])
def test_workers_publish_at_once_into_one_agent(token: str, method: str) -> None:
    pool: Any = ThreadPoolExecutor(4) if method == "threads" else ProcessPoolExecutor(2, mp_context=get_context(method))
    with pool:
        ids = list(pool.map(publish_number, [token] * 8, range(8)))
    assert len(status(agent_address(token))) == 8
    assert [bs.open_published(f"n{number}").id for number in range(8)] == ids
    for name in ids:
        with bs.open_published(name) as dataset:
            assert dataset.num_rows == 1


def test_hundreds_of_data_sets_are_found_and_leave_no_descriptors(token: str) -> None:
    address, agent = agent_directory.open_detached_agent()
    with agent:
        pid = agent.status()["pid"]
    datasets = [bs.publish(bs.table({"a": [number]}), name="many") for number in range(300)]
    assert len(status(address)) == 300
    assert bs.open_published("many").id == datasets[-1].id
    assert datasets[123].read_all()["a"].to_pylist() == [123]
    for dataset in datasets:
        dataset.close()
    assert len(os.listdir(f"/proc/{pid}/fd")) < 50


def test_agents_that_are_silent_or_send_anything_do_not_delay_or_change_the_list(token: str) -> None:
    bs.publish(TABLE, name="good", ttl_s=60)
    key = AgentKey.create()

    connections = list[socket.socket]()

    def answer(listener: socket.socket, content: bytes) -> None:
        while True:
            try:
                connection, _ = listener.accept()
                connections.append(connection)
                connection.sendall(content)
            except OSError:
                return

    listeners, threads = list[socket.socket](), list[threading.Thread]()
    for content in (b"", b"BWS1" + bytes(1000), secrets.token_bytes(1 << 16)):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(encode_unix_address(f"{key.address}{len(listeners)}"))
        listener.listen(8)
        threads.append(threading.Thread(target=answer, args=(listener, content)))
        threads[-1].start()
        listeners.append(listener)
    full = socket.socket(socket.AF_UNIX)
    full.bind(encode_unix_address(f"{key.address}-full"))
    full.listen(0)
    waiting = [socket.socket(socket.AF_UNIX) for _ in range(3)]
    for connection in waiting:
        connection.setblocking(False)
        connection.connect_ex(encode_unix_address(f"{key.address}-full"))
    started = time.monotonic()
    assert [summary.name for summary in bs.published(timeout_s=1.0) if summary.name == "good"] == ["good"]
    assert time.monotonic() - started < 60
    bs.open_published("good", timeout_s=1.0).close()
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)  # ends accept
    for thread in threads:
        thread.join()
    for each in (*listeners, *connections, full, *waiting):
        each.close()


@pytest.mark.parametrize(
    "change",
    [
        {"name": 5},
        {"hosts": "abc"},
        {"hosts": [1]},
        {"num_rows": True},
        {"num_rows": "1"},
        {"created_at": None},
        {"created_at": float("inf")},
        {"expires_at": "x"},
        {"id": None},
    ],
)
def test_a_summary_of_other_types_is_refused(change: dict[str, Any]) -> None:
    now = datetime.now(UTC)
    summary = PublishedSummary("a-1", "a", 1, 2, 3, ("h",), "detached", now, None, 0)
    assert PublishedSummary.from_json(summary.to_json()) == summary
    with pytest.raises(bs.errors.ProtocolError, match="published data set"):
        PublishedSummary.from_json({**summary.to_json(), **change})


@needs_root
def test_agents_of_other_users_are_ignored_and_can_not_block_publishing(token: str) -> None:
    code = """
import os, socket
os.setgid(65534); os.setuid(65534)
listener = socket.socket(socket.AF_UNIX)
listener.bind(address)
listener.listen(8)
send("ready")
receive()
"""
    with PythonProcess(code, address=encode_unix_address(agent_address(token))) as other:
        assert other.receive() == "ready"
        with bs.publish(TABLE, name="mine") as dataset:
            assert [summary.id for summary in find("mine")] == [dataset.id]
            assert dataset.read_all() == TABLE


def test_a_name_that_does_not_exist_is_an_error_with_the_names_that_do(token: str) -> None:
    with bs.publish(TABLE, name="this-one"), pytest.raises(NotFoundError, match="the newest are: this-one"):
        bs.open_published("other")
    assert run_python("import bowstring as bs\nsend([s.name for s in bs.published() if s.name == 'this-one'])") == []

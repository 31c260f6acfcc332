"""Data sets with names: published by one process, and found, extended and closed by others."""

from __future__ import annotations

import os
import pickle
import re
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bowstring as bs
from bowstring.datasets import PublishedDataset
from bowstring.errors import (
    ClosedError,
    ConnectionLostError,
    DeadlineError,
    InvalidArgumentError,
    NotFoundError,
    ResourceError,
)
from bowstring.kernels.list_lengths import NO_LISTS
from bowstring.sharing import PublishedSummary, stored_parts
from bowstring.sharing.agent import directory as agent_directory, publications
from bowstring.sharing.agent.client import AgentClient, AgentKey, agent_address_prefix, list_agent_addresses
from bowstring.transports.sockets.unix import encode_unix_address
from tests.control_group import limit_memory
from tests.polling import wait_until
from tests.sharing.python_process import PythonProcess, run_python
from tests.small_disk import run_on_4_mb, run_on_read_only_files

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="requires root, to be several users")

TABLE = bs.table({"a": list(range(1000))})
SETUP = """
import bowstring as bs
from bowstring.sharing.agent import directory as agent_directory
agent_directory._DETACHED_TOKEN = token
"""


def agent_address(token: str) -> str:
    return f"{agent_address_prefix()}{token}"


def status(address: str) -> dict[str, Any]:
    with AgentClient.connect(address) as agent:
        datasets: dict[str, Any] = agent.status()["datasets"]
        return datasets


def held_bytes(token: str) -> int:
    with AgentClient.connect(agent_address(token)) as agent:
        return int(agent.status()["memory"]["held_bytes"])


def find(name: str) -> list[PublishedSummary]:
    return [summary for summary in bs.published() if summary.name == name]


def test_parts_have_the_lengths_of_lists(tmp_path: Path) -> None:
    table = bs.table({"x": [1, 2], "lists": [[[1], [2]], [[3, 4]]], "none": bs.array([None] * 2, bs.list_("int8"))})
    lengths = ((1, ((1, 2), (1, 2))), (2, (NO_LISTS,)))
    bs.write_table(table, tmp_path / "lists.arrow")
    for source in (table, tmp_path / "lists.arrow"):
        with bs.publish(source, name="lists", ttl_s=60), bs.open_published("lists") as dataset:
            assert [part.list_lengths for part in dataset.parts] == [lengths]
    with bs.publish(TABLE, ttl_s=60) as dataset:
        assert [part.list_lengths for part in dataset.parts] == [()]


def test_a_data_set_is_found_by_name_after_its_process_was_killed(token: str) -> None:
    code = SETUP + "dataset = bs.publish(bs.table({'a': list(range(1000))}), name='left')\nsend(dataset.id)\nreceive()"
    with PythonProcess(code, token=token) as other:
        dataset_id = other.receive()
        other.kill()
    with bs.open_published("left") as dataset:
        assert (dataset.id, dataset.name, dataset.num_rows) == (dataset_id, "left", 1000)
        table = dataset.read_all()
        assert held_bytes(token) > 0
    assert bs.unpublish("left") == dataset_id
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
    longer.renew(3600)
    assert before is not None
    assert longer.expires_at is not None
    assert longer.expires_at > before
    assert wait_until(lambda: not find("short"))
    assert longer.read_all() == TABLE
    with pytest.raises(NotFoundError, match=f"data set '{short.id}' expired after its lifetime of 1 s at .* UTC"):
        short.read_all()
    with pytest.raises(NotFoundError):
        short.renew(5)
    longer.renew(0.01)
    assert wait_until(lambda: held_bytes(token) == 0)


@pytest.mark.usefixtures("token")
def test_a_closed_data_set_can_not_be_used_and_a_copy_only_closes_itself() -> None:
    dataset = bs.publish(TABLE, name="copied")
    copy: PublishedDataset = pickle.loads(pickle.dumps(dataset))
    assert copy == dataset
    assert (copy.id, copy.expires_at) == (dataset.id, dataset.expires_at)
    with pytest.raises(InvalidArgumentError, match="an unpickled copy"):
        copy.renew(5)
    copy.close()
    assert dataset.read_all() == TABLE
    dataset.close()
    dataset.close()
    for use in (
        dataset.read_all,
        dataset.to_json,
        lambda: dataset.renew(5),
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


@pytest.mark.parametrize("step", ["put", "publish"])
def test_a_process_that_is_killed_while_it_publishes_leaves_nothing_or_all(token: str, step: str) -> None:
    code = f"""{SETUP}
import os
from bowstring.sharing.agent.client import AgentClient
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
        bs.unpublish("part")
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
    monkeypatch.setattr(stored_parts, "_PART_BYTES", 1 << 12)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    table = bs.concat_tables([TABLE] * 8)
    with bs.publish(table) as dataset:
        assert len(dataset.parts) == 4
        assert dataset.read_all() == table
        assert bs.open_published(dataset.id).parts == dataset.parts


def spilled_bytes(token: str, dataset_id: str) -> tuple[int, int]:
    """What is in memory and in files."""
    entry = status(agent_address(token))[dataset_id]
    return entry["memory_bytes"], entry["spilled_bytes"]


def create_batches(count: int) -> Iterator[bs.RecordBatch]:
    """Batches of 1 MiB."""
    return (bs.table({"a": np.full(1 << 17, number)}).to_batches()[0] for number in range(count))


@pytest.mark.parametrize("spare_batches", [7, 6, 1, -1])
def test_what_memory_can_not_be_spared_for_is_copied_to_an_unnamed_file(
    token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spare_batches: int
) -> None:
    used_bytes = 0

    def count_batches() -> Iterator[bs.RecordBatch]:
        nonlocal used_bytes
        for batch in create_batches(8):
            yield batch
            used_bytes += 1 << 20

    monkeypatch.setattr(stored_parts, "spare_memory_bytes", lambda: (spare_batches << 20) - used_bytes)
    with bs.publish(count_batches(), spill_folder=tmp_path) as dataset:
        in_memory, in_files = spilled_bytes(token, dataset.id)
        assert (in_memory, in_files) == ((0, dataset.nbytes) if spare_batches < 7 else (dataset.nbytes, 0))
        assert not list(tmp_path.iterdir())
        code = "import bowstring as bs\nsend(int(bs.open_published(name)[:].read_all()['a'].to_numpy().sum()))"
        assert run_python(code, name=dataset.id) == sum(range(8)) << 17
    assert wait_until(lambda: held_bytes(token) == 0)


def test_parts_of_a_table_are_copied_to_files_by_several_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    monkeypatch.setattr(stored_parts, "_PART_BYTES", 1 << 20)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(stored_parts, "spare_memory_bytes", lambda: 0)
    table = bs.Table.from_batches(list(create_batches(8)))
    with bs.publish(table, spill_folder=tmp_path) as dataset:
        assert len(dataset.parts) == 4
        assert spilled_bytes(token, dataset.id) == (0, dataset.nbytes)
        assert dataset.read_all() == table


PUBLISH_AND_READ = """
import bowstring as bs
with bs.publish(bs.table({"a": [1, 2]}), lifetime="application", ttl_s=60) as dataset:
    print(bs.open_published(dataset.id).read_all().to_pydict())
"""


def test_publishing_needs_no_writable_folder() -> None:
    process = run_on_read_only_files("-c", PUBLISH_AND_READ)
    assert (process.stdout, process.stderr) == ("{'a': [1, 2]}\n", "")


def test_without_memory_and_disk_space_the_error_has_the_missing_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_parts, "spare_memory_bytes", lambda: 1000)
    expected = r"memory is short: 1048576 bytes more are needed, and 1000 can be spared; files in /dev/shm take memory"
    with pytest.raises(ResourceError, match=expected):
        bs.publish(create_batches(2), spill_folder="/dev/shm")
    with pytest.raises(NotFoundError, match=r"spill_folder: .* is not a folder"):
        bs.publish(create_batches(2), spill_folder=tmp_path / "none")
    code = """
import sys
import bowstring as bs
import numpy as np
from bowstring.sharing import stored_parts
stored_parts.spare_memory_bytes = lambda: 0
stored_parts.is_in_memory = lambda folder: False  # as for a disk
try:
    bs.publish((bs.table({"a": np.arange(1 << 17)}).to_batches()[0] for _ in range(8)),
        name="too-large", spill_folder=sys.argv[1])
except bs.errors.ResourceError as error:
    print(error)
"""
    process = run_on_4_mb(tmp_path, "-c", code, tmp_path)
    assert re.search(rf"1048576 bytes more are needed in {tmp_path}, which has \d+ bytes free", process.stdout), process
    assert not find("too-large")


@pytest.mark.thorough
def test_a_control_group_without_memory_spills_and_no_process_dies(token: str, tmp_path: Path) -> None:
    code = (
        SETUP
        + """
import os
import numpy as np
open(f"{group}/cgroup.procs", "w").write(str(os.getpid()))
dataset = bs.publish((bs.table({"a": np.full(1 << 20, n)}).to_batches()[0] for n in range(40)), spill_folder=folder)
send((dataset, int(sum(batch["a"].to_numpy().sum() for batch in bs.connect(dataset)))))
"""
    )
    with limit_memory(300 << 20) as group:
        dataset, total = run_python(code, token=token, group=str(group), folder=str(tmp_path))
        assert total == sum(range(40)) << 20
        assert spilled_bytes(token, dataset.id) == (0, dataset.nbytes)
        bs.unpublish(dataset.id)
        with AgentClient.connect(agent_address(token)) as agent:
            pid = agent.status()["pid"]
        os.kill(pid, signal.SIGKILL)


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
    with pytest.raises(InvalidArgumentError, match="ttl_s: expected a positive number of seconds, found '1h'"):
        bs.publish(TABLE, ttl_s="1h")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match=r"not int: bowstring\.table creates a table"):
        bs.publish(7)  # type: ignore[arg-type]


def publish_number(token: str, number: int) -> str:
    agent_directory._DETACHED_TOKEN = token
    return bs.publish(bs.table({"a": [number]}), name=f"n{number}").id


@pytest.mark.thorough
@pytest.mark.parametrize("method", ["fork", "spawn", "threads"])
def test_workers_publish_at_once_into_one_agent(token: str, method: str) -> None:
    pool: Any = ThreadPoolExecutor(4) if method == "threads" else ProcessPoolExecutor(2, mp_context=get_context(method))
    with pool:
        ids = list(pool.map(publish_number, [token] * 8, range(8)))
    assert len(status(agent_address(token))) == 8
    assert [bs.open_published(f"n{number}").id for number in range(8)] == ids
    for name in ids:
        assert bs.open_published(name).num_rows == 1
        assert bs.unpublish(name) == name


@pytest.mark.thorough
def test_hundreds_of_data_sets_are_found_and_leave_no_descriptors(token: str) -> None:
    with agent_directory.open_detached_agent() as agent:
        address, pid = agent.address, agent.status()["pid"]
    datasets = [bs.publish(bs.table({"a": [number]}), name="many") for number in range(300)]
    assert len(status(address)) == 300
    assert bs.open_published("many").id == datasets[-1].id
    assert datasets[123].read_all()["a"].to_pylist() == [123]
    for dataset in datasets:
        dataset.close()
    assert len(os.listdir(f"/proc/{pid}/fd")) < 50


@pytest.mark.thorough
def test_agents_that_are_silent_or_send_anything_do_not_delay_or_change_the_list(token: str) -> None:
    bs.publish(TABLE, name="good", ttl_s=60)
    key = AgentKey()

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
    bs.unpublish("good", timeout_s=1.0)
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
    counts = {"num_rows": 1, "nbytes": 2, "num_parts": 3, "num_readers": 0}
    fields = {"id": "a-1", "name": "a", "hosts": ["h"], "lifetime": "detached", **counts}
    fields |= {"created_at": 1.75e9, "expires_at": None, "monotonic_s": 1.5}
    created_at = datetime.fromtimestamp(1.75e9, UTC)
    expected = PublishedSummary("a-1", "a", 1, 2, 3, ("h",), "detached", created_at, None, 0, 1.5)
    assert PublishedSummary.from_json(fields) == expected
    with pytest.raises(bs.errors.ProtocolError, match="published data set"):
        PublishedSummary.from_json({**fields, **change})


def test_a_description_that_is_malformed_or_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "ü" * 1000
    description = publications.compress_description(text)
    assert publications.decompress_description(description) == text
    for wrong in (description[:-8], description[8:], b"\xfc", b"", description[:8] + description[16:]):
        with pytest.raises(bs.errors.ProtocolError, match="published data set: description: "):
            publications.decompress_description(wrong)
    for limit, is_accepted in ((2000, True), (1999, False)):
        monkeypatch.setattr(publications, "_MAX_DESCRIPTION_BYTES", limit)
        with nullcontext() if is_accepted else pytest.raises(bs.errors.ProtocolError, match="longer than 1999 bytes"):
            publications.decompress_description(description)


OCCUPY_ADDRESSES = """
import os, resource, socket
resource.setrlimit(resource.RLIMIT_NOFILE, (len(addresses) + 100,) * 2)
os.setgid(65534); os.setuid(65534)
sockets = [socket.socket(socket.AF_UNIX) for _ in addresses]
for each, address in zip(sockets, addresses):
    each.bind(address)
for each, address in zip(sockets[:-1], addresses):  # the last does not even listen
    each.listen(0)
for address in addresses[:-1][:8]:
    sockets.append(socket.socket(socket.AF_UNIX))
    sockets[-1].connect(address)  # its queue is full
send("ready")
receive()
"""


@needs_root
@pytest.mark.parametrize("occupied", ["first", "next 100", "not listening", "4000 others"])
def test_agents_of_other_users_are_ignored_and_can_not_block_publishing(token: str, occupied: str) -> None:
    first = agent_address(token)
    addresses = {
        "first": [first, f"{first}-unused"],
        "next 100": [first, *(f"{first}-{number}" for number in range(1, 101))],
        "not listening": [first],
        "4000 others": [f"{agent_address_prefix()}{number}" for number in range(4000)],
    }[occupied]
    with PythonProcess(OCCUPY_ADDRESSES, addresses=list(map(encode_unix_address, addresses))) as other:
        assert other.receive() == "ready"
        with bs.publish(TABLE, name="mine") as dataset, bs.publish(TABLE, name="another"):
            assert [summary.id for summary in find("mine")] == [dataset.id]
            assert dataset.read_all() == TABLE
            assert bs.open_published("mine").id == dataset.id
            other.kill()  # the agent stays where it is
            bs.publish(TABLE, name="later").close()
            assert len(list_agent_addresses(first)[0]) == 1
        assert find("mine") == []


def test_a_list_for_which_not_all_agents_can_be_asked_is_an_error() -> None:
    with ExitStack() as stack:
        for number in range(64):  # more than are asked at once
            silent = stack.enter_context(socket.socket(socket.AF_UNIX))
            silent.bind(encode_unix_address(f"{agent_address_prefix()}silent-{number}"))
            silent.listen()
        with pytest.raises(DeadlineError, match=r"\d+ of \d+ host agents could not be asked: nothing within 0\.2 s"):
            bs.published(timeout_s=0.2)


def test_a_name_that_does_not_exist_is_an_error_with_the_names_that_do(token: str) -> None:
    with bs.publish(TABLE, name="this-one"), pytest.raises(NotFoundError, match=r"the newest are: (.+, )?this-one"):
        bs.open_published(f"other-{token}")
    assert run_python("import bowstring as bs\nsend([s.name for s in bs.published() if s.name == 'this-one'])") == []


def test_a_name_is_an_error_if_nothing_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_directory, "list_agent_addresses", lambda _prefix: (set(), set()))
    monkeypatch.setattr(agent_directory, "find_recorded_end", lambda _: "")
    with pytest.raises(NotFoundError) as problem:
        bs.open_published("x")
    assert str(problem.value) == (
        "there is no published data set 'x' on this host: none with this name or ID was published lately, or it has "
        "ended with its application or host agent; nothing is published"
    )


def test_the_error_for_a_name_that_is_not_a_uri_has_the_function_for_published_names() -> None:
    with pytest.raises(InvalidArgumentError, match=r"found 'features'.* for a name that was published, .*open_pub"):
        bs.connect("features")


def test_columns_by_name_are_published_shared_and_served_as_a_table() -> None:
    columns = {"a": [1, None], "b": ["x", "y"]}
    with bs.publish(columns, name="columns") as dataset, bs.share(columns) as handle:
        assert dataset.read_all() == bs.attach(handle) == bs.table(columns)
    with bs.serve({"columns": columns}) as server, bs.connect(server.uri("columns")) as reader:
        assert reader.read_all() == bs.table(columns)

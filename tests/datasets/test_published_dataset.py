"""Who owns a published data set: the object that `publish` returned frees it, and all others are views of it."""

from __future__ import annotations

import os
import pickle
import re
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bowstring as bs
from bowstring.datasets import EpochReader, PublishedDataset, published_dataset
from bowstring.errors import ConnectionLostError, DeadlineError, InvalidArgumentError, NotFoundError, ResourceError
from bowstring.sharing import ServerOptions, stored_parts
from bowstring.sharing.agent import directory as agent_directory
from bowstring.sharing.processes import is_stopped
from tests.polling import wait_until
from tests.sharing.python_process import PythonProcess, run_python

TABLE = bs.table({"a": [1, 2, 3]})
SETUP = """
import bowstring as bs
from bowstring.sharing.agent import directory as agent_directory
agent_directory._DETACHED_TOKEN = token
"""


def close_in_child(dataset: PublishedDataset) -> None:
    """Close the object that `publish` returned in a forked child."""
    child = get_context("fork").Process(target=dataset.close)
    child.start()
    child.join()
    assert child.exitcode == 0


CLOSED_VIEWS: dict[str, Callable[[PublishedDataset], None]] = {
    "opened": lambda dataset: bs.open_published(dataset.name).close(),
    "opened by id": lambda dataset: bs.open_published(dataset.id).close(),
    "unpickled": lambda dataset: pickle.loads(pickle.dumps(dataset)).close(),
    "unpickled view": lambda dataset: pickle.loads(pickle.dumps(bs.open_published(dataset.id))).close(),
    "connected": lambda dataset: bs.connect(dataset).close(),
    "of another process": lambda dataset: run_python(
        "import bowstring as bs\nwith bs.open_published(name) as dataset: send(dataset.num_rows)", name=dataset.name
    ),
    "in a forked child": close_in_child,
}


@pytest.mark.parametrize("view", CLOSED_VIEWS)
@pytest.mark.usefixtures("token")
def test_closing_a_view_frees_nothing_and_closing_the_owner_frees_it_for_all(view: str) -> None:
    name = f"owned-{secrets.token_hex(4)}"
    with bs.publish(TABLE, name=name) as dataset:
        CLOSED_VIEWS[view](dataset)
        assert dataset.read_all() == TABLE
        with bs.open_published(name) as opened:
            assert opened.read_all() == TABLE
            assert (dataset.is_owner, opened.is_owner) == (True, False)
            dataset.close()
            with pytest.raises(NotFoundError, match=f"'{dataset.id}' was closed by process {os.getpid()}"):
                opened.read_all()


def sum_published(token: str, name: str) -> int:
    agent_directory._DETACHED_TOKEN = token
    with bs.open_published(name) as dataset:
        return sum(dataset.read_all()["a"].to_pylist())


@pytest.mark.thorough
def test_each_worker_of_a_pool_opens_and_closes_the_same_data_set(token: str) -> None:
    with (
        bs.publish(TABLE, name="shared-by-workers"),
        ProcessPoolExecutor(2, mp_context=get_context("forkserver")) as pool,
    ):
        assert list(pool.map(sum_published, [token] * 8, ["shared-by-workers"] * 8)) == [6] * 8


READ_UNTIL_STOPPED = (
    SETUP
    + """
import threading
stopped, errors, counts = threading.Event(), [], []
def read():
    while not stopped.is_set():
        try:
            with bs.open_published("model") as dataset:
                counts.append(dataset.read_all()["a"].to_pylist()[0] if reads else dataset.num_rows)
        except Exception as error:
            errors.append(repr(error))
thread = threading.Thread(target=read)
thread.start()
"""
)


@contextmanager
def readers(token: str, *, reads: bool) -> Iterator[Callable[[], int]]:
    """Open "model" again and again in a thread of this process and of another, without an error; the block gets the
    number of times. With `reads`, read it as well: the numbers never go back.
    """
    values: dict[str, Any] = {"token": token, "reads": reads}
    exec(READ_UNTIL_STOPPED, values)  # the same in both
    code = f"{READ_UNTIL_STOPPED}send(1)\nreceive()\nstopped.set()\nthread.join()\nsend((errors, counts))"
    with PythonProcess(code, token=token, reads=reads) as other:
        assert other.receive() == 1
        try:
            yield lambda: len(values["counts"])
        finally:
            values["stopped"].set()
            values["thread"].join()
        other.send(None)
        for errors, counts in ((values["errors"], values["counts"]), other.receive()):
            assert errors == []
            assert counts == sorted(counts)
            assert counts


@pytest.mark.thorough
def test_opening_a_name_never_fails_while_newer_data_sets_follow_each_other(token: str) -> None:
    old = bs.publish(TABLE, name="model")
    with readers(token, reads=False) as count:
        for _ in range(30):
            new = bs.publish(TABLE, name="model")
            old.close()
            old = new
        assert wait_until(lambda: count() > 20)
    old.close()


@pytest.mark.thorough
def test_readers_of_a_name_that_is_replaced_get_the_old_or_the_new_rows(token: str) -> None:
    bs.publish(bs.table({"a": [0]}), name="model")
    with readers(token, reads=True) as count:
        for number in range(1, 25):
            bs.publish(bs.table({"a": [number]}), name="model", replace=True)
        assert wait_until(lambda: count() > 20)
    assert [summary.name for summary in bs.published()].count("model") == 1
    assert bs.open_published("model").read_all()["a"].to_pylist() == [24]
    bs.unpublish("model")


@pytest.mark.usefixtures("token")
def test_one_data_set_remains_of_several_that_replace_each_other_at_once() -> None:
    bs.publish(TABLE, name="model")
    other = bs.publish(TABLE, name="other")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: bs.publish(TABLE, name="model", replace=True), range(8)))
    assert sorted(summary.name for summary in bs.published() if summary.name in ("model", "other")) == [
        "model",
        "other",
    ]
    bs.unpublish("model")
    other.close()


PUBLISH_AND_DIE = f"""{SETUP}
import os, signal
from bowstring.datasets import publication
publication.end_predecessors = lambda dataset: os.kill(os.getpid(), signal.SIGKILL)
bs.publish(bs.table({{"a": [0]}}), name="model", replace=True)
"""


def test_data_sets_of_processes_that_were_killed_while_replacing_are_replaced_by_the_next(token: str) -> None:
    for _ in range(3):
        with PythonProcess(PUBLISH_AND_DIE, token=token) as killed:
            assert killed.process.wait(60) == -signal.SIGKILL
    assert [summary.name for summary in bs.published()].count("model") == 3
    with bs.publish(TABLE, name="model", replace=True) as dataset:
        assert [summary.id for summary in bs.published() if summary.name == "model"] == [dataset.id]


def test_a_child_with_the_process_id_of_its_parent_is_not_the_owner() -> None:
    code = """
import ctypes, os, sys
import bowstring as bs
dataset = bs.publish(bs.table({"a": [1, 2]}), name="first-process", ttl_s=60)
server = bs.serve({"t": bs.table({"a": [1, 2]})})
CLONE_NEWPID = 0x20000000  # `os.unshare` is of Python 3.12
assert ctypes.CDLL(None).unshare(CLONE_NEWPID) == 0
child = os.fork()
if not child:
    print(os.getpid(), dataset.is_owner, flush=True)
    dataset.close()
    server.close()
    os._exit(0)
os.waitpid(child, 0)
with bs.connect(server.uri("t")) as reader, bs.open_published(dataset.id) as view:
    print(os.getpid(), dataset.is_owner, reader.read_all().num_rows, view.read_all().num_rows)
dataset.close()
"""
    command = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, "-c", code]
    if subprocess.run([*command[:-3], "true"], capture_output=True, check=False).returncode:
        pytest.skip("requires permission to create a namespace of processes")
    process = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (process.stdout, process.stderr) == ("1 False\n1 True 2 2\n", "")


def test_the_newest_is_found_and_replaces_others_although_the_clock_was_set_back(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import time\nnow = time.time\ntime.time = lambda: now() + 3600")
    name = f"clock-{secrets.token_hex(4)}"
    code = """
import sys
sys.path.insert(0, folder)  # as the host agent's, whose clock is an hour ahead
import bowstring as bs
send(bs.publish(bs.table({"a": [1]}), name=name, lifetime="application").id)
receive()
"""
    with PythonProcess(code, folder=str(tmp_path), name=name) as other:
        other.receive()
        (earlier,) = (summary for summary in bs.published() if summary.name == name)
        assert earlier.age_s < -3000
        with bs.publish(TABLE, name=name) as dataset:
            assert [summary.id for summary in bs.published() if summary.name == name] == [dataset.id, earlier.id]
            assert bs.open_published(name).id == dataset.id
            with bs.publish(TABLE, name=name, replace=True) as newest:
                assert [summary.id for summary in bs.published() if summary.name == name] == [newest.id]


def test_a_data_set_of_another_agent_is_replaced_too() -> None:
    name = f"moved-{secrets.token_hex(4)}"
    with (
        bs.publish(TABLE, name=name, lifetime="application") as old,
        bs.publish(TABLE, name=name, replace=True) as new,
    ):
        assert [summary.id for summary in bs.published() if summary.name == name] == [new.id]
        with pytest.raises(NotFoundError, match=f"'{old.id}' was replaced by '{new.id}' at "):
            old.renew(60)


def end_by_expiry(dataset: PublishedDataset) -> None:
    dataset.renew(0.01)
    assert wait_until(lambda: dataset.id not in {summary.id for summary in bs.published()})


def end_by_replacing(dataset: PublishedDataset) -> None:
    bs.unpublish(bs.publish(TABLE, name=dataset.name, replace=True).id)


ENDINGS: dict[str, tuple[Callable[[PublishedDataset], object], str]] = {
    "closed": (PublishedDataset.close, rf"was closed by process {os.getpid()}, which published it, at .* UTC"),
    "unpublished": (lambda dataset: bs.unpublish(dataset.name), rf"was unpublished by process {os.getpid()} at .* UTC"),
    "expired": (end_by_expiry, r"expired after its lifetime of 0.01 s at .* UTC"),
    "replaced": (end_by_replacing, r"was replaced by 'ended-.*' at .* UTC"),
}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.usefixtures("token")
def test_errors_say_who_has_ended_a_data_set(ending: str) -> None:
    end, expected = ENDINGS[ending]
    name = f"ended-{secrets.token_hex(4)}"
    dataset = bs.publish(TABLE, name=name)
    opened, copy = bs.open_published(name), pickle.loads(pickle.dumps(dataset))
    end(dataset)
    expected = f"data set '{dataset.id}' {expected}"
    for use in (lambda: bs.open_published(dataset.id), lambda: bs.unpublish(dataset.id), lambda: opened.renew(60)):
        with pytest.raises(NotFoundError, match=expected):
            use()
    for view in (opened, copy):
        if ending == "replaced":  # it can be read for a while
            assert view.read_all() == TABLE
            continue
        with pytest.raises(NotFoundError, match=expected):
            view.read_all()


@pytest.mark.usefixtures("token")
def test_the_error_says_that_the_process_or_the_agent_has_ended() -> None:
    code = "import bowstring as bs\nsend(bs.publish(bs.table({'a': [1]}), name='gone', lifetime='application'))"
    attached: PublishedDataset = run_python(f"{code}\nreceive()")
    detached = bs.publish(TABLE, name="gone")
    with agent_directory.open_detached_agent() as agent:
        os.kill(agent.status()["pid"], signal.SIGKILL)
    for dataset in (attached, detached):
        assert wait_until(partial(has_lost_its_agent, dataset))
        with pytest.raises(
            ConnectionLostError, match="its host agent or the process that published it has ended: publish it again"
        ):
            dataset.read_all()


def has_lost_its_agent(dataset: PublishedDataset) -> bool:
    try:
        dataset.read_all()
    except ConnectionLostError:
        return True
    except NotFoundError as error:  # an agent that has dropped its data sets answers until it exits
        if "ended with the process that published it" not in str(error):
            raise
    return False


@pytest.mark.thorough
def test_opening_while_an_agent_is_stopped_is_an_error_after_one_time_out(token: str) -> None:
    with bs.publish(TABLE, name="stopped") as dataset:
        with agent_directory.open_detached_agent() as agent:
            pid = agent.status()["pid"]
        os.kill(pid, signal.SIGSTOP)
        try:
            started = time.monotonic()
            for use in (bs.open_published, bs.unpublish):
                with pytest.raises(DeadlineError, match=f"'{dataset.id}': host agent at @.*{token}.* within 0.5 s"):
                    use(dataset.id, 0.5)
            elapsed_s = time.monotonic() - started
        finally:
            os.kill(pid, signal.SIGCONT)
        assert elapsed_s >= 1
        assert bs.open_published("stopped").read_all() == TABLE


def test_a_stopped_agent_delays_only_names_that_no_other_agent_has(token: str) -> None:
    with (
        bs.publish(TABLE, name="stopped"),
        bs.publish(TABLE, name="running", lifetime="application"),
        agent_directory.open_detached_agent() as agent,
        ThreadPoolExecutor() as pool,
    ):
        pid = agent.status()["pid"]
        os.kill(pid, signal.SIGSTOP)
        try:
            assert wait_until(lambda: is_stopped(pid))
            opened = pool.submit(bs.open_published, "running", 10_000.0)
            listed = pool.submit(bs.published, 10_000.0)
            assert opened.result(timeout=60).read_all() == TABLE
            assert {"running", "stopped"} & {summary.name for summary in listed.result(timeout=60)} == {"running"}
            late = pool.submit(bs.open_published, "stopped", 10_000.0)
            assert not wait_until(late.done, within_s=0.3)
        finally:
            os.kill(pid, signal.SIGCONT)
        assert late.result(timeout=60).read_all() == TABLE


def test_closing_while_the_agent_is_stopped_is_an_error_that_says_what_remains(
    token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(published_dataset, "DROP_TIMEOUT_S", 0.2)
    dataset = bs.publish(TABLE, name="stopped", ttl_s=3600)
    with agent_directory.open_detached_agent() as agent:
        pid = agent.status()["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        remains = (
            rf"its memory remains until 20.* UTC; bowstring.unpublish\('{dataset.id}'\) frees it: host agent: .* 0.2 s"
        )
        with pytest.raises(DeadlineError, match=f"data set {dataset.id}: could not be closed: {remains}"):
            dataset.close()
    finally:
        os.kill(pid, signal.SIGCONT)
    assert dataset.is_closed
    assert bs.open_published("stopped").read_all() == TABLE
    dataset.close()
    assert "stopped" not in [summary.name for summary in bs.published()]


WRONG_NUMBERS: dict[str, tuple[Callable[[PublishedDataset, Any], object], str]] = {
    "connect": (lambda dataset, value: bs.connect(dataset, timeout_s=value), "connect: timeout_s: expected a positive"),
    "published": (lambda _, value: bs.published(timeout_s=value), "timeout_s: expected a positive"),
    "open_published": (lambda dataset, value: bs.open_published(dataset.id, value), "timeout_s: expected a positive"),
    "unpublish": (lambda dataset, value: bs.unpublish(dataset.id, value), "timeout_s: expected a positive"),
    "follow": (lambda _, value: bs.follow_published("x", timeout_s=value), "timeout_s: expected a positive"),
    "publish": (lambda _, value: bs.publish(TABLE, ttl_s=value), "ttl_s: expected a positive"),
    "renew": (PublishedDataset.renew, "ttl_s: expected a positive"),
    "prefetch": (
        lambda dataset, value: bs.connect(dataset, prefetch_bytes=value),
        "connect: prefetch_bytes: expected an integer of 0 or more",
    ),
    "head": (PublishedDataset.head, "num_rows: expected an integer of 0"),
    "read_rows": (lambda dataset, value: dataset.read_rows(0, value), "stop: expected an integer of 0"),
    "read_rank": (lambda dataset, value: dataset.read_rank(0, value), "world_size: expected an integer of 0"),
    "batch_rows": (EpochReader, "batch_rows: expected an integer of 1"),
    "allocate": (
        lambda _, value: bs.sharing.new_shared_table({"a": "int8"}).allocate(value),
        "allocate: num_rows: expected an integer of 0",
    ),
    "options": (lambda _, value: ServerOptions(timeout_s=value), "timeout_s: expected a positive"),
    "limits": (lambda _, value: ServerOptions(max_clients=value), "max_clients: expected an integer of 0"),
    "drain": (lambda _, value: bs.serve({}).drain(value), "timeout_s: expected a number of seconds of 0 or more"),
}


@pytest.mark.parametrize("name", WRONG_NUMBERS)
@pytest.mark.usefixtures("token")
def test_an_option_that_is_not_a_number_is_an_error_with_its_name(name: str) -> None:
    use, expected = WRONG_NUMBERS[name]
    with bs.publish(TABLE) as dataset:
        for value in ("3", None, -1, float("nan"), True, [1]):
            with pytest.raises(InvalidArgumentError, match=f"{expected}.*, found {re.escape(repr(value))}"):
                use(dataset, value)


@pytest.mark.usefixtures("token")
@pytest.mark.parametrize("seconds", [np.float32(30), np.int64(30)])
def test_seconds_may_be_numbers_of_numpy(seconds: Any) -> None:
    with bs.publish(TABLE, name="numpy", ttl_s=seconds) as dataset:
        dataset.renew(seconds)
        with bs.open_published("numpy", timeout_s=seconds) as opened, bs.connect(opened, timeout_s=seconds) as reader:
            assert reader.read_all() == TABLE
    with bs.serve({"a": TABLE}) as server:
        assert server.drain(seconds)


@pytest.mark.usefixtures("token")
def test_a_data_set_that_expires_while_it_is_published_is_an_error_with_the_reason() -> None:
    with pytest.raises(NotFoundError, match="expired after its lifetime of 1e-09 s"):
        bs.publish(TABLE, ttl_s=1e-9)


@pytest.mark.usefixtures("token")
def test_batches_of_a_data_set_are_iterated() -> None:
    with bs.publish(TABLE) as dataset, bs.open_published(dataset.id) as view:
        assert [batch["a"].to_pylist() for batch in view.select("a")] == [[1, 2, 3]]
        assert bs.Table.from_batches(list(dataset)) == TABLE


def test_everything_works_in_functions_that_the_interpreter_calls_at_its_end(token: str, tmp_path: Path) -> None:
    bs.write_table(TABLE, tmp_path / "t.arrow")
    code = """
import atexit, threading
import bowstring as bs
def at_exit():
    from bowstring.sharing.agent import directory as agent_directory
    agent_directory._DETACHED_TOKEN = token
    with bs.open_published(name) as dataset, bs.publish(dataset.read_all(), name="at-exit") as other:
        counts = [bs.connect(uri).read_all().num_rows, len(list(other)), bs.dataset(path).num_rows]
        counts.append(next(iter(bs.datasets.EpochReader(other, 3))).num_rows)
    send(counts)
atexit.register(at_exit)
"""
    with bs.publish(TABLE) as dataset, bs.serve({"t": TABLE}, scheme="tcp") as server:
        values = {"name": dataset.id, "uri": server.uri("t"), "path": str(tmp_path / "t.arrow"), "token": token}
        assert run_python(code, **values) == [3, 1, 3, 3]


@pytest.mark.usefixtures("token")
def test_without_memory_for_threads_reading_works_and_reading_ahead_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with bs.publish(TABLE, name="alone") as dataset, bs.serve({"t": TABLE}, scheme="tcp") as server:
        monkeypatch.setattr(threading.Thread, "start", fail)
        monkeypatch.setattr(stored_parts, "_PART_BYTES", 8)
        monkeypatch.setattr(os, "cpu_count", lambda: 4)
        assert bs.open_published("alone").read_all() == bs.attach(bs.share(TABLE)) == TABLE
        assert next(iter(EpochReader(dataset, 3))).num_rows == 3
        with bs.publish(bs.concat_tables([TABLE] * 4)) as parts:
            assert (len(parts.parts), parts.num_rows) == (4, 12)
        with bs.connect(server.uri("t"), prefetch_bytes=100) as reader:
            assert reader.read_all() == TABLE
            with pytest.raises(ResourceError, match="can't start new thread"):
                list(reader)

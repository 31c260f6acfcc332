"""Handles, tables, data sets and servers in processes of `multiprocessing`, and in forked children."""

from __future__ import annotations

import pickle
from importlib.util import find_spec

import pytest

import bowstring as bs
from bowstring.errors import ClosedError, ConnectionLostError
from tests.sharing.python_process import run_python

EXCHANGE = """
import multiprocessing, warnings
import bowstring as bs
from tests.sharing.multiprocessing_workers import read, read_queue, share_values
warnings.simplefilter("ignore")  # Python warns if a process with threads forks
context = multiprocessing.get_context(method)
table = bs.table({"a": [1, None], "s": ["x", "y"]})
with bs.share(table) as handle, bs.serve({"t": table}) as server, bs.connect(server.uri("t")) as data:
    sources = [handle, bs.attach(handle), data, server.uri("t")]
    with context.Pool(1) as pool:
        values = {"pool": pool.map(read, sources)}
    requests, replies, finished = context.SimpleQueue(), context.SimpleQueue(), context.Event()
    child = context.Process(target=read_queue, args=(requests, replies, *sources))
    child.start()
    values["argument"] = [replies.get() for _ in sources]
    for source in (*sources, None):
        requests.put(source)
    values["queue"] = [replies.get() for _ in sources]
    child.join()
    sharing = context.Process(target=share_values, args=([7, 8], requests, finished))
    sharing.start()
    attached = bs.attach(requests.get())
    finished.set()
    sharing.join()
    values["reply"] = [read(attached)]
    values["later"] = [read(source) for source in sources]
send((values, child.exitcode, sharing.exitcode))
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_tables_are_passed_to_processes_as_arguments_in_queues_and_in_pools(method: str) -> None:
    values, *exit_codes = run_python(EXCHANGE, method=method)
    assert exit_codes == [0, 0]
    assert values.pop("reply") == [{"a": [7, 8]}]
    assert values == dict.fromkeys(["pool", "argument", "queue", "later"], [{"a": [1, None], "s": ["x", "y"]}] * 4)


DATA_LOADER = """
import bowstring as bs
import numpy as np
import torch
from tests.sharing.multiprocessing_workers import Rows
with bs.share(bs.table({"x": np.arange(100)})) as handle:
    options = {"batch_size": 10, "shuffle": True, "num_workers": 2, "collate_fn": torch.from_numpy}
    loader = torch.utils.data.DataLoader(Rows(handle), multiprocessing_context=method, **options)
    send(sorted(torch.cat(list(loader)).tolist()))
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_a_pytorch_data_loader_attach(method: str) -> None:
    if find_spec("torch") is None:
        pytest.skip("needs torch")
    assert run_python(DATA_LOADER, method=method) == list(range(100))


FORK = """
import gc, os, sys, tempfile, traceback, warnings
import bowstring as bs
warnings.simplefilter("ignore")

def use_inherited():
    assert attached.to_pydict() == received.to_pydict() == bs.attach(handle).to_pydict() == table.to_pydict()
    assert data.read_all() == table
    for use in (lambda: server.uri("t"), lambda: server.add("u", table)):
        try:
            use()
        except bs.errors.ClosedError:
            continue
        raise AssertionError("the server can be used")
    with bs.serve({"own": table}) as own, bs.connect(own.uri("own")) as again:
        assert again.read_all() == table
    for inherited in (data, handle, server):
        inherited.close()

with tempfile.TemporaryDirectory() as folder:
    table = bs.table({"a": list(range(1000)) * 10})
    server = bs.serve({"t": table}, folder + "/socket")
    data = bs.connect(server.uri("t"))
    received, handle = data.read_all(), bs.share(table)
    attached = bs.attach(handle)
    if not (child := os.fork()):
        try:
            use_inherited()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with bs.connect(server.uri("t")) as again:
        equal = [table == other for other in (attached, received, again.read_all(), data.read_all(), bs.attach(handle))]
    send((code, equal, server.num_clients >= 1))
"""


def test_a_forked_child_reads_what_it_inherited_and_does_not_affect_its_parent() -> None:
    assert run_python(FORK) == (0, [True] * 5, True)


def test_a_pickled_data_set_connects_again() -> None:
    table = bs.table({"a": [1, 2]})
    with bs.serve({"t": table, "u": table}) as server:
        with bs.connect([server.uri("t"), server.uri("u")], copy=True, timeout_s=7) as data:
            pickled = pickle.dumps(data)
            with pickle.loads(pickled) as again:
                assert again.read_all().to_pydict() == {"a": [1, 2, 1, 2]}
                assert (again.uris, again.schema) == (data.uris, data.schema)
        with pytest.raises(ClosedError):
            pickle.dumps(data)
    with pytest.raises(ConnectionLostError):
        pickle.loads(pickled)


def test_a_server_can_not_be_pickled() -> None:
    with bs.serve({}) as server, pytest.raises(TypeError, match=r"pass a URI"):
        pickle.dumps(server)

"""Containers, with users and processes of their own, that publish: with the host's network, and with their own."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from tests.sharing.python_process import PythonProcess, needs_user_namespaces, run_python

pytestmark = needs_user_namespaces

CONTAINER = ["--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"]
PUBLISH = """
import bowstring as bs
from bowstring.sharing.agent import directory as agent_directory
agent_directory._DETACHED_TOKEN = token
table = bs.table({"a": list(range(1000))})
with bs.publish(table, name=token) as dataset, bs.serve({"t": table}) as server:
    send((dataset._control._address, server.uri("t")))
    receive()
"""
READ = """
import bowstring as bs
found = [summary.num_rows for summary in bs.published() if summary.name == token]
try:
    with bs.open_published(token) as dataset:
        found.append(dataset.read_all()["a"].to_pylist()[-1])
except bs.errors.NotFoundError:
    found.append("not found")
try:
    with bs.connect(uri) as dataset:
        found.append(dataset.read_all().num_rows)
except bs.errors.ConnectionLostError as error:
    found.append("refused" if "refused a peer of user 65534" in str(error) else str(error))
"""
READ_AND_SEND = f"{READ}\nsend(found)"
# The user ID of both users is 0 in their containers. After the imports, for which another user may have no permission.
READ_AS_OTHER_USER = f"""
import ctypes, os, socket, struct, time
os.environ["OPENBLAS_NUM_THREADS"] = "1"  # a process with threads can't enter a user namespace
import bowstring as bs
with bs.serve({{"t": bs.table({{"a": [1]}})}}) as server:
    with bs.connect(server.uri("t")) as dataset:
        dataset.read_all()["a"].to_pylist()
bs.published()
end = time.monotonic() + 30
while len(os.listdir("/proc/self/task")) > 1 and time.monotonic() < end: time.sleep(0.01)
os.setgroups([])
os.setuid(65533)
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE, so that its user may write its uid_map
assert ctypes.CDLL(None, use_errno=True).unshare(0x10000000) == 0  # CLONE_NEWUSER
send(None)
receive()
assert os.getuid() == 0
{READ}
request = b'{{"op": "list", "name": null}}'
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect("\\0" + agent_address[1:])
    try:
        connection.sendall(struct.pack("<4sBBHQQ", b"BWS1", 0, 0, 0, 0, len(request)) + request)
        reply = connection.recv(1000)
    except ConnectionError:
        reply = b""
send((found, reply))
"""


@pytest.mark.parametrize("has_network", [False, True], ids=["network of the host", "network of its own"])
def test_containers_of_a_user_share_published_data_sets_if_they_share_the_network(
    has_network: bool,
) -> None:
    token = f"test-{secrets.token_hex(8)}"
    with PythonProcess(PUBLISH, isolation=CONTAINER, token=token) as publisher:
        _, uri = publisher.receive()
        isolation = [*CONTAINER, *(["--net"] if has_network else [])]
        found = run_python(READ_AND_SEND, isolation=isolation, token=token, uri=uri)
        if has_network:
            assert found[0] == "not found"
            assert "nothing is listening" in found[1]
        else:
            assert found == [1000, 999, 1000]


def test_containers_of_two_users_with_one_number_and_one_network_share_nothing() -> None:
    token = f"test-{secrets.token_hex(8)}"
    with PythonProcess(PUBLISH, isolation=CONTAINER, token=token) as publisher:
        address, uri = publisher.receive()
        with PythonProcess(READ_AS_OTHER_USER, token=token, uri=uri, agent_address=address) as other:
            other.receive()
            Path(f"/proc/{other.process.pid}/uid_map").write_text("0 65533 1")
            other.send(None)
            assert other.receive() == (["not found", "refused"], b"")

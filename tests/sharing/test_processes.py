"""Who a process is, whether it is there still, and which Java it descends from."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bowstring.errors import ConnectionLostError, ResourceError
from bowstring.sharing.processes import ProcessIdentity, host_id, start_ticks, wait_for_exit
from tests.sharing.python_process import run_python

NAMED_JAVA = """
import os, subprocess, sys
open("/proc/self/comm", "w").write("java")
below = "from bowstring.sharing.processes import find_java_ancestor; print(find_java_ancestor().pid)"
between = [sys.executable, "-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {below!r}])"]
send((os.getpid(), int(subprocess.run(between, capture_output=True, check=True).stdout)))
"""


def test_a_zombie_is_not_alive() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        process = ProcessIdentity.from_pid(child.pid)
        watched = os.pidfd_open(child.pid)
        assert process.is_alive()
        assert not wait_for_exit(watched)
        assert child.stdin is not None
        child.stdin.close()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert ") Z " in Path(f"/proc/{child.pid}/stat").read_text()
        assert wait_for_exit(watched)
        assert start_ticks(child.pid) == -1
        assert not process.is_alive()
        os.close(watched)


def test_a_process_is_not_taken_for_ended_without_a_free_descriptor() -> None:
    parent = ProcessIdentity.from_pid(os.getppid())
    host_id.cache_clear()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with pytest.raises(ResourceError, match="this host can't be inspected: Too many open files"):
            _ = parent.is_local
        with pytest.raises(ResourceError, match="can't be inspected: Too many open files"):
            ProcessIdentity.current()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert parent.is_alive()


def test_a_reused_process_id_is_another_process() -> None:
    own = ProcessIdentity.current()
    other = replace(own, start_ticks=own.start_ticks - 1)
    assert own.is_alive()
    assert not other.is_alive()
    with pytest.raises(ConnectionLostError, match="has ended"):
        other.check_alive("this")
    with pytest.raises(ConnectionLostError, match="ran on another machine"):
        replace(own, host="elsewhere").check_alive("this")


def test_a_process_that_gets_the_id_of_one_that_was_killed_does_not_replace_it() -> None:
    code = """
import os, pickle, time
import bowstring as bs
from bowstring.sharing.processes import ProcessIdentity
reading, writing = os.pipe()
def fork(pid, work):
    with open("/proc/sys/kernel/ns_last_pid", "w") as last:
        last.write(str(pid - 1))
    child = os.fork()
    if not child:
        try:
            work()
        finally:
            os._exit(0)
    assert child == pid
def own():
    handle = bs.share(bs.table({"a": [1]}))
    bs.publish(bs.table({"a": [1]}), name="owned-by-500", lifetime="application")
    os.write(writing, pickle.dumps((handle, ProcessIdentity.current())))
    time.sleep(60)
fork(500, own)
handle, owner = pickle.loads(os.read(reading, 65536))
before = (owner.is_alive(), bs.attach(handle).num_rows, len([s for s in bs.published() if s.name == "owned-by-500"]))
os.kill(500, 9)
os.waitpid(500, 0)
fork(500, lambda: time.sleep(60))
try:
    bs.attach(handle)
except bs.errors.ConnectionLostError:
    attached = False
end = time.monotonic() + 30
while (published := [s for s in bs.published() if s.name == "owned-by-500"]) and time.monotonic() < end:
    time.sleep(0.02)
print(before, owner.is_alive(), attached, published)
"""
    command = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if subprocess.run(
        [*command, "test", "-w", "/proc/sys/kernel/ns_last_pid"], capture_output=True, check=False
    ).returncode:
        pytest.skip("requires permission to create a namespace of processes and to choose their IDs")
    process = subprocess.run(
        [*command, sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert (process.stdout, process.stderr) == ("(True, 1, 1) False False []\n", "")


def test_a_process_whose_clocks_are_in_another_namespace_is_not_taken_for_ended() -> None:
    code = """
import sys
from bowstring.sharing.processes import ProcessIdentity, start_ticks
pid, ticks, host = sys.argv[1:]
print(start_ticks(int(pid)) - int(ticks), ProcessIdentity(int(pid), int(ticks), host).is_local)
"""
    own = ProcessIdentity.current()
    arguments = [sys.executable, "-c", code, *map(str, (own.pid, own.start_ticks, own.host))]
    other = subprocess.run(
        ["unshare", "--time", "--boottime", "1000", "--fork", *arguments], capture_output=True, text=True, check=False
    )
    if other.returncode:
        pytest.skip(f"requires permission to create a namespace of clocks: {other.stderr}")
    assert other.stdout.split() == [str(1000 * os.sysconf("SC_CLK_TCK")), "False"]


JAVA_THAT_FORKS = """
import os
from bowstring.sharing.processes import find_java_ancestor
open("/proc/self/comm", "w").write("java")
before = find_java_ancestor()
read_end, write_end = os.pipe()
if os.fork() == 0:
    java = find_java_ancestor()
    os.write(write_end, str(java and java.pid).encode())
    os._exit(0)
os.wait()
send((before, os.getpid(), os.read(read_end, 100)))
"""


def test_a_forked_child_looks_for_java_again() -> None:
    before, pid, child_found = run_python(JAVA_THAT_FORKS)
    assert before is None
    assert child_found == str(pid).encode()


def test_java_above_is_the_nearest_java_ancestor() -> None:
    java, parent = run_python(NAMED_JAVA)
    assert parent == java

"""What became of data sets whose host agent has ended."""

from __future__ import annotations

import errno
import json
import os
import secrets
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import bowstring as bs
from bowstring.errors import ConnectionLostError, NotFoundError
from bowstring.sharing.agent import directory as agent_directory, end_records
from bowstring.sharing.agent.client import AgentClient
from bowstring.sharing.agent.end_records import EndRecord, find_recorded_end
from bowstring.sharing.processes import ProcessIdentity
from tests.polling import wait_until
from tests.sharing.python_process import PythonProcess, run_python

TIME = r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC"
WRITE_RECORDS = """
from pathlib import Path
from bowstring.sharing.agent import directory as agent_directory, end_records
end_records._PARENT = Path(folder)
for number in range(3):
    end_records.EndRecord().write({}, {f"a-{number}": ("a", f"a-{number} has ended"), f"b-{number}": ("b", "")})
send(None)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(end_records, "_PARENT", tmp_path)
    return tmp_path / f"bowstring-{os.getuid()}"


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch) -> str:
    """An agent for this test alone."""
    token = f"test-{secrets.token_hex(8)}-"
    monkeypatch.setattr(agent_directory, "_DETACHED_TOKEN", token)
    return token


def has_ended(address: str) -> bool:
    try:
        AgentClient.connect(address, timeout_s=5).close()
    except ConnectionLostError:
        return True
    return False


def publish(name: str) -> bs.datasets.PublishedDataset:
    return bs.publish(bs.table({"a": [1, 2]}), name=name)


@pytest.mark.parametrize("way", ["end", "kill"])
def test_a_data_set_that_has_ended_with_its_application_is_an_error_that_says_so(way: str) -> None:
    name = f"ended-{secrets.token_hex(4)}"
    code = """
import bowstring as bs
dataset = bs.publish(bs.table({"a": [1, 2]}), name=name, lifetime="application")
send((dataset.id, dataset._control._address))
receive()
"""
    with PythonProcess(code, name=name) as other:
        dataset_id, address = other.receive()
        if way == "kill":
            other.kill()
        else:
            other.send(None)
        assert wait_until(lambda: has_ended(address))
    for each in (name, dataset_id):
        with pytest.raises(NotFoundError, match=f"'{dataset_id}' ended with the process that published it at {TIME}"):
            bs.open_published(each)


def read_records() -> str:
    """The texts of all records; those of other tests' agents may be removed meanwhile."""
    texts = []
    for path in end_records._list_files():
        with suppress(FileNotFoundError):
            texts.append(path.read_text())
    return "".join(texts)


def test_a_data_set_of_an_agent_that_was_killed_is_an_error_with_the_process_and_the_time(token: str) -> None:
    name = f"killed-{token}"
    dataset = publish(name)
    unpublished = publish(f"{name}-unpublished")
    bs.unpublish(f"{name}-unpublished")
    address = dataset._control._address  # type: ignore[union-attr]
    with AgentClient.connect(address) as agent:
        pid = agent.status()["pid"]
    assert wait_until(lambda: f"{unpublished.id}' was unp" in read_records())
    os.kill(pid, signal.SIGKILL)
    assert wait_until(lambda: has_ended(address))
    lost = f"'{dataset.id}' was lost when its host agent, process {pid}, was killed at about {TIME}"
    for each in (name, dataset.id):
        with pytest.raises(NotFoundError, match=lost):
            bs.open_published(each)
    with pytest.raises(NotFoundError, match=f"was unpublished by process {os.getpid()} at {TIME}"):
        bs.unpublish(f"{name}-unpublished")
    with publish(name) as again:  # by another agent
        assert bs.open_published(name).id == again.id


def test_the_newest_record_counts_and_their_number_is_limited(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(end_records, "_MAX_FILES", 2)
    run_python(WRITE_RECORDS, folder=str(folder.parent))
    assert find_recorded_end("a") == "a-2 has ended"
    assert find_recorded_end("a-0") == "a-0 has ended"
    EndRecord()
    assert len(list(folder.iterdir())) == 2
    assert (find_recorded_end("a-0"), find_recorded_end("a-1")) == ("", "a-1 has ended")


def test_a_record_that_can_not_be_written_leaves_no_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    record = EndRecord()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", fail)
        record.write({"a-1": "a"}, {})
    assert list(folder.iterdir()) == []
    record.write({"a-1": "a"}, {})
    assert len(list(folder.iterdir())) == 1


def test_what_a_killed_agent_was_writing_is_removed_by_a_later_one(folder: Path) -> None:
    EndRecord()
    for name in (".old", ".new", "record"):
        (folder / name).write_text("[")
    os.utime(folder / ".old", (0, 0))
    os.utime(folder / "record", (0, 0))
    EndRecord()
    assert {path.name for path in folder.iterdir()} == {".new", "record"}


def test_a_record_has_a_limited_number_of_names(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(end_records, "_MAX_NAMES", 2)
    published = {f"p-{number}": "p" for number in range(3)}
    EndRecord().write(published, {f"e-{number}": ("e", "ended") for number in range(3)})
    (path,) = folder.iterdir()
    assert [list(each) for each in json.loads(path.read_text())[1:]] == [["p-2", "p-1"], ["e-2", "e-1"]]


def test_the_names_of_an_agent_that_runs_are_not_lost(folder: Path) -> None:
    EndRecord().write({"a-1": "a"}, {})
    assert len(list(folder.iterdir())) == 1
    assert find_recorded_end("a") == ""


def _let_others_write(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)


def _link_to_another(folder: Path) -> None:
    (folder.parent / "other").mkdir(mode=0o700)
    folder.symlink_to("other")


def _give_to_another_user(folder: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("requires root, to be several users")
    folder.mkdir(mode=0o700)
    os.chown(folder, 65534, 65534)


@pytest.mark.parametrize("prepare", [_let_others_write, _link_to_another, _give_to_another_user])
def test_a_folder_that_others_may_write_is_not_used(folder: Path, prepare: Callable[[Path], None]) -> None:
    prepare(folder)
    run_python(WRITE_RECORDS, folder=str(folder.parent))
    assert list(folder.iterdir()) == []
    (folder / "forged").write_text(json.dumps([[1, 0, ProcessIdentity.current().host], {"a-1": "a"}, {}]))
    assert find_recorded_end("a") == ""


@pytest.mark.parametrize("content", [b"", b"\xff", b"[" * 100_000, b"{}", b"[[1, 2], {}, {}]", b'[[1, 2, "x"], 3, 4]'])
def test_a_malformed_record_is_ignored(folder: Path, content: bytes) -> None:
    run_python(WRITE_RECORDS, folder=str(folder.parent))
    (folder / "malformed").write_bytes(content)
    os.utime(folder / "malformed", (4e9, 4e9))
    assert find_recorded_end("a") == "a-2 has ended"

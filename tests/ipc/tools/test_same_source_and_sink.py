"""A source that is also the sink is rejected, whatever path, link, descriptor or object names it."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import fsspec
import pytest

import bowstring as bs
from bowstring.cli.main import main
from bowstring.errors import InvalidArgumentError

_Function = Callable[[Any, Any], Any]


def _concat(source: Any, sink: Any) -> None:
    bs.ipc.concat_files([source], sink)


def _concat_iterator(source: Any, sink: Any) -> None:
    bs.ipc.concat_files(iter([source]), sink)


_FUNCTIONS: list[_Function] = [bs.ipc.recover, _concat, _concat_iterator]


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """A file that must not change."""
    path = tmp_path / "x.arrow"
    with bs.new_file(path, bs.schema({"a": bs.int64()})) as writer:
        writer.write(bs.record_batch({"a": [1, 2, 3]}))
    before, number = path.read_bytes(), path.stat().st_ino
    yield path
    assert path.read_bytes() == before
    assert path.stat().st_ino == number
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".part")]


def _forms_of_source(path: Path, stack: ExitStack) -> list[Any]:
    folder = path.parent
    (folder / "soft").symlink_to(path)
    (folder / "soft2").symlink_to("soft")
    os.link(path, folder / "hard")
    file = stack.enter_context(path.open("r+b"))
    unbuffered = stack.enter_context(path.open("r+b", buffering=0))
    text = stack.enter_context(path.open("r+"))
    return [
        path,
        str(path),
        os.path.relpath(path),
        f"{folder}/../{folder.name}/x.arrow",
        f"file://{path}",
        folder / "soft",
        folder / "soft2",
        folder / "hard",
        file,
        unbuffered,
        text,
        file.fileno(),
        f"/dev/fd/{file.fileno()}",
        f"/proc/self/fd/{file.fileno()}",
        fsspec.open(str(path), "r+b"),
    ]


@pytest.mark.parametrize("function", _FUNCTIONS)
def test_a_sink_that_is_the_source_is_rejected_under_every_name(function: _Function, path: Path) -> None:
    with ExitStack() as stack:
        names = _forms_of_source(path, stack)
        for name in names:
            for source, sink in ((path, name), (name, path)):
                with pytest.raises(InvalidArgumentError, match="is both input and output"):
                    function(source, sink)


@pytest.mark.parametrize("function", _FUNCTIONS)
def test_a_sink_that_is_the_source_is_rejected_in_a_store_and_in_memory(function: _Function) -> None:
    memory = io.BytesIO()
    with bs.new_file(memory, bs.schema({"a": bs.int64()})):
        pass
    before = memory.getvalue()
    store = fsspec.filesystem("memory")
    store.pipe("/same/x.arrow", before)
    url = "memory://same/x.arrow"
    for source, sink in ((url, url), (fsspec.open(url), url), (url, fsspec.open(url, "wb")), (memory, memory)):
        with pytest.raises(InvalidArgumentError, match="is both input and output"):
            function(source, sink)
    assert store.cat("/same/x.arrow") == memory.getvalue() == before


@pytest.mark.parametrize("function", _FUNCTIONS)
def test_a_copy_and_a_device_are_not_the_source(function: _Function, path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.arrow"
    copy.write_bytes(path.read_bytes())
    function(path, copy)
    function(path, "/dev/null")
    with copy.open("r+b") as file:
        function(path, file.fileno())
    assert bs.open_file(copy).num_rows == 3


def test_a_later_source_is_checked_before_anything_is_written_to_a_descriptor(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.arrow"
    other.write_bytes(path.read_bytes())
    with path.open("r+b") as file, pytest.raises(InvalidArgumentError, match="is both input and output"):
        bs.ipc.concat_files(iter([other, path]), file)


@pytest.mark.parametrize(
    "command",
    [
        "recover {source} {target}",
        "concat {source} -o {target}",
        "convert {source} {target} --to file",
        "convert {source} {target} --to csv",
        "anatomy {source} -o {target}",
    ],
)
def test_a_command_rejects_a_target_that_is_the_source(
    command: str, path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "link").symlink_to(path)
    for source, target in ((path, path), (path, tmp_path / "link"), (tmp_path / "link", path)):
        assert main(command.format(source=source, target=target).split()) == 1
        assert "is both input and output" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    ["cat {}", "info {}", "convert {} - --to csv", "recover {} -", "concat {} -o -"],
)
def test_a_command_rejects_standard_output_that_is_the_source(command: str, path: Path) -> None:
    with path.open("ab") as output:
        process = subprocess.run(
            [sys.executable, "-m", "bowstring", *command.format(path).split()],
            stdout=output,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    assert process.returncode == 1
    assert b"is both input and output" in process.stderr

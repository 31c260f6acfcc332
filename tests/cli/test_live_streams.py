"""Streams that are still being written while `cat`, `head` and `convert` read them."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pytest

import bowstring as bs

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])


@contextmanager
def running_command(
    *arguments: str, stdout: Any = subprocess.PIPE
) -> Iterator[tuple[Callable[[int], None], subprocess.Popen[bytes]]]:
    """A command that reads a stream from a pipe, and a function that gives it a batch with one row."""
    command = [sys.executable, "-m", "bowstring", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=stdout, bufsize=0) as process:
        assert process.stdin is not None
        with pa.ipc.new_stream(pa.PythonFile(process.stdin, "w"), SCHEMA) as writer:

            def send_batch(number: int) -> None:
                writer.write_batch(pa.record_batch([[number], ["x" * number]], schema=SCHEMA))

            yield send_batch, process
        process.stdin.close()
        assert process.wait(30) == 0


def wait_for_output(source: IO[bytes] | int, pattern: bytes) -> bytes:
    """The output up to a match of the pattern, within a few seconds."""
    descriptor = source if isinstance(source, int) else source.fileno()
    output, deadline = b"", time.monotonic() + 30
    while not re.search(pattern, output):
        assert select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0], output
        part = os.read(descriptor, 65536)
        assert part, output
        output += part
    return output


@pytest.mark.parametrize(
    "arguments",
    [("cat", "--format", "jsonl"), ("head", "--format", "jsonl"), ("convert", "--to", "jsonl", "-", "-")],
    ids=["cat", "head", "convert"],
)
def test_each_batch_is_written_as_json_lines_before_the_next_one_arrives(arguments: tuple[str, ...]) -> None:
    with running_command(*arguments) as (send_batch, process):
        assert process.stdout is not None
        for number in (1, 2, 3):
            send_batch(number)
            assert wait_for_output(process.stdout, b"\n") == b'{"n": %d, "text": "%s"}\n' % (number, b"x" * number)


def test_each_batch_is_written_as_csv_before_the_next_one_arrives() -> None:
    with running_command("cat", "--format", "csv") as (send_batch, process):
        assert process.stdout is not None
        send_batch(1)
        assert wait_for_output(process.stdout, b"x\n") == b"n,text\n1,x\n"
        send_batch(2)
        assert wait_for_output(process.stdout, b"\n") == b"2,xx\n"


def test_a_stream_is_converted_batch_by_batch() -> None:
    with running_command("convert", "--to", "stream", "-", "-") as (send_batch, process):
        assert process.stdout is not None
        for number in (1, 2, 3):
            send_batch(number)
            wait_for_output(process.stdout, b"x" * number)


@contextmanager
def following_command(path: Path) -> Iterator[tuple[bs.ipc.StreamWriter, subprocess.Popen[bytes]]]:
    """A stream with one batch at a path, and `cat --follow`, which has written the batch."""
    batch = bs.record_batch({"n": [1], "text": ["a"]})
    command = [sys.executable, "-m", "bowstring", "cat", "--follow", "-c", "n", str(path)]
    as_usual = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # also where we were started to ignore it
    with bs.new_stream(path, batch.schema) as writer:
        writer.write(batch)
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=as_usual  # noqa: PLW1509 -- it takes no lock
        )  # fmt: skip
        assert process.stdout is not None
        assert wait_for_output(process.stdout, b"\n") == b'{"n": 1}\n'
        yield writer, process


def test_cat_follows_a_file_until_the_stream_ends(tmp_path: Path) -> None:
    with following_command(tmp_path / "log.arrows") as (writer, process):
        assert process.stdout is not None
        for number in (2, 3):
            writer.write(bs.record_batch({"n": [number], "text": ["a"]}))
            assert wait_for_output(process.stdout, b"\n") == b'{"n": %d}\n' % number
        assert process.poll() is None
        writer.close()
        assert process.communicate(timeout=30) == (b"", b"")
        assert process.returncode == 0


def test_cat_stops_following_at_an_interrupt(tmp_path: Path) -> None:
    with following_command(tmp_path / "log.arrows") as (_, process):
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30) == (b"", b"\n")
        assert process.returncode == 130


def test_cat_reports_that_the_followed_file_was_replaced(tmp_path: Path) -> None:
    path = tmp_path / "log.arrows"
    with following_command(path) as (_, process):
        os.replace(shutil.copy(path, tmp_path / "copy"), path)
        message = f"bowstring: {path}: was replaced or removed while it was followed\n"
        assert process.communicate(timeout=30) == (b"", message.encode())
        assert process.returncode == 1


def test_a_terminal_shows_each_batch_as_it_arrives() -> None:
    leader, follower = pty.openpty()
    try:
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
        with running_command("cat", stdout=follower) as (send_batch, _):
            shown = b""
            for number in (1, 2, 3, 12):
                send_batch(number)
                shown += wait_for_output(leader, rb"(?m)\b%d +x{%d} *\r$" % (number, number))
    finally:
        os.close(follower)
        os.close(leader)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", shown.decode()).replace("\r", "").splitlines()
    assert [line.split() for line in lines] == [
        ["n", "text"],
        ["int64", "string"],
        ["1", "x"],
        ["2", "xx"],
        ["3", "xxx"],
        ["n", "text"],  # the columns are wider from here on
        ["int64", "string"],
        ["12", "x" * 12],
    ]

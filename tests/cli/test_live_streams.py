"""Streams that are still being written while `cat`, `head` and `convert` read them."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any

import pyarrow as pa
import pytest

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

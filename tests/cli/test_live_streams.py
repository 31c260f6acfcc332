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
def live(
    *arguments: str, stdout: Any = subprocess.PIPE
) -> Iterator[tuple[Callable[[int], None], subprocess.Popen[bytes]]]:
    """A command that reads a stream from a pipe, and a function that gives it a batch with one row."""
    command = [sys.executable, "-m", "bowstring", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=stdout, bufsize=0) as process:
        assert process.stdin is not None
        with pa.ipc.new_stream(pa.PythonFile(process.stdin, "w"), SCHEMA) as writer:

            def give(number: int) -> None:
                writer.write_batch(pa.record_batch([[number], ["x" * number]], schema=SCHEMA))

            yield give, process
        process.stdin.close()
        assert process.wait(30) == 0


def come(source: IO[bytes] | int, pattern: bytes) -> bytes:
    """What has come when the pattern is met in it, within some seconds."""
    descriptor = source if isinstance(source, int) else source.fileno()
    held, deadline = b"", time.monotonic() + 30
    while not re.search(pattern, held):
        assert select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0], held
        part = os.read(descriptor, 65536)
        assert part, held
        held += part
    return held


@pytest.mark.parametrize(
    "arguments",
    [("cat", "--format", "jsonl"), ("head", "--format", "jsonl"), ("convert", "--to", "jsonl", "-", "-")],
    ids=["cat", "head", "convert"],
)
def test_each_batch_becomes_lines_before_the_next_one_is_there(arguments: tuple[str, ...]) -> None:
    with live(*arguments) as (give, process):
        assert process.stdout is not None
        for number in (1, 2, 3):
            give(number)
            assert come(process.stdout, b"\n") == b'{"n": %d, "text": "%s"}\n' % (number, b"x" * number)


def test_each_batch_becomes_lines_of_csv() -> None:
    with live("cat", "--format", "csv") as (give, process):
        assert process.stdout is not None
        give(1)
        assert come(process.stdout, b"x\n") == b"n,text\n1,x\n"
        give(2)
        assert come(process.stdout, b"\n") == b"2,xx\n"


def test_a_stream_is_converted_batch_by_batch() -> None:
    with live("convert", "--to", "stream", "-", "-") as (give, process):
        assert process.stdout is not None
        for number in (1, 2, 3):
            give(number)
            come(process.stdout, b"x" * number)


def test_a_terminal_shows_the_rows_that_are_there_below_each_other() -> None:
    leader, follower = pty.openpty()
    try:
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
        with live("cat", stdout=follower) as (give, _):
            shown = b""
            for number in (1, 2, 3, 12):
                give(number)
                shown += come(leader, rb"(?m)\b%d +x{%d} *\r$" % (number, number))
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

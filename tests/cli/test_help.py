"""Help texts: examples that work, and the completion of a shell."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pyarrow as pa
import pytest

import bowstring as bs
from bowstring.cli.commands import COMMANDS, LazyGroup, root_command
from bowstring.cli.error_messages import ErrorOptions
from bowstring.cli.main import main
from tests.cli.command_line import run_in_terminal, write

FLIGHTS = pa.table({"origin": ["RIX", "LIM"], "delay": [1, 2]})
RUN = (
    "info",
    "schema",
    "count",
    "head",
    "tail",
    "cat",
    "validate",
    "anatomy",
    "diff",
    "convert",
    "concat",
    "recover",
    "doctor",
    "ls",
)
"""Commands whose examples run; those of the others need servers, or folders of Spark."""


def walk_commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command, obj=ErrorOptions())
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from walk_commands(child, f"{path} {name}")


ALL_COMMANDS = dict(walk_commands(root_command, "bowstring"))


def examples_of(command: click.Command) -> list[str]:
    title, *lines = (command.epilog or "").removeprefix("\b\n").splitlines()
    assert title == "Examples:"
    return [line.strip() for line in lines]


@pytest.mark.parametrize("name", ALL_COMMANDS)
def test_every_help_text_has_examples_whose_options_exist(name: str) -> None:
    calls = [call for line in examples_of(ALL_COMMANDS[name]) for call in re.split(r" [|<>&] |   #", line)]
    calls = [call.strip() for call in calls if call.strip().startswith("bowstring ")]
    assert calls or name == "bowstring"
    for call in calls:
        command = max((path for path in ALL_COMMANDS if f"{call} ".startswith(f"{path} ")), key=len)
        arguments = shlex.split(call.removeprefix(command))
        if "--help" not in arguments:
            ALL_COMMANDS[command].make_context(command, arguments, obj=ErrorOptions())


@pytest.mark.parametrize("name", RUN)
def test_the_examples_of_a_help_text_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for file in ("flights.arrow", "flights.arrows", "growing.arrows", "monday.arrow", "tuesday.arrow"):
        write(Path(file), FLIGHTS)
    Path("damaged.arrow").write_bytes(Path("flights.arrow").read_bytes()[:-20])
    Path("zip.csv").write_text("zip,n\n007,NA\n")
    for file in ("flights.parquet", "copy.parquet", "flights.csv", "flights.jsonl"):
        assert main(["convert", "flights.arrow", file]) == 0
    for line in examples_of(ALL_COMMANDS[f"bowstring {name}"]):
        if not set("|<*&#") & set(line):
            assert main(shlex.split(line)[1:]) == 0, line


def test_examples_are_not_wrapped_on_a_narrow_terminal() -> None:
    status, shown = run_in_terminal(40, "head", "--help")
    assert status == 0
    assert "  bowstring head -n 3 -c origin,delay flights.parquet\r\n" in shown


# Completion


@pytest.fixture
def bash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A bash that completes `bowstring` and prints what it would offer for its arguments."""
    program = tmp_path / "bowstring"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m bowstring "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    script = (
        'eval "$(_BOWSTRING_COMPLETE=bash_source bowstring)"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
        '_bowstring_completion bowstring; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    return ["bash", "-c", script, "bash", "bowstring"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["con"], ["convert", "concat"]),
        (["head", "--format", "js"], ["jsonl"]),
    ],
)
def test_bash_completes_commands_options_and_values(bash: list[str], words: list[str], expected: list[str]) -> None:
    process = subprocess.run([*bash, *words], capture_output=True, text=True, timeout=60, check=False)
    assert (process.stderr, process.stdout.split()) == ("", expected)


def test_published_data_sets_are_completed() -> None:
    with bs.publish(bs.table({"a": [1]}), name="completed-data") as dataset:
        for name in ("fetch", "unpublish"):
            context = root_command.make_context("bowstring", [name], obj=ErrorOptions(), resilient_parsing=True)
            command = root_command.get_command(context, name)
            assert command is not None
            items = command.params[0].shell_complete(context, "completed-d")
            assert [item.value for item in items] == ["completed-data", dataset.id]


def test_completing_a_command_imports_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(root_command, LazyGroup)
    monkeypatch.setattr(LazyGroup, "get_command", lambda *_: pytest.fail("a command was imported"))
    items = root_command.shell_complete(click.Context(root_command), "")
    assert [item.value for item in items] == list(COMMANDS)


@pytest.mark.parametrize("name", ALL_COMMANDS)
def test_defaults_and_bounds_are_in_words(name: str) -> None:
    command = ALL_COMMANDS[name]
    text = command.get_help(click.Context(command, info_name=name, show_default=True))
    assert not re.search(r"\[default: \(|<=|>=|RANGE", text)

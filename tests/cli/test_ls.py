"""`bowstring ls`, `fetch` by name and `close`: published data sets in a shell."""

from __future__ import annotations

import json
import secrets
from pathlib import Path

import pytest

import bowstring as bs
from bowstring.cli.main import main
from tests.cli.command_line import terminal_lines

TABLE = bs.table({"a": list(range(1000))})


def test_published_data_sets_are_listed_fetched_and_closed_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"listed-{secrets.token_hex(4)}"
    with bs.publish(TABLE, name=name, ttl_s=7200) as dataset:
        assert main(["ls"]) == 0
        header, *lines = capsys.readouterr().out.splitlines()
        assert header.split() == ["id", "rows", "size", "parts", "age", "expires", "in", "readers", "lifetime", "hosts"]
        (line,) = [line for line in lines if line.startswith(dataset.id)]
        assert line.split()[1:3] == ["1,000", line.split()[2]]
        assert " 1 " in line
        assert " 2 h " in line or " 120 min " in line
        assert " detached " in line

        assert main(["ls", "--json"]) == 0
        listed = json.loads(capsys.readouterr().out)
        assert listed["format_version"] == 1
        (entry,) = [entry for entry in listed["datasets"] if entry["id"] == dataset.id]
        assert (entry["name"], entry["rows"], entry["bytes"], entry["parts"]) == (name, 1000, dataset.nbytes, 1)
        assert (entry["readers"], entry["lifetime"]) == (0, "detached")

        target = tmp_path / "copy.arrow"
        assert main(["fetch", name, str(target)]) == 0
        assert bs.open_file(target).read_all() == TABLE
        capsys.readouterr()
        assert main(["unpublish", dataset.id]) == 0
        assert capsys.readouterr().err == f"{dataset.id}: unpublished\n"
        assert main(["unpublish", name]) == 1
        assert f"no published data set '{name}' on this host: data set '{dataset.id}' was unpublished" in (
            capsys.readouterr().err
        )


def test_a_narrow_terminal_shows_complete_ids() -> None:
    with bs.publish(TABLE, name=f"narrow-{secrets.token_hex(4)}") as dataset:
        header, *lines = terminal_lines(60, "ls")
        assert header.split() == ["id", "size", "expires", "in"]
        assert dataset.id in [line.split()[0] for line in lines]
        assert all(len(line.rstrip()) <= 60 for line in lines)


def test_the_silence_of_an_agent_is_limited_by_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ls", "--timeout", "0"]) == 2
    assert "--timeout" in capsys.readouterr().err

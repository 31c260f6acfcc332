from __future__ import annotations

import re
from pathlib import Path

import pytest

from bowstring.dissociated.states import MACHINES, SERVER_STREAM, Machine, Move, Position, State, draw
from bowstring.errors import ProtocolError

machines = pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)


@machines
def test_the_diagram_in_the_documentation_is_drawn_from_the_table(machine: Machine, repository: Path) -> None:
    page = (repository / "docs" / "dissociated.md").read_text(encoding="utf-8")
    assert f"```mermaid\n{draw(machine)}```" in page


@machines
def test_every_state_has_a_meaning_and_can_be_reached(machine: Machine) -> None:
    reached = {machine.initial}
    while more := {after for (before, _), after in machine.transitions.items() if before in reached} - reached:
        reached |= more
    assert reached == set(machine.meaning)


@machines
def test_a_lost_or_failed_stream_never_goes_on(machine: Machine) -> None:
    for (before, move), after in machine.transitions.items():
        if before in (State.LOST, State.FAILED):
            assert after in (State.LOST, State.FAILED), (before, move)


def test_a_move_that_the_table_lacks_is_refused_and_changes_nothing() -> None:
    position = Position(SERVER_STREAM)
    with pytest.raises(ProtocolError, match="server stream: end of stream while waiting"):
        position.move(Move.END_OF_STREAM)
    assert position.state is State.WAITING


def test_the_diagram_is_mermaid() -> None:
    lines = draw(SERVER_STREAM).splitlines()
    assert lines[:2] == ["stateDiagram-v2", "    [*] --> WAITING"]
    assert "    WAITING --> STREAMING: want_data" in lines
    pattern = r"    (\S+ --> \S+(: .+)?|[A-Z]+: .+|note left of [A-Z]+: .+)"
    assert all(re.fullmatch(pattern, line) for line in lines[1:])

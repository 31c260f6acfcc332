from __future__ import annotations

import re
from pathlib import Path

import pytest

from bowstring.dissociated.states import (
    CLIENT_BODY_STREAM,
    CLIENT_METADATA_STREAM,
    SERVER_STREAM,
    StateMachine,
    StreamAction,
    StreamState,
    TransitionTable,
)
from bowstring.errors import ProtocolError

TABLES = [SERVER_STREAM, CLIENT_METADATA_STREAM, CLIENT_BODY_STREAM]
machines = pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)

DESCRIPTION = re.compile(r"^    ([A-Z]+): .+\n", re.MULTILINE)


def states_of(table: TransitionTable) -> set[StreamState]:
    return {state for state, _ in table.transitions} | set(table.transitions.values())


def to_mermaid(table: TransitionTable) -> str:
    """Return the table as a mermaid state diagram without lost and failed streams, which every state can lead to."""
    actions: dict[tuple[StreamState, StreamState], list[str]] = {}
    for (before, action), after in table.transitions.items():
        if action not in (StreamAction.CONNECTION_LOST, StreamAction.VIOLATION):
            actions.setdefault((before, after), []).append(action.value)
    return "\n".join(
        (
            "stateDiagram-v2",
            f"    [*] --> {table.initial.name}",
            *(f"    {before.name} --> {after.name}: {', '.join(texts)}" for (before, after), texts in actions.items()),
            f"    {StreamState.COMPLETE.name} --> [*]",
            "",
        )
    )


@machines
def test_the_documentation_contains_the_diagram_of_the_table(table: TransitionTable, repository: Path) -> None:
    page = (repository / "docs" / "explanation" / "dissociated.md").read_text(encoding="utf-8")
    # A line for each state says what it means.
    diagrams = re.findall(r"```mermaid\n(.*?)```", page, re.DOTALL)
    diagram = next(each for each in diagrams if DESCRIPTION.sub("", each) == to_mermaid(table))
    described = {StreamState[name] for name in DESCRIPTION.findall(diagram)}
    assert described == states_of(table) - {StreamState.LOST, StreamState.FAILED}


@machines
def test_every_state_can_be_reached(table: TransitionTable) -> None:
    reached = {table.initial}
    while more := {after for (before, _), after in table.transitions.items() if before in reached} - reached:
        reached |= more
    assert reached == states_of(table)


@machines
def test_every_state_but_complete_ends_with_the_connection_and_every_state_with_a_violation(
    table: TransitionTable,
) -> None:
    for state in states_of(table) - {StreamState.LOST, StreamState.FAILED}:
        state_after_loss = state if state is StreamState.COMPLETE else StreamState.LOST
        assert table.transitions[state, StreamAction.CONNECTION_LOST] is state_after_loss
        assert table.transitions[state, StreamAction.VIOLATION] is StreamState.FAILED


@machines
def test_a_lost_or_failed_stream_does_not_continue(table: TransitionTable) -> None:
    for (before, apply), after in table.transitions.items():
        if before in (StreamState.LOST, StreamState.FAILED):
            assert after in (StreamState.LOST, StreamState.FAILED), (before, apply)


def test_an_action_without_a_transition_is_an_error_and_keeps_the_state() -> None:
    machine = StateMachine(SERVER_STREAM)
    with pytest.raises(ProtocolError, match="server stream: end of stream while waiting"):
        machine.apply(StreamAction.END_OF_STREAM)
    assert machine.state is StreamState.WAITING


def test_the_diagram_is_mermaid() -> None:
    lines = to_mermaid(SERVER_STREAM).splitlines()
    assert lines[:2] == ["stateDiagram-v2", "    [*] --> WAITING"]
    assert "    WAITING --> STREAMING: want_data" in lines
    pattern = r"    \S+ --> \S+(: .+)?"
    assert all(re.fullmatch(pattern, line) for line in lines[1:])

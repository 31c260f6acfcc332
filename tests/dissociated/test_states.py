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


def to_mermaid(table: TransitionTable) -> str:
    """Return the table as a mermaid state diagram without lost and failed streams, which every state can lead to."""
    final = (StreamState.LOST, StreamState.FAILED)
    actions: dict[tuple[StreamState, StreamState], list[str]] = {}
    for (before, action), after in table.transitions.items():
        if action not in (StreamAction.CONNECTION_LOST, StreamAction.VIOLATION):
            actions.setdefault((before, after), []).append(action.value)
    return "\n".join(
        (
            "stateDiagram-v2",
            f"    [*] --> {table.initial.name}",
            *(f"    {state.name}: {text}" for state, text in table.descriptions.items() if state not in final),
            *(f"    {before.name} --> {after.name}: {', '.join(texts)}" for (before, after), texts in actions.items()),
            f"    {StreamState.COMPLETE.name} --> [*]",
            "",
        )
    )


@machines
def test_the_documentation_contains_the_diagram_of_the_table(table: TransitionTable, repository: Path) -> None:
    page = (repository / "docs" / "explanation" / "dissociated.md").read_text(encoding="utf-8")
    assert f"```mermaid\n{to_mermaid(table)}```" in page


@machines
def test_every_state_has_a_meaning_and_can_be_reached(table: TransitionTable) -> None:
    reached = {table.initial}
    while more := {after for (before, _), after in table.transitions.items() if before in reached} - reached:
        reached |= more
    assert reached == set(table.descriptions)


@machines
def test_every_state_but_complete_ends_with_the_connection_and_every_state_with_a_violation(
    table: TransitionTable,
) -> None:
    for state in set(table.descriptions) - {StreamState.LOST, StreamState.FAILED}:
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
    pattern = r"    (\S+ --> \S+(: .+)?|[A-Z]+: .+)"
    assert all(re.fullmatch(pattern, line) for line in lines[1:])

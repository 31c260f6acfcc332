"""The states of a stream («Server Sequence», «Client Sequence»): transition tables and their diagrams.

Every state change goes through `StateMachine.apply`, so a transition that is not in the tables can't happen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from bowstring.errors import ProtocolError


class State(Enum):
    """The state of a stream; each table uses some of them."""

    WAITING = "waiting"
    STREAMING = "streaming"
    ENDING = "ending"
    HOLDING = "holding"
    COMPLETE = "complete"
    LOST = "lost"
    FAILED = "failed"

    __hash__ = object.__hash__  # in C; `Enum.__hash__` is a Python function that takes most of a look-up


class Action(Enum):
    """What happens to a stream, in the protocol's terms."""

    WANT_DATA = "want_data"
    METADATA = "metadata message"
    BODY = "body"
    END_OF_STREAM = "end of stream"
    FREE_DATA = "free_data"
    ALL_PAIRED = "all messages complete"
    ALL_FREED = "all addresses freed"
    CONNECTION_LOST = "connection lost"
    VIOLATION = "protocol violation"

    __hash__ = object.__hash__  # as in `State`


@dataclass(frozen=True, slots=True)
class TransitionTable:
    """The state that each action leads to, by the state before it."""

    name: str
    initial: State
    transitions: Mapping[tuple[State, Action], State]
    meaning: Mapping[State, str]


def _with_final_states(table: dict[tuple[State, Action], State]) -> dict[tuple[State, Action], State]:
    """Add the actions of all states: a lost connection and a protocol violation."""
    states = {state for state, _ in table} | set(table.values())
    for state in sorted(states, key=lambda state: state.value):
        if state is not State.COMPLETE:
            table[state, Action.CONNECTION_LOST] = State.LOST
        table[state, Action.VIOLATION] = State.FAILED
    table[State.COMPLETE, Action.CONNECTION_LOST] = State.COMPLETE
    return table


SERVER_STREAM = TransitionTable(
    "server stream",
    State.WAITING,
    _with_final_states(
        {
            (State.WAITING, Action.WANT_DATA): State.STREAMING,
            (State.STREAMING, Action.METADATA): State.STREAMING,
            (State.STREAMING, Action.BODY): State.STREAMING,
            (State.STREAMING, Action.FREE_DATA): State.STREAMING,
            (State.STREAMING, Action.END_OF_STREAM): State.HOLDING,
            (State.HOLDING, Action.FREE_DATA): State.HOLDING,
            (State.HOLDING, Action.ALL_FREED): State.COMPLETE,
            # A connection can be reused, even while addresses of an earlier stream are leased.
            (State.HOLDING, Action.WANT_DATA): State.STREAMING,
            (State.COMPLETE, Action.WANT_DATA): State.STREAMING,
            # The addresses of empty buffers may be freed at any time.
            (State.COMPLETE, Action.FREE_DATA): State.COMPLETE,
        }
    ),
    {
        State.WAITING: "waits for want_data",
        State.STREAMING: "sends metadata and bodies",
        State.HOLDING: "keeps memory alive for the client",
        State.COMPLETE: "all addresses are freed",
        State.LOST: "the client disconnected: all leases end",
        State.FAILED: "the client violated the protocol",
    },
)

CLIENT_METADATA_STREAM = TransitionTable(
    "client metadata stream",
    State.WAITING,
    _with_final_states(
        {
            (State.WAITING, Action.WANT_DATA): State.STREAMING,
            (State.STREAMING, Action.METADATA): State.STREAMING,
            (State.STREAMING, Action.END_OF_STREAM): State.ENDING,
            (State.ENDING, Action.METADATA): State.ENDING,
            (State.ENDING, Action.ALL_PAIRED): State.COMPLETE,
        }
    ),
    {
        State.WAITING: "no request sent",
        State.STREAMING: "receives metadata messages",
        State.ENDING: "end received, earlier messages are missing",
        State.COMPLETE: "all messages received: the connection may close",
        State.LOST: "the server disconnected before the end",
        State.FAILED: "the server violated the protocol",
    },
)

CLIENT_BODY_STREAM = TransitionTable(
    "client body stream",
    State.WAITING,
    _with_final_states(
        {
            (State.WAITING, Action.WANT_DATA): State.STREAMING,
            (State.STREAMING, Action.BODY): State.STREAMING,
            (State.STREAMING, Action.FREE_DATA): State.STREAMING,
            (State.STREAMING, Action.ALL_PAIRED): State.HOLDING,
            (State.HOLDING, Action.FREE_DATA): State.HOLDING,
            (State.HOLDING, Action.ALL_FREED): State.COMPLETE,
        }
    ),
    {
        State.WAITING: "no request sent",
        State.STREAMING: "receives bodies, may free addresses",
        State.HOLDING: "all bodies received, uses the server's memory",
        State.COMPLETE: "all addresses are freed",
        State.LOST: "the server disconnected before all addresses were freed",
        State.FAILED: "the server violated the protocol",
    },
)

TRANSITION_TABLES = (SERVER_STREAM, CLIENT_METADATA_STREAM, CLIENT_BODY_STREAM)


class StateMachine:
    """The current state of one stream."""

    __slots__ = ("state", "table")

    def __init__(self, table: TransitionTable) -> None:
        self.table = table
        self.state = table.initial

    def check(self, action: Action) -> State:
        """Return the state that `action` leads to. Raises `ProtocolError` if the table does not allow it."""
        state = self.table.transitions.get((self.state, action))
        if state is None:
            raise ProtocolError(f"{self.table.name}: {action.value} while {self.state.value}")
        return state

    def apply(self, action: Action) -> State:
        """Change the state and return it. Raises `ProtocolError` if the table does not allow `action`."""
        state = self.table.transitions.get((self.state, action))
        self.state = self.check(action) if state is None else state
        return self.state

    def allows(self, action: Action) -> bool:
        """Whether the table allows `action` in the current state."""
        return (self.state, action) in self.table.transitions

    def fail(self) -> None:
        """Record a protocol violation of the peer."""
        if self.allows(Action.VIOLATION):
            self.apply(Action.VIOLATION)

    def __repr__(self) -> str:
        return f"<{self.table.name}: {self.state.value}>"


def to_mermaid(table: TransitionTable) -> str:
    """Return the table as a mermaid state diagram without lost and failed streams, which every state can lead to."""
    final = (State.LOST, State.FAILED)
    actions: dict[tuple[State, State], list[str]] = {}
    for (before, action), after in table.transitions.items():
        if action not in (Action.CONNECTION_LOST, Action.VIOLATION):
            actions.setdefault((before, after), []).append(action.value)
    return "\n".join(
        (
            "stateDiagram-v2",
            f"    [*] --> {table.initial.name}",
            *(
                f"    {state.name}: {state.value} — {text}"
                for state, text in table.meaning.items()
                if state not in final
            ),
            *(f"    {before.name} --> {after.name}: {', '.join(texts)}" for (before, after), texts in actions.items()),
            f"    {State.COMPLETE.name} --> [*]",
            "",
        )
    )

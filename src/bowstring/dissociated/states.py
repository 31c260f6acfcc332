"""The states of a stream on either side («Server Sequence», «Client Sequence»): transition tables and diagrams.

Every move that a connection makes goes through `Position.move`, so what the tables don't allow can't happen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from bowstring.errors import ProtocolError


class State(Enum):
    """Where a stream stands; each machine uses some of them."""

    WAITING = "waiting"
    STREAMING = "streaming"
    ENDING = "ending"
    HOLDING = "holding"
    COMPLETE = "complete"
    LOST = "lost"
    FAILED = "failed"

    __hash__ = object.__hash__  # in C; `Enum.__hash__` is a Python function, and takes most of a look-up


class Move(Enum):
    """What happens to a stream, in the words of the protocol."""

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
class Machine:
    """A transition table: where each move leads from each state that allows it."""

    name: str
    initial: State
    transitions: Mapping[tuple[State, Move], State]
    meaning: Mapping[State, str]


def _with_endings(table: dict[tuple[State, Move], State]) -> dict[tuple[State, Move], State]:
    """Add what can happen anywhere: a lost connection, and a peer that breaks the protocol."""
    states = {state for state, _ in table} | set(table.values())
    for state in sorted(states, key=lambda item: item.value):
        if state is not State.COMPLETE:
            table[state, Move.CONNECTION_LOST] = State.LOST
        table[state, Move.VIOLATION] = State.FAILED
    table[State.COMPLETE, Move.CONNECTION_LOST] = State.COMPLETE
    return table


SERVER_STREAM = Machine(
    "server stream",
    State.WAITING,
    _with_endings(
        {
            (State.WAITING, Move.WANT_DATA): State.STREAMING,
            (State.STREAMING, Move.METADATA): State.STREAMING,
            (State.STREAMING, Move.BODY): State.STREAMING,
            (State.STREAMING, Move.FREE_DATA): State.STREAMING,
            (State.STREAMING, Move.END_OF_STREAM): State.HOLDING,
            (State.HOLDING, Move.FREE_DATA): State.HOLDING,
            (State.HOLDING, Move.ALL_FREED): State.COMPLETE,
            # The same connection may be asked for more, even while earlier addresses are out.
            (State.HOLDING, Move.WANT_DATA): State.STREAMING,
            (State.COMPLETE, Move.WANT_DATA): State.STREAMING,
            # The addresses of empty buffers may be freed at any time.
            (State.COMPLETE, Move.FREE_DATA): State.COMPLETE,
        }
    ),
    {
        State.WAITING: "waits for want_data",
        State.STREAMING: "sends metadata and bodies",
        State.HOLDING: "keeps memory alive for the client",
        State.COMPLETE: "nothing is out any more",
        State.LOST: "the client is gone: all memory may go",
        State.FAILED: "the client broke the protocol",
    },
)

CLIENT_METADATA_STREAM = Machine(
    "client metadata stream",
    State.WAITING,
    _with_endings(
        {
            (State.WAITING, Move.WANT_DATA): State.STREAMING,
            (State.STREAMING, Move.METADATA): State.STREAMING,
            (State.STREAMING, Move.END_OF_STREAM): State.ENDING,
            (State.ENDING, Move.METADATA): State.ENDING,
            (State.ENDING, Move.ALL_PAIRED): State.COMPLETE,
        }
    ),
    {
        State.WAITING: "nothing asked for yet",
        State.STREAMING: "takes metadata messages",
        State.ENDING: "the end is known, messages before it are missing",
        State.COMPLETE: "no gap is left: the connection may close",
        State.LOST: "the server is gone before the end",
        State.FAILED: "the server broke the protocol",
    },
)

CLIENT_BODY_STREAM = Machine(
    "client body stream",
    State.WAITING,
    _with_endings(
        {
            (State.WAITING, Move.WANT_DATA): State.STREAMING,
            (State.STREAMING, Move.BODY): State.STREAMING,
            (State.STREAMING, Move.FREE_DATA): State.STREAMING,
            (State.STREAMING, Move.ALL_PAIRED): State.HOLDING,
            (State.HOLDING, Move.FREE_DATA): State.HOLDING,
            (State.HOLDING, Move.ALL_FREED): State.COMPLETE,
        }
    ),
    {
        State.WAITING: "nothing asked for yet",
        State.STREAMING: "takes bodies, may free addresses",
        State.HOLDING: "has everything, uses the server's memory",
        State.COMPLETE: "uses nothing of the server any more",
        State.LOST: "the server is gone before the last body was let go",
        State.FAILED: "the server broke the protocol",
    },
)

MACHINES = (SERVER_STREAM, CLIENT_METADATA_STREAM, CLIENT_BODY_STREAM)


class Position:
    """Where one stream stands in its machine."""

    __slots__ = ("machine", "state")

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.state = machine.initial

    def check(self, move: Move) -> State:
        """The state to which `move` would lead. Raises `ProtocolError` where the table does not allow it."""
        state = self.machine.transitions.get((self.state, move))
        if state is None:
            raise ProtocolError(f"{self.machine.name}: {move.value} while {self.state.value}")
        return state

    def move(self, move: Move) -> State:
        """The state after `move`. Raises `ProtocolError` where the table does not allow it; the state stays then."""
        self.state = self.check(move)
        return self.state

    def allows(self, move: Move) -> bool:
        """Whether the table has this move from here."""
        return (self.state, move) in self.machine.transitions

    def fail(self) -> None:
        """The peer broke the protocol: the end, where it was not reached before."""
        if self.allows(Move.VIOLATION):
            self.move(Move.VIOLATION)

    def __repr__(self) -> str:
        return f"<{self.machine.name}: {self.state.value}>"


def draw(machine: Machine) -> str:
    """The machine as a mermaid state diagram; what can happen in every state is drawn once, as a note."""
    everywhere = (Move.CONNECTION_LOST, Move.VIOLATION)
    lines = ["stateDiagram-v2", f"    [*] --> {machine.initial.name}"]
    lines += [f"    {state.name}: {state.value} — {meaning}" for state, meaning in machine.meaning.items()]
    lines += [
        f"    {before.name} --> {after.name}: {move.value}"
        for (before, move), after in machine.transitions.items()
        if move not in everywhere
    ]
    busy = [state for state in machine.meaning if (state, Move.CONNECTION_LOST) in machine.transitions]
    lines += [
        f"    {state.name} --> LOST: {Move.CONNECTION_LOST.value}" for state in busy if state is not State.COMPLETE
    ]
    lines += [f"    note left of FAILED: from every state, by a {Move.VIOLATION.value}"]
    lines += [f"    {state.name} --> [*]" for state in (State.COMPLETE, State.LOST, State.FAILED)]
    return "\n".join(lines) + "\n"

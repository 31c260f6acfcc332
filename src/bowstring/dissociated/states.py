"""The states of a stream («Server Sequence», «Client Sequence»): transition tables.

docs/explanation/dissociated.md has their diagrams, with the meaning of each state.

Every state change goes through `StateMachine.apply`, so a transition that is not in the tables can't happen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from bowstring.errors import ProtocolError


class StreamState(Enum):
    """The state of a stream; each table uses some of them."""

    WAITING = "waiting"
    STREAMING = "streaming"
    ENDING = "ending"
    LEASED = "leased"
    COMPLETE = "complete"
    LOST = "lost"
    FAILED = "failed"

    __hash__ = object.__hash__  # in C; `Enum.__hash__` is a Python function that takes most of a look-up


class StreamAction(Enum):
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

    __hash__ = object.__hash__  # as in `StreamState`


@dataclass(frozen=True, slots=True)
class TransitionTable:
    """The state that each action leads to, by the state before it."""

    name: str
    initial: StreamState
    transitions: Mapping[tuple[StreamState, StreamAction], StreamState]


def _add_failure_transitions(
    table: dict[tuple[StreamState, StreamAction], StreamState],
) -> dict[tuple[StreamState, StreamAction], StreamState]:
    """Add the actions of all states: a lost connection and a protocol violation."""
    states = {state for state, _ in table} | set(table.values())
    for state in sorted(states, key=lambda state: state.value):
        if state is not StreamState.COMPLETE:
            table[state, StreamAction.CONNECTION_LOST] = StreamState.LOST
        table[state, StreamAction.VIOLATION] = StreamState.FAILED
    # Nothing is missing then: both ends close a connection that they do not use any more, without notice.
    table[StreamState.COMPLETE, StreamAction.CONNECTION_LOST] = StreamState.COMPLETE
    return table


SERVER_STREAM = TransitionTable(
    "server stream",
    StreamState.WAITING,
    _add_failure_transitions(
        {
            (StreamState.WAITING, StreamAction.WANT_DATA): StreamState.STREAMING,
            (StreamState.STREAMING, StreamAction.METADATA): StreamState.STREAMING,
            (StreamState.STREAMING, StreamAction.BODY): StreamState.STREAMING,
            (StreamState.STREAMING, StreamAction.FREE_DATA): StreamState.STREAMING,
            (StreamState.STREAMING, StreamAction.END_OF_STREAM): StreamState.LEASED,
            (StreamState.LEASED, StreamAction.FREE_DATA): StreamState.LEASED,
            (StreamState.LEASED, StreamAction.ALL_FREED): StreamState.COMPLETE,
            # A connection can be reused, even while addresses of an earlier stream are leased.
            (StreamState.LEASED, StreamAction.WANT_DATA): StreamState.STREAMING,
            (StreamState.COMPLETE, StreamAction.WANT_DATA): StreamState.STREAMING,
            # The addresses of empty buffers may be freed at any time.
            (StreamState.COMPLETE, StreamAction.FREE_DATA): StreamState.COMPLETE,
        }
    ),
)

CLIENT_METADATA_STREAM = TransitionTable(
    "client metadata stream",
    StreamState.WAITING,
    _add_failure_transitions(
        {
            (StreamState.WAITING, StreamAction.WANT_DATA): StreamState.STREAMING,
            (StreamState.STREAMING, StreamAction.METADATA): StreamState.STREAMING,
            (StreamState.STREAMING, StreamAction.END_OF_STREAM): StreamState.ENDING,
            # On a transport that reorders messages, the end may arrive before earlier ones.
            (StreamState.ENDING, StreamAction.METADATA): StreamState.ENDING,
            (StreamState.ENDING, StreamAction.ALL_PAIRED): StreamState.COMPLETE,
        }
    ),
)

CLIENT_BODY_STREAM = TransitionTable(
    "client body stream",
    StreamState.WAITING,
    _add_failure_transitions(
        {
            (StreamState.WAITING, StreamAction.WANT_DATA): StreamState.STREAMING,
            (StreamState.STREAMING, StreamAction.BODY): StreamState.STREAMING,
            (StreamState.STREAMING, StreamAction.FREE_DATA): StreamState.STREAMING,
            # The end of the stream is a metadata message, so only the pairing shows when the last body has arrived.
            (StreamState.STREAMING, StreamAction.ALL_PAIRED): StreamState.LEASED,
            (StreamState.LEASED, StreamAction.FREE_DATA): StreamState.LEASED,
            (StreamState.LEASED, StreamAction.ALL_FREED): StreamState.COMPLETE,
        }
    ),
)


class StateMachine:
    """The current state of one stream."""

    __slots__ = ("state", "table")

    def __init__(self, table: TransitionTable) -> None:
        self.table = table
        self.state = table.initial

    def next_state(self, action: StreamAction) -> StreamState:
        """Return the state that `action` leads to. Raises `ProtocolError` if the table does not allow it."""
        state = self.table.transitions.get((self.state, action))
        if state is None:
            raise ProtocolError(f"{self.table.name}: {action.value} while {self.state.value}")
        return state

    def apply(self, action: StreamAction) -> StreamState:
        """Change the state and return it. Raises `ProtocolError` if the table does not allow `action`."""
        state = self.table.transitions.get((self.state, action))
        # The look-up is repeated only for the error: an `apply` per message makes calls count.
        self.state = self.next_state(action) if state is None else state
        return self.state

    def allows(self, action: StreamAction) -> bool:
        """Whether the table allows `action` in the current state."""
        return (self.state, action) in self.table.transitions

    def record_violation(self) -> None:
        """Record a protocol violation of the peer."""
        if self.allows(StreamAction.VIOLATION):
            self.apply(StreamAction.VIOLATION)

    def __repr__(self) -> str:
        return f"<{self.table.name}: {self.state.value}>"

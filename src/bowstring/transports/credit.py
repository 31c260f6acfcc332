"""Credit: the number of messages and bytes that a channel may receive."""

from __future__ import annotations

from bowstring.errors import LimitError
from bowstring.transports.base import TransportOptions


class Credit:
    """The messages and bytes that may still be received (`Channel.grant_credit`), and the limits of each message."""

    __slots__ = ("_messages", "_name", "_nbytes", "_options")

    def __init__(self, name: str, options: TransportOptions) -> None:
        self._name = name
        self._options = options
        self._messages = options.credit_messages
        self._nbytes = options.credit_bytes

    @property
    def is_available(self) -> bool:
        """Whether another message may be received."""
        return self._messages > 0 and self._nbytes > 0

    def grant_credit(self, num_messages: int, nbytes: int) -> None:
        """As `Channel.grant_credit`."""
        self._messages += num_messages
        self._nbytes += nbytes

    def exceeds_eager_bytes(self, tag: int | None, length_bytes: int) -> bool:
        """Whether a message has to be offered before it is received. Raises `LimitError` if it is too long."""
        options = self._options
        limit = options.max_plain_bytes if tag is None else options.max_tagged_bytes
        if length_bytes > limit:
            raise LimitError(f"{self._name}: a message of {length_bytes} bytes; at most {limit} are received")
        return length_bytes > options.eager_bytes

    def consume(self, nbytes: int) -> None:
        """Use the credit of one message and of `nbytes` bytes, which are 0 for an offer."""
        self._messages -= 1
        self._nbytes -= nbytes

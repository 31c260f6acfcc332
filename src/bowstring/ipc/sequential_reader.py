"""Readers of a sequence of messages from a source («IPC Streaming Format»): record batches, or tensors."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from threading import RLock
from typing import Generic, TypeVar

from bowstring.errors import ClosedError
from bowstring.io.memory_source import MemorySource
from bowstring.io.sources import AnySource
from bowstring.ipc.limits import ReadLimits
from bowstring.ipc.message import (
    EndOfStream,
    Header,
    Message,
    MessageLocation,
    MessageReader,
    check_body_limit,
)
from bowstring.memory.buffer import Buffer
from bowstring.memory.closable import Closable

Element = TypeVar("Element")


class SequentialReader(Closable, Generic[Header, Element]):
    """Reads one item after the other, each from one or more messages: an iterator that owns its source.

    An error closes the reader. Several threads may read; each item is returned once.
    """

    def __init__(
        self,
        source: AnySource,
        limits: ReadLimits,
        read_header: Callable[[bytes, MessageLocation], Header],
        expected_format: str,
    ) -> None:
        self._source = source
        self._limits = limits
        self._messages = MessageReader(
            source.name,
            limits,
            read_header,
            source.position,
            expected_format,
            is_seekable=isinstance(source, MemorySource),
        )
        self._lock = RLock()
        self._is_at_end = False
        self._is_closed = False

    @abstractmethod
    def _read_next(self) -> Element | None:
        """Read the next item; None at the end."""

    def _read_message(self) -> Message[Header] | EndOfStream:
        """Read the next message without its body."""
        source = self._source
        if not isinstance(source, MemorySource):
            return self._messages.read(lambda _offset, size_bytes: source.read(size_bytes))
        message = self._messages.read(source.read_at, source.size)
        source.position = message.stop if isinstance(message, EndOfStream) else message.body_offset
        return message

    def _read_body(self, message: Message[Header]) -> Buffer:
        """Read the body of a message. Raises `LimitError` if it exceeds the limit, `TruncatedError` if the source ends
        before.
        """
        check_body_limit(self._source.name, message.offset, message.body_bytes, self._limits)
        body = self._source.read_buffer(message.body_bytes)
        self._messages.check_body_is_complete(message, body.size)
        return body

    def __iter__(self) -> Iterator[Element]:
        return self

    def __next__(self) -> Element:
        with self._lock:
            if self._is_closed:
                raise ClosedError(f"{self._source.name}: the reader is closed")
            try:
                item = None if self._is_at_end else self._read_next()
            except BaseException:  # an interrupt, too, may leave the source in the middle of a message
                self.close()
                raise
            if item is None:
                self._is_at_end = True
                raise StopIteration
            return item

    def close(self) -> None:
        """Close the source. Items that were read stay valid."""
        if not self._is_closed:
            self._is_closed = True
            self._source.close()

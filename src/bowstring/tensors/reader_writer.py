"""Read and write tensors from and to paths, memory, file objects and sockets.

A standalone message and its body start at multiples of 64 bytes. A stream of tensors is a sequence of such messages,
and ends with the end-of-stream marker or at the end of the source.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from threading import RLock
from typing import Any

from bowstring.errors import ClosedError, LimitError, TruncatedError, UsageError
from bowstring.io.sinks import open_sink
from bowstring.io.sources import open_sequential
from bowstring.ipc.limits import DEFAULT_LIMITS, ReadLimits
from bowstring.ipc.message import (
    CONTINUATION,
    END_OF_STREAM,
    LEGACY_PREFIX_BYTES,
    PREFIX_BYTES,
    detect_foreign_format,
    format_mismatch,
    frame_message,
    is_file_start,
    parse_prefix,
)
from bowstring.memory.closable import Closable, Transactional, warn_unclosed
from bowstring.tensors.messages import AnyTensor, encode, read_body, read_header

TENSOR_ALIGNMENT = 64
"""«When writing a standalone encapsulated tensor message»: the alignment of messages and bodies."""


class TensorReader(Closable):
    """Reads a stream of tensors: iterate over it. Made by `open_tensors`.

    Raises `TruncatedError` if the source ends within a message, other `InvalidDataError`s for malformed ones; after
    an error it is closed. Of several threads that read, each gets whole tensors that no other one gets.
    """

    def __init__(self, source: Any, limits: ReadLimits = DEFAULT_LIMITS) -> None:
        self._source = open_sequential(source)
        self._limits = limits
        self._lock = RLock()
        self._count = 0
        self._ended = False
        self._closed = False

    def read_next_tensor(self) -> AnyTensor:
        """Return the next tensor. Raises `StopIteration` at the end."""
        with self._lock:
            if self._closed:
                raise ClosedError(f"{self._source.name}: the reader is closed")
            try:
                tensor = None if self._ended else self._read_tensor()
            except BaseException:  # an interrupt, too, may leave the source in the middle of a message
                self.close()
                raise
            if tensor is None:
                self._ended = True
                raise StopIteration
            return tensor

    def _read_exactly(self, size_bytes: int, what: str) -> bytes:
        raw = self._source.read(size_bytes)
        if len(raw) < size_bytes:
            raise self._truncated(what, size_bytes, len(raw))
        return raw

    def _truncated(self, what: str, expected: int, found: int) -> TruncatedError:
        return TruncatedError(
            f"{self._source.name}: tensor {self._count}: expected {expected} bytes of {what} at byte "
            f"{self._source.position - found}, found {found}"
        )

    def _read_prefix(self) -> bytes | None:
        """Read the 8-byte prefix of a message, 4 bytes in the legacy format, or None at the end. Skips padding."""
        prefix = self._source.read(LEGACY_PREFIX_BYTES)
        while prefix == bytes(4) and (self._source.position - len(prefix)) % TENSOR_ALIGNMENT:
            prefix = self._source.read(LEGACY_PREFIX_BYTES)
        if not prefix or prefix == bytes(4):
            return None
        if len(prefix) < LEGACY_PREFIX_BYTES:
            raise self._truncated("a message's length", LEGACY_PREFIX_BYTES, len(prefix))
        if prefix == CONTINUATION:
            prefix += self._read_exactly(PREFIX_BYTES - len(prefix), "a message's length")
        elif is_file_start(prefix + b"W1") or detect_foreign_format(prefix):
            found = detect_foreign_format(prefix) or "an Arrow file"
            raise format_mismatch(self._source.name, "a tensor message", found)
        return prefix

    def _read_tensor(self) -> AnyTensor | None:
        source, limits = self._source, self._limits
        prefix = self._read_prefix()
        if prefix is None:
            return None
        context = f"{source.name}: tensor {self._count} at byte {source.position - len(prefix)}"
        length_bytes, _ = parse_prefix(prefix, context, limits.max_metadata_bytes)
        if length_bytes == 0:
            return None
        header = read_header(self._read_exactly(length_bytes, "metadata"), context, limits)
        if header.body_bytes > limits.max_body_bytes:
            raise LimitError(
                f"{context}: a body of {header.body_bytes} bytes, more than the limit of {limits.max_body_bytes} "
                "(max_body_bytes)"
            )
        body = source.read_buffer(header.body_bytes)
        if body.size < header.body_bytes:
            raise self._truncated("a body", header.body_bytes, body.size)
        tensor = read_body(header, body, context)
        self._count += 1
        return tensor

    def close(self) -> None:
        """Close the source. Tensors that were read stay valid."""
        if not self._closed:
            self._closed = True
            self._source.close()

    def __iter__(self) -> Iterator[AnyTensor]:
        return self

    def __next__(self) -> AnyTensor:
        return self.read_next_tensor()


class TensorWriter(Transactional):
    """Writes a stream of tensors; use it in a `with` block. Made by `new_tensors`.

    The stream ends with the end marker if the block ends without an error.
    """

    def __init__(self, sink: Any, alignment: int = TENSOR_ALIGNMENT) -> None:
        if alignment not in (8, 16, 32, 64):
            raise UsageError(f"alignment is 8, 16, 32 or 64 bytes, not {alignment!r}")
        self._sink = open_sink(sink)
        self._alignment = alignment
        self._lock = RLock()
        self._count = 0
        self._closed = False

    def write(self, tensor: AnyTensor) -> int:
        """Write a dense or sparse tensor. Return the size in bytes of its message, including body and padding.

        Raises `UnsupportedTypeError` for an element type that tensor messages don't support.
        """
        message = encode(tensor, self._alignment)
        with self._lock:
            if self._closed:
                raise ClosedError("the writer is closed")
            head = frame_message(message.metadata, self._sink.position, self._alignment)
            size_bytes = len(head) + message.body_bytes
            self._sink.write([head, *message.buffers], size_bytes)
            self._count += 1
            return size_bytes

    def close(self) -> None:
        """Write the end-of-stream marker and finish."""
        with self._lock:
            if not self._closed:
                self._sink.write([END_OF_STREAM], len(END_OF_STREAM))
                self.finish()

    def finish(self) -> None:
        """Finish without an end-of-stream marker, so that more messages can follow."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._sink.finish()

    def abandon(self) -> None:
        """Discard the stream. A path is not created."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._sink.abandon()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            self.abandon()
            warn_unclosed(self, f"{self._sink.name}: unclosed TensorWriter: {self._count} tensors were not written")


def open_tensors(source: Any, limits: ReadLimits = DEFAULT_LIMITS) -> TensorReader:
    """Open a stream of dense and sparse tensors for iteration.

    `source` is a path (memory-mapped, not copied), bytes or another object with the buffer protocol (not copied), or a
    binary file object, a file descriptor or a socket (each tensor is read into its own memory).
    """
    return TensorReader(source, limits)


def new_tensors(sink: Any, alignment: int = TENSOR_ALIGNMENT) -> TensorWriter:
    """Begin a stream of tensors; use it in a `with` block and `write` to it. `sink` and `alignment` as in
    `write_tensor`.
    """
    return TensorWriter(sink, alignment)


def read_tensor(source: Any, limits: ReadLimits = DEFAULT_LIMITS) -> AnyTensor:
    """Read the next dense or sparse tensor, without copying if the source is memory or a path.

    `source` as in `open_tensors`; a file object, descriptor or socket stays open, positioned after the tensor. Raises
    `TruncatedError` at the end of the source.
    """
    reader = TensorReader(source, limits)
    try:
        tensor = reader.read_next_tensor()
        if isinstance(source, BytesIO):  # its bytes are shared, which doesn't move its position
            source.seek(reader._source.position)
        return tensor
    except StopIteration:
        raise TruncatedError(f"{reader._source.name}: expected a tensor, found the end of the source") from None
    finally:
        reader.close()


def write_tensor(tensor: AnyTensor, sink: Any, alignment: int = TENSOR_ALIGNMENT) -> int:
    """Write one tensor as a standalone message. Return its size in bytes, including padding.

    `sink` is a path (written atomically), a binary file object, a descriptor or a socket. The message and its buffers
    start at multiples of `alignment` bytes from the sink's current position. Copies only dense elements that are not
    contiguous.
    """
    writer = TensorWriter(sink, alignment)
    try:
        size_bytes = writer.write(tensor)
        writer.finish()
    except BaseException:
        writer.abandon()
        raise
    return size_bytes


def get_tensor_size(tensor: AnyTensor, alignment: int = TENSOR_ALIGNMENT) -> int:
    """Return the number of bytes that `write_tensor` would write."""
    message = encode(tensor, alignment)
    return len(frame_message(message.metadata, 0, alignment)) + message.body_bytes

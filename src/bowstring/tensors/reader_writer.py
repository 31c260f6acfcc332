"""Read and write tensors from and to paths, memory, file objects and sockets.

A standalone message and its body start at multiples of 64 bytes. A stream of tensors is a sequence of such messages,
and ends with the end-of-stream marker or at the end of the source.
"""

from __future__ import annotations

from functools import partial
from io import BytesIO
from threading import RLock
from typing import Any

from bowstring.errors import ClosedError, InvalidArgumentError, TruncatedError, format_count
from bowstring.io.sinks import open_sink
from bowstring.io.sources import open_sequential
from bowstring.ipc.limits import DEFAULT_LIMITS, ReadLimits
from bowstring.ipc.message import END_OF_STREAM, LEGACY_PREFIX_BYTES, EndOfStream, frame_message
from bowstring.ipc.sequential_reader import SequentialReader
from bowstring.memory.closable import Transactional, call_on_error, warn_unclosed
from bowstring.tensors.messages import AnyTensor, TensorHeader, decode_tensor, encode_tensor, read_tensor_header

TENSOR_ALIGNMENT = 64
"""«When writing a standalone encapsulated tensor message»: the alignment of messages and bodies."""


class TensorReader(SequentialReader[TensorHeader, AnyTensor]):
    """Reads a stream of tensors: iterate over it. Made by `open_tensor_stream`.

    Raises `TruncatedError` if the source ends within a message, other `InvalidDataError`s for malformed ones; after
    an error it is closed. Several threads may read; each tensor is returned once.

    >>> import io
    >>> import numpy as np
    >>> sink = io.BytesIO()
    >>> with bs.tensors.new_tensor_stream(sink) as writer:
    ...     _ = writer.write(bs.tensors.Tensor.from_numpy(np.arange(2)))
    >>> with bs.tensors.TensorReader(sink.getvalue()) as reader:
    ...     next(iter(reader)).to_numpy().tolist()
    [0, 1]
    """

    def __init__(self, source: Any, limits: ReadLimits = DEFAULT_LIMITS) -> None:
        super().__init__(
            open_sequential(source),
            limits,
            partial(read_tensor_header, limits=limits),
            expected_format="a tensor message",
        )
        self._count = 0

    def _read_next(self) -> AnyTensor | None:
        while isinstance(message := self._read_message(), EndOfStream):
            is_padding = message.size_bytes == LEGACY_PREFIX_BYTES and message.offset % TENSOR_ALIGNMENT
            if not is_padding:
                return None
        location = f"{self._source.name}: tensor {self._count} at byte {message.offset}"
        tensor = decode_tensor(message.header, self._read_body(message), location)
        self._count += 1
        return tensor


class TensorWriter(Transactional):
    """Writes a stream of tensors; use it in a `with` block. Made by `new_tensor_stream`.

    The stream ends with the end marker if the block ends without an error.

    >>> import io
    >>> import numpy as np
    >>> sink = io.BytesIO()
    >>> with bs.tensors.TensorWriter(sink) as writer:
    ...     writer.write(bs.tensors.Tensor.from_numpy(np.zeros(8))) % 64
    0
    """

    def __init__(self, sink: Any, alignment: int = TENSOR_ALIGNMENT) -> None:
        if alignment not in (8, 16, 32, 64):
            raise InvalidArgumentError(f"alignment is 8, 16, 32 or 64 bytes, not {alignment!r}")
        self._sink = open_sink(sink, buffer_bytes=0)
        self._alignment = alignment
        self._lock = RLock()
        self._count = 0
        self._is_closed = False

    def write(self, tensor: AnyTensor) -> int:
        """Write a dense or sparse tensor. Return the size in bytes of its message, including body and padding.

        Raises `UnsupportedTypeError` for an element type that tensor messages don't support.
        """
        message = encode_tensor(tensor, self._alignment)
        with self._lock:
            if self._is_closed:
                raise ClosedError("the writer is closed")
            head = frame_message(message.metadata, self._sink.position, self._alignment)
            size_bytes = len(head) + message.body_bytes
            with call_on_error(self.abandon):  # no other message can follow an unknown part of this one
                self._sink.write([head, *message.buffers], size_bytes)
            self._count += 1
            return size_bytes

    def close(self) -> None:
        """Write the end-of-stream marker and finish."""
        with self._lock:
            if not self._is_closed:
                with call_on_error(self.abandon):
                    self._sink.write([END_OF_STREAM], len(END_OF_STREAM))
                self.close_without_marker()

    def close_without_marker(self) -> None:
        """Close without an end-of-stream marker, so that more messages can follow."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                with call_on_error(self._sink.abandon):
                    self._sink.finish()

    def abandon(self) -> None:
        """Discard the stream. A path is not created."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._sink.abandon()

    def __del__(self) -> None:
        if not getattr(self, "_is_closed", True):
            self.abandon()
            warn_unclosed(
                self, f"{self._sink.name}: unclosed TensorWriter: {format_count(self._count, 'tensor')} not written"
            )


def open_tensor_stream(source: Any, limits: ReadLimits = DEFAULT_LIMITS) -> TensorReader:
    """Open a stream of dense and sparse tensors for iteration.

    `source` is a path (memory-mapped, not copied), bytes or another object with the buffer protocol (not copied), or a
    binary file object, a file descriptor or a socket (each tensor is read into its own memory).

    >>> import numpy as np
    >>> with bs.tensors.new_tensor_stream("steps.tensors") as writer:
    ...     _ = writer.write(bs.tensors.Tensor.from_numpy(np.arange(2)))
    >>> with bs.tensors.open_tensor_stream("steps.tensors") as reader:
    ...     [tensor.shape for tensor in reader]
    [(2,)]
    """
    return TensorReader(source, limits)


def new_tensor_stream(sink: Any, alignment: int = TENSOR_ALIGNMENT) -> TensorWriter:
    """Begin a stream of tensors; use it in a `with` block and `write` to it. `sink` and `alignment` as in
    `write_tensor`.

    >>> import io
    >>> import numpy as np
    >>> sink = io.BytesIO()
    >>> with bs.tensors.new_tensor_stream(sink) as writer:
    ...     for step in range(3):
    ...         _ = writer.write(bs.tensors.Tensor.from_numpy(np.full(2, step)))
    >>> [tensor.to_numpy().tolist() for tensor in bs.tensors.open_tensor_stream(sink.getvalue())]
    [[0, 0], [1, 1], [2, 2]]
    """
    return TensorWriter(sink, alignment)


def read_tensor(source: Any, limits: ReadLimits = DEFAULT_LIMITS) -> AnyTensor:
    """Read the next dense or sparse tensor, without copying if the source is memory or a path.

    `source` as in `open_tensor_stream`; a file object, descriptor or socket stays open, positioned after the
    tensor. Raises `TruncatedError` at the end of the source.

    >>> import io
    >>> import numpy as np
    >>> sink = io.BytesIO()
    >>> _ = bs.tensors.write_tensor(bs.tensors.Tensor.from_numpy(np.arange(3), dim_names=["x"]), sink)
    >>> tensor = bs.tensors.read_tensor(sink.getvalue())
    >>> tensor.shape, tensor.dim_names
    ((3,), ('x',))
    """
    reader = TensorReader(source, limits)
    try:
        tensor = next(reader)
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

    >>> import io
    >>> import numpy as np
    >>> sink = io.BytesIO()
    >>> _ = bs.tensors.write_tensor(bs.tensors.Tensor.from_numpy(np.eye(2)), sink)
    >>> bs.tensors.read_tensor(sink.getvalue()).to_numpy().tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    writer = TensorWriter(sink, alignment)
    with call_on_error(writer.abandon):
        size_bytes = writer.write(tensor)
        writer.close_without_marker()
    return size_bytes


def get_tensor_size(tensor: AnyTensor, alignment: int = TENSOR_ALIGNMENT) -> int:
    """Return the number of bytes that `write_tensor` would write.

    >>> import numpy as np
    >>> bs.tensors.get_tensor_size(bs.tensors.Tensor.from_numpy(np.zeros(100))) > 800
    True
    """
    message = encode_tensor(tensor, alignment)
    return len(frame_message(message.metadata, 0, alignment)) + message.body_bytes

"""Copy bytes from sources to sinks; between files the kernel copies them."""

from __future__ import annotations

import os

from bowstring.errors import TruncatedError
from bowstring.io.io_errors import translate_io_error
from bowstring.io.memory_source import MemorySource
from bowstring.io.sinks import PathSink, Sink
from bowstring.memory.buffer import Buffer
from bowstring.memory.descriptors import pwrite_all

# What does not go through the kernel is copied in pieces, so that memory is bounded.
_BUFFER_BYTES = 1 << 20
_MIN_KERNEL_BYTES = 1 << 16
"""Fewer bytes are copied through Python, together with the bytes around them."""


def copy_memory(source: MemorySource | None, memory_range: Buffer, sink: Sink) -> None:
    """Copy a range of memory to a sink; `source` is the source that contains it, if that may be a file.

    Raises `TruncatedError` if the file has become shorter.
    """
    size_bytes = memory_range.size
    if source is None or source.descriptor < 0:
        if size_bytes:
            sink.write([memory_range.bytes.data], size_bytes)
    elif isinstance(sink, PathSink) and size_bytes >= _MIN_KERNEL_BYTES:
        copy_file_range(source, memory_range.offset, sink, size_bytes)
    elif size_bytes:
        sink.write([source.read_at(memory_range.offset, size_bytes)], size_bytes)


def copy_file_range(source: MemorySource, offset: int, sink: PathSink, size_bytes: int) -> None:
    """Copy bytes of a mapped file to the file of a sink; the file system may share them between both (a reflink).

    Raises `TruncatedError` if the source has become shorter, and `ResourceError`.
    """
    target, target_offset = sink.reserve_range(size_bytes)
    stop = offset + size_bytes
    try:
        while offset < stop:
            try:
                count = os.copy_file_range(source.descriptor, target, stop - offset, offset, target_offset)
            except OSError:  # another file system, or one without this call
                chunk = os.pread(source.descriptor, min(_BUFFER_BYTES, stop - offset), offset)
                pwrite_all(target, chunk, target_offset)
                count = len(chunk)
            if not count:
                raise TruncatedError(f"{source.name}: the file was truncated while it was copied")
            offset, target_offset = offset + count, target_offset + count
    except OSError as error:
        raise translate_io_error(error, f"{source.name} to {sink.name}", "copied") from None

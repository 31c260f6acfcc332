"""Resource limits for reading untrusted data."""

from __future__ import annotations

from dataclasses import dataclass

from bowstring.display.objects import repr_options
from bowstring.errors import InvalidArgumentError

# Types are read, compared and printed by recursive functions, a few frames per level, under Python's limit of 1,000.
_MAX_NESTING_LIMIT = 64


@dataclass(frozen=True, slots=True, weakref_slot=True)
class ReadLimits:
    """Resource limits for reading; the defaults fit all ordinary data.

    - `max_metadata_bytes`: the flatbuffer of one message, or a footer
    - `max_body_bytes`: the body of one message that is read into new memory
    - `max_decompressed_bytes`: the decompressed size of one body
    - `max_decompression_ratio`: the ratio of the decompressed size to the size of a body, beyond 256 MiB
    - `max_nesting`: the nesting depth of types (at most 64, as in Arrow C++)
    - `max_tables`: the number of flatbuffer tables in one message

    >>> import io
    >>> sink = io.BytesIO()
    >>> with bs.new_stream(sink, {"n": "int64"}) as writer:
    ...     writer.write(bs.record_batch({"n": range(100)}))
    >>> limits = bs.ipc.ReadLimits(max_metadata_bytes=100)
    >>> try:
    ...     bs.open_stream(sink.getvalue(), limits=limits)
    ... except bs.errors.LimitError:
    ...     print("the schema is larger than 100 bytes")
    the schema is larger than 100 bytes
    """

    max_metadata_bytes: int = 256 << 20
    max_body_bytes: int = 64 << 30
    max_decompressed_bytes: int = 64 << 30
    max_decompression_ratio: int = 1000
    max_nesting: int = 64
    max_tables: int = 1_000_000

    __repr__ = repr_options

    def __post_init__(self) -> None:
        if not 1 <= self.max_nesting <= _MAX_NESTING_LIMIT:
            raise InvalidArgumentError(f"max_nesting is 1 to {_MAX_NESTING_LIMIT}, not {self.max_nesting}")
        least = min(
            self.max_metadata_bytes,
            self.max_body_bytes,
            self.max_decompressed_bytes,
            self.max_decompression_ratio,
            self.max_tables,
        )
        if least < 0:
            raise InvalidArgumentError(f"limits are not negative: {self}")


DEFAULT_LIMITS = ReadLimits()

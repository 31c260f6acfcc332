"""Shared by all oracles: expectations, read limits, and the errors that even valid data may raise."""

from __future__ import annotations

import bowstring as bs
from bowstring.errors import LimitError, UnsupportedError, UnsupportedTypeError

LIMITS = bs.ipc.ReadLimits(max_metadata_bytes=1 << 20, max_body_bytes=1 << 26, max_decompressed_bytes=1 << 26)
ALLOWED_ERRORS = (LimitError, UnsupportedError, UnsupportedTypeError)
"""Errors that valid data may raise: few bytes can encode many values, and a time zone may be unknown on this system."""
MAX_ROWS = 2000
SAMPLE_ROWS = 40


class ExpectationError(Exception):
    """Something that must hold for valid data does not."""


def expect(condition: bool, message: str) -> None:
    """Raise `ExpectationError` unless the condition is true."""
    if not condition:
        raise ExpectationError(message)

"""What all oracles share: promises, the limits that they read with, and what even sound data may meet."""

from __future__ import annotations

import bowstring as bs
from bowstring.errors import LimitError, UnsupportedError, UnsupportedTypeError

LIMITS = bs.ReadLimits(max_metadata_bytes=1 << 20, max_body_bytes=1 << 26, max_decompressed_bytes=1 << 26)
TOO_MUCH = (LimitError, UnsupportedError, UnsupportedTypeError)
"""Sound data may meet these: few bytes stand for many values, and a time zone need not be known here."""
MOST_ROWS = 2000
SOME_ROWS = 40


class BrokenPromiseError(Exception):
    """Something that has to hold of sound data does not."""


def promise(holds: bool, what: str) -> None:
    """Raise unless it holds."""
    if not holds:
        raise BrokenPromiseError(what)

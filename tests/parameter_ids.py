"""Ids for parametrized tests that are equal in all processes: pytest-xdist compares the tests of its workers."""

from __future__ import annotations

import re


def parameter_id(value: object) -> str:
    """Return the beginning of the text of a value, without memory addresses."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))[:40]

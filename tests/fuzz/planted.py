"""Bugs for the fuzzer to find: imported in its workers, where an environment variable names this module."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from bowstring.exchange import formats
from fuzz import oracles
from fuzz.inputs import KINDS
from fuzz.worker import PLANT

CRASHES = 1
"""What is left of the first byte, divided by three, where the process crashes."""
_real = formats.type_of


def type_of(text: bytes, children: tuple[Any, ...], flags: int) -> Any:
    """As the real one, but for what does not begin as addresses do: one of three bugs, by the first byte."""
    if text[:1] in (b"", b"u"):
        return _real(text, children, flags)
    if text[0] % 3 == 0:
        raise ZeroDivisionError("planted")
    if text[0] % 3 == CRASHES:
        os.kill(os.getpid(), signal.SIGSEGV)
    time.sleep(1000)
    return None


if PLANT in os.environ:
    formats.type_of = type_of
    oracles.ORACLES.update(dict.fromkeys(KINDS, oracles.ORACLES["format"]))

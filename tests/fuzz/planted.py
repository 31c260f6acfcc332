"""Bugs for the fuzzer to find: imported in its workers, where an environment variable names this module."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from bowstring.interop import c_format
from fuzz.worker import PLANT

_real = c_format.parse_format_string


def parse_format_string(text: bytes, children: tuple[Any, ...], flags: int) -> Any:
    """As the real one, but for what begins with three letters."""
    if text[:1] == b"v" and len(text) > 3:
        raise ZeroDivisionError("planted")
    if text[:1] == b"w" and len(text) > 8:
        os.kill(os.getpid(), signal.SIGSEGV)
    if text[:1] == b"d" and len(text) > 12:
        time.sleep(1000)
    return _real(text, children, flags)


if PLANT in os.environ:
    c_format.parse_format_string = parse_format_string

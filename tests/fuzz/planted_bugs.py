"""Bugs for the fuzzer to find. Its workers import this module if an environment variable names it."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from bowstring.datatypes import c_format
from fuzz.worker import PLANTED_MODULE

_parse_format_string = c_format.parse_format_string


def parse_format_string(text: bytes, children: tuple[Any, ...], flags: int) -> Any:
    """Parse a format string, except for three kinds that raise, crash and hang."""
    if text[:1] == b"v" and len(text) > 3:
        raise ZeroDivisionError("planted")
    if text[:1] == b"w" and len(text) > 8:
        os.kill(os.getpid(), signal.SIGSEGV)
    if text[:1] == b"d" and len(text) > 12:
        time.sleep(1000)
    return _parse_format_string(text, children, flags)


if PLANTED_MODULE in os.environ:
    c_format.parse_format_string = parse_format_string

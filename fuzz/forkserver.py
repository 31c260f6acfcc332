"""Processes forked from a server that has already imported Bowstring, so that they start immediately."""

from __future__ import annotations

from multiprocessing import get_context

_CONTEXT = get_context("forkserver")
_CONTEXT.set_forkserver_preload(["fuzz.instrumentation"])

ForkedProcess = _CONTEXT.Process
"""A `multiprocessing.Process` in which `fuzz.instrumentation` is already imported."""

Pipe = _CONTEXT.Pipe

"""Processes that begin at once: forked from one that has imported Bowstring already."""

from __future__ import annotations

from multiprocessing import get_context

_CONTEXT = get_context("forkserver")
_CONTEXT.set_forkserver_preload(["fuzz.instrumented"])

Fork = _CONTEXT.Process
"""A `multiprocessing.Process`. What it runs finds `fuzz.instrumented` imported."""

Pipe = _CONTEXT.Pipe

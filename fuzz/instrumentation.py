"""Import all of Bowstring and its networks, instrumented if Atheris is installed.

This takes seconds. Only the fork server imports this module; workers are forked from it.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import pkgutil
from typing import Any

_PACKAGES = (
    "bowstring_networks", *(f"bowstring.{name}" for name in (
        "arrays", "compute", "kernels", "datatypes", "dissociated", "flatbuf", "inspection", "interop",
        "io", "ipc", "layouts", "memory", "sharing", "tensors", "transports",
    )),
)  # fmt: skip


def _import_all() -> None:
    importlib.import_module("tests.integration_json")
    for package in _PACKAGES:
        module = importlib.import_module(package)
        for submodule in pkgutil.walk_packages(module.__path__, module.__name__ + "."):
            importlib.import_module(submodule.name)


def _import_instrumented() -> Any:
    try:
        import atheris
    except ImportError:
        return None
    with (
        contextlib.redirect_stderr(io.StringIO()),
        # Callbacks that keep a pending exception lose it when they are traced.
        atheris.instrument_imports(
            include=["bowstring", "bowstring_networks", "tests.integration_json"],
            exclude=["bowstring.memory.c_callbacks"],
        ),
    ):
        _import_all()
    return atheris


engine = _import_instrumented()
"""Atheris, or None."""

from fuzz.oracles import check  # noqa: E402 -- it imports Bowstring

__all__ = ["check", "engine"]

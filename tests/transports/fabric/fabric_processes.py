"""Helpers for the tests of libfabric."""

from __future__ import annotations

from functools import cache

import pytest

from bowstring.errors import EnvironmentProblemError, UnsupportedError
from bowstring.transports.fabric import libfabric
from bowstring.transports.fabric.endpoint import Domain


def require_libfabric() -> None:
    """Skip the tests of a module if the library is not installed."""
    try:
        libfabric.load()
    except EnvironmentProblemError as error:
        pytest.skip(str(error), allow_module_level=True)


@cache
def require_provider(name: str) -> None:
    """Skip a test if libfabric has no such provider."""
    try:
        Domain(name, "127.0.0.1").close()
    except UnsupportedError as error:
        pytest.skip(str(error))

"""Parameters of tests that `make thorough` adds to those of `make test`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def thorough(*parameters: Any) -> Iterable[Any]:
    """Return parameters of a test that run with `--thorough` only; a tuple has the values of several arguments."""
    for parameter in parameters:
        values = parameter if isinstance(parameter, tuple) else (parameter,)
        yield pytest.param(*values, marks=pytest.mark.thorough)

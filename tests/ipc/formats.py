"""The file and the stream format, for tests that run with both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import bowstring as bs
from tests.ipc.samples import as_file, as_stream

ENCODERS: dict[str, Callable[..., bytes]] = {"file": as_file, "stream": as_stream}
WRITERS: dict[str, Callable[..., Any]] = {"file": bs.new_file, "stream": bs.new_stream}
OPENERS: dict[str, Callable[..., Any]] = {"file": bs.open_file, "stream": bs.open_stream}
PYARROW_WRITERS: dict[str, Callable[..., Any]] = {"file": pa.ipc.new_file, "stream": pa.ipc.new_stream}
PYARROW_OPENERS: dict[str, Callable[..., Any]] = {"file": pa.ipc.open_file, "stream": pa.ipc.open_stream}
EVERY_FORMAT = pytest.mark.parametrize("format_", ["file", "stream"])
EVERY_WRITER = pytest.mark.parametrize("new", WRITERS.values())

"""Integration JSON and IPC read by pyarrow, with a tool outside the repository."""

from __future__ import annotations

import importlib.util
from functools import lru_cache
from pathlib import Path
from types import ModuleType

import pyarrow as pa

SHARED = Path(__file__).resolve().parent.parent.parent.parent / "shared"
TOOL = SHARED / "tools" / "integration_json_pyarrow.py"


@lru_cache(maxsize=1)
def peer() -> ModuleType:
    """Return the independent implementation of integration JSON over pyarrow."""
    spec = importlib.util.spec_from_file_location("integration_json_pyarrow", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read_by_pyarrow(raw: bytes, kind: str) -> tuple[pa.Schema, list[pa.RecordBatch]]:
    """Return the schema and batches of a stream (".stream") or a file."""
    if kind == ".stream":
        stream = pa.ipc.open_stream(raw)
        return stream.schema, list(stream)
    file = pa.ipc.open_file(raw)
    return file.schema, [file.get_batch(number) for number in range(file.num_record_batches)]

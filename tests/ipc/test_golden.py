"""Files that other versions of Arrow wrote: they agree with pyarrow's reading (of little-endian twins)."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bowstring as bs

READABLE = ("0.14.1", "0.17.1", "1.0.0-littleendian", "1.0.0-bigendian", "2.0.0-compression", "cpp-21.0.0")
TWINS = {"1.0.0-bigendian": "1.0.0-littleendian"}
OPEN: dict[str, Any] = {".arrow_file": bs.open_file, ".stream": bs.open_stream}
PEER_OPEN: dict[str, Any] = {".arrow_file": pa.ipc.open_file, ".stream": pa.ipc.open_stream}


def golden(shared_folder: Path, version: str) -> list[Path]:
    found = [p for p in sorted((shared_folder / "corpus" / "golden" / version).iterdir()) if p.suffix in OPEN]
    assert found
    return found


@pytest.mark.parametrize("version", READABLE)
def test_golden_files_are_what_pyarrow_says_they_are(shared_folder: Path, version: str) -> None:
    for path in golden(shared_folder, version):
        table = OPEN[path.suffix](path).read_all()
        twin = path.parent.parent / TWINS.get(version, version) / path.name
        expected = PEER_OPEN[path.suffix](twin.read_bytes()).read_all()
        sink = io.BytesIO()
        with bs.new_stream(sink, table.schema) as writer:
            writer.write(table)
        assert pa.ipc.open_stream(sink.getvalue()).read_all().equals(expected, check_metadata=True), path.name


@pytest.mark.parametrize("version", READABLE)
def test_golden_files_validate_but_for_values_that_old_versions_let_through(shared_folder: Path, version: str) -> None:
    for path in golden(shared_folder, version):
        batches = list(OPEN[path.suffix](path))
        for batch in batches:
            batch.validate()
            if "datetime" not in path.name and "decimal" not in path.name:
                batch.validate(full=True)

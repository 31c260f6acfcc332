"""What we write, as other implementations read it: `../shared/tools/peer_check.py` over every type in every form.

Each type is in one of three groups, by how many implementations know it, so that a peer that lacks one type still says
something about the others. `--keep-written=FOLDER` keeps what all tests write, to be checked in the same way.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

import bowstring as bs
from bowstring.datatypes import types as t
from bowstring.testing.cases import CASES, Case
from tests.written_files import is_swapped_by_pyarrow

ROWS = 2
RARE = (t.Union, t.Interval, t.RunEndEncoded, t.ListView, t.LargeListView, t.Dictionary)
FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "lz4": {"compression": "lz4"},
    "zstd": {"compression": "zstd"},
    "big": {"byte_order": "big"},
    "old": {"metadata_version": "V4", "is_legacy_framing": True},
}


def group_of(type_: bs.DataType) -> str:
    """Which implementations know a type: all of them, those with nested types, or few."""
    if isinstance(type_, RARE) or is_of_no_width(type_) or (isinstance(type_, t.Decimal) and type_.bit_width != 128):
        return "rare"
    groups = {group_of(field.type) for field in type_.fields}
    return "rare" if "rare" in groups else "nested" if type_.fields else "flat"


def is_of_no_width(type_: bs.DataType) -> bool:
    return 0 in (getattr(type_, "byte_width", 1), getattr(type_, "list_size", 1)) or type_ == bs.struct([])


def column(case: Case) -> bs.Array:
    values = (case.values * ROWS)[:ROWS]
    return bs.array(values, case.type)


def write_all(folder: Path) -> None:
    groups: dict[str, list[Case]] = defaultdict(list)
    for case in CASES:
        groups[group_of(case.type)].append(case)
    for group, cases in groups.items():
        for name, form in FORMS.items():
            kept = [case for case in cases if name != "big" or is_swapped_by_pyarrow(case.type)]
            columns = [column(case) for case in kept]
            batch = bs.RecordBatch.from_arrays(columns, [f"{i} {case}" for i, case in enumerate(kept)])
            files: list[tuple[str, Any]] = [("arrow", bs.new_file)] if name in ("plain", "zstd") else []
            files += [("arrows", bs.new_stream)] if name != "zstd" else []
            for suffix, opened in files:
                with opened(
                    folder / f"{group}-{name}.{suffix}", batch.schema, options=bs.IpcWriteOptions(**form)
                ) as writer:
                    writer.write(batch)
                    writer.write(batch.slice(1))


def test_other_implementations_agree_with_every_type_in_every_form(shared_folder: Path, tmp_path: Path) -> None:
    tool = shared_folder / "tools" / "peer_check.py"
    if not tool.is_file():
        pytest.skip("../shared/tools/peer_check.py is not on this machine")
    written = tmp_path / "written"
    written.mkdir()
    write_all(written)
    report = tmp_path / "report.jsonl"
    peers = "pyarrow,polars,nanoarrow"
    command = [sys.executable, str(tool), str(written), "--peers", peers, "--json", str(report)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
    found = [json.loads(line) for line in report.read_text().splitlines()]
    assert len(found) == 3 * len(list(written.iterdir()))
    statuses = defaultdict(set)
    for line in found:
        statuses[line["peer"], Path(line["file"]).name.split("-")[0]].add(line["status"])
    assert statuses["pyarrow", "flat"] | statuses["pyarrow", "nested"] | statuses["pyarrow", "rare"] == {"OK"}
    assert statuses["polars", "flat"] | statuses["polars", "nested"] <= {"EQUAL", "SAME", "VALUES"}
    assert "EQUAL" in statuses["nanoarrow", "flat"] & statuses["nanoarrow", "nested"]

"""Other implementations read what Bowstring writes: `../shared/tools/peer_check.py` for every type and encoding.

Types are grouped by how many implementations support them, so that a peer without one type still checks the others.
`--keep-written=FOLDER` keeps what all tests write, to be checked in the same way.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import bowstring as bs
from bowstring.datatypes import types as t
from tests.cases import CASES, Case
from tests.ipc.samples import as_file, as_stream, batch
from tests.written_files import is_swapped_by_pyarrow

ROWS = 2
RARELY_SUPPORTED = (t.Union, t.Interval, t.RunEndEncoded, t.ListView, t.LargeListView, t.Dictionary)
WRITE_OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "lz4": {"compression": "lz4"},
    "zstd": {"compression": "zstd"},
    "big": {"byte_order": "big"},
    "old": {"metadata_version": "V4", "is_legacy_framing": True},
}


def support_group(type_: bs.DataType) -> str:
    """Return which implementations support a type: all, those with nested types, or few."""
    if (
        isinstance(type_, RARELY_SUPPORTED)
        or has_zero_width(type_)
        or (isinstance(type_, t.Decimal) and type_.bit_width != 128)
    ):
        return "rare"
    groups = {support_group(field.type) for field in type_.fields}
    return "rare" if "rare" in groups else "nested" if type_.fields else "flat"


def has_zero_width(type_: bs.DataType) -> bool:
    return 0 in (getattr(type_, "bit_width", 1), getattr(type_, "list_size", 1)) or type_ == bs.struct([])


def column(case: Case) -> bs.Array:
    values = (case.values * ROWS)[:ROWS]
    return bs.array(values, case.type)


def write_all(folder: Path, names: list[str]) -> None:
    groups: dict[str, list[Case]] = defaultdict(list)
    for case in CASES:
        groups[support_group(case.type)].append(case)
    for group, cases in groups.items():
        for name in names:
            write_options = WRITE_OPTIONS[name]
            readable = [case for case in cases if name != "big" or is_swapped_by_pyarrow(case.type)]
            columns = [column(case) for case in readable]
            batch = bs.RecordBatch.from_arrays(columns, [f"{i} {case}" for i, case in enumerate(readable)])
            files: list[tuple[str, Any]] = [("arrow", bs.new_file)] if name in ("plain", "zstd") else []
            files += [("arrows", bs.new_stream)] if name != "zstd" else []
            for suffix, opened in files:
                with opened(
                    folder / f"{group}-{name}.{suffix}", batch.schema, options=bs.ipc.IpcWriteOptions(**write_options)
                ) as writer:
                    writer.write(batch)
                    writer.write(batch.slice(1))


@pytest.mark.thorough
@pytest.mark.parametrize("names", [[*WRITE_OPTIONS]], ids=" ".join)
def test_other_implementations_read_every_type_in_every_encoding(
    shared_folder: Path, tmp_path: Path, names: list[str]
) -> None:
    tool = shared_folder / "tools" / "peer_check.py"
    if not tool.is_file():
        pytest.skip("requires ../shared/tools/peer_check.py")
    written = tmp_path / "written"
    written.mkdir()
    write_all(written, names)
    report = tmp_path / "report.jsonl"
    peers = "pyarrow,polars,nanoarrow"
    command = [sys.executable, str(tool), str(written), "--peers", peers, "--json", str(report)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert process.returncode == 0, process.stdout[-4000:]
    reports = [json.loads(line) for line in report.read_text().splitlines()]
    assert len(reports) == 3 * len(list(written.iterdir()))
    statuses = defaultdict(set)
    for line in reports:
        statuses[line["peer"], Path(line["file"]).name.split("-")[0]].add(line["status"])
    assert statuses["pyarrow", "flat"] | statuses["pyarrow", "nested"] | statuses["pyarrow", "rare"] == {"OK"}
    assert statuses["polars", "flat"] | statuses["polars", "nested"] <= {"EQUAL", "SAME", "VALUES"}
    assert "EQUAL" in statuses["nanoarrow", "flat"] & statuses["nanoarrow", "nested"]


POLARS_COLUMNS = ["int", "bool", "text", "view", "list", "struct", "dictionary", "null"]


@pytest.mark.parametrize(("write", "read"), [(as_file, pl.read_ipc), (as_stream, pl.read_ipc_stream)])
@pytest.mark.parametrize(
    "write_options",
    [
        bs.ipc.IpcWriteOptions(),
        bs.ipc.IpcWriteOptions(compression="lz4"),
        bs.ipc.IpcWriteOptions(is_legacy_framing=True),
    ],
)
def test_polars_reads_columns_of_many_types(write: Any, read: Any, write_options: bs.ipc.IpcWriteOptions) -> None:
    source = batch(*POLARS_COLUMNS)
    frame = read(io.BytesIO(write(source, source, options=write_options)))
    assert frame.to_dict(as_series=False) == {name: 2 * source[name].to_pylist() for name in POLARS_COLUMNS}


@pytest.mark.parametrize(("new", "read"), [(bs.new_file, pl.read_ipc), (bs.new_stream, pl.read_ipc_stream)])
def test_polars_reads_merged_dictionaries(new: Any, read: Any) -> None:
    type_, sink = bs.dictionary(bs.int8(), bs.string()), io.BytesIO()
    parts: list[list[Any]] = [["a", "b"], ["a", "b", "c"], ["z", None]]
    table = bs.Table.from_batches([bs.RecordBatch.from_arrays([bs.array(part, type_)], ["w"]) for part in parts])
    with new(sink, table.schema, options=bs.ipc.IpcWriteOptions(unify_dictionaries=True)) as writer:
        writer.write(table)
    assert read(io.BytesIO(sink.getvalue())).to_dict(as_series=False) == {
        "w": [word for part in parts for word in part]
    }

"""Polars, which has a reader of its own for metadata and bodies, reads what is written."""

from __future__ import annotations

import io
from typing import Any

import polars as pl
import pytest

import bowstring as bs
from tests.ipc.samples import as_file, as_stream, batch

NAMES = ["int", "bool", "text", "view", "list", "struct", "dictionary", "null"]


@pytest.mark.parametrize(("write", "read"), [(as_file, pl.read_ipc), (as_stream, pl.read_ipc_stream)])
@pytest.mark.parametrize(
    "form", [bs.IpcWriteOptions(), bs.IpcWriteOptions(compression="lz4"), bs.IpcWriteOptions(is_legacy_framing=True)]
)
def test_polars_reads_columns_of_many_types(write: Any, read: Any, form: bs.IpcWriteOptions) -> None:
    held = batch(*NAMES)
    frame = read(io.BytesIO(write(held, held, options=form)))
    assert frame.to_dict(as_series=False) == {name: 2 * held[name].to_pylist() for name in NAMES}


@pytest.mark.parametrize(("new", "read"), [(bs.new_file, pl.read_ipc), (bs.new_stream, pl.read_ipc_stream)])
def test_polars_reads_dictionaries_that_were_united(new: Any, read: Any) -> None:
    type_, sink = bs.dictionary(bs.int8(), bs.string()), io.BytesIO()
    parts: list[list[Any]] = [["a", "b"], ["a", "b", "c"], ["z", None]]
    table = bs.Table.from_batches([bs.RecordBatch.from_arrays([bs.array(part, type_)], ["w"]) for part in parts])
    with new(sink, table.schema, options=bs.IpcWriteOptions(unify_dictionaries=True)) as writer:
        writer.write(table)
    assert read(io.BytesIO(sink.getvalue())).to_dict(as_series=False) == {
        "w": [word for part in parts for word in part]
    }

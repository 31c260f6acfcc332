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
@pytest.mark.parametrize("form", [bs.WireForm(), bs.WireForm(compression="lz4"), bs.WireForm(is_legacy_framing=True)])
def test_polars_reads_columns_of_many_types(write: Any, read: Any, form: bs.WireForm) -> None:
    held = batch(*NAMES)
    frame = read(io.BytesIO(write(held, held, form=form)))
    assert frame.to_dict(as_series=False) == {name: 2 * held[name].to_pylist() for name in NAMES}

"""Objects that are finalised without having been closed emit a `ResourceWarning`, as open files do."""

from __future__ import annotations

import gc
import io
import os
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

import bowstring as bs
from bowstring.errors import BowstringError
from bowstring.memory.region import Region

_BATCH = bs.record_batch({"a": [1, 2, 3]})


def _catch_warnings(function: Callable[[], Any]) -> list[str]:
    """Return the warnings about objects that a function leaves unclosed."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            function()
        except BowstringError:
            pass
        texts = []
        gc.collect()
        while caught:
            assert all(one.category is ResourceWarning for one in caught)
            texts += [str(one.message) for one in caught]
            caught.clear()  # each warning holds its object, which may hold another one
            gc.collect()
    return texts


def _write_batches(writer: Any, count: int = 2) -> None:
    for _ in range(count):
        writer.write(_BATCH)


@pytest.mark.parametrize("new", [bs.new_file, bs.new_stream])
def test_an_unclosed_writer_warns_with_its_path_and_rows(new: Callable[..., Any], tmp_path: Path) -> None:
    path = str(tmp_path / "x.arrow")
    kind = "FileWriter" if new is bs.new_file else "StreamWriter"
    state = "6 rows not written" if new is bs.new_file else "6 rows written without an end"
    assert _catch_warnings(lambda: _write_batches(new(path, _BATCH.schema))) == [f"{path}: unclosed {kind}: {state}"]
    assert os.path.exists(path) == (new is bs.new_stream)
    url = "memory://unclosed.arrow"
    assert _catch_warnings(lambda: _write_batches(new(url, _BATCH.schema)))[0].endswith(state)
    assert fsspec.filesystem("memory").exists("/unclosed.arrow") == (new is bs.new_stream)
    assert _catch_warnings(lambda: _write_batches(new(io.BytesIO(), _BATCH.schema))) == [
        f"BytesIO: unclosed {kind}: 6 rows written without an end"
    ]


def test_an_unclosed_writer_with_statistics_warns(tmp_path: Path) -> None:
    def write() -> None:
        writer = bs.new_file(tmp_path / "x.arrow", _BATCH.schema)
        writer.enable_statistics()
        _write_batches(writer)

    assert [re.sub(".*: unclosed", "unclosed", text) for text in _catch_warnings(write)] == [
        "unclosed FileWriter: 6 rows not written"
    ]


def test_an_unclosed_append_warns_with_its_rows_and_leaves_the_file_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "x.arrow"
    with bs.new_file(path, _BATCH.schema) as writer:
        writer.write(_BATCH)
    before = path.read_bytes()
    assert _catch_warnings(lambda: _write_batches(bs.ipc.append_to_file(path))) == [
        f"{path}: unclosed AppendWriter: 6 rows not written"
    ]
    assert path.read_bytes() == before


def test_a_warning_counts_one_row_in_the_singular(tmp_path: Path) -> None:
    path = str(tmp_path / "x.arrow")
    one = bs.record_batch({"a": [1]})
    assert _catch_warnings(lambda: bs.new_file(path, one.schema).write(one)) == [
        f"{path}: unclosed FileWriter: 1 row not written"
    ]


def test_an_unclosed_coalescing_writer_warns_once_with_all_rows_that_are_lost(tmp_path: Path) -> None:
    path = tmp_path / "x.arrow"

    def gather(sink: Any) -> None:
        writer = bs.ipc.CoalescingWriter(bs.new_file(sink, _BATCH.schema), min_rows=3)
        writer.write(_BATCH)
        writer.write(bs.record_batch({"a": [7]}))
        writer.write_pydict({"a": [4]})

    assert _catch_warnings(lambda: gather(path)) == [f"{path}: unclosed CoalescingWriter: 5 rows not written"]
    assert not path.exists()
    assert _catch_warnings(lambda: gather(io.BytesIO())) == ["BytesIO: unclosed CoalescingWriter: 2 rows not written"]


def test_an_unclosed_coalescing_writer_that_has_gathered_nothing_leaves_the_warning_to_its_writer(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.arrow"
    assert _catch_warnings(
        lambda: bs.ipc.CoalescingWriter(bs.new_file(path, _BATCH.schema), min_rows=3).write(_BATCH)
    ) == [f"{path}: unclosed FileWriter: 3 rows not written"]


def test_an_unclosed_tensor_writer_warns_with_the_number_of_tensors(tmp_path: Path) -> None:
    path = tmp_path / "x.tensors"

    def write() -> None:
        bs.tensors.new_tensor_stream(path).write(bs.tensors.Tensor.from_numpy(np.arange(3)))

    assert _catch_warnings(write) == [f"{path}: unclosed TensorWriter: 1 tensor not written"]


def test_an_unclosed_region_writer_warns() -> None:
    assert _catch_warnings(lambda: Region.create_writer("name").write(b"12345")) == [
        "region 'name': unclosed RegionWriter: 5 bytes discarded"
    ]
    assert _catch_warnings(lambda: Region.create_builder(7, "name")) == [
        "region 'name': unclosed RegionBuilder: 7 bytes discarded"
    ]


def _fail_within(new: Callable[..., Any], path: Path) -> None:
    with new(path, _BATCH.schema) as writer:
        writer.write(_BATCH)
        raise BowstringError


def _seal_regions() -> None:
    with Region.create_writer("name") as writer:
        writer.write(b"1")
        writer.seal().close()
    builder = Region.create_builder(7, "name")
    builder.seal().close()


def test_closed_abandoned_and_unstarted_writers_do_not_warn(tmp_path: Path) -> None:
    path = tmp_path / "x.arrow"
    for new in (bs.new_file, bs.new_stream):
        assert _catch_warnings(lambda new=new: new(path, _BATCH.schema).close()) == []  # type: ignore[misc]
        assert _catch_warnings(lambda new=new: new(path, _BATCH.schema).abandon()) == []  # type: ignore[misc]
        assert _catch_warnings(lambda new=new: _fail_within(new, path)) == []  # type: ignore[misc]
        assert _catch_warnings(lambda new=new: new(path, _BATCH.schema, alignment=3)) == []  # type: ignore[misc]
        assert _catch_warnings(lambda new=new: new(path / "within", _BATCH.schema)) == []  # type: ignore[misc]
    assert _catch_warnings(lambda: bs.new_file(tmp_path / "y", _BATCH.schema, metadata=5)) == []  # type: ignore[arg-type]
    assert _catch_warnings(lambda: bs.new_file("/dev/full", _BATCH.schema).close()) == []
    assert _catch_warnings(_seal_regions) == []
    assert (
        _catch_warnings(
            lambda: bs.tensors.write_tensor(bs.tensors.Tensor.from_numpy(np.arange(3)), tmp_path / "tensor")
        )
        == []
    )

"""Batches that are written directly into shared memory."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import bowstring as bs
from bowstring.errors import ClosedError, InvalidArgumentError, ResourceError
from bowstring.sharing import new_shared_table
from bowstring_testing.descriptors import assert_descriptors_closed
from tests.sharing.python_process import run_python

ATTACH = "import bowstring as bs; send(bs.attach(handle).to_pydict())"


def test_batches_and_tables_are_written_one_after_the_other() -> None:
    table = bs.table({"a": [1, 2], "s": ["x", None]})
    with new_shared_table(table.schema) as writer:
        writer.write(table)
        writer.write(table.to_batches()[0])
    with writer.handle as handle:
        assert handle.num_rows == 4
        assert run_python(ATTACH, handle=handle) == {"a": [1, 2, 1, 2], "s": ["x", None, "x", None]}


def test_dictionaries_may_change_between_batches() -> None:
    batches = [bs.record_batch({"d": bs.array(values).dictionary_encode()}) for values in (["a", "b"], ["c"])]
    with new_shared_table(batches[0].schema) as writer:
        for batch in batches:
            writer.write(batch)
    with writer.handle as handle:
        assert bs.attach(handle).to_pydict() == {"d": ["a", "b", "c"]}


def test_without_batches_the_table_is_empty() -> None:
    with new_shared_table({"a": bs.int8()}) as writer:
        pass
    with writer.handle as handle:
        assert bs.attach(handle) == bs.table({"a": bs.array([], bs.int8())})


IN_PLACE = {
    "int8": bs.int8(),
    "uint64": bs.uint64(),
    "half": bs.float16(),
    "double": bs.float64(),
    "timestamp": bs.timestamp("us", "UTC"),
    "duration": bs.duration("ms"),
    "embedding": bs.list_(bs.field("item", bs.float32()), 4),
}


@pytest.mark.parametrize("num_rows", [0, 1, 1000])
def test_allocated_columns_are_filled_in_place(num_rows: int) -> None:
    with new_shared_table(IN_PLACE) as writer:
        columns = writer.allocate(num_rows)
        assert {name: values.shape[0] for name, values in columns.items()} == dict.fromkeys(IN_PLACE, num_rows)
        assert columns["embedding"].shape == (num_rows, 4)
        for values in columns.values():
            assert not values.view(np.uint8).any()
            values[...] = np.arange(values.size).reshape(values.shape).astype(values.dtype)
    with writer.handle as handle:
        table = bs.attach(handle)
        table.validate(full=True)
        assert table.schema == bs.schema(IN_PLACE)
        for name, values in columns.items():
            np.testing.assert_array_equal(table[name].to_numpy(), values)


def test_batches_are_in_the_order_of_their_calls() -> None:
    with new_shared_table({"a": bs.int64()}) as writer:
        first = writer.allocate(2)["a"]
        writer.write(bs.record_batch({"a": [2, None]}))
        writer.write(bs.record_batch({"a": [4]}))
        second = writer.allocate(1)["a"]
        second[:] = 5
        first[:] = [0, 1]
    with writer.handle as handle:
        assert handle.num_rows == 6
        assert run_python(ATTACH, handle=handle) == {"a": [0, 1, 2, None, 4, 5]}


def test_arrays_can_not_change_shared_memory_after_the_writer_is_closed() -> None:
    with new_shared_table({"a": bs.int64()}) as writer:
        values = writer.allocate(1000)["a"]
        view = values[10:20]
    with writer.handle as handle:
        table = bs.attach(handle)
        with pytest.raises(ValueError, match="read-only"):
            values[0] = 1
        view[:] = 7  # private to this process
        assert view.tolist() == [7] * 10
        assert table["a"].to_pylist() == [0] * 1000
        (region,) = handle.open_regions()
        with region:
            assert region.is_sealed


@pytest.mark.parametrize("num_rows", [10**13, 2**62, 2**63, 10**30])
@pytest.mark.parametrize("kind", [bs.int64(), bs.list_(bs.float32(), 3)])
def test_more_rows_than_memory_are_a_resource_error(num_rows: int, kind: bs.DataType) -> None:
    with new_shared_table(bs.schema({"a": kind})) as writer:
        with pytest.raises(ResourceError, match=r"new_shared_table.*: \d+ bytes requested"):
            writer.allocate(num_rows)
        assert writer.allocate(2)["a"].shape[0] == 2


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"s": bs.string()}, "column 's': expected a type whose values NumPy can use in place, not string"),
        ({"b": bs.bool_()}, "column 'b'"),
        ({"t": bs.date32()}, "column 't'"),
        ({"d": bs.decimal128(5, 2)}, "column 'd'"),
        ({"l": bs.list_(bs.int8())}, "column 'l'"),
        ({"c": bs.dictionary(bs.int8(), bs.string())}, "column 'c'"),
        (bs.schema([bs.field("a", bs.int8()), bs.field("a", bs.int8())]), "different names"),
    ],
)
def test_other_types_can_not_be_allocated(schema: Any, message: str) -> None:
    with new_shared_table(schema) as writer, pytest.raises(InvalidArgumentError, match=message):
        writer.allocate(1)
    writer.handle.close()


def test_an_error_in_the_block_frees_the_memory() -> None:
    gc.collect()
    with assert_descriptors_closed():
        with pytest.raises(ZeroDivisionError), new_shared_table({"a": bs.int8()}) as writer:
            writer.allocate(100)
            writer.write(bs.record_batch({"a": bs.array([1], bs.int8())}))
            raise ZeroDivisionError
        with pytest.raises(InvalidArgumentError, match="abandoned"):
            _ = writer.handle


def test_a_batch_of_another_schema_is_an_error_and_writes_nothing() -> None:
    with new_shared_table({"a": bs.int8()}) as writer:
        writer.allocate(1)
        with pytest.raises(InvalidArgumentError, match="another schema"):
            writer.write(bs.record_batch({"b": [1]}))
        with pytest.raises(InvalidArgumentError, match="not closed yet"):
            _ = writer.handle
    with writer.handle as handle:
        assert bs.attach(handle).to_pydict() == {"a": [0]}


def test_a_shortage_of_disk_space_abandons_the_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    with new_shared_table({"a": bs.int64()}) as writer:
        monkeypatch.setattr(os, "writev", _raise_no_space)
        monkeypatch.setattr("bowstring.io.sinks.write_iovecs", _raise_no_space)
        with pytest.raises(bs.errors.ResourceError):
            writer.write(bs.record_batch({"a": np.arange(1 << 20)}))
        for use in (lambda: writer.write(bs.record_batch({"a": [1]})), lambda: writer.allocate(1)):
            with pytest.raises(ClosedError):
                use()


def _raise_no_space(*_: object) -> int:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("use", [lambda writer: writer.allocate(1), lambda writer: writer.write(bs.table({"a": [1]}))])
def test_a_closed_writer_can_not_be_used(use: Callable[[Any], object]) -> None:
    with new_shared_table({"a": bs.int64()}) as writer:
        pass
    writer.close()
    with writer.handle, pytest.raises(ClosedError):
        use(writer)


def test_the_number_of_regions_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bowstring.sharing.shared_writer.MAX_REGIONS", 3)
    with new_shared_table({"a": bs.int64()}) as writer:
        for _ in range(3):
            writer.allocate(1)
        with pytest.raises(InvalidArgumentError, match="at most 3"):
            writer.allocate(1)
    with writer.handle as handle:
        assert bs.attach(handle).num_rows == 3

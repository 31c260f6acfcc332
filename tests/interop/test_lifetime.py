"""Memory is valid until its last reference is dropped, and every structure is released exactly once."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import bowstring as bs
from bowstring.arrays.array import Array, import_array
from bowstring.arrays.record_batch import RecordBatch, import_batch, import_stream
from bowstring.arrays.table import import_table
from bowstring.datatypes.schema import import_schema, schema
from bowstring.errors import InvalidDataError, UnsupportedTypeError
from bowstring.interop import c_array, c_data
from bowstring.layouts.registry import layout_of
from bowstring.memory import c_abi
from bowstring.memory.buffer import Buffer
from tests.interop.c_producer import Producer


@pytest.fixture(autouse=True)
def assert_no_leaks() -> Iterator[None]:
    gc.collect()
    before = len(c_abi.private_data), len(c_abi._capsule_blocks), pa.total_allocated_bytes()
    yield
    gc.collect()
    assert (len(c_abi.private_data), len(c_abi._capsule_blocks), pa.total_allocated_bytes()) == before


class Owner:
    """Memory that supports weak references."""

    def __init__(self, values: np.ndarray[Any, Any]) -> None:
        self.values = values
        self.__array_interface__ = values.__array_interface__


def tracked_array(length: int = 1000) -> tuple[Array, weakref.ref[Owner]]:
    """An int64 array, and a weak reference to the owner of its memory."""
    owner = Owner(np.arange(length))
    array = Array(layout_of(bs.int64()), length, (None, Buffer.of(np.asarray(owner))))
    return array, weakref.ref(owner)


def test_exported_memory_stays_until_the_consumer_releases_it() -> None:
    exported, alive = tracked_array()
    foreign = pa.array(exported)
    del exported
    gc.collect()
    assert foreign.to_pylist() == list(range(1000))
    part = foreign[10:12]
    del foreign
    assert part.to_pylist() == [10, 11]
    assert alive() is not None
    del part
    assert alive() is None


def test_an_unused_capsule_releases_its_memory() -> None:
    exported, alive = tracked_array()
    capsules = c_data.export_array(exported)
    del exported
    gc.collect()
    assert alive() is not None
    del capsules
    assert alive() is None


def test_an_unused_or_partly_read_stream_is_released() -> None:
    exported, alive = tracked_array()
    batch = RecordBatch.from_arrays([exported], ["a"])
    capsule = c_data.export_stream(batch.schema, iter([batch, batch]))
    unread = c_data.export_stream(batch.schema, iter([batch, batch]))
    del exported, batch
    del unread
    reader = pa.RecordBatchReader._import_from_c_capsule(capsule)
    first = reader.read_next_batch()
    del reader, capsule
    gc.collect()
    assert first.column(0)[7].as_py() == 7
    assert alive() is not None
    del first
    assert alive() is None


def test_a_child_may_be_moved_out_before_its_parent_is_released() -> None:
    exported, alive = tracked_array()
    other, other_alive = tracked_array()
    _, capsule = RecordBatch.from_arrays([exported, other], ["a", "b"]).__arrow_c_array__()
    del exported, other
    parent = c_abi.ArrayStruct.from_address(c_abi.capsule_pointer(capsule, c_abi.ARRAY_CAPSULE))
    first_child = c_abi.read_pointers(parent[c_abi.CHILDREN], 2, "children")[0]
    child = c_array.import_array_struct(first_child, layout_of(bs.int64()))
    del capsule
    gc.collect()
    assert other_alive() is None
    assert child.to_pylist() == list(range(1000))
    del child
    assert alive() is None


def test_imported_memory_is_released_once_with_the_last_view() -> None:
    producer = Producer()
    schema = producer.schema(b"+s", [producer.schema(b"l", name=b"a"), producer.schema(b"l", name=b"b")])
    columns = [producer.array(3, [0, producer.values([i, i, i])]) for i in (1, 2)]
    batch = import_batch(producer.pair(schema, producer.array(3, [0], columns)))
    column = batch.column("b")
    del batch
    gc.collect()
    values = column.slice(1).to_numpy()
    del column
    gc.collect()
    assert producer.released == 0
    assert values.tolist() == [2, 2]
    assert not values.flags.writeable
    del values
    gc.collect()
    assert producer.released == 1


def test_an_import_without_any_bytes_is_released_at_once() -> None:
    producer = Producer()
    array = import_array(producer.pair(producer.schema(b"n"), producer.array(5, [])))
    assert producer.released == 1
    assert array.to_pylist() == [None] * 5


def test_a_round_trip_within_bowstring_keeps_the_memory() -> None:
    exported, alive = tracked_array()
    address = exported.own_buffers[1].address  # type: ignore[union-attr]
    again = import_array(c_data.export_array(exported))
    del exported
    gc.collect()
    assert again.own_buffers[1].address == address  # type: ignore[union-attr]
    assert alive() is not None
    del again
    assert alive() is None


def test_pyarrow_memory_is_released_with_the_imported_arrays() -> None:
    before = pa.total_allocated_bytes()
    foreign = pa.array(range(100_000), pa.int64())
    exported = import_array(foreign)
    del foreign
    gc.collect()
    assert pa.total_allocated_bytes() > before
    assert exported[99_999] == 99_999
    del exported
    assert pa.total_allocated_bytes() == before


def test_a_failed_export_keeps_no_references() -> None:
    exported, alive = tracked_array()
    short = Array(layout_of(bs.int64()), 5, (None, Buffer.of(b"1234")))
    absent = Array(layout_of(bs.string()), 5, (None, None, None))
    childless = Array(layout_of(bs.list_(bs.int8())), 5, (None, Buffer.of(bytes(24))))
    for invalid, message in (
        (short, "has 4 bytes, 5 slots need 40"),
        (absent, "offsets"),
        (childless, "too few"),
    ):
        with pytest.raises(InvalidDataError, match=message):
            RecordBatch(
                schema([("a", exported.type), ("b", invalid.type)]), 5, [exported.slice(0, 5), invalid]
            ).__arrow_c_array__()
    with pytest.raises(UnsupportedTypeError):
        schema([("a", bs.int8()), ("nul\0", bs.int8())]).__arrow_c_schema__()
    del exported
    gc.collect()
    assert alive() is None


def test_other_threads_may_release_exports() -> None:
    references = [pa.array(tracked_array(100)[0]) for _ in range(200)]
    alive = len(c_abi.private_data)

    def drop() -> None:
        while references:
            try:
                references.pop()
            except IndexError:
                return

    threads = [threading.Thread(target=drop) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(c_abi.private_data) == alive - 200


def test_threads_of_another_library_may_read_and_release_streams() -> None:
    exported = import_table(pa.table({"a": list(range(10_000))}))
    frame = pl.DataFrame(exported)
    assert frame.lazy().select(pl.col("a").sum()).collect().item() == sum(range(10_000))


def test_a_pending_exception_survives_the_deletion_of_a_capsule() -> None:
    exported, alive = tracked_array()
    with pytest.raises(TypeError, match=r"has no len\(\)"):
        len(c_data.export_array(exported)[1])  # type: ignore[arg-type]
    del exported
    gc.collect()
    assert alive() is None


def test_a_pending_exception_survives_a_release_by_the_consumer() -> None:
    import pyarrow.compute as pc

    for _ in range(3):
        with pytest.raises(pa.ArrowNotImplementedError, match="utf8_upper"):
            pc.utf8_upper(pa.array(tracked_array()[0]))


@pytest.mark.parametrize("error", [StopIteration, KeyboardInterrupt, ValueError])
def test_every_kind_of_pending_exception_survives_a_release(error: type[BaseException]) -> None:
    def failing(capsule: object) -> int:
        del capsule  # now only the list refers to it
        raise error("mine")

    for _ in range(3):
        with pytest.raises(error, match="mine"):
            min([bs.int8().__arrow_c_schema__()], key=failing)


def test_pending_exceptions_of_several_threads_survive_releases() -> None:
    messages: list[str] = []

    def fail(message: str) -> None:
        def failing(capsule: object) -> int:
            del capsule
            raise ValueError(message)

        for _ in range(200):
            try:
                min([bs.int8().__arrow_c_schema__()], key=failing)
            except ValueError as error:
                messages.append(f"{message} {error}")

    switch_interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=fail, args=[str(index)]) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(switch_interval_s)
    assert sorted(messages) == sorted(f"{index} {index}" for index in range(4) for _ in range(200))


def test_a_thousand_round_trips_leak_nothing() -> None:
    table = pa.table({"n": list(range(100)), "s": ["x"] * 100, "l": [[1, None]] * 100}).to_batches()[0]

    def rounds(count: int) -> int:
        for _ in range(count):
            pa.record_batch(import_batch(table))
            for batch in import_stream(c_data.export_stream(import_schema(table.schema), iter(())))[1]:
                raise AssertionError(batch)
        gc.collect()
        return len(gc.get_objects())

    count_before = rounds(100)
    assert rounds(1000) - count_before < 50


EXIT_WITH_EXPORTS = """
import faulthandler, sys, threading
faulthandler.enable()
import pyarrow as pa, polars as pl
from bowstring.arrays.table import import_table
from bowstring.interop import c_data
import bowstring as bs
ours = import_table(pa.table({"a": [1, 2, None], "s": ["x", "y", None]}))
theirs = pa.table(ours)
frame = pl.DataFrame(ours)
reader = pa.RecordBatchReader._import_from_c_capsule(c_data.export_stream(ours.schema, iter(ours.to_batches())))
unread = c_data.export_stream(ours.schema, iter(ours.to_batches()))
capsules = bs.int8().__arrow_c_schema__()
cycle = [theirs, reader]; cycle.append(cycle)
import json
json.leaked_for_the_test = [pa.table(ours), cycle, pa.RecordBatchReader._import_from_c_capsule(
    c_data.export_stream(ours.schema, iter(ours.to_batches())))]
sys.modules["early"] = type(sys)("early")
sys.modules["early"].held = pa.table(ours)
print("ready")
"""


def test_a_process_exits_cleanly_while_other_libraries_hold_its_memory() -> None:
    process = subprocess.run(
        [sys.executable, "-c", EXIT_WITH_EXPORTS], check=False, capture_output=True, text=True, timeout=120
    )
    assert (process.returncode, process.stdout, process.stderr) == (0, "ready\n", "")


def test_an_imported_array_reports_the_size_of_its_buffers() -> None:
    foreign = pa.array([1, 2, 3], pa.int8())
    exported = import_array(foreign)
    buffer = exported.own_buffers[1]
    assert buffer is not None
    assert buffer.size == 3
    assert buffer.bytes.tolist() == [1, 2, 3]

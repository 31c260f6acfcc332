"""Structures are released exactly once with threads, failures, interpreter shutdown and many round trips."""

from __future__ import annotations

import gc
import itertools
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import nanoarrow
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import bowstring as bs
from bowstring.arrays.array import import_array
from bowstring.arrays.record_batch import import_stream
from bowstring.errors import BowstringError, InvalidDataError
from bowstring.interop import c_data
from bowstring.interop.c_array import import_array_struct
from bowstring.interop.c_stream import ImportedArrayStream
from bowstring.memory import c_abi
from tests.interop.c_producer import Producer
from tests.interop.test_c_device import DeviceProtocolOnly
from tests.interop.test_lifetime import assert_no_leaks, tracked_array

__all__ = ["assert_no_leaks"]

BATCH = bs.record_batch({"n": list(range(50)), "s": ["x"] * 50, "l": [[1, None]] * 50, "d": pd.Categorical(["a"] * 50)})
TABLE = bs.Table.from_batches([BATCH] * 4)


def batch_and_error(error: Exception) -> Iterator[bs.RecordBatch]:
    yield BATCH
    raise error


def read_first_batch(stream: Any) -> None:
    _, batches = import_stream(stream)
    next(batches)


def read_failing_stream() -> None:
    _, batches = import_stream(c_data.export_stream(BATCH.schema, batch_and_error(OSError("gone"))))
    with pytest.raises(InvalidDataError, match="gone"):
        list(batches)


def read_failing_stream_with_pyarrow() -> None:
    capsule = c_data.export_stream(BATCH.schema, batch_and_error(ValueError("gone")))
    with pytest.raises(pa.ArrowInvalid, match="gone"):
        pa.RecordBatchReader._import_from_c_capsule(capsule).read_all()


ROUND_TRIPS: dict[str, Callable[[], Any]] = {
    "array": lambda: pa.array(BATCH["n"]),
    "array and back": lambda: bs.array(pa.array(BATCH["l"])),
    "array unconsumed": BATCH["l"].__arrow_c_array__,
    "array requested otherwise": lambda: BATCH["s"].__arrow_c_array__(bs.string_view().__arrow_c_schema__()),
    "batch": lambda: pa.record_batch(BATCH),
    "device batch": lambda: pa.record_batch(DeviceProtocolOnly(BATCH)),
    "device batch unconsumed": BATCH.__arrow_c_device_array__,
    "stream": lambda: pa.table(TABLE),
    "stream unconsumed": TABLE.__arrow_c_stream__,
    "stream half read": lambda: read_first_batch(TABLE),
    "stream half read by pyarrow": lambda: pa.RecordBatchReader.from_stream(TABLE).read_next_batch(),
    "stream of pyarrow half read": lambda: read_first_batch(pa.table(TABLE)),
    "device stream half read": lambda: read_first_batch(DeviceProtocolOnly(TABLE)),
    "device stream unconsumed": TABLE.__arrow_c_device_stream__,
    "stream that fails": read_failing_stream,
    "stream that fails in pyarrow": read_failing_stream_with_pyarrow,
    "polars": lambda: bs.table(pl.DataFrame(TABLE.select(["n", "s", "l"]))),
    "nanoarrow": lambda: nanoarrow.c_array(BATCH["n"]),
    "dlpack": lambda: np.from_dlpack(BATCH["n"], copy=False),
    "dlpack unconsumed": lambda: BATCH["n"].__dlpack__(max_version=(1, 0), copy=False),
    "pandas": lambda: bs.table(TABLE.to_pandas()),
}


@pytest.mark.parametrize("name", ROUND_TRIPS)
def test_many_round_trips_leak_nothing(name: str) -> None:
    round_trip = ROUND_TRIPS[name]
    round_trip()
    gc.collect()
    before = len(c_abi.private_data), len(c_abi._capsule_blocks)
    for _ in range(50):
        round_trip()
    gc.collect()
    assert (len(c_abi.private_data), len(c_abi._capsule_blocks)) == before


def test_threads_may_export_import_release_and_fail_concurrently() -> None:
    shared: list[Any] = []
    errors: list[BaseException] = []
    round_trips = [
        round_trip for name, round_trip in ROUND_TRIPS.items() if "polars" not in name and "pandas" not in name
    ]

    def work(seed: int) -> None:
        chance = random.Random(seed)
        try:
            for _ in range(120):
                shared.append(chance.choice(round_trips)())  # another thread may release it
                if len(shared) > 20:
                    shared.pop(chance.randrange(10))
                if chance.random() < 0.05:
                    gc.collect(0)
        except BaseException as error:  # noqa: BLE001 - the test reports it
            errors.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    finally:
        sys.setswitchinterval(interval)
    assert not errors
    assert not any(thread.is_alive() for thread in threads)
    shared.clear()


def test_one_stream_may_be_read_from_several_threads() -> None:
    capsule = bs.Table.from_batches([BATCH] * 200).__arrow_c_stream__()
    stream = ImportedArrayStream(c_abi.capsule_pointer(capsule, c_abi.STREAM_CAPSULE))
    counts: list[int] = []

    def read() -> None:
        counts.append(sum(1 for _ in stream))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sum(counts) == 200


def test_garbage_collection_during_any_operation_releases_once() -> None:
    thresholds = gc.get_threshold()
    gc.set_threshold(1)
    try:
        array, alive = tracked_array()
        batch = bs.RecordBatch.from_arrays([array], ["a"])
        references: list[Any] = [
            pa.record_batch(batch),
            pa.table(bs.table(batch)),
            bs.table(DeviceProtocolOnly(bs.table(batch))),
        ]
        references.append(references)
        producer = Producer()
        imported = import_array(producer.pair(producer.schema(b"l"), producer.array(3, [0, producer.values([1])])))
        cycle: list[Any] = [imported, producer]
        cycle.append(cycle)
        del array, batch, imported
        gc.collect()
        assert alive() is not None
        assert producer.released == 0
        del references, cycle
    finally:
        gc.set_threshold(*thresholds)
    gc.collect()
    assert alive() is None
    assert producer.released == 1


def test_a_child_moved_out_of_a_device_array_outlives_it() -> None:
    array, alive = tracked_array()
    other, other_alive = tracked_array()
    _, capsule = bs.RecordBatch.from_arrays([array, other], ["a", "b"]).__arrow_c_device_array__()
    del array, other
    parent = c_abi.DeviceArrayStruct.from_address(c_abi.capsule_pointer(capsule, c_abi.DEVICE_ARRAY_CAPSULE))
    first_child = c_abi.read_pointers(parent[c_abi.CHILDREN], 2, "children")[0]
    layout = bs.array([0]).layout
    child = import_array_struct(first_child, layout)
    del capsule
    gc.collect()
    assert other_alive() is None
    assert child.to_pylist() == list(range(1000))
    del child
    assert alive() is None


@pytest.mark.parametrize("at", range(5))
def test_an_exception_in_a_consumer_releases_everything(at: int) -> None:
    tracked, alive = tracked_array()
    batch = bs.RecordBatch.from_arrays([tracked], ["a"])
    del tracked

    def consume(batch: bs.RecordBatch) -> None:
        schema, array = batch.__arrow_c_device_array__()
        stream = batch.__arrow_c_stream__()
        steps: list[Callable[[], Any]] = [
            lambda: import_array((schema, array)),
            lambda: next(import_stream(stream)[1]),
            lambda: pa.table(batch),
            lambda: batch["a"].__dlpack__(max_version=(1, 0), copy=False),
        ]
        references = []
        for number in itertools.count():
            if number == at:
                raise KeyError(number)
            references.append(steps[number]())

    with pytest.raises(KeyError):
        consume(batch)
    del batch
    gc.collect()
    assert alive() is None


MEASURE_GROWTH = """
import gc, resource, bowstring as bs, numpy as np, pyarrow as pa
from bowstring.arrays.record_batch import import_stream
table = bs.table({"n": list(range(1000)), "s": ["some text"] * 1000, "l": [[1, None]] * 1000})
theirs = pa.table(table)
def rss():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
def rounds(count):
    for _ in range(count):
        pa.table(table)
        bs.table(theirs)
        next(import_stream(table.__arrow_c_device_stream__())[1])
        table["s"].chunks[0].__arrow_c_array__(bs.large_string().__arrow_c_schema__())
        np.from_dlpack(bs.from_dlpack(np.arange(1000)))
        table.__arrow_c_stream__()
    gc.collect()
    return rss()
settled = rounds(500)
grown = rounds(1500) - settled
print("grown" if grown > 2 << 20 else "steady")
"""


@pytest.mark.thorough
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="requires /proc/self/statm")
def test_thousands_of_rounds_do_not_grow_the_process() -> None:
    process = subprocess.run(
        [sys.executable, "-c", MEASURE_GROWTH], check=False, capture_output=True, text=True, timeout=200
    )
    assert (process.stdout, process.stderr) == ("steady\n", "")


EXIT_WITH_EXPORTS = """
import faulthandler, sys, threading, json
faulthandler.enable()
import numpy as np, pandas as pd, polars as pl, pyarrow as pa, nanoarrow as na
import bowstring as bs
from bowstring.arrays.record_batch import import_stream
table = bs.table({"a": [1, 2, 3], "s": ["x", "y", None]})
batch = table.to_batches()[0]
exported = [table.__arrow_c_device_stream__(), batch.__arrow_c_device_array__(), batch.__arrow_c_array__(),
        table.__arrow_c_stream__(), table["a"].__arrow_c_stream__(), bs.int8().__arrow_c_schema__(),
        batch["a"].__dlpack__(max_version=(1, 0), copy=False), np.from_dlpack(batch["a"], copy=False),
        pa.table(table), pl.DataFrame(table),
        na.c_array(batch["a"]), table.to_pandas(), pa.RecordBatchReader.from_stream(table),
        import_stream(pa.table(table))[1], bs.table(pa.table(table)), bs.table(table.to_pandas())]
half = import_stream(table.__arrow_c_device_stream__())[1]
next(half)
exported += [half, exported]
json.exported_until_the_very_end = exported
sys.modules["late"] = type(sys)("late")
sys.modules["late"].exported = [table.__arrow_c_device_stream__(), half]
threading.Thread(target=lambda: exported.append(threading.local()), daemon=True).start()
print("ready")
"""


@pytest.mark.thorough
@pytest.mark.parametrize(
    "ending", ["", "sys.exit(3)", "raise SystemExit(3)", "import os; sys.stdout.flush(); os._exit(3)"]
)
def test_a_process_exits_cleanly_with_exports_alive(ending: str) -> None:
    process = subprocess.run(
        [sys.executable, "-c", EXIT_WITH_EXPORTS + ending], check=False, capture_output=True, text=True, timeout=120
    )
    assert (process.returncode, process.stdout, process.stderr) == (3 if ending else 0, "ready\n", "")


SUBINTERPRETER = """
import _xxsubinterpreters as interpreters
number = interpreters.create()
interpreters.run_string(number, '''
import warnings
warnings.simplefilter("ignore")
import bowstring as bs
array = bs.array([1, 2])
assert array.to_pylist() == [1, 2]
try:
    array.__arrow_c_array__()
except bs.errors.UnsupportedError as error:
    print(error, flush=True)
''')
interpreters.destroy(number)
print("ended")
"""


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="NumPy supports second interpreters only up to Python 3.11")
def test_a_subinterpreter_is_rejected_if_its_callbacks_would_deadlock() -> None:
    process = subprocess.run(
        [sys.executable, "-c", SUBINTERPRETER], check=False, capture_output=True, text=True, timeout=60
    )
    assert (process.returncode, process.stderr) == (0, "")
    assert "main interpreter" in process.stdout
    assert process.stdout.endswith("ended\n")


def import_in_threads(import_values: Callable[[], list[int]]) -> tuple[list[list[int]], int]:
    """Import from four threads at once; return the imported values and the number of rejected imports."""
    imports: list[list[int]] = []
    rejected: list[BowstringError] = []
    ready = threading.Barrier(4)

    def work() -> None:
        ready.wait()
        try:
            imports.append(import_values())
        except BowstringError as error:
            rejected.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return imports, len(rejected)


def from_stream(capsule: object) -> list[int]:
    (batch,) = import_stream(capsule)[1]
    return list(batch["n"].to_pylist())


def from_array(capsules: object) -> list[int]:
    return list(import_array(capsules).to_pylist())


@pytest.mark.parametrize("kind", ["array", "stream"])
def test_one_of_several_threads_consumes_a_capsule(kind: str) -> None:
    table = bs.table({"n": [1, 2, 3]})
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(50):
            if kind == "stream":
                outcome = import_in_threads(partial(from_stream, table.__arrow_c_stream__()))
            else:
                outcome = import_in_threads(partial(from_array, bs.array([1, 2, 3]).__arrow_c_array__()))
            assert outcome == ([[1, 2, 3]], 3)
    finally:
        sys.setswitchinterval(before)

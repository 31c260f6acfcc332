"""The C device interface: our arrays go out as the CPU's, and come in from every device that the processor reads."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from typing import Any

import nanoarrow.device
import pyarrow as pa
import pytest

import bowstring as bs
from bowstring.errors import DataTypeError, InvalidDataError, UnsupportedError
from bowstring.interop import c_abi, c_data, c_device
from tests.interop.c_producer import Producer
from tests.interop.samples import ARRAYS, nested, plain
from tests.interop.test_lifetime import everything_is_released, watched

__all__ = ["everything_is_released"]


class OnDevice:
    """Anything that has only the device methods of another object."""

    def __init__(self, source: Any) -> None:
        self.source = source

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__arrow_c_device_"):
            return getattr(self.source, name)
        raise AttributeError(name)


@pytest.mark.parametrize("name", plain() | nested())
def test_an_array_comes_from_pyarrow_and_goes_back_as_a_device_array(name: str) -> None:
    foreign = ARRAYS[name]
    exported = bs.array(OnDevice(foreign))
    exported.validate(full=True)
    back = pa.array(OnDevice(exported))
    assert back.type.equals(foreign.type, check_metadata=True)
    assert back.equals(foreign)


def test_a_record_batch_comes_and_goes_as_a_device_array() -> None:
    foreign = pa.record_batch({"a": [1, None], "b": ["x", "y"]}).replace_schema_metadata({"k": "v"})
    exported = bs.record_batch(OnDevice(foreign))
    assert exported.to_pydict() == foreign.to_pydict()
    assert pa.record_batch(OnDevice(exported)).equals(foreign, check_metadata=True)


def test_what_goes_out_says_that_it_is_on_the_cpu_and_needs_no_waiting() -> None:
    _, capsule = bs.array([1, 2]).__arrow_c_device_array__()
    words = c_abi.DeviceArrayStruct.from_address(c_abi.capsule_pointer(capsule, c_abi.DEVICE_ARRAY_CAPSULE))
    assert ctypes.sizeof(words) == 128
    assert words[c_abi.DEVICE_ID] == -1
    assert words[c_abi.DEVICE_TYPE] & 0xFFFFFFFF == c_device.CPU
    assert words[c_abi.SYNC_EVENT :] == [0, 0, 0, 0]
    assert nanoarrow.device.c_device_array(OnDevice(bs.array([1, 2]))).device_type_id == c_device.CPU


def test_tables_and_chunked_arrays_stream_from_the_cpu() -> None:
    table = bs.concat_tables([bs.table({"a": [1, None]}), bs.table({"a": [3]})])
    capsule = table.__arrow_c_device_stream__()
    words = c_abi.DeviceStreamStruct.from_address(c_abi.capsule_pointer(capsule, c_abi.DEVICE_STREAM_CAPSULE))
    assert ctypes.c_int32.from_buffer(words).value == c_device.CPU
    assert c_data.import_table(capsule) == table
    assert bs.table(OnDevice(table)) == table
    assert bs.array(OnDevice(table["a"])).to_pylist() == [1, None, 3]
    assert bs.table(OnDevice(table.to_batches()[0])).to_pydict() == {"a": [1, None]}


def test_a_failing_device_stream_gives_its_reason() -> None:
    batch = bs.record_batch({"a": [1]})

    def failing() -> Iterator[bs.RecordBatch]:
        yield batch
        raise OSError("the disk is gone")

    _, batches = c_data.import_stream(c_data.export_device_stream(batch.schema, failing()))
    assert next(batches) == batch
    with pytest.raises(InvalidDataError, match="the disk is gone"):
        next(batches)


def test_options_of_later_versions_may_be_given_as_none() -> None:
    batch = bs.record_batch({"a": [1]})
    table = bs.table(batch)
    methods = [
        bs.array([1]).__arrow_c_device_array__,
        batch.__arrow_c_device_array__,
        batch.__arrow_c_device_stream__,
        table.__arrow_c_device_stream__,
        table["a"].__arrow_c_device_stream__,
    ]
    for method in methods:
        method(None, stream=None, later=None)
        with pytest.raises(NotImplementedError, match=r"\['later'\]"):
            method(None, stream=None, later=1)


class Gpu(Producer):
    """Makes device arrays and device streams that say they are where the test wants them."""

    def device_pair(self, device_type: int, device_id: int = 0, sync_event: int = 0) -> tuple[object, object]:
        words = c_abi.ArrayStruct.from_address(self.array(2, [0, self.values([5, 6])]))
        row = self._row([*words, device_id, device_type, sync_event, -1, -1, -1])
        return self.capsule(self.schema(b"l"), c_abi.SCHEMA_CAPSULE), self.capsule(row, c_abi.DEVICE_ARRAY_CAPSULE)


@pytest.mark.parametrize("device_type", [c_device.CPU, 3, 11])
def test_memory_that_the_processor_reads_is_taken(device_type: int) -> None:
    gpu = Gpu()
    array = c_data.import_array(gpu.device_pair(device_type))
    assert array.to_pylist() == [5, 6]
    assert gpu.released == 0
    del array
    gc.collect()
    assert gpu.released == 1


@pytest.mark.parametrize(
    ("device_type", "device_id", "name"),
    [(2, 3, "CUDA:3"), (13, 0, "CUDA_MANAGED:0"), (10, -1, "ROCM, which"), (99, 1, "of unknown type 99:1")],
)
def test_memory_of_another_device_is_refused_by_name_and_released(device_type: int, device_id: int, name: str) -> None:
    gpu = Gpu()
    with pytest.raises(UnsupportedError, match=f"device {name}"):
        c_data.import_array(gpu.device_pair(device_type, device_id))
    gc.collect()
    assert gpu.released == 1


def test_an_event_to_wait_for_is_refused() -> None:
    gpu = Gpu()
    with pytest.raises(UnsupportedError, match="CUDA_HOST:0 has a synchronization event"):
        c_data.import_array(gpu.device_pair(3, 0, 4096))
    gc.collect()
    assert gpu.released == 1


def test_a_stream_of_another_device_is_refused_and_stays_where_it_is() -> None:
    exported, alive = watched()
    batch = bs.RecordBatch.from_arrays([exported], ["a"])
    del exported
    capsule = batch.__arrow_c_device_stream__()
    words = c_abi.DeviceStreamStruct.from_address(c_abi.capsule_pointer(capsule, c_abi.DEVICE_STREAM_CAPSULE))
    words[0] = 2
    with pytest.raises(UnsupportedError, match="device CUDA"):
        c_data.import_table(capsule)
    words[0] = c_device.CPU_FIELD
    assert c_data.import_table(capsule).num_rows == 1000
    del capsule, batch
    gc.collect()
    assert alive() is None


def test_an_array_of_another_device_ends_its_stream() -> None:
    gpu = Gpu()
    made = c_abi.DeviceArrayStruct.from_address(
        c_abi.capsule_pointer(gpu.device_pair(2)[1], c_abi.DEVICE_ARRAY_CAPSULE)
    )
    get_next = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(
        lambda _, out: 0 if ctypes.memmove(out, ctypes.addressof(made), 128) else 1
    )
    column = bs.table({"": [1]})[""]
    capsule = column.__arrow_c_device_stream__()
    words = c_abi.DeviceStreamStruct.from_address(c_abi.capsule_pointer(capsule, c_abi.DEVICE_STREAM_CAPSULE))
    words[1 + c_abi.GET_NEXT] = c_abi.function_address(get_next)
    with pytest.raises(UnsupportedError, match="CUDA:0"):
        c_data.import_chunked(capsule)
    gc.collect()
    assert gpu.released == 1


def test_device_capsules_and_streams_that_nobody_reads_are_released() -> None:
    exported, alive = watched()
    batch = bs.RecordBatch.from_arrays([exported], ["a"])
    untaken = [exported.__arrow_c_device_array__(), batch.__arrow_c_device_stream__(), batch.__arrow_c_device_array__()]
    _, half = c_data.import_stream(c_data.export_device_stream(batch.schema, [batch, batch]))
    first = next(half)
    foreign = pa.array(OnDevice(exported))
    del exported, batch, untaken, half
    gc.collect()
    assert first.column(0)[7] == foreign[7].as_py() == 7
    del first
    assert alive() is not None
    del foreign
    gc.collect()
    assert alive() is None


def test_capsules_of_another_kind_are_no_arrays() -> None:
    schema, array = bs.array([1]).__arrow_c_device_array__()
    for wrong in ((array, schema), (schema, schema), (schema, bs.table({"a": [1]}).__arrow_c_device_stream__())):
        with pytest.raises(DataTypeError, match="capsule"):
            c_data.import_array(wrong)
    with pytest.raises(DataTypeError, match="arrow_array_stream"):
        c_data.import_table(array)

"""The C device interface: exported arrays are in CPU memory, imported ones in any memory that the CPU can read."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from typing import Any

import nanoarrow.device
import pyarrow as pa
import pytest

import bowstring as bs
from bowstring.arrays.array import import_array
from bowstring.arrays.chunked_array import import_chunked_array
from bowstring.arrays.record_batch import import_stream
from bowstring.arrays.table import import_table
from bowstring.errors import InvalidDataError, TypeMismatchError, UnsupportedError
from bowstring.interop import c_data, c_device
from bowstring.memory import c_abi
from tests.interop.c_producer import Producer
from tests.interop.samples import ARRAYS, nested, plain
from tests.interop.test_lifetime import assert_no_leaks, tracked_array

__all__ = ["assert_no_leaks"]


class DeviceProtocolOnly:
    """Has only the device methods of another object."""

    def __init__(self, source: Any) -> None:
        self.source = source

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__arrow_c_device_"):
            return getattr(self.source, name)
        raise AttributeError(name)


@pytest.mark.parametrize("name", plain() | nested())
def test_a_device_array_is_imported_from_and_exported_to_pyarrow(name: str) -> None:
    foreign = ARRAYS[name]
    exported = bs.array(DeviceProtocolOnly(foreign))
    exported.validate(full=True)
    back = pa.array(DeviceProtocolOnly(exported))
    assert back.type.equals(foreign.type, check_metadata=True)
    assert back.equals(foreign)


def test_a_record_batch_survives_a_round_trip_as_a_device_array() -> None:
    foreign = pa.record_batch({"a": [1, None], "b": ["x", "y"]}).replace_schema_metadata({"k": "v"})
    exported = bs.record_batch(DeviceProtocolOnly(foreign))
    assert exported.to_pydict() == foreign.to_pydict()
    assert pa.record_batch(DeviceProtocolOnly(exported)).equals(foreign, check_metadata=True)


def test_exported_device_arrays_are_on_the_cpu_and_have_no_event() -> None:
    _, capsule = bs.array([1, 2]).__arrow_c_device_array__()
    fields = c_abi.DeviceArrayStruct.from_address(c_abi.capsule_pointer(capsule, c_abi.DEVICE_ARRAY_CAPSULE))
    assert ctypes.sizeof(fields) == 128
    assert fields[c_abi.DEVICE_ID] == -1
    assert fields[c_abi.DEVICE_TYPE] & 0xFFFFFFFF == c_device.CPU
    assert fields[c_abi.SYNC_EVENT :] == [0, 0, 0, 0]
    assert nanoarrow.device.c_device_array(DeviceProtocolOnly(bs.array([1, 2]))).device_type_id == c_device.CPU


def test_tables_and_chunked_arrays_stream_from_the_cpu() -> None:
    table = bs.concat_tables([bs.table({"a": [1, None]}), bs.table({"a": [3]})])
    capsule = table.__arrow_c_device_stream__()
    fields = c_abi.DeviceStreamStruct.from_address(c_abi.capsule_pointer(capsule, c_abi.DEVICE_STREAM_CAPSULE))
    assert ctypes.c_int32.from_buffer(fields).value == c_device.CPU
    assert import_table(capsule) == table
    assert bs.table(DeviceProtocolOnly(table)) == table
    assert bs.array(DeviceProtocolOnly(table["a"])).to_pylist() == [1, None, 3]
    assert bs.table(DeviceProtocolOnly(table.to_batches()[0])).to_pydict() == {"a": [1, None]}


def test_a_failing_device_stream_has_an_error_message() -> None:
    batch = bs.record_batch({"a": [1]})

    def failing() -> Iterator[bs.RecordBatch]:
        yield batch
        raise OSError("the disk is gone")

    _, batches = import_stream(c_data.export_stream(batch.schema, failing(), device_options={}))
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


class DeviceProducer(Producer):
    """Creates device arrays with any device type, ID and event."""

    def device_pair(self, device_type: int, device_id: int = 0, sync_event: int = 0) -> tuple[object, object]:
        fields = c_abi.ArrayStruct.from_address(self.array(2, [0, self.values([5, 6])]))
        row = self._row([*fields, device_id, device_type, sync_event, -1, -1, -1])
        return self.capsule(self.schema(b"l"), c_abi.SCHEMA_CAPSULE), self.capsule(row, c_abi.DEVICE_ARRAY_CAPSULE)


@pytest.mark.parametrize("device_type", [c_device.CPU, 3, 11])
def test_memory_that_the_cpu_can_read_is_imported(device_type: int) -> None:
    producer = DeviceProducer()
    array = import_array(producer.device_pair(device_type))
    assert array.to_pylist() == [5, 6]
    assert producer.released == 0
    del array
    gc.collect()
    assert producer.released == 1


@pytest.mark.parametrize(
    ("device_type", "device_id", "name"),
    [(2, 3, "CUDA:3"), (13, 0, "CUDA_MANAGED:0"), (10, -1, "ROCM, which"), (99, 1, "of unknown type 99:1")],
)
def test_memory_of_another_device_is_rejected_by_name_and_released(device_type: int, device_id: int, name: str) -> None:
    producer = DeviceProducer()
    with pytest.raises(UnsupportedError, match=f"device {name}"):
        import_array(producer.device_pair(device_type, device_id))
    gc.collect()
    assert producer.released == 1


def test_a_device_array_with_an_event_is_rejected() -> None:
    producer = DeviceProducer()
    with pytest.raises(UnsupportedError, match="CUDA_HOST:0 has a synchronization event"):
        import_array(producer.device_pair(3, 0, 4096))
    gc.collect()
    assert producer.released == 1


def test_a_stream_of_another_device_is_rejected_and_not_consumed() -> None:
    exported, alive = tracked_array()
    batch = bs.RecordBatch.from_arrays([exported], ["a"])
    del exported
    capsule = batch.__arrow_c_device_stream__()
    fields = c_abi.DeviceStreamStruct.from_address(c_abi.capsule_pointer(capsule, c_abi.DEVICE_STREAM_CAPSULE))
    fields[0] = 2
    with pytest.raises(UnsupportedError, match="device CUDA"):
        import_table(capsule)
    fields[0] = c_device.CPU_FIELD
    assert import_table(capsule).num_rows == 1000
    del capsule, batch
    gc.collect()
    assert alive() is None


def test_an_array_of_another_device_ends_its_stream() -> None:
    producer = DeviceProducer()
    device_array = c_abi.DeviceArrayStruct.from_address(
        c_abi.capsule_pointer(producer.device_pair(2)[1], c_abi.DEVICE_ARRAY_CAPSULE)
    )
    get_next = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(
        lambda _, out: 0 if ctypes.memmove(out, ctypes.addressof(device_array), 128) else 1
    )
    column = bs.table({"": [1]})[""]
    capsule = column.__arrow_c_device_stream__()
    fields = c_abi.DeviceStreamStruct.from_address(c_abi.capsule_pointer(capsule, c_abi.DEVICE_STREAM_CAPSULE))
    fields[1 + c_abi.GET_NEXT] = c_abi.function_address(get_next)
    with pytest.raises(UnsupportedError, match="CUDA:0"):
        import_chunked_array(capsule)
    gc.collect()
    assert producer.released == 1


def test_unused_device_capsules_and_streams_are_released() -> None:
    exported, alive = tracked_array()
    batch = bs.RecordBatch.from_arrays([exported], ["a"])
    unconsumed = [
        exported.__arrow_c_device_array__(),
        batch.__arrow_c_device_stream__(),
        batch.__arrow_c_device_array__(),
    ]
    _, half = import_stream(c_data.export_stream(batch.schema, [batch, batch], device_options={}))
    first = next(half)
    foreign = pa.array(DeviceProtocolOnly(exported))
    del exported, batch, unconsumed, half
    gc.collect()
    assert first.column(0)[7] == foreign[7].as_py() == 7
    del first
    assert alive() is not None
    del foreign
    gc.collect()
    assert alive() is None


def test_capsules_of_another_kind_are_rejected() -> None:
    schema, array = bs.array([1]).__arrow_c_device_array__()
    for wrong in ((array, schema), (schema, schema), (schema, bs.table({"a": [1]}).__arrow_c_device_stream__())):
        with pytest.raises(TypeMismatchError, match="capsule"):
            import_array(wrong)
    with pytest.raises(TypeMismatchError, match="arrow_array_stream"):
        import_table(array)

"""The transport `cuda+unix` on a GPU: exported memory, data sets, lifetimes, and another process. Skips without one."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import bowstring as bs
from bowstring.errors import InvalidArgumentError, ProtocolError, ResourceError
from bowstring.interop.device_arrays import import_device_array, to_host
from bowstring.memory.device import CUDA as CUDA_TYPE, DeviceMemory
from bowstring.memory.region import Region
from bowstring.sharing import Server, device_table
from bowstring.sharing.device_tables import DeviceTable
from bowstring_networks.cuda import driver
from bowstring_networks.cuda.memory import CudaExporter, CudaRemoteHandle, RegisteredCudaMemory, RemoteCudaMemory
from bowstring_networks.cuda.transport import CUDA, CudaOptions, CudaTransport
from bowstring_testing.transport_conformance import CONTENT, ExportedMemoryConformance, TransportConformance
from networks.tests.cuda.cuda_arrays import CudaArray, needs_gpu, upload
from tests.polling import wait_until
from tests.transports.conformance import StreamConformance

pytestmark = needs_gpu

NUM_ROWS = 10_000
TEXT = [None if i % 7 == 0 else f"row {i}" for i in range(NUM_ROWS)]
OPTIONS = CudaOptions(shares_memory=True, registered_bytes=1 << 23)

CLIENT = """
import gc, sys
import bowstring as bs
from bowstring.errors import InvalidArgumentError
from bowstring.interop.device_arrays import import_device_array, to_host
from bowstring_networks.cuda.transport import CUDA, CudaOptions
CUDA.configure(CudaOptions(shares_memory=True))
with bs.connect(sys.argv[1]) as dataset:
    table = dataset.read_all()
    again = dataset.read_all()
batch = table.to_batches()[0]
number = batch["number"]
assert number.__dlpack_device__() == (2, 0)
for column in (number, batch["text"], again["number"]):
    try:
        column.to_pylist()
    except InvalidArgumentError:
        continue
    raise AssertionError("memory of the GPU was read by the CPU")
# The bytes, by DLPack and cuMemcpyDtoH.
assert to_host(import_device_array(number)).to_numpy().tolist() == list(range(len(number)))
host = table.to_host()
assert host["number"].to_pylist() == list(range(len(number)))
assert host["text"].to_pylist() == [None if i % 7 == 0 else f"row {i}" for i in range(len(number))]
with bs.connect(sys.argv[1], copy=True) as dataset:
    assert dataset.read_all()["text"].to_pylist() == host["text"].to_pylist()
del table, again, batch, number, column
gc.collect()
print("complete")
"""


class TestCudaMemory(ExportedMemoryConformance):
    transport = CudaTransport(OPTIONS)

    def read_view(self, view: Any, offset_bytes: int, length_bytes: int) -> bytes:
        assert isinstance(view, DeviceMemory)
        return bytes(driver.copy_to_host(view, offset_bytes, length_bytes))


class TestCudaTransport(TransportConformance, StreamConformance):
    transport = CudaTransport(OPTIONS)
    shares_memory = False  # the tests of regions expect memory of the CPU; see above


@pytest.fixture
def server() -> Iterator[Server]:
    CUDA.configure(OPTIONS)
    with Server(scheme="cuda+unix") as server:
        yield server
    CUDA.configure(CudaOptions())


def table() -> DeviceTable:
    return device_table({"number": CudaArray(np.arange(NUM_ROWS)), "text": upload(bs.array(TEXT))})


def test_another_process_reads_a_table_without_copying_it_to_the_cpu(server: Server) -> None:
    uri = server.add("table", table())
    assert uri.startswith("cuda+unix:@bowstring-")
    output = subprocess.run(
        [sys.executable, "-c", CLIENT, uri], capture_output=True, text=True, timeout=120, check=False
    )
    assert (output.stdout.strip(), output.stderr) == ("complete", "")
    wait_until(lambda: server.num_clients == 0)
    assert server.stats().leased_addresses == 0


@pytest.mark.parametrize("package", ["torch", "cupy"])
def test_other_libraries_read_and_publish_columns(server: Server, package: str) -> None:
    library = pytest.importorskip(package)
    created = library.arange(100, device="cuda") * 2 if package == "torch" else library.arange(100) * 2
    uri = server.add("table", device_table({"x": created}))
    with bs.connect(uri) as dataset:
        column = dataset.read_all().to_batches()[0]["x"]
        imported = library.from_dlpack(column)
        assert imported.sum().item() == 9900
        del column, imported


@pytest.mark.parametrize(
    "column",
    [
        bs.array(TEXT),
        bs.array([True, None, False] * 100),
        bs.array([[1, 2], None, [3]] * 100),
        bs.array([{"a": 1, "b": "x"}, None] * 100),
        bs.array([1.5, None, 2.5], bs.float32()),
        bs.array(["x", "y"], bs.large_string()),
    ],
    ids=lambda column: str(column.type),
)
def test_columns_of_the_c_device_interface_are_served(server: Server, column: bs.Array) -> None:
    number = CudaArray(np.arange(len(column)))
    uri = server.add("table", device_table({"column": upload(column), "number": number}))
    with bs.connect(uri) as dataset:
        host = dataset.read_all().to_host()
    assert host.column("column").to_pylist() == column.to_pylist()
    host.validate(full=True)


def test_a_record_batch_of_the_c_device_interface_is_served(server: Server) -> None:
    batch = bs.RecordBatch.from_arrays([upload(bs.array(TEXT)), upload(bs.array(range(NUM_ROWS)))], ["text", "number"])
    with bs.connect(server.add("table", device_table(batch))) as dataset:
        assert dataset.schema == batch.schema
        assert dataset.read_all().to_host()["text"].to_pylist() == TEXT


def test_the_cuda_array_interface_is_imported_without_a_copy() -> None:
    source = CudaArray(np.arange(10, dtype=np.uint16))
    column = import_device_array(source)
    buffer = column.own_buffers[1]
    assert buffer is not None
    assert f"{buffer.address:#x}" == hex(source.allocation.pointer)
    assert to_host(column).to_pylist() == list(range(10))


def test_a_connection_is_kept_until_no_array_is_left(server: Server) -> None:
    uri = server.add("table", table())
    dataset = bs.connect(uri)
    column = dataset.read_all().to_batches()[0]["number"]
    dataset.close()
    assert server.num_clients == 1
    server.remove("table")
    server.add("other", device_table({"number": CudaArray(np.zeros(NUM_ROWS))}))
    with bs.connect(server.uri("other")) as other:
        assert other.read_all().to_host()["number"].to_pylist() == [0.0] * NUM_ROWS
    assert column.to_host().to_pylist() == list(range(NUM_ROWS))
    capsule = column.__dlpack__()
    del column
    gc.collect()
    wait_until(lambda: server.num_clients == 1)  # the other one has left
    del capsule
    gc.collect()
    wait_until(lambda: server.num_clients == 0)


def test_data_sets_in_memory_of_the_cpu_are_sent_as_bytes(server: Server) -> None:
    for num_rows in (3, 100_000):
        uri = server.add(f"{num_rows} rows", bs.table({"x": list(range(num_rows))}))
        with bs.connect(uri) as dataset:
            batch = dataset.read_all().to_batches()[0]
            assert batch["x"].__dlpack_device__() == (1, 0)
            assert batch["x"].to_pylist() == list(range(num_rows))


def test_a_batch_that_does_not_fit_is_sent_as_bytes(server: Server) -> None:
    sizes = [OPTIONS.registered_bytes // 2, OPTIONS.registered_bytes, 100]
    batches = [{"x": CudaArray(np.full(size, number, np.uint8))} for number, size in enumerate(sizes)]
    with bs.connect(server.add("table", device_table(batches))) as dataset:
        received = dataset.to_batches()
        assert [batch["x"].__dlpack_device__()[0] for batch in received] == [2, 1, 2]
        for number, batch in enumerate(received):
            assert np.array_equal(batch["x"].to_host().to_numpy(), np.full(sizes[number], number, np.uint8))


def test_memory_is_freed_after_a_pause(server: Server) -> None:
    with bs.connect(server.add("table", table())) as dataset, driver.pause_frees():
        batches = dataset.to_batches()
        del batches
        gc.collect()
        assert server.stats().leased_addresses > 0
    assert wait_until(lambda: server.stats().leased_addresses == 0)


def test_a_handle_can_t_claim_more_than_its_allocation() -> None:
    registered_memory = RegisteredCudaMemory(0, 1 << 20)
    handle = CudaRemoteHandle.decode(registered_memory.handle)
    assert handle.size_bytes == registered_memory.allocation.size_bytes == driver.ALLOCATION_BYTES
    assert handle.uuid is not None
    claimed = CudaRemoteHandle(handle.ipc_handle, handle.size_bytes + 1, handle.uuid)
    with pytest.raises(ProtocolError, match=f"{handle.size_bytes + 1} bytes of an allocation that has"):
        RemoteCudaMemory(claimed.encode(), 0)
    with pytest.raises(ResourceError, match="can't use the device with the UUID 00"):
        RemoteCudaMemory(CudaRemoteHandle(bytes(64), 1, bytes(16)).encode(), 0)
    assert RemoteCudaMemory(handle.ipc_handle, 0).size_bytes == registered_memory.allocation.size_bytes
    assert (
        RemoteCudaMemory(registered_memory.handle, 0)
        .view_extent(RemoteCudaMemory(registered_memory.handle, 0).find_extent(0))
        .owner
        is registered_memory.allocation
    )


def test_a_handle_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(ResourceError, match="cuda: cuIpcOpenMemHandle: CUDA_ERROR"):
        RemoteCudaMemory(bytes(range(64)), 0)
    with pytest.raises(InvalidArgumentError, match="device 99: this process has"):
        RemoteCudaMemory(bytes(64), 99)


def test_registered_memory_contains_zeros_until_it_is_filled() -> None:
    registered_memory = RegisteredCudaMemory(0, 1 << 20)
    memory = registered_memory.allocation.as_memory(registered_memory.allocation.size_bytes)
    assert not any(driver.copy_to_host(memory, 0, memory.size))
    with Region.copy_of([CONTENT]) as region:
        address = CudaExporter(registered_memory).export(region).address
    assert driver.copy_to_host(memory, address, len(CONTENT)) == CONTENT


def test_every_device_is_found_by_its_uuid() -> None:
    devices = [driver.get_gpu(ordinal) for ordinal in range(driver.count_gpus())]
    assert [driver.gpu_of_uuid(device.uuid) for device in devices] == devices
    assert (devices[0].device.type, devices[0].device.id) == (CUDA_TYPE, 0)
    with pytest.raises(InvalidArgumentError, match="is not an address of CUDA"):
        driver.gpu_of_address(77)

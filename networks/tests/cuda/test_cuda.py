"""The transport `cuda+unix` without a GPU: handles, options, and what is reported if no GPU can be used."""

from __future__ import annotations

import base64
import ctypes
import importlib
import re
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar

import pytest

import bowstring as bs
from bowstring.dissociated.uri import StreamURI
from bowstring.errors import (
    ConnectionLostError,
    InvalidArgumentError,
    MissingExtraError,
    ProtocolError,
    ResourceError,
    UnmetRequirementError,
)
from bowstring.memory.device import CUDA as CUDA_TYPE, Device, DeviceRegion
from bowstring.memory.region import Region
from bowstring.sharing import Server, device_table
from bowstring.sharing.dataset_locations import sort_by_distance
from bowstring.sharing.device_tables import DeviceBatch, DeviceTable
from bowstring.transports.base import DirectionEnded
from bowstring.transports.registry import find_transport
from bowstring.transports.sockets.unix import UNIX
from bowstring.transports.tls import TlsOptions
from bowstring_networks.cuda import driver
from bowstring_networks.cuda.memory import CudaExporter, CudaRemoteHandle
from bowstring_networks.cuda.transport import CUDA, CudaChannel, CudaOptions, CudaTransport
from bowstring_networks.registered_memory import RegisteredHostMemory, RegisteredMemoryExporter
from bowstring_testing.descriptors import assert_descriptors_closed
from networks.tests.cuda.cuda_arrays import needs_no_gpu
from tests.interop.test_device_arrays import DEVICE, POINTER, move_to_device

IPC_HANDLE, UUID = bytes(range(64)), bytes(range(16))
TRANSPORT = CudaTransport(CudaOptions(shares_memory=True))


def has_package() -> bool:
    try:
        importlib.import_module("cuda.bindings.driver")
    except ImportError:
        return False
    return True


needs_package = pytest.mark.skipif(not has_package(), reason="cuda-bindings is not installed")


@pytest.fixture(autouse=True)
def default_options() -> Iterator[None]:
    """The options of a new process, also after a test."""
    CUDA.configure(CudaOptions())
    yield
    CUDA.configure(CudaOptions())


# Handles


def test_a_handle_is_the_ipc_handle_then_size_and_device() -> None:
    handle = CudaRemoteHandle(IPC_HANDLE, 1 << 20, UUID)
    encoded = handle.encode()
    assert encoded == IPC_HANDLE + (1 << 20).to_bytes(8, "little") + UUID + b"bowstrin"
    assert CudaRemoteHandle.decode(encoded) == handle


def test_the_handle_of_another_implementation_has_no_size_and_device() -> None:
    assert CudaRemoteHandle.decode(IPC_HANDLE) == CudaRemoteHandle(IPC_HANDLE, None, None)
    assert CudaRemoteHandle(IPC_HANDLE).encode() == IPC_HANDLE


@pytest.mark.parametrize(
    ("handle", "problem"),
    [
        (b"", "expected 64 bytes, or 96 that end with bowstrin, found 0"),
        (IPC_HANDLE[:-1], "found 63"),
        (IPC_HANDLE + b"\0", "found 65"),
        (CudaRemoteHandle(IPC_HANDLE, 1, UUID).encode()[:-1], "found 95"),
        (CudaRemoteHandle(IPC_HANDLE, 1, UUID).encode()[:-1] + b"!", "found 96"),
        (CudaRemoteHandle(IPC_HANDLE, 1, UUID).encode() + b"bowstrin", "found 104"),
        (CudaRemoteHandle(IPC_HANDLE, 0, UUID).encode(), "expected a size from 1 to 281474976710656, found 0"),
        (CudaRemoteHandle(IPC_HANDLE, (1 << 48) + 1, UUID).encode(), "found 281474976710657"),
        (CudaRemoteHandle(IPC_HANDLE, (1 << 64) - 1, UUID).encode(), "found 18446744073709551615"),
    ],
)
def test_a_malformed_handle_is_rejected(handle: bytes, problem: str) -> None:
    with (
        UNIX.listen() as listener,
        TRANSPORT.dial(listener.address) as channel,
        pytest.raises(ProtocolError, match=problem),
    ):
        TRANSPORT.open_remote_memory(channel, handle)


@needs_package
def test_a_handle_reaches_the_driver_unchanged() -> None:
    # What `Gpu.open_ipc_handle` and `Gpu.export_ipc_handle` do, with the structure of the package.
    package = importlib.import_module("cuda.bindings.driver")
    structure = package.CUipcMemHandle()
    ctypes.memmove(structure.getPtr(), IPC_HANDLE, driver.HANDLE_BYTES)
    assert ctypes.string_at(structure.getPtr(), driver.HANDLE_BYTES) == IPC_HANDLE
    assert package.CU_IPC_HANDLE_SIZE == driver.HANDLE_BYTES


@needs_package
def test_the_package_has_every_function_and_constant() -> None:
    package = importlib.import_module("cuda.bindings.driver")
    functions = set(re.findall(r'"(cu[A-Z]\w+)"', Path(driver.__file__).read_text(encoding="utf-8")))
    assert len(functions) > 15
    for function in functions:
        assert callable(getattr(package, function)), function
    assert int(package.CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) == driver._LAZY_ENABLE_PEER_ACCESS
    assert package.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    names = {package.CUresult(status).name.removeprefix("CUDA_ERROR_") for status in driver._UNUSABLE}
    assert names == {
        "NOT_INITIALIZED",
        "DEINITIALIZED",
        "STUB_LIBRARY",
        "DEVICE_UNAVAILABLE",
        "NO_DEVICE",
        "SYSTEM_NOT_READY",
        "SYSTEM_DRIVER_MISMATCH",
        "COMPAT_NOT_SUPPORTED_ON_DEVICE",
        "UNKNOWN",
    }


# What is reported without the package or a GPU


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(
        MissingExtraError, match=r"cuda-bindings is not installed: pip install 'bowstring-networks\[cuda\]'"
    ):
        TRANSPORT.listen()


@needs_package
@needs_no_gpu
def test_a_server_reports_that_there_is_no_usable_gpu() -> None:
    with pytest.raises(UnmetRequirementError, match=r"^no usable CUDA device: cuInit: "):
        TRANSPORT.listen()


@needs_package
@needs_no_gpu
@pytest.mark.parametrize("handle", [CudaRemoteHandle(IPC_HANDLE), CudaRemoteHandle(IPC_HANDLE, 1 << 20, UUID)])
def test_a_client_reports_that_there_is_no_usable_gpu(handle: CudaRemoteHandle) -> None:
    CUDA.configure(CudaOptions(shares_memory=True))
    with UNIX.listen() as listener:
        uri = str(StreamURI("cuda+unix", listener.address, 1, 2, handle.encode(), (("ticket", "x"),)))
        with pytest.raises(UnmetRequirementError, match=r"^no usable CUDA device: cuInit: "):
            bs.connect(uri)


# Options


def test_the_transport_has_to_be_allowed_at_both_ends() -> None:
    assert not CUDA.settings.shares_memory
    problem = r"CUDA maps memory writable, so peers have to be trusted: allow it with CUDA.configure\("
    with pytest.raises(InvalidArgumentError, match=problem):
        Server(scheme="cuda+unix")
    encoded = base64.b64encode(CudaRemoteHandle(IPC_HANDLE, 1 << 20, UUID).encode()).decode()
    with UNIX.listen() as listener, pytest.raises(InvalidArgumentError, match=problem):
        bs.connect(f"cuda+unix:{listener.address}?want_data=1&free_data=2&remote_handle={encoded}&ticket=x")


@pytest.mark.parametrize("registered_bytes", [0, -1, (1 << 48) + 1])
def test_an_impossible_size_is_rejected(registered_bytes: int) -> None:
    transport = CudaTransport(CudaOptions(shares_memory=True, registered_bytes=registered_bytes))
    with pytest.raises(
        InvalidArgumentError, match=rf"cuda: registered_bytes: expected 1 to 281474976710656, found {registered_bytes}"
    ):
        transport.listen()


def test_tls_is_rejected_by_name() -> None:
    with pytest.raises(InvalidArgumentError, match=r"cuda\+unix: the option tls is not supported"):
        find_transport("cuda+unix", "cuda+unix:@x", tls=TlsOptions())


def test_the_transport_is_registered_and_nearer_than_those_that_copy() -> None:
    assert find_transport("cuda+unix", "cuda+unix:@x") is CUDA
    uris = ["tcp://127.0.0.1:1?want_data=1", "cuda+unix:@a?want_data=1", "ucx://x:1?want_data=1", "unix:@a?want_data=1"]
    assert sort_by_distance(uris) == [uris[3], uris[1], uris[2], uris[0]]
    assert CUDA.address_scope("@bowstring") == UNIX.address_scope("@bowstring")


def test_a_peer_can_t_send_descriptors() -> None:
    with UNIX.listen() as listener, TRANSPORT.dial(listener.address) as channel:
        assert isinstance(channel, CudaChannel)
        assert channel.options.max_regions == 0
        assert channel.exporter is None
        assert TRANSPORT.open_remote_memory(channel, None) is None


def test_a_wrong_address_is_an_error_of_the_unix_socket() -> None:
    with pytest.raises(ConnectionLostError):
        TRANSPORT.dial("@bowstring-no-such-server").close()


class MappedMemory(RegisteredHostMemory):
    """Memory of the CPU in place of a GPU's: which blocks are used again does not depend on where they are."""

    is_mapped_by_clients: ClassVar[bool] = True


@pytest.mark.parametrize("leaves_first", ["client", "server"])
def test_what_a_client_may_read_is_kept_until_it_closes_its_end(leaves_first: str) -> None:
    exporter = RegisteredMemoryExporter(MappedMemory(memoryview(bytearray(64)), 0, "cuda"))
    other = RegisteredMemoryExporter(exporter._registered_memory)
    region, later = Region.copy_of([bytes(64)]), Region.copy_of([bytes(64)])
    with assert_descriptors_closed(), ExitStack() as stack:
        server, client = (stack.enter_context(CudaChannel.from_socket(end)) for end in socket.socketpair())
        assert isinstance(server, CudaChannel)
        server.exporter = exporter  # type: ignore[assignment]
        exporter.export(region)
        if leaves_first == "client":
            client.close()
            while not any(isinstance(event, DirectionEnded) for event in server.progress()):
                pass
        server.close()
        if leaves_first == "server":
            assert any(isinstance(event, DirectionEnded) for event in client.progress()), "it learns that it is over"
            with pytest.raises(ResourceError, match="does not fit"):
                other.export(later)
            client.close()
        assert other.export(later).address == 0


# Tables


def new_device_table(num_rows: int = 3) -> DeviceTable:
    columns = [move_to_device(bs.array(range(num_rows))), move_to_device(bs.array(["a", None, "c"][:num_rows]))]
    batch = bs.RecordBatch.from_arrays(columns, ["x", "text"])
    return DeviceTable(batch.schema, [DeviceBatch(num_rows, columns)], DEVICE)


class HostGpu:
    """Stands for a device whose memory is the host's."""

    def synchronize(self) -> None:
        pass

    def read(self, pointer: int, destination: memoryview) -> None:
        destination[:] = ctypes.string_at(pointer - POINTER, len(destination))


def test_bytes_that_do_not_fit_the_registered_memory_have_zeros_between_the_buffers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(driver, "get_gpu", lambda _: HostGpu())
    exporter = CudaExporter(RegisteredHostMemory(memoryview(bytearray(64)), 0, "cuda"))
    (stored,) = new_device_table().to_parts("name")
    content = bytes(exporter.read(stored.region, 0, stored.size_bytes))
    assert content[:64] == struct.pack("<3q40x", 0, 1, 2)
    assert content[64:66] == b"\5\0"
    assert content[192:] == b"ac" + bytes(62)


def test_a_table_becomes_one_message_over_its_buffers() -> None:
    (stored,) = new_device_table().to_parts("name")
    (message,) = stored.messages
    assert isinstance(stored.region, DeviceRegion)
    assert [(start, buffer.size) for start, buffer in stored.region.buffers] == [(0, 24), (64, 1), (128, 16), (192, 2)]
    assert message.buffers.lengths.tolist() == [0, 24, 1, 16, 2]
    assert message.buffers.addresses.tolist() == [256, 0, 64, 128, 192]
    assert (stored.num_rows, stored.size_bytes, message.body_bytes) == (3, 256, 256)


@pytest.mark.parametrize(
    ("column", "problem"),
    [
        (move_to_device(bs.array(range(5))).slice(1), "column 'x': a slice"),
        (bs.array(["a", "b"]).dictionary_encode(), "column 'x': dictionary<.*decode the dictionary first"),
    ],
)
def test_columns_that_can_t_be_served_are_rejected(column: bs.Array, problem: str) -> None:
    batch = bs.RecordBatch.from_arrays([column], ["x"])
    with pytest.raises(InvalidArgumentError, match=problem):
        DeviceTable(batch.schema, [DeviceBatch(len(column), [column])], DEVICE).to_parts("name")


@pytest.mark.parametrize("source", [{}, {"x": [1]}, {"x": bs.array([1])}, bs.RecordBatch.from_arrays([], [])])
def test_only_columns_on_a_gpu_are_a_table(source: object) -> None:
    with pytest.raises((InvalidArgumentError, bs.errors.UnsupportedError)):
        device_table(source)


def test_columns_of_a_table_have_one_length_and_one_device() -> None:
    class Source:
        def __init__(self, length: int, device: Device) -> None:
            self.column = move_to_device(bs.array([0] * length), device)

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.column.__dlpack_device__()

        def __dlpack__(self, **options: object) -> object:
            return self.column.__dlpack__(max_version=options.get("max_version"))

    zero, one = Device(CUDA_TYPE, 0), Device(CUDA_TYPE, 1)
    table = device_table({"x": Source(3, zero), "y": Source(3, zero)})
    assert ([batch.num_rows for batch in table.batches], table.schema.names, table.device) == ([3], ["x", "y"], zero)
    table = device_table({"x": Source(length, zero)} for length in (3, 1, 5))
    datasets = table.to_parts("name")
    assert [(dataset.num_rows, len(dataset.messages)) for dataset in datasets] == [(3, 1), (1, 1), (5, 1)]
    assert len({dataset.schema for dataset in datasets}) == 1
    assert len({dataset.region for dataset in datasets}) == 3, "exported one by one"
    with pytest.raises(InvalidArgumentError, match="batch 1: expected "):
        device_table([{"x": Source(3, zero)}, {"y": Source(3, zero)}])
    with pytest.raises(InvalidArgumentError, match="expected batches on one device, found cuda:0, cuda:1"):
        device_table([{"x": Source(3, zero)}, {"x": Source(3, one)}])
    with pytest.raises(InvalidArgumentError, match="expected batches on one device, found no batches"):
        device_table([])
    with pytest.raises(InvalidArgumentError, match="found 3 rows on cuda:0, 2 rows on cuda:0"):
        device_table({"x": Source(3, zero), "y": Source(2, zero)})
    with pytest.raises(InvalidArgumentError, match="found 3 rows on cuda:0, 3 rows on cuda:1"):
        device_table({"x": Source(3, zero), "y": Source(3, one)})


def test_a_server_without_cuda_refuses_to_send_a_table_on_a_device() -> None:
    with Server() as server:
        uri = server.add("table", new_device_table())
        for copy in (False, True):
            with pytest.raises(
                InvalidArgumentError, match=r"'table': its memory is on a device: connect to its cuda\+unix URI"
            ):
                bs.connect(uri, copy=copy)
        server.add("other", bs.table({"x": [1]}))
        assert bs.connect(server.uri("other")).read_all()["x"].to_pylist() == [1]


def test_the_package_is_not_imported_until_it_is_needed() -> None:
    program = (
        "import sys, bowstring as bs\n"
        "from bowstring.sharing import device_table, Server\n"
        "with Server() as server:\n"
        "    with bs.connect(server.add('x', bs.table({'x': [1]}))) as dataset:\n"
        "        dataset.read_all()\n"
        "assert 'cuda.bindings' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)

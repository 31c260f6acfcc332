"""«The Arrow C Device data interface»: the structures of the C data interface, and where their buffers are.

What goes out is in the processor's memory and needs no synchronising. What comes in is taken if the processor can read
it: its own memory, and memory of the host that a GPU's driver has pinned.
"""

from __future__ import annotations

import ctypes
import struct

from bowstring.errors import UnsupportedError
from bowstring.interop import c_abi

CPU = 1
"""ARROW_DEVICE_CPU, and kDLCPU of DLPack: the numbers are the same."""
DEVICES = {
    CPU: "CPU",
    2: "CUDA",
    3: "CUDA_HOST",
    4: "OPENCL",
    7: "VULKAN",
    8: "METAL",
    9: "VPI",
    10: "ROCM",
    11: "ROCM_HOST",
    12: "EXT_DEV",
    13: "CUDA_MANAGED",
    14: "ONEAPI",
    15: "WEBGPU",
    16: "HEXAGON",
    17: "MAIA",
    18: "TRAINIUM",
}
"""The names of device types («ArrowDeviceType»; the last two are DLPack's alone)."""
READABLE = frozenset((CPU, 3, 11))
"""The device types whose memory the processor reads as its own."""

(CPU_WORD,) = struct.unpack("=q", struct.pack("=i4x", CPU))
"""The word of a structure that begins with an int32 for the device."""
_OF_THE_CPU = (-1, CPU_WORD, 0, 0, 0, 0)


def on_cpu(block: c_abi.Block) -> c_abi.Block:
    """A settled block that begins with an ArrowArray structure, moved into one that begins with an ArrowDeviceArray."""
    with c_abi.Block() as device:
        device.add([*block.words[: c_abi.DEVICE_ID], *_OF_THE_CPU])
    return device


def check_array(address: int) -> None:
    """Raise `UnsupportedError` where an ArrowDeviceArray structure is not readable by the processor as it is."""
    number = ctypes.c_int32.from_address(address + 8 * c_abi.DEVICE_TYPE).value
    device_id = ctypes.c_int64.from_address(address + 8 * c_abi.DEVICE_ID).value
    check_device(number, device_id)
    if ctypes.c_int64.from_address(address + 8 * c_abi.SYNC_EVENT).value:
        raise UnsupportedError(
            f"an array on {device_name(number, device_id)} comes with an event to wait for, which this version cannot"
        )


def check_stream(address: int) -> None:
    """Raise `UnsupportedError` where an ArrowDeviceArrayStream structure gives arrays of another device."""
    check_device(ctypes.c_int32.from_address(address).value)


def check_device(number: int, device_id: int = -1) -> None:
    """Raise `UnsupportedError`, naming the device, unless the processor reads its memory as its own."""
    if number not in READABLE:
        raise UnsupportedError(
            f"the data is on device {device_name(number, device_id)}; only memory of the host is read "
            f"({', '.join(DEVICES[kind] for kind in sorted(READABLE))}): let its library copy it there"
        )


def device_name(number: int, device_id: int = -1) -> str:
    """A device for a message: its type, and its number where it has one."""
    name = DEVICES.get(number, f"of unknown type {number}")
    return name if device_id < 0 else f"{name}:{device_id}"

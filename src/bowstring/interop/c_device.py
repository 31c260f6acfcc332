"""«The Arrow C Device data interface»: the structures of the C data interface with a device type and device ID.

Exports have no synchronization event: on a device, too, their memory is complete. Imports are accepted if the CPU can
read them: CPU memory, and host memory pinned by a GPU driver; `bowstring.interop.device_arrays` imports CUDA memory.
"""

from __future__ import annotations

import ctypes
import struct

from bowstring.errors import UnsupportedError
from bowstring.memory import c_abi
from bowstring.memory.device import Device

CPU = 1
"""ARROW_DEVICE_CPU, the same value as kDLCPU of DLPack."""
DEVICE_TYPE_NAMES = {
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
"""The names of device types («ArrowDeviceType»; the last two are only in DLPack)."""
CPU_READABLE_TYPES = frozenset((CPU, 3, 11))
"""The device types whose memory the CPU can read."""

(CPU_FIELD,) = struct.unpack("=q", struct.pack("=i4x", CPU))
"""A 64-bit field that starts with an int32 device type."""
_CPU_DEVICE_FIELDS = (-1, CPU_FIELD, 0, 0, 0, 0)
"""The fields after the array: device_id (-1: none), device_type, sync_event (no event), and three reserved ones."""


def to_device_array(block: c_abi.ExportedStructBlock, device: Device | None = None) -> c_abi.ExportedStructBlock:
    """Move the ArrowArray at the start of a block to a new block that starts with an ArrowDeviceArray on a device, by
    default the CPU.
    """
    fields = _CPU_DEVICE_FIELDS if device is None else (device.id, device.type, 0, 0, 0, 0)
    with c_abi.ExportedStructBlock() as device_block:
        device_block.append_fields([*block.fields[: c_abi.DEVICE_ID], *fields])
    return device_block


def check_cpu_readable_array(address: int) -> None:
    """Raise `UnsupportedError` if the CPU can't read an ArrowDeviceArray, or would have to wait for an event."""
    device_type = ctypes.c_int32.from_address(address + 8 * c_abi.DEVICE_TYPE).value
    device_id = ctypes.c_int64.from_address(address + 8 * c_abi.DEVICE_ID).value
    check_cpu_readable_device(device_type, device_id)
    if ctypes.c_int64.from_address(address + 8 * c_abi.SYNC_EVENT).value:
        raise UnsupportedError(
            f"an array on {format_device(device_type, device_id)} has a synchronization event, which is not supported"
        )


def check_cpu_readable_device(device_type: int, device_id: int = -1) -> None:
    """Raise `UnsupportedError`, naming the device, unless the CPU can read its memory."""
    if device_type not in CPU_READABLE_TYPES:
        raise UnsupportedError(
            f"the data is on device {format_device(device_type, device_id)}, which the CPU can't read: copy it to "
            f"{', '.join(DEVICE_TYPE_NAMES[device] for device in sorted(CPU_READABLE_TYPES))}"
        )


def format_device(device_type: int, device_id: int = -1) -> str:
    """Return the name of a device type, and the device ID if it is not negative."""
    name = DEVICE_TYPE_NAMES.get(device_type, f"of unknown type {device_type}")
    return name if device_id < 0 else f"{name}:{device_id}"

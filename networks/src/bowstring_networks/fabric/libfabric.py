"""The C interface of libfabric: loading the library, its structures, constants and functions.

Most calls of libfabric are inline functions of its headers that call through tables of functions in its objects. The
tables and objects are declared here as far as they are used. Structures that libfabric allocates may be longer: later
versions append fields.

Nothing here checks arguments, and libfabric does not either. `bowstring_networks.fabric.endpoint` does.
"""

from __future__ import annotations

import ctypes
import os
import threading
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int, c_size_t, c_ssize_t, c_uint32, c_uint64, c_void_p
from typing import Any

from bowstring.errors import UnmetRequirementError
from bowstring_networks.c_structures import Prototypes, declare_functions, members

LIBRARY = "libfabric.so.1"
# The oldest version that was tested.
_MINIMUM_VERSION = (1, 17)
_ENVIRONMENT = {"FI_OFI_RXM_BUFFER_SIZE": "4352"}
"""Variables that libfabric reads when it is first used, unless the user has set them.

By default ofi_rxm allocates 67 MB for each endpoint, thousands of buffers of 16 KiB. Our frames have at most 4 KiB.
"""

# Numbers of libfabric's headers (rdma/fabric.h, fi_domain.h, fi_endpoint.h, fi_eq.h, fi_errno.h).
MSG = 1 << 1
RMA = 1 << 2
TAGGED = 1 << 3
RECV = 1 << 10
SEND = 1 << 11
REMOTE_READ = 1 << 12
SOURCE = 1 << 57
CONTEXT = 1 << 59
CONTEXT2 = 1 << 52
MR_VIRT_ADDR = 1 << 4
MR_ALLOCATED = 1 << 5
MR_PROV_KEY = 1 << 6
ADDR_UNSPEC = (1 << 64) - 1
EP_RDM = 3
SOCKADDR_IN = 2
SOCKADDR_IN6 = 3
THREAD_SAFE = 1
AV_TABLE = 2
WAIT_NONE = 0
WAIT_FD = 3
CQ_FORMAT_TAGGED = 4
GETWAIT = 5
ENABLE = 6
AGAIN = -11
AVAILABLE_ERROR = -259
"""`-FI_EAVAIL`: an operation has failed; `readerr` returns it."""


class ObjectOperations(ctypes.Structure):
    """`struct fi_ops`."""


class Fid(ctypes.Structure):
    """`struct fid`, with which every object begins."""

    _fields_ = (("fclass", c_size_t), ("context", c_void_p), ("ops", POINTER(ObjectOperations)))


ObjectOperations._fields_ = (
    ("size", c_size_t),
    ("close", CFUNCTYPE(c_int, c_void_p)),
    ("bind", CFUNCTYPE(c_int, c_void_p, c_void_p, c_uint64)),
    ("control", CFUNCTYPE(c_int, c_void_p, c_int, c_void_p)),
)


class TxAttr(ctypes.Structure):
    """`struct fi_tx_attr`."""

    _fields_ = (
        *members(c_uint64, "caps mode op_flags msg_order comp_order"),
        *members(c_size_t, "inject_size size iov_limit rma_iov_limit"),
        ("tclass", c_uint32),
    )


class EpAttr(ctypes.Structure):
    """`struct fi_ep_attr`."""

    _fields_ = (
        ("type", c_int),
        *members(c_uint32, "protocol protocol_version"),
        *members(c_size_t, "max_msg_size msg_prefix_size max_order_raw_size max_order_war_size max_order_waw_size"),
        ("mem_tag_format", c_uint64),
    )


class DomainAttr(ctypes.Structure):
    """`struct fi_domain_attr`."""

    _fields_ = (
        ("domain", c_void_p),
        ("name", c_char_p),
        *members(c_int, "threading control_progress data_progress resource_mgmt av_type mr_mode"),
        ("mr_key_size", c_size_t),
    )


class FabricAttr(ctypes.Structure):
    """`struct fi_fabric_attr`; the names belong to `free`."""

    _fields_ = (*members(c_void_p, "fabric name prov_name"), *members(c_uint32, "prov_version api_version"))


class Info(ctypes.Structure):
    """`struct fi_info`."""


InfoPointer = POINTER(Info)
Info._fields_ = (
    ("next", InfoPointer),
    *members(c_uint64, "caps mode"),
    ("addr_format", c_uint32),
    *members(c_size_t, "src_addrlen dest_addrlen"),
    *members(c_void_p, "src_addr dest_addr handle"),
    ("tx_attr", POINTER(TxAttr)),
    ("rx_attr", c_void_p),
    ("ep_attr", POINTER(EpAttr)),
    ("domain_attr", POINTER(DomainAttr)),
    ("fabric_attr", POINTER(FabricAttr)),
    ("nic", c_void_p),
)


class OpsFabric(ctypes.Structure):
    """`struct fi_ops_fabric`."""

    _fields_ = (
        ("size", c_size_t),
        ("domain", CFUNCTYPE(c_int, c_void_p, InfoPointer, POINTER(c_void_p), c_void_p)),
        ("passive_ep", c_void_p),
        ("eq_open", c_void_p),
        ("wait_open", c_void_p),
        ("trywait", CFUNCTYPE(c_int, c_void_p, POINTER(c_void_p), c_int)),
    )


class FidFabric(ctypes.Structure):
    """`struct fid_fabric`."""

    _fields_ = (("fid", Fid), ("ops", POINTER(OpsFabric)), ("api_version", c_uint32))


class AvAttr(ctypes.Structure):
    """`struct fi_av_attr`."""

    _fields_ = (
        *members(c_int, "type rx_ctx_bits"),
        *members(c_size_t, "count ep_per_node"),
        ("name", c_char_p),
        ("map_addr", c_void_p),
        ("flags", c_uint64),
    )


class CqAttr(ctypes.Structure):
    """`struct fi_cq_attr`."""

    _fields_ = (
        ("size", c_size_t),
        ("flags", c_uint64),
        *members(c_int, "format wait_obj signaling_vector wait_cond"),
        ("wait_set", c_void_p),
    )


class OpsDomain(ctypes.Structure):
    """`struct fi_ops_domain`."""

    _fields_ = (
        ("size", c_size_t),
        ("av_open", CFUNCTYPE(c_int, c_void_p, POINTER(AvAttr), POINTER(c_void_p), c_void_p)),
        ("cq_open", CFUNCTYPE(c_int, c_void_p, POINTER(CqAttr), POINTER(c_void_p), c_void_p)),
        ("endpoint", CFUNCTYPE(c_int, c_void_p, InfoPointer, POINTER(c_void_p), c_void_p)),
    )


class OpsMr(ctypes.Structure):
    """`struct fi_ops_mr`."""

    _fields_ = (
        ("size", c_size_t),
        (
            "reg",
            CFUNCTYPE(
                c_int, c_void_p, c_void_p, c_size_t, c_uint64, c_uint64, c_uint64, c_uint64, POINTER(c_void_p), c_void_p
            ),
        ),
    )


class FidDomain(ctypes.Structure):
    """`struct fid_domain`."""

    _fields_ = (("fid", Fid), ("ops", POINTER(OpsDomain)), ("mr", POINTER(OpsMr)))


class FidMr(ctypes.Structure):
    """`struct fid_mr`."""

    _fields_ = (("fid", Fid), ("mem_desc", c_void_p), ("key", c_uint64))


class OpsAv(ctypes.Structure):
    """`struct fi_ops_av`."""

    _fields_ = (
        ("size", c_size_t),
        ("insert", CFUNCTYPE(c_int, c_void_p, c_char_p, c_size_t, POINTER(c_uint64), c_uint64, c_void_p)),
    )


class FidAv(ctypes.Structure):
    """`struct fid_av`."""

    _fields_ = (("fid", Fid), ("ops", POINTER(OpsAv)))


class CqEntry(ctypes.Structure):
    """`struct fi_cq_tagged_entry`: an operation that succeeded."""

    _fields_ = (
        ("op_context", c_void_p),
        ("flags", c_uint64),
        ("len", c_size_t),
        ("buf", c_void_p),
        *members(c_uint64, "data tag"),
    )


class CqErrorEntry(CqEntry):
    """`struct fi_cq_err_entry`: an operation that failed."""

    _fields_ = (
        ("olen", c_size_t),
        *members(c_int, "err prov_errno"),
        ("err_data", c_void_p),
        ("err_data_size", c_size_t),
    )


class OpsCq(ctypes.Structure):
    """`struct fi_ops_cq`."""

    _fields_ = (
        ("size", c_size_t),
        ("read", CFUNCTYPE(c_ssize_t, c_void_p, POINTER(CqEntry), c_size_t)),
        ("readfrom", c_void_p),
        ("readerr", CFUNCTYPE(c_ssize_t, c_void_p, POINTER(CqErrorEntry), c_uint64)),
    )


class FidCq(ctypes.Structure):
    """`struct fid_cq`."""

    _fields_ = (("fid", Fid), ("ops", POINTER(OpsCq)))


class OpsCm(ctypes.Structure):
    """`struct fi_ops_cm`."""

    _fields_ = (
        ("size", c_size_t),
        ("setname", c_void_p),
        ("getname", CFUNCTYPE(c_int, c_void_p, c_void_p, POINTER(c_size_t))),
    )


class Iovec(ctypes.Structure):
    """`struct iovec`."""

    _fields_ = (("base", c_void_p), ("length", c_size_t))


# The arguments of sending or receiving a buffer, and of a tag or remote address.
_BufferFunction = CFUNCTYPE(c_ssize_t, c_void_p, c_void_p, c_size_t, c_void_p, c_uint64, c_void_p)
_AddressedFunction = CFUNCTYPE(
    c_ssize_t, c_void_p, c_void_p, c_size_t, c_void_p, c_uint64, c_uint64, c_uint64, c_void_p
)
_VectorFunction = CFUNCTYPE(
    c_ssize_t, c_void_p, POINTER(Iovec), POINTER(c_void_p), c_size_t, c_uint64, c_uint64, c_void_p
)


class OpsMsg(ctypes.Structure):
    """`struct fi_ops_msg`."""

    _fields_ = (
        ("size", c_size_t),
        ("recv", _BufferFunction),
        *members(c_void_p, "recvv recvmsg"),
        ("send", _BufferFunction),
    )


class OpsRma(ctypes.Structure):
    """`struct fi_ops_rma`."""

    _fields_ = (("size", c_size_t), ("read", _AddressedFunction))


class OpsTagged(ctypes.Structure):
    """`struct fi_ops_tagged`."""

    _fields_ = (
        ("size", c_size_t),
        ("recv", _AddressedFunction),
        *members(c_void_p, "recvv recvmsg send"),
        ("sendv", _VectorFunction),
    )


class FidEp(ctypes.Structure):
    """`struct fid_ep`."""

    _fields_ = (
        ("fid", Fid),
        ("ops", c_void_p),
        ("cm", POINTER(OpsCm)),
        ("msg", POINTER(OpsMsg)),
        ("rma", POINTER(OpsRma)),
        ("tagged", POINTER(OpsTagged)),
    )


_PROTOTYPES: Prototypes = {
    "fi_version": (c_uint32, ()),
    "fi_getinfo": (c_int, (c_uint32, c_char_p, c_char_p, c_uint64, InfoPointer, POINTER(InfoPointer))),
    "fi_freeinfo": (None, (InfoPointer,)),
    "fi_dupinfo": (InfoPointer, (InfoPointer,)),
    "fi_fabric": (c_int, (POINTER(FabricAttr), POINTER(c_void_p), c_void_p)),
    "fi_strerror": (c_char_p, (c_int,)),
}

_libraries: dict[str, Any] = {}
_load_lock = threading.Lock()


def load(path: str | os.PathLike[str] | None = None) -> Any:
    """Return libfabric with typed functions: of the system, or from the library with this path or name.

    Raises `UnmetRequirementError` if it cannot be loaded, or is older than 1.17.
    """
    name = LIBRARY if path is None else os.fspath(path)
    with _load_lock:
        if name not in _libraries:
            _libraries[name] = _load_library(name)
        return _libraries[name]


def version(library: Any) -> tuple[int, int]:
    """Return the version of a loaded library: major, minor."""
    number: int = library.fi_version()
    return number >> 16, number & 0xFFFF


def error_text(library: Any, code: int) -> str:
    """Return libfabric's description of an error code, positive or negative, and the code."""
    text: bytes | None = library.fi_strerror(abs(code))
    return f"{(text or b'unknown error').decode(errors='replace')} ({abs(code)})"


def _load_library(name: str) -> Any:
    for variable, value in _ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        raise UnmetRequirementError(
            f"fabric: the system library libfabric cannot be loaded: {error}: install it, such as with "
            "`apt install libfabric1`"
        ) from None
    declare_functions(library, _PROTOTYPES, f"fabric: {name}", "libfabric")
    if version(library) < _MINIMUM_VERSION:
        number = ".".join(map(str, version(library)))
        raise UnmetRequirementError(f"fabric: {name} is version {number}: 1.17 or later is needed")
    return library

"""The C interface of libucp: loading the library, its structures, constants and functions.

`load` returns the library of the wheel `libucx-cu12` (the extra `ucx`) or of a path. Structures have the layout of UCX
1.22. Later versions only append fields, and each structure has a mask of the fields in use, so the library may be older
(1.12 or later) or newer.

Nothing here checks arguments, and libucp does not either: a wrong one ends the process. `bowstring_networks.ucx.ucp`
does.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int, c_int8, c_size_t, c_uint, c_uint32, c_uint64, c_void_p
from enum import IntEnum, IntFlag
from pathlib import Path
from typing import Any

from bowstring.errors import InvalidArgumentError, MissingExtraError, UnmetRequirementError
from bowstring_networks.c_structures import Prototypes, declare_functions, members

_WHEEL = "libucx"
_WHEEL_LIBRARIES = ("libucs.so.0", "libuct.so.0", "libucp.so.0")
_MINIMUM_VERSION = (1, 12)

Status = c_int8
"""`ucs_status_t`, a packed enumeration of one byte."""
Handle = c_void_p


class StatusCode(IntEnum):
    """The codes of `ucs_status_t` with a meaning of their own here."""

    OK = 0
    IN_PROGRESS = 1
    NO_RESOURCE = -2
    NO_MEMORY = -4
    INVALID_PARAMETER = -5
    UNREACHABLE = -6
    MESSAGE_TRUNCATED = -9
    BUSY = -15
    CANCELED = -16
    SHARED_MEMORY_SEGMENT = -17
    TIMED_OUT = -20
    UNSUPPORTED = -22
    REJECTED = -23
    NOT_CONNECTED = -24
    CONNECTION_RESET = -25
    ENDPOINT_TIMEOUT = -80


LAST_ERROR = -100
"""Addresses from this value, as an unsigned pointer, are status codes: `UCS_PTR_IS_ERR`."""


class Feature(IntFlag):
    """What a context can do: `UCP_FEATURE_*`."""

    TAG = 1 << 0
    RMA = 1 << 1
    WAKEUP = 1 << 4
    ACTIVE_MESSAGES = 1 << 6


class ErrorMode(IntEnum):
    """`ucp_err_handling_mode_t`: whether the loss of a peer is reported and pending requests end."""

    NONE = 0
    PEER = 1


# Bits and numbers of libucp's headers (ucp_def.h, ucp.h), with their names there, without the prefix `UCP_`.
PARAM_FEATURES = 1 << 0
PARAM_MT_WORKERS_SHARED = 1 << 5
WORKER_PARAM_THREAD_MODE = 1 << 0
WORKER_PARAM_FLAGS = 1 << 5
WORKER_PARAM_CLIENT_ID = 1 << 8
WORKER_FLAG_IGNORE_REQUEST_LEAK = 1 << 0
THREAD_MODE_SERIALIZED = 1
LISTENER_PARAM_SOCK_ADDR = 1 << 0
LISTENER_PARAM_CONN_HANDLER = 1 << 2
LISTENER_ATTR_SOCKADDR = 1 << 0
CONN_REQUEST_ATTR_CLIENT_ADDR = 1 << 0
CONN_REQUEST_ATTR_CLIENT_ID = 1 << 1
EP_PARAM_ERR_HANDLING_MODE = 1 << 1
EP_PARAM_ERR_HANDLER = 1 << 2
EP_PARAM_SOCK_ADDR = 1 << 4
EP_PARAM_FLAGS = 1 << 5
EP_PARAM_CONN_REQUEST = 1 << 6
EP_FLAG_CLIENT_SERVER = 1 << 0
EP_FLAG_SEND_CLIENT_ID = 1 << 2
EP_CLOSE_FORCE = 1 << 0
MEM_MAP_PARAM_LENGTH = 1 << 1
MEM_MAP_PARAM_FLAGS = 1 << 2
MEM_MAP_PARAM_PROT = 1 << 3
MEM_MAP_ALLOCATE = 1 << 1
MEM_MAP_PROT_LOCAL_READ = 1 << 0
MEM_MAP_PROT_LOCAL_WRITE = 1 << 1
MEM_MAP_PROT_REMOTE_READ = 1 << 8
MEM_ATTR_ADDRESS = 1 << 0
AM_HANDLER_ID = 1 << 0
AM_HANDLER_CB = 1 << 2
AM_HANDLER_ARG = 1 << 3
AM_RECV_RENDEZVOUS = 1 << 17
OP_CALLBACK = 1 << 1
OP_USER_DATA = 1 << 2
OP_DATATYPE = 1 << 3
OP_FLAGS = 1 << 4
OP_MEMORY_TYPE = 1 << 6
DATATYPE_BYTES = 1 << 3
"""`ucp_dt_make_contig(1)`."""
DATATYPE_IOV = 2
MEMORY_TYPE_HOST = 0

ConnectionCallback = CFUNCTYPE(None, c_void_p, c_void_p)
"""`ucp_listener_conn_callback_t(conn_request, arg)`."""
ErrorCallback = CFUNCTYPE(None, c_void_p, c_void_p, Status)
"""`ucp_err_handler_cb_t(arg, ep, status)`."""


class Params(ctypes.Structure):
    """`ucp_params_t`."""

    _fields_ = (
        *members(c_uint64, "field_mask features"),
        ("request_size", c_size_t),
        *members(c_void_p, "request_init request_cleanup"),
        ("tag_sender_mask", c_uint64),
        ("mt_workers_shared", c_int),
        *members(c_size_t, "estimated_num_eps estimated_num_ppn"),
        ("name", c_char_p),
        ("node_local_id", c_size_t),
    )


class WorkerParams(ctypes.Structure):
    """`ucp_worker_params_t`."""

    _fields_ = (
        ("field_mask", c_uint64),
        ("thread_mode", c_int),
        ("cpu_mask", c_uint64 * 16),
        ("events", c_uint),
        ("user_data", c_void_p),
        ("event_fd", c_int),
        ("flags", c_uint64),
        ("name", c_char_p),
        ("am_alignment", c_size_t),
        ("client_id", c_uint64),
    )


class UcsSocketAddress(ctypes.Structure):
    """`ucs_sock_addr_t`."""

    _fields_ = (("addr", c_void_p), ("addrlen", c_uint32))


class SocketStorage(ctypes.Structure):
    """`struct sockaddr_storage`, aligned as its longest member."""

    _fields_ = (("words", c_uint64 * 16),)


class CallbackWithArgument(ctypes.Structure):
    """A callback and its argument: `ucp_listener_conn_handler_t`, `ucp_err_handler_t`."""

    _fields_ = (("cb", c_void_p), ("arg", c_void_p))


class ListenerParams(ctypes.Structure):
    """`ucp_listener_params_t`."""

    _fields_ = (
        ("field_mask", c_uint64),
        ("sockaddr", UcsSocketAddress),
        *members(CallbackWithArgument, "accept_handler conn_handler"),
    )


class ListenerAttr(ctypes.Structure):
    """`ucp_listener_attr_t`."""

    _fields_ = (("field_mask", c_uint64), ("sockaddr", SocketStorage))


class ConnRequestAttr(ctypes.Structure):
    """`ucp_conn_request_attr_t`."""

    _fields_ = (("field_mask", c_uint64), ("client_address", SocketStorage), ("client_id", c_uint64))


class EpParams(ctypes.Structure):
    """`ucp_ep_params_t`."""

    _fields_ = (
        ("field_mask", c_uint64),
        ("address", c_void_p),
        ("err_mode", c_int),
        ("err_handler", CallbackWithArgument),
        ("user_data", c_void_p),
        ("flags", c_uint),
        ("sockaddr", UcsSocketAddress),
        ("conn_request", c_void_p),
        ("name", c_char_p),
        ("local_sockaddr", UcsSocketAddress),
    )


class MemMapParams(ctypes.Structure):
    """`ucp_mem_map_params_t`."""

    _fields_ = (
        ("field_mask", c_uint64),
        ("address", c_void_p),
        ("length", c_size_t),
        *members(c_uint, "flags prot"),
        ("memory_type", c_int),
        ("exported_memh_buffer", c_void_p),
    )


class MemAttr(ctypes.Structure):
    """`ucp_mem_attr_t`."""

    _fields_ = (("field_mask", c_uint64), ("address", c_void_p), ("length", c_size_t), ("mem_type", c_int))


class TagRecvInfo(ctypes.Structure):
    """`ucp_tag_recv_info_t`."""

    _fields_ = (("sender_tag", c_uint64), ("length", c_size_t))


class AmRecvParam(ctypes.Structure):
    """`ucp_am_recv_param_t`."""

    _fields_ = (("recv_attr", c_uint64), ("reply_ep", c_void_p))


class AmHandlerParam(ctypes.Structure):
    """`ucp_am_handler_param_t`."""

    _fields_ = (("field_mask", c_uint64), ("id", c_uint), ("flags", c_uint32), ("cb", c_void_p), ("arg", c_void_p))


class RequestParam(ctypes.Structure):
    """`ucp_request_param_t`."""

    _fields_ = (
        *members(c_uint32, "op_attr_mask flags"),
        *members(c_void_p, "request cb"),
        ("datatype", c_uint64),
        *members(c_void_p, "user_data reply_buffer"),
        ("memory_type", c_int),
        *members(c_void_p, "recv_info memh"),
        ("remote_datatype", c_uint64),
        ("remote", c_void_p),
        ("remote_count", c_size_t),
    )


ActiveMessageCallback = CFUNCTYPE(Status, c_void_p, c_void_p, c_size_t, c_void_p, c_size_t, POINTER(AmRecvParam))
"""`ucp_am_recv_callback_t(arg, header, header_length, data, length, param)`."""

# Pointers to requests (`ucs_status_ptr_t`) are unsigned integers here: the highest addresses are status codes.
_REQUEST = c_uint64
SendCallback = CFUNCTYPE(None, _REQUEST, Status, c_void_p)
"""`ucp_send_nbx_callback_t(request, status, user_data)`."""
TagReceiveCallback = CFUNCTYPE(None, _REQUEST, Status, POINTER(TagRecvInfo), c_void_p)
"""`ucp_tag_recv_nbx_callback_t(request, status, tag_info, user_data)`."""
ActiveMessageDataCallback = CFUNCTYPE(None, _REQUEST, Status, c_size_t, c_void_p)
"""`ucp_am_recv_data_nbx_callback_t(request, status, length, user_data)`."""
_PARAM = POINTER(RequestParam)
_PROTOTYPES: Prototypes = {
    "ucp_get_version": (None, (POINTER(c_uint), POINTER(c_uint), POINTER(c_uint))),
    "ucp_init_version": (Status, (c_uint, c_uint, POINTER(Params), Handle, POINTER(Handle))),
    "ucp_cleanup": (None, (Handle,)),
    "ucp_config_read": (Status, (c_char_p, c_char_p, POINTER(Handle))),
    "ucp_config_modify": (Status, (Handle, c_char_p, c_char_p)),
    "ucp_config_release": (None, (Handle,)),
    "ucp_worker_create": (Status, (Handle, POINTER(WorkerParams), POINTER(Handle))),
    "ucp_worker_destroy": (None, (Handle,)),
    "ucp_worker_progress": (c_uint, (Handle,)),
    "ucp_worker_get_efd": (Status, (Handle, POINTER(c_int))),
    "ucp_worker_arm": (Status, (Handle,)),
    "ucp_worker_set_am_recv_handler": (Status, (Handle, POINTER(AmHandlerParam))),
    "ucp_listener_create": (Status, (Handle, POINTER(ListenerParams), POINTER(Handle))),
    "ucp_listener_query": (Status, (Handle, POINTER(ListenerAttr))),
    "ucp_listener_reject": (Status, (Handle, Handle)),
    "ucp_listener_destroy": (None, (Handle,)),
    "ucp_conn_request_query": (Status, (Handle, POINTER(ConnRequestAttr))),
    "ucp_ep_create": (Status, (Handle, POINTER(EpParams), POINTER(Handle))),
    "ucp_ep_close_nbx": (_REQUEST, (Handle, _PARAM)),
    "ucp_ep_flush_nbx": (_REQUEST, (Handle, _PARAM)),
    "ucp_tag_send_nbx": (_REQUEST, (Handle, c_void_p, c_size_t, c_uint64, _PARAM)),
    "ucp_tag_probe_nb": (Handle, (Handle, c_uint64, c_uint64, c_int, POINTER(TagRecvInfo))),
    "ucp_tag_msg_recv_nbx": (_REQUEST, (Handle, c_void_p, c_size_t, Handle, _PARAM)),
    "ucp_am_send_nbx": (_REQUEST, (Handle, c_uint, c_void_p, c_size_t, c_void_p, c_size_t, _PARAM)),
    "ucp_am_recv_data_nbx": (_REQUEST, (Handle, c_void_p, c_void_p, c_size_t, _PARAM)),
    "ucp_am_data_release": (None, (Handle, c_void_p)),
    "ucp_mem_map": (Status, (Handle, POINTER(MemMapParams), POINTER(Handle))),
    "ucp_mem_query": (Status, (Handle, POINTER(MemAttr))),
    "ucp_mem_unmap": (Status, (Handle, Handle)),
    "ucp_rkey_pack": (Status, (Handle, Handle, POINTER(Handle), POINTER(c_size_t))),
    "ucp_rkey_buffer_release": (None, (Handle,)),
    "ucp_ep_rkey_unpack": (Status, (Handle, c_void_p, POINTER(Handle))),
    "ucp_rkey_ptr": (Status, (Handle, c_uint64, POINTER(Handle))),
    "ucp_rkey_destroy": (None, (Handle,)),
    "ucp_get_nbx": (_REQUEST, (Handle, c_void_p, c_size_t, c_uint64, Handle, _PARAM)),
    "ucp_request_cancel": (None, (Handle, c_uint64)),
    "ucp_request_free": (None, (c_uint64,)),
    "ucs_status_string": (c_char_p, (Status,)),
}

_libraries: dict[str, Any] = {}
_load_lock = threading.Lock()


def load(path: str | os.PathLike[str] | None = None) -> Any:
    """Return libucp with typed functions: from the wheel, or from the library with this path or name.

    Raises `MissingExtraError` without the wheel, `UnmetRequirementError` if a library cannot be loaded or is older
    than 1.12, and `InvalidArgumentError` if this process already uses another one: their symbols would be mixed.
    """
    name = "" if path is None else os.fspath(path)
    with _load_lock:
        if name not in _libraries:
            if _libraries:
                raise InvalidArgumentError(
                    f"UCX: this process already uses {_describe_library(next(iter(_libraries)))}"
                )
            _libraries[name] = _load_library(name)
        return _libraries[name]


def version(library: Any) -> tuple[int, int, int]:
    """Return the version of a loaded library: major, minor, release."""
    major, minor, release = c_uint(), c_uint(), c_uint()
    library.ucp_get_version(ctypes.byref(major), ctypes.byref(minor), ctypes.byref(release))
    return major.value, minor.value, release.value


def status_text(library: Any, code: int) -> str:
    """Return libucp's description of a status code, and the code."""
    text: bytes | None = library.ucs_status_string(code)
    return f"{(text or b'unknown status').decode(errors='replace')} ({code})"


def _describe_library(name: str) -> str:
    return name or "the wheel libucx-cu12"


def _load_library(name: str) -> Any:
    # The wheel's libraries are loaded in the order of their dependencies, so that none is looked up in the system.
    names = [name] if name else [str(_find_wheel_folder() / file) for file in _WHEEL_LIBRARIES]
    with _quiet_log():
        try:
            library = [ctypes.CDLL(file, ctypes.RTLD_LOCAL) for file in names][-1]
        except OSError as error:
            raise UnmetRequirementError(f"UCX: {_describe_library(name)} cannot be loaded: {error}") from None
    declare_functions(library, _PROTOTYPES, f"UCX: {_describe_library(name)}", "libucp 1.12 or later")
    if version(library)[:2] < _MINIMUM_VERSION:
        number = ".".join(map(str, version(library)))
        raise UnmetRequirementError(f"UCX: {_describe_library(name)} is version {number}: 1.12 or later is needed")
    return library


def _find_wheel_folder() -> Path:
    """Return the folder with the libraries of the wheel, without importing it."""
    package = importlib.util.find_spec(_WHEEL)
    for location in (package.submodule_search_locations or ()) if package else ():
        folder = Path(location) / "lib"
        if (folder / _WHEEL_LIBRARIES[-1]).is_file():
            return folder
    raise MissingExtraError.for_package("libucx-cu12", "ucx", "bowstring-networks")


@contextmanager
def _quiet_log() -> Iterator[None]:
    """Set the option that UCX reads only while it is loaded, unless the user has set it.

    By default UCX writes warnings to standard output, which may be a program's output.
    """
    is_set = "UCX_LOG_LEVEL" in os.environ
    os.environ.setdefault("UCX_LOG_LEVEL", "fatal")
    try:
        yield
    finally:
        if not is_set:
            del os.environ["UCX_LOG_LEVEL"]

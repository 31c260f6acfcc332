"""Contexts of UCP, and memory that peers may read.

A `Context` has any number of workers (`bowstring_networks.ucx.ucp`). It is closed explicitly or at interpreter exit.
After a fork, contexts and all that belongs to them belong to the parent: in the child `close` does nothing, and
everything else raises `ClosedError`. A child that is forked while a context is open cannot use UCX at all.

UCX trusts its peers. With `Feature.RMA`, a peer that is connected over tcp can read and write any address of this
process, because libucp serves such requests in software and does not compare them with the registered memory.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from bowstring.errors import (
    AbortedConnectionError,
    BowstringError,
    ClosedError,
    ConnectionLostError,
    DeadlineError,
    InvalidArgumentError,
    LimitError,
    RefusedConnectionError,
    ResetConnectionError,
    ResourceError,
    UnavailableAddressError,
    UnsupportedError,
)
from bowstring.memory.closable import Closable
from bowstring_networks.ucx import libucp
from bowstring_networks.ucx.arguments import encode_option, read_handle
from bowstring_networks.ucx.libucp import Feature, StatusCode

DEFAULT_FEATURES = Feature.TAG | Feature.ACTIVE_MESSAGES | Feature.WAKEUP
DEFAULT_OPTIONS = {
    # Otherwise endpoints that report the loss of a peer do not use shared memory (UCX before 1.22).
    "MM_ERROR_HANDLING": "y",
    # Segments of System V outlive a process that is killed.
    "TLS": "^sysv",
    # A listener restarts at its port (`UcxListener.accept`).
    "TCP_CM_REUSEADDR": "y",
}
"""Options of libucp that are set unless the environment or the caller sets them, without the prefix `UCX_`."""

_ERRORS: dict[int, Callable[[str], BowstringError]] = {
    StatusCode.NO_RESOURCE: ResourceError,
    StatusCode.NO_MEMORY: ResourceError,
    StatusCode.SHARED_MEMORY_SEGMENT: ResourceError,
    StatusCode.INVALID_PARAMETER: InvalidArgumentError,
    StatusCode.MESSAGE_TRUNCATED: LimitError,
    StatusCode.UNSUPPORTED: UnsupportedError,
    StatusCode.UNREACHABLE: RefusedConnectionError,
    StatusCode.REJECTED: RefusedConnectionError,
    StatusCode.TIMED_OUT: DeadlineError,
    StatusCode.BUSY: UnavailableAddressError,
    StatusCode.CANCELED: AbortedConnectionError,
    StatusCode.NOT_CONNECTED: ResetConnectionError,
    StatusCode.CONNECTION_RESET: ResetConnectionError,
    StatusCode.ENDPOINT_TIMEOUT: ResetConnectionError,
}

_open_contexts: set[Context] = set()
_fork_count = 0
_is_forked_while_open = False
"""Whether this is a child of a fork while a context was open: libucp's thread, which connects, exists in the parent."""


class Context(Closable):
    """A use of libucp with its own features, options, memory and workers.

    `options` are libucp's, without the prefix `UCX_`, such as `{"TLS": "tcp"}`. They have priority over the
    environment, and the environment over `DEFAULT_OPTIONS`. `library` is the path of another libucp than the wheel's.

    Raises what `libucp.load` raises, `InvalidArgumentError` for an unknown option or value, and `ResourceError`.
    """

    def __init__(
        self,
        features: Feature = DEFAULT_FEATURES,
        options: Mapping[str, str] | None = None,
        library: str | os.PathLike[str] | None = None,
    ) -> None:
        if _is_forked_while_open:
            raise InvalidArgumentError(
                "UCX: the parent used UCX when it forked this process: start processes with spawn instead"
            )
        self.library = libucp.load(library)
        self.features = features
        self.workers: set[Closable] = set()
        """The workers, which are closed with the context."""
        self.lock = threading.RLock()
        """Locked by calls that use the context itself."""
        self._mappings: set[int] = set()
        self._is_closed = False
        self._fork_count = _fork_count
        defaults = {name: value for name, value in DEFAULT_OPTIONS.items() if f"UCX_{name}" not in os.environ}
        self.handle = self._create({**defaults, **(options or {})})
        _open_contexts.add(self)

    def _create(self, options: Mapping[str, str]) -> int:
        config, handle = libucp.Handle(), libucp.Handle()
        self.call_checked("configuration", self.library.ucp_config_read, None, None, ctypes.byref(config))
        try:
            for name, value in options.items():
                encoded = encode_option(name), encode_option(value)
                self.call_checked(f"option {name}={value}", self.library.ucp_config_modify, config, *encoded)
            params = libucp.Params(
                field_mask=libucp.PARAM_FEATURES | libucp.PARAM_MT_WORKERS_SHARED,
                features=self.features,
                mt_workers_shared=1,
            )
            major, minor, _ = libucp.version(self.library)
            init = self.library.ucp_init_version
            self.call_checked("context", init, major, minor, ctypes.byref(params), config, ctypes.byref(handle))
        finally:
            self.library.ucp_config_release(config)
        return read_handle(handle)

    def allocate(self, size_bytes: int) -> UcpMemory:
        """Allocate zeroed memory that a process of this machine can map. Raises `ResourceError`, `ClosedError`."""
        if size_bytes <= 0:
            raise InvalidArgumentError(f"expected a size of at least 1 byte, found {size_bytes}")
        return UcpMemory(self, size_bytes)

    @property
    def is_inherited(self) -> bool:
        """Whether the context belongs to the parent of this process."""
        return self._fork_count != _fork_count

    @property
    def is_closed(self) -> bool:
        """Whether the context was closed, or belongs to the parent of this process."""
        return self._is_closed or self.is_inherited

    def close(self) -> None:
        """Close all workers and free all memory that no view refers to; the rest is freed with its last view."""
        if self.is_closed:
            self._is_closed = True
            return
        with self.lock:
            self._is_closed = True
            for worker in list(self.workers):
                worker.close()
            _open_contexts.discard(self)
            self._destroy_if_unused()

    def remove_worker(self, worker: Closable) -> None:
        """Forget a worker, which was closed."""
        with self.lock:
            self.workers.discard(worker)
            self._destroy_if_unused()

    def _destroy_if_unused(self) -> None:
        # Views of allocated memory may outlive the context: the last of them ends it.
        if self._is_closed and not self._mappings and not self.workers and self.handle:
            handle, self.handle = self.handle, 0
            self.library.ucp_cleanup(handle)

    def _unmap(self, handle: int, fork_count: int) -> None:
        # A finalizer that was created before the fork: the mapping is the parent's.
        if fork_count != _fork_count:
            return
        with self.lock:
            self.library.ucp_mem_unmap(self.handle, handle)
            self._mappings.discard(handle)
            self._destroy_if_unused()

    def check_open(self) -> None:
        """Raise `ClosedError` if the context was closed, or belongs to the parent of this process."""
        if self.is_inherited:
            raise ClosedError("UCX: objects of the parent process can't be used after a fork")
        if self._is_closed:
            raise ClosedError("UCX: the context is closed")

    def call_checked(self, purpose: str, function: Any, *arguments: Any) -> None:
        """Call a function that returns a status. Raises its error."""
        status = function(*arguments)
        if status < 0:
            raise self.status_error(purpose, status)

    def status_error(self, purpose: str, status: int) -> BowstringError:
        """Return the error for a status of libucp."""
        error_type = _ERRORS.get(status, ConnectionLostError)
        return error_type(f"UCX: {purpose}: {libucp.status_text(self.library, status)}")


class UcpMemory(Closable):
    """Memory that libucp allocates, and peers may read. It is freed when no view of it is left."""

    def __init__(self, context: Context, size_bytes: int) -> None:
        self._context = context
        self._handle = self._map(size_bytes)
        self.address = self._query_address()
        """The address of the first byte in this process, to which peers refer."""
        self.size_bytes = size_bytes
        self._array: Any = (ctypes.c_uint8 * size_bytes).from_address(self.address)
        arguments = self._handle, context._fork_count
        # Not `self`: that would keep the array alive. Not at exit, when libucp may be gone and the process frees all
        # memory.
        weakref.finalize(self._array, context._unmap, *arguments).atexit = False

    def _map(self, size_bytes: int) -> int:
        context, handle = self._context, libucp.Handle()
        params = libucp.MemMapParams(
            field_mask=libucp.MEM_MAP_PARAM_LENGTH | libucp.MEM_MAP_PARAM_FLAGS | libucp.MEM_MAP_PARAM_PROT,
            length=size_bytes,
            flags=libucp.MEM_MAP_ALLOCATE,
            prot=libucp.MEM_MAP_PROT_LOCAL_READ | libucp.MEM_MAP_PROT_LOCAL_WRITE | libucp.MEM_MAP_PROT_REMOTE_READ,
        )
        with context.lock:
            context.check_open()
            function = context.library.ucp_mem_map
            purpose = f"memory of {size_bytes} bytes"
            context.call_checked(purpose, function, context.handle, ctypes.byref(params), ctypes.byref(handle))
            context._mappings.add(read_handle(handle))
        return read_handle(handle)

    def _query_address(self) -> int:
        attributes = libucp.MemAttr(field_mask=libucp.MEM_ATTR_ADDRESS)
        self._context.call_checked(
            "memory", self._context.library.ucp_mem_query, self._handle, ctypes.byref(attributes)
        )
        return int(attributes.address)

    @property
    def view(self) -> memoryview:
        """All bytes, writable. Raises `ClosedError`."""
        if not self._handle:
            raise ClosedError("UCX: the memory is closed")
        return memoryview(self._array).cast("B")

    def pack_key(self) -> bytes:
        """Return the packed key with which a peer can read this memory (`RemoteKey`). Raises `ClosedError`."""
        context = self._context
        with context.lock:
            context.check_open()
            if not self._handle:
                raise ClosedError("UCX: the memory is closed")
            buffer, size = libucp.Handle(), ctypes.c_size_t()
            arguments = context.handle, self._handle, ctypes.byref(buffer), ctypes.byref(size)
            context.call_checked("key", context.library.ucp_rkey_pack, *arguments)
            try:
                return ctypes.string_at(read_handle(buffer), size.value)
            finally:
                context.library.ucp_rkey_buffer_release(buffer)

    def close(self) -> None:
        """Free the memory when no view of it is left, by the finalizer of its array."""
        with self._context.lock:
            self._handle, self._array = 0, None


def _close_all_contexts() -> None:
    for context in list(_open_contexts):
        context.close()


def _disown_parent_contexts() -> None:
    """In a child process: contexts that were opened before the fork belong to the parent."""
    global _fork_count, _is_forked_while_open  # noqa: PLW0603 - compared by each object
    _fork_count += 1
    _is_forked_while_open = _is_forked_while_open or bool(_open_contexts)
    _open_contexts.clear()


atexit.register(_close_all_contexts)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_parent_contexts)

"""The objects of UCP in a context: workers, listeners, endpoints, requests and remote keys.

A `Worker` makes all progress for its listener and endpoints; a connection is a `UcpEndpoint`. Sending, receiving and
fetching return a `Request` at once. `Worker.progress` advances all operations, and never blocks. When no work is left,
`Worker.arm` prepares `Worker.event_descriptor`, which is readable as soon as there is work again::

    while not request.is_done:
        worker.progress()
        worker.wait(timeout_s)

libucp does not check arguments, so everything that could end the process is checked before. Buffers, iovec arrays and
Python functions that libucp refers to stay alive until it has finished with them. A worker and its objects may be used
by several threads, one at a time: a lock makes them take turns.

Objects are closed explicitly or with their context. A packed key that was not made by libucp can crash the process
that unpacks it.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from bowstring.dissociated.messages import BytesLike
from bowstring.errors import BowstringError, ClosedError, InvalidArgumentError
from bowstring.memory.buffer import Memory
from bowstring.memory.closable import Closable, call_on_error
from bowstring.transports.base import as_writable_bytes
from bowstring_networks.ucx import libucp
from bowstring_networks.ucx.arguments import (
    HostAndPort,
    check_tag,
    pack_socket_address,
    read_handle,
    send_buffer_arguments,
    unpack_socket_address,
)
from bowstring_networks.ucx.context import Context
from bowstring_networks.ucx.libucp import ErrorMode, StatusCode
from bowstring_networks.ucx.read_only_mapping import remap_read_only

_PEER_MODE_CLIENT_ID = int.from_bytes(b"bowstrin")
"""The client id of clients with `ErrorMode.PEER`."""
# A peer that does not answer must not keep `close` waiting: then the endpoint is closed by force.
_CLOSE_TIMEOUT_S = 2.0
_MAX_STEPS = 256
"""Progress calls in a row: a fast peer must not keep `progress` from returning."""
_KEY_PADDING = bytes(4096)
"""Follows a key to unpack, so that libucp reads no memory of others if the key is truncated."""

# Numbers instead of the addresses of Python objects: a late call of libucp finds no object, where an address could
# belong to a freed one.
_callback_targets: dict[int, Any] = {}
"""The objects that libucp refers to, by the number that it passes to the functions below."""
_keys = itertools.count(1)
_callback_errors: deque[BaseException] = deque()
"""Exceptions in functions that libucp called, such as `KeyboardInterrupt`; `Worker.progress` raises them."""


def _c_callback(prototype: Any, value_on_error: int | None = None) -> Callable[[Callable[..., Any]], Any]:
    """Make a C function that is never freed and passes no exception to libucp."""

    def wrap(function: Callable[..., Any]) -> Any:
        def call(*arguments: Any) -> Any:
            try:
                return function(*arguments)
            except BaseException as error:  # noqa: BLE001 - raised by `Worker.progress`
                _callback_errors.append(error)
                return value_on_error

        return prototype(call)

    return wrap


@_c_callback(libucp.SendCallback)
def _on_sent(pointer: int, status: int, key: int) -> None:
    _callback_targets.pop(key)._complete(status, pointer)


@_c_callback(libucp.TagReceiveCallback)
def _on_tag_received(pointer: int, status: int, _info: Any, key: int) -> None:
    _callback_targets.pop(key)._complete(status, pointer)


@_c_callback(libucp.ActiveMessageDataCallback)
def _on_data_received(pointer: int, status: int, _length_bytes: int, key: int) -> None:
    _callback_targets.pop(key)._complete(status, pointer)


@_c_callback(libucp.ActiveMessageCallback, StatusCode.OK)
def _on_active_message(key: int, _header: int, _header_bytes: int, data: int, length_bytes: int, param: Any) -> int:
    worker, message_id = _callback_targets[key]
    message = ActiveMessage(worker, message_id, length_bytes)
    worker.active_messages.append(message)
    if param.contents.recv_attr & libucp.AM_RECV_RENDEZVOUS:
        message._set_descriptor(data)
        return StatusCode.IN_PROGRESS
    # A copy, because the data is libucp's and ends with this call. The data of a rendezvous message stays with the
    # sender until this end takes or discards it.
    message.payload = ctypes.string_at(data, length_bytes)
    return StatusCode.OK


@_c_callback(libucp.ConnectionCallback)
def _on_connection(handle: int, key: int) -> None:
    listener = _callback_targets[key]
    listener.requests.append(ConnectionRequest(listener, handle))


@_c_callback(libucp.ErrorCallback)
def _on_error(key: int, _endpoint: int, status: int) -> None:
    endpoint = _callback_targets.get(key)
    if endpoint is not None:
        endpoint.status = status


def _function_address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


_ON_SENT = _function_address(_on_sent)
_ON_TAG_RECEIVED = _function_address(_on_tag_received)
_ON_DATA_RECEIVED = _function_address(_on_data_received)
_ON_ACTIVE_MESSAGE = _function_address(_on_active_message)
_ON_CONNECTION = _function_address(_on_connection)
_ON_ERROR = _function_address(_on_error)


class Request:
    """An operation of a worker: a send, receive, fetch, flush or close.

    Until it is complete, the worker keeps it and its buffers alive, whether or not the caller does.
    """

    __slots__ = ("_buffers", "_handle", "_worker", "purpose", "status")

    def __init__(self, worker: Worker, purpose: str, buffers: object) -> None:
        self._worker = worker
        self._buffers = buffers
        self._handle = 0
        self.purpose = purpose
        self.status: int = StatusCode.IN_PROGRESS

    @property
    def is_done(self) -> bool:
        """Whether the operation has ended, successfully or not."""
        return self.status != StatusCode.IN_PROGRESS

    @property
    def error(self) -> BowstringError | None:
        """The error with which the operation ended, or None."""
        return self._worker.context.status_error(self.purpose, self.status) if self.status < 0 else None

    def cancel(self) -> None:
        """Try to cancel a receive. It ends with `AbortedConnectionError`, or successfully if it was faster."""
        with self._worker._lock_library() as library:
            if self._handle and not self.is_done:
                library.ucp_request_cancel(self._worker._handle, self._handle)

    def _complete(self, status: int, handle: int = 0) -> None:
        self.status = status
        self._handle = handle
        self._buffers = None
        if handle:
            self._worker._completed_requests.append(self)


class ActiveMessage:
    """A received active message. `payload` has its bytes, unless it is still at the sender (rendezvous).

    A rendezvous message must be received with `receive_into` or dropped with `discard`.
    """

    __slots__ = ("_descriptor", "_worker", "id", "length_bytes", "payload")

    def __init__(self, worker: Worker, message_id: int, length_bytes: int) -> None:
        self._worker = worker
        self._descriptor = 0
        self.id = message_id
        self.length_bytes = length_bytes
        self.payload: bytes | None = None

    @property
    def tag(self) -> None:
        """None: only tagged messages have one."""

    def _set_descriptor(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._worker._unreceived.add(self)

    def _take_descriptor(self) -> int:
        descriptor, self._descriptor = self._descriptor, 0
        self._worker._unreceived.discard(self)
        return descriptor

    def receive_into(self, buffer: Any) -> Request:
        """Receive the bytes into a writable buffer of `length_bytes`. Raises `InvalidArgumentError`, `ClosedError`."""
        memory, worker = Memory(as_writable_bytes(buffer, self.length_bytes)), self._worker
        with worker._lock_library() as library:
            if not self._descriptor:
                raise InvalidArgumentError("UCX: this active message was already received")
            arguments = worker._handle, self._take_descriptor(), memory.address, memory.size
            return worker._start_request("receive", library.ucp_am_recv_data_nbx, arguments, _ON_DATA_RECEIVED, memory)

    def discard(self) -> None:
        """Drop a rendezvous message that was not received."""
        with self._worker._lock_library() as library:
            if self._descriptor:
                library.ucp_am_data_release(self._worker._handle, self._take_descriptor())


class TaggedMessage:
    """A tagged message that `Worker.probe_tagged_message` took: call `receive_into` or `discard`."""

    __slots__ = ("_handle", "_worker", "length_bytes", "tag")

    def __init__(self, worker: Worker, handle: int, tag: int, length_bytes: int) -> None:
        self._worker = worker
        self._handle = handle
        self.tag = tag
        self.length_bytes = length_bytes
        worker._unreceived.add(self)

    def receive_into(self, buffer: Any) -> Request:
        """Receive the bytes into a writable buffer of `length_bytes`. Raises `InvalidArgumentError`, `ClosedError`."""
        return self._receive(Memory(as_writable_bytes(buffer, self.length_bytes)))

    def discard(self) -> None:
        """Drop a message that was not received."""
        if self._handle:
            self._receive(Memory(b""))

    def _receive(self, memory: Memory) -> Request:
        worker = self._worker
        with worker._lock_library() as library:
            if not self._handle:
                raise InvalidArgumentError("UCX: this tagged message was already received")
            handle, self._handle = self._handle, 0
            worker._unreceived.discard(self)
            arguments = worker._handle, memory.address, memory.size, handle
            return worker._start_request("receive", library.ucp_tag_msg_recv_nbx, arguments, _ON_TAG_RECEIVED, memory)


class Worker(Closable):
    """The progress of connections; see the module. Received active messages are appended to `active_messages`.

    Raises `ResourceError` if memory or descriptors are short.
    """

    def __init__(self, context: Context, active_message_ids: Sequence[int] = (0,)) -> None:
        self.context = context
        self.endpoints: set[UcpEndpoint] = set()
        self.active_messages: deque[ActiveMessage] = deque()
        self.event_descriptor = -1
        """Readable if there is work, after `arm` returned true; -1 once the worker is closed."""
        self.progress_count = 0
        """How often `progress` found something to do."""
        self._lock = threading.RLock()
        self._listeners: set[UcpListener] = set()
        self._unreceived: set[ActiveMessage | TaggedMessage] = set()
        self._completed_requests: deque[Request] = deque()
        self._keys: list[int] = []
        self._is_progressing = self._closes_after_progress = False
        self._handle = self._create()
        with call_on_error(self.close):
            self.event_descriptor = self._query_event_descriptor()
            for message_id in active_message_ids:
                self._set_active_message_handler(message_id)

    def _create(self) -> int:
        context, handle = self.context, libucp.Handle()
        params = libucp.WorkerParams(
            field_mask=libucp.WORKER_PARAM_THREAD_MODE | libucp.WORKER_PARAM_FLAGS | libucp.WORKER_PARAM_CLIENT_ID,
            # `_lock` makes this true.
            thread_mode=libucp.THREAD_MODE_SERIALIZED,
            # `close` waits for requests only for a limited time.
            flags=libucp.WORKER_FLAG_IGNORE_REQUEST_LEAK,
            client_id=_PEER_MODE_CLIENT_ID,
        )
        with context.lock:
            context.check_open()
            create = context.library.ucp_worker_create
            context.call_checked("worker", create, context.handle, ctypes.byref(params), ctypes.byref(handle))
            context.workers.add(self)
        return read_handle(handle)

    def _query_event_descriptor(self) -> int:
        descriptor = ctypes.c_int(-1)
        function = self.context.library.ucp_worker_get_efd
        self.context.call_checked("event descriptor", function, self._handle, ctypes.byref(descriptor))
        os.set_inheritable(descriptor.value, False)
        return descriptor.value

    def _set_active_message_handler(self, message_id: int) -> None:
        key = next(_keys)
        _callback_targets[key] = (self, message_id)
        self._keys.append(key)
        params = libucp.AmHandlerParam(
            field_mask=libucp.AM_HANDLER_ID | libucp.AM_HANDLER_CB | libucp.AM_HANDLER_ARG,
            id=message_id,
            cb=_ON_ACTIVE_MESSAGE,
            arg=key,
        )
        function = self.context.library.ucp_worker_set_am_recv_handler
        self.context.call_checked(f"active message {message_id}", function, self._handle, ctypes.byref(params))

    @property
    def is_inherited(self) -> bool:
        """Whether the worker belongs to the parent of this process."""
        return self.context.is_inherited

    @property
    def is_closed(self) -> bool:
        """Whether the worker was closed, or belongs to the parent of this process."""
        return not self._handle or self.is_inherited

    def progress(self) -> None:
        """Advance all operations, without blocking. Raises `ClosedError`."""
        with self._lock_library() as library:
            self._is_progressing = True
            try:
                for _ in range(_MAX_STEPS):
                    if not library.ucp_worker_progress(self._handle):
                        break
                    self.progress_count += 1
            finally:
                self._is_progressing = False
            self._free_completed()
            if self._closes_after_progress:
                self.close()
        if _callback_errors:
            raise _callback_errors.popleft()

    def _free_completed(self) -> None:
        while self._completed_requests:
            request = self._completed_requests.popleft()
            handle, request._handle = request._handle, 0
            self.context.library.ucp_request_free(handle)

    def arm(self) -> bool:
        """Prepare `event_descriptor` for the next event. Returns false if there is work: call `progress` again.

        Raises `ClosedError`.
        """
        with self._lock_library() as library:
            status = library.ucp_worker_arm(self._handle)
            if status < 0 and status != StatusCode.BUSY:
                raise self.context.status_error("wait", status)
            return bool(status == StatusCode.OK)

    def wait(self, timeout_s: float | None = None) -> None:
        """Sleep until there is work for `progress`, or for `timeout_s`. Raises as `arm`."""
        if self.arm():
            poll = select.poll()
            poll.register(self.event_descriptor, select.POLLIN)
            poll.poll(None if timeout_s is None else max(timeout_s, 0) * 1000)

    def probe_tagged_message(self, tag: int = 0, mask: int = 0) -> TaggedMessage | None:
        """Take the first message whose tag equals `tag` in the bits of `mask`, or return None.

        The default takes any message. Raises `ClosedError`.
        """
        info = libucp.TagRecvInfo()
        with self._lock_library() as library:
            handle = library.ucp_tag_probe_nb(self._handle, tag, mask, 1, ctypes.byref(info))
            return TaggedMessage(self, handle, info.sender_tag, info.length) if handle else None

    def connect(self, host: str, port: int, *, error_mode: ErrorMode = ErrorMode.PEER) -> UcpEndpoint:
        """Connect to a listener, without waiting; a refusal is reported as `UcpEndpoint.error`.

        Raises `ConnectionLostError` if the host has no address, `ClosedError`.
        """
        address = pack_socket_address(host, port)
        identification = libucp.EP_FLAG_SEND_CLIENT_ID if error_mode == ErrorMode.PEER else 0
        params = libucp.EpParams(
            field_mask=libucp.EP_PARAM_FLAGS | libucp.EP_PARAM_SOCK_ADDR,
            flags=libucp.EP_FLAG_CLIENT_SERVER | identification,
            sockaddr=libucp.UcsSocketAddress(ctypes.addressof(address), len(address)),
        )
        return UcpEndpoint(self, params, error_mode, f"connection to {host}:{port}")

    def accept(self, request: ConnectionRequest, *, error_mode: ErrorMode | None = None) -> UcpEndpoint:
        """Accept a client, whose messages this worker then receives; the listener may belong to another worker.

        libucp refuses a client with `ErrorMode.NONE` at an end with `ErrorMode.PEER`, so by default only clients of
        this module that have `ErrorMode.PEER` get it; the loss of others is not reported.

        Raises `ConnectionLostError` if the client has left, `UnsupportedError` if it is refused for its mode,
        `InvalidArgumentError`, `ClosedError`.
        """
        if request._listener.worker.context is not self.context:
            raise InvalidArgumentError("UCX: the listener belongs to another context")
        with self._lock_library():
            host, port = request.client_address
            if error_mode is None:
                error_mode = ErrorMode.PEER if request.client_id == _PEER_MODE_CLIENT_ID else ErrorMode.NONE
            params = libucp.EpParams(field_mask=libucp.EP_PARAM_CONN_REQUEST, conn_request=request._take_handle())
            return UcpEndpoint(self, params, error_mode, f"connection of {host}:{port}")

    def close(self) -> None:
        """Close the listeners and endpoints and cancel all requests. Idempotent."""
        if self.is_closed:
            self._handle = 0
            return
        with self._lock:
            if self._is_progressing:  # a signal handler that interrupts `progress`
                self._closes_after_progress = True
                return
            if not self._handle:
                return
            for listener in list(self._listeners):
                listener.close()
            # libucp keeps their data until they are received or discarded.
            for message in list(self._unreceived):
                message.discard()
            requests = [endpoint.close() for endpoint in list(self.endpoints)]
            for target in list(_callback_targets.values()):
                if isinstance(target, Request) and target._worker is self:
                    target.cancel()
            self._progress_until_complete(requests)
            handle, self._handle = self._handle, 0
            for key in self._keys:
                _callback_targets.pop(key, None)
            self.context.library.ucp_worker_destroy(handle)
            self.event_descriptor = -1
        self.context.remove_worker(self)

    def _progress_until_complete(self, requests: Sequence[Request | None]) -> None:
        """Make progress until the requests have ended, for a limited time."""
        end = time.monotonic() + _CLOSE_TIMEOUT_S
        while any(request is not None and not request.is_done for request in requests):
            self.context.library.ucp_worker_progress(self._handle)
            if time.monotonic() > end:
                break
        self._free_completed()

    @contextmanager
    def _lock_library(self) -> Iterator[Any]:
        """Lock the worker for calls of the library. Raises `ClosedError`."""
        if self.is_inherited:
            # Before the lock, which a thread of the parent may have locked during the fork.
            self.context.check_open()
        with self._lock:
            if not self._handle:
                raise ClosedError("UCX: the worker is closed")
            yield self.context.library

    def _start_request(  # noqa: PLR0913 - what libucp needs
        self,
        purpose: str,
        function: Any,
        arguments: tuple[Any, ...],
        callback: int,
        buffers: object,
        *,
        flags: int = 0,
        datatype: int = libucp.DATATYPE_BYTES,
    ) -> Request:
        """Start an operation; the lock is locked."""
        key, request = next(_keys), Request(self, purpose, buffers)
        param = libucp.RequestParam(
            op_attr_mask=libucp.OP_CALLBACK
            | libucp.OP_USER_DATA
            | libucp.OP_DATATYPE
            | libucp.OP_MEMORY_TYPE
            | libucp.OP_FLAGS,
            flags=flags,
            cb=callback,
            datatype=datatype,
            user_data=key,
            memory_type=libucp.MEMORY_TYPE_HOST,
        )
        # Before the call, because libucp may call the function below before it returns. If it fails or ends at once, it
        # does not call that at all.
        _callback_targets[key] = request
        pointer = function(*arguments, ctypes.byref(param))
        # Statuses of errors are the last addresses (`UCS_PTR_IS_ERR`).
        status = pointer - (1 << 64) if pointer >= (1 << 64) + libucp.LAST_ERROR else 0
        if status < 0 or not pointer:
            _callback_targets.pop(key, None)
            request._complete(status)
        elif not request.is_done:
            request._handle = pointer
        return request


class ConnectionRequest:
    """A client that waits at a listener: pass it to `Worker.accept`, or reject it."""

    __slots__ = ("_handle", "_listener")

    def __init__(self, listener: UcpListener, handle: int) -> None:
        self._listener = listener
        self._handle = handle

    @property
    def client_address(self) -> HostAndPort:
        """The client's address. Raises `InvalidArgumentError` once it was accepted or rejected."""
        return unpack_socket_address(self._query(libucp.CONN_REQUEST_ATTR_CLIENT_ADDR).client_address)

    @property
    def client_id(self) -> int:
        """The number that the client gave itself, if any.

        Raises `InvalidArgumentError` once it was accepted or rejected.
        """
        return int(self._query(libucp.CONN_REQUEST_ATTR_CLIENT_ID).client_id)

    def _query(self, field: int) -> libucp.ConnRequestAttr:
        attributes = libucp.ConnRequestAttr(field_mask=field)
        worker = self._listener.worker
        with worker._lock_library() as library:
            self._check_pending()
            worker.context.call_checked(
                "client", library.ucp_conn_request_query, self._handle, ctypes.byref(attributes)
            )
        return attributes

    def reject(self) -> None:
        """Reject the client. Raises `InvalidArgumentError` once it was accepted or rejected."""
        with self._listener.worker._lock_library() as library:
            if self._listener._handle:
                library.ucp_listener_reject(self._listener._handle, self._take_handle())

    def _check_pending(self) -> None:
        if not self._handle:
            raise InvalidArgumentError("UCX: this client was already accepted or rejected")

    def _take_handle(self) -> int:
        self._check_pending()
        if not self._listener._handle:
            raise ClosedError("UCX: the listener is closed")
        handle, self._handle = self._handle, 0
        if self in self._listener.requests:
            self._listener.requests.remove(self)
        return handle


class UcpListener(Closable):
    """An address at which clients connect; `Worker.progress` appends them to `requests`. Port 0 chooses a free one.

    Raises `ConnectionLostError`, `UnavailableAddressError` or `ResourceError` if it can't be used, `ClosedError`.
    """

    def __init__(self, worker: Worker, host: str, port: int = 0) -> None:
        self.worker = worker
        self.requests: deque[ConnectionRequest] = deque()
        self._handle = 0
        self._key = next(_keys)
        _callback_targets[self._key] = self
        packed = pack_socket_address(host, port)
        params = libucp.ListenerParams(
            field_mask=libucp.LISTENER_PARAM_SOCK_ADDR | libucp.LISTENER_PARAM_CONN_HANDLER,
            sockaddr=libucp.UcsSocketAddress(ctypes.addressof(packed), len(packed)),
            conn_handler=libucp.CallbackWithArgument(_ON_CONNECTION, self._key),
        )
        handle = libucp.Handle()
        attributes = libucp.ListenerAttr(field_mask=libucp.LISTENER_ATTR_SOCKADDR)
        with call_on_error(self.close), worker._lock_library() as library:
            context, purpose = worker.context, f"listen at {host}:{port}"
            create = library.ucp_listener_create
            context.call_checked(purpose, create, worker._handle, ctypes.byref(params), ctypes.byref(handle))
            self._handle = read_handle(handle)
            worker._listeners.add(self)
            context.call_checked(purpose, library.ucp_listener_query, self._handle, ctypes.byref(attributes))
        self.address = unpack_socket_address(attributes.sockaddr)
        """The host and port in use."""

    def close(self) -> None:
        """Reject the waiting clients and stop listening. Idempotent."""
        _callback_targets.pop(self._key, None)
        if not self._handle or self.worker.is_closed:
            self._handle = 0
            return
        with self.worker._lock_library() as library:
            # libucp keeps a client waiting until it is accepted or rejected.
            for request in list(self.requests):
                request.reject()
            handle, self._handle = self._handle, 0
            self.worker._listeners.discard(self)
            library.ucp_listener_destroy(handle)


class UcpEndpoint:
    """A connection. `status` is negative once it has failed; `error` is the reason."""

    def __init__(self, worker: Worker, params: libucp.EpParams, error_mode: ErrorMode, name: str) -> None:
        self.worker = worker
        self.name = name
        self.error_mode = error_mode
        self.status: int = StatusCode.OK
        self.handle = 0
        """The address of libucp's endpoint; 0 once it is closed."""
        self._remote_keys: set[RemoteKey] = set()
        self._key = next(_keys)
        handle = libucp.Handle()
        if error_mode != ErrorMode.NONE:
            params.field_mask |= libucp.EP_PARAM_ERR_HANDLING_MODE | libucp.EP_PARAM_ERR_HANDLER
            params.err_mode = error_mode
            params.err_handler = libucp.CallbackWithArgument(_ON_ERROR, self._key)
        _callback_targets[self._key] = self
        with call_on_error(_callback_targets.pop, self._key, None), worker._lock_library() as library:
            create = library.ucp_ep_create
            worker.context.call_checked(name, create, worker._handle, ctypes.byref(params), ctypes.byref(handle))
            self.handle = read_handle(handle)
            worker.endpoints.add(self)

    @property
    def error(self) -> BowstringError | None:
        """Why the connection failed, or None. Only with `ErrorMode.PEER`."""
        return self.worker.context.status_error(self.name, self.status) if self.status < 0 else None

    def send_tagged(self, parts: Sequence[BytesLike], tag: int) -> Request:
        """Send a tagged message.

        The parts are not copied and must not change until the request is complete. Raises `InvalidArgumentError`,
        `ClosedError`, and the error of a failed connection.
        """
        check_tag(tag)
        address, count, datatype, owners = send_buffer_arguments(parts)
        with self._lock_library() as library:
            arguments, start = (self.handle, address, count, tag), self.worker._start_request
            return start("send", library.ucp_tag_send_nbx, arguments, _ON_SENT, owners, datatype=datatype)

    def send_active_message(self, parts: Sequence[BytesLike], message_id: int = 0) -> Request:
        """Send an active message without a header.

        The parts are not copied and must not change until the request is complete. Raises `InvalidArgumentError`,
        `ClosedError`, and the error of a failed connection.
        """
        address, count, datatype, owners = send_buffer_arguments(parts)
        with self._lock_library() as library:
            arguments = self.handle, message_id, None, 0, address, count
            start = self.worker._start_request
            return start("send", library.ucp_am_send_nbx, arguments, _ON_SENT, owners, datatype=datatype)

    def flush(self) -> Request:
        """Return a request that is complete when the peer has received everything sent before. Raises `ClosedError`."""
        with self._lock_library() as library:
            return self.worker._start_request("flush", library.ucp_ep_flush_nbx, (self.handle,), _ON_SENT, None)

    def close(self, *, is_forced: bool = True) -> Request | None:
        """Close the connection; return the request, or None if it was closed before.

        If it `is_forced`, all requests end at once. Otherwise, or with `ErrorMode.NONE`, sent messages are flushed.
        """
        # libucp may still report an error while it closes the endpoint, which is not one of the connection any more.
        _callback_targets.pop(self._key, None)
        if not self.handle or self.worker.is_closed:
            self.handle = 0
            return None
        with self.worker._lock_library() as library:
            # A key can be used only with its endpoint.
            for key in list(self._remote_keys):
                key.close()
            handle, self.handle = self.handle, 0
            self.worker.endpoints.discard(self)
            flags = libucp.EP_CLOSE_FORCE if is_forced and self.error_mode != ErrorMode.NONE else 0
            return self.worker._start_request("close", library.ucp_ep_close_nbx, (handle,), _ON_SENT, None, flags=flags)

    @contextmanager
    def _lock_library(self) -> Iterator[Any]:
        """Lock the worker for calls of the library. Raises `ClosedError`, and the error of a failed connection.

        libucp sometimes does not return from a send on a failed endpoint.
        """
        with self.worker._lock_library() as library:
            if not self.handle:
                raise ClosedError(f"UCX: {self.name} is closed")
            if (error := self.error) is not None:
                raise error
            yield library


class RemoteKey(Closable):
    """The key with which this end can read a peer's memory. See the module about untrusted keys.

    Raises `ConnectionLostError` if no transport of this connection can reach the memory, `ClosedError`.
    """

    def __init__(self, endpoint: UcpEndpoint, packed_key: bytes) -> None:
        self._endpoint = endpoint
        self._handle = 0
        if not packed_key:
            raise InvalidArgumentError("UCX: a packed key is empty")
        handle = libucp.Handle()
        with endpoint._lock_library() as library:
            function, padded = library.ucp_ep_rkey_unpack, bytes(packed_key) + _KEY_PADDING
            endpoint.worker.context.call_checked("remote key", function, endpoint.handle, padded, ctypes.byref(handle))
            self._handle = read_handle(handle)
            endpoint._remote_keys.add(self)

    def fetch(self, address: int, buffer: Any) -> Request:
        """Copy the peer's memory at `address` into a writable buffer, without the peer's help if the hardware can.

        libucp does not check the address: the caller must ensure that the range is inside the memory of this key.
        Raises `ClosedError`, `InvalidArgumentError`.
        """
        memory, endpoint = Memory(buffer), self._endpoint
        with endpoint._lock_library() as library:
            self._check_open()
            arguments = endpoint.handle, memory.address, memory.size, address, self._handle
            return endpoint.worker._start_request("fetch", library.ucp_get_nbx, arguments, _ON_SENT, memory)

    def map(self, address: int, size_bytes: int) -> memoryview | None:
        """Return the peer's memory at `address`, read-only and not copied, or None if it is not mapped here.

        The view has a mapping of its own, which remains when this key, the connection or the peer has gone. libucp's
        mapping, which exists while this key is open, is writable. Raises `LimitError` if the range is not inside one
        mapping, `ClosedError`.
        """
        pointer = libucp.Handle()
        with self._endpoint._lock_library() as library:
            self._check_open()
            if library.ucp_rkey_ptr(self._handle, address, ctypes.byref(pointer)) < 0:
                return None
            return remap_read_only(read_handle(pointer), size_bytes)

    def close(self) -> None:
        """Release the key. Idempotent."""
        if not self._handle or self._endpoint.worker.is_closed:
            self._handle = 0
            return
        with self._endpoint.worker._lock_library() as library:
            handle, self._handle = self._handle, 0
            self._endpoint._remote_keys.discard(self)
            library.ucp_rkey_destroy(handle)

    def _check_open(self) -> None:
        if not self._handle:
            raise ClosedError("UCX: the remote key is closed")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_callback_targets.clear)

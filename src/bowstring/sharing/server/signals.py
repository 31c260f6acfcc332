"""Wait for a signal that ends a server."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bowstring.errors import InvalidArgumentError

_END_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def catch_signals() -> Iterator[Callable[[], signal.Signals]]:
    """Catch SIGINT and SIGTERM during the block, which gets a function that waits for the next one and returns it.

    After the block they have their previous handlers again. Raises `InvalidArgumentError` unless it is called in the
    main thread, which alone can handle signals.
    """
    if threading.current_thread() is not threading.main_thread():
        raise InvalidArgumentError(
            f"signals can be handled only in the main thread, not in {threading.current_thread().name!r}"
        )
    reader, writer = socket.socketpair()

    def wait() -> signal.Signals:
        while (number := reader.recv(1)[0]) not in _END_SIGNALS:
            pass
        return signal.Signals(number)

    with reader, writer:
        writer.setblocking(False)
        # The kernel may deliver a signal to another thread, which does not interrupt a call of this one.
        previous_descriptor = signal.set_wakeup_fd(writer.fileno())
        previous_handlers = {number: signal.signal(number, _do_nothing) for number in _END_SIGNALS}
        try:
            yield wait
        finally:
            for number, handler in previous_handlers.items():
                signal.signal(number, signal.SIG_DFL if handler is None else handler)
            signal.set_wakeup_fd(previous_descriptor)


def _do_nothing(_number: int, _frame: object) -> None:
    pass

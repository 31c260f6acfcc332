"""PySpark's daemon, which forks the Python workers, without tracebacks of broken pipes.

Spark closes the socket of a worker that is idle for a minute, and of all when it stops. A worker answers the end of its
input with an error message, which a unix socket refuses then: PySpark prints a traceback for each worker.
"""

from __future__ import annotations

import socket

from pyspark import daemon

_work = daemon.worker


def worker(sock: socket.socket, authenticated: bool) -> int:
    """As PySpark's `worker`, but return 1 where Spark does not read any more."""
    try:
        return _work(sock, authenticated)
    except BrokenPipeError:
        return 1


if __name__ == "__main__":
    daemon.worker = worker
    daemon.manager()

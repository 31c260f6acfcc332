"""PySpark's daemon, which forks the Python workers, without tracebacks of broken pipes.

Spark closes the socket of a worker that is idle for a minute, and of all when it stops. A worker answers the end of its
input with an error message, which a unix socket refuses then: PySpark prints a traceback for each worker.

A setting of Spark's replaces the daemon of tasks, but not that of the workers that plan and commit for data sources.
"""

from __future__ import annotations

import socket
import sys

from pyspark import daemon

_work = daemon.worker


def worker(sock: socket.socket, authenticated: bool) -> int:
    """As PySpark's `worker`, but return 1 where Spark does not read any more."""
    try:
        return _work(sock, authenticated)
    except BrokenPipeError:
        return 1


def adopt_worker() -> None:
    """In a worker of PySpark's own daemon, go on with this module's `worker` after the first task."""
    main = sys.modules["__main__"]
    if main.__spec__ is not None and main.__spec__.name == daemon.__name__:
        vars(main)["worker"] = worker


if __name__ == "__main__":
    daemon.worker = worker
    daemon.manager()

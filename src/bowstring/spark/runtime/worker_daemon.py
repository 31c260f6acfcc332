"""PySpark's daemon, which forks the Python workers, without tracebacks of broken pipes and slow garbage collection.

The daemon imports what each worker needs, except what starts threads, such as NumPy and pyarrow, as it forks.

Spark closes the socket of a worker that is idle for a minute, and of all when it stops. A worker answers the end of its
input with an error message, which a unix socket refuses then: PySpark prints a traceback for each worker.

PySpark collects garbage after each task. That takes 50 ms, most of the time of a small task, because it looks at all
objects of the packages that the worker has imported. So these are frozen after the first task: then small tasks take a
third of the time.

`worker` is not public. If a version of PySpark lacks it, its own workers run, only more slowly.

A setting of a local session replaces the daemon of tasks, but not the daemon of the workers that plan and commit for
data sources; on a cluster, PySpark's own daemon runs. There, `adopt_worker` replaces its function.
"""

from __future__ import annotations

import gc
import importlib
import sys
from typing import Any

from pyspark import daemon

_work = getattr(daemon, "worker", None)


def worker(*arguments: Any) -> int:
    """As PySpark's `worker`, but return 1 where Spark does not read any more, and freeze the objects of imports."""
    assert _work is not None
    try:
        exit_code: int = _work(*arguments)
    except BrokenPipeError:
        return 1
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
    return exit_code


def adopt_worker() -> None:
    """In a worker of PySpark's own daemon, continue with this module's `worker` after the first task."""
    main = sys.modules["__main__"]
    if _work is not None and main.__spec__ is not None and main.__spec__.name == daemon.__name__:
        vars(main)["worker"] = worker


if __name__ == "__main__":
    importlib.import_module("pyspark.worker")
    if _work is not None:
        vars(daemon)["worker"] = worker
    daemon.manager()

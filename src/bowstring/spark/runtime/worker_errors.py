"""Errors on their way from Spark's Python workers to the user: the message, without the worker's traceback."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from bowstring.errors import BowstringError, ResourceError
from bowstring.spark.runtime.worker_daemon import adopt_worker

_HIDE_TRACEBACK_VARIABLE = "SPARK_HIDE_TRACEBACK"
# Spark passes errors of tasks to the driver only as text: this one is the last of some 70 lines.
_RESOURCE_ERROR = re.compile(r"bowstring\.errors\.ResourceError: (.+)")


@contextmanager
def hide_traceback() -> Iterator[None]:
    """Have PySpark report a `BowstringError` by its type and message alone; a context manager or a decorator.

    A worker process reads the variable when it reports an error, and then ends, so no other error is affected.
    Outside Spark's workers this does nothing.
    """
    try:
        yield
    except BowstringError:
        if _is_spark_worker():
            os.environ[_HIDE_TRACEBACK_VARIABLE] = "1"
        raise


def find_resource_error(problem: BaseException) -> ResourceError | None:
    """Return the `ResourceError` for which tasks have failed, from the text of Spark's error; None if it was another
    error, or the text has another form.
    """
    messages = _RESOURCE_ERROR.findall(str(problem))
    return ResourceError(messages[-1]) if messages else None  # tracebacks begin with the cause


def _is_spark_worker() -> bool:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name.startswith(("pyspark.", "bowstring.spark."))


adopt_worker()  # workers that plan, commit, and read or write data sources import this module

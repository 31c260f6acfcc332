"""Properties of the Spark jobs that the current thread starts: a description and a tag."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DESCRIPTION = "spark.job.description"
_INTERRUPTIONS = (KeyboardInterrupt, SystemExit)


def has_local_properties(spark: SparkSession) -> bool:
    """Whether threads have their own properties: not on Spark Connect, and not without pinned threads."""
    from py4j.clientserver import ClientServer
    from pyspark import SparkContext

    return hasattr(spark, "_jsparkSession") and isinstance(SparkContext._gateway, ClientServer)


@contextmanager
def describe_jobs(spark: SparkSession, description: str, tag: str) -> Iterator[None]:
    """Show a description in Spark's UI, unless the caller has set one, and add a tag to the jobs.

    On Spark Connect only the tag. The caller's job group and tags are not changed. KeyboardInterrupt cancels the jobs.
    """
    from py4j.protocol import Py4JError

    context: Any = spark.sparkContext if hasattr(spark, "_jsparkSession") else None
    if context is None:
        with _tag_jobs(tag, spark.addTag, spark.removeTag, spark.interruptTag):
            yield
    elif not has_local_properties(spark):
        yield  # a property could be left in another thread
    else:
        with ExitStack() as stack:
            calls = context.addJobTag, context.removeJobTag, context.cancelJobsWithTag
            # Before PySpark 4.2, the error of its handler of SIGINT replaces the KeyboardInterrupt.
            stack.enter_context(_tag_jobs(tag, *calls, (*_INTERRUPTIONS, Py4JError)))
            if context.getLocalProperty(_DESCRIPTION) is None:
                context.setLocalProperty(_DESCRIPTION, description)
                stack.callback(context.setLocalProperty, _DESCRIPTION, None)
            yield


@contextmanager
def _tag_jobs(
    tag: str,
    add: Callable[[str], object],
    remove: Callable[[str], object],
    cancel: Callable[[str], object],
    interruptions: tuple[type[BaseException], ...] = _INTERRUPTIONS,
) -> Iterator[None]:
    add(tag)
    try:
        yield
    except interruptions:
        # PySpark's handler of SIGINT fails to do so in the thread that waits for a job, whose connection is in use.
        with suppress(Exception):  # Java may have ended
            cancel(tag)
        raise
    finally:
        remove(tag)

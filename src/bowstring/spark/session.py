"""A Spark session that is set up well for Arrow, and the registration of Bowstring's data source in any session.

What is set here and why is in docs/spark.md; every setting gives way to the caller's own.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from bowstring.errors import EnvironmentProblemError, MissingExtraError, UsageError
from bowstring.sharing.processes import end_children
from bowstring.spark.java import use_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAX_RECORDS_PER_BATCH = 65_536
"""Rows per batch; Spark's own default makes small batches of narrow rows."""

_LAUNCHERS = ("spark-submit", "spark-class", "SparkSubmit")
_END_S = 5.0

# The root's level is the one that Spark's shell would set, and announce, if it were another.
_QUIET_LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.filter.threshold.type = ThresholdFilter
appender.stderr.filter.threshold.level = error
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
"""


def session(
    master: str = "local[*]", conf: Mapping[str, str | int | bool] | None = None, *, app_name: str = "bowstring"
) -> SparkSession:
    """Start a Spark session for Arrow, or give the one that runs in this process already, with ``format("arrow")``
    registered.

    Sets JAVA_HOME, PYSPARK_PYTHON and, for a master on this machine, SPARK_LOCAL_IP of this process's environment.
    Nothing is left in the working directory.

    Args:
        master: ``local[*]``, ``local-cluster[2,1,1024]``, ``spark://host:port``, …
        conf: Spark settings, which win over ours; in a session that runs already they are all that is set.
        app_name: what Spark calls the application.

    Raises:
        MissingExtraError: PySpark is not installed.
        EnvironmentProblemError: there is no Java for Spark, or Spark did not start.
        UsageError: a session with another master runs in this process: stop it, or use `register` with it.
    """
    try:
        from pyspark import SparkContext
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError as problem:
        raise MissingExtraError.of("PySpark", "spark") from problem
    running = SparkContext._active_spark_context
    if running is not None and running.master != master:
        raise UsageError(
            f"a Spark session with master {running.master} runs in this process already: stop it before one with "
            f"{master} is made, or use bowstring.spark.register with it"
        )
    if running is None:
        java = use_java()
        _set_environment(is_local=master.startswith("local"))
    builder = SparkSession.builder.master(master).appName(app_name)
    defaults = _settings(master) if running is None else {}  # a running session may have been set otherwise on purpose
    for key, value in {**defaults, **(conf or {})}.items():
        builder = builder.config(key, str(value).lower() if isinstance(value, bool) else value)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
            spark = builder.getOrCreate()
    except PySparkException as problem:
        reason = f" with the Java of {java.home}" if running is None else ""
        raise EnvironmentProblemError(f"Spark did not start{reason}: {problem}") from problem
    except KeyboardInterrupt:
        if SparkContext._gateway is None:
            end_children(_LAUNCHERS, _END_S)  # PySpark forgets a Java that is starting, which then stays for ever
        raise
    if running is None and master.startswith("local-cluster"):
        _remove_worker_folder_at_exit(spark)
    return register(spark)


def register(spark: SparkSession) -> SparkSession:
    """Make ``format("arrow")`` known to `spark`, a session of the caller's own (classic or Connect); gives it back.

    From then on `readStream` and `writeStream` raise `UsageError` for ``format("arrow")``, which has no streams.
    The package has to be importable where the session's Python workers run. A thread of the caller's own calls this
    before it writes: Spark looks a data source up in the session that is active in the thread, and a new one has none.
    """
    from bowstring.spark.batch_size import skip_check_of_writes
    from bowstring.spark.source import ArrowDataSource
    from bowstring.spark.streaming import reject_streams

    spark.dataSource.register(ArrowDataSource)
    reject_streams(spark)
    skip_check_of_writes()
    jvm = getattr(spark, "_jvm", None)  # a Connect session has none, and needs nothing more
    if jvm is not None:
        type(spark)._get_j_spark_session_class(jvm).setActiveSession(spark._jsparkSession)
    return spark


def _set_environment(is_local: bool) -> None:
    """What Spark takes only from the environment; a value that is there already stays."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if is_local:
        # Spark asks the resolver for the machine's own name, and containers often have none that resolves.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def _settings(master: str) -> dict[str, str | int | bool]:
    """Spark settings by name, for a session that is about to start."""
    folder = Path(tempfile.mkdtemp(prefix="bowstring-spark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    log4j = folder / "log4j2.properties"
    log4j.write_text(_QUIET_LOG4J)
    settings: dict[str, str | int | bool] = {
        "spark.sql.execution.arrow.pyspark.enabled": True,
        "spark.sql.execution.arrow.maxRecordsPerBatch": MAX_RECORDS_PER_BATCH,
        "spark.sql.timeType.enabled": True,
        "spark.driver.memory": f"{_driver_memory_mb()}m",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log4j.as_uri()} -Dderby.system.home={folder}",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": (folder / "warehouse").as_uri(),
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": False,
    }
    if master.startswith("local"):
        settings |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    if master.startswith("local-cluster"):
        settings["spark.executor.extraJavaOptions"] = f"-Dlog4j2.configurationFile={log4j.as_uri()}"
    return settings


def _driver_memory_mb() -> int:
    """A quarter of the memory that this process may use, between 1 and 8 GiB, in MiB."""
    available_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            available_bytes = min(available_bytes, int(Path(limit).read_text()))
        except (OSError, ValueError):
            continue
    return max(1024, min(8192, available_bytes // 4 >> 20))


def _remove_worker_folder_at_exit(spark: SparkSession) -> None:
    """A local cluster's workers keep their executors' logs in SPARK_HOME/work and never remove them: do it at exit."""
    from pyspark.find_spark_home import _find_spark_home

    application = spark.sparkContext.applicationId
    if re.fullmatch(r"app-[0-9-]+", application):
        atexit.register(_remove_worker_folder, spark, Path(_find_spark_home(), "work", application))


def _remove_worker_folder(spark: SparkSession, folder: Path) -> None:
    spark.stop()
    shutil.rmtree(folder, ignore_errors=True)

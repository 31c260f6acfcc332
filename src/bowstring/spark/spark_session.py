"""A Spark session with settings for Arrow, and the registration of ``format("arrow")`` in any session.

docs/reference/spark.md lists the settings. The caller's own settings take precedence.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

from bowstring.errors import InvalidArgumentError, UnmetRequirementError, require_package
from bowstring.memory.available_memory import read_memory_limits
from bowstring.memory.unnamed_file import temporary_folder
from bowstring.sharing.processes import ProcessIdentity, find_python, parent_pid, wait_for_exit
from bowstring.spark.runtime.java_runtime import set_java_home

with require_package("PySpark", "spark"):
    from pyspark import SparkContext
    from pyspark.errors import AnalysisException, PySparkException
    from pyspark.find_spark_home import _find_spark_home
    from pyspark.sql import SparkSession

from bowstring.spark.folder.staging import OWNER_FILE_NAME, encode_owner_json, read_owner
from bowstring.spark.reader_writer_methods import extend_reader_and_writer
from bowstring.spark.runtime.arrow_batch_job import MAX_BATCH_BYTES, PANDAS_WARNING
from bowstring.spark.runtime.arrow_cache import ARROW_SERIALIZER, SERIALIZER_SETTING
from bowstring.spark.versions import ARROW_CACHE, BATCH_BYTE_LIMIT, DATA_SOURCE, SPARK_VERSION, check_spark_version

check_spark_version()
if DATA_SOURCE.is_available:
    from pyspark_bowstring import DefaultSource

MAX_RECORDS_PER_BATCH = 65_536
"""Rows per batch; Spark's own default makes small batches of narrow rows."""

_PYTHON_PATH_FOLDER = Path(__file__).parent / "runtime" / "python_path"
"""Where the Python processes of a local session find `sitecustomize`."""
_LAUNCHER_NAMES = ("spark-submit", "spark-class", "SparkSubmit")
# A JVM ends within a second or two of SIGTERM; a script may ignore the signal.
_LAUNCHER_TIMEOUT_S = 5.0
_FOLDER_PREFIX = "bowstring-spark-"
_MAX_SOCKET_FOLDER_BYTES = 64
"""The path of a unix socket has at most 107 bytes; Spark's name of the file has 42."""

# The root has the level of Spark's shell, which would print a message about any other.
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
    master: str = "local[*]",
    conf: Mapping[str, str | int | bool] | None = None,
    *,
    app_name: str = "bowstring",
    arrow_cache: bool = False,
) -> SparkSession:
    """Start a Spark session for Arrow, or return the running one of this process, with ``format("arrow")`` registered.

    Sets the environment variables JAVA_HOME, PYSPARK_PYTHON and, for a local master, SPARK_LOCAL_IP, and ignores
    PySpark's warning about pandas 3. Leaves no files in the working directory.

    Args:
        master: ``local[*]``, ``local-cluster[2,1,1024]``, ``spark://host:port``, …
        conf: Spark settings, which override Bowstring's. A running session gets no others.
        app_name: the name of the Spark application.
        arrow_cache: whether ``df.cache()`` keeps Arrow batches, from which `publish` and `write` take the columns
            without converting rows; needs PySpark 4.3.

    Raises:
        UnmetRequirementError: no suitable Java was found, or Spark did not start.
        InvalidArgumentError: a session with another master is running in this process: stop it, or pass it to
            `register`.
    """
    if arrow_cache:
        ARROW_CACHE.check()
        conf = {SERIALIZER_SETTING: ARROW_SERIALIZER, **(conf or {})}
    running = SparkContext._active_spark_context
    if running is not None and running.master != master:
        raise InvalidArgumentError(
            f"a Spark session with master {running.master} runs in this process already: stop it before starting one "
            f"with {master}, or pass it to bowstring.spark.register"
        )
    if running is None:
        java = set_java_home()
        _set_environment_variables(is_local=master.startswith("local"))
    builder = SparkSession.builder.master(master).appName(app_name)
    defaults = _create_default_settings(master) if running is None else {}
    for key, value in {**defaults, **(conf or {})}.items():
        builder = builder.config(key, str(value).lower() if isinstance(value, bool) else value)
    try:
        # With pandas 3, PySpark would warn in each conversion of the session.
        warnings.filterwarnings("ignore", PANDAS_WARNING, FutureWarning)
        is_local = master.startswith("local") and not master.startswith("local-cluster")
        with _prepend_python_path(_PYTHON_PATH_FOLDER) if is_local else contextlib.nullcontext():
            spark = builder.getOrCreate()
    except PySparkException as problem:
        if running is not None:
            raise UnmetRequirementError(f"Spark did not start: {problem}") from problem
        raise UnmetRequirementError(
            f"Spark did not start with the master {master!r} and the Java of {java.home}; Spark has written the reason "
            f"to standard error: {problem}"
        ) from problem
    except (KeyboardInterrupt, SystemExit):
        if SparkContext._gateway is None:
            _terminate_launcher()  # PySpark does not end a Java that is still starting
        raise
    if running is None:
        if master.startswith("local-cluster"):  # whose workers leave logs; registered first, to run last
            logs = Path(_find_spark_home(), "work", spark.sparkContext.applicationId)
            atexit.register(shutil.rmtree, logs, ignore_errors=True)
        # Otherwise Java ends first, and tasks that still run print errors.
        atexit.register(_stop_quietly, spark)
    return register(spark)


def _stop_quietly(spark: SparkSession) -> None:
    """Stop a session unless that has happened already."""
    with contextlib.suppress(Exception):  # at exit, Java may have ended before
        spark.stop()


def _terminate_launcher() -> None:
    """End the child processes that start Java, with SIGTERM, after a while with SIGKILL."""
    # Descriptors, because before the second signal another process may get the number.
    pidfds = [
        (pid, os.pidfd_open(pid))
        for pid in (int(name) for name in os.listdir("/proc") if name.isdigit())
        if parent_pid(pid) == os.getpid() and any(name in _read_command_line(pid) for name in _LAUNCHER_NAMES)
    ]
    for pid, pidfd in pidfds:
        for signal_number, timeout_s in ((signal.SIGTERM, 0.0), (signal.SIGKILL, _LAUNCHER_TIMEOUT_S)):
            if not wait_for_exit(pidfd, timeout_s):
                signal.pidfd_send_signal(pidfd, signal_number)
        os.close(pidfd)
        try:
            os.waitpid(pid, 0)
        except ChildProcessError:
            pass  # reaped already


def _read_command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return ""


def register(spark: SparkSession) -> SparkSession:
    """Register ``format("arrow")`` in `spark`, a classic or Connect session, and return it.

    Spark finds the source itself if the driver's Python has this package, by its module ``pyspark_bowstring``. The
    session's Python workers must be able to import the package, too. Call `register` in each thread that writes: Spark
    looks a data source up in the active session of the thread, and a new thread has none. With PySpark 3.5, which has
    no Python data sources, ``format("arrow")`` raises `UnmetRequirementError` from then on.
    """
    extend_reader_and_writer(spark)
    if not DATA_SOURCE.is_available:
        return spark
    try:
        spark.dataSource.register(DefaultSource)
    except AnalysisException as problem:
        if problem.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
        # Spark has imported pyspark_bowstring.
    jvm = getattr(spark, "_jvm", None)  # None for a Connect session
    if jvm is not None:
        type(spark)._get_j_spark_session_class(jvm).setActiveSession(spark._jsparkSession)
    return spark


def _set_environment_variables(is_local: bool) -> None:
    """Set the variables that Spark reads only from the environment, unless they are set."""
    os.environ.setdefault("PYSPARK_PYTHON", find_python())
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", find_python())
    if is_local:
        # Spark resolves the machine's own name, which often fails in containers.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


@contextlib.contextmanager
def _prepend_python_path(folder: Path) -> Iterator[None]:
    """Let Python processes that start inside the block, and their children, search a folder for modules first."""
    previous = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(folder) if previous is None else f"{folder}{os.pathsep}{previous}"
    try:
        yield
    finally:
        if previous is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = previous


def _create_default_settings(master: str) -> dict[str, str | int | bool]:
    """Return the Spark settings of a new session."""
    folder = _create_session_folder()
    log4j = folder / "log4j2.properties"
    log4j.write_text(_QUIET_LOG4J)
    settings: dict[str, str | int | bool] = {
        "spark.sql.execution.arrow.pyspark.enabled": True,
        "spark.sql.timeType.enabled": True,
        "spark.driver.memory": f"{_driver_memory_mib()}m",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log4j.as_uri()} -Dderby.system.home={folder}",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": (folder / "warehouse").as_uri(),
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": False,
    }
    if BATCH_BYTE_LIMIT.is_available:  # otherwise so many wide rows would exhaust the memory of the JVM
        settings["spark.sql.execution.arrow.maxRecordsPerBatch"] = MAX_RECORDS_PER_BATCH
    if SPARK_VERSION == (4, 0):  # later versions have this default, this one 256 MiB
        settings["spark.sql.execution.arrow.maxBytesPerBatch"] = MAX_BATCH_BYTES
    if master.startswith("local"):
        settings |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
        if len(os.fsencode(folder)) <= _MAX_SOCKET_FOLDER_BYTES:
            settings["spark.python.unix.domain.socket.enabled"] = True
            settings["spark.python.unix.domain.socket.dir"] = str(folder)
        if not master.startswith("local-cluster"):  # whose executors may find this package only in a task
            settings["spark.python.daemon.module"] = "bowstring.spark.runtime.worker_daemon"
    if master.startswith("local-cluster"):
        settings["spark.executor.extraJavaOptions"] = f"-Dlog4j2.configurationFile={log4j.as_uri()}"
    return settings


def _create_session_folder() -> Path:
    """Create a temporary folder, which is removed at exit. Remove the folders of processes that were killed before."""
    parent = temporary_folder()
    for other in Path(parent).glob(f"{_FOLDER_PREFIX}*"):
        with contextlib.suppress(OSError):
            owner = read_owner(other)
            if other.stat().st_uid == os.getuid() and owner.pid > 0 and owner.is_local and not owner.is_alive():
                shutil.rmtree(other, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=_FOLDER_PREFIX, dir=parent))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / OWNER_FILE_NAME).write_text(encode_owner_json(ProcessIdentity.current()))
    return folder


def _driver_memory_mib() -> int:
    """Return a quarter of the memory of the machine or container, between 1 and 8 GiB, in MiB."""
    total_bytes = min((limit.total_bytes for limit in read_memory_limits()), default=0)
    return max(1024, min(8192, total_bytes // 4 >> 20))

"""The versions of PySpark: what each feature needs, and what replaces it where PySpark is older.

docs/reference/spark.md has the same as a table.
"""

from __future__ import annotations

from dataclasses import dataclass

from bowstring.errors import UnmetRequirementError, format_install_command

try:
    from pyspark import __version__ as _installed_version
except ImportError:  # `find_java` runs without PySpark
    _installed_version = "4.3.0"

MIN_SPARK_VERSION = (3, 5)
SPARK_VERSION = tuple(map(int, _installed_version.split(".")[:2]))


def check_spark_version() -> None:
    """Raise `UnmetRequirementError` if the installed PySpark is too old for all of Bowstring."""
    if SPARK_VERSION < MIN_SPARK_VERSION:
        raise UnmetRequirementError(
            f"Bowstring needs PySpark 3.5 or later, found {_installed_version}: {format_install_command('spark')}"
        )


@dataclass(frozen=True, slots=True)
class SparkFeature:
    """A feature that older versions of PySpark lack."""

    name: str
    since: tuple[int, int]
    alternative: str

    @property
    def is_available(self) -> bool:
        """Whether the installed PySpark has it."""
        return self.since <= SPARK_VERSION

    def check(self) -> None:
        """Raise `UnmetRequirementError` with the version and the alternative if the installed PySpark lacks it."""
        if not self.is_available:
            major, minor = self.since
            raise UnmetRequirementError(
                f"{self.name} needs PySpark {major}.{minor}, this is {_installed_version}: {self.alternative}"
            )


DATA_SOURCE = SparkFeature('format("arrow")', (4, 0), "use bowstring.spark.read and bowstring.spark.write")
DATA_SOURCE_STREAMS = SparkFeature(
    'a stream by format("arrow")', (4, 0), "use publish_stream, or write or publish in foreachBatch"
)
READ_LIMITS = SparkFeature(
    "maxFilesPerTrigger or maxBytesPerTrigger", (4, 2), "leave it out: a batch has all new files"
)
ROWS_WITHOUT_COLUMNS = SparkFeature(
    'format("arrow") of rows without columns', (4, 1), "use num_rows of the data set, or bowstring.spark.count_rows"
)
BATCH_BYTE_LIMIT = SparkFeature("a limit of the bytes of a batch", (4, 0), "set maxRecordsPerBatch")
ARROW_CACHE = SparkFeature("session(arrow_cache=True)", (4, 3), "leave it out: frames are cached in Spark's own format")

"""Spark: publish data frames to shared memory, and ``format("arrow")`` for Arrow files.

PySpark is imported when it is first used.
"""

from typing import TYPE_CHECKING

from bowstring._lazy_exports import lazy_exports

if TYPE_CHECKING:
    from bowstring.spark.java import Java as Java, find_java as find_java, use_java as use_java
    from bowstring.spark.publication import Partition as Partition, Published as Published, publish as publish
    from bowstring.spark.spark_session import register as register, session as session
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "java": ("Java", "find_java", "use_java"),
            "publication": ("Partition", "Published", "publish"),
            "spark_session": ("register", "session"),
        },
    )

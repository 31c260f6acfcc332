"""Spark: publish data frames to shared memory, and ``format("arrow")`` for Arrow files.

PySpark is imported when it is first used.
"""

from bowstring.spark.java import Java, find_java, use_java
from bowstring.spark.publish import Partition, Published, publish
from bowstring.spark.session import register, session

__all__ = ["Java", "Partition", "Published", "find_java", "publish", "register", "session", "use_java"]

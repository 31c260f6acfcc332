"""The road out of Spark: publishing a data frame to the memory of the hosts, and ``format("arrow")`` for Arrow files.

Nothing here imports PySpark before it is needed.
"""

from bowstring.spark.java import Java, find_java, use_java
from bowstring.spark.publish import Partition, Published, publish
from bowstring.spark.session import register, session

__all__ = ["Java", "Partition", "Published", "find_java", "publish", "register", "session", "use_java"]

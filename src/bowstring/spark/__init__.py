"""The road out of Spark: a session that is set up for Arrow, and ``format("arrow")`` to write and read Arrow files.

Nothing here imports PySpark before it is needed.
"""

from bowstring.spark.session import register, session

__all__ = ["register", "session"]

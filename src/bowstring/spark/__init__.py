"""Spark: publish data frames to shared memory, and ``format("arrow")`` for Arrow files.

PySpark is imported when it is first used.
"""

from bowstring._lazy_exports import attach_lazy_exports

__getattr__, __dir__ = attach_lazy_exports(__name__)

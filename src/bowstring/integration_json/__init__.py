"""Arrow's integration JSON («JSON test data format»), which Arrow implementations use for cross-testing.

`read` reads a document into a schema and record batches, `build_document` and `write` write one, and `find_differences`
compares two data files.
"""

from bowstring._lazy_exports import attach_lazy_exports

__getattr__, __dir__ = attach_lazy_exports(__name__)

"""Arrow's integration JSON («JSON test data format»), which Arrow implementations use for cross-testing.

`read` reads a document into a schema and record batches, `build_document` and `write` write one, and `find_differences`
compares two data files.
"""

from typing import TYPE_CHECKING

from bowstring._lazy_exports import lazy_exports

if TYPE_CHECKING:
    from bowstring.integration_json.compare import find_differences as find_differences
    from bowstring.integration_json.document import (
        DEFAULT_LIMITS as DEFAULT_LIMITS,
        DataFile as DataFile,
        DocumentLimits as DocumentLimits,
    )
    from bowstring.integration_json.reader import read as read
    from bowstring.integration_json.writer import build_document as build_document, write as write
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "compare": ("find_differences",),
            "document": ("DEFAULT_LIMITS", "DataFile", "DocumentLimits"),
            "reader": ("read",),
            "writer": ("build_document", "write"),
        },
    )

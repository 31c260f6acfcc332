"""Arrow's integration JSON («JSON test data format»), which Arrow implementations use for cross-testing.

`read` reads a document into a schema and record batches, `build_document` and `write` write one, and `find_differences`
compares two datasets.
"""

from bowstring.integration_json.compare import find_differences as find_differences
from bowstring.integration_json.dataset import (
    DEFAULT_LIMITS as DEFAULT_LIMITS,
    Dataset as Dataset,
    DocumentLimits as DocumentLimits,
)
from bowstring.integration_json.reader import read as read
from bowstring.integration_json.writer import build_document as build_document, write as write

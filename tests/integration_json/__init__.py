"""Arrow's integration JSON («Integration Testing»): documents of a schema, record batches and dictionaries.

README.md describes it for other implementers.
"""

from tests.integration_json.compare import find_differences as find_differences
from tests.integration_json.json_access import DEFAULT_LIMITS as DEFAULT_LIMITS, DocumentLimits as DocumentLimits
from tests.integration_json.reader import read as read
from tests.integration_json.writer import build_document as build_document, write as write

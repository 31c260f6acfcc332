from bowstring.integration_json.compare import find_differences as find_differences
from bowstring.integration_json.json_access import (
    DEFAULT_LIMITS as DEFAULT_LIMITS,
    DocumentLimits as DocumentLimits,
)
from bowstring.integration_json.reader import read as read
from bowstring.integration_json.writer import build_document as build_document, write as write

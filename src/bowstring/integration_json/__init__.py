"""Arrow's integration JSON («JSON test data format»): data sets as text that implementations share.

`read` turns such a document into a schema and record batches, `document` and `write` are the way back, and
`differences` says where two data sets part.
"""

from bowstring.integration_json.compare import differences as differences
from bowstring.integration_json.dataset import DEFAULT_LIMITS as DEFAULT_LIMITS, DataSet as DataSet, Limits as Limits
from bowstring.integration_json.reader import read as read
from bowstring.integration_json.writer import document as document, write as write

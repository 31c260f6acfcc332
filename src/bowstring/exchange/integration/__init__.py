"""Arrow's integration JSON («JSON test data format»): data sets as text that implementations share.

`read` turns such a document into a schema and record batches, `document` and `write` are the way back, and
`differences` says where two data sets part.
"""

from bowstring.exchange.integration.comparing import differences as differences
from bowstring.exchange.integration.data import DEFAULT_LIMITS as DEFAULT_LIMITS, DataSet as DataSet, Limits as Limits
from bowstring.exchange.integration.reading import read as read
from bowstring.exchange.integration.writing import document as document, write as write

from bowstring.testing.strategies import (
    arrays as arrays,
    batches as batches,
    fields as fields,
    flat_types as flat_types,
    metadata as metadata,
    nullable_values as nullable_values,
    types as types,
    values as values,
)
from bowstring.testing.transport_conformance import (
    ExportedMemoryConformance as ExportedMemoryConformance,
    TransportConformance as TransportConformance,
)

from bowstring.testing.exported_memory_conformance import MemoryConformance as MemoryConformance
from bowstring.testing.protocol_conformance import ProtocolConformance as ProtocolConformance
from bowstring.testing.session_conformance import (
    ClientConformance as ClientConformance,
    ServerConformance as ServerConformance,
)
from bowstring.testing.strategies import (
    arrays as arrays,
    batches as batches,
    fields as fields,
    flat_types as flat_types,
    metadata as metadata,
    slots as slots,
    types as types,
    values as values,
)
from bowstring.testing.transport_conformance import TransportConformance as TransportConformance

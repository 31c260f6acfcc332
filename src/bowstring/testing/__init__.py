"""Tools for tests: strategies for Hypothesis, and conformance suites for transports.

They need Hypothesis and pytest, which the extra `test` installs. To test an implementation of
`bowstring.transports.base.Transport`, subclass `TransportConformance` and set its `transport`. To test a client or a
server of the Dissociated IPC protocol in any language, subclass `ClientSessions` or `ServerSessions`.
"""

from typing import TYPE_CHECKING

from bowstring._lazy_exports import lazy_exports

if TYPE_CHECKING:
    from bowstring.testing.memory_conformance import MemoryConformance as MemoryConformance
    from bowstring.testing.protocol_conformance import ProtocolConformance as ProtocolConformance
    from bowstring.testing.session_conformance import (
        ClientSessions as ClientSessions,
        ServerSessions as ServerSessions,
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
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "memory_conformance": ("MemoryConformance",),
            "protocol_conformance": ("ProtocolConformance",),
            "session_conformance": ("ClientSessions", "ServerSessions"),
            "strategies": ("arrays", "batches", "fields", "flat_types", "metadata", "slots", "types", "values"),
            "transport_conformance": ("TransportConformance",),
        },
    )

"""Arrow IPC: streams and files («Serialization and Interprocess Communication (IPC)»).

This package exports the classes of readers and writers, options, limits, and tools for whole files. `open_file`,
`open_stream`, `new_file` and `new_stream` are as in `bowstring` itself.
"""

from bowstring._lazy_exports import attach_lazy_exports

__getattr__, __dir__ = attach_lazy_exports(__name__)

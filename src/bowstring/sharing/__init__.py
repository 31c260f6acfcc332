"""Tables shared between processes.

`share`, `attach`, `serve` and `connect` are in `bowstring` itself. This package exports the classes that they return,
the options of a server, recordings, and `new_shared_table`, which writes directly into shared memory.
"""

from bowstring._lazy_exports import attach_lazy_exports

__getattr__, __dir__ = attach_lazy_exports(__name__)

"""Data types, fields, schemas and extension types («Data Types»).

The functions that create the types of the columnar format are in `bowstring` itself: `bowstring.int32()`. This package
exports the classes of those types, the canonical extension types, and the registry of extension types.
"""

from bowstring._lazy_exports import attach_lazy_exports

__getattr__, __dir__ = attach_lazy_exports(__name__)

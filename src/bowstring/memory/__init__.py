"""Buffers, validity bitmaps, regions shared between processes, and arenas that use their memory again."""

from bowstring._lazy_exports import attach_lazy_exports

__getattr__, __dir__ = attach_lazy_exports(__name__)

"""Buffers, validity bitmaps, regions shared between processes, and arenas that use their memory again."""

from typing import TYPE_CHECKING

from bowstring._lazy_exports import lazy_exports

if TYPE_CHECKING:
    from bowstring.memory.arena import Arena as Arena
    from bowstring.memory.buffer import Buffer as Buffer
    from bowstring.memory.pool import release_unused_memory as release_unused_memory
    from bowstring.memory.region import Region as Region
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "arena": ("Arena",),
            "buffer": ("Buffer",),
            "pool": ("release_unused_memory",),
            "region": ("Region",),
        },
    )

"""A cache of decoded schemas: the files of a data set share one, and comparing bytes is cheaper than decoding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock

import numpy as np

from bowstring.datatypes.extension import NAME_KEY
from bowstring.flatbuf.reader import FlatTable
from bowstring.ipc.limits import ReadLimits
from bowstring.ipc.metadata.schema import IpcSchema
from bowstring.layouts.equality import bytes_equal
from bowstring.memory.buffer import UINT8, Bytes

# The schemas in use at a time are few, whatever the number of files; a look-up costs the same for any number.
_MAX_CACHED = 64
# A key is compared as a whole whenever a file is opened: a millisecond or so for this size.
_MAX_KEY_BYTES = 4 << 20
# With the objects, which take ten times as much, the cache keeps at most some 180 MB.
_MAX_CACHED_BYTES = 16 << 20
# Hashing all bytes would take as long as comparing them. Schemas whose edges are equal replace each other.
_KEY_EDGE_BYTES = 48


@dataclass(frozen=True, slots=True, eq=False)
class _CacheEntry:
    """A schema, the encoded bytes that define it, and the size of the message that it references."""

    ipc_schema: IpcSchema
    key_parts: Sequence[Bytes]
    size_bytes: int


_cache: dict[tuple[object, ...], _CacheEntry] = {}
_lock = Lock()


def get_ipc_schema(table: FlatTable, limits: ReadLimits, key_parts: Sequence[Bytes] = ()) -> IpcSchema:
    """Return the schema of a `Schema` table, from the cache or decoded.

    `key_parts` are the byte ranges that define it, by default its whole message.

    A schema with extension types is always decoded, as its types depend on the current registry.
    """
    data = table.flatbuffer.raw
    key_parts = key_parts or (np.frombuffer(data, UINT8),)
    if len(data) > _MAX_CACHED_BYTES or sum(map(len, key_parts)) > _MAX_KEY_BYTES or NAME_KEY in data:
        return IpcSchema.from_table(table, limits)
    key = (
        *(
            (len(bytes_), bytes_[:_KEY_EDGE_BYTES].tobytes(), bytes_[-_KEY_EDGE_BYTES:].tobytes())
            for bytes_ in key_parts
        ),
        limits,
    )
    cached = _cache.get(key)
    if cached is None or not all(map(bytes_equal, cached.key_parts, key_parts)):
        cached = _CacheEntry(IpcSchema.from_table(table, limits), key_parts, len(data))
        with _lock:
            total_bytes = sum(entry.size_bytes for entry in _cache.values())  # the objects take about ten times as much
            if len(_cache) >= _MAX_CACHED or total_bytes + len(data) > _MAX_CACHED_BYTES:
                _cache.clear()
            _cache[key] = cached
        return cached.ipc_schema
    return cached.ipc_schema.with_table(table)

"""A cache of decoded schemas: the files of a data set share one, and comparing bytes is cheaper than decoding."""

from __future__ import annotations

from dataclasses import dataclass

from bowstring.datatypes.extension import NAME_KEY
from bowstring.flatbuf.reader import FlatTable
from bowstring.ipc.limits import ReadLimits
from bowstring.ipc.metadata.schema import IpcSchema
from bowstring.memory.forks import ProcessLock

# The schemas in use at a time are few, whatever the number of files; a look-up costs the same for any number.
_MAX_CACHED = 64
# With the objects, which take ten times as much, the cache keeps at most some 180 MB.
_MAX_CACHED_BYTES = 16 << 20
# The bytes of a schema are compared as a whole whenever a file is opened: a millisecond or so for this size.
_MAX_COMPARED_BYTES = 4 << 20
# Hashing all bytes would take longer than comparing them. Schemas whose edges are equal replace each other.
_KEY_EDGE_BYTES = 48


@dataclass(frozen=True, slots=True, eq=False)
class _CacheEntry:
    """A schema, the byte ranges that define it, and the size of the message that it references."""

    ipc_schema: IpcSchema
    encoded: tuple[bytes, ...]
    size_bytes: int


_cache: dict[tuple[object, ...], _CacheEntry] = {}
_lock = ProcessLock()


def get_ipc_schema(table: FlatTable, limits: ReadLimits, encoded: tuple[bytes, ...] = ()) -> IpcSchema:
    """Return the schema of a `Schema` table, from the cache or decoded.

    `encoded` are the byte ranges that define it, by default its whole message. Each has to be equal: joined, they could
    be equal where offsets between them are not.

    A schema with extension types is always decoded, as its types depend on the current registry.
    """
    message = table.flatbuffer.raw
    encoded = encoded or (message,)
    if len(message) > _MAX_CACHED_BYTES or sum(map(len, encoded)) > _MAX_COMPARED_BYTES or NAME_KEY in message:
        return IpcSchema.from_table(table, limits)
    key: tuple[object, ...] = (limits,)
    for slice_ in encoded:
        key += len(slice_), slice_[:_KEY_EDGE_BYTES], slice_[-_KEY_EDGE_BYTES:]
    cached = _cache.get(key)
    if cached is not None and cached.encoded == encoded:
        return cached.ipc_schema.with_table(table)
    ipc_schema = IpcSchema.from_table(table, limits)
    with _lock.of_this_process:
        total_bytes = len(message)
        for entry in _cache.values():
            total_bytes += entry.size_bytes
        if len(_cache) >= _MAX_CACHED or total_bytes > _MAX_CACHED_BYTES:
            _cache.clear()
        _cache[key] = _CacheEntry(ipc_schema, encoded, len(message))
    return ipc_schema

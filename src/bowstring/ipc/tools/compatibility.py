"""Whether sources go together: the schema, the byte order and the metadata version are those of the first one."""

from __future__ import annotations

from dataclasses import dataclass

from bowstring.errors import UnsupportedError, UsageError
from bowstring.flatbuf.tables import VERSIONS
from bowstring.ipc.metadata.schema import V4, V5, WireSchema
from bowstring.ipc.schema_cache import CachedSchema, schema_difference
from bowstring.ipc.tools.concat_source import ConcatSource

_MAX_KEPT = 64


@dataclass(frozen=True, slots=True)
class FirstSource:
    """What the first source has said: how to call it, its schema and metadata version; and the schemas that were found
    to be the same.
    """

    name: str
    wire: WireSchema
    version: int
    alike: list[CachedSchema]

    @classmethod
    def of(cls, incoming: ConcatSource) -> FirstSource:
        """Begin with a source. Raises `UnsupportedError` for metadata versions that are not read."""
        version = incoming.scan.version
        if version not in (V4, V5):
            raise UnsupportedError(f"{incoming.name}: metadata version {_version(version)} is not supported")
        return cls(incoming.name, incoming.known.wire.whole, version, [incoming.known])

    def check(self, incoming: ConcatSource) -> None:
        """Raise `UsageError` naming the first difference."""
        if incoming.scan.version != self.version:
            raise self._unlike(incoming, f"metadata version {_version(self.version)}", _version(incoming.scan.version))
        if any(incoming.known is known for known in self.alike):
            return
        ours, theirs = self.wire, incoming.known.wire.whole
        if ours.is_big_endian != theirs.is_big_endian:
            raise self._unlike(
                incoming, *("big-endian" if it.is_big_endian else "little-endian" for it in (ours, theirs))
            )
        found = schema_difference(ours.schema, theirs.schema, check_metadata=True)
        if found is not None:
            raise self._unlike(incoming, *found)
        if len(self.alike) < _MAX_KEPT:
            self.alike.append(incoming.known)

    def _unlike(self, incoming: ConcatSource, expected: str, found: str) -> UsageError:
        return UsageError(f"{incoming.name}: expected {expected} as in {self.name}, found {found}")


def _version(number: int) -> str:
    return VERSIONS[number] if 0 <= number < len(VERSIONS) else str(number)

"""Check that schema, byte order and metadata version of each source equal those of the first one."""

from __future__ import annotations

from dataclasses import dataclass

from bowstring.errors import UnsupportedError, UsageError
from bowstring.flatbuf.tables import VERSIONS
from bowstring.ipc.metadata.schema import V4, V5, WireSchema
from bowstring.ipc.schema_cache import CachedSchema, schema_difference
from bowstring.ipc.tools.concat_source import ConcatSource

_MAX_EQUAL_SCHEMAS = 64


@dataclass(frozen=True, slots=True)
class FirstSource:
    """Name, schema and metadata version of the first source, and the cached schemas that equal its schema."""

    name: str
    wire: WireSchema
    version: int
    equal_schemas: list[CachedSchema]

    @classmethod
    def of(cls, source: ConcatSource) -> FirstSource:
        """Begin with a source. Raises `UnsupportedError` for unsupported metadata versions."""
        version = source.scan.version
        if version not in (V4, V5):
            raise UnsupportedError(f"{source.name}: metadata version {_version_name(version)} is not supported")
        return cls(source.name, source.cached_schema.wire.whole, version, [source.cached_schema])

    def check(self, source: ConcatSource) -> None:
        """Raise `UsageError` with the first difference, if any."""
        if source.scan.version != self.version:
            raise self._mismatch_error(
                source, f"metadata version {_version_name(self.version)}", _version_name(source.scan.version)
            )
        if any(source.cached_schema is cached_schema for cached_schema in self.equal_schemas):
            return
        wire, other_wire = self.wire, source.cached_schema.wire.whole
        if wire.is_big_endian != other_wire.is_big_endian:
            raise self._mismatch_error(
                source, *("big-endian" if each.is_big_endian else "little-endian" for each in (wire, other_wire))
            )
        mismatch = schema_difference(wire.schema, other_wire.schema, check_metadata=True)
        if mismatch is not None:
            raise self._mismatch_error(source, *mismatch)
        if len(self.equal_schemas) < _MAX_EQUAL_SCHEMAS:
            self.equal_schemas.append(source.cached_schema)

    def _mismatch_error(self, source: ConcatSource, expected: str, found: str) -> UsageError:
        return UsageError(f"{source.name}: expected {expected} as in {self.name}, found {found}")


def _version_name(number: int) -> str:
    return VERSIONS[number] if 0 <= number < len(VERSIONS) else str(number)

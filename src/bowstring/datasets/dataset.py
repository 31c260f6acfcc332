"""The description of a data set in parts: a schema, and for each part its rows, bytes and locations.

A description is small. It can be pickled or written as JSON, and `bowstring.connect` opens it in any process.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from bowstring.arrays.table import Table
from bowstring.datatypes.schema import Schema
from bowstring.errors import BowstringError, InvalidDataError
from bowstring.ipc.api import new_stream, open_stream
from bowstring.sharing.connect import connect

_FORMAT = "bowstring-dataset"
_FORMAT_VERSION = 1
_FieldType = TypeVar("_FieldType")


@dataclass(frozen=True, slots=True)
class DatasetPart:
    """One part of a data set: its size and where it is."""

    num_rows: int
    nbytes: int
    """The bytes that it occupies."""
    locations: tuple[str, ...]
    """URIs of the same rows, of which `bowstring.connect` uses the nearest that works. Without any, there are no rows
    to read.
    """
    host: str | None = None
    """The name of the host whose memory or disk has it, if known."""


class Dataset:
    """A schema and parts, in order; frozen.

    Reading methods connect to the parts, and close the connections. To read repeatedly or batch by batch, open a
    `DatasetReader` with `bowstring.connect`.
    """

    __slots__ = ("__weakref__", "name", "parts", "schema")

    def __init__(self, name: str, schema: Schema, parts: Iterable[DatasetPart]) -> None:
        self.name = name
        self.schema = schema
        self.parts = tuple(parts)

    @property
    def uris(self) -> tuple[str, ...]:
        """The first location of each part that has any."""
        return tuple(part.locations[0] for part in self.parts if part.locations)

    @property
    def num_rows(self) -> int:
        """The rows of all parts."""
        return sum(part.num_rows for part in self.parts)

    @property
    def nbytes(self) -> int:
        """The bytes of all parts, on all hosts together."""
        return sum(part.nbytes for part in self.parts)

    def read_all(self) -> Table:
        """Read all parts into a table, without copying those in shared memory of this host. Raises as `connect`."""
        with connect(self) as reader:
            return reader.read_all()

    def to_pandas(self) -> Any:
        """Read all parts into a pandas data frame. Raises as `connect` and `Table.to_pandas`."""
        return self.read_all().to_pandas()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.read_all().__arrow_c_stream__(requested_schema)

    def to_json(self) -> str:
        """Return the description as JSON, for `from_json` or another language. URIs may have secret tickets.

        `schema` is the Base64 text of an IPC stream without batches («IPC Streaming Format»).
        """
        return json.dumps(
            {
                "format": _FORMAT,
                "version": _FORMAT_VERSION,
                "name": self.name,
                "schema": _encode_schema(self.schema),
                "parts": [
                    {"rows": part.num_rows, "bytes": part.nbytes, "locations": part.locations, "host": part.host}
                    for part in self.parts
                ],
            }
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Return the data set of a text of `to_json`. Raises `InvalidDataError`."""
        try:
            description = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidDataError(f"data set: expected JSON: {error}") from None
        header = (_read_field(description, "format", str), _read_field(description, "version", int))
        if header != (_FORMAT, _FORMAT_VERSION):
            raise InvalidDataError(f"data set: expected {_FORMAT!r}, version {_FORMAT_VERSION}, found {header}")
        schema = _decode_schema(_read_field(description, "schema", str))
        parts = [_parse_part(part) for part in _read_field(description, "parts", list)]
        return cls(_read_field(description, "name", str), schema, parts)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Dataset):
            return NotImplemented
        return (self.name, self.schema, self.parts) == (other.name, other.schema, other.parts)

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        size = f"{self.num_rows} rows, {self.nbytes} bytes in {len(self.parts)} parts"
        return f"<bowstring.datasets.Dataset {self.name}: {size}>\n{self.schema}"


def _encode_schema(schema: Schema) -> str:
    stream = io.BytesIO()
    new_stream(stream, schema).close()
    return base64.b64encode(stream.getvalue()).decode("ascii")


def _decode_schema(text: str) -> Schema:
    try:
        return open_stream(base64.b64decode(text, validate=True)).schema
    except (ValueError, BowstringError) as error:
        raise InvalidDataError(f"data set: schema: expected the Base64 text of an IPC stream: {error}") from error


def _parse_part(part: object) -> DatasetPart:
    num_rows, nbytes = _read_field(part, "rows", int), _read_field(part, "bytes", int)
    locations = tuple(_read_field(part, "locations", list))
    host = part.get("host") if isinstance(part, dict) else None
    if num_rows < 0 or nbytes < 0 or not all(isinstance(uri, str) for uri in (*locations, host or "")):
        raise InvalidDataError(f"data set: expected a part's rows, bytes, locations and host, found {part!s:.80}")
    return DatasetPart(num_rows, nbytes, locations, host)


def _read_field(value: object, name: str, kind: type[_FieldType]) -> _FieldType:
    """Return a field of a JSON object. Raises `InvalidDataError` unless it has this type."""
    field = value.get(name) if isinstance(value, dict) else None
    if not isinstance(field, kind) or isinstance(field, bool):
        raise InvalidDataError(f"data set: {name}: expected {kind.__name__}, found {field!s:.80}")
    return field

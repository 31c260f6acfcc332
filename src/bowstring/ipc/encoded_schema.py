"""Encoded schemas («Schema message»), cached for files written with the same schema object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bowstring.datatypes.field import Schema
from bowstring.flatbuf.tables import SPECS
from bowstring.flatbuf.writer import SerializedTable, serialize_table
from bowstring.ipc.dictionaries.writer import can_share_dictionaries
from bowstring.ipc.metadata.header import SCHEMA
from bowstring.ipc.metadata.schema import BIG, WireSchema, write_schema
from bowstring.ipc.options import DEFAULT_WRITE_OPTIONS, IpcWriteOptions
from bowstring.ipc.record_batch.passthrough import PassthroughPlan
from bowstring.layouts.base import Layout
from bowstring.layouts.registry import layout_of

_MAX_CACHED = 8
DICTIONARY_REPLACEMENT, COMPRESSED_BODY = 1, 2
"""Members of the enumeration Feature."""


@dataclass(frozen=True, slots=True, eq=False)
class EncodedSchema:
    """What an encoder needs of a schema: its flatbuffer table, the dictionary ids given out, the fields' layouts, and
    whether fields could share a dictionary.
    """

    schema: Schema
    table: SerializedTable
    wire: WireSchema
    layouts: list[Layout]
    relay: PassthroughPlan | None
    can_share_dictionaries: bool


_cache: dict[tuple[object, ...], EncodedSchema] = {}


def encode_schema(
    schema: Schema, options: IpcWriteOptions = DEFAULT_WRITE_OPTIONS, ids: tuple[int, ...] | None = None
) -> EncodedSchema:
    """The schema, compiled; kept for the same object, as many files are often written with one. `ids` are those of its
    dictionaries, as `write_schema` takes them.

    Raises `UnsupportedTypeError` naming the column path for a type that the format has no words for.
    """
    properties = _body_properties(options)
    key = (id(schema), ids, *properties)
    encoded = _cache.get(key)  # kept with its schema, so that the id belongs to no other object
    if encoded is None or encoded.schema is not schema:
        record, wire = write_schema(schema, ids)
        record |= properties
        layouts = [layout_of(field.type) for field in schema.fields]
        table, plan = serialize_table(SPECS, SCHEMA, record), PassthroughPlan.of(layouts)
        encoded = EncodedSchema(schema, table, wire, layouts, plan, can_share_dictionaries(wire))
        if len(_cache) >= _MAX_CACHED:
            _cache.clear()
        _cache[key] = encoded
    return encoded


def _body_properties(options: IpcWriteOptions) -> dict[str, Any]:
    """What a `Schema` table says of bodies: their byte order, and that readers have to decompress."""
    properties: dict[str, Any] = {"endianness": BIG} if options.is_big_endian else {}
    return properties | ({"features": np.array([COMPRESSED_BODY], np.int64)} if options.compression else {})

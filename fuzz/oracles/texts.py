"""What is text: integration JSON, format strings of the C data interface, URIs, and the names and parameters of
extension types.
"""

from __future__ import annotations

import bowstring as bs
from bowstring import integration_json
from bowstring.datatypes.extension import METADATA_KEY, NAME_KEY, resolve
from bowstring.dissociated.uri import parse_uri
from bowstring.errors import InvalidDataError, ProtocolError, UnsupportedTypeError
from bowstring.interop import c_data, c_format
from fuzz.oracles.batches import check_batch
from fuzz.promises import promise

STORAGES = (
    bs.int8(), bs.int64(), bs.bool_(), bs.binary(16), bs.binary(), bs.string(), bs.large_string(), bs.string_view(),
    bs.list_(bs.int16()), bs.list_(bs.int16(), 4), bs.list_(bs.float32(), 0), bs.dictionary(bs.int8(), bs.string()),
    bs.struct({"metadata": bs.binary(), "value": bs.binary()}),
    bs.struct({"metadata": bs.binary(), "value": bs.binary(), "typed_value": bs.int64()}),
    bs.struct({"timestamp": bs.timestamp("us", "UTC"), "offset_minutes": bs.int16()}),
    bs.struct({"timestamp": bs.timestamp("ns", "UTC"), "offset_minutes": bs.dictionary(bs.int8(), bs.int16())}),
    bs.struct({"data": bs.list_(bs.float32()), "shape": bs.list_(bs.int32(), 2)}),
    bs.struct({"data": bs.list_(bs.int8()), "shape": bs.list_(bs.int32(), 0)}),
)  # fmt: skip


def check_json(data: bytes) -> bool:
    """The oracle of integration JSON."""
    try:
        held = integration_json.read(data, integration_json.DocumentLimits(max_bytes=1 << 20))
        for batch in held.batches:
            batch.validate(full=True)
    except InvalidDataError:
        return False
    for batch in held.batches:
        check_batch(batch)
    return True


def check_format(data: bytes) -> bool:
    """The oracle of format strings, with children of several kinds."""
    inner = bs.field("x", bs.int32())
    pairs = bs.field("x", bs.struct({"k": bs.int8(), "v": bs.int8()}), nullable=False)
    sound = False
    for children in ((), (inner,), (inner, inner), (pairs,)):
        try:
            made = c_format.parse_format_string(data, children, 0)
        except InvalidDataError:
            continue
        sound = True
        str(made), hash(made)
        try:
            c_data.export_type(made)
        except UnsupportedTypeError:
            pass  # a time zone with a NUL in it
    return sound


def check_uri(data: bytes) -> bool:
    """The oracle of URIs."""
    try:
        parse_uri(data.decode("latin-1"))
    except ProtocolError:
        return False
    return True


def check_extension(data: bytes) -> bool:
    """A name and parameters, a NUL between them, on fields of many types."""
    name, _, parameters = data.partition(b"\0")
    sound = False
    for storage in STORAGES:
        given = bs.Field("x", storage, True, ((NAME_KEY, name), (METADATA_KEY, parameters)))
        try:
            field = resolve(given)
        except InvalidDataError as error:
            promise(bool(str(error)), "an error without words")
            continue
        sound = True
        str(field), repr(field), hash(field.type)
        made = bs.array([None, None], storage)
        column = (
            made
            if field.type == storage
            else bs.Array.from_buffers(field.type, 2, made.buffers, made.children, made.dictionary)
        )
        check_batch(bs.RecordBatch.from_arrays([column], ["x"]))
    return sound

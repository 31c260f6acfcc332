"""Integration JSON, format strings of the C data interface, URIs, tickets, parameters of extension types."""

from __future__ import annotations

import bowstring as bs
from bowstring.datatypes import c_format
from bowstring.datatypes.extension import METADATA_KEY, NAME_KEY, resolve_extension_type
from bowstring.datatypes.types import Dictionary
from bowstring.dissociated.messages import RESERVED_MASK
from bowstring.dissociated.uri import parse_uri
from bowstring.errors import (
    AccessDeniedError,
    InvalidArgumentError,
    InvalidDataError,
    ProtocolError,
    UnsupportedTypeError,
)
from bowstring.sharing.signed_tickets import TicketSigner
from bowstring.sharing.uris import (
    MAX_TICKETS,
    Ticket,
    decode_error_message,
    encode_error_message,
    parse_dataset_uri,
    parse_error_tag,
    parse_max_tickets,
    without_ticket,
)
from fuzz.expectations import expect
from fuzz.oracles.batches import check_batch_statistics
from tests import integration_json

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

_SIGNER = TicketSigner(bytes(32), "tcp://127.0.0.1:5000")


def check_json(data: bytes) -> bool:
    """Check a document of integration JSON."""
    try:
        document = integration_json.read(data, integration_json.DocumentLimits(max_bytes=1 << 20))
        for batch in document.to_batches():
            batch.validate(full=True)
    except InvalidDataError:
        return False
    for batch in document.to_batches():
        check_batch_statistics(batch)
    return True


def check_format(data: bytes) -> bool:
    """Check a format string, with several sets of children."""
    inner = bs.field("x", bs.int32())
    pairs = bs.field("x", bs.struct({"k": bs.int8(), "v": bs.int8()}), nullable=False)
    is_valid = False
    for children in ((), (inner,), (inner, inner), (pairs,)):
        try:
            type_ = c_format.parse_format_string(data, children, 0)
        except InvalidDataError:
            continue
        is_valid = True
        str(type_), hash(type_)
        try:
            type_.__arrow_c_schema__()
        except UnsupportedTypeError:
            pass  # a time zone with a NUL in it
    return is_valid


def check_uri(data: bytes) -> bool:
    """Check a URI."""
    text = data.decode("latin-1")
    try:
        uri = parse_uri(text)
    except ProtocolError:
        return False
    expect(parse_uri(str(uri)) == uri, f"{uri} is parsed differently")
    expect(1 <= parse_max_tickets(uri) <= MAX_TICKETS, f"requests for {parse_max_tickets(uri)} data sets")
    tag = parse_error_tag(uri)
    expect(tag is None or tag >> 56 > 1 or bool(tag & RESERVED_MASK), f"the tag of errors {tag} is that of a body")
    expect(without_ticket(uri).get_parameter("ticket") is None, "the ticket remains")
    try:
        parse_dataset_uri(text)
    except InvalidArgumentError:  # a scheme without a transport, or no ticket
        pass
    return True


def check_ticket(data: bytes) -> bool:
    """Check a ticket, and the body of an error message; return whether encoding it results in the same bytes."""
    ticket = Ticket.decode(data)
    expect(Ticket.decode(ticket.encode()) == ticket, f"{ticket!r} is decoded differently")
    expect(bool(str(ticket)), "the ticket has no text")
    try:
        _SIGNER.verify(ticket.names[0], now=0.0)
    except AccessDeniedError:
        pass
    expect(_SIGNER.verify(_SIGNER.sign(ticket.names[0]), now=0.0) == ticket.names[0], "a signed ticket is not valid")
    error = decode_error_message(data, "server")
    expect(str(error).startswith("server: "), f"the error has another text: {error}")
    expect(str(decode_error_message(encode_error_message(error), "client")) != "", "the error has no text")
    return ticket.encode() == data


def check_extension(data: bytes) -> bool:
    """Check a name and parameters, separated by NUL, on fields of many types."""
    name, _, parameters = data.partition(b"\0")
    is_valid = False
    for storage in STORAGES:
        storage_field = bs.Field("x", storage, True, ((NAME_KEY, name), (METADATA_KEY, parameters)))
        try:
            field = resolve_extension_type(storage_field)
        except InvalidDataError as error:
            expect(bool(str(error)), "the error has no message")
            continue
        if field is storage_field and isinstance(storage, Dictionary):
            continue  # an extension that does not fit is ignored there
        is_valid = True
        str(field), repr(field), hash(field.type)
        storage_array = bs.array([None, None], storage)
        column = (
            storage_array
            if field.type == storage
            else bs.Array.from_buffers(
                field.type, 2, storage_array.own_buffers, storage_array.children, storage_array.dictionary
            )
        )
        check_batch_statistics(bs.RecordBatch.from_arrays([column], ["x"]))
    return is_valid

"""Recorded sessions: any Arrow stream can be given to `bowstring trace`."""

from __future__ import annotations

import io

import bowstring as bs
from bowstring.dissociated.messages import (
    AddressBody,
    BodyType,
    MessageType,
    encode_addresses,
    encode_body_tag,
    encode_free_data,
    encode_prefix,
)
from bowstring.errors import InvalidDataError
from bowstring.sharing.recording.recorder import SCHEMA, read_recording
from bowstring.sharing.recording.trace import decode_trace
from bowstring.sharing.uris import ERROR_DATA, FREE_DATA, WANT_DATA, create_server_uri, format_dataset_uri
from bowstring.transports.observer import ObservedEventKind
from fuzz.expectations import expect


def check_recording(data: bytes) -> bool:
    """Check a recording."""
    try:
        entries = read_recording(data)
        steps = list(decode_trace(entries))
    except InvalidDataError as error:
        expect(bool(str(error)), "the error has no message")
        return False
    expect(len(steps) == len(entries), f"{len(entries)} entries, {len(steps)} steps")
    for step in steps:
        numbers = (step.time_ns, step.connection, step.length_bytes)
        expect(all(type(number) is int for number in numbers), f"{step} lacks numbers")
        expect(bool(step.text), f"{step} has no text")
    return True


def encoded_recording() -> bytes:
    """A recording of a client with every kind of entry and message."""
    body = AddressBody.from_arrays([0, 64], [10, 3])
    rows: list[tuple[str, str, int | None, bytes | None, str]] = [
        ("sent", "connection", None, None, format_dataset_uri(create_server_uri("@server"), "t")),
        ("sent", "message", WANT_DATA, b"t", ""),
        ("received", "message", None, encode_prefix(MessageType.METADATA, 0) + b"schema", ""),
        ("received", "message", encode_body_tag(1, BodyType.ADDRESSES), encode_addresses(body), ""),
        ("received", "message", encode_body_tag(2, BodyType.PACKED), b"body", ""),
        ("received", "message", None, encode_prefix(MessageType.END_OF_STREAM, 3), ""),
        ("sent", "message", FREE_DATA, encode_free_data(body.addresses), ""),
        ("received", "message", ERROR_DATA, b"not-found\ntext", ""),
        *(
            ("received", kind, None, None, "text")
            for kind in ObservedEventKind
            if kind not in ("connection", "message")
        ),
    ]
    numbers = [[index, 0, len(row[3] or b"")] for index, row in enumerate(rows)]
    columns = [
        [number[0] for number in numbers],
        [number[1] for number in numbers],
        [row[0] for row in rows],
        [row[1] for row in rows],
        [row[2] for row in rows],
        [0 if row[1] in ("region", "retirement") else None for row in rows],
        [number[2] for number in numbers],
        [row[3] for row in rows],
        [row[4] for row in rows],
    ]
    arrays = [bs.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)]
    sink = io.BytesIO()
    with bs.new_stream(sink, SCHEMA) as writer:
        writer.write(bs.RecordBatch.from_arrays(arrays, schema=SCHEMA))
    return sink.getvalue()

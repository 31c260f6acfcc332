"""Each frame of a session is changed on its way: the client gets all data or an error, and the server continues."""

from __future__ import annotations

import struct
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

import bowstring as bs
from bowstring.dissociated.messages import BODY_TYPE_SHIFT, AddressBody, BodyType, decode_addresses, encode_addresses
from bowstring.dissociated.uri import StreamURI, parse_uri
from bowstring.errors import BowstringError
from bowstring.sharing.uris import FREE_DATA
from bowstring.transports.sockets.frames import FrameKind
from bowstring.transports.tls import TlsOptions
from tests.sharing.faults.children import BATCHES, numbers
from tests.sharing.faults.conftest import MODES, FaultCounter
from tests.sharing.faults.processes import Children, nothing_left
from tests.sharing.faults.proxy import Change, Frame, FrameChange, Proxy, RecordProxy, Sender

TIMEOUT_S = 0.5
"""How long a client waits for what was dropped."""
NUM_THREADS = 12


def drop(frame: Frame, following: Frame | None) -> list[Frame]:
    return []


def repeat(frame: Frame, following: Frame | None) -> list[Frame]:
    return [frame, frame]


def swap(frame: Frame, following: Frame | None) -> list[Frame] | None:
    return None if following is None else [following, frame]


def replace_with(other: Frame) -> Change:
    """Send another frame."""
    return lambda frame, following: [other]


def with_wrong_headers(frame: Frame) -> Iterator[Frame]:
    """The frame with wrong fields."""
    for bit in (0, 1, 40, 56, 57, 63):
        yield replace(frame, tag=frame.tag ^ 1 << bit)
    for length_bytes in (frame.length_bytes + 1, 1 << 40, (1 << 64) - 1):
        yield replace(frame, length_bytes=length_bytes)
    for kind in {*range(max(FrameKind) + 2), 255} - {frame.kind}:
        yield replace(frame, kind=kind)
    yield replace(frame, num_descriptors=1 - frame.num_descriptors)
    yield replace(frame, reserved=1)
    yield replace(frame, magic=b"BWS2")
    if frame.descriptors:
        yield replace(frame, descriptors=())
        yield replace(frame, descriptors=frame.descriptors * 2)


def with_wrong_payloads(sender: Sender, frame: Frame) -> Iterator[Frame]:
    """The frame with other bytes: fewer, more, another sequence number, other addresses and lengths."""
    payload = frame.payload
    if payload:
        yield frame.with_payload(payload[:-1])
        yield frame.with_payload(payload[: len(payload) // 2])
    yield frame.with_payload(b"")
    yield frame.with_payload(payload + bytes(8))
    if frame.kind == FrameKind.PLAIN:
        kind, sequence = struct.unpack_from("<BI", payload)
        for number in (sequence - 1, sequence + 1, 1 << 31):
            yield frame.with_payload(struct.pack("<BI", kind, number & 0xFFFFFFFF) + payload[5:])
        for number in (1 - kind, 2):
            yield frame.with_payload(struct.pack("<BI", number, sequence) + payload[5:])
    elif sender == Sender.CLIENT and frame.tag == FREE_DATA:
        addresses = np.frombuffer(payload, "<u8")
        for wrong in (addresses + np.uint64(8), addresses + np.uint64(1 << 48), addresses[:0], [addresses[0]] * 3):
            yield frame.with_payload(np.asarray(wrong, "<u8").tobytes())
    elif frame.kind == FrameKind.TAGGED and frame.tag >> BODY_TYPE_SHIFT == BodyType.ADDRESSES:
        body = decode_addresses(payload)
        for shift in (1 << 47, 1 << 48, 1 << 63):
            yield frame.with_payload(
                encode_addresses(AddressBody.from_arrays(body.addresses + np.uint64(shift), body.lengths))
            )
        for lengths in (body.lengths // np.uint64(2), body.lengths + np.uint64(1 << 40)):
            yield frame.with_payload(encode_addresses(AddressBody.from_arrays(body.addresses, lengths)))
        yield frame.with_payload(encode_addresses(AddressBody.from_arrays(body.addresses[1:], body.lengths[1:])))
        yield frame.with_payload(struct.pack("<QQ", body.total_bytes + 1000, body.addresses.size) + payload[16:])
    elif frame.kind == FrameKind.REGION:
        size_bytes, flags = struct.unpack("<QQ", payload)
        for values in ((size_bytes + 1, flags), (0, flags), (1 << 62, flags), (size_bytes, 0), (size_bytes, 2)):
            yield frame.with_payload(struct.pack("<QQ", *values))


def frame_changes(frames: dict[Sender, list[Frame]]) -> Iterator[FrameChange]:
    """All changes of all frames."""
    for sender, sent in frames.items():
        for index, frame in enumerate(sent):
            for change in (drop, repeat, swap):
                yield FrameChange(sender, index, change)
            for wrong_frame in (*with_wrong_headers(frame), *with_wrong_payloads(sender, frame)):
                yield FrameChange(sender, index, replace_with(wrong_frame))
            for count in {0, len(frame.payload) // 2, max(len(frame.payload) - 1, 0)}:
                yield FrameChange(
                    sender, index, replace_with(replace(frame, payload=frame.payload[:count])), is_last=True
                )


def with_wrong_records(record: Frame) -> Iterator[Frame]:
    """The record with another header, or one changed bit, or fewer or more bytes."""
    payload = record.payload
    for length_bytes in (0, record.length_bytes - 1, record.length_bytes + 1, (1 << 16) - 1):
        yield replace(record, length_bytes=length_bytes)
    for kind in {20, 21, 22, 23, 255} - {record.kind}:
        yield replace(record, kind=kind)
    for index in {0, len(payload) // 2, len(payload) - 1}:
        yield record.with_payload(payload[:index] + bytes([payload[index] ^ 1]) + payload[index + 1 :])
    for changed in (payload[:-1], b"", payload + bytes(8)):
        yield record.with_payload(changed)


def record_changes(records: dict[Sender, list[Frame]]) -> Iterator[FrameChange]:
    """Changes of all TLS records, also of the handshake."""
    for sender, sent in records.items():
        for index, record in enumerate(sent):
            for change in (drop, repeat, swap):
                yield FrameChange(sender, index, change)
            for wrong_record in with_wrong_records(record):
                yield FrameChange(sender, index, replace_with(wrong_record))
            for count in {0, len(record.payload) // 2}:
                shortened = replace(record, payload=record.payload[:count])
                yield FrameChange(sender, index, replace_with(shortened), is_last=True)


def read_through(proxy: Proxy, uri: StreamURI, copy: bool, timeout_s: float) -> BowstringError | None:
    """Read the data set through a proxy; return the error, if any."""
    thread = threading.Thread(target=proxy.run)
    thread.start()
    try:
        with bs.connect(str(replace(uri, address=proxy.address)), copy=copy, timeout_s=timeout_s) as dataset:
            table = dataset.read_all()
    except BowstringError as error:
        return error.with_traceback(None)
    finally:
        thread.join()
        proxy.close()
    assert table == numbers(), "wrong data"
    return None


@pytest.mark.thorough
@MODES
def test_changed_frames_cause_an_error_or_no_harm(
    children: Children, scheme: str, tls: TlsOptions | None, copy: bool, count_faults: FaultCounter
) -> None:
    server = children.start("serve_all", tls=tls)
    uri = parse_uri(server.receive()[scheme])
    recording = Proxy(scheme, uri.address, None, tls)
    assert read_through(recording, uri, copy, 20) is None
    assert len(recording.frames[Sender.SERVER]) >= 3 + 2 * BATCHES

    def outcome(change: FrameChange) -> str:
        error = read_through(Proxy(scheme, uri.address, change, tls), uri, copy, TIMEOUT_S)
        return type(error).__name__

    with nothing_left(server.pid):
        with ThreadPoolExecutor(NUM_THREADS) as pool:
            outcomes = Counter(pool.map(outcome, frame_changes(recording.frames)))
        assert read_through(Proxy(scheme, uri.address, None, tls), uri, copy, 20) is None
    server.kill()
    assert outcomes["NoneType"] < outcomes.total() / 3, outcomes
    assert outcomes["ProtocolError"] > outcomes.total() / 10, outcomes
    count_faults("changed frames", outcomes.total())


@pytest.mark.thorough
def test_changed_records_of_tls_cause_an_error_or_no_harm(
    children: Children, server_certificates: TlsOptions, count_faults: FaultCounter
) -> None:
    server = children.start("serve_all", tls=server_certificates)
    uri = parse_uri(server.receive()["tcp+tls"])
    recording = RecordProxy(uri.scheme, uri.address, None)
    assert read_through(recording, uri, False, 20) is None

    def outcome(change: FrameChange) -> str:
        error = read_through(RecordProxy(uri.scheme, uri.address, change), uri, False, TIMEOUT_S)
        return type(error).__name__

    with nothing_left(server.pid):
        with ThreadPoolExecutor(NUM_THREADS) as pool:
            outcomes = Counter(pool.map(outcome, record_changes(recording.frames)))
        assert read_through(RecordProxy(uri.scheme, uri.address, None), uri, False, 20) is None
    server.kill()
    assert outcomes["NoneType"] < outcomes.total() / 10, outcomes
    count_faults("changed TLS records", outcomes.total())

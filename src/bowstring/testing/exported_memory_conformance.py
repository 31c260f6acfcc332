"""Conformance tests for exported memory: export, open, locate, view, fetch and retire."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from bowstring.errors import InvalidArgumentError, ProtocolError
from bowstring.memory.region import Region
from bowstring.testing.descriptors import assert_descriptors_closed
from bowstring.transports.base import (
    RECEIVE,
    Channel,
    ExportedRegion,
    FetchEnded,
    MemoryExporter,
    MessageReceived,
    RemoteMemory,
    RemoteMemoryUpdated,
    Transport,
    TransportOptions,
    Uint64Array,
)
from bowstring.transports.blocking import wait_for_interests

CONTENT = bytes(range(256)) * 40
_OPTIONS = TransportOptions(timeout_s=20.0)
_MAX_ROUNDS = 2000


class ExportingConnectionPair:
    """A connection whose accepted end exports memory that the dialed end reads."""

    server: Channel
    client: Channel
    exporter: MemoryExporter
    memory: RemoteMemory

    def __init__(self, transport: Transport) -> None:
        with transport.listen(options=_OPTIONS) as listener:
            self.client = transport.dial(listener.address, _OPTIONS)
            accepted: list[Channel] = []
            while not accepted:
                self.client.progress()
                accepted = listener.accept()
            self.server = accepted[0]
            exporter = transport.open_exporter(self.server)
            memory = transport.open_remote_memory(self.client, listener.remote_handle)
        assert exporter is not None
        assert memory is not None
        self.exporter, self.memory = exporter, memory

    def close(self) -> None:
        """Close the connection, and drop what keeps the exported memory alive."""
        self.memory.close()
        self.client.close()
        self.server.close()
        del self.memory, self.exporter, self.client, self.server

    def synchronize(self) -> None:
        """Let the client receive everything that the server has submitted."""
        self.server.submit([b"synchronize"])
        for _ in range(_MAX_ROUNDS):
            self.server.progress()
            for event in self.client.progress():
                if isinstance(event, RemoteMemoryUpdated):
                    self.memory.apply_update(event.update)
                elif isinstance(event, MessageReceived):
                    self.client.grant_credit(1, len(event.data))
                    return
            wait = self.client.next_wait(RECEIVE)
            wait_for_interests(wait.interests, min(0.01, wait.timeout_s))
        raise AssertionError("the message did not arrive")

    def export(self, region: Region) -> ExportedRegion:
        """Export a region, and let the client receive the announcement."""
        exported_region = self.exporter.export(region)
        self.synchronize()
        return exported_region

    def fetch(self, addresses: Uint64Array, lengths: Uint64Array) -> bytes:
        """Fetch buffers of one extent, and wait for the end."""
        destination = bytearray(int(lengths.sum()))
        token = self.memory.start_fetch(self.memory.locate_buffers(addresses, lengths), lengths, destination)
        for _ in range(_MAX_ROUNDS):
            fetch_events = self.memory.poll_fetches()
            if fetch_events:
                assert fetch_events == [FetchEnded(token)]
                assert self.memory.poll_fetches() == []
                return bytes(destination)
            self.server.progress()
            self.client.progress()
            wait = self.client.next_wait(RECEIVE)
            wait_for_interests([*self.memory.interests(), *wait.interests], min(0.01, wait.timeout_s))
        raise AssertionError("the fetch did not end")


class ExportedMemoryConformance:
    """Tests of memory that one end of a connection exports. A subclass sets `transport`; see `TransportConformance`."""

    transport: Transport
    shares_memory = True

    @pytest.fixture
    def connection(self) -> Iterator[ExportingConnectionPair]:
        """A connection that is closed after the test, which must not leak descriptors."""
        if not self.shares_memory:
            pytest.skip("this transport shares no memory")
        with assert_descriptors_closed():
            connection = ExportingConnectionPair(self.transport)
            yield connection
            connection.close()

    def read_view(self, view: Any, offset_bytes: int, length_bytes: int) -> bytes:
        """Return bytes of a view, which must be read-only. Override it for memory of a device."""
        assert memoryview(view).readonly
        return bytes(view[offset_bytes : offset_bytes + length_bytes])

    def test_buffers_of_exported_memory_are_viewed_or_fetched(self, connection: ExportingConnectionPair) -> None:
        with Region.copy_of([CONTENT]) as region:
            start = connection.export(region).address
        addresses, lengths = (
            _uint64_array(start + 1, 0, start + 300, start + len(CONTENT)),
            _uint64_array(9, 0, 5000, 0),
        )
        located_buffers = connection.memory.locate_buffers(addresses, lengths)
        view = connection.memory.view_extent(located_buffers.extent)
        if view is not None:
            first, _, third, _ = located_buffers.offsets.tolist()
            assert self.read_view(view, first, 9) == CONTENT[1:10]
            assert self.read_view(view, third, 5000) == CONTENT[300:5300]
        assert connection.fetch(addresses, lengths) == CONTENT[1:10] + CONTENT[300:5300]
        assert connection.fetch(_uint64_array(start), _uint64_array(len(CONTENT))) == CONTENT

    def test_every_export_has_its_own_addresses(self, connection: ExportingConnectionPair) -> None:
        with Region.copy_of([b"first "]) as first, Region.copy_of([b"second"]) as second:
            starts = [connection.export(region).address for region in (first, second, first)]
        addresses, lengths = _uint64_array(*starts, 0), _uint64_array(6, 6, 6, 0)
        buffers: dict[int, bytes] = {}
        for indices, located_buffers in connection.memory.group_buffers_by_extent(addresses, lengths):
            assert (located_buffers.offsets + np.uint64(located_buffers.extent.start)).tolist() == addresses[
                indices
            ].tolist()
            for index in indices.tolist():
                buffers[index] = connection.fetch(addresses[index : index + 1], lengths[index : index + 1])
        assert buffers == {0: b"first ", 1: b"second", 2: b"first "}

    def test_addresses_outside_of_exported_memory_are_rejected(self, connection: ExportingConnectionPair) -> None:
        with Region.copy_of([CONTENT]) as region:
            start = connection.export(region).address
        extent = connection.memory.find_extent(start)
        assert extent.size_bytes <= connection.memory.size_bytes
        end = extent.start + extent.size_bytes
        for address, length in [(end, 1), (end - 1, 2), (start, 2**64 - 1), (start + 1, 2**63), (2**64 - 1, 1)]:
            with pytest.raises(ProtocolError, match=r"is not inside|did not send"):
                connection.memory.locate_buffers(_uint64_array(start, address), _uint64_array(1, length))
            with pytest.raises(ProtocolError, match=r"is not inside|did not send"):
                connection.memory.group_buffers_by_extent(_uint64_array(start, address), _uint64_array(1, length))
        assert connection.fetch(_uint64_array(end - 1), _uint64_array(1)) is not None

    def test_views_stay_valid_after_retirement_and_the_end_of_the_connection(
        self, connection: ExportingConnectionPair
    ) -> None:
        with Region.copy_of([CONTENT]) as region:
            exported_region = connection.export(region)
        located_buffers = connection.memory.locate_buffers(
            _uint64_array(exported_region.address), _uint64_array(len(CONTENT))
        )
        view, offset = connection.memory.view_extent(located_buffers.extent), int(located_buffers.offsets[0])
        connection.exporter.retire(exported_region)
        connection.synchronize()
        with Region.copy_of([b"later"]) as region:
            later = connection.export(region)
        assert later.address != exported_region.address
        assert connection.fetch(_uint64_array(later.address), _uint64_array(5)) == b"later"
        connection.memory.close()
        connection.memory.close()
        connection.client.close()
        connection.server.close()
        if view is not None:
            assert self.read_view(view, offset, len(CONTENT)) == CONTENT

    def test_only_exported_memory_can_be_retired(self, connection: ExportingConnectionPair) -> None:
        connection.exporter.check_capacity(1)
        with pytest.raises(InvalidArgumentError, match=r"has (sent|exported) 0 regions"):
            connection.exporter.retire(ExportedRegion(0))
        with Region.copy_of([b"x"]) as region:
            exported_region = connection.export(region)
        for index in (-1, exported_region.index + 1):
            with pytest.raises(InvalidArgumentError, match=r"has (sent|exported) 1 regions"):
                connection.exporter.retire(ExportedRegion(exported_region.address, index))
        connection.exporter.retire(exported_region)


def _uint64_array(*values: int) -> Uint64Array:
    return np.array(values, np.uint64)

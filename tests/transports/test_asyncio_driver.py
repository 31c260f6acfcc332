"""Sessions in an asyncio event loop: several at once, slow and cancelled tasks, deadlines and ends."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import pytest

from bowstring.dissociated.events import AddressesFreed, AllMessagesReceived, StreamComplete, StreamMessage
from bowstring.dissociated.messages import AddressBody, Body, PackedBody
from bowstring.dissociated.server import ConnectionRole
from bowstring.errors import ClosedError, ConnectionLostError, DeadlineError
from bowstring.memory.region import Region
from bowstring.transports.asyncio_driver import AsyncSession
from bowstring.transports.base import Transport
from bowstring.transports.session import MessageLocated, Session, SessionFailed, SessionOptions
from bowstring.transports.unix import UNIX
from tests.transports.served_session import Served, client_core, served

pytestmark = pytest.mark.usefixtures("no_descriptor_is_left")
WAIT_S = 30.0


def client_session(server: Served, **options: Any) -> Session:
    channels = {ConnectionRole.BOTH: server.client_channel}
    return Session(channels, server.client_memory, now=time.monotonic(), options=SessionOptions(**options))


def send_request(driver: AsyncSession) -> None:
    core = client_core()
    driver.start_request(core, core.request(b"ticket"))


async def next_event(driver: AsyncSession) -> Any:
    return await asyncio.wait_for(driver.next_event(), WAIT_S)


async def receive_all(driver: AsyncSession) -> list[Any]:
    """Return the events until the end of the stream, or its failure."""
    events = [await next_event(driver)]
    while not isinstance(events[-1], AllMessagesReceived | SessionFailed):
        events.append(await next_event(driver))
    return events


@asynccontextmanager
async def running(*servers: Served) -> AsyncIterator[None]:
    """Let the servers continue in a task."""

    async def step_all() -> None:
        while True:
            for server in servers:
                server.step()
            await asyncio.sleep(0.001)

    task = asyncio.create_task(step_all())
    try:
        yield
    finally:
        task.cancel()


def body_contents(events: Sequence[Any]) -> list[bytes]:
    return [bytes(event.body.parts[0]) for event in events if event.body is not None]


def test_asyncio_awaits_the_events_of_a_session(transport: Transport) -> None:
    async def read(server: Served) -> list[Any]:
        async with AsyncSession(
            Session({ConnectionRole.BOTH: server.client_channel}, server.client_memory, now=0.0)
        ) as driver:
            core = client_core()
            driver.start_request(core, core.request(b"ticket"))
            events: list[Any] = []
            while not events or not isinstance(events[-1], AllMessagesReceived | SessionFailed):
                events.append(await asyncio.wait_for(driver.next_event(), 20))
            for event in events:
                if isinstance(event, MessageLocated) and event.lease is not None:
                    await asyncio.to_thread(driver.session.release_lease, event.lease)
            while StreamComplete() not in server.events:
                await asyncio.sleep(0.01)
            return events

    with served(transport) as server, Region.copy_of([b"some bytes"]) as region:
        body = bytes(3_000_000)
        thread_error: list[BaseException] = []

        def serve() -> None:
            try:
                server.stream(region, [AddressBody.from_arrays([0, 5], [4, 5]), PackedBody.from_parts(body)])
                server.step_until(lambda: StreamComplete() in server.events)
            except BaseException as error:  # noqa: BLE001 - reported below
                thread_error.append(error)

        thread = threading.Thread(target=serve)
        thread.start()
        _, located, packed, ended = asyncio.run(read(server))
        thread.join(30)
        assert not thread_error
        assert bytes(located.memory) == b"some bytes"
        assert packed.body.parts[0] == body
        assert ended == AllMessagesReceived(3)


def test_an_abandoned_wait_loses_no_event(transport: Transport) -> None:
    async def scenario(server: Served) -> None:
        async with AsyncSession(client_session(server)) as driver, running(server):
            send_request(driver)
            for _ in range(3):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(driver.next_event(), 0.02)
            server.stream(None, [PackedBody.from_parts(bytes([number])) for number in range(20)])
            *events, _ = await receive_all(driver)
            assert body_contents(events) == [bytes([number]) for number in range(20)]

    with served(transport) as server:
        asyncio.run(scenario(server))


def test_a_task_cancelled_in_the_middle_of_a_stream_ends_the_connection(transport: Transport) -> None:
    async def scenario(server: Served, region: Region) -> None:
        has_event = asyncio.Event()

        async def read_slowly() -> None:
            async with AsyncSession(client_session(server)) as driver:
                send_request(driver)
                while True:
                    if isinstance(await driver.next_event(), MessageLocated):
                        has_event.set()

        async with running(server):
            task = asyncio.create_task(read_slowly())
            await asyncio.sleep(0)
            server.stream(region, [AddressBody.from_arrays([number], [1]) for number in range(50)])
            await asyncio.wait_for(has_event.wait(), WAIT_S)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            end = time.monotonic() + WAIT_S
            while not isinstance(server.events[-1], SessionFailed) and time.monotonic() < end:
                await asyncio.sleep(0.01)

    with served(transport, max_leased_bytes=10) as server, Region.copy_of([bytes(100)]) as region:
        asyncio.run(scenario(server, region))
        failed = server.events[-1]
        assert isinstance(failed, SessionFailed)
        assert isinstance(failed.error, ConnectionLostError)


def test_several_streams_are_received_at_once(transport: Transport) -> None:
    bodies: list[list[Body]] = [[PackedBody.from_parts(bytes([n, k]) * 50_000) for k in range(10)] for n in range(5)]

    async def scenario(servers: list[Served]) -> list[list[Any]]:
        async with running(*servers):
            drivers = [AsyncSession(client_session(server)) for server in servers]
            for driver, server, content in zip(drivers, servers, bodies, strict=True):
                send_request(driver)
                server.stream(None, content)
            events = await asyncio.gather(*map(receive_all, drivers))
            for driver in drivers:
                driver.close()
            return events

    with ExitStack() as stack:
        servers = [stack.enter_context(served(transport)) for _ in bodies]
        for n, (*events, _) in enumerate(asyncio.run(scenario(servers))):
            assert body_contents(events) == [bytes([n, k]) * 50_000 for k in range(10)]


def test_metadata_and_bodies_of_two_channels_are_paired(transport: Transport) -> None:
    async def scenario(metadata: Served, bodies: Served, region: Region) -> None:
        channels = {ConnectionRole.METADATA: metadata.client_channel, ConnectionRole.BODIES: bodies.client_channel}
        content: list[Body] = [AddressBody.from_arrays([2 * n], [2]) for n in range(5)]
        async with AsyncSession(Session(channels, bodies.client_memory, now=0.0)) as driver, running(metadata, bodies):
            send_request(driver)
            metadata.stream(None, content)
            await asyncio.sleep(0.01)
            bodies.stream(region, content)
            _, *located, _ = await receive_all(driver)
            assert [bytes(each.memory[each.offsets[0] :][:2]) for each in located] == [
                b"01",
                b"23",
                b"45",
                b"67",
                b"89",
            ]
            for each in located:
                await asyncio.to_thread(driver.session.release_lease, each.lease)
            end = time.monotonic() + WAIT_S
            while StreamComplete() not in bodies.events and time.monotonic() < end:
                await asyncio.sleep(0.01)
        assert StreamComplete() in bodies.events

    with (
        served(transport, ConnectionRole.METADATA) as metadata,
        served(transport, ConnectionRole.BODIES) as bodies,
        Region.copy_of([b"0123456789"]) as region,
    ):
        asyncio.run(scenario(metadata, bodies, region))


def test_a_slow_task_slows_down_the_server(transport: Transport) -> None:
    body, count = bytes(1 << 20), 48

    async def scenario(server: Served) -> None:
        async with AsyncSession(client_session(server)) as driver, running(server):
            send_request(driver)
            server.stream(None, [PackedBody.from_parts(body)] * count)
            assert isinstance(await next_event(driver), StreamMessage)
            for _ in range(100):
                await asyncio.sleep(0.002)
            assert server.client_channel.bytes_received < count * len(body) // 2
            events = await receive_all(driver)
            assert len(events) == count + 1

    with served(transport) as server:
        asyncio.run(scenario(server))


def test_a_silent_server_is_a_deadline_error_after_which_the_stream_may_continue(transport: Transport) -> None:
    async def scenario(server: Served) -> None:
        async with AsyncSession(client_session(server, input_timeout_s=0.2)) as driver, running(server):
            send_request(driver)
            for _ in range(2):
                failed = await next_event(driver)
                assert isinstance(failed.error, DeadlineError)
            server.stream(None, [PackedBody.from_parts(b"late")])
            while isinstance(event := await next_event(driver), SessionFailed):
                assert isinstance(event.error, DeadlineError)
            *events, _ = await receive_all(driver)
            assert body_contents(events) == [b"late"]

    with served(transport) as server:
        asyncio.run(scenario(server))


def test_the_time_of_a_slow_task_does_not_count_as_silence_of_the_server(transport: Transport) -> None:
    async def scenario(server: Served) -> None:
        async with AsyncSession(client_session(server, input_timeout_s=0.5)) as driver:
            send_request(driver)
            server.stream(region, [AddressBody.from_arrays([n], [2]) for n in range(2)])
            assert isinstance(await next_event(driver), StreamMessage)
            first = await next_event(driver)
            await asyncio.sleep(1.0)  # the server waits for the lease
            next_task = asyncio.create_task(next_event(driver))
            await asyncio.sleep(0.1)
            driver.session.release_lease(first.lease)
            async with running(server):
                second = await next_task
                assert isinstance(second, MessageLocated)
                assert second.lease is not None
                driver.session.release_lease(second.lease)
                assert isinstance(await next_event(driver), AllMessagesReceived)

    with served(transport, max_leased_bytes=2) as server, Region.copy_of([bytes(100)]) as region:
        asyncio.run(scenario(server))


@pytest.mark.parametrize("num_tasks", [1, 3])
def test_closing_ends_every_waiting_task(transport: Transport, num_tasks: int) -> None:
    async def scenario(server: Served) -> None:
        driver = AsyncSession(client_session(server))
        send_request(driver)
        tasks = [asyncio.create_task(next_event(driver)) for _ in range(num_tasks)]
        await asyncio.sleep(0.02)
        driver.close()
        driver.close()
        for failed in [*await asyncio.gather(*tasks), await next_event(driver)]:
            assert isinstance(failed.error, ClosedError)

    with served(transport) as server:
        asyncio.run(scenario(server))


def test_every_wait_after_a_lost_connection_reports_it(transport: Transport) -> None:
    async def scenario(server: Served) -> None:
        async with AsyncSession(client_session(server)) as driver:
            send_request(driver)
            server.other.close()
            for _ in range(2):
                failed = await next_event(driver)
                assert isinstance(failed.error, ConnectionLostError)

    with served(transport) as server:
        asyncio.run(scenario(server))


def test_a_lease_is_released_after_the_event_loop_has_ended() -> None:
    async def scenario(server: Served, region: Region) -> tuple[AsyncSession, Any]:
        driver = AsyncSession(client_session(server))
        send_request(driver)
        server.stream(region, [AddressBody.from_arrays([0], [1])])
        async with running(server):
            _, located, _ = await receive_all(driver)
        return driver, located.lease

    with served(UNIX) as server, Region.copy_of([b"x"]) as region:
        driver, lease = asyncio.run(scenario(server, region))
        driver.session.release_lease(lease)
        driver.session.step(time.monotonic())
        server.step_until(lambda: AddressesFreed(1, 0) in server.events)
        driver.session.close()

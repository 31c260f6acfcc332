"""Streams of published batches: each row once, in order, across restarts of the consumer."""

from __future__ import annotations

import itertools
import json
import secrets
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import bowstring as bs
from bowstring.datasets import publication
from bowstring.errors import InvalidArgumentError, InvalidDataError, NotFoundError
from bowstring.sharing.agent.publications import QueryBatchId

QUERY = secrets.token_hex(16)


class Stream:
    """Publishes batches, as a query does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, query: str = QUERY) -> None:
        self.name = f"stream-{secrets.token_hex(4)}"
        self._query = query
        self._monkeypatch = monkeypatch
        self.batches: dict[int, bs.datasets.PublishedDataset] = {}

    def publish(self, number: int, *values: int) -> None:
        """Publish a batch of record batches of two rows."""
        dataset_id = QueryBatchId(self.name, self._query, number).create_dataset_id()
        self._monkeypatch.setattr(publication, "create_dataset_id", lambda name: dataset_id)
        batches = [bs.record_batch({"x": values[start : start + 2]}) for start in range(0, len(values), 2)]
        table = bs.Table.from_batches(batches) if values else bs.table({"x": bs.array([], "int64")})
        self.batches[number] = bs.publish(table, name=self.name, lifetime="application")

    def close(self) -> None:
        for batch in self.batches.values():
            batch.close()


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stream]:
    stream = Stream(monkeypatch)
    yield stream
    stream.close()


def values_of(follower: Any) -> list[list[int]]:
    return [batch.column(0).to_pylist() for batch in follower]


@pytest.mark.thorough
def test_batches_come_in_order_and_a_restarted_consumer_continues_at_the_next_row(stream: Stream) -> None:
    stream.publish(3, 1, 2, 3)
    stream.publish(4)
    stream.publish(5, 4, 5, 6, 7)
    expected = [[1, 2], [3], [4, 5], [6, 7]]
    assert values_of(bs.follow_published(stream.name, timeout_s=0.01)) == expected
    assert bs.open_published(stream.name).read_all()["x"].to_pylist() == [4, 5, 6, 7]
    for count in range(len(expected) + 1):
        follower = bs.follow_published(stream.name, timeout_s=0.01)
        before = values_of(itertools.islice(follower, count))
        state = json.loads(json.dumps(follower.state_dict()))
        assert before + values_of(bs.follow_published(stream.name, state, timeout_s=0.01)) == expected
    assert state["batch"] == 6
    in_a_record_batch = {**state, "batch": 5, "row": 3}
    assert values_of(bs.follow_published(stream.name, in_a_record_batch, timeout_s=0.01)) == [[7]]


def test_a_consumer_waits_for_batches_and_reads_one_that_was_computed_again_once(stream: Stream) -> None:
    follower = bs.follow_published(stream.name, timeout_s=0.05)
    assert values_of(follower) == []

    def publish() -> None:
        for number in range(3):
            time.sleep(0.1)
            stream.publish(number, number)
            if number == 1:  # as a driver that starts again
                stream.batches[number].close()
                stream.publish(number, number)

    thread = threading.Thread(target=publish)
    thread.start()
    assert values_of(bs.follow_published(stream.name, timeout_s=2)) == [[0], [1], [2]]
    thread.join()


def test_a_batch_that_was_freed_before_it_was_read_is_an_error_and_one_being_read_stays_valid(stream: Stream) -> None:
    stream.publish(0, 1, 2, 3)
    stream.publish(1, 4)
    follower = bs.follow_published(stream.name, timeout_s=0.01)
    iterator = iter(follower)
    first = next(iterator)
    stream.batches[0].close()
    assert [batch.column(0).to_pylist() for batch in iterator] == [[3], [4]]
    assert first.column(0).to_pylist() == [1, 2]
    with pytest.raises(NotFoundError, match="batch 0 was freed; the oldest is 1: set keep"):
        list(bs.follow_published(stream.name, {**follower.state_dict(), "batch": 0, "row": 2}, timeout_s=0.01))


def test_a_state_of_another_stream_or_none_at_all_is_an_error(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    stream.publish(0, 1)
    follower = bs.follow_published(stream.name, timeout_s=0.01)
    start = follower.state_dict()
    assert values_of(bs.follow_published(stream.name, start, timeout_s=0.01)) == [[1]]
    list(follower)
    state = follower.state_dict()
    with pytest.raises(InvalidDataError, match="another query is published with this name"):
        list(bs.follow_published(stream.name, {**state, "query": "0" * 32}, timeout_s=0.01))
    for malformed in ({}, {**state, "row": -1}, {**state, "batch": None}, {**state, "version": 2}):
        with pytest.raises(InvalidDataError, match="expected the position of a query"):
            bs.follow_published(stream.name, malformed)
    with pytest.raises(InvalidArgumentError, match="timeout_s"):
        bs.follow_published(stream.name, timeout_s=0)

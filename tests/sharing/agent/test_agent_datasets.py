"""The data sets of a host agent: which can be found and read, and what is remembered of those that have ended."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator

import pytest

import bowstring as bs
from bowstring.errors import NotFoundError, ResourceError
from bowstring.sharing.agent import agent_datasets
from bowstring.sharing.agent.agent_datasets import AgentDatasets
from bowstring.sharing.agent.memory_budget import MemoryBudget
from bowstring.sharing.agent.publications import Publication
from bowstring.sharing.server.server import Server
from bowstring.sharing.share import to_regions
from bowstring.sharing.stored_parts import BodyReader, RegionPart, index_part

TABLE = bs.table({"a": [1, 2, 3]})


@pytest.fixture
def datasets() -> Iterator[AgentDatasets]:
    with Server() as server, AgentDatasets(server, MemoryBudget(), 100) as datasets:
        yield datasets


def publish(datasets: AgentDatasets, dataset_id: str) -> str:
    """Publish a data set named "model"; return its URI."""
    (region,) = to_regions(TABLE, dataset_id).regions
    partition = index_part(region)
    uris = datasets.put(dataset_id, (0, 0), partition, ttl_s=60, needs_commit=True).uris
    datasets.commit(dataset_id, {(0, 0)})
    datasets.publish(dataset_id, Publication("model", 3, region.size_bytes, 1, (), "detached", b""))
    return uris[0]


def read(uri: str) -> bs.Table:
    with bs.connect(uri) as reader:
        return reader.read_all()


def test_a_partition_is_served_although_memory_is_short_at_first(
    datasets: AgentDatasets, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ResourceError("no memory")

    (region,) = to_regions(TABLE, "model").regions
    with monkeypatch.context() as patch:
        patch.setattr(BodyReader, "read", fail)
        (uri,) = datasets.put("model", (0, 0), index_part(region), ttl_s=60, needs_commit=False).uris
    assert read(uri) == TABLE
    datasets.drop("model", "was dropped")
    assert datasets.server.stats().num_regions == 0


def test_a_replaced_data_set_can_be_read_for_a_while_but_not_found(
    datasets: AgentDatasets, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = publish(datasets, "model-1")
    publish(datasets, "model-2")
    monkeypatch.setattr(agent_datasets, "_REPLACED_S", 0.05)
    datasets.replace("model-1", "was replaced by 'model-2'")
    assert read(uri) == TABLE
    assert datasets.find_published("model")["summary"]["id"] == "model-2"
    assert "'model-1' was replaced by 'model-2'" in datasets.find_published("model-1")["ended"]
    assert [summary["id"] for summary in datasets.list_published()] == ["model-2"]
    with pytest.raises(NotFoundError, match="was replaced"):
        datasets.renew("model-1", 60)
    time.sleep(0.06)
    assert datasets.drop_expired()
    with pytest.raises(NotFoundError, match=r"data set 'model-1' was replaced by 'model-2' at .* UTC"):
        read(uri)


@pytest.mark.parametrize(("limit_sizes", "num_readable"), [(0, 1), (1, 2), (3, 4), (4, 4)])
def test_of_many_that_replace_each_other_those_of_a_limited_size_can_be_read(
    datasets: AgentDatasets, monkeypatch: pytest.MonkeyPatch, limit_sizes: int, num_readable: int
) -> None:
    uris = [publish(datasets, f"model-{number}") for number in range(5)]
    size_bytes = datasets.list_published()[0]["nbytes"]
    monkeypatch.setattr(agent_datasets, "_MAX_REPLACED_BYTES", limit_sizes * size_bytes)
    for number in range(4):
        datasets.replace(f"model-{number}", "was replaced")
    for number, uri in enumerate(uris):
        if number < 4 - num_readable:
            with pytest.raises(NotFoundError, match=f"'model-{number}' was replaced at"):
                read(uri)
        else:
            assert read(uri) == TABLE


def test_the_end_of_a_number_of_data_sets_is_remembered(
    datasets: AgentDatasets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_datasets, "_MAX_ENDED", 2)
    for number in range(3):
        publish(datasets, f"model-{number}")
        datasets.drop(f"model-{number}", "was closed")
    assert [bool(datasets.find_published(f"model-{number}")["ended"]) for number in range(3)] == [False, True, True]
    assert "'model-2' was closed" in datasets.find_published("model")["ended"]


def put_parts(datasets: AgentDatasets, num_parts: int, *, needs_commit: bool) -> list[str]:
    """Put partitions of one data set with one row each; return their URIs."""
    return [
        datasets.put(
            "rows",
            (number, 0),
            index_part(to_regions(bs.table({"a": [number]}), "rows").regions[0]),
            ttl_s=60,
            needs_commit=needs_commit,
        ).uris[0]
        for number in range(num_parts)
    ]


def test_a_commit_that_failed_can_be_repeated(datasets: AgentDatasets, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "I/O error")

    uris = put_parts(datasets, 3, needs_commit=True)
    attempts = {(number, 0) for number in range(3)}
    with monkeypatch.context() as patch, pytest.raises(OSError, match="I/O error"):
        patch.setattr(agent_datasets, "merge_into_region", fail)
        datasets.commit("rows", attempts)
    assert datasets.commit("rows", attempts) == []
    assert [read(uri)["a"].to_pylist() for uri in uris] == [[0], [1], [2]]
    assert datasets.to_json()["rows"]["regions"] == 1


@pytest.mark.parametrize("num_replaced", [0, 1])
def test_partitions_are_complete_if_the_server_fails_while_they_are_packed(
    monkeypatch: pytest.MonkeyPatch, num_replaced: int
) -> None:
    with Server() as server, AgentDatasets(server, MemoryBudget(), max_regions=2) as datasets:
        replace, tickets = server.replace_parts, list[str]()

        def fail(ticket: str, part: RegionPart) -> None:
            if len(tickets) == num_replaced:
                raise RuntimeError("the loop is closed")
            tickets.append(ticket)
            replace(ticket, part)

        uris = put_parts(datasets, 2, needs_commit=False)
        monkeypatch.setattr(server, "replace_parts", fail)
        region = to_regions(bs.table({"a": [2]}), "rows").regions[0]
        with pytest.raises(RuntimeError, match="the loop is closed"):
            datasets.put("rows", (2, 0), index_part(region), ttl_s=60, needs_commit=False)
        monkeypatch.undo()
        assert datasets.commit("rows", {(number, 0) for number in range(3)}) == []
        uris.append(uris[0].replace("rows%2F0%2F0", "rows%2F2%2F0"))
        assert [read(uri)["a"].to_pylist() for uri in uris] == [[0], [1], [2]]
        assert datasets.to_json()["rows"]["regions"] == 1

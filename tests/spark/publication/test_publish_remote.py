"""`publish(df, remote=…)` on one host: what is reported, which settings apply, and what remains."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

import bowstring as bs
from bowstring.errors import AccessDeniedError, InvalidArgumentError, NotFoundError
from bowstring.sharing.agent.client import AgentClient
from bowstring.spark import RemoteOptions, publish
from tests.spark.folder.test_faults import fail_first_attempts
from tests.spark.publication.test_publish import agent_datasets
from tests.transports.certificates import Authority

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")

LOCAL = RemoteOptions(host="127.0.0.1")


@pytest.fixture
def settings(spark: SparkSession) -> Iterator[Any]:
    changed: list[str] = []

    def change(name: str, value: str) -> None:
        spark.conf.set(name, value)
        changed.append(name)

    yield change
    for name in changed:
        spark.conf.unset(name)


def test_each_part_has_a_location_in_shared_memory_and_one_for_other_hosts(spark: SparkSession) -> None:
    with publish(spark.range(0, 1000, 1, 3), remote=LOCAL) as published:
        assert len(published.parts) == 3
        for part in published.parts:
            unix, tcp = part.locations
            assert unix.startswith("unix:@")
            assert tcp.startswith("tcp://127.0.0.1:")
            assert bs.connect(tcp).read_all() == bs.connect(unix).read_all()
        assert bs.connect(pickle.loads(pickle.dumps(published))).read_all().num_rows == 1000
        assert {row["partitions"] for row in agent_datasets(published).values()} == {3}
        uris = [uri for part in published.parts for uri in part.locations]
    for uri in uris:
        with pytest.raises(NotFoundError):
            bs.connect(uri)


def test_without_remote_nothing_is_served_to_other_hosts(spark: SparkSession) -> None:
    with publish(spark.range(10), remote=LOCAL), publish(spark.range(10)) as published:
        assert [len(part.locations) for part in published.parts] == [1] * len(published.parts)
        with pytest.raises(InvalidArgumentError, match="remote: expected a bool or RemoteOptions, found str"):
            publish(spark.range(10), remote="yes")  # type: ignore[arg-type]


def test_an_empty_frame_can_be_read_from_other_hosts(spark: SparkSession) -> None:
    with publish(spark.range(0), remote=LOCAL) as published:
        (locations,) = (part.locations for part in published.parts if part.locations)
        assert bs.connect(locations[1]).read_all().schema == published.schema


def test_a_ticket_of_another_publication_is_denied(spark: SparkSession) -> None:
    with publish(spark.range(10), remote=LOCAL) as first, publish(spark.range(10), remote=LOCAL) as second:
        uri, other = first.parts[0].locations[1], second.parts[0].locations[1]
        beginning, _, ticket = uri.rpartition("&ticket=")
        name, signature = other.rpartition("&ticket=")[2].rsplit("~", 1)
        for wrong in (f"{ticket.rsplit('~', 1)[0]}~{signature}", f"{name}~{ticket.rsplit('~', 1)[1]}"):
            with pytest.raises(AccessDeniedError):
                bs.connect(f"{beginning}&ticket={wrong}")


def test_the_sessions_settings_apply(spark: SparkSession, settings: Any, authority: Authority) -> None:
    tls = authority.server("localhost")
    settings("spark.bowstring.publish.remote", "true")
    settings("spark.bowstring.publish.remote.host", "localhost")
    settings("spark.bowstring.publish.remote.bindAddress", "127.0.0.1")
    settings("spark.bowstring.publish.remote.ssl.certificate", str(tls.certificate))
    settings("spark.bowstring.publish.remote.ssl.key", str(tls.key))
    settings("spark.bowstring.publish.remote.ssl.authorities", str(authority.certificate))
    with publish(spark.range(10)) as published:
        uri = published.parts[0].locations[1]
        assert uri.startswith("tcp+tls://localhost:")
        assert bs.connect(uri, tls=authority.client("consumer")).read_all().num_rows
    with publish(spark.range(10), remote=False) as published:
        assert len(published.parts[0].locations) == 1
    settings("spark.bowstring.publish.remote", "yes")
    with pytest.raises(InvalidArgumentError, match=r"spark\.bowstring\.publish\.remote: expected true or false"):
        publish(spark.range(10))


def test_a_certificate_that_does_not_exist_is_an_error(spark: SparkSession, authority: Authority) -> None:
    from bowstring.transports.tls import TlsOptions

    with pytest.raises(Exception, match=r"tls: certificate .*missing\.pem"):
        publish(spark.range(10), remote=RemoteOptions("127.0.0.1", tls=TlsOptions("/missing.pem")))


@pytest.mark.thorough
def test_attempts_that_were_never_reported_are_dropped_on_the_hosts_of_the_executors(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulate other hosts, whose agents are unknown to the driver when the job has failed."""
    monkeypatch.setattr("bowstring.spark.publication.partition_job.PartitionJob.drop", lambda _: None)
    monkeypatch.setattr("bowstring.spark.publication.partition_job.count_executors", lambda _: 1)
    with publish(spark.range(1), remote=LOCAL) as other:
        with pytest.raises(Exception, match="injected into attempt"):
            publish(spark.range(0, 2000, 1, 3).mapInArrow(fail_first_attempts(9), "id long"), remote=LOCAL)
        assert list(agent_datasets(other)) == [other.id]
        monkeypatch.undo()


@pytest.mark.thorough
def test_an_agent_killed_during_the_job_is_replaced(spark: SparkSession) -> None:
    with publish(spark.range(1), remote=LOCAL) as other:
        assert other._job is not None
        with AgentClient.open(other._job.agent_key, start=False) as agent:
            pid = agent.status()["pid"]

        def kill(batches: Iterator[Any]) -> Iterator[Any]:
            from pyspark import TaskContext

            context = TaskContext.get()
            assert context is not None
            yield from batches
            if context.partitionId() == 2 and os.path.exists(f"/proc/{pid}"):
                os.kill(pid, 9)

        with publish(spark.range(0, 300, 1, 3).mapInArrow(kill, "id long"), remote=LOCAL) as published:
            for uris in ([part.locations[number] for part in published.parts] for number in range(2)):
                assert sorted(bs.connect(uris).read_all()["id"].to_pylist()) == list(range(300))

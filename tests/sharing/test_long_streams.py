"""Streams of 3,000 batches, some 6 MB of headers and addresses, over each transport."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import pytest

import bowstring as bs
from bowstring.errors import MissingExtraError, UnmetRequirementError
from bowstring.memory.region import Region
from bowstring.sharing.agent.client import AgentClient, AgentKey
from bowstring.sharing.server.options import ServerOptions
from bowstring.sharing.stored_parts import store_in_region
from bowstring.transports.tls import TlsOptions
from bowstring_networks.ucx.transport import UCX, UcxOptions
from tests.transports.certificates import Authority

BATCHES, COLUMNS = 3000, 20
LAST = f"column {COLUMNS - 1}"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.create(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def region() -> Iterator[Region]:
    batch = bs.record_batch({f"column {index}": np.arange(BATCHES) for index in range(COLUMNS)})
    table = bs.Table(batch.schema, [batch[index : index + 1] for index in range(BATCHES)])
    with store_in_region(table, "long")[0] as region:
        yield region


@pytest.fixture(scope="module", params=["unix", "tcp", "tcp+tls", "ucx", "ucx with shared memory", "fabric"])
def uri_and_tls(
    request: pytest.FixtureRequest, authority: Authority, region: Region
) -> Iterator[tuple[str, TlsOptions | None]]:
    """The URI of the batches at a server of this process, and the client's certificates."""
    scheme, _, is_shared = request.param.partition(" ")
    tls = authority.server() if scheme == "tcp+tls" else None
    UCX.configure(UcxOptions(shares_memory=bool(is_shared)))
    try:
        server = bs.serve({"t": region}, scheme=scheme, options=ServerOptions(tls=tls, inline_bytes=0))
    except (MissingExtraError, UnmetRequirementError) as error:
        pytest.skip(str(error))
    with server:
        yield server.uri("t"), authority.client() if tls is not None else None
    gc.collect()
    UCX.configure(UcxOptions())


@pytest.mark.thorough
@pytest.mark.parametrize(("copy", "keeps_batches"), [(False, False), (False, True), (True, False)])
def test_all_batches_of_a_long_stream_arrive(
    uri_and_tls: tuple[str, TlsOptions | None], copy: bool, keeps_batches: bool
) -> None:
    """Their addresses are freed while the stream is being sent, or after it."""
    uri, tls = uri_and_tls
    kept, numbers = [], []
    with bs.connect(uri, copy=copy, tls=tls) as dataset:
        for batch in dataset:
            numbers += batch[LAST].to_pylist()
            if keeps_batches:
                kept.append(batch)
    assert numbers == list(range(BATCHES))


def test_all_batches_of_a_long_partition_arrive_from_a_host_agent(region: Region) -> None:
    with AgentClient.open(AgentKey()) as agent:
        uri = agent.put("d", (0, 0), region, num_rows=BATCHES).uris[0]
        agent.commit_attempts("d", {0: 0})
        with bs.connect(uri) as dataset:
            assert [number for batch in dataset for number in batch[LAST].to_pylist()] == list(range(BATCHES))

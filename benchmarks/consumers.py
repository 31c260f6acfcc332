"""Consumers of a data set that tasks have passed to a host agent, as those of `publish` do.

Eight processes at once are compared with one of them. A second epoch, which reads shared memory that is mapped already,
is compared with reading the whole table from Parquet again. A part that is read over TCP is compared with the same part
over Arrow Flight.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import bowstring as bs
from benchmarks import datasets
from benchmarks.consumers_client import SUM_COLUMN, sum_column, sum_reader
from benchmarks.measure import Measurement, Settings, compare_calls
from benchmarks.transfer import access_columns, best_chunk_rows, fetch_with_flight
from benchmarks.worker import WorkerProcess
from bowstring.datasets import Dataset, DatasetPart
from bowstring.sharing.agent.client import AgentClient, AgentKey
from bowstring.sharing.agent.control import RemoteAccess
from bowstring.sharing.stored_parts import store_in_region

_ROWS, _COLUMNS, _PARTS, _CONSUMERS = 5_000_000, 10, 8, 8
_CONSUMERS_BOUND, _EPOCH_BOUND, _TCP_BOUND = 1.2, 0.05, 0.7


def run(folder: Path, settings: Settings) -> Iterator[Measurement]:
    """Measure a data set in eight parts."""
    random = np.random.default_rng(2032)
    rows = settings.rows(_ROWS) // _PARTS
    batch = datasets.mixed_batch(random, rows, _COLUMNS)
    with _published(batch) as (local, remote_uri):
        yield _compare_eight_with_one(local, settings)
        yield from _measure_second_epoch(local, pa.Table.from_batches([batch] * _PARTS), folder, settings)
        yield _measure_tcp(remote_uri, batch, folder, settings)


@contextmanager
def _published(batch: Any) -> Iterator[tuple[Dataset, str]]:
    """The data set, with the locations in shared memory; and the location over TCP of one part."""
    key = AgentKey(access=RemoteAccess())
    name, parts, remote_uris = "consumers", [], []
    with AgentClient.open(key) as agent:
        for number in range(_PARTS):
            region, rows = store_in_region(bs.record_batch(batch))
            with region:
                uris = agent.put(name, (number, 0), region, num_rows=rows).uris
                parts.append(DatasetPart(rows, region.size_bytes, uris[:1]))
            remote_uris.append(next(uri for uri in uris if uri.startswith("tcp:")))
        missing = agent.commit_attempts(name, dict.fromkeys(range(_PARTS), 0))
        assert missing == []
        try:
            yield Dataset(name, bs.record_batch(batch).schema, parts), remote_uris[0]
        finally:
            agent.drop(name)


def _compare_eight_with_one(dataset: Dataset, settings: Settings) -> Measurement:
    """Consumers that connect, read all parts and sum a column, where each has a processor as fast as for one."""
    with ExitStack() as stack:
        consumers = [stack.enter_context(WorkerProcess("consumers_client")) for _ in range(_CONSUMERS)]
        description, expected = dataset.to_json(), sum_column(dataset.to_json())

        def read(num_consumers: int) -> None:
            for consumer in consumers[:num_consumers]:
                consumer.send("sum_column", description=description)
            assert [consumer.receive() for consumer in consumers[:num_consumers]] == [expected] * num_consumers

        num_processors = len(os.sched_getaffinity(0))
        bound = _CONSUMERS_BOUND * max(1.0, _CONSUMERS / num_processors)
        line = (
            f"{dataset.nbytes / 1e9:.2g} GB in {_PARTS} parts, {_CONSUMERS} consumers at once on {num_processors} cores"
        )
        peers = {"one consumer": lambda: read(1)}
        return compare_calls(line, bound, lambda: read(_CONSUMERS), peers, settings)


def _measure_second_epoch(dataset: Dataset, table: Any, folder: Path, settings: Settings) -> Iterator[Measurement]:
    """All columns until they are usable, and one column until it is summed."""
    paths = {codec: folder / f"{codec}.parquet" for codec in ("snappy", "none")}
    for codec, path in paths.items():
        pq.write_table(table, path, compression=codec)

    def read_parquet(path: Path, use_threads: bool, columns: list[str] | None) -> Any:
        return pq.read_table(path, columns=columns, use_threads=use_threads, memory_map=True)

    def sum_parquet(path: Path, use_threads: bool) -> Any:
        return pa.compute.sum(read_parquet(path, use_threads, [SUM_COLUMN]).column(0)).as_py()

    settings_of_parquet = {
        f"{codec}, {'threads' if use_threads else 'no threads'}": (path, use_threads)
        for codec, path in paths.items()
        for use_threads in (True, False)
    }
    line = f"{table.num_rows:,} rows again from shared memory, Parquet and pyarrow"
    with bs.connect(dataset) as reader:
        assert sum_reader(reader) == sum_parquet(paths["snappy"], True)
        yield compare_calls(
            f"{line}, all columns usable",
            _EPOCH_BOUND,
            lambda: access_columns(reader.read_all()),
            {name: partial(read_parquet, *arguments, None) for name, arguments in settings_of_parquet.items()},
            settings,
        )
        yield compare_calls(
            f"{line}, one column summed",
            None,
            lambda: sum_reader(reader),
            {name: partial(sum_parquet, *arguments) for name, arguments in settings_of_parquet.items()},
            settings,
        )
    for path in paths.values():
        path.unlink()


def _measure_tcp(uri: str, batch: Any, folder: Path, settings: Settings) -> Measurement:
    """One part over TCP on the loopback device, until every column is usable."""
    path = folder / "part.arrow"
    datasets.write_file(path, [batch], 1)
    with WorkerProcess("flight_server", str(path)) as server:
        location = f"grpc://127.0.0.1:{server.ready['tcp_port']}"
        chunk_rows = best_chunk_rows(location, batch.num_rows)

        def read() -> Any:
            with bs.connect(uri) as reader:
                return access_columns(reader.read_all())

        expected = fetch_with_flight(location, chunk_rows)
        assert all(pa.chunked_array(column).equals(other) for column, other in zip(read(), expected, strict=True))
        line = f"a part of {batch.nbytes / 1e6:.0f} MB of the host agent over TCP"
        peers = {"Flight, TCP": partial(fetch_with_flight, location, chunk_rows)}
        return compare_calls(line, _TCP_BOUND, read, peers, settings)

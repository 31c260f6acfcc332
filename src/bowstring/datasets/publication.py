"""Publish data of this process: the host agent keeps it, and other processes find it by its name."""

from __future__ import annotations

import os
from contextlib import ExitStack
from functools import partial

from bowstring.datasets.dataset import Dataset, DatasetPart
from bowstring.datasets.published_dataset import (
    LocalDatasetControl,
    PublishedDataset,
    describe_publication,
    end_predecessors,
)
from bowstring.datatypes.schema import Schema
from bowstring.errors import MissingFileError
from bowstring.kernels.list_lengths import ListLengthCollector, ListLengths, count_list_levels
from bowstring.memory.region import Region
from bowstring.sharing.agent.client import DEFAULT_TTL_S, AgentClient, AgentKey
from bowstring.sharing.agent.directory import open_detached_agent
from bowstring.sharing.agent.memory_budget import find_spill_folders
from bowstring.sharing.agent.publications import DEFAULT_NAME, Lifetime, check_lifetime, create_dataset_id
from bowstring.sharing.processes import ProcessIdentity
from bowstring.sharing.share import TableSource, to_regions
from bowstring.sharing.stored_parts import FolderFinder, TableRegions, open_region_reader

_agent_keys: dict[ProcessIdentity, AgentKey] = {}


def publish(
    source: TableSource,
    *,
    name: str | None = None,
    ttl_s: float = DEFAULT_TTL_S,
    lifetime: Lifetime = "detached",
    spill_folder: str | os.PathLike[str] | None = None,
    replace: bool = False,
) -> PublishedDataset:
    """Keep a table in memory for other processes of this user and host, which find it by `name`.

    `source` is as for `share`: a table (of Bowstring or another library), columns by name, batches, a reader, the path
    of an Arrow, Parquet, CSV or JSON file, or shared memory. Batches of an iterable or a reader are written one by one.
    Everything but sealed memory is copied once, into memory of the host agent, a process that starts when it is needed.
    `name` does not have to be unique: `open_published(name)` opens the newest data set with it. The default is "data".

    With `replace`, all older data sets of this name are freed when the new one can be read: a process that opens the
    name meanwhile gets the last of them or the new one. Whoever has opened an old one can begin to read it for five
    more seconds.

    The object that is returned owns the data: its `close`, or the end of its ``with`` block, frees the memory for
    everyone. By default, the data set outlives the object and this process, as the results of a short-lived worker
    should, and is freed by `close`, by `unpublish`, or `ttl_s` (a day) after it was published. With the lifetime
    "application", it also ends with this process, however that ends. If this process is killed before `publish`
    returns, either nothing or the complete data set remains.

    If memory is short, that is if less than a sixteenth would remain, the rest is copied to unnamed files in
    `spill_folder`, by default in Spark's local folders in its tasks, and else in the temporary folder. They are read in
    place like memory, and the kernel removes them with their last holder.

    Raises `InvalidArgumentError` for invalid options, `MissingFileError` if there is no such folder, `ResourceError` if
    memory and disk space are short or the agent can't be started, `InvalidDataError` if offsets of lists are malformed,
    and as `share`.

    >>> table = bs.table({"city": ["Riga", "Lima"], "people": [605_273, 10_092_000]})
    >>> with bs.publish(table, name="docs-cities", ttl_s=60) as dataset:
    ...     with bs.open_published("docs-cities") as opened:  # in any process of this user
    ...         opened.read_all() == table
    True
    """
    check_lifetime(lifetime, ttl_s)
    dataset_id = create_dataset_id(name)
    find_folders = find_spill_folders if spill_folder is None else partial(list, [_check_folder(spill_folder)])
    with ExitStack() as stack:
        stored = _store_in_fixed_regions(source, dataset_id, find_folders)
        regions = [stack.enter_context(region) for region in stored.regions]
        schema = stored.schema
        if schema is None or any(map(count_list_levels, schema.types)):
            contents = [_count_rows_and_lists(region) for region in regions]
        else:  # written here, without lists: nothing has to be read
            contents = [(schema, num_rows, ()) for num_rows in stored.row_counts]
        agent = stack.enter_context(_open_agent(lifetime))
        parts = []
        for index, (region, (_, num_rows, list_lengths)) in enumerate(zip(regions, contents, strict=True)):
            # Temporary: if this process ends before `agent.publish`, the agent drops the parts with its connection.
            uris = agent.put(dataset_id, (index, 0), region, num_rows=num_rows, ttl_s=ttl_s, is_temporary=True).uris
            parts.append(DatasetPart(num_rows, region.size_bytes, uris, os.uname().nodename, list_lengths))
        schema, *_ = contents[0]
        publication = describe_publication(Dataset(name or DEFAULT_NAME, schema, parts), lifetime)
        expires_at = agent.publish(dataset_id, publication)
    control = LocalDatasetControl(agent.address, dataset_id)
    dataset = PublishedDataset(publication.name, schema, parts, dataset_id, expires_at, control, is_owner=True)
    if replace:
        end_predecessors(dataset)
    return dataset


def _store_in_fixed_regions(source: TableSource, name: str, find_folders: FolderFinder) -> TableRegions:
    """Return the regions of a source, sealed ones; files of others are copied."""
    stored = to_regions(source, name, find_folders=find_folders)
    # Regions that were written here may be unnamed files.
    if stored.schema is not None or all(region.is_sealed for region in stored.regions):
        return stored
    for region in stored.regions:
        region.close()
    return to_regions(source, name, copy=True, find_folders=find_folders)


def _count_rows_and_lists(region: Region) -> tuple[Schema, int, ListLengths]:
    """Return the schema and the number of rows of a region, and the lengths of its lists, of which only the offsets are
    read. Raises `InvalidDataError`.
    """
    reader = open_region_reader(region)
    collector, num_rows = ListLengthCollector(reader.schema.types), 0
    for batch in reader:
        num_rows += batch.num_rows
        collector.add(batch.column)
    return reader.schema, num_rows, collector.list_lengths


def _check_folder(folder: str | os.PathLike[str]) -> str:
    if not os.path.isdir(folder):
        raise MissingFileError(f"spill_folder: {os.fspath(folder)} is not a folder", filename=os.fspath(folder))
    return os.path.abspath(folder)


def _open_agent(lifetime: Lifetime) -> AgentClient:
    """Connect to the agent for a lifetime. One that no process owns has all detached data sets, so that thousands of
    short-lived processes do not leave an agent each.
    """
    if lifetime == "detached":
        return open_detached_agent()
    owner = ProcessIdentity.current()
    key = _agent_keys.setdefault(owner, AgentKey())
    return AgentClient.open(key)

"""Data sets for Ray Data: one read task for each part, on the host that has it, if it is a node of the cluster."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from bowstring.datasets.dataset import Dataset
from bowstring.errors import require_package

with require_package("Ray", "ray"):
    import pyarrow as pa
    import ray
    import ray.data
    from ray.data.block import BlockMetadata

__all__ = ["read"]


def __dir__() -> list[str]:
    return __all__


def read(dataset: Dataset) -> Any:
    """Return a `ray.data.Dataset` of a data set's rows.

    Nothing is read before Ray executes it. Each part with rows is a read task, which Ray runs on the part's host if
    possible; there it maps shared memory, and Ray copies it into its object store. The parts of one host are adjacent,
    so rows keep their order only if the parts of each host are.

    Connects to the cluster, or starts one, as Ray does. A task raises as `bowstring.connect` and `EpochReader`.
    """
    if not ray.is_initialized():
        ray.init()
    nodes = {
        name: node["NodeID"]
        for node in ray.nodes()  # type: ignore[no-untyped-call, unused-ignore]
        if node["Alive"]
        for name in (node["NodeManagerAddress"], node["NodeManagerHostname"])
    }
    parts_by_node: dict[str | None, list[int]] = {}
    for index, (part, num_rows) in enumerate(zip(dataset.parts, dataset.part_rows, strict=True)):
        if num_rows:
            node_id = None if part.host is None else nodes.get(part.host)
            parts_by_node.setdefault(node_id, []).append(index)
    if not parts_by_node:
        return ray.data.from_arrow(pa.schema(dataset.schema).empty_table())
    first, *others = [
        ray.data.read_datasource(
            _PartSource(dataset.take_parts(indices)),
            override_num_blocks=len(indices),
            **_task_options(node_id),
        )
        for node_id, indices in parts_by_node.items()
    ]
    return first.union(*others) if others else first


def _task_options(node_id: str | None) -> dict[str, Any]:
    """Return the options of tasks that prefer a node, but run elsewhere if it is busy or lost."""
    if node_id is None:
        return {}
    # An empty selector allows any node. A soft `NodeAffinitySchedulingStrategy` would wait for a busy one, and can only
    # be passed by `ray_remote_args`, which Ray 2.64 removes.
    return {"label_selector": {"ray.io/node-id": node_id}, "fallback_strategy": [{"label_selector": {}}]}


class _PartSource(ray.data.Datasource):  # type: ignore[misc, unused-ignore]
    """Parts, each of which is a read task."""

    def __init__(self, dataset: Dataset) -> None:
        super().__init__()  # type: ignore[no-untyped-call, unused-ignore]
        self._dataset = dataset

    def get_name(self) -> str:
        return "Bowstring"

    def estimate_inmemory_data_size(self) -> int:
        return sum(part.nbytes for part in self._dataset.parts)

    def get_read_tasks(  # the parameters are Ray's
        self,
        parallelism: int,  # noqa: ARG002
        per_task_row_limit: int | None = None,
        data_context: object = None,  # noqa: ARG002
    ) -> list[Any]:
        """Return a task for each part, whatever the parallelism: a part has one location."""
        schema = pa.schema(self._dataset.schema)
        return [
            ray.data.ReadTask(
                partial(_read_part, self._dataset[index : index + 1]),
                BlockMetadata(num_rows=num_rows, size_bytes=part.nbytes, exec_stats=None),
                schema=schema,
                per_task_row_limit=per_task_row_limit,
            )
            for index, (part, num_rows) in enumerate(zip(self._dataset.parts, self._dataset.part_rows, strict=True))
        ]


def _read_part(dataset: Dataset) -> Iterator[Any]:
    """Yield the record batches of a data set's only part as tables of pyarrow."""
    for batch in dataset:
        if batch.num_rows:
            yield pa.table(batch)

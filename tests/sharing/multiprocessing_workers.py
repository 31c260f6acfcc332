"""Functions that processes of `multiprocessing` call; they have to be importable."""

from __future__ import annotations

from typing import Any

import bowstring as bs


def read(source: Any) -> dict[str, Any]:
    """The values of a handle, table, data set or URI."""
    if isinstance(source, bs.sharing.SharedTableHandle):
        source = bs.attach(source)
    elif isinstance(source, str):
        source = bs.connect(source)
    table = source if isinstance(source, bs.Table) else source.read_all()
    values: dict[str, Any] = table.to_pydict()
    return values


def read_queue(requests: Any, replies: Any, *arguments: Any) -> None:
    """Put the values of the arguments, then those of each source from a queue until None."""
    for source in arguments:
        replies.put(read(source))
    while (source := requests.get()) is not None:
        replies.put(read(source))


def share_values(values: list[int], handles: Any, is_finished: Any) -> None:
    """Share a table, and keep its handle until the event is set."""
    with bs.share(bs.table({"a": values})) as handle:
        handles.put(handle)
        is_finished.wait(60)


class Rows:
    """A map-style data set of PyTorch, which attaches in each worker."""

    def __init__(self, handle: bs.sharing.SharedTableHandle) -> None:
        self.handle = handle
        self.values: Any = None

    def __len__(self) -> int:
        return self.handle.num_rows

    def __getitems__(self, indices: list[int]) -> Any:
        if self.values is None:
            self.values = bs.attach(self.handle)["x"].to_numpy()
        return self.values[indices]

"""Bodies that are far away, brought here when their turn comes: many small ones at once, and never more than one round
of requests gives.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

from bowstring.io.range_source import ROUND_BYTES, RangeSource
from bowstring.ipc.record_batch.remote import RemoteBody
from bowstring.ipc.tools.scan import BatchSpan

_MOST_AT_ONCE = 1000
_One = TypeVar("_One")


def prefetch_bodies(found: Iterable[_One]) -> Iterator[_One]:
    """The same in the same order, where each `BatchSpan` has its body: those that were far away are fetched.

    One that is larger than `ROUND_BYTES` stays where it is; its columns come one by one when they are asked for.
    """
    group: list[_One] = []
    held_bytes = 0
    for one in found:
        body = one.body if isinstance(one, BatchSpan) else None
        size_bytes = body.size if isinstance(body, RemoteBody) else 0
        if held_bytes + size_bytes > ROUND_BYTES or len(group) == _MOST_AT_ONCE:
            yield from _fetched(group)
            group, held_bytes = [], 0
        group.append(one)
        held_bytes += size_bytes
    yield from _fetched(group)


def _fetched(group: list[_One]) -> Iterator[_One]:
    far = [one.body for one in group if isinstance(one, BatchSpan) and isinstance(one.body, RemoteBody)]
    wanted = [body for body in far if body.size <= ROUND_BYTES]
    if not wanted:
        yield from group
        return
    source: RangeSource = wanted[0].source
    found = source.fetch([(body.offset, body.size) for body in wanted])
    for one in group:
        if isinstance(one, BatchSpan) and isinstance(one.body, RemoteBody) and one.body.size <= ROUND_BYTES:
            yield replace(one, body=found.find(one.body.offset, one.body.size))
        else:
            yield one

"""Prefetch the bodies of remote messages: many small ones at once, at most one round of requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

from bowstring.io.range_source import ROUND_BYTES, RangeSource
from bowstring.ipc.record_batch.remote import RemoteBody
from bowstring.ipc.tools.scan import BatchSpan

_MAX_GROUP_LENGTH = 1000
_Message = TypeVar("_Message")


def prefetch_bodies(messages: Iterable[_Message]) -> Iterator[_Message]:
    """Yield the same in the same order, with the remote bodies of `BatchSpan`s fetched.

    A body larger than `ROUND_BYTES` stays remote; its columns are fetched on access.
    """
    group: list[_Message] = []
    group_bytes = 0
    for message in messages:
        body = message.body if isinstance(message, BatchSpan) else None
        size_bytes = body.size if isinstance(body, RemoteBody) else 0
        if group_bytes + size_bytes > ROUND_BYTES or len(group) == _MAX_GROUP_LENGTH:
            yield from _fetch_group(group)
            group, group_bytes = [], 0
        group.append(message)
        group_bytes += size_bytes
    yield from _fetch_group(group)


def _fetch_group(group: list[_Message]) -> Iterator[_Message]:
    remote_bodies = [
        message.body for message in group if isinstance(message, BatchSpan) and isinstance(message.body, RemoteBody)
    ]
    small_bodies = [body for body in remote_bodies if body.size <= ROUND_BYTES]
    if not small_bodies:
        yield from group
        return
    source: RangeSource = small_bodies[0].source
    chunks = source.fetch([(body.offset, body.size) for body in small_bodies])
    for message in group:
        if isinstance(message, BatchSpan) and isinstance(message.body, RemoteBody) and message.body.size <= ROUND_BYTES:
            yield replace(message, body=chunks.find(message.body.offset, message.body.size))
        else:
            yield message

"""The attributes of a published data set in a host agent: its name, size, description and lifetime.

A data set has a name, which others may have, too, and an ID, which is unique.
"""

from __future__ import annotations

import math
import re
import secrets
import zlib
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias, get_args

from bowstring.display.objects import report_to_html
from bowstring.errors import InvalidArgumentError, ProtocolError, check_seconds
from bowstring.sharing.json_fields import read_field, read_list

Lifetime: TypeAlias = Literal["application", "detached"]
"""Until the end of the process that published, or also beyond it."""
DEFAULT_NAME = "data"
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,200}")
_STREAM_BATCH_ID = re.compile(
    rf"(?P<name>{_NAME.pattern})-(?P<query>[0-9a-f]{{32}})-(?P<number>\d{{10}})-[0-9a-f]{{8}}"
)
_MAX_TEXT = 80  # of a wrong value in an error
_SUBJECT = "published data set"  # of an error
# The size after decompression: a short one from another process could otherwise fill the memory.
_MAX_DESCRIPTION_BYTES = 1 << 30


def check_name(name: str) -> None:
    """Raise `InvalidArgumentError` for an invalid name."""
    if not _NAME.fullmatch(str(name)):
        raise InvalidArgumentError(
            f"name: expected 1 to 200 letters, digits, '_', '-' and '.', found {str(name)[:_MAX_TEXT]!r}"
        )


def create_dataset_id(name: str | None) -> str:
    """Return a new ID for a data set. Raises `InvalidArgumentError` for an invalid name."""
    if name is not None:
        check_name(name)
    return f"{name or DEFAULT_NAME}-{secrets.token_hex(8)}"


@dataclass(frozen=True, slots=True)
class QueryBatchId:
    """A batch of a published stream. Each batch is a data set of its own."""

    name: str
    query: str
    """The stream: the same after a restart."""
    number: int

    def create_dataset_id(self) -> str:
        """Return a new ID for the data set; a batch that is computed again gets another one."""
        check_name(self.name)
        return f"{self.name}-{self.query}-{self.number:010d}-{secrets.token_hex(4)}"

    @classmethod
    def parse(cls, dataset_id: str) -> QueryBatchId | None:
        """Return the batch of a data set; None if it is not one of a stream."""
        match = _STREAM_BATCH_ID.fullmatch(dataset_id)
        return None if match is None else cls(match["name"], match["query"], int(match["number"]))


def check_lifetime(lifetime: str, ttl_s: float) -> None:
    """Raise `InvalidArgumentError` for other values of the options of `publish`."""
    if lifetime not in get_args(Lifetime):
        raise InvalidArgumentError(f"lifetime: expected one of {get_args(Lifetime)}, found {lifetime!r}")
    check_seconds("ttl_s", ttl_s)


@dataclass(frozen=True, slots=True)
class Publication:
    """The name of a data set, its size on all hosts, and its `description`, of `compress_description`.

    `control_uris` are the agents that have it, for `AgentClient.dial`; empty if it is on this host only.
    """

    name: str
    num_rows: int
    nbytes: int
    num_parts: int
    hosts: tuple[str, ...]
    lifetime: str
    description: bytes = field(repr=False)
    control_uris: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the fields but `description`, which no text contains."""
        return {name: value for name, value in asdict(self).items() if name != "description"}

    @classmethod
    def from_json(cls, value: object, description: bytes) -> Publication:
        """Return the publication of `to_json`. Raises `ProtocolError`."""
        control_uris = read_list(value, "control_uris", str, _SUBJECT)
        publication = cls(**_read_common_fields(value), description=description, control_uris=control_uris)
        if not _NAME.fullmatch(publication.name):
            raise ProtocolError(f"{_SUBJECT}: name: found {publication.name[:_MAX_TEXT]!r}")
        return publication


@dataclass(frozen=True, slots=True, weakref_slot=True)
class PublishedSummary:
    """A data set that a host agent of this host has; `id` is unique, and the newest data set has a `name`.

    >>> with bs.publish(bs.table({"n": [1, 2]}), name="docs-summary") as dataset:
    ...     (summary,) = [each for each in bs.published() if each.id == dataset.id]
    >>> summary.name, summary.num_rows
    ('docs-summary', 2)
    """

    id: str
    name: str
    num_rows: int
    nbytes: int
    """The bytes of all parts, on all hosts together."""
    num_parts: int
    hosts: tuple[str, ...]
    lifetime: str
    """"application" or "detached"."""
    created_at: datetime
    """When it was published, in UTC."""
    expires_at: datetime | None
    """When its memory is freed, in UTC; None for never."""
    num_readers: int
    """The processes of this host, and the connections of others, that have it open from the agent of this host."""
    monotonic_s: float = field(repr=False)
    """`created_at` by the host's monotonic clock: the order of publication, also if the clock was set back."""

    _repr_html_ = report_to_html

    @property
    def age_s(self) -> float:
        """The seconds since it was published."""
        return (datetime.now(UTC) - self.created_at).total_seconds()

    @classmethod
    def from_json(cls, value: object) -> PublishedSummary:
        """Return the summary of an agent, whose times are seconds since 1970. Raises `ProtocolError`."""
        created_at = parse_time(read_field(value, "created_at", float, _SUBJECT))
        if created_at is None:
            raise ProtocolError(f"{_SUBJECT}: created_at: expected a time before the year 10000")
        assert isinstance(value, dict)
        return cls(
            id=read_field(value, "id", str, _SUBJECT),
            **_read_common_fields(value),
            created_at=created_at,
            expires_at=parse_time(value.get("expires_at")),
            num_readers=read_field(value, "num_readers", int, _SUBJECT),
            monotonic_s=read_field(value, "monotonic_s", float, _SUBJECT),
        )


def _read_common_fields(value: object) -> dict[str, Any]:
    """Return the fields of both a publication and a summary. Raises `ProtocolError`."""
    texts = {name: read_field(value, name, str, _SUBJECT) for name in ("name", "lifetime")}
    counts = {name: read_field(value, name, int, _SUBJECT) for name in ("num_rows", "nbytes", "num_parts")}
    return {**texts, **counts, "hosts": read_list(value, "hosts", str, _SUBJECT)}


def compress_description(text: str) -> bytes:
    """Compress the text of `Dataset.to_json`. Of 100,000 parts of several hosts, it has 55 MB before."""
    return zlib.compress(text.encode(), level=1)


def decompress_description(description: bytes) -> str:
    """Return the text of a description. Raises `ProtocolError`, also if it is longer than a GiB."""
    decompressor = zlib.decompressobj()
    try:
        content = decompressor.decompress(description, _MAX_DESCRIPTION_BYTES)
        if decompressor.eof:
            return content.decode()
        problem = f"it is incomplete, or longer than {_MAX_DESCRIPTION_BYTES} bytes"
    except (ValueError, zlib.error) as error:
        problem = str(error)
    raise ProtocolError(f"{_SUBJECT}: description: {problem}")


def parse_time(value: object) -> datetime | None:
    """Return the time of seconds since 1970; None for None and for times beyond the year 9999.

    Raises `ProtocolError`.
    """
    if value is None:
        return None
    try:
        if isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value):
            return datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    raise ProtocolError(f"{_SUBJECT}: expected a time in seconds, found {str(value)[:_MAX_TEXT]}")

"""The attributes of a published data set in a host agent: its name, size, description and lifetime.

A data set has a name, which others may have, too, and an ID, which is unique.
"""

from __future__ import annotations

import base64
import math
import re
import secrets
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias, get_args

from bowstring.display.objects import report_to_html
from bowstring.errors import InvalidArgumentError, ProtocolError, check_seconds

Lifetime: TypeAlias = Literal["application", "detached"]
"""Until the end of the process that published, or also beyond it."""
DEFAULT_NAME = "data"
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,200}")
_STREAM_BATCH_ID = re.compile(
    rf"(?P<name>{_NAME.pattern})-(?P<query>[0-9a-f]{{32}})-(?P<number>\d{{10}})-[0-9a-f]{{8}}"
)
_MAX_TEXT = 80  # of a wrong value in an error
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
    """The name of a data set, its size on all hosts, and its `description`, the text of `Dataset.to_json`, compressed.

    `control_uris` are the agents that have it, for `AgentClient.dial`; empty if it is on this host only.
    """

    name: str
    num_rows: int
    nbytes: int
    num_parts: int
    hosts: tuple[str, ...]
    lifetime: str
    description: str
    control_uris: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the fields, for `from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: object) -> Publication:
        """Return the publication of `to_json`. Raises `ProtocolError`."""
        publication = cls(**_read_fields(cls, value))
        if not _NAME.fullmatch(publication.name):
            raise ProtocolError(f"published data set: name: found {publication.name[:_MAX_TEXT]!r}")
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

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values; times are seconds since 1970."""
        expires_at = None if self.expires_at is None else self.expires_at.timestamp()
        return {**asdict(self), "created_at": self.created_at.timestamp(), "expires_at": expires_at}

    @classmethod
    def from_json(cls, value: object) -> PublishedSummary:
        """Return the summary of `to_json`. Raises `ProtocolError`."""
        return cls(**_read_fields(cls, value))


def compress_description(text: str) -> str:
    """Return a description. Of 100,000 parts of several hosts, the text has 55 MB, and the description a fraction."""
    return base64.b64encode(zlib.compress(text.encode(), level=1)).decode()


def decompress_description(description: str) -> str:
    """Return the text of a description. Raises `ProtocolError`, also if it is longer than a GiB."""
    try:
        decompressor = zlib.decompressobj()
        content = decompressor.decompress(base64.b64decode(description, validate=True), _MAX_DESCRIPTION_BYTES)
        if decompressor.eof:
            return content.decode()
        problem = f"it is incomplete, or longer than {_MAX_DESCRIPTION_BYTES} bytes"
    except (ValueError, zlib.error) as error:
        problem = str(error)
    raise ProtocolError(f"published data set: description: {problem}")


def parse_time(value: object) -> datetime | None:
    """Return the time of seconds since 1970; None for None and for times beyond the year 9999.

    Raises `ProtocolError`.
    """
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or math.isnan(value):
        raise ProtocolError(f"published data set: expected a time in seconds, found {str(value)[:_MAX_TEXT]}")
    try:
        return datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):
        return None


_KINDS: Mapping[str, type] = {"str": str, "int": int, "float": float}


def _read_fields(cls: type[Publication | PublishedSummary], value: object) -> dict[str, Any]:
    """Return the fields of a JSON object as the types of a class. Raises `ProtocolError`."""
    if not isinstance(value, dict):
        raise ProtocolError(f"published data set: expected a JSON object, found {type(value).__name__}")
    checked: dict[str, Any] = {}
    for each in fields(cls):
        field_value = value.get(each.name)
        if each.name in ("created_at", "expires_at"):
            checked[each.name] = parse_time(field_value)
            is_valid = checked[each.name] is not None or each.name == "expires_at"
        elif each.name in ("hosts", "control_uris"):
            is_valid = isinstance(field_value, list | tuple) and all(isinstance(text, str) for text in field_value)
            checked[each.name] = tuple(field_value) if isinstance(field_value, list | tuple) else ()
        else:
            is_valid = type(field_value) is _KINDS[str(each.type)]
            checked[each.name] = field_value
        if not is_valid:
            raise ProtocolError(f"published data set: {each.name}: found {str(field_value)[:_MAX_TEXT]}")
    return checked

"""«Timestamp With Offset» of the canonical extension types: a timestamp in UTC with its own offset from UTC.

>>> from datetime import datetime, timedelta, timezone
>>> import bowstring as bs
>>> noon = datetime(2025, 1, 1, 12, tzinfo=timezone(timedelta(hours=-7)))
>>> bs.array([noon, None], bs.datatypes.timestamp_with_offset("s")).to_pylist() == [noon, None]
True
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bowstring.datatypes import factories, types as t
from bowstring.datatypes.conversion import field
from bowstring.datatypes.extension import ExtensionType, register_extension_type
from bowstring.errors import InvalidArgumentError, InvalidDataError, TypeMismatchError

# The specification limits offsets to less than a day, as Python's `timezone` does.
_DAY_MINUTES = 24 * 60


class TimestampWithOffset(NamedTuple):
    """A timestamp that Python's `datetime` can't represent, such as one with nanoseconds, and its offset.

    `timestamp` is in UTC, `offset_minutes` are minutes east of UTC.

    >>> import numpy as np
    >>> bs.datatypes.TimestampWithOffset(np.datetime64("2024-02-29T12:00", "ms"), 60)
    TimestampWithOffset(timestamp=np.datetime64('2024-02-29T12:00:00.000'), offset_minutes=60)
    """

    timestamp: np.datetime64
    offset_minutes: int


@register_extension_type
@dataclass(frozen=True, slots=True, repr=False)
class TimestampWithOffsetType(ExtensionType):
    """Timestamps, each with its own offset from UTC, as a struct of `timestamp` and `offset_minutes`.

    Values are datetimes at that offset, or `TimestampWithOffset` if a datetime can't represent it. A null timestamp is
    a null value, a null offset is 0. Values sort by their instants, and can be cast to timestamps.
    """

    EXTENSION_NAME: ClassVar[str] = "arrow.timestamp_with_offset"
    VALUE_FIELD: ClassVar[int | None] = 0

    def __post_init__(self) -> None:
        storage = self.storage_type
        fields = storage.fields if isinstance(storage, t.Struct) else ()
        if [f.name for f in fields] == ["timestamp", "offset_minutes"]:
            timestamp, offset = (f.type for f in fields)
            if isinstance(offset, (t.Dictionary, t.RunEndEncoded)):
                offset = offset.value_type
            if isinstance(timestamp, t.Timestamp) and timestamp.timezone == "UTC" and offset == t.Int(16):
                return
        raise InvalidArgumentError(
            f"{self.EXTENSION_NAME}: expected a struct of 'timestamp' in UTC and 'offset_minutes' of int16 as storage "
            f"type, found {storage}"
        )

    @property
    def unit(self) -> t.TimeUnit:
        """The unit of the timestamps."""
        timestamp = self.storage_type.fields[0].type
        assert isinstance(timestamp, t.Timestamp)
        return timestamp.unit

    def check_storage_value(self, value: Any) -> None:
        """Raise `InvalidDataError` for an offset of a day or more."""
        minutes = value["offset_minutes"] or 0
        if not -_DAY_MINUTES < minutes < _DAY_MINUTES:
            raise InvalidDataError(f"{self.EXTENSION_NAME}: an offset of {minutes} minutes is not less than a day")

    def decode(self, value: Any) -> datetime | TimestampWithOffset | None:
        """Return the datetime at its offset. Raises `InvalidDataError` for an offset of a day or more."""
        self.check_storage_value(value)
        timestamp, minutes = value["timestamp"], value["offset_minutes"] or 0
        if timestamp is None:
            return None
        if isinstance(timestamp, datetime):
            try:
                return timestamp.astimezone(timezone(timedelta(minutes=minutes)))
            except OverflowError:
                timestamp = np.datetime64(timestamp.replace(tzinfo=None), "us")
        return TimestampWithOffset(timestamp, minutes)

    def encode(self, value: Any) -> Any:
        """Return the timestamp in UTC and its offset. Raises `TypeMismatchError` for any other value."""
        if isinstance(value, TimestampWithOffset):
            return {"timestamp": value.timestamp, "offset_minutes": value.offset_minutes}
        offset = value.utcoffset() if isinstance(value, datetime) else None
        if offset is None:
            raise TypeMismatchError(f"{value!r:.60} is not a datetime with an offset from UTC")
        minutes, rest = divmod(offset, timedelta(minutes=1))
        if rest:
            raise TypeMismatchError(f"{value!r:.80} has an offset of {offset}, which is not a whole number of minutes")
        try:
            return {"timestamp": value.astimezone(UTC), "offset_minutes": minutes}
        except OverflowError:
            raise TypeMismatchError(f"{value!r:.80} is outside the years 1 to 9999 in UTC") from None


def timestamp_with_offset(unit: t.TimeUnit = "us") -> TimestampWithOffsetType:
    """Timestamps, each with its own offset from UTC, in "s", "ms", "us" or "ns".

    >>> [field.name for field in bs.datatypes.timestamp_with_offset("ms").storage_type.fields]
    ['timestamp', 'offset_minutes']
    """
    timestamp, offset = t.Timestamp(unit, "UTC"), factories.int16()
    children = (field("timestamp", timestamp, nullable=False), field("offset_minutes", offset, nullable=False))
    return TimestampWithOffsetType(t.Struct(children))

"""«Timestamp With Offset» of the canonical extension types: a moment in UTC, and the offset at which it was noted.

>>> from datetime import datetime, timedelta, timezone
>>> import bowstring as bs
>>> noon = datetime(2025, 1, 1, 12, tzinfo=timezone(timedelta(hours=-7)))
>>> bs.array([noon, None], bs.timestamp_with_offset("s")).to_pylist() == [noon, None]
True
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bowstring.datatypes.extension import ExtensionType, register_extension_type
from bowstring.datatypes.field import field
from bowstring.datatypes.types import (
    Dictionary,
    Int,
    RunEndEncoded,
    Struct,
    Timestamp,
    TimeUnit,
    int16,
)
from bowstring.errors import DataTypeError, InvalidDataError, UsageError

_DAY_MINUTES = 24 * 60


class OffsetMoment(NamedTuple):
    """A moment that Python's `datetime` can't hold, such as one with nanoseconds: UTC, and minutes east of it."""

    timestamp: np.datetime64
    offset_minutes: int


@register_extension_type
@dataclass(frozen=True, slots=True, repr=False)
class TimestampWithOffsetType(ExtensionType):
    """Moments with an offset from UTC each, as a struct of `timestamp` and `offset_minutes`.

    Values are datetimes at that offset, or an `OffsetMoment` where a datetime can't hold one exactly. A null timestamp
    is a null value, a null offset is 0.
    """

    EXTENSION_NAME: ClassVar[str] = "arrow.timestamp_with_offset"

    def __post_init__(self) -> None:
        storage = self.storage_type
        found = [(f.name, f.type) for f in storage.fields] if isinstance(storage, Struct) else []
        if [name for name, _ in found] == ["timestamp", "offset_minutes"]:
            moment, offset = found[0][1], found[1][1]
            if isinstance(offset, (Dictionary, RunEndEncoded)):
                offset = offset.value_type
            if isinstance(moment, Timestamp) and moment.timezone == "UTC" and offset == Int(16):
                return
        raise UsageError(
            f"{self.EXTENSION_NAME} is stored as a struct of 'timestamp' in UTC and 'offset_minutes' as int16, not as "
            f"{storage}"
        )

    @property
    def unit(self) -> TimeUnit:
        """The unit of the timestamps."""
        moment = self.storage_type.fields[0].type
        assert isinstance(moment, Timestamp)
        return moment.unit

    def check_value(self, value: Any) -> None:
        """Raise `InvalidDataError` for an offset of a day or more."""
        minutes = value["offset_minutes"] or 0
        if not -_DAY_MINUTES < minutes < _DAY_MINUTES:
            raise InvalidDataError(f"{self.EXTENSION_NAME}: an offset of {minutes} minutes is a day or more")

    def decode(self, value: Any) -> datetime | OffsetMoment | None:
        """The moment at its offset. Raises `InvalidDataError` for an offset of a day or more."""
        self.check_value(value)
        moment, minutes = value["timestamp"], value["offset_minutes"] or 0
        if moment is None:
            return None
        if isinstance(moment, datetime):
            try:
                return moment.astimezone(timezone(timedelta(minutes=minutes)))
            except OverflowError:
                moment = np.datetime64(moment.replace(tzinfo=None), "us")
        return OffsetMoment(moment, minutes)

    def encode(self, value: Any) -> Any:
        """The moment in UTC and its offset. Raises `DataTypeError` for what is no moment with an offset."""
        if isinstance(value, OffsetMoment):
            return {"timestamp": value.timestamp, "offset_minutes": value.offset_minutes}
        offset = value.utcoffset() if isinstance(value, datetime) else None
        if offset is None:
            raise DataTypeError(f"{value!r:.60} is no datetime with an offset from UTC")
        minutes, rest = divmod(offset, timedelta(minutes=1))
        if rest:
            raise DataTypeError(f"{value!r:.80} has an offset of {offset}, no whole minutes")
        try:
            return {"timestamp": value.astimezone(UTC), "offset_minutes": minutes}
        except OverflowError:
            raise DataTypeError(f"{value!r:.80} is beyond the years 1 to 9999 in UTC") from None


def timestamp_with_offset(unit: TimeUnit = "us") -> TimestampWithOffsetType:
    """Moments with an offset from UTC each, in units of s, ms, us or ns."""
    moment, offset = Timestamp(unit, "UTC"), int16()
    children = (field("timestamp", moment, nullable=False), field("offset_minutes", offset, nullable=False))
    return TimestampWithOffsetType(Struct(children))

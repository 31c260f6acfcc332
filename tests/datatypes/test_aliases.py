"""Names of data types: pyarrow's aliases and the strings of Bowstring's types."""

from __future__ import annotations

import pyarrow as pa
import pytest

import bowstring as bs
from bowstring.datatypes.conversion import parse_alias
from bowstring.errors import InvalidArgumentError

PYARROW_ALIASES = """
null bool boolean i1 int8 i2 int16 i4 int32 i8 int64 u1 uint8 u2 uint16 u4 uint32 u8 uint64 f2 halffloat
float16 f4 float float32 f8 double float64 string str utf8 binary large_string large_str large_utf8 large_binary
binary_view string_view date32 date64 date32[day] date64[ms] time32[s] time32[ms] time64[us] time64[ns] timestamp[s]
timestamp[ms] timestamp[us] timestamp[ns] duration[s] duration[ms] duration[us] duration[ns] month_day_nano_interval"""


@pytest.mark.parametrize("name", PYARROW_ALIASES.split())
def test_pyarrow_s_aliases_name_the_same_types(name: str) -> None:
    assert parse_alias(name) == bs.field("", pa.type_for_alias(name)).type


@pytest.mark.parametrize(
    "type_",
    [
        bs.timestamp("us", "Europe/Paris"),
        bs.decimal32(5, 2),
        bs.decimal256(70, -3),
        bs.binary(7),
        bs.month_interval(),
        bs.day_time_interval(),
        bs.float16(),
        bs.uint64(),
        bs.time64("ns"),
    ],
    ids=str,
)
def test_the_string_of_a_type_is_its_name(type_: bs.DataType) -> None:
    assert parse_alias(str(type_)) == type_


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("int46", "did you mean 'int64'"),
        ("", "is not the name of a data type"),
        ("list<item: int8>", "without children"),
        ("decimal128(50, 2)", "precision of a decimal128"),
        ("timestamp[us, tz=]", "is not the name"),
        ("Int64\n", "is not the name"),
    ],
)
def test_other_names_are_rejected(name: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        parse_alias(name)

"""The columns of partition folders such as ``day=2024-01-02/hour=7``: their names, values and types, as Spark's.

Hive began with it: the folders of a table are named after the values of some columns, which are not in the files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import tzinfo
from decimal import Decimal, InvalidOperation
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Any

from bowstring.arrays.construction import array
from bowstring.datatypes import types as arrow
from bowstring.errors import InvalidDataError, TypeMismatchError
from bowstring.spark.time_texts import parse_timestamp
from bowstring.spark.types import SPARK_MAX_DIGITS, to_arrow_schema

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

NULL_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""The value of a folder whose rows have a null."""

_ESCAPED = re.compile("%([0-9A-Fa-f]{2})")
_INTEGER = re.compile("[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_DOUBLE = re.compile(rf"[\0- ]*([+-]?(NaN|Infinity)|{_DECIMAL.pattern}[fFdD]?)[\0- ]*")
_DATE = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")
# Spark infers timestamps by the pattern yyyy-MM-dd HH:mm:ss[.S], with one digit of the fraction.
_TIMESTAMP = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9])?")
_BITS = {"ByteType": 8, "ShortType": 16, "IntegerType": 32, "LongType": 64}
_LONG_DIGITS = 20
"""The digits that Spark gives a decimal that has to hold any long or int."""
_INTEGER_DIGITS = {"IntegerType": 10, "LongType": _LONG_DIGITS}

PartitionValue = tuple[str, str]
"""The name of a column, and its value as it is in the folder's name, escaped."""


def parse_partition_folder(name: str) -> PartitionValue | None:
    """Return the column and value of a folder's name; None if it does not contain an equals sign.

    Raises:
        InvalidDataError: the column or the value is empty.
    """
    column, sign, value = name.partition("=")
    if not sign:
        return None
    if not column or not value:
        raise InvalidDataError(f"partition folder {name!r}: expected column=value, found an empty column or value")
    return unescape(column), value


def unescape(text: str) -> str:
    """Replace each % with two hexadecimal digits by the character of this number."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)


def infer_partition_schema(
    partitions: Iterable[Sequence[PartitionValue]], zone: tzinfo, *, infers_types: bool
) -> StructType:
    """Return the columns of partition folders, with the types that Spark infers from the values; otherwise strings."""
    from pyspark.sql.types import StringType, StructField, StructType

    distinct = list(dict.fromkeys(map(tuple, partitions)))
    fields = []
    for index, (name, _) in enumerate(distinct[0] if distinct else ()):
        texts = dict.fromkeys(partition[index][1] for partition in distinct)
        types = [_infer_type(text, zone) for text in texts] if infers_types else [StringType()]
        fields.append(StructField(name, reduce(_merge_types, types)))
    return StructType(fields)


def parse_partition_value(text: str, data_type: DataType, zone: tzinfo) -> Any:
    """Return the Python value of a folder's value as a Spark type.

    Raises:
        InvalidDataError: it is not of that type.
    """
    kind = type(data_type).__name__
    if text == NULL_VALUE or kind == "NullType":  # inferred when there was no other value yet
        return None
    text = unescape(text)
    value: Any = None
    if kind == "StringType":
        value = text
    elif kind in _BITS:
        value = _parse_integer(text, kind)  # a cast takes 100 times as long, of which planning would take seconds
    elif kind in ("TimestampType", "TimestampNTZType", "DateType"):
        value = parse_timestamp(text, zone if kind == "TimestampType" else None)
        value = value.date() if kind == "DateType" and value is not None else value
    else:
        # As Java's parseDouble, which trims control characters, too, and allows a suffix. NaN and Infinity have none.
        number = (
            text.strip("".join(map(chr, range(33)))).rstrip("fFdD") if kind in ("FloatType", "DoubleType") else text
        )
        with suppress(TypeMismatchError, InvalidDataError):
            value = array([number]).cast(_to_arrow_type(data_type)).to_pylist()[0]
    if value is None:
        raise InvalidDataError(f"the value {text!r} of a partition is not {data_type.simpleString()}")
    return value


def _parse_integer(text: str, kind: str) -> int | None:
    """Return the integer of a text; None if it is none, or does not fit a type of Spark."""
    if not _INTEGER.fullmatch(text) or len(text) > _LONG_DIGITS:
        return None
    value, limit = int(text), 1 << _BITS[kind] - 1
    return value if -limit <= value < limit else None


@lru_cache(maxsize=256)
def _to_arrow_type(data_type: DataType) -> arrow.DataType:
    from pyspark.sql.types import StructField, StructType

    return to_arrow_schema(StructType([StructField("value", data_type)]))[0].type


def _infer_type(text: str, zone: tzinfo) -> Any:
    from pyspark.sql import types as spark

    if text == NULL_VALUE:
        return spark.NullType()
    for data_type in (spark.IntegerType(), spark.LongType()):
        if _parse_integer(text, type(data_type).__name__) is not None:
            return data_type
    if _DECIMAL.fullmatch(text):
        with suppress(InvalidOperation):  # an exponent that neither Python's decimals can have nor Java's
            digits = Decimal(text).as_tuple()
            exponent = int(digits.exponent)
            if exponent >= 0 and len(digits.digits) + exponent <= SPARK_MAX_DIGITS:
                return spark.DecimalType(len(digits.digits) + exponent, 0)
    if _DOUBLE.fullmatch(text):
        return spark.DoubleType()
    if _TIMESTAMP.fullmatch(unescape(text)) and parse_timestamp(unescape(text), zone):
        return spark.TimestampType()
    if _DATE.fullmatch(text) and parse_timestamp(text, zone):
        return spark.DateType()
    return spark.StringType()


def _merge_types(one: Any, other: Any) -> Any:
    """Return the type for values of two types, as Spark's `findWiderTypeForPartitionColumn`."""
    from pyspark.sql import types as spark

    if one == other or isinstance(other, spark.NullType):
        return one
    kinds = {type(one).__name__, type(other).__name__}
    if isinstance(one, spark.NullType):
        return other
    if kinds == {"IntegerType", "LongType"}:
        return spark.LongType()
    if kinds == {"IntegerType", "DoubleType"}:
        return spark.DoubleType()
    if kinds == {"DateType", "TimestampType"}:
        return spark.TimestampType()
    if "DecimalType" in kinds and kinds <= {"DecimalType", "IntegerType", "LongType"}:
        digits = [getattr(each, "precision", None) or _INTEGER_DIGITS[type(each).__name__] for each in (one, other)]
        return spark.DecimalType(max(digits), 0)
    return spark.StringType()

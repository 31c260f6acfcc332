"""The columns of partition folders such as ``day=2024-01-02/hour=7``: their names, values and types, as Spark's.

Hive began with it: the folders of a table are named after the values of some columns, which are not in the files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import tzinfo
from decimal import Decimal, InvalidOperation
from functools import reduce
from typing import TYPE_CHECKING, Any

from bowstring.errors import InvalidArgumentError, InvalidDataError
from bowstring.spark.time_texts import parse_timestamp
from bowstring.spark.types import SPARK_MAX_DIGITS

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
        InvalidArgumentError: a partition's column can't have the type.
    """
    if text == NULL_VALUE:
        return None
    kind = type(data_type).__name__
    parse = _PARSERS.get(kind)
    value: Any
    if kind in _BITS:
        value = int(text) if _INTEGER.fullmatch(text) else None
        value = None if value is None or not -(1 << _BITS[kind] - 1) <= value < 1 << _BITS[kind] - 1 else value
    elif kind in ("TimestampType", "TimestampNTZType", "DateType"):
        value = parse_timestamp(unescape(text), zone if kind == "TimestampType" else None)
        value = value.date() if kind == "DateType" and value is not None else value
    elif parse is None:
        raise InvalidArgumentError(f"the value {text!r} of a partition can't be read as {data_type.simpleString()}")
    else:
        value = parse(text, data_type)
    if value is None and kind != "NullType":
        raise InvalidDataError(f"the value {text!r} of a partition is not {data_type.simpleString()}")
    return value


def _parse_double(text: str, _: Any) -> float | None:
    if not _DOUBLE.fullmatch(text):
        return None
    # As Java's parseDouble, which trims control characters, too, and allows a suffix. NaN and Infinity have none.
    trimmed = text.strip("".join(map(chr, range(33))))
    return float(trimmed if trimmed[-1] in "Ny" else trimmed.rstrip("fFdD"))


def _parse_decimal(text: str, data_type: Any) -> Decimal | None:
    if not _DECIMAL.fullmatch(text):
        return None
    try:
        value = Decimal(text)
        scaled = value.scaleb(data_type.scale)
    except InvalidOperation:
        return None
    return value if scaled == scaled.to_integral_value() and scaled.adjusted() < data_type.precision else None


_PARSERS = {
    "NullType": lambda _text, _type: None,
    "StringType": lambda text, _: unescape(text),
    "BinaryType": lambda text, _: unescape(text).encode(),
    "BooleanType": lambda text, _: {"true": True, "false": False}.get(text.lower()),
    "FloatType": _parse_double,
    "DoubleType": _parse_double,
    "DecimalType": _parse_decimal,
}


def _infer_type(text: str, zone: tzinfo) -> Any:
    from pyspark.sql import types as spark

    if text == NULL_VALUE:
        return spark.NullType()
    if _INTEGER.fullmatch(text) and len(text) <= _LONG_DIGITS:
        for data_type in (spark.IntegerType(), spark.LongType()):
            if -(1 << _BITS[type(data_type).__name__] - 1) <= int(text) < 1 << _BITS[type(data_type).__name__] - 1:
                return data_type
    if _DECIMAL.fullmatch(text):
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

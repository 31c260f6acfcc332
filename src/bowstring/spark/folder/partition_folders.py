"""Write the folders of partitions, as Hive and Spark name them: ``day=2026-11-25/time=12%3A30`` and so on.

Some characters of names and values are escaped, and null and the empty string are `NULL_VALUE`. The files in such a
folder lack its columns, which `bowstring.spark.folder.partition_values` reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from bowstring.spark.folder.partition_values import NULL_VALUE

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_ESCAPED = re.compile(r"""[\x00-\x1f"#%'*/:=?\\\x7f{[\]^]""")
_SUPPORTED_TYPES = frozenset(
    (
        *("StringType", "BooleanType", "ByteType", "ShortType", "IntegerType", "LongType", "FloatType", "DoubleType"),
        *("DecimalType", "DateType", "TimestampType", "TimestampNTZType"),
    )
)


def is_partition_type(data_type: DataType) -> bool:
    """Whether the values of a Spark type can be in the names of folders."""
    return type(data_type).__name__ in _SUPPORTED_TYPES


def split_by_partition(
    batch: Any, partition_columns: Mapping[str, int], time_zone: str | None
) -> Iterator[tuple[str, Any]]:
    """Yield the folder and the rows of each partition of a pyarrow batch, without the columns of the partition.

    `partition_columns` has their names and indices. `time_zone` overrides the time zone of timestamp types.
    """
    codes, folders = np.zeros(batch.num_rows, np.int64), [""]
    for name, index in partition_columns.items():
        encoded = batch.column(index).dictionary_encode(null_encoding="encode")
        values = [_format_folder(name, value) for value in _to_texts(encoded.dictionary, time_zone)]
        # One code for each pair that occurs, numbered again for each column: at most as many as rows, so that products
        # do not exceed 64 bits, however many columns there are.
        pairs, codes = np.unique(
            codes * len(values) + encoded.indices.to_numpy(zero_copy_only=False), return_inverse=True
        )
        before, own = np.divmod(pairs, len(values))
        folders = [f"{folders[i]}/{values[j]}".lstrip("/") for i, j in zip(before.tolist(), own.tolist(), strict=True)]
    others = [index for index in range(batch.num_columns) if index not in partition_columns.values()]
    columns = batch.select(others)
    if len(folders) == 1:
        yield folders[0], columns
        return
    order = np.argsort(codes, kind="stable")  # the rows of a partition keep their order
    rows, bounds = columns.take(order), np.searchsorted(codes[order], np.arange(len(folders) + 1))
    for folder, start, stop in zip(folders, bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        yield folder, rows.slice(start, stop - start)


def _format_folder(name: str, text: str | None) -> str:
    return f"{escape_name(name)}={escape_name(text) if text else NULL_VALUE}"


def escape_name(text: str) -> str:
    """Escape the characters that Hive escapes in the names of folders, and U+0000, which no file system stores: Spark
    reads any escaped character.
    """
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)


def _to_texts(values: Any, time_zone: str | None) -> list[str | None]:
    """Return values as Spark casts them to strings; timestamps in `time_zone` or the zone of their type."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = values.type
    if pa.types.is_timestamp(kind):
        if kind.tz is not None:
            values = pc.local_timestamp(values.cast(pa.timestamp(kind.unit, time_zone or kind.tz)))
        return [None if text is None else _shorten_fraction(text) for text in values.cast(pa.string()).to_pylist()]
    if pa.types.is_floating(kind):
        digits = np.float32 if pa.types.is_float32(kind) else np.float64
        return [None if value is None else _format_double(digits(value)) for value in values.to_pylist()]
    if pa.types.is_decimal(kind):
        return [None if value is None else _format_decimal(value) for value in values.to_pylist()]
    return list(values.cast(pa.string()).to_pylist())


def _shorten_fraction(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def _format_decimal(value: Decimal) -> str:
    return str(value) if value.adjusted() < -6 else f"{value:f}"


def _format_double(value: np.floating[Any]) -> str:
    """Return a number as Java's ``Double.toString``, with the fewest digits."""
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return np.format_float_positional(value, unique=True, trim="0")
    mantissa, exponent = np.format_float_scientific(value, unique=True, trim="0").split("e")
    return f"{mantissa}E{int(exponent)}"

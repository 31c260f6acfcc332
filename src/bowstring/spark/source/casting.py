"""Cast batches of files to the types of Spark's schema.

pyarrow, which PySpark requires, casts offsets, integers and units of time, and selects fields of structs. Before that,
Bowstring decodes what pyarrow can't cast, or casts wrongly, such as list views and unions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from bowstring.arrays.record_batch import import_batch
from bowstring.datatypes import types as arrow
from bowstring.datatypes.canonical.bool8 import Bool8Type
from bowstring.datatypes.extension import ExtensionType
from bowstring.datatypes.field import Field
from bowstring.datatypes.nullability import as_nullable
from bowstring.datatypes.schema import Schema
from bowstring.errors import InvalidDataError, TypeMismatchError, UnsupportedTypeError
from bowstring.kernels.cast_temporal import INTERVAL_FIELDS
from bowstring.spark.types import TIME_PRECISION_KEY, map_child_fields, to_arrow_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from bowstring.arrays.array import Array

_NO_CONSTANTS: Mapping[str, Any] = MappingProxyType({})
_TIME_UNITS: tuple[Literal["s", "ms", "us", "ns"], ...] = ("s", "ms", "us", "ns")
"""The units of 0, 3, 6 and 9 digits."""


def cast_batch(
    batch: Any,
    spark_schema: StructType,
    location: str,
    *,
    constants: Mapping[str, Any] = _NO_CONSTANTS,
    truncate_times: bool,
) -> Any:
    """Return `batch` with the columns of `spark_schema`, as the pyarrow types that Spark takes for them. Columns of
    equal types are not copied.

    Columns that `batch` lacks have the value of `constants`, or are null. `truncate_times` allows units of time to
    lose digits.

    Raises:
        InvalidDataError: a value does not fit Spark's type; the message begins with `location` and the column.
        UnsupportedTypeError: the column's type can't be cast to Spark's.
    """
    import pyarrow as pa

    fields = (field.with_type(decode_type(field.type)) for field in to_arrow_schema(spark_schema))  # of variants
    schema = Schema(tuple(fields))
    # pyarrow does not cast nulls to fields that are not nullable, even if they are under the null of a parent.
    nullable_schema = as_nullable(schema)
    checked_schema = pa.schema(Schema(tuple(map(_with_checked_times, nullable_schema))))
    arrays: Sequence[Array] = ()
    columns = []
    for target, checked in zip(pa.schema(nullable_schema), checked_schema, strict=True):
        index = batch.schema.get_field_index(target.name)
        if index < 0:
            value, length = constants.get(target.name), batch.num_rows
            columns.append(
                pa.nulls(length, target.type) if value is None else pa.repeat(pa.scalar(value, target.type), length)
            )
        elif batch.schema.field(index).type == checked.type == target.type:
            columns.append(batch.column(index))
        else:
            arrays = arrays or import_batch(batch).columns  # pyarrow has no arrays of some types
            with _explain_failed_cast(
                f"{location}, column {target.name}", batch.schema.field(index).type, checked.type
            ):
                columns.append(_cast_column(arrays[index], checked.type, target.type, truncate_times))
    if not columns:
        return batch.select([])  # which has the number of rows
    nullable_batch = pa.record_batch(columns, schema=pa.schema(nullable_schema))
    if schema == nullable_schema:
        return nullable_batch
    try:
        return pa.record_batch(import_batch(nullable_batch).cast(schema))
    except TypeMismatchError as error:  # nulls
        raise InvalidDataError(f"{location}, {error}") from None


@contextmanager
def _explain_failed_cast(location: str, source: Any, target: Any) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except pa.ArrowNotImplementedError as problem:
        raise UnsupportedTypeError(f"{location}: {source} cannot be read as {target}: {problem}") from problem
    except pa.ArrowException as problem:
        raise InvalidDataError(f"{location}: a value of {source} does not fit {target}: {problem}") from problem


def _cast_column(array: Array, checked_type: Any, data_type: Any, truncate_times: bool) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    column = pa.array(array.cast(decode_type(array.type)))
    for step in (checked_type, data_type):  # first to the precision of a time, which is checked, then to nanoseconds
        if column.type != step:
            column = pc.cast(column, options=pc.CastOptions(target_type=step, allow_time_truncate=truncate_times))
    return column


def decode_type(data_type: arrow.DataType) -> arrow.DataType:
    """Return a type that pyarrow casts for any other: without extensions, dictionaries, runs, list views, unions and
    calendar intervals at every depth.
    """
    match data_type:
        case Bool8Type():
            return arrow.Bool()
        case ExtensionType():
            return decode_type(data_type.storage_type)
        case arrow.Dictionary() | arrow.RunEndEncoded():
            return decode_type(data_type.value_type)
        case arrow.ListView():
            data_type = arrow.List(data_type.value_field)
        case arrow.LargeListView():
            data_type = arrow.LargeList(data_type.value_field)
        case arrow.Interval():
            return arrow.Int(32) if data_type.unit == "year_month" else INTERVAL_FIELDS
        case arrow.Union():
            data_type = arrow.Struct(tuple(child.with_nullable(True) for child in data_type.children))
    return map_child_fields(data_type, lambda field: field.with_type(decode_type(field.type)))


def _with_checked_times(field: Field) -> Field:
    """Return a field with times of day in the unit of their precision, which a cast checks.

    Spark takes all times of day in nanoseconds.
    """
    digits = field.metadata.get(TIME_PRECISION_KEY)
    if digits is not None:
        return field.with_type(arrow.Time(_TIME_UNITS[-(-int(digits) // 3)]))
    return field.with_type(map_child_fields(field.type, _with_checked_times))

"""Merge the schemas of several files, and check whether their columns can be read as the requested types.

All checks need only schemas, and run when Spark plans a query. A conversion is allowed if it preserves every value, or
if the cast checks each value (`bowstring.spark.source.casting`). For all others, users cast in Spark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bowstring.datatypes import types as arrow
from bowstring.errors import InvalidArgumentError, NotFoundError, UnsupportedTypeError
from bowstring.io.store_path import FolderPath
from bowstring.spark.intervals import split_intervals, to_interval_parts
from bowstring.spark.types import UnsupportedType, iter_children, to_stored_type

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_INTEGER_DIGITS = {"ByteType": 3, "ShortType": 5, "IntegerType": 10, "LongType": 19}
_INTEGER_TYPES = frozenset(_INTEGER_DIGITS)
_CONVERSIONS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(_INTEGER_TYPES, _INTEGER_TYPES | {"FloatType", "DoubleType", "DecimalType"}),
    "FloatType": _INTEGER_TYPES | {"DoubleType"},
    "DoubleType": _INTEGER_TYPES,
    "DecimalType": _INTEGER_TYPES,
    "DateType": frozenset(("TimestampNTZType",)),
    "StringType": frozenset(("BinaryType",)),
    "BinaryType": frozenset(("StringType",)),
    "YearMonthIntervalType": frozenset(("IntegerType",)),
}
"""The other Spark types that each type can be read as; null can be read as any."""


def merge_schemas(schemas: Iterable[tuple[FolderPath, StructType]]) -> StructType:
    """Return all columns of several files, in the order of their first occurrence.

    Raises:
        InvalidArgumentError: two files have a column of the same name with different types.
    """
    from pyspark.sql.types import StructType

    columns: dict[str, tuple[FolderPath, Any]] = {}
    for path, schema in schemas:
        check_unique_column_names(path, schema, schema.names)
        check_read_conversions(path, schema, split_intervals(schema))  # of structs with duplicate names of fields
        for field in schema.fields:
            first_path, first = columns.setdefault(field.name, (path, field))
            if not _is_same_type(first.dataType, field.dataType):
                raise InvalidArgumentError(
                    f"{path}: column {field.name} is {field.dataType.simpleString()}, but "
                    f"{first.dataType.simpleString()} in {first_path}: mergeSchema needs equal types; "
                    f"choose one with .schema()"
                )
    return StructType([field for _, field in columns.values()])


def select_columns(schema: StructType, paths: Sequence[str]) -> StructType:
    """Return the fields of a schema at these column paths, in their order; fields of a struct, as "a.b", are joined.

    Raises:
        NotFoundError: there is no such column or field.
        InvalidArgumentError: a column is named twice.
    """
    from pyspark.sql.types import StructField, StructType

    inner_paths: dict[str, list[str] | None] = {}
    for path in paths:
        name, _, rest = (path, "", "") if path in schema.names else path.partition(".")
        if name not in schema.names:
            raise create_missing_error("option columns", [name], schema.names)
        others = inner_paths.setdefault(name, [] if rest else None)
        if (others is None) != (not rest) or (others is None and list(paths).count(path) > 1):
            raise InvalidArgumentError(f"option columns: {name!r} is named twice")
        if others is not None:
            others.append(rest)
    fields = []
    for name, inner in inner_paths.items():
        field = schema[name]
        data_type = field.dataType
        if inner is not None:
            if not isinstance(data_type, StructType):
                raise NotFoundError(f"option columns: {name!r} is {data_type.simpleString()}, which has no fields")
            data_type = select_columns(data_type, inner)
        fields.append(StructField(name, data_type, field.nullable, field.metadata))
    return StructType(fields)


def add_columns(schema: StructType, others: StructType, names: Iterable[str]) -> StructType:
    """Return a schema with the columns among `names` that it lacks and `others` has."""
    from pyspark.sql.types import StructType

    missing = [name for name in dict.fromkeys(names) if name not in schema.names and name in others.names]
    return StructType([*schema.fields, *(others[name] for name in missing)])


def add_partition_columns(schema: StructType, partition_schema: StructType) -> StructType:
    """Return the columns of files and partition folders: the latter are last, or replace those with the same names."""
    from pyspark.sql.types import StructType

    partition_fields = {field.name.lower(): field for field in partition_schema.fields}
    fields = [partition_fields.pop(field.name.lower(), field) for field in schema.fields]
    return StructType([*fields, *partition_fields.values()])


def check_unique_column_names(path: FolderPath | str, schema: StructType, names: Iterable[str]) -> None:
    """Raise `InvalidArgumentError` if one of `names` is the name of several columns of the file at `path`."""
    counts = Counter(schema.names)
    repeated = sorted({name for name in names if counts[name] > 1})
    if repeated:
        raise InvalidArgumentError(
            f"{path}: several columns are called {', '.join(map(repr, repeated))}: name others with .schema()"
        )


def check_same_types(path: FolderPath, schema: StructType, inferred: StructType) -> None:
    """Raise `InvalidArgumentError` if a column of the file at `path` has another type than in the first file."""
    types = {field.name: field.dataType for field in inferred.fields}
    for field in schema.fields:
        if field.name in types and not _is_same_type(to_interval_parts(field.dataType), types[field.name]):
            raise InvalidArgumentError(
                f"{path}: column {field.name} is {field.dataType.simpleString()}, but "
                f"{types[field.name].simpleString()} in the first file: choose one with .schema()"
            )


def find_missing_columns(path: FolderPath | str, schema: StructType, requested: StructType) -> tuple[str, ...]:
    """Return the names of `requested` columns that the file at `path` lacks.

    Raises:
        NotFoundError: the name of one differs only in case from another's.
    """
    names = frozenset(schema.names)
    missing = tuple(name for name in requested.names if name not in names)
    lower = {name.lower() for name in names}
    differing = [name for name in missing if name.lower() in lower]
    if differing:
        raise create_missing_error(path, differing, schema.names)
    return missing


def create_missing_error(
    location: FolderPath | str, missing: Iterable[str], names: Iterable[str], kind: str = "column"
) -> NotFoundError:
    """Return the error for columns that are not among `names`."""
    texts = [", ".join(map(repr, each)) for each in (missing, names)]
    return NotFoundError(f"{location}: no {kind} is called {texts[0]}; there are {texts[1]}")


def check_read_conversions(path: FolderPath | str, schema: StructType, requested: StructType) -> None:
    """Raise `UnsupportedTypeError` if a column of the file at `path` can't be read as the type in `requested`.

    A struct field that the file lacks is a `NotFoundError`.
    """
    types = {field.name: field.dataType for field in schema.fields}
    for field in requested.fields:
        if field.name in types:
            _check_type_conversion(types[field.name], field.dataType, f"{path}: column {field.name}")


def _check_type_conversion(source: Any, target: Any, location: str) -> None:
    source, target = to_stored_type(source), to_stored_type(target)
    if to_interval_parts(target) != target:
        raise UnsupportedTypeError(
            f"{location}: PySpark does not take {target.simpleString()} from Python data sources: read it without "
            f".schema(), or as {to_interval_parts(target).simpleString()}"
        )
    if type(source).__name__ == "CalendarIntervalType" and type(target).__name__ == "StructType":
        source = to_interval_parts(source)
    kind = type(source).__name__
    if isinstance(source, UnsupportedType):
        if type(source.arrow_type) is not arrow.Decimal or type(target).__name__ != "DecimalType":
            raise source.to_error(location)
    elif kind == type(target).__name__:
        if kind == "StructType":
            _check_struct_fields(source, target, location)
            return
        for (child, child_location), (target_child, _) in zip(
            iter_children(source, location), iter_children(target), strict=True
        ):
            _check_type_conversion(child, target_child, child_location)
        if not _is_as_precise(target, source):
            raise _conversion_error(source, target, location)
    elif kind != "NullType" and not _is_convertible(source, target):
        raise _conversion_error(source, target, location)


def _check_struct_fields(source: Any, target: Any, location: str) -> None:
    types = {field.name: field.dataType for field in source.fields}
    counts = Counter(source.names)
    for field in target.fields:
        if counts[field.name] > 1:
            raise InvalidArgumentError(f"{location}: several fields are called {field.name!r}")
        if field.name not in types:
            raise create_missing_error(location, [field.name], types, "field")
        _check_type_conversion(types[field.name], field.dataType, f"{location}.{field.name}")


def _is_as_precise(target: Any, source: Any) -> bool:
    """Whether `target` has the precision of `source`, a type of the same class."""
    if hasattr(target, "precision") and not hasattr(target, "scale"):  # a time of day; decimals are cast by value
        # The cast checks values in units of 3 digits (`bowstring.spark.source.casting`).
        return bool(target.precision >= source.precision or target.precision % 3 == 0)
    if hasattr(target, "startField"):
        return bool(target.startField <= source.startField and target.endField >= source.endField)
    return True


def _is_convertible(source: Any, target: Any) -> bool:
    kind = type(source).__name__
    if type(target).__name__ not in _CONVERSIONS.get(kind, ()):
        return False
    return not hasattr(target, "scale") or bool(target.precision - target.scale >= _INTEGER_DIGITS[kind])


def _conversion_error(source: Any, target: Any, location: str) -> UnsupportedTypeError:
    return UnsupportedTypeError(
        f"{location}: {source.simpleString()} can't be read as {target.simpleString()}: "
        f"read it as {source.simpleString()} and cast it in Spark"
    )


def _is_same_type(one: Any, other: Any) -> bool:
    return bool(one.simpleString() == other.simpleString())

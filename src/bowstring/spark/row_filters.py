"""The options `columns` and `filters` of ``format("arrow")``, which read some columns and rows.

They are options because Spark passes no columns to a Python source, and filters only in a way that loses rows: the
partitions that a reader returns after `pushFilters` are used for all later scans of the same data frame or view, also
of scans with other filters or none (Spark 4.3, `PythonDataSourceV2.setReadInfo`).

Filters are as in `bowstring.kernels.filters`, as the text of a Python literal, since options are text. Strings are
parsed for columns of numbers, booleans and times.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from bowstring.arrays.construction import array
from bowstring.arrays.record_batch import import_batch
from bowstring.datatypes import types as arrow
from bowstring.datatypes.extension import ExtensionType
from bowstring.datatypes.schema import Schema
from bowstring.errors import InvalidArgumentError, NotFoundError, TypeMismatchError, add_location
from bowstring.ipc.file import FileReader
from bowstring.kernels.array_statistics import get_decoded_type
from bowstring.kernels.filters import Filters, Predicate, parse_filters
from bowstring.memory.bitmap import Mask
from bowstring.spark.types import to_arrow_schema, to_spark_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

Condition: TypeAlias = tuple[Any, ...]
_PARSED_TYPES = (arrow.Bool, arrow.Int, arrow.FloatingPoint, arrow.Decimal, arrow.BaseTemporal)


@dataclass(frozen=True, slots=True)
class RowFilters:
    """Rows match if all conditions of one of the `conjunctions` are true; all rows do if there are none.

    The conditions are for columns of `schema`, after its conversions.
    """

    schema: StructType
    conjunctions: tuple[tuple[Condition, ...], ...] = ()
    truncate_times: bool = False
    """Whether times finer than microseconds are truncated, so that others match."""

    @classmethod
    def parse(cls, text: str, schema: StructType, *, truncate_times: bool = False) -> RowFilters:
        """Parse the option `filters`; the empty text has no filters.

        Raises `InvalidArgumentError` for malformed filters, and as `bowstring.kernels.filters.parse_filters`.
        """
        if not text:
            return cls(schema, (), truncate_times)
        arrow_schema, literals = to_arrow_schema(schema), parse_conjunctions(text)
        try:
            conjunctions = tuple(tuple(_parse_value(each, arrow_schema) for each in literal) for literal in literals)
            parse_filters(conjunctions, arrow_schema)
        except InvalidArgumentError as error:
            raise add_location(error, "option filters") from None
        return cls(schema, conjunctions, truncate_times)

    def find_batches(self, reader: FileReader, column_names: Collection[str]) -> Mask | None:
        """Return which record batches of a file may have matching rows, by its statistics of the columns that are read
        from it; None for all.
        """
        schema = reader.ipc_schema.schema
        predicates = tuple(
            tuple(
                predicate
                for condition in conjunction
                if condition[0] in column_names and (predicate := self._find_predicate(condition, schema))
            )
            for conjunction in self.conjunctions
        )
        if not predicates or not all(predicates):
            return None
        filters = Filters(predicates)
        statistics = reader.read_statistics(filters.column_indices)
        return None if statistics is None else statistics.may_match(filters)

    def _find_predicate(self, condition: Condition, schema: Schema) -> Predicate | None:
        """Return a condition for the stored values of a file, which its statistics describe; None if there is none."""
        if not self._is_read_unchanged(schema, condition[0]):
            return None
        try:
            ((predicate,),) = parse_filters([condition], schema).conjunctions
        except TypeMismatchError:  # a value that the file's type can't have, such as a longer one
            return None
        return predicate

    def _is_read_unchanged(self, schema: Schema, name: str) -> bool:
        """Whether values of a file's column compare like values of `self.schema`."""
        try:
            field = schema.field(name)
            file_type = to_spark_schema(Schema((field,)))[0].dataType.simpleString()
        except NotFoundError:
            return False
        is_truncated = self.truncate_times and isinstance(get_decoded_type(field.type), arrow.BaseTemporal)
        is_same_type = file_type == self.schema[name].dataType.simpleString()
        return is_same_type and not is_truncated and not isinstance(field.type, ExtensionType)

    def may_match_values(self, values: Mapping[str, Any]) -> bool:
        """Whether rows with these values of some columns, for example from a partition folder, may match."""
        import pyarrow as pa

        schema = Schema(tuple(field for field in to_arrow_schema(self.schema) if field.name in values))
        # By pyarrow, as the rows': a time of the first or last day may be in the year 0 or 10000 in UTC.
        columns = [array(pa.array([values[field.name]], field.type)) for field in pa.schema(schema)]
        return not self.conjunctions or any(
            all(
                condition[0] not in values or parse_filters([condition], schema).evaluate(columns)[0]
                for condition in conjunction
            )
            for conjunction in self.conjunctions
        )

    def select_rows(self, batch: Any, column_names: list[str]) -> Any:
        """Return some columns of the rows of a pyarrow batch with Spark's types that match."""
        import pyarrow as pa

        if self.conjunctions:
            columns = import_batch(batch)
            mask = parse_filters(self.conjunctions, columns.schema).evaluate(columns.lazy_columns)
            batch = batch if mask.all() else batch.filter(pa.array(mask))
        return batch.select(column_names)


def parse_conjunctions(text: str) -> Sequence[Sequence[Condition]]:
    """Parse the text of filters into a list of lists of tuples. Raises `InvalidArgumentError`."""
    try:
        value = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise InvalidArgumentError(
            f'option filters: expected a Python literal such as [("id", "<", 5)], found {text:.200}; write times as '
            'text, such as "2020-01-31 12:00:00"'
        ) from None
    is_disjunction = isinstance(value, list | tuple) and len(value) > 0 and isinstance(value[0], list)
    conjunctions = value if is_disjunction else [value]
    for conjunction in conjunctions:
        is_list = isinstance(conjunction, list | tuple) and len(conjunction) > 0
        if not is_list or not all(isinstance(each, tuple) for each in conjunction):
            raise InvalidArgumentError(f"option filters: expected lists of tuples, found {text:.200}")
    return conjunctions


def find_column_names(text: str) -> list[str]:
    """Return the names of the columns in the text of filters. Raises `InvalidArgumentError`."""
    return [condition[0] for conjunction in parse_conjunctions(text) for condition in conjunction if condition]


def _parse_value(condition: Condition, schema: Schema) -> Condition:
    """Return a condition with strings parsed as values of the column's type."""
    if len(condition) != 3 or condition[0] not in schema.names:
        return condition
    name, symbol, value = condition
    type_ = schema.field(name).type
    if not isinstance(type_, _PARSED_TYPES):
        return condition
    values = list(value) if isinstance(value, list | tuple | set) else [value]
    try:
        values = [array([each]).cast(type_).to_pylist()[0] if isinstance(each, str) else each for each in values]
    except TypeMismatchError as error:
        raise TypeMismatchError(f"filter {condition!r:.200}: {error}") from None
    return name, symbol, values if isinstance(value, list | tuple | set) else values[0]

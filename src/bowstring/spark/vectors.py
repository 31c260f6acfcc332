"""Columns of ML vectors and matrices, which Spark stores as structs, as lists of their values.

Tasks convert the Arrow batches that they get, so that it works alike in all versions, and over Spark Connect. Spark's
own `vector_to_array` takes a pass over the rows in the JVM, fails for null, and has no counterpart for matrices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Literal, get_args

from pyspark.sql import types as spark

from bowstring.arrays.array import Array
from bowstring.arrays.record_batch import import_batch
from bowstring.datatypes.schema import Schema
from bowstring.errors import InvalidArgumentError, prefix_errors
from bowstring.kernels.ml_vectors import count_values, to_sparse
from bowstring.spark.types import TRUSTED_USER_DEFINED_TYPES, map_children

VectorForm = Literal["float64", "float32", "sparse", "struct"]
_VALUE_BYTES = 8
# As Spark limits the bytes of its batches, whose sparse vectors may take a thousandth of their values.
_MAX_BATCH_BYTES = 64 << 20


def check_vector_form(form: str) -> None:
    """Raise `InvalidArgumentError` for a form of vectors that does not exist."""
    if form not in get_args(VectorForm):
        raise InvalidArgumentError(f"vectors: expected one of {', '.join(get_args(VectorForm))}, found {form!r}")


@dataclass(frozen=True, slots=True)
class VectorConversion:
    """How the batches of a frame are converted. Without its schema, whose classes a task may not have."""

    list_columns: tuple[int, ...] = ()
    """The columns with vectors or matrices that become lists."""
    sparse_columns: tuple[int, ...] = ()
    """The columns of vectors that become sparse."""

    @classmethod
    def plan(cls, schema: spark.StructType, form: VectorForm) -> tuple[VectorConversion, spark.StructType]:
        """Return the conversion of a frame: vectors to lists of float64 or float32, or "sparse"; none for "struct". And
        the schema of the frame afterwards.

        Matrices become lists of rows, unless `form` is "struct". In arrays, maps and structs, no vectors become sparse.
        """
        if form == "struct":
            return cls(), schema
        converted = map_children(schema, partial(_replace_vectors, form))
        assert isinstance(converted, spark.StructType)
        columns = list(enumerate(zip(schema.fields, converted.fields, strict=True)))
        conversion = cls(
            tuple(index for index, (old, new) in columns if old.dataType != new.dataType),
            tuple(index for index, (_, new) in columns if find_ml_type(new.dataType) == "VectorUDT"),
        )
        return conversion, converted

    def convert(self, batches: Iterator[Any], schema: Schema) -> Iterator[Any]:
        """Convert pyarrow batches, to batches whose converted columns have the types of `schema`; runs in a task.

        Raises `InvalidDataError` and `TypeMismatchError`, with the column, for malformed vectors.
        """
        if not (self.list_columns or self.sparse_columns):
            return batches
        return chain.from_iterable(self._convert_batch(batch, schema) for batch in batches)

    def _convert_batch(self, batch: Any, schema: Schema) -> Iterator[Any]:
        """Yield the rows of a batch, in several if the zeros of sparse vectors take too many bytes."""
        import pyarrow as pa

        arrays = import_batch(batch)
        num_bytes = sum(_VALUE_BYTES * count_values(arrays.column(index)) for index in self.list_columns)
        if num_bytes > _MAX_BATCH_BYTES and batch.num_rows > 1:
            middle = batch.num_rows // 2
            for half in (batch.slice(0, middle), batch.slice(middle)):
                yield from self._convert_batch(half, schema)
            return
        # Not by all columns: pyarrow has no class for some types, such as intervals of months.
        for index in (*self.list_columns, *self.sparse_columns):
            field, array = schema.fields[index], arrays.column(index)
            with prefix_errors(f"column {field.name}"):
                is_list = index in self.list_columns
                array = array.cast(field.type, safe=False) if is_list else Array.from_array_data(to_sparse(array))
            batch = batch.set_column(index, batch.schema.names[index], pa.array(array))
        yield batch


def _replace_vectors(form: VectorForm, data_type: spark.DataType) -> spark.DataType:
    """Return Spark's type with arrays for the vectors and matrices in it."""
    values = spark.ArrayType(spark.FloatType() if form == "float32" else spark.DoubleType(), containsNull=False)
    match find_ml_type(data_type):
        case "VectorUDT":
            return data_type if form == "sparse" else values
        case "MatrixUDT":
            return spark.ArrayType(values, containsNull=False)
    return map_children(data_type, partial(_replace_vectors, form))


def find_ml_type(data_type: spark.DataType) -> str | None:
    """Return "VectorUDT" or "MatrixUDT" for PySpark's classes of these names, which need not be imported for that."""
    kind = type(data_type)
    return kind.__name__ if f"{kind.__module__}.{kind.__qualname__}" in TRUSTED_USER_DEFINED_TYPES else None

"""Tables: record batches of one schema. Readers: record batches of one schema that are read once, in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import Any, Literal

import numpy as np

from bowstring.arrays.array import Array, as_arrays
from bowstring.arrays.chunked_array import ChunkedArray, as_chunked_array, combine_if_chunked
from bowstring.arrays.column_container import ColumnContainer
from bowstring.arrays.preview import describe_shape, preview_as_text
from bowstring.arrays.record_batch import (
    RecordBatch,
    TableLike,
    adapt_columns,
    as_batch,
    build_columns_and_schema,
    check_is_schema,
    check_names_fit,
    convert_columns,
    filter_batches,
    import_batch,
    import_stream,
    is_sequence_of_rows,
    resolve_cast_schema,
    rows_to_batch,
    separate_names_and_schema,
)
from bowstring.datatypes.field import MetadataLike
from bowstring.datatypes.schema import Schema, SchemaLike, as_schema, unify_schemas
from bowstring.datatypes.types import Struct
from bowstring.display.objects import source_to_html
from bowstring.errors import (
    ClosedError,
    InvalidArgumentError,
    TypeMismatchError,
    check_count,
    format_count,
    prefix_errors,
)
from bowstring.interop import c_data
from bowstring.interop.c_array import ColumnarBatch
from bowstring.interop.pandas import is_pandas_object
from bowstring.interop.pyarrow_arrays import find_expression, import_pyarrow
from bowstring.kernels.filter import MaskLike, NullSelection, mask_to_indices, mask_to_nullable_indices
from bowstring.kernels.filters import FiltersLike, is_filters, parse_filters
from bowstring.kernels.unify_dictionaries import has_dictionary, unify_dictionaries
from bowstring.layouts.base import Indices, check_expanded_containers
from bowstring.layouts.indexing import chunk_starts, clip_slice, resolve_chunks, split_slice_by_chunk
from bowstring.layouts.registry import layout_of
from bowstring.memory.closable import Closable
from bowstring.pyarrow_names import explain_missing_attributes


@explain_missing_attributes
class Table(ColumnContainer[ChunkedArray]):
    """Record batches of one schema; immutable. A column is a `ChunkedArray` with one chunk for each batch.

    >>> table = bs.table({"city": ["Riga", "Lima", None], "people": [605_273, 10_092_000, 7]})
    >>> table.sort_by([("people", "descending")])
    <bowstring.Table 3 rows × 2 columns in 1 batch>
    ┌────────┬──────────┐
    │ city   ┆   people │
    │ string ┆    int64 │
    ╞════════╪══════════╡
    │ "Lima" ┆ 10092000 │
    │ "Riga" ┆   605273 │
    │ null   ┆        7 │
    └────────┴──────────┘
    >>> table.select(["people"]).slice(1)["people"].to_pylist()
    [10092000, 7]
    """

    __slots__ = ("_batches", "_columns", "_starts", "num_rows", "schema")

    schema: Schema

    def __init__(self, schema: Schema, batches: Iterable[RecordBatch] = ()) -> None:
        check_is_schema(schema, "bowstring.table")
        self.schema = schema
        self._batches = batches = list(batches)
        for batch_index, batch in enumerate(batches):
            if not isinstance(batch, RecordBatch):
                raise TypeMismatchError(f"batch {batch_index}: expected a RecordBatch, found {type(batch).__name__}")
            if batch.schema is not schema and batch.schema != schema:
                raise InvalidArgumentError(f"batch {batch_index} has another schema: {batch.schema!r}, not {schema!r}")
        self._starts = chunk_starts([batch.num_rows for batch in batches])
        self.num_rows = self._starts[-1]
        self._columns: dict[int, ChunkedArray] = {}

    @classmethod
    def from_batches(cls, batches: Iterable[RecordBatch], schema: SchemaLike | None = None) -> Table:
        """Create a table of batches with the same schema (default: the schema of the first); nothing is copied.

        Batches of other libraries are imported (PyCapsule interface).

        >>> batch = bs.record_batch({"n": [1, 2]})
        >>> bs.Table.from_batches([batch, batch.slice(1)])["n"].to_pylist()
        [1, 2, 2]
        """
        if isinstance(batches, ColumnContainer):
            raise InvalidArgumentError("expected a sequence of batches, found one: write [batch]")
        batches = [as_batch(batch) for batch in batches]
        schema = None if schema is None else as_schema(schema)
        if schema is None:
            if not batches:
                raise InvalidArgumentError("a table of no batches needs a schema")
            schema = batches[0].schema
        return cls(schema, batches)

    @classmethod
    def from_arrays(
        cls,
        arrays: Sequence[Any],
        names: Sequence[str] | None = None,
        schema: SchemaLike | None = None,
        metadata: MetadataLike = None,
    ) -> Table:
        """Create a table of columns with names or a schema, as `RecordBatch.from_arrays`.

        Each chunk boundary of a column starts a new batch.

        >>> bs.Table.from_arrays([bs.array([1, 2]), bs.array(["a", None])], names=["n", "s"]).to_pydict()
        {'n': [1, 2], 's': ['a', None]}
        """
        converted, table_schema = convert_columns(arrays, schema, names, metadata)
        columns = list(map(as_chunked_array, converted))
        edges = np.unique(np.concatenate([column._starts for column in columns])).tolist() if columns else [0]
        spans = list(pairwise(edges))
        if not spans and columns and all(column.chunks for column in columns):
            spans = [(0, 0)]  # no rows, but maybe dictionaries
        arrays_by_batch = [[column._slice_within_chunk(*span) for column in columns] for span in spans]
        return cls(table_schema, [RecordBatch(table_schema, len(arrays[0]), arrays) for arrays in arrays_by_batch])

    @classmethod
    def _from_columns_or_rows(cls, data: Any, schema: SchemaLike | None, metadata: MetadataLike) -> Table:
        return table(data, schema=schema, metadata=metadata)

    @classmethod
    def _from_columnar_batches(cls, schema: Schema, batches: Sequence[ColumnarBatch]) -> Table:
        return cls(schema, [RecordBatch(schema, batch.num_rows, as_arrays(batch.columns)) for batch in batches])

    @classmethod
    def from_struct_array(cls, struct_array: Array | ChunkedArray) -> Table:
        """Create a table of the fields of an array of structs; a null struct becomes nulls in all columns.

        >>> bs.Table.from_struct_array(bs.array([{"n": 1}, {"n": 2}])).to_pydict()
        {'n': [1, 2]}
        """
        structs = as_chunked_array(struct_array)
        if not isinstance(structs.type, Struct):
            raise TypeMismatchError(f"expected an array of structs, found {structs.type}")
        batches = [RecordBatch.from_struct_array(chunk) for chunk in structs.chunks]
        return cls(Schema(tuple(structs.type.fields)), batches)

    def to_struct_array(self) -> ChunkedArray:
        """Return the rows as an array of structs without nulls, of one chunk for each batch; nothing is copied.

        >>> bs.table({"n": [1, 2]}).to_struct_array().to_pylist()
        [{'n': 1}, {'n': 2}]
        """
        chunks = [batch.to_struct_array() for batch in self._batches]
        return ChunkedArray(chunks, Struct(self.schema.fields))

    @property
    def columns(self) -> list[ChunkedArray]:
        return [self.column(index) for index in range(len(self.schema))]

    @property
    def nbytes(self) -> int:
        return sum(batch.nbytes for batch in self._batches)

    def column(self, key: int | str) -> ChunkedArray:
        """Return a column by index or name. Raises `NotFoundError`.

        Its chunks are created on first use; chunks of a remote file at once, because the file may be closed before.

        >>> bs.table({"n": [1, None]}).column("n")
        <bowstring.ChunkedArray int64[2] in 1 chunk>
        [1, null]
        """
        index = self.schema.index(key)
        column = self._columns.get(index)
        if column is None:
            batches, field = self._batches, self.schema.field(index)
            column = ChunkedArray.from_lazy_chunks(
                lambda batch_index: batches[batch_index].lazy_columns[index], self._starts, field.type, field.name
            )
            if batches and not getattr(batches[0].lazy_columns, "is_local", True):
                _ = column.chunks
            column = self._columns.setdefault(index, column)  # another thread may have been first
        return column

    def to_batches(self, max_chunksize: int | None = None) -> list[RecordBatch]:
        """Return the record batches, sliced to at most `max_chunksize` rows; nothing is copied.

        >>> table = bs.concat_tables([bs.table({"n": [1, 2]}), bs.table({"n": [3]})])
        >>> [batch.num_rows for batch in table.to_batches()]
        [2, 1]
        """
        if max_chunksize is None:
            return list(self._batches)
        size = check_count("to_batches: max_chunksize", max_chunksize, 1)
        return [batch.slice(start, size) for batch in self._batches for start in range(0, batch.num_rows or 1, size)]

    def to_reader(self, max_chunksize: int | None = None) -> RecordBatchReader:
        """Return a reader of the batches, as `to_batches`.

        >>> bs.table({"n": [1, 2, 3]}).to_reader(max_chunksize=2).read_next_batch().num_rows
        2
        """
        return RecordBatchReader(self.schema, self.to_batches(max_chunksize))

    def combine_chunks(self) -> Table:
        """Combine all batches into one; copies unless there is one. Raises like `ChunkedArray.combine_chunks`.

        >>> table = bs.concat_tables([bs.table({"n": [1, 2]}), bs.table({"n": [3]})])
        >>> table["n"].num_chunks, table.combine_chunks()["n"].num_chunks
        (2, 1)
        """
        if len(self._batches) == 1:
            return self
        columns = [column.combine_chunks() for column in self.columns]
        return Table(self.schema, [RecordBatch(self.schema, self.num_rows, columns)])

    def unify_dictionaries(self) -> Table:
        """Unify the dictionaries of each column over all batches, at every depth.

        Columns whose dictionaries differ are copied. Raises `InvalidArgumentError`, naming the column, if the union is
        too large for its indices.

        >>> one, other = (bs.table({"s": bs.array(values).dictionary_encode()}) for values in (["a"], ["b"]))
        >>> [chunk.dictionary.to_pylist() for chunk in bs.concat_tables([one, other]).unify_dictionaries()["s"].chunks]
        [['a', 'b'], ['a', 'b']]
        """
        return Table(self.schema, list(unify_batch_dictionaries(self.schema, self._batches)))

    def select(self, keys: str | int | Iterable[str | int]) -> Table:
        indices = self.schema.resolve_indices(keys)
        schema = self.schema.select(indices)
        return Table(schema, [batch._select_columns(schema, indices) for batch in self._batches])

    def slice(self, offset: int = 0, length: int | None = None) -> Table:
        spans = split_slice_by_chunk(self._starts, *clip_slice(offset, length, self.num_rows))
        batches = [self._batches[batch_index].slice(first, count) for batch_index, first, count in spans]
        return Table(self.schema, batches or self._empty_batches())

    def cast(self, target_schema: SchemaLike, safe: bool = True) -> Table:
        """Cast the columns to the types of a schema with the same names, or some by name, as `RecordBatch.cast`.

        >>> bs.table({"n": ["1", None]}).cast({"n": "int64"})["n"].to_pylist()
        [1, None]
        """
        target_schema = resolve_cast_schema(self.schema, target_schema)
        batches = []
        for batch_index, batch in enumerate(self._batches):
            with prefix_errors(f"record batch {batch_index}"):
                batches.append(batch.cast(target_schema, safe))
        return Table(target_schema, batches)

    def _from_columns(self, columns: list[ChunkedArray]) -> Table:
        return Table.from_arrays(columns, schema=self.schema)

    def _take_rows(self, indices: Indices) -> Table:
        slots = resolve_chunks(self._starts, indices)
        columns = [Array.from_array_data(column._take_from_chunks(*slots)) for column in self.columns]
        return Table(self.schema, [RecordBatch(self.schema, len(indices), columns)])

    def filter(
        self, mask: MaskLike | ChunkedArray | FiltersLike | Any, *, null_selection_behavior: NullSelection = "drop"
    ) -> Table:
        """Return the rows at which `mask` is true, or that match filters or an expression, as `RecordBatch.filter`.

        They are copied batch by batch. Batches without such rows are dropped; if there are none, the table has one
        empty batch.

        >>> table = bs.table({"n": [1, 2, 3], "s": ["a", "b", None]})
        >>> table.filter([("n", ">", 1)])["s"].to_pylist()
        ['b', None]
        >>> table.filter(table["s"].is_valid())["n"].to_pylist()
        [1, 2]
        """
        expression = find_expression(mask)
        if expression is not None:
            return table(import_pyarrow().table(self).filter(expression))
        if is_filters(mask):
            filtered = list(filter_batches(self._batches, parse_filters(mask, self.schema)))
            return Table(self.schema, filtered or self._empty_batches())
        mask = combine_if_chunked(mask)
        nullable_indices = mask_to_nullable_indices(mask, self.num_rows, null_selection_behavior)
        if nullable_indices is not None:
            return self.take(Array.from_array_data(nullable_indices))
        indices = mask_to_indices(mask, self.num_rows)
        starts = self._starts
        offsets = np.searchsorted(indices, starts).tolist()
        batches = [
            batch if last - first == batch.num_rows else batch._take_rows(indices[first:last] - start)
            for batch, start, (first, last) in zip(self._batches, starts, pairwise(offsets), strict=False)
            if last > first
        ]
        return Table(self.schema, batches or self._empty_batches())

    def group_by(self, keys: str | Sequence[str], use_threads: bool = True) -> TableGroupBy:
        """Group the rows by the values of one or more columns, for `TableGroupBy.aggregate`. Needs pyarrow.

        >>> sales = bs.table({"city": ["Riga", "Lima", "Riga"], "amount": [5, 7, 1]})
        >>> sales.group_by("city").aggregate([("amount", "sum")]).to_pydict()
        {'city': ['Riga', 'Lima'], 'amount_sum': [6, 7]}
        """
        return TableGroupBy(self, keys, use_threads)

    def join(
        self,
        right_table: Table,
        keys: str | Sequence[str],
        right_keys: str | Sequence[str] | None = None,
        join_type: str = "left outer",
        **options: Any,
    ) -> Table:
        """Return the rows of two tables whose keys are equal, joined by pyarrow.

        Options are as in ``pyarrow.Table.join``: `left_suffix`, `right_suffix`, `coalesce_keys`, `use_threads` and
        `filter_expression`.

        >>> amounts = bs.table({"city": ["Riga", "Lima"], "amount": [5, 7]})
        >>> amounts.join(bs.table({"city": ["Riga"], "country": ["LV"]}), "city", join_type="inner").to_pydict()
        {'city': ['Riga'], 'amount': [5], 'country': ['LV']}
        """
        pa = import_pyarrow()
        if "filter_expression" in options:
            condition = options["filter_expression"]
            expression = find_expression(condition)
            options["filter_expression"] = condition if expression is None else expression
        return table(pa.table(self).join(pa.table(right_table), keys, right_keys, join_type, **options))

    def join_asof(self, right_table: Table, on: str, by: str | Sequence[str], tolerance: int, **options: Any) -> Table:
        """Return the rows, each with the nearest row of `right_table` in the column `on`, joined by pyarrow.

        `by` and `tolerance` are as in ``pyarrow.Table.join_asof``, and so are its options `right_on` and `right_by`.

        >>> sales = bs.table({"time": [3, 9], "city": ["Riga", "Riga"]})
        >>> prices = bs.table({"time": [2, 8], "city": ["Riga", "Riga"], "price": [10, 12]})
        >>> sales.join_asof(prices, on="time", by="city", tolerance=-1)["price"].to_pylist()
        [10, 12]
        """
        pa = import_pyarrow()
        return table(pa.table(self).join_asof(pa.table(right_table), on, by, tolerance, **options))

    def _empty_batches(self) -> list[RecordBatch]:
        """Return an empty batch, which keeps the dictionaries."""
        return [batch.slice(0, 0) for batch in self._batches[:1]]

    def _with_schema(self, schema: Schema) -> Table:
        return Table(schema, [batch._with_schema(schema) for batch in self._batches])

    def _splice_column(self, schema: Schema, index: int, num_dropped: int, column: Array | ChunkedArray) -> Table:
        chunked = ChunkedArray([column], column.type) if isinstance(column, Array) else column
        # Without other columns, the batches are the chunks of this one. The table may have had no rows.
        if len(schema) == 1:
            return Table.from_arrays([chunked], schema=schema)
        starts = np.array(self._starts)
        # Each chunk boundary of the column splits a batch: that copies nothing.
        spans = list(pairwise(np.union1d(starts, chunked._starts).tolist()))
        if not spans and self._batches and chunked.chunks:
            spans = [(0, 0)]  # no rows, but maybe dictionaries
        batches = []
        for first, last in spans:
            batch_index = min(int(np.searchsorted(starts, first, "right")), len(self._batches)) - 1
            batch = self._batches[batch_index].slice(first - int(starts[batch_index]), last - first)
            batches.append(batch._splice_column(schema, index, num_dropped, chunked._slice_within_chunk(first, last)))
        return Table(schema, batches)

    def to_host(self) -> Table:
        """Copy memory of a GPU to the CPU. As `Array.to_host`."""
        return Table(self.schema, [batch.to_host() for batch in self.to_batches()])

    def to_pylist(self) -> list[dict[str, Any]]:
        """Convert to rows, as dictionaries of Python values.

        Raises `InvalidArgumentError` if two columns share a name, `LimitError` if there are far more rows than bytes.

        >>> bs.table({"n": [1, None], "s": ["a", "b"]}).to_pylist()
        [{'n': 1, 's': 'a'}, {'n': None, 's': 'b'}]
        """
        check_expanded_containers((column for batch in self._batches for column in batch.lazy_columns), self.num_rows)
        return list(chain.from_iterable(batch.to_pylist() for batch in self._batches))

    def equals(self, other: object, check_metadata: bool = False, nans_equal: bool = False) -> bool:
        """Return whether schemas and values are equal; batches may have different lengths.

        `other` may be a table of another library.

        >>> bs.table({"n": [1, None]}).equals(bs.table({"n": [1, None]}))
        True
        """
        other = as_table(other)
        if self.num_rows != other.num_rows or not self.schema.equals(other.schema, check_metadata):
            return False
        if self._starts == other._starts:
            batches = zip(self._batches, other._batches, strict=True)
            arrays = chain.from_iterable(zip(a.lazy_columns, b.lazy_columns, strict=True) for a, b in batches)
            return all(a.equals(b, nans_equal) for a, b in arrays)
        return all(a.equals(b, nans_equal) for a, b in zip(self.columns, other.columns, strict=True))

    def validate(self, full: bool = False) -> None:
        """Check every batch, as `RecordBatch.validate`. The error names the batch and the column.

        >>> bs.table({"s": ["a", None]}).validate(full=True)
        """
        for batch_index, batch in enumerate(self._batches):
            with prefix_errors(f"record batch {batch_index}"):
                batch.validate(full)

    def _record_batches(self) -> list[RecordBatch]:
        return self._batches

    def __repr__(self) -> str:
        batches = format_count(len(self._batches), "batch")
        return preview_as_text(f"<bowstring.Table {describe_shape(self)} in {batches}>", self)

    def __reduce__(self) -> tuple[Any, ...]:
        return Table, (self.schema, self._batches)


class TableGroupBy:
    """The rows of a table in groups of equal keys, from `Table.group_by`.

    >>> bs.TableGroupBy(bs.table({"n": [1, 1, 2]}), "n").aggregate([("n", "sum")])["n_sum"].to_pylist()
    [2, 2]
    """

    __slots__ = ("__weakref__", "_groups")

    def __init__(self, table: Table, keys: str | Sequence[str], use_threads: bool = True) -> None:
        pa = import_pyarrow()
        self._groups = pa.TableGroupBy(pa.table(table), keys, use_threads)

    def aggregate(self, aggregations: Sequence[Any]) -> Table:
        """Return a row for each group: its keys and aggregates, such as ``[("amount", "sum"), ([], "count_all")]``.

        Functions and options are as in ``pyarrow.TableGroupBy.aggregate``.

        >>> bs.table({"n": [1, 1, 2]}).group_by("n").aggregate([([], "count_all")]).to_pydict()
        {'n': [1, 2], 'count_all': [2, 1]}
        """
        return table(self._groups.aggregate(aggregations))


@explain_missing_attributes
class RecordBatchReader(Closable):
    """Record batches of one schema, read once: iterate over it, or call `read_next_batch` or `read_all`.

    `ipc.StreamReader` and `ipc.FileReader` have the same methods. Batches are created on demand.

    >>> reader = bs.RecordBatchReader.from_stream(bs.table({"a": [1, 2]}))
    >>> [batch.num_rows for batch in reader]
    [2]
    """

    def __init__(self, schema: Schema, batches: Iterable[RecordBatch]) -> None:
        self._schema = schema
        self._batches: Iterator[RecordBatch] | None = iter(batches)

    @classmethod
    def from_batches(cls, schema: SchemaLike, batches: Iterable[Any]) -> RecordBatchReader:
        """Create a reader of an iterable of batches, such as a generator; batches of other libraries are imported.

        A batch with another schema raises `InvalidArgumentError` when it is read.
        """
        return cls(as_schema(schema, "from_batches"), map(as_batch, batches))

    @classmethod
    def from_stream(cls, data: Any, schema: SchemaLike | None = None) -> RecordBatchReader:
        """Create a reader of anything with `__arrow_c_stream__`, read on demand; nothing is copied.

        With a `schema`, the batches are cast to it, as `RecordBatch.cast`. Raises `InvalidArgumentError` if its names
        differ from those of the stream.
        """
        if isinstance(data, Table):
            reader = cls(data.schema, data.to_batches())
        elif c_data.has_c_stream(data):
            reader = cls(*import_stream(data))
        elif c_data.has_c_array(data):
            table = as_table(data)
            reader = cls(table.schema, table.to_batches())
        else:
            raise TypeMismatchError(f"from_stream: expected an object with __arrow_c_stream__, found {data!r:.100}")
        if schema is None or as_schema(schema) == reader.schema:
            return reader
        target = resolve_cast_schema(reader.schema, as_schema(schema))
        return cls(target, (batch.cast(target) for batch in reader))

    @property
    def schema(self) -> Schema:
        """The schema of all batches."""
        return self._schema

    def read_next_batch(self) -> RecordBatch:
        """Return the next batch. Raises `StopIteration` at the end."""
        return next(self)

    def read_all(self) -> Table:
        """Return all remaining batches as a table."""
        return Table(self._schema, self)

    def read_pandas(self, **options: Any) -> Any:
        """Return all remaining rows as a pandas DataFrame, with the options of `Table.to_pandas`."""
        return self.read_all().to_pandas(**options)

    def close(self) -> None:
        """Release the batches, and close their generator or stream; batches that were read stay valid."""
        batches, self._batches = self._batches, None
        if batches is not None and hasattr(batches, "close"):
            batches.close()

    def __iter__(self) -> Iterator[RecordBatch]:
        return self

    def __next__(self) -> RecordBatch:
        if self._batches is None:
            raise ClosedError("the reader is closed")
        batch = next(self._batches)
        # Usually it is the same object, so that the fields need not be compared.
        if batch.schema is not self._schema and batch.schema != self._schema:
            raise InvalidArgumentError(f"a batch has another schema: {batch.schema!r}, not {self._schema!r}")
        return batch

    def __arrow_c_schema__(self) -> object:
        return self._schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Export the remaining batches by the C stream interface; they are read on demand."""
        return c_data.export_stream(self._schema, self, requested_schema)

    _repr_html_ = source_to_html

    def __repr__(self) -> str:
        state = "closed" if self._batches is None else format_count(len(self._schema), "column")
        return f"<bowstring.RecordBatchReader: {state}>"


def has_dictionary_fields(schema: Schema) -> bool:
    """Whether a schema has a dictionary-encoded type at any depth."""
    return any(has_dictionary(layout_of(field.type)) for field in schema.fields)


def unify_batch_dictionaries(schema: Schema, batches: Sequence[RecordBatch]) -> Iterator[RecordBatch]:
    """Yield the batches with the same dictionaries for each column. Other columns are read when their batch is.

    Raises `InvalidArgumentError`, naming the column, if a union of dictionaries is too large for the indices.
    """
    columns: dict[int, list[Array]] = {}
    for index, field in enumerate(schema.fields):
        if batches and has_dictionary(layout_of(field.type)):
            try:
                unified = unify_dictionaries([batch.column(index) for batch in batches])
            except TypeMismatchError as error:
                raise InvalidArgumentError(f"column {field.name!r}: {error}") from None
            columns[index] = as_arrays(unified)
    for batch_index, batch in enumerate(batches):
        columns_ = [
            columns[index][batch_index] if index in columns else batch.column(index) for index in range(len(schema))
        ]
        yield RecordBatch(batch.schema, batch.num_rows, columns_, batch.pairs)


def concat_tables(
    tables: Iterable[Table], *, promote_options: Literal["none", "default", "permissive"] = "none"
) -> Table:
    """Concatenate tables of one schema; nothing is copied. Imports tables of other libraries (PyCapsule interface).

    Raises `InvalidArgumentError`, naming the table, if a schema differs. With `promote_options="default"` the schemas
    are unified by `unify_schemas`: missing columns are null, and columns of the type null are cast. "permissive" casts
    other columns as well, such as int32 to int64, to the types of ``pyarrow.unify_schemas``, which needs pyarrow.

    >>> bs.concat_tables([bs.table({"n": [1, 2]}), bs.table({"n": [3]})])
    <bowstring.Table 3 rows × 1 column in 2 batches>
    ┌───────┐
    │     n │
    │ int64 │
    ╞═══════╡
    │     1 │
    │     2 │
    │     3 │
    └───────┘
    """
    if isinstance(tables, ColumnContainer):
        raise InvalidArgumentError("expected a sequence of tables to concatenate, found one: write [table]")
    tables = [as_table(table) for table in tables]
    if not tables:
        raise InvalidArgumentError("there are no tables to concatenate")
    schemas = [table.schema for table in tables]
    if promote_options == "default":
        tables = [_promote(table, unify_schemas(schemas)) for table in tables]
    elif promote_options == "permissive":
        pa = import_pyarrow()
        unified = as_schema(pa.unify_schemas(list(map(pa.schema, schemas)), promote_options=promote_options))
        tables = [_promote(table, unified) for table in tables]
    elif promote_options != "none":
        raise InvalidArgumentError(f"promote_options: expected none, default or permissive, found {promote_options!r}")
    for table_index, table in enumerate(tables):
        if table.schema != tables[0].schema:
            raise InvalidArgumentError(
                f"table {table_index} has another schema: {table.schema!r}, not {tables[0].schema!r}"
            )
    return Table(tables[0].schema, list(chain.from_iterable(table._batches for table in tables)))


def _promote(table: Table, schema: Schema) -> Table:
    """Return a table with the columns and types of a unified schema; missing columns are null."""
    columns = [
        table.column(field.name).cast(field.type)
        if field.name in table.schema
        else ChunkedArray([layout_of(field.type).nulls(table.num_rows)], field.type)
        for field in schema
    ]
    return Table.from_arrays(columns, schema=schema)


def concat_batches(batches: Iterable[RecordBatch]) -> RecordBatch:
    """Concatenate batches of one schema into one, copied. Raises `InvalidArgumentError` if a schema differs.

    >>> bs.concat_batches([bs.record_batch({"n": [1, 2]}), bs.record_batch({"n": [3]})])["n"].to_pylist()
    [1, 2, 3]
    """
    combined = Table.from_batches(batches).combine_chunks()
    return combined._batches[0]


def table(
    data: TableLike,
    names: Sequence[str] | SchemaLike | None = None,
    schema: SchemaLike | None = None,
    metadata: MetadataLike = None,
) -> Table:
    """Create a table of columns by name, a sequence of columns with `names` or a `schema`, or rows; or import one.

    Rows are dictionaries. A column is a chunked array or anything that
    `array` accepts. `names` are for a sequence of columns without names; a schema may be in their place. It sets the
    names of a sequence of columns; of any other data it selects columns by name, in its order. It also sets the types:
    Python values are converted, and arrays and columns are cast safely, as `Table.cast` does.
    `metadata` replaces the custom metadata of the schema, except pandas'. Raises `InvalidArgumentError` if
    lengths or arguments do not agree, or columns of the schema are missing; `TypeMismatchError` if a value does not fit
    its type.

    >>> bs.table({"n": [1, None], "s": ["a", "b"]})
    <bowstring.Table 2 rows × 2 columns in 1 batch>
    ┌───────┬────────┐
    │     n ┆ s      │
    │ int64 ┆ string │
    ╞═══════╪════════╡
    │     1 ┆ "a"    │
    │  null ┆ "b"    │
    └───────┴────────┘
    """
    names, schema = separate_names_and_schema(names, schema)
    check_names_fit(data, names)
    table = None
    if isinstance(data, Table | RecordBatch):
        table = data if isinstance(data, Table) else Table(data.schema, [data])
    elif is_pandas_object(data):
        table, schema = Table.from_pandas(data, schema), None
    elif c_data.has_c_array(data) or c_data.has_c_stream(data):
        table = import_table(data)
    if table is not None:
        return adapt_columns(table, schema, metadata)
    if is_sequence_of_rows(data, has_schema=schema is not None):
        batch = rows_to_batch(data, schema, metadata)
        return Table(batch.schema, [batch])
    columns, table_schema = build_columns_and_schema(data, schema, names, metadata)
    return Table.from_arrays(columns, schema=table_schema)


def as_table(source: Any) -> Table:
    """Return a table unchanged, a batch as a table, or import a table of pandas or another Arrow library.

    Raises `TypeMismatchError` for any other object; `table` creates tables of Python objects.
    """
    if isinstance(source, Table | RecordBatch) or is_pandas_object(source):
        return table(source)
    if c_data.has_c_array(source) or c_data.has_c_stream(source):
        return import_table(source)
    raise TypeMismatchError(f"expected a table, or an object with __arrow_c_stream__, found {type(source).__name__}")


def import_table(source: object) -> Table:
    """Import a table of another library that exports a stream or a struct array. Raises as `c_data.import_stream`."""
    if c_data.has_c_array(source) and not c_data.has_c_stream(source):
        batch = import_batch(source)
        return Table(batch.schema, [batch])
    schema, batches = import_stream(source)
    return Table(schema, list(batches))

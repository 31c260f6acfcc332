"""Read and write Arrow files as pyarrow batches, PySpark's format, by the C data interface without copies."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

from bowstring.arrays.record_batch import import_batch
from bowstring.datatypes.factories import dictionary
from bowstring.datatypes.schema import Schema, import_schema
from bowstring.datatypes.types import Int
from bowstring.errors import BowstringError, InvalidDataError, add_location
from bowstring.io.store_path import FolderPath
from bowstring.ipc.api import new_file, open_any
from bowstring.ipc.file import FileReader
from bowstring.ipc.file_statistics import find_bounded_columns
from bowstring.ipc.writers import FileWriter
from bowstring.kernels.list_lengths import ListLengthCollector
from bowstring.memory.closable import call_on_error
from bowstring.spark.options import WriteOptions
from bowstring.spark.row_filters import RowFilters
from bowstring.spark.types import has_file_types, to_spark_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


ROW_COST_BYTES = 32
"""The bytes of a column that are read in the time that a row takes, whatever its columns are."""
# With costs by columns, one of 20 columns of 1 GB is read in 1.8 s, otherwise, in ten times as many tasks, in 5.3 s.
# They are estimates: a split is at most 64 times as long as one of which all columns are read.
MIN_COST_SHARE = 1 / 64


@dataclass(frozen=True, slots=True)
class FileDescription:
    """The Spark schema of a file, and its batches."""

    schema: StructType
    batch_lengths_bytes: tuple[int, ...] | None
    """The length of each record batch; None for a stream, which can only be read as a whole."""
    may_match: tuple[bool, ...] | None = None
    """Which record batches may have rows that match the filters, by the file's statistics; None for all."""
    cost_share: float = 1.0
    """The share of the time of reading all columns that reading some of them takes."""


def write_batches(
    sink: Any,
    batches: Iterator[Any],
    schema: Schema,
    options: WriteOptions,
    list_lengths: ListLengthCollector | None = None,
) -> tuple[int, int]:
    """Write the pyarrow batches that have rows as a 64-byte aligned Arrow file, and return the numbers of rows and
    batches. Write nothing if there is not a single row.

    The file has `schema`, with dictionaries by the options. Its footer may have statistics of lists and of columns
    whose values have an order. `list_lengths` collects the lengths of lists. Raises `InvalidDataError` for batches of
    other types than Spark has for the schema.
    """
    encoder = _DictionaryEncoder(options.dictionary_columns, schema)
    num_rows = num_batches = 0
    writer: FileWriter | None = None
    try:
        for batch in batches:
            if batch.num_rows == 0:
                continue
            if writer is None:
                batch_schema = import_schema(batch.schema)
                if not has_file_types(batch_schema, schema):
                    raise InvalidDataError(f"expected batches of {schema!r} from Spark, found {batch_schema!r}")
                codec: Any = options.compression  # checked by WriteOptions
                writer = new_file(sink, encoder.schema, compression=codec, compression_level=options.compression_level)
                if options.statistics:
                    writer.enable_statistics(find_bounded_columns(encoder.schema))
            # With the schema of the file, because the batches may have other names, nullability and metadata.
            _, array = encoder.encode(batch).__arrow_c_array__()
            file_batch = import_batch((encoder.schema.__arrow_c_schema__(), array))
            writer.write_batch(file_batch)
            if list_lengths is not None:
                list_lengths.add(file_batch.column)
            num_rows += batch.num_rows
            num_batches += 1
        if writer is not None:
            writer.close()
    finally:
        if writer is not None:
            writer.abandon()  # no effect after close
    return num_rows, num_batches


class _DictionaryEncoder:
    """Encodes columns of a file's batches, whose dictionaries grow: a file can't replace one."""

    def __init__(self, names: Iterable[str], schema: Schema) -> None:
        self._values: dict[int, Any] = {schema.names.index(name): None for name in names}
        self.schema = schema
        if self._values:
            fields = [
                field.with_type(dictionary(Int(32), field.type)) if index in self._values else field
                for index, field in enumerate(schema)
            ]
            self.schema = Schema(tuple(fields), schema.pairs)

    def encode(self, batch: Any) -> Any:
        """Return a pyarrow batch with encoded columns."""
        for index in self._values:  # not all columns: pyarrow has no arrays of months
            batch = batch.set_column(index, str(index), self._encode_column(index, batch.column(index)))
        return batch

    def _encode_column(self, index: int, column: Any) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        encoded, values = column.dictionary_encode(), self._values[index]
        if values is None:
            self._values[index] = encoded.dictionary
            return encoded
        # New values are appended, so the indices of earlier batches stay valid, and the file gets deltas.
        codes = pc.index_in(encoded.dictionary, value_set=values)
        if codes.null_count:
            is_new = codes.is_null()
            new_codes = pa.array(range(len(values), len(values) + codes.null_count), pa.int32())
            codes = pc.replace_with_mask(codes, is_new, new_codes)
            self._values[index] = values = pa.concat_arrays([values, encoded.dictionary.filter(is_new)])
        return pa.DictionaryArray.from_arrays(codes.take(encoded.indices), values)


def describe_file(
    path: FolderPath,
    filters: RowFilters | None = None,
    column_names: Collection[str] = (),
    cost_shares: dict[Schema, float] | None = None,
) -> FileDescription:
    """The Spark schema of a file or stream, and how long a file's batches are; reads its footer or first message.

    With filters, also the batches that may have matching rows, and how long the columns take that are read. That is the
    same for all files of an Arrow schema, and taken from `cost_shares` or added to it, because reading the
    header of a batch is another request to a store. Columns without a counterpart in Spark have an `UnsupportedType`.

    Raises:
        NotFoundError: it does not exist.
        InvalidDataError: it is not an Arrow file or stream, or malformed.
    """
    with prefix_errors(path), open_any(path) as reader:
        schema = to_spark_schema(reader.schema)
        if not isinstance(reader, FileReader):
            return FileDescription(schema, None)
        batch_lengths_bytes = tuple(int(length) for length in reader.blocks["bodyLength"])
        if filters is None:
            return FileDescription(schema, batch_lengths_bytes)
        mask = filters.find_batches(reader, column_names)
        cost_shares = {} if cost_shares is None else cost_shares
        if reader.schema not in cost_shares:
            cost_shares[reader.schema] = _estimate_cost_share(reader, column_names)
        may_match = None if mask is None else tuple(mask.tolist())
        return FileDescription(schema, batch_lengths_bytes, may_match, cost_shares[reader.schema])


def count_file_rows(path: FolderPath) -> int:
    """Return the number of rows of a file, by its statistics or the headers of its batches, or of a stream.

    Raises as `describe_file`.
    """
    with prefix_errors(path), open_any(path, ()) as reader:
        return reader.num_rows if isinstance(reader, FileReader) else sum(batch.num_rows for batch in reader)


def _estimate_cost_share(reader: FileReader, column_names: Collection[str]) -> float:
    """Return the share of the time that reading some columns of a file takes, by the sizes of its first batch; 1 if
    these are all columns, or the batch is malformed.
    """
    schema = reader.ipc_schema.schema
    names = [name for name in schema.names if name in column_names]
    if len(names) == len(schema):
        return 1.0
    try:
        # The header alone has the sizes of all buffers; of a store, no column is requested.
        header, _ = reader.read_batch_message(0)
        lengths_bytes = header.buffers()["length"]
        positions = reader.ipc_schema.column_positions(header.template.version)
        selected = [positions[index] for index in schema.resolve_indices(names)]
    except BowstringError:
        return 1.0
    selected_bytes = sum(
        int(lengths_bytes[column.first_buffer : column.first_buffer + column.buffer_count].sum()) for column in selected
    )
    rows_cost_bytes = ROW_COST_BYTES * header.length
    share = (selected_bytes + rows_cost_bytes) / max(header.body_bytes + rows_cost_bytes, 1)
    return min(max(share, MIN_COST_SHARE), 1.0)


@dataclass(frozen=True, slots=True)
class FileBatch:
    """One record batch of a file, or the reason why it is malformed."""

    index: int
    batch: Any = None
    """The pyarrow batch; None if it is malformed."""
    first_row: int | None = None
    """The index of the batch's first row; that in the file if rows are counted."""
    problem: InvalidDataError | None = None


def read_batches(
    path: FolderPath,
    batch_indices: range | None,
    column_names: list[str],
    filters: RowFilters | None = None,
    *,
    counts_rows: bool = False,
) -> Iterator[FileBatch]:
    """Yield the batches with some columns of a file, or of a stream; all of them if `batch_indices` is None.

    With filters, without those batches of a file that have no matching rows according to its statistics. With
    `counts_rows`, batches have the index of their first row in the file. A malformed file is its first batch.

    Every value is validated first, because Spark would crash on malformed data or accept it.

    Raises `NotFoundError` if the file, a batch or a column does not exist.
    """
    import pyarrow as pa

    try:
        with prefix_errors(path):
            reader = open_any(path, column_names)
            with call_on_error(reader.close):
                row_counts = mask = None
                indices: Iterable[int] = count()
                if isinstance(reader, FileReader):
                    row_counts = reader.row_counts if counts_rows else None
                    indices = range(reader.num_record_batches) if batch_indices is None else batch_indices
                    mask = None if filters is None else filters.find_batches(reader, column_names)
    except InvalidDataError as problem:
        yield FileBatch(0 if batch_indices is None else batch_indices.start, problem=problem)
        return
    first_row = 0
    with reader:
        for index in indices:
            if mask is not None and index < len(mask) and not mask[index]:
                continue
            batch = None
            try:
                with prefix_errors(path, index):
                    batch = reader.get_batch(index) if isinstance(reader, FileReader) else next(reader, None)
                    if batch is None:
                        return
                    batch.validate(full=True)
                    pyarrow_batch = pa.record_batch(batch)
            except InvalidDataError as problem:
                yield FileBatch(index, problem=problem)
                if batch is None and not isinstance(reader, FileReader):
                    return  # the next batch of a stream begins where this one ends
            else:
                yield FileBatch(
                    index, pyarrow_batch, first_row if row_counts is None else int(row_counts[:index].sum())
                )
            first_row += 0 if batch is None else batch.num_rows


@contextmanager
def prefix_errors(path: FolderPath | str, index: int | None = None) -> Iterator[None]:
    """Prefix errors with the path and the index of the record batch, unless they begin with the path."""
    try:
        yield
    except BowstringError as problem:
        # The next character shows that it is not the beginning of a longer path.
        if str(problem).startswith((f"{path}: ", f"{path}, ")):
            raise
        suffix = "" if index is None else f", record batch {index}"
        raise add_location(problem, f"{path}{suffix}") from problem

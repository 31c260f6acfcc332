"""Gather small batches and write them as large ones.

Each message has a header and a buffer of its own for each column («RecordBatch message»), so a batch of a few rows is
mostly metadata.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, pairwise
from threading import RLock
from typing import Any

from bowstring.arrays.array import Array
from bowstring.arrays.construction import array
from bowstring.arrays.record_batch import RecordBatch, as_batch, record_batch
from bowstring.datatypes.schema import Schema
from bowstring.errors import ClosedError, InvalidArgumentError, TypeMismatchError, format_count, prefix_errors
from bowstring.ipc.stream import check_column, schema_mismatch_error
from bowstring.ipc.writers import BatchWriter, FileWriter, StreamWriter
from bowstring.kernels.unify_dictionaries import concat_and_unify, has_dictionary
from bowstring.layouts.base import ArrayData, Layout, sum_buffer_sizes
from bowstring.layouts.registry import layout_of
from bowstring.memory.closable import call_on_error

_MAX_BUFFERED_ROWS = 2048
"""The number of rows of Python values that are converted to arrays at once."""
_MAX_UNJOINED_BATCHES = 8192
"""The number of batches that are joined at once."""
_SEQUENCE_TYPES = {list, tuple}


class CoalescingWriter(BatchWriter):
    """Gathers batches until they have `min_rows` rows or about `max_bytes` bytes, and writes them as one batch.

    Closing it closes `writer`. As a context manager it abandons `writer` if the block raises an error. `schema` is the
    schema of the batches. Gathered batches are copied when they are joined. A batch of `min_rows` rows or more, or with
    custom metadata, is written unchanged. The order of rows is kept. Several threads may write; the rows of one call
    stay together. If gathered rows can't be written, such as those whose dictionary can't extend that of a file, the
    writer is abandoned. Raises `InvalidArgumentError` for a limit below 1.

    >>> import io
    >>> sink = io.BytesIO()
    >>> with bs.ipc.CoalescingWriter(bs.new_stream(sink, {"n": "int64"}), min_rows=100) as writer:
    ...     for number in range(250):
    ...         writer.write_pydict({"n": [number]})
    >>> [batch.num_rows for batch in bs.open_stream(sink.getvalue())]
    [100, 100, 50]
    """

    def __init__(
        self, writer: FileWriter | StreamWriter, min_rows: int = 65_536, max_bytes: int = 64 * 1024 * 1024
    ) -> None:
        if min_rows < 1 or max_bytes < 1:
            raise InvalidArgumentError(f"min_rows and max_bytes must be 1 or more, not {min_rows} and {max_bytes}")
        self.schema = writer.schema
        self._names = writer.schema.names
        self._writer = writer
        self._min_rows = min_rows
        self._batches = _BatchBuffer(writer.schema, min_rows, max_bytes)
        self._values: list[list[Any]] = [[] for _ in self._names]
        """The values of each column that `write_pydict` was given and that are not converted yet."""
        self._stops: list[int] = []
        """The number of these rows after each call."""
        self._lock = RLock()
        self._is_closed = False

    @property
    def num_buffered_rows(self) -> int:
        """The number of rows that have been gathered and not yet written."""
        return self._batches.num_rows + self._num_unconverted_rows

    @property
    def _num_unconverted_rows(self) -> int:
        return self._stops[-1] if self._stops else 0

    def write_batch(self, batch: RecordBatch) -> None:
        """Add a batch; write the gathered batches if they are large enough.

        Raises `InvalidArgumentError` for a batch of another schema or with another number of columns.
        """
        with self._lock:
            if self._is_closed:
                raise ClosedError("the writer is closed")
            if not isinstance(batch, RecordBatch):
                batch = as_batch(batch)
            schema = self.schema
            if batch.schema is not schema and batch.schema != schema:
                raise schema_mismatch_error(batch, schema)
            if self._stops:
                self._convert_calls()  # they precede this batch
            if batch.pairs or batch.num_rows >= self._min_rows:
                self._write_gathered()
                self._writer.write_batch(batch)
            elif self._batches.append(batch):
                self._write_gathered()

    def write_pydict(self, columns: Mapping[str, Any]) -> None:
        """Add rows given as the values of each column by name, in any form that `record_batch` takes.

        Lists of Python values are gathered and converted to arrays for a few thousand rows at a time, which is several
        times faster than creating a batch for each call. A value that does not fit its type therefore raises
        `TypeMismatchError`, with the column and the value's index in its call, in a later call, in `flush` or in
        `close`. The rows of the call that passed it are skipped; all others are written. Nested values, such as lists,
        must not change until then. Raises `InvalidArgumentError` at once if columns are missing or differ in length.
        """
        with self._lock:
            if self._is_closed:
                raise ClosedError("the writer is closed")
            lists: list[Any] = [columns.get(name) for name in self._names] if columns.__class__ is dict else []
            if not _SEQUENCE_TYPES.issuperset(map(type, lists)) or len(set(map(len, lists))) != 1:
                self.write_batch(record_batch(columns, self.schema))
                return
            for values, new_values in zip(self._values, lists, strict=True):
                values.extend(new_values)
            if lists[0]:
                self._stops.append(len(self._values[0]))
            if self._num_unconverted_rows >= _MAX_BUFFERED_ROWS or self.num_buffered_rows >= self._min_rows:
                self._convert_calls()

    def _convert_calls(self) -> None:
        """Add the rows of the calls as a batch, or as one batch per call without the calls that have invalid values."""
        columns, stops = self._values, self._stops
        # First, so that rows with an invalid value are not converted again by the next call.
        self._clear_values()
        error = None
        try:
            batches = [self._convert(columns)]
        except TypeMismatchError:
            batches = []
            for start, stop in pairwise([0, *stops]):
                try:
                    batches.append(self._convert([values[start:stop] for values in columns]))
                except TypeMismatchError as call_error:
                    error = error or call_error
        for batch in batches:
            self.write_batch(batch)
        if error is not None:
            raise error from None

    def _clear_values(self) -> None:
        self._values, self._stops = [[] for _ in self._names], []

    def _convert(self, columns: Sequence[Sequence[Any]]) -> RecordBatch:
        """Return values as a batch. Raises `TypeMismatchError` with the column for one that does not fit its type."""
        arrays = []
        for field, values in zip(self.schema, columns, strict=True):
            with prefix_errors(f"column {field.name!r}"):
                arrays.append(array(values, field.type))
        return RecordBatch(self.schema, len(columns[0]), arrays)

    def flush(self) -> None:
        """Write the gathered rows as one batch, and flush the writer. Raises `ClosedError` after `close`."""
        with self._lock:
            self._write_gathered()
            self._writer.flush()

    def _write_gathered(self) -> None:
        if self._stops:
            self._convert_calls()
        batches = self._batches.pop_joined()
        with call_on_error(self.abandon):  # earlier calls have accepted these rows, so no others can follow
            for batch in batches:
                self._writer.write_batch(batch)

    def close(self) -> None:
        """Write the gathered rows and close the writer."""
        with self._lock:
            if self._is_closed:
                return
            with call_on_error(self.abandon):
                self._write_gathered()
            self._is_closed = True
            self._writer.close()

    def abandon(self) -> None:
        """Discard the gathered rows and abandon the writer."""
        with self._lock:
            self._is_closed = True
            self._batches.clear()
            self._clear_values()
            self._writer.abandon()

    def __del__(self) -> None:
        # Without the attribute, the constructor has raised an error.
        if not getattr(self, "_is_closed", True) and self.num_buffered_rows:
            self._is_closed = True
            self._writer.abandon_with_warning(self, self.num_buffered_rows)

    def __repr__(self) -> str:
        gathered = (
            f"{format_count(self.num_buffered_rows, 'row')} of {format_count(len(self._batches), 'batch')} gathered"
        )
        return f"<bowstring.ipc.CoalescingWriter: {'closed' if self._is_closed else gathered}>"


class _BatchBuffer:
    """Batches that are to be written as one; of many batches, the earlier ones are joined already.

    The size of new batches is computed for many of them at once.
    """

    def __init__(self, schema: Schema, min_rows: int, max_bytes: int) -> None:
        self._schema = schema
        self._layouts = [layout_of(field.type) for field in schema]
        self._min_rows = min_rows
        self._max_bytes = max_bytes
        self.clear()

    def clear(self) -> None:
        """Remove all batches."""
        self.num_rows = 0
        self.size_bytes = 0
        self._joined: list[RecordBatch] = []
        self._unjoined: list[RecordBatch] = []
        self._columns: list[Array] = []
        """The columns of the first `_num_checked` unjoined batches, one batch after the other."""
        # By id; the arrays are kept so that no id is used again meanwhile.
        self._dictionaries: dict[int, Array | None] = {}
        self._num_checked = 0
        self._check_at_batches = 1

    def __len__(self) -> int:
        return len(self._joined) + len(self._unjoined)

    def append(self, batch: RecordBatch) -> bool:
        """Add a batch; return whether all together are large enough to be written.

        Raises `InvalidArgumentError` if columns of this batch or of an earlier one do not match the schema.
        """
        unjoined = self._unjoined
        unjoined.append(batch)
        self.num_rows = num_rows = self.num_rows + batch.num_rows
        if len(unjoined) >= self._check_at_batches:
            self._check_new_batches()
        return num_rows >= self._min_rows or self.size_bytes >= self._max_bytes

    def pop_joined(self) -> list[RecordBatch]:
        """Remove all batches and return them joined, or as few if their dictionaries have too many values for one."""
        self._check_new_batches()
        self._join_checked_batches()
        batches = self._joined
        self.clear()
        return self._join_batches(batches, list(chain.from_iterable([batch.lazy_columns for batch in batches])))

    def _check_new_batches(self) -> None:
        """Check the batches that have not been checked, and add their size. If there are many, join all."""
        batches = self._unjoined[self._num_checked :]
        columns = self._get_checked_columns(batches)
        size_bytes = self._compute_added_bytes(columns, sum([batch.num_rows for batch in batches]))
        self._columns += columns
        self.size_bytes += size_bytes
        self._num_checked = len(self._unjoined)
        if self._num_checked >= _MAX_UNJOINED_BATCHES:
            self._join_checked_batches()
        # Wait for twice as many batches, but for at most half of the bytes that are left if they are of the same size.
        max_batches = (self._max_bytes - self.size_bytes) * len(batches) // max(size_bytes, 1)
        self._check_at_batches = min(
            self._num_checked + max(1, min(max_batches // 2, 2 * len(batches))), _MAX_UNJOINED_BATCHES
        )

    def _join_checked_batches(self) -> None:
        self._joined += self._join_batches(self._unjoined, self._columns)
        self._unjoined, self._columns, self._num_checked = [], [], 0

    def _compute_added_bytes(self, columns: Sequence[Array], num_rows: int) -> int:
        """Return the size of the rows of batches, and of the other memory that their columns keep alive."""
        size_bytes, width = 0, len(self._layouts)
        for index, layout in enumerate(self._layouts):
            arrays = columns[index::width]
            if layout.children or layout.VARIADIC:
                size_bytes += sum([sum_buffer_sizes(array, with_dictionaries=False) for array in arrays])
                continue
            for number, spec in enumerate(layout.buffers):
                if spec.per_slot:
                    size_bytes += spec.size_bytes(num_rows)
                else:
                    buffers = [array.own_buffers[number] for array in arrays]
                    size_bytes += sum([0 if buffer is None else buffer.size for buffer in buffers])
            if layout.dictionary is not None:
                dictionaries = {id(array.dictionary): array.dictionary for array in arrays}
                for key in dictionaries.keys() - self._dictionaries.keys():
                    values = dictionaries[key]
                    size_bytes += 0 if values is None else sum_buffer_sizes(values, with_dictionaries=False)
                self._dictionaries |= dictionaries
        return size_bytes

    def _join_batches(self, batches: list[RecordBatch], columns: Sequence[Array]) -> list[RecordBatch]:
        """Return batches joined, or unchanged if their dictionaries have too many values for one."""
        if len(batches) < 2:
            return batches
        width = len(self._layouts)
        try:
            joined = [_concat_arrays(columns[index::width], layout) for index, layout in enumerate(self._layouts)]
        except TypeMismatchError:
            return batches
        return [RecordBatch(self._schema, sum([batch.num_rows for batch in batches]), joined)]

    def _get_checked_columns(self, batches: Sequence[RecordBatch]) -> list[Array]:
        """Return the columns of the first batch, then the columns of the next one.

        Raises `InvalidArgumentError` if they do not match the schema or the length of their batch.
        """
        columns, width = list(chain.from_iterable(batch.lazy_columns for batch in batches)), len(self._layouts)
        lengths = [batch.num_rows for batch in batches]
        for index, (field, layout) in enumerate(zip(self._schema, self._layouts, strict=True)):
            arrays = columns[index::width]
            if [each.layout for each in arrays] == [layout] * len(arrays) and [
                each.length for each in arrays
            ] == lengths:
                continue
            for column, expected in zip(arrays, lengths, strict=True):
                check_column(column, field, expected)
        return columns


def _concat_arrays(arrays: Sequence[ArrayData], layout: Layout) -> Array:
    return Array.from_array_data(concat_and_unify(arrays) if has_dictionary(layout) else layout.concat(arrays))

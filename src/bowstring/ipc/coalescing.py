"""Small batches, written as large ones: each message has a header, and each column in it a buffer of its own («Record
Batch message»), so a few rows at a time cost more in words about them than in data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, cycle, pairwise
from threading import RLock
from typing import Any

from bowstring.arrays.construction import array, as_batch, record_batch
from bowstring.arrays.record_batch import RecordBatch
from bowstring.compute.unify_dictionaries import concat_unified, has_dictionary
from bowstring.datatypes.field import Schema
from bowstring.errors import ClosedError, DataTypeError, UsageError
from bowstring.ipc.writers import BatchWriter, FileWriter, StreamWriter
from bowstring.layouts.array import Array
from bowstring.layouts.array_batcher import BLOCK_ARRAYS, ArrayBatcher, append_arrays
from bowstring.layouts.base import error_context
from bowstring.layouts.registry import layout_of
from bowstring.memory.closable import warn_unclosed

_MAX_PENDING_ROWS = 2048
_MAX_UNJOINED_BATCHES = 2048
"""So many batches whose dictionaries are united, or that cannot be packed, are joined at once."""


class CoalescingWriter(BatchWriter):
    """Gathers batches until they have `min_rows` rows, and has `writer` write them as one.

    A context manager, which closes the writer, or abandons it where an error is raised inside.
    Gathered batches are copied when they are joined. They are kept until then, at most some `max_bytes` bytes of them.
    A batch that has `min_rows` rows itself, or custom metadata of its own, is written as it is. Order is kept. Raises
    `UsageError` for a limit below 1. Several threads may write: rows of one call stay together.
    """

    def __init__(
        self, writer: FileWriter | StreamWriter, min_rows: int = 65_536, max_bytes: int = 64 * 1024 * 1024
    ) -> None:
        if min_rows < 1 or max_bytes < 1:
            raise UsageError(f"min_rows {min_rows} and max_bytes {max_bytes} are to be 1 or more")
        self._writer = writer
        self._min_rows = min_rows
        self._max_bytes = max_bytes
        self._schema = writer.schema
        self._layouts = [layout_of(field.type) for field in self._schema]
        self._dictionary_columns = [at for at, layout in enumerate(self._layouts) if layout.dictionary is not None]
        self._batches: list[RecordBatch] = []
        """Batches of many rows, made of many, but for those that had to stay apart."""
        self._joined_count = 0  # so many of the held batches, the first ones, are joined
        self._packed: list[ArrayBatcher] = []
        """The columns of the batches behind these."""
        self._unpacked: list[RecordBatch] = []
        """The batches behind these, of which only the rows are counted; at most `_max_unpacked`."""
        self._max_packed = _MAX_UNJOINED_BATCHES if self._dictionary_columns else self._min_rows
        self._max_unpacked = 1
        self._dictionaries: dict[int, Array] = {}
        self._rows = self._bytes = 0
        self._names = self._schema.names
        self._pending: list[list[Any]] = [[] for _ in self._names]
        self._pending_rows = 0
        self._ends: list[int] = []
        self._lock = RLock()
        self._closed = False

    @property
    def schema(self) -> Schema:
        """The schema of what is written."""
        return self._schema

    def write_batch(self, batch: RecordBatch) -> None:
        """Take one batch; it, and those before it, are written when they are enough."""
        with self._lock:
            if self._closed:
                raise ClosedError("the writer is closed")
            batch = as_batch(batch)
            if batch.schema is not self._schema and batch.schema != self._schema:
                raise UsageError(f"a batch of another schema: expected {self._schema!r}, found {batch.schema!r}")
            if self._pending_rows:
                self._flush_pending()
            rows = batch.num_rows
            if batch.pairs or rows >= self._min_rows:
                self.flush()
                self._writer.write_batch(batch)
                return
            columns = batch.source
            if len(columns) != len(self._layouts):
                raise UsageError(f"a batch of {len(columns)} columns, where the schema has {len(self._layouts)}")
            self._unpacked.append(batch)
            self._rows += rows
            if len(self._unpacked) >= self._max_unpacked:
                self._pack()
            if self._rows >= self._min_rows or self._bytes >= self._max_bytes:
                self.flush()

    def write_pydict(self, columns: Mapping[str, Any]) -> None:
        """Take rows as the values of each column, by the name of the column: all that `record_batch` takes.

        Lists of Python values are gathered as they are, and some thousand rows at a time made arrays of: much quicker
        than a batch of each few rows. So a value that does not fit its type is found later, by the call that makes the
        array, `flush` or `close` at the latest: it raises `DataTypeError` with the column and the value's position in
        the call that brought it. The rows of that call are left out, those of all others are taken. What stands in a
        value, such as a list, is not to be changed until then. Raises `UsageError` at once where columns are missing,
        or not of one length.
        """
        with self._lock:
            if self._closed:
                raise ClosedError("the writer is closed")
            values_of_columns: list[Any] = (
                [columns.get(name) for name in self._names] if columns.__class__ is dict else []
            )
            if (
                not _SEQUENCE_TYPES.issuperset(map(type, values_of_columns))
                or len(set(map(len, values_of_columns))) != 1
            ):
                self.write_batch(record_batch(columns, self._schema))
                return
            for waiting, values in zip(self._pending, values_of_columns, strict=True):
                waiting.extend(values)
            self._pending_rows = rows = len(self._pending[0])
            self._ends.append(rows)
            if rows >= _MAX_PENDING_ROWS or self._rows + rows >= self._min_rows:
                self._flush_pending()

    def _flush_pending(self) -> None:
        """Take the values that wait as a batch; where one does not fit, as a batch of each call but those at fault."""
        pending, ends = self._pending, self._ends
        self._pending, self._pending_rows, self._ends = [[] for _ in self._names], 0, []
        try:
            batch = self._batch(pending)
        except DataTypeError:
            errors = []
            for first, end in pairwise([0, *ends]):
                try:
                    self.write_batch(self._batch([values[first:end] for values in pending]))
                except DataTypeError as error:
                    errors.append(error)
            if errors:
                raise errors[0] from None
            return
        self.write_batch(batch)

    def _batch(self, pending: Sequence[list[Any]]) -> RecordBatch:
        columns = []
        for field, values in zip(self._schema, pending, strict=True):
            with error_context(f"column {field.name!r}"):
                columns.append(array(values, field.type))
        return RecordBatch(self._schema, len(pending[0]), columns)

    def flush(self) -> None:
        """Write what was gathered as one batch."""
        with self._lock:
            if self._pending_rows:
                self._flush_pending()
            self._pack()
            self._join_packed()
            self._dictionaries.clear()
            batches = self._batches
            self._batches, self._joined_count, self._rows, self._bytes = [], 0, 0, 0
            for batch in self._join_batches(batches):
                self._writer.write_batch(batch)

    def _pack(self) -> None:
        """Take the loose batches apart, so that nothing of them is needed any more; what cannot be packed is held."""
        batches, self._unpacked = self._unpacked, []
        if not batches:
            return
        columns = self._columns(batches)
        if not self._packed:
            self._packed = list(map(ArrayBatcher, self._layouts))
        size_bytes = append_arrays(self._packed, columns) if columns else None
        if size_bytes is None:
            size_bytes = self._retained_bytes(columns)
            self._join_packed()
            self._batches += batches
            if len(self._batches) - self._joined_count >= _MAX_UNJOINED_BATCHES:
                self._batches[self._joined_count :] = self._join_batches(self._batches[self._joined_count :])
                self._joined_count = len(self._batches)
        elif len(self._packed[0]) >= self._max_packed:
            self._join_packed()
        self._bytes += size_bytes
        max_batches = (self._max_bytes - self._bytes) * len(batches) // max(size_bytes, 1)
        max_arrays = BLOCK_ARRAYS // max(len(self._layouts), 1)
        if self._packed:
            max_arrays = min(max_arrays, self._max_packed - len(self._packed[0]))
        self._max_unpacked = max(
            1, min(max_batches // 2, 2 * len(batches), max_arrays)
        )  # too late only where batches suddenly grow

    def _retained_bytes(self, columns: Sequence[Array]) -> int:
        """The bytes that held arrays keep alive, as far as they are not in proportion to the rows."""
        size_bytes = sum(map(_open_ended_bytes, columns))
        for column in columns:
            dictionary = column.dictionary
            if dictionary is not None and id(dictionary) not in self._dictionaries:
                self._dictionaries[id(dictionary)] = dictionary
                size_bytes += _size_bytes(dictionary)
        return size_bytes

    def _join_packed(self) -> None:
        """Hold what is packed as a batch; as those that it came as where their dictionaries are too many values for
        one.
        """
        packed, self._packed = self._packed, []
        if not packed or not len(packed[0]):
            return
        try:
            columns = [
                concat_unified(column) if has_dictionary(column.layout) else column.layout.concat(column)
                for column in packed
            ]
        except DataTypeError:
            self._batches += [RecordBatch(self._schema, row[0].length, row) for row in zip(*packed, strict=True)]
        else:
            self._batches.append(RecordBatch(self._schema, columns[0].length, columns))
        self._joined_count = len(self._batches)

    def _join_batches(self, batches: list[RecordBatch]) -> list[RecordBatch]:
        """Batches joined; as they are where their dictionaries are too many values for one."""
        if len(batches) < 2:
            return batches
        try:
            columns = self._join_columns(batches)
        except DataTypeError:
            return batches
        return [RecordBatch(self._schema, sum([batch.num_rows for batch in batches]), columns)]

    def _join_columns(self, batches: Sequence[RecordBatch]) -> list[Array]:
        arrays, width = self._columns(batches), len(self._layouts)
        return [
            concat_unified(arrays[index::width]) if has_dictionary(layout) else layout.concat(arrays[index::width])
            for index, layout in enumerate(self._layouts)
        ]

    def _columns(self, batches: Sequence[RecordBatch]) -> list[Array]:
        """The columns of the first batch, then those of the next one; raises `UsageError` where one is not as its field
        or its batch says.
        """
        columns = list(chain.from_iterable([batch.source for batch in batches]))
        rows = [rows for batch in batches for rows in [batch.num_rows] * len(self._layouts)]
        is_valid = [column.layout for column in columns] == self._layouts * len(batches)
        if is_valid and [column.length for column in columns] == rows:
            return columns
        for field, column, expected in zip(cycle(self._schema), columns, rows, strict=False):
            if column.type != field.type:
                raise UsageError(f"column {field.name!r} is {column.type}, its field says {field.type}")
            if column.length != expected:
                raise UsageError(f"column {field.name!r} has {column.length} values in a batch of {expected} rows")
        return columns

    def close(self) -> None:
        """Write what was gathered, and close the writer."""
        with self._lock:
            if self._closed:
                return
            try:
                self.flush()
            except BaseException:
                self.abandon()
                raise
            self._closed = True
            self._writer.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True) and self._rows + self._pending_rows:
            rows = self._rows + self._pending_rows
            warn_unclosed(self, f"{self._writer.name}: unclosed CoalescingWriter: {rows} rows were not written")

    def abandon(self) -> None:
        """Stop writing, as the writer's `abandon`."""
        with self._lock:
            self._closed = True
            self._batches.clear()
            self._unpacked.clear()
            self._packed.clear()
            self._pending_rows = 0
            self._pending.clear()
            self._writer.abandon()

    def __repr__(self) -> str:
        rows, batches = self._rows + self._pending_rows, len(self._batches) + len(self._unpacked)
        batches += len(self._packed[0]) if self._packed else 0
        state = "closed" if self._closed else f"{rows} rows of {batches} batches held"
        return f"<bowstring.CoalescingWriter: {state}>"


_SEQUENCE_TYPES = {list, tuple}


def _open_ended_bytes(array: Array) -> int:
    """The bytes of those buffers that may be of any size, however few the slots; of nested arrays all."""
    if array.children or array.layout.VARIADIC:
        return _size_bytes(array)
    pairs = zip(array.layout.buffers, array.buffers, strict=False)
    return sum([buffer.size for spec, buffer in pairs if buffer is not None and not spec.per_slot])


def _size_bytes(array: Array) -> int:
    """The bytes of the buffers, also where a slice shows a part of them: what is kept alive."""
    size_bytes = 0
    for buffer in array.buffers:
        if buffer is not None:
            size_bytes += buffer.size
    for child in array.children:
        size_bytes += _size_bytes(child)
    return size_bytes

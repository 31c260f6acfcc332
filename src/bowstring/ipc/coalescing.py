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

_MOST_WAITING_ROWS = 2048
_MOST_APART = 2048
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
        self._encoded = [at for at, layout in enumerate(self._layouts) if layout.dictionary is not None]
        self._held: list[RecordBatch] = []
        """Batches of many rows, made of many, but for those that had to stay apart."""
        self._whole = 0  # so many of the held batches, the first ones, are joined
        self._packed: list[ArrayBatcher] = []
        """The columns of the batches behind these."""
        self._loose: list[RecordBatch] = []
        """The batches behind these, of which only the rows are counted; at most `_most_loose`."""
        self._most_packed = _MOST_APART if self._encoded else self._min_rows
        self._most_loose = 1
        self._met: dict[int, Array] = {}
        self._rows = self._bytes = 0
        self._names = self._schema.names
        self._waiting: list[list[Any]] = [[] for _ in self._names]
        self._waiting_rows = 0
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
            if self._waiting_rows:
                self._make()
            rows = batch.num_rows
            if batch.pairs or rows >= self._min_rows:
                self.flush()
                self._writer.write_batch(batch)
                return
            columns = batch.source
            if len(columns) != len(self._layouts):
                raise UsageError(f"a batch of {len(columns)} columns, where the schema has {len(self._layouts)}")
            self._loose.append(batch)
            self._rows += rows
            if len(self._loose) >= self._most_loose:
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
            taken: list[Any] = [columns.get(name) for name in self._names] if columns.__class__ is dict else []
            if not _PLAIN.issuperset(map(type, taken)) or len(set(map(len, taken))) != 1:
                self.write_batch(record_batch(columns, self._schema))
                return
            for waiting, values in zip(self._waiting, taken, strict=True):
                waiting.extend(values)
            self._waiting_rows = rows = len(self._waiting[0])
            self._ends.append(rows)
            if rows >= _MOST_WAITING_ROWS or self._rows + rows >= self._min_rows:
                self._make()

    def _make(self) -> None:
        """Take the values that wait as a batch; where one does not fit, as a batch of each call but those at fault."""
        waiting, ends = self._waiting, self._ends
        self._waiting, self._waiting_rows, self._ends = [[] for _ in self._names], 0, []
        try:
            batch = self._batch(waiting)
        except DataTypeError:
            faults = []
            for first, end in pairwise([0, *ends]):
                try:
                    self.write_batch(self._batch([values[first:end] for values in waiting]))
                except DataTypeError as error:
                    faults.append(error)
            if faults:
                raise faults[0] from None
            return
        self.write_batch(batch)

    def _batch(self, waiting: Sequence[list[Any]]) -> RecordBatch:
        columns = []
        for field, values in zip(self._schema, waiting, strict=True):
            with error_context(f"column {field.name!r}"):
                columns.append(array(values, field.type))
        return RecordBatch(self._schema, len(waiting[0]), columns)

    def flush(self) -> None:
        """Write what was gathered as one batch."""
        with self._lock:
            if self._waiting_rows:
                self._make()
            self._pack()
            self._join_packed()
            self._met.clear()
            held = self._held
            self._held, self._whole, self._rows, self._bytes = [], 0, 0, 0
            for batch in self._as_one(held):
                self._writer.write_batch(batch)

    def _pack(self) -> None:
        """Take the loose batches apart, so that nothing of them is needed any more; what cannot be packed is held."""
        loose, self._loose = self._loose, []
        if not loose:
            return
        columns = self._columns(loose)
        if not self._packed:
            self._packed = list(map(ArrayBatcher, self._layouts))
        size_bytes = append_arrays(self._packed, columns) if columns else None
        if size_bytes is None:
            size_bytes = self._kept_bytes(columns)
            self._join_packed()
            self._held += loose
            if len(self._held) - self._whole >= _MOST_APART:
                self._held[self._whole :] = self._as_one(self._held[self._whole :])
                self._whole = len(self._held)
        elif len(self._packed[0]) >= self._most_packed:
            self._join_packed()
        self._bytes += size_bytes
        room = (self._max_bytes - self._bytes) * len(loose) // max(size_bytes, 1)
        most = BLOCK_ARRAYS // max(len(self._layouts), 1)
        if self._packed:
            most = min(most, self._most_packed - len(self._packed[0]))
        self._most_loose = max(1, min(room // 2, 2 * len(loose), most))  # too late only where batches suddenly grow

    def _kept_bytes(self, columns: Sequence[Array]) -> int:
        """The bytes that held arrays keep alive, as far as they are not in proportion to the rows."""
        size_bytes = sum(map(_open_ended_bytes, columns))
        for column in columns:
            dictionary = column.dictionary
            if dictionary is not None and id(dictionary) not in self._met:
                self._met[id(dictionary)] = dictionary
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
            self._held += [RecordBatch(self._schema, row[0].length, row) for row in zip(*packed, strict=True)]
        else:
            self._held.append(RecordBatch(self._schema, columns[0].length, columns))
        self._whole = len(self._held)

    def _as_one(self, held: list[RecordBatch]) -> list[RecordBatch]:
        """Batches joined; as they are where their dictionaries are too many values for one."""
        if len(held) < 2:
            return held
        try:
            columns = self._joined(held)
        except DataTypeError:
            return held
        return [RecordBatch(self._schema, sum([batch.num_rows for batch in held]), columns)]

    def _joined(self, held: Sequence[RecordBatch]) -> list[Array]:
        arrays, width = self._columns(held), len(self._layouts)
        return [
            concat_unified(arrays[at::width]) if has_dictionary(layout) else layout.concat(arrays[at::width])
            for at, layout in enumerate(self._layouts)
        ]

    def _columns(self, batches: Sequence[RecordBatch]) -> list[Array]:
        """The columns of the first batch, then those of the next one; raises `UsageError` where one is not as its field
        or its batch says.
        """
        columns = list(chain.from_iterable([batch.source for batch in batches]))
        rows = [rows for batch in batches for rows in [batch.num_rows] * len(self._layouts)]
        is_fitting = [column.layout for column in columns] == self._layouts * len(batches)
        if is_fitting and [column.length for column in columns] == rows:
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
        if not getattr(self, "_closed", True) and self._rows + self._waiting_rows:
            rows = self._rows + self._waiting_rows
            warn_unclosed(self, f"{self._writer.name}: unclosed CoalescingWriter: {rows} rows were not written")

    def abandon(self) -> None:
        """Stop writing, as the writer's `abandon`."""
        with self._lock:
            self._closed = True
            self._held.clear()
            self._loose.clear()
            self._packed.clear()
            self._waiting_rows = 0
            self._waiting.clear()
            self._writer.abandon()

    def __repr__(self) -> str:
        rows, batches = self._rows + self._waiting_rows, len(self._held) + len(self._loose)
        batches += len(self._packed[0]) if self._packed else 0
        state = "closed" if self._closed else f"{rows} rows of {batches} batches held"
        return f"<bowstring.CoalescingWriter: {state}>"


_PLAIN = {list, tuple}


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

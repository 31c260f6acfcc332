"""Write record batches directly into shared memory: `new_shared_table`."""

from __future__ import annotations

import secrets
from threading import RLock
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from bowstring.arrays.array import Array
from bowstring.arrays.record_batch import RecordBatch
from bowstring.arrays.table import has_dictionary_fields
from bowstring.datatypes.schema import Schema, SchemaLike, as_schema
from bowstring.datatypes.types import DataType, FixedSizeList
from bowstring.errors import ClosedError, InvalidArgumentError, WouldCopyError, check_count, format_count
from bowstring.io.memory_source import MemorySource
from bowstring.io.sinks import open_sink
from bowstring.ipc.file import FileReader
from bowstring.ipc.stream import Encoder
from bowstring.ipc.writers import BatchWriter, FileWriter, StreamWriter
from bowstring.layouts.primitive import PrimitiveLayout
from bowstring.layouts.registry import layout_of
from bowstring.memory.available_memory import check_available_memory
from bowstring.memory.buffer import Memory
from bowstring.memory.closable import call_on_error
from bowstring.memory.region import Region, RegionBuilder, RegionWriter
from bowstring.sharing.deferred_copy_sink import DeferredCopySink
from bowstring.sharing.share import MAX_REGIONS, SharedTableHandle

_Memory = TypeVar("_Memory", RegionWriter, RegionBuilder)


class SharedTableWriter(BatchWriter):
    """Writes batches into new shared memory; created by `new_shared_table`. Use it in a `with` block.

    If the block raises no error, `handle` identifies the memory afterwards; otherwise the memory is freed. Several
    threads may write.

    >>> with bs.sharing.new_shared_table({"city": "string"}) as writer:
    ...     writer.write(bs.record_batch({"city": ["Riga"]}))
    ...     writer.write(bs.record_batch({"city": ["Lima", None]}))
    >>> with writer.handle as handle:
    ...     bs.attach(handle)["city"].to_pylist()
    ['Riga', 'Lima', None]
    """

    def __init__(self, schema: SchemaLike) -> None:
        self._schema = as_schema(schema, "new_shared_table: the schema")
        self._token = secrets.token_hex(16)
        self._lock = RLock()
        self._memories: list[RegionWriter | RegionBuilder] = []
        self._writer: FileWriter | StreamWriter | None = None
        self._arrays: list[npt.NDArray[Any]] = []
        self._num_rows = 0
        self._handle: SharedTableHandle | None = None
        self._is_closed = False

    @property
    def schema(self) -> Schema:
        """The schema of the batches."""
        return self._schema

    @property
    def handle(self) -> SharedTableHandle:
        """The handle, which owns the memory.

        Raises `InvalidArgumentError` if the writer is not closed, or was abandoned.
        """
        if self._handle is None:
            state = "abandoned" if self._is_closed else "not closed yet"
            raise InvalidArgumentError(
                f"the writer is {state}: a handle exists after its `with` block ended without an error"
            )
        return self._handle

    def write_batch(self, batch: RecordBatch) -> None:
        """Write one batch: its buffers are copied once.

        Raises `InvalidArgumentError` for another schema, `ResourceError` if memory or descriptors are exhausted; the
        latter abandons the writer.
        """
        with self._lock:
            self._check_open()
            try:
                self._open_writer().write_batch(batch)
            except InvalidArgumentError:  # nothing of the batch was written
                raise
            except BaseException:
                self.abandon()
                raise
            self._num_rows += batch.num_rows

    def allocate(self, num_rows: int) -> dict[str, npt.NDArray[Any]]:
        """Allocate a batch of `num_rows` rows, and return its columns by name: NumPy arrays in the shared memory, zero
        until they are filled.

        Fixed-size lists have the shape (num_rows, list_size). When the writer is closed, the arrays become read-only;
        what is written to earlier views of them is private to this process. Raises `InvalidArgumentError` for a type
        whose values NumPy can't use in place, such as strings, `ResourceError` if memory or descriptors are exhausted.

        >>> with bs.sharing.new_shared_table({"id": "int64", "price": "float64"}) as writer:
        ...     columns = writer.allocate(2)
        ...     columns["id"][:], columns["price"][:] = [1, 2], [0.5, 1.5]
        >>> with writer.handle as handle:
        ...     bs.attach(handle).to_pydict()
        {'id': [1, 2], 'price': [0.5, 1.5]}
        """
        with self._lock:
            self._check_open()
            if len(set(self._schema.names)) < len(self._schema):
                raise InvalidArgumentError("allocate: expected a schema with different names of columns")
            batch = _zero_batch(self._schema, num_rows)
            sink = DeferredCopySink(self._name, has_bodies=False)
            # Only the headers and the footer are needed: new memory has the zeros of the bodies already.
            with FileWriter(sink, Encoder(self._schema)) as writer:
                writer.write_batch(batch)
            self._close_writer()
            memory = self._add_memory(Region.create_builder(sink.position, self._name))
            sink.copy_into(memory.memory)
            columns = _writable_columns(memory)
            self._arrays += columns.values()
            self._num_rows += num_rows
            return columns

    def close(self) -> None:
        """End writing: seal the memory and create `handle`. Idempotent. Raises `ResourceError`."""
        with self._lock:
            if self._is_closed:
                return
            if not self._memories:
                self._open_writer()
            with call_on_error(self.abandon):
                self._close_writer()
                regions = self._seal_memories()
            self._is_closed = True
            self._memories.clear()
            self._handle = SharedTableHandle(regions, self._num_rows, self._token)

    def abandon(self) -> None:
        """Stop writing and free the memory. Idempotent."""
        with self._lock:
            self._is_closed = True
            writer, self._writer = self._writer, None
            if writer is not None:
                writer.abandon()
            for memory in self._memories:
                memory.close()
            self._memories.clear()

    @property
    def _name(self) -> str:
        return f"share-{self._token}"

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError("the writer is closed")

    def _open_writer(self) -> FileWriter | StreamWriter:
        """Return the writer of the last region; add a region if there is none or it was allocated."""
        if self._writer is None:
            # A file can't replace a dictionary, and later batches may have other ones.
            may_replace = has_dictionary_fields(self._schema)
            memory = self._add_memory(Region.create_writer(self._name))
            kind = StreamWriter if may_replace else FileWriter
            self._writer = kind(open_sink(memory.fileno()), Encoder(self._schema, may_replace=may_replace))
        return self._writer

    def _close_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def _add_memory(self, memory: _Memory) -> _Memory:
        with call_on_error(memory.close):
            if len(self._memories) >= MAX_REGIONS:
                raise InvalidArgumentError(f"expected at most {MAX_REGIONS} calls of allocate")
        self._memories.append(memory)
        return memory

    def _seal_memories(self) -> tuple[Region, ...]:
        # Views that a caller has taken of the arrays stay writable: their pages become private, or the kernel would
        # refuse to seal memory that is mapped for writing.
        for array in self._arrays:
            array.flags.writeable = False
        self._arrays.clear()
        regions: list[Region] = []
        for memory in self._memories:
            if isinstance(memory, RegionBuilder):
                memory.make_views_private()
            regions.append(memory.seal())
        return tuple(regions)

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else format_count(self._num_rows, "row")
        return f"<bowstring.sharing.SharedTableWriter: {state}>"


def _writable_columns(memory: RegionBuilder) -> dict[str, npt.NDArray[Any]]:
    """Return the columns of the only batch of the file in this memory as writable arrays, without copying."""
    whole = Memory(memory.memory)
    batch = FileReader(MemorySource(whole, memory.name)).read_all().to_batches()[0]
    columns = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        values = column.to_numpy()
        offset = values.__array_interface__["data"][0] - whole.address if values.size else 0
        columns[name] = np.ndarray(values.shape, values.dtype, memory.memory, offset)
    return columns


def _zero_batch(schema: Schema, num_rows: int) -> RecordBatch:
    """Return a batch of zeros, whose memory the system does not allocate as long as it is not read."""
    check_count("allocate: num_rows", num_rows)
    arrays = []
    for field in schema:
        array = _zero_array(field.type, num_rows)
        if array is None:
            raise InvalidArgumentError(
                f"allocate: column {field.name!r}: expected a type whose values NumPy can use in place, "
                f"not {field.type}"
            )
        arrays.append(array)
    return RecordBatch.from_arrays(arrays, schema=schema)


def _zero_array(type: DataType, length: int) -> Array | None:
    """Return an array of zeros; None for types whose NumPy arrays can't be views of the buffers."""
    if isinstance(type, FixedSizeList):
        items = _zero_array(type.value_field.type, length * type.list_size)
        return None if items is None else Array.from_buffers(type, length, [None], [items], null_count=0)
    layout = layout_of(type)
    if not isinstance(layout, PrimitiveLayout) or not _supports_numpy_view(type, layout.dtype):
        return None
    check_available_memory(length * layout.dtype.itemsize, "new_shared_table")  # also of lengths that NumPy rejects
    return Array.from_buffers(type, length, [None, np.zeros(length, layout.dtype)], null_count=0)


def _supports_numpy_view(type: DataType, dtype: np.dtype[Any]) -> bool:
    """Whether NumPy arrays of a type are views of its buffers. Decimals and `date32` are converted."""
    try:
        Array.from_buffers(type, 1, [None, np.zeros(1, dtype)]).to_numpy()
    except WouldCopyError:
        return False
    return True


def new_shared_table(schema: SchemaLike) -> SharedTableWriter:
    """Create a writer of shared memory: a table that is produced batch by batch, or filled in place, needs no copy.

    `write` appends batches, `allocate` returns NumPy arrays to fill. After the `with` block, `handle` is the handle of
    the table. Raises `UnsupportedTypeError` for a schema that can't be written, `ResourceError` if memory or
    descriptors are exhausted.

    >>> with bs.sharing.new_shared_table({"id": "int64"}) as writer:
    ...     writer.allocate(3)["id"][:] = [7, 8, 9]  # a NumPy array in shared memory
    >>> with writer.handle as handle:
    ...     bs.attach(handle)["id"].to_pylist()
    [7, 8, 9]
    """
    return SharedTableWriter(schema)

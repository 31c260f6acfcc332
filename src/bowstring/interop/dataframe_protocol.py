"""The dataframe interchange protocol, `__dataframe__`: a table as columns of numbers, text, timestamps and categories.

It is older and supports fewer types than the PyCapsule interface, and pandas has deprecated it. Some plotting libraries
still require it of tables from unknown libraries; nothing else in Bowstring uses it. Buffers are shared if the protocol
has the same layout. Booleans are copied to bytes, and string views and columns of several chunks are copied, unless
`allow_copy` is False.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Any, TypeAlias

import numpy as np

from bowstring.arrays.chunked_array import combine_chunks_widened
from bowstring.arrays.record_batch import RecordBatch
from bowstring.arrays.table import Table
from bowstring.compute.encode import run_end_decode
from bowstring.datatypes import types as t
from bowstring.errors import DataTypeError, UsageError, WouldCopyError
from bowstring.interop import c_data
from bowstring.interop.c_device import CPU
from bowstring.interop.c_format import format_string
from bowstring.layouts.array import Array
from bowstring.layouts.boolean import BooleanLayout
from bowstring.layouts.registry import layout_of
from bowstring.memory.buffer import EMPTY, Buffer


class DtypeKind(IntEnum):
    """The kind of a column's values, as defined by the protocol."""

    INT = 0
    UINT = 1
    FLOAT = 2
    BOOL = 20
    STRING = 21
    DATETIME = 22
    CATEGORICAL = 23


Dtype: TypeAlias = tuple[DtypeKind, int, str, str]
"""Kind, bits per element, format string of the C data interface, byte order."""

_NO_NULLS, _BITMASK = 0, 3
_BITMASK_DTYPE: Dtype = (DtypeKind.BOOL, 1, "b", "=")


class InterchangeBuffer:
    """Contiguous CPU memory."""

    __slots__ = ("_buffer",)

    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer

    @property
    def bufsize(self) -> int:
        """The length in bytes."""
        return self._buffer.size

    @property
    def ptr(self) -> int:
        """The address of the first byte."""
        return self._buffer.address

    def __dlpack__(self) -> Any:
        raise NotImplementedError("buffers of the interchange protocol don't support DLPack: read them at `ptr`")

    def __dlpack_device__(self) -> tuple[int, None]:
        return CPU, None

    def __deepcopy__(self, _: object) -> InterchangeBuffer:
        """Return the buffer itself, which is immutable. pandas keeps buffers in the attributes of a frame, and copies
        those.
        """
        return self

    def __repr__(self) -> str:
        return f"<bowstring interchange buffer of {self.bufsize} bytes at {self.ptr:#x}>"


class InterchangeColumn:
    """A column of one chunk. Raises `DataTypeError` for a type that the protocol does not support."""

    __slots__ = ("_allow_copy", "_array", "dtype", "metadata")

    def __init__(self, array: Array, allow_copy: bool = True) -> None:
        if isinstance(array.type, t.Utf8View | t.RunEndEncoded):
            if not allow_copy:
                raise WouldCopyError(f"the interchange protocol has no {array.type}: set allow_copy=True to convert it")
            decoded = run_end_decode(array)
            array = decoded.cast(t.LargeUtf8()) if isinstance(decoded.type, t.Utf8View) else decoded
        self.dtype: Dtype = _dtype(array.type)
        self.metadata: dict[str, Any] = {}
        self._array = array.compact()
        self._allow_copy = allow_copy

    def size(self) -> int:
        """The number of values."""
        return self._array.length

    @property
    def offset(self) -> int:
        """The offset of the first value in the buffers: always 0."""
        return 0

    @property
    def null_count(self) -> int:
        """The number of nulls."""
        return self._array.null_count

    @property
    def describe_null(self) -> tuple[int, int | None]:
        """How nulls are represented: not at all, or by a zero in a bitmap."""
        return (_BITMASK, 0) if self._array.null_count else (_NO_NULLS, None)

    @property
    def describe_categorical(self) -> dict[str, Any]:
        """The categories and whether they are ordered. Raises `DataTypeError` if the column is not categorical."""
        type_, dictionary = self._array.type, self._array.dictionary
        if not isinstance(type_, t.Dictionary) or dictionary is None:
            raise DataTypeError(f"a column of {type_} has no categories")
        return {
            "is_ordered": type_.ordered,
            "is_dictionary": True,
            "categories": InterchangeColumn(dictionary, self._allow_copy),
        }

    def num_chunks(self) -> int:
        """Always 1."""
        return 1

    def get_chunks(self, n_chunks: int | None = None) -> Iterator[InterchangeColumn]:
        """The column split into `n_chunks` chunks, or as one."""
        return (InterchangeColumn(chunk, self._allow_copy) for chunk in _split(self._array, n_chunks))

    def get_buffers(self) -> dict[str, tuple[InterchangeBuffer, Dtype] | None]:
        """The buffers "data", "validity" and "offsets", each with its dtype; None for a missing buffer."""
        array = self._array
        validity = array.buffers[0] if array.null_count else None
        offsets = None
        if self.dtype[0] is DtypeKind.STRING:
            layout = array.layout
            bits = layout.buffers[1].size_bytes(1) * 4  # two offsets
            offsets = _with_dtype(array.buffers[1], (DtypeKind.INT, bits, "i" if bits == 32 else "l", "="))
            data = _with_dtype(array.buffers[2], (DtypeKind.UINT, 8, "C", "="))
        elif isinstance(array.layout, BooleanLayout):
            if not self._allow_copy:
                raise WouldCopyError(
                    "the interchange protocol stores booleans as bytes, Arrow as bits: set allow_copy=True"
                )
            data = _with_dtype(Buffer.of(array.layout.bits(array).view(np.uint8)), self.dtype)
        elif isinstance(array.type, t.Dictionary):
            data = _with_dtype(array.buffers[1], _dtype(array.type.index_type))
        else:
            data = _with_dtype(array.buffers[1], self.dtype)
        return {
            "data": data,
            "validity": None if validity is None else _with_dtype(validity, _BITMASK_DTYPE),
            "offsets": offsets,
        }


def _with_dtype(buffer: Buffer | None, dtype: Dtype) -> tuple[InterchangeBuffer, Dtype]:
    return InterchangeBuffer(EMPTY if buffer is None else buffer), dtype


def _dtype(type_: t.DataType) -> Dtype:
    if isinstance(type_, t.Dictionary):
        codes = _dtype(type_.index_type)
        return (DtypeKind.CATEGORICAL, *codes[1:])
    kind = _DTYPE_KINDS.get(type(type_))
    if kind is None:
        raise DataTypeError(f"the dataframe interchange protocol does not support {type_}: drop or cast the column")
    if isinstance(type_, t.Int) and not type_.is_signed:
        kind = DtypeKind.UINT
    bits = 8 if kind in (DtypeKind.BOOL, DtypeKind.STRING) else layout_of(type_).buffers[1].size_bytes(1) * 8
    return kind, bits, format_string(type_).decode(), "="


_DTYPE_KINDS: dict[type[t.DataType], DtypeKind] = {
    t.Int: DtypeKind.INT,
    t.FloatingPoint: DtypeKind.FLOAT,
    t.Bool: DtypeKind.BOOL,
    t.Utf8: DtypeKind.STRING,
    t.LargeUtf8: DtypeKind.STRING,
    t.Date: DtypeKind.DATETIME,
    t.Timestamp: DtypeKind.DATETIME,
}


def _split(values: Any, num_chunks: int | None) -> list[Any]:
    if num_chunks is not None and num_chunks < 1:
        raise UsageError(f"n_chunks must be at least 1, found {num_chunks}")
    length = max(-(-len(values) // (num_chunks or 1)), 1)
    return [values.slice(start, length) for start in range(0, max(len(values), 1), length)]


class InterchangeFrame:
    """A table for `__dataframe__`. Its chunks are the record batches."""

    __slots__ = ("_allow_copy", "_table")

    version = 0
    """The version of the protocol."""

    def __init__(self, table: Table | RecordBatch, allow_copy: bool = True) -> None:
        self._table = Table(table.schema, [table]) if isinstance(table, RecordBatch) else table
        self._allow_copy = allow_copy

    def __dataframe__(self, nan_as_null: bool = False, allow_copy: bool = True) -> InterchangeFrame:
        if nan_as_null:
            raise UsageError("nan_as_null=True is not supported: NaN is a value")
        return InterchangeFrame(self._table, allow_copy)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return c_data.export_stream(self._table.schema, self._table.to_batches(), requested_schema)

    @property
    def _df(self) -> Table:
        """The table. narwhals reads this attribute after selecting columns."""
        return self._table

    @property
    def metadata(self) -> dict[str, Any]:
        """Empty: the protocol does not carry the schema's metadata."""
        return {}

    def num_columns(self) -> int:
        """The number of columns."""
        return self._table.num_columns

    def num_rows(self) -> int:
        """The number of rows."""
        return self._table.num_rows

    def num_chunks(self) -> int:
        """The number of record batches."""
        return len(self._table.to_batches())

    def column_names(self) -> list[str]:
        """The names of the columns."""
        return self._table.column_names

    def get_column(self, i: int) -> InterchangeColumn:
        """The column with this index, in one chunk."""
        return self._column(i)

    def get_column_by_name(self, name: str) -> InterchangeColumn:
        """The column with this name, in one chunk."""
        return self._column(name)

    def _column(self, key: int | str) -> InterchangeColumn:
        column = self._table.column(key)
        if column.num_chunks > 1 and not self._allow_copy:
            raise WouldCopyError(
                f"column {key!r} has {column.num_chunks} chunks: use get_chunks, or set allow_copy=True"
            )
        return InterchangeColumn(combine_chunks_widened(column), self._allow_copy)

    def get_columns(self) -> list[InterchangeColumn]:
        """All columns."""
        return [self.get_column(index) for index in range(self.num_columns())]

    def select_columns(self, indices: Sequence[int]) -> InterchangeFrame:
        """The columns with these indices."""
        return InterchangeFrame(self._table.select(indices), self._allow_copy)

    def select_columns_by_name(self, names: Sequence[str]) -> InterchangeFrame:
        """The columns with these names."""
        return InterchangeFrame(self._table.select(names), self._allow_copy)

    def get_chunks(self, n_chunks: int | None = None) -> Iterator[InterchangeFrame]:
        """The record batches, split evenly into `n_chunks` chunks in total, a multiple of the number of batches."""
        batches = self._table.to_batches()
        chunks_per_batch = None
        if n_chunks is not None and batches:
            chunks_per_batch, remainder = divmod(n_chunks, len(batches))
            if remainder or not chunks_per_batch:
                raise UsageError(f"n_chunks must be a multiple of the {len(batches)} record batches, found {n_chunks}")
        return (
            InterchangeFrame(chunk, self._allow_copy) for batch in batches for chunk in _split(batch, chunks_per_batch)
        )

"""The dataframe interchange protocol, `__dataframe__`: a table as columns of numbers, text, moments and categories.

It is older and knows less than the PyCapsule interface, and pandas has begun to give it up. Some tools for plotting
still look for it before they take a table of a library that they do not know; so it is here, and nothing else of ours
uses it. Buffers are shared but for what the protocol has no layout for: bits become bytes, and text behind views and
columns of several chunks are copied, unless `allow_copy` is False.
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
from bowstring.interop.c_format import format_of
from bowstring.layouts.array import Array
from bowstring.layouts.boolean import BooleanLayout
from bowstring.layouts.registry import layout_of
from bowstring.memory.buffer import EMPTY, Buffer


class Kind(IntEnum):
    """What a column holds (`DtypeKind` of the protocol)."""

    INT = 0
    UINT = 1
    FLOAT = 2
    BOOL = 20
    STRING = 21
    DATETIME = 22
    CATEGORICAL = 23


Dtype: TypeAlias = tuple[Kind, int, str, str]
"""Kind, bits of an element, format string of the C data interface, byte order."""

_NO_NULLS, _BITMASK = 0, 3
_BITS: Dtype = (Kind.BOOL, 1, "b", "=")


class InterchangeBuffer:
    """Contiguous memory of the CPU."""

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
        raise NotImplementedError("a buffer of the interchange protocol is read at its address")

    def __dlpack_device__(self) -> tuple[int, None]:
        return CPU, None

    def __deepcopy__(self, _: object) -> InterchangeBuffer:
        """The same memory: it is immutable, and pandas copies its frames' attributes, in which it keeps the buffers."""
        return self

    def __repr__(self) -> str:
        return f"<bowstring interchange buffer of {self.bufsize} bytes at {self.ptr:#x}>"


class InterchangeColumn:
    """One column in one piece; raises `DataTypeError` when it is made for a type that the protocol does not know."""

    __slots__ = ("_allow_copy", "_array", "dtype", "metadata")

    def __init__(self, array: Array, allow_copy: bool = True) -> None:
        if isinstance(array.type, t.Utf8View | t.RunEndEncoded):
            if not allow_copy:
                raise WouldCopyError(f"the interchange protocol has no {array.type}: allow the copy")
            plain = run_end_decode(array)
            array = plain.cast(t.LargeUtf8()) if isinstance(plain.type, t.Utf8View) else plain
        self.dtype: Dtype = _dtype(array.type)
        self.metadata: dict[str, Any] = {}
        self._array = array.compact()
        self._allow_copy = allow_copy

    def size(self) -> int:
        """The number of values."""
        return self._array.length

    @property
    def offset(self) -> int:
        """The first value's place in the buffers: always 0."""
        return 0

    @property
    def null_count(self) -> int:
        """The number of nulls."""
        return self._array.null_count

    @property
    def describe_null(self) -> tuple[int, int | None]:
        """How nulls are said: not at all, or by a zero in a bitmap."""
        return (_BITMASK, 0) if self._array.null_count else (_NO_NULLS, None)

    @property
    def describe_categorical(self) -> dict[str, Any]:
        """Whether the categories have an order, and what they are. Raises `DataTypeError` for any other column."""
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
        """The column in `n_chunks` pieces, or whole."""
        return (InterchangeColumn(part, self._allow_copy) for part in _cut(self._array, n_chunks))

    def get_buffers(self) -> dict[str, tuple[InterchangeBuffer, Dtype] | None]:
        """The buffers "data", "validity" and "offsets", each with its dtype; None for one that there is not."""
        array = self._array
        validity = array.buffers[0] if array.null_count else None
        offsets = None
        if self.dtype[0] is Kind.STRING:
            layout = array.layout
            bits = layout.buffers[1].size_bytes(1) * 4  # two offsets
            offsets = _with_dtype(array.buffers[1], (Kind.INT, bits, "i" if bits == 32 else "l", "="))
            data = _with_dtype(array.buffers[2], (Kind.UINT, 8, "C", "="))
        elif isinstance(array.layout, BooleanLayout):
            if not self._allow_copy:
                raise WouldCopyError("booleans are bits here and bytes in the interchange protocol: allow the copy")
            data = _with_dtype(Buffer.of(array.layout.bits(array).view(np.uint8)), self.dtype)
        elif isinstance(array.type, t.Dictionary):
            data = _with_dtype(array.buffers[1], _dtype(array.type.index_type))
        else:
            data = _with_dtype(array.buffers[1], self.dtype)
        return {
            "data": data,
            "validity": None if validity is None else _with_dtype(validity, _BITS),
            "offsets": offsets,
        }


def _with_dtype(buffer: Buffer | None, dtype: Dtype) -> tuple[InterchangeBuffer, Dtype]:
    return InterchangeBuffer(EMPTY if buffer is None else buffer), dtype


def _dtype(type_: t.DataType) -> Dtype:
    if isinstance(type_, t.Dictionary):
        codes = _dtype(type_.index_type)
        return (Kind.CATEGORICAL, *codes[1:])
    kind = _KINDS.get(type(type_))
    if kind is None:
        raise DataTypeError(f"the dataframe interchange protocol has no {type_}: leave the column out, or cast it")
    if isinstance(type_, t.Int) and not type_.is_signed:
        kind = Kind.UINT
    bits = 8 if kind in (Kind.BOOL, Kind.STRING) else layout_of(type_).buffers[1].size_bytes(1) * 8
    return kind, bits, format_of(type_).decode(), "="


_KINDS: dict[type[t.DataType], Kind] = {
    t.Int: Kind.INT,
    t.FloatingPoint: Kind.FLOAT,
    t.Bool: Kind.BOOL,
    t.Utf8: Kind.STRING,
    t.LargeUtf8: Kind.STRING,
    t.Date: Kind.DATETIME,
    t.Timestamp: Kind.DATETIME,
}


def _cut(whole: Any, pieces: int | None) -> list[Any]:
    if pieces is not None and pieces < 1:
        raise UsageError(f"there are at least 1 chunks, not {pieces}")
    size = max(-(-len(whole) // (pieces or 1)), 1)
    return [whole.slice(start, size) for start in range(0, max(len(whole), 1), size)]


class InterchangeFrame:
    """A table for `__dataframe__`; its chunks are the record batches."""

    __slots__ = ("_allow_copy", "_table")

    version = 0
    """Of the protocol."""

    def __init__(self, table: Table | RecordBatch, allow_copy: bool = True) -> None:
        self._table = Table(table.schema, [table]) if isinstance(table, RecordBatch) else table
        self._allow_copy = allow_copy

    def __dataframe__(self, nan_as_null: bool = False, allow_copy: bool = True) -> InterchangeFrame:
        if nan_as_null:
            raise UsageError("nan_as_null: NaN is a value")
        return InterchangeFrame(self._table, allow_copy)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return c_data.export_stream(self._table.schema, self._table.to_batches(), requested_schema)

    @property
    def _df(self) -> Table:
        """The table itself, under the name by which narwhals gets it back after it has chosen columns."""
        return self._table

    @property
    def metadata(self) -> dict[str, Any]:
        """Nothing: the schema's metadata travels by capsules."""
        return {}

    def num_columns(self) -> int:
        """How many columns there are."""
        return self._table.num_columns

    def num_rows(self) -> int:
        """How many rows there are."""
        return self._table.num_rows

    def num_chunks(self) -> int:
        """How many record batches there are."""
        return len(self._table.to_batches())

    def column_names(self) -> list[str]:
        """The names of the columns."""
        return self._table.column_names

    def get_column(self, i: int) -> InterchangeColumn:
        """A column by its index, in one piece."""
        return self._column(i)

    def get_column_by_name(self, name: str) -> InterchangeColumn:
        """A column by its name, in one piece."""
        return self._column(name)

    def _column(self, key: int | str) -> InterchangeColumn:
        column = self._table.column(key)
        if column.num_chunks > 1 and not self._allow_copy:
            raise WouldCopyError(
                f"column {key!r} has {column.num_chunks} chunks: take them one by one, or allow the copy"
            )
        return InterchangeColumn(combine_chunks_widened(column), self._allow_copy)

    def get_columns(self) -> list[InterchangeColumn]:
        """All columns."""
        return [self.get_column(index) for index in range(self.num_columns())]

    def select_columns(self, indices: Sequence[int]) -> InterchangeFrame:
        """Some of the columns, by index."""
        return InterchangeFrame(self._table.select(indices), self._allow_copy)

    def select_columns_by_name(self, names: Sequence[str]) -> InterchangeFrame:
        """Some of the columns, by name."""
        return InterchangeFrame(self._table.select(names), self._allow_copy)

    def get_chunks(self, n_chunks: int | None = None) -> Iterator[InterchangeFrame]:
        """The record batches, each cut into as many pieces as make `n_chunks` of all, which is a multiple of them."""
        batches = self._table.to_batches()
        pieces = None
        if n_chunks is not None and batches:
            pieces, rest = divmod(n_chunks, len(batches))
            if rest or not pieces:
                raise UsageError(f"{n_chunks} chunks are no multiple of the {len(batches)} there are")
        return (InterchangeFrame(part, self._allow_copy) for batch in batches for part in _cut(batch, pieces))

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

from bowstring.compute.cast import cast
from bowstring.compute.column_chunks import ColumnChunks, combine_with_wider_indices
from bowstring.compute.encode import run_end_decode
from bowstring.datatypes import types as t
from bowstring.errors import InvalidArgumentError, TypeMismatchError, WouldCopyError
from bowstring.interop.c_device import CPU
from bowstring.layouts.array_data import ArrayData
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
    """A column of one chunk. Raises `TypeMismatchError` for a type that the protocol does not support."""

    __slots__ = ("_allow_copy", "_array", "dtype", "metadata")

    def __init__(self, array: ArrayData, allow_copy: bool = True) -> None:
        if isinstance(array.type, t.Utf8View | t.RunEndEncoded):
            if not allow_copy:
                raise WouldCopyError(f"the interchange protocol has no {array.type}: set allow_copy=True to convert it")
            decoded = run_end_decode(array)
            array = cast(decoded, t.LargeUtf8()) if isinstance(decoded.type, t.Utf8View) else decoded
        self.dtype: Dtype = _protocol_dtype(array.type)
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
        """The categories and whether they are ordered. Raises `TypeMismatchError` if the column is not categorical."""
        type_, dictionary = self._array.type, self._array.dictionary
        if not isinstance(type_, t.Dictionary) or dictionary is None:
            raise TypeMismatchError(f"a column of {type_} has no categories")
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
        spans = _chunk_spans(self._array.length, n_chunks)
        return (InterchangeColumn(self._array.slice(*span), self._allow_copy) for span in spans)

    def get_buffers(self) -> dict[str, tuple[InterchangeBuffer, Dtype] | None]:
        """The buffers "data", "validity" and "offsets", each with its dtype; None for a missing buffer."""
        array, layout = self._array, self._array.layout
        validity = array.validity
        data: Buffer | None = array.buffers[1]
        dtype, offsets = self.dtype, None
        if dtype[0] is DtypeKind.STRING:
            bits = layout.buffers[1].size_bytes(1) * 4  # a slot has two offsets
            offsets = _buffer_with_dtype(data, (DtypeKind.INT, bits, "i" if bits == 32 else "l", "="))
            data, dtype = array.buffers[2], (DtypeKind.UINT, 8, "C", "=")
        elif isinstance(layout, BooleanLayout):
            if not self._allow_copy:
                raise WouldCopyError(
                    "the interchange protocol stores booleans as bytes, Arrow as bits: set allow_copy=True"
                )
            data = Buffer.of(layout.unpack_values(array).view(np.uint8))
        elif isinstance(array.type, t.Dictionary):
            dtype = _protocol_dtype(array.type.index_type)
        return {
            "data": _buffer_with_dtype(data, dtype),
            "validity": None if validity is None else _buffer_with_dtype(validity, _BITMASK_DTYPE),
            "offsets": offsets,
        }


def _buffer_with_dtype(buffer: Buffer | None, dtype: Dtype) -> tuple[InterchangeBuffer, Dtype]:
    return InterchangeBuffer(EMPTY if buffer is None else buffer), dtype


def _protocol_dtype(type_: t.DataType) -> Dtype:
    if isinstance(type_, t.Dictionary):
        codes = _protocol_dtype(type_.index_type)
        return (DtypeKind.CATEGORICAL, *codes[1:])
    kind = _DTYPE_KINDS.get(type(type_))
    if kind is None:
        raise TypeMismatchError(f"the dataframe interchange protocol does not support {type_}: drop or cast the column")
    if isinstance(type_, t.Int) and not type_.is_signed:
        kind = DtypeKind.UINT
    bits = 8 if kind in (DtypeKind.BOOL, DtypeKind.STRING) else layout_of(type_).buffers[1].size_bytes(1) * 8
    return kind, bits, type_.c_format().decode(), "="


_DTYPE_KINDS: dict[type[t.DataType], DtypeKind] = {
    t.Int: DtypeKind.INT,
    t.FloatingPoint: DtypeKind.FLOAT,
    t.Bool: DtypeKind.BOOL,
    t.Utf8: DtypeKind.STRING,
    t.LargeUtf8: DtypeKind.STRING,
    t.Date: DtypeKind.DATETIME,
    t.Timestamp: DtypeKind.DATETIME,
}


def _chunk_spans(length: int, num_chunks: int | None) -> list[tuple[int, int]]:
    """Return the start and the length of each of `num_chunks` parts (by default one) of a sequence."""
    if num_chunks is not None and num_chunks < 1:
        raise InvalidArgumentError(f"n_chunks must be at least 1, found {num_chunks}")
    size = max(-(-length // (num_chunks or 1)), 1)
    return [(start, min(size, length - start)) for start in range(0, max(length, 1), size)]


class InterchangeFrame:
    """A record batch or a table for `__dataframe__`. Its chunks are the record batches."""

    __slots__ = ("_allow_copy", "_batch_lengths", "_frame")

    version = 0
    """The version of the protocol."""

    def __init__(self, frame: Any, batch_lengths: Sequence[int], allow_copy: bool = True) -> None:
        """`frame` is a record batch or a table, `batch_lengths` has the number of rows of each of its batches."""
        self._frame = frame
        self._batch_lengths = batch_lengths
        self._allow_copy = allow_copy

    def __dataframe__(self, nan_as_null: bool = False, allow_copy: bool = True) -> InterchangeFrame:
        if nan_as_null:
            raise InvalidArgumentError("nan_as_null=True is not supported: NaN is a value")
        return InterchangeFrame(self._frame, self._batch_lengths, allow_copy)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._frame.__arrow_c_stream__(requested_schema)

    @property
    def _df(self) -> Any:
        """The frame. narwhals reads this attribute after selecting columns."""
        return self._frame

    @property
    def metadata(self) -> dict[str, Any]:
        """Empty: the protocol does not carry the schema's metadata."""
        return {}

    def num_columns(self) -> int:
        """The number of columns."""
        return int(self._frame.num_columns)

    def num_rows(self) -> int:
        """The number of rows."""
        return int(self._frame.num_rows)

    def num_chunks(self) -> int:
        """The number of record batches."""
        return len(self._batch_lengths)

    def column_names(self) -> list[str]:
        """The names of the columns."""
        return list(self._frame.column_names)

    def get_column(self, i: int) -> InterchangeColumn:
        """The column with this index, in one chunk."""
        return self.get_column_by_name(i)

    def get_column_by_name(self, name: int | str) -> InterchangeColumn:
        """The column with this name, in one chunk."""
        column: ArrayData | ColumnChunks = self._frame.column(name)
        if isinstance(column, ArrayData):
            return InterchangeColumn(column, self._allow_copy)
        if column.num_chunks > 1 and not self._allow_copy:
            raise WouldCopyError(
                f"column {name!r} has {column.num_chunks} chunks: use get_chunks, or set allow_copy=True"
            )
        return InterchangeColumn(combine_with_wider_indices(column), self._allow_copy)

    def get_columns(self) -> list[InterchangeColumn]:
        """All columns."""
        return [self.get_column(index) for index in range(self.num_columns())]

    def select_columns(self, indices: Sequence[int]) -> InterchangeFrame:
        """The columns with these indices."""
        return self.select_columns_by_name(indices)

    def select_columns_by_name(self, names: Sequence[int] | Sequence[str]) -> InterchangeFrame:
        """The columns with these names."""
        return InterchangeFrame(self._frame.select(names), self._batch_lengths, self._allow_copy)

    def get_chunks(self, n_chunks: int | None = None) -> Iterator[InterchangeFrame]:
        """The record batches, split evenly into `n_chunks` chunks in total, a multiple of the number of batches."""
        num_batches, chunks_per_batch = len(self._batch_lengths), None
        if n_chunks is not None and num_batches:
            chunks_per_batch, remainder = divmod(n_chunks, num_batches)
            if remainder or not chunks_per_batch:
                raise InvalidArgumentError(
                    f"n_chunks must be a multiple of the {num_batches} record batches, found {n_chunks}"
                )
        return self._iter_chunks(chunks_per_batch)

    def _iter_chunks(self, chunks_per_batch: int | None) -> Iterator[InterchangeFrame]:
        first_row = 0
        for batch_length in self._batch_lengths:
            for start, length in _chunk_spans(batch_length, chunks_per_batch):
                yield InterchangeFrame(self._frame.slice(first_row + start, length), [length], self._allow_copy)
            first_row += batch_length

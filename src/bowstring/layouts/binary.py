"""«Variable-size Binary Layout»: validity, offsets and data.

>>> import bowstring as bs
>>> array = bs.array(["joe", None, None, "mark"])
>>> array.values(1).tolist()
[0, 3, 3, 3, 7]
>>> array.buffers[2].to_bytes()
b'joemark'
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from io import BytesIO
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bowstring.errors import DataTypeError, InvalidDataError, UsageError
from bowstring.layouts import text
from bowstring.layouts.array import Array
from bowstring.layouts.array_batcher import batch_arrays
from bowstring.layouts.base import (
    VALIDITY,
    BufferSpec,
    Indices,
    Layout,
    Role,
    Values,
    compact_validity,
    first_true,
    is_null_at,
    pack_validity,
    short_repr,
    to_buffer,
)
from bowstring.layouts.concatenation import buffer_sizes, concat_bytes, concat_lengths, concat_validity
from bowstring.layouts.equality import all_blocks, bytes_equal
from bowstring.layouts.hashing import factorize_bytes
from bowstring.layouts.interleave import SlotSelection
from bowstring.layouts.python_conversion import (
    FEW_VALUES,
    drop_nulls,
    fill_few_nulls,
    iter_blocks,
    put_valid,
    unsigned_integers,
    value_lengths,
)
from bowstring.layouts.sort_keys import rank_bytes
from bowstring.layouts.value_codecs.base import is_bytes
from bowstring.memory.buffer import EMPTY, UINT8, Buffer, Bytes

if TYPE_CHECKING:
    from bowstring.datatypes.types import DataType
    from bowstring.memory.bitmap import Mask


_BLOCK_VALUES = 1 << 12
_BLOCK_BYTES = 1 << 16
"""glibc may request 128 KB and more from the system each time, which takes longer than filling it."""
_SAMPLE_VALUES = 32


def conversion_error(values: Sequence[Any], is_text: bool, type: DataType) -> DataTypeError:
    """Return the error for values that `encode_values` rejected, naming the first one."""
    for index, value in enumerate(values):
        if value is not None and not (isinstance(value, str) if is_text else is_bytes(value)):
            return DataTypeError(f"value {index}: {short_repr(value)} cannot be converted to {type}")
    return DataTypeError(f"a value cannot be converted to {type}: UTF-8 does not encode surrogates")


def encode_values(values: Sequence[Any], is_text: bool) -> tuple[Bytes, Values, Mask | None]:
    """Concatenate strings or byte strings; return the bytes, the lengths in bytes, and the mask of valid values.

    The mask is None if all values are valid. Raises TypeError for other values, and UnicodeEncodeError.
    """
    write = _write_text if is_text else _write_bytes
    out, lengths, mask = BytesIO(), [np.empty(0, UINT8)], None
    for selection, block in iter_blocks(values, _BLOCK_VALUES):
        start = out.tell()
        if mask is None:
            try:
                lengths.append(write(out, block))
                continue
            except TypeError:
                out.seek(start)  # the block is written again without nulls
                mask = np.ones(len(values), np.bool_)
        valid_values, valid = drop_nulls(block, "" if is_text else b"")
        valid_lengths = write(out, valid_values)
        if valid is not None:
            mask[selection] = valid
        lengths.append(np.zeros(len(block), valid_lengths.dtype))
        put_valid(valid_lengths, valid, lengths[-1])
    return np.frombuffer(out.getvalue(), UINT8), np.concatenate(lengths), mask


def _write_bytes(out: BytesIO, values: list[Any]) -> Values:
    lengths, start = value_lengths(values), out.tell()
    out.writelines(map(b"".join, _split_by_size(values, lengths)))
    if out.tell() - start != lengths.sum():  # a memoryview with elements of several bytes
        raise TypeError
    return lengths


def _write_text(out: BytesIO, values: list[str]) -> Values:
    """Write strings and return their encoded lengths.

    ASCII strings are joined and encoded together. Others are encoded one by one, because joining strings of several
    character widths is slow; `write` returns the length of each.
    """
    if all(map(str.isascii, values[:_SAMPLE_VALUES])):
        lengths, start = value_lengths(values), out.tell()
        for group in _split_by_size(values, lengths):
            text = "".join(group)
            if not text.isascii():
                out.seek(start)
                break
            out.write(text.encode())
        else:
            return lengths
    return unsigned_integers(map(out.write, map(str.encode, values)))


def _split_by_size(values: list[Any], lengths: Values) -> Iterable[list[Any]]:
    """Split values into groups of `_BLOCK_BYTES` on average."""
    step = 1 + _BLOCK_BYTES * len(values) // (1 + int(lengths.sum()))
    if step >= len(values):
        return (values,)
    return (values[first : first + step] for first in range(0, len(values), step))


def offsets_from_lengths(lengths: Values, dtype: np.dtype[Any], data_type: DataType) -> Values:
    """Return the offsets for lengths, starting at 0; raises `UsageError` if they do not fit the offset type."""
    total = int(lengths.sum(dtype=np.int64))
    if total >> 8 * dtype.itemsize - 1:
        raise UsageError(f"{total} elements are too many for the 32-bit offsets of {data_type}; use the large type")
    offsets = np.zeros(len(lengths) + 1, dtype)
    np.add.accumulate(lengths, dtype=dtype, out=offsets[1:])
    return offsets


def check_offsets(array: Array, limit: int, limit_name: str) -> Values:
    """Return the offsets of an array; raises `InvalidDataError` unless they rise and lie between 0 and `limit`.

    The buffer of an empty array is ignored; its offset is 0.
    """
    if not array.length:
        return np.zeros(1, array.layout.buffers[1].dtype)
    offsets = array.values(1)
    if offsets[0] < 0:
        raise InvalidDataError(f"offsets[0] = {offsets[0]} is negative")
    falling = offsets[1:] < offsets[:-1]
    if falling.any():
        at = first_true(falling)
        raise InvalidDataError(f"offsets[{at + 1}] = {offsets[at + 1]} is less than offsets[{at}] = {offsets[at]}")
    if offsets[-1] > limit:
        at = first_true(offsets > limit)
        raise InvalidDataError(f"offsets[{at}] = {offsets[at]} exceeds {limit_name} {limit}")
    return offsets


def offsets_at(array: Array, index: int) -> tuple[int, int]:
    """Return the offsets of the start and the end of a slot's value, unchecked."""
    offsets = array.buffers[1]
    if offsets is None:
        return 0, 0
    dtype, at = array.layout.buffers[1].dtype, array.offset + index
    assert dtype is not None
    return offsets.element(dtype, at), offsets.element(dtype, at + 1)


def interleave_ranges(
    slots: SlotSelection, limits: Sequence[int], check: Callable[[Array], Any]
) -> tuple[Indices, Indices]:
    """Return the starts and lengths of the selected slots' values by the offsets in buffer 1.

    If one exceeds the limit of its array, calls `check` with that array, which raises an error.
    """
    starts, stops = slots.gather_elements(1, 2).reshape(-1, 2).T.astype(np.int64)
    lengths, exceeds = stops - starts, stops > slots.per_slot(np.array(limits))
    if starts.min() < 0 or lengths.min() < 0 or exceeds.any():
        bad = (starts < 0) | (lengths < 0) | exceeds
        check(slots.arrays[int(slots.array_indices[first_true(bad)])])
    return starts, lengths


def offsets_equal(left: Values, right: Values) -> bool:
    """Return whether two offset arrays are equal relative to their first offset."""
    if left[0] == right[0]:
        return bytes_equal(left, right)
    left_base, right_base = left[0], right[0]

    def is_equal(first: int, last: int) -> bool:
        return not (left[first:last] - left_base != right[first:last] - right_base).any()

    return all_blocks(is_equal, len(left), left.itemsize)


def check_offset_bounds(array: Array, limit: int, limit_name: str) -> None:
    """Check the first and the last offset; raises `InvalidDataError`."""
    offsets = array.values(1)
    if not 0 <= offsets[0] <= offsets[-1] <= limit:
        raise InvalidDataError(f"the offsets run from {offsets[0]} to {offsets[-1]}, not within {limit_name} {limit}")


def pack_offsets(values: Sequence[Any], dtype: np.dtype[Any]) -> bytes:
    """Pack the offsets for a few values, starting at 0."""
    return struct.pack(f"{len(values) + 1}{dtype.char}", *accumulate(map(len, values), initial=0))


class BinaryLayout(Layout):
    """Byte strings or UTF-8 strings with 32- or 64-bit offsets."""

    __slots__ = ("is_text", "offset_type")

    HAS_CHEAP_SLICES: ClassVar[bool] = True

    def __init__(self, type: DataType, offset_bits: int, is_text: bool) -> None:
        self.offset_type = np.dtype(f"i{offset_bits // 8}")
        self.is_text = is_text
        offsets = BufferSpec(Role.OFFSETS, self.offset_type, extra=1)
        super().__init__(type, (VALIDITY, offsets, BufferSpec(Role.DATA, UINT8, per_slot=False)))

    def data(self, array: Array) -> Buffer:
        """Return the data buffer."""
        return array.buffers[2] or EMPTY

    def offsets(self, array: Array) -> Values:
        """Return the offsets, checked against the size of the data buffer."""
        return check_offsets(array, self.data(array).size, "the data buffer's size of")

    def of(self, offsets: Values, data: Values | bytes, mask: Values | None = None) -> Array:
        """Create an array of offsets, starting at 0, and data."""
        data_buffer = Buffer.of(data) if isinstance(data, bytes) else to_buffer(data)
        return Array(self, len(offsets) - 1, (pack_validity(mask), Buffer.of(offsets), data_buffer))

    def _of_few(self, values: Sequence[Any]) -> Array | None:
        """Create an array of a few strings or byte strings; None if there are other values."""
        values, validity = fill_few_nulls(values, "" if self.is_text else b"")
        parts = values
        try:
            if not self.is_text:
                data = b"".join(values)
            elif (text := "".join(values)).isascii():
                data = text.encode()
            else:
                parts = list(map(str.encode, values))
                data = b"".join(parts)
            offsets = pack_offsets(parts, self.offset_type)
        except (TypeError, UnicodeEncodeError, struct.error):
            return None
        if sum(map(len, parts)) != len(data):  # a memoryview with elements of several bytes
            return None
        return Array(self, len(parts), (validity, Buffer.of(offsets), Buffer.of(data)))

    def build_fast(self, values: Sequence[Any]) -> Array | None:
        if len(values) <= FEW_VALUES and (few := self._of_few(values)) is not None:
            return few
        try:
            data, lengths, mask = encode_values(values, self.is_text)
        except (TypeError, UnicodeEncodeError):
            return None
        return self.of(offsets_from_lengths(lengths, self.offset_type, self.type), data, mask)

    def build(self, values: Sequence[Any]) -> Array:
        array = self.build_fast(values)
        if array is None:
            raise conversion_error(values, self.is_text, self.type)
        return array

    def value_at(self, array: Array, index: int) -> Any:
        if is_null_at(array, index):
            return None
        start, stop = offsets_at(array, index)
        data = self.data(array)
        if 0 <= start <= stop <= data.size:
            value = data.view(UINT8, start, stop - start).tobytes()
            try:
                return value.decode() if self.is_text else value
            except UnicodeDecodeError:
                pass
        return super().value_at(array, index)  # raises

    def to_pylist(self, array: Array) -> list[Any]:
        offsets, data = self.offsets(array), self.data(array).bytes
        slices = text.decode_strings if self.is_text else text.decode_binary
        return slices(data, offsets, array.mask())

    def compact(self, array: Array) -> Array:
        if not array.length:
            return self.build([])
        offsets, data = array.values(1), self.data(array)
        first, last = int(offsets[0]), int(offsets[-1])
        if not 0 <= first <= last <= data.size:
            self.offsets(array)
        offset_buffer = array.buffers[1]
        size = (array.length + 1) * self.offset_type.itemsize
        if first or offset_buffer is None or offset_buffer.size < size:
            offset_buffer = Buffer.of(offsets - offsets[0])
        elif array.offset or offset_buffer.size > size:
            offset_buffer = offset_buffer.slice(array.offset * self.offset_type.itemsize, size)
        if last - first != data.size:
            data = data.slice(first, last - first)
        return Array(self, array.length, (compact_validity(array), offset_buffer, data), null_count=array.null_count)

    def take(self, array: Array, indices: Indices) -> Array:
        return self.interleave(SlotSelection.of(array, indices)) if len(indices) else self.build([])

    def interleave(self, slots: SlotSelection) -> Array:
        starts, lengths = interleave_ranges(slots, [self.data(array).size for array in slots.arrays], self.offsets)
        data = slots.gather_bytes(2, starts, lengths)
        array = self.of(offsets_from_lengths(lengths, self.offset_type, self.type), data)
        return Array(self, array.length, (slots.validity(), *array.buffers[1:]))

    def concat(self, arrays: Sequence[Array]) -> Array:
        arrays = batch_arrays(arrays)
        lengths, first, last = concat_lengths(arrays)
        if (first < 0).any() or (lengths < 0).any() or (last > buffer_sizes(arrays, 2)).any():
            for array in arrays:
                self.offsets(array)  # raises
        joined = self.of(
            offsets_from_lengths(lengths, self.offset_type, self.type), concat_bytes(arrays, 2, first, last - first)
        )
        return Array(self, joined.length, (concat_validity(arrays), *joined.buffers[1:]))

    def equal(self, left: Array, right: Array, nans_equal: bool) -> bool:
        left_offsets, right_offsets = self.offsets(left), right.values(1)
        if not bytes_equal(left_offsets, right_offsets) or left_offsets[-1] > self.data(right).size:
            right_offsets = self.offsets(right)
            if not offsets_equal(left_offsets, right_offsets):
                return False
        size = int(left_offsets[-1] - left_offsets[0])
        left_bytes = self.data(left).view(UINT8, int(left_offsets[0]), size)
        return bytes_equal(left_bytes, self.data(right).view(UINT8, int(right_offsets[0]), size))

    def equal_where_valid(self, left: Array, right: Array, nans_equal: bool) -> bool:
        return self.equal(left, right, nans_equal) or super().equal_where_valid(left, right, nans_equal)

    def sort_keys(self, array: Array) -> tuple[Values, ...]:
        return (rank_bytes(*self._bytes_and_offsets(array)),)

    def identity_keys(self, array: Array) -> tuple[Values, ...]:
        return (factorize_bytes(*self._bytes_and_offsets(array)),)

    def _bytes_and_offsets(self, array: Array) -> tuple[Bytes, Indices]:
        """Return the bytes of all values, including null slots, and offsets into them starting at 0."""
        offsets = self.offsets(array)
        first = int(offsets[0])
        data = self.data(array).view(UINT8, first, int(offsets[-1]) - first)
        return data, offsets.astype(np.int64) - first

    def check(self, array: Array) -> None:
        check_offset_bounds(array, self.data(array).size, "the data buffer's size of")

    def check_full(self, array: Array) -> None:
        offsets = self.offsets(array)
        if self.is_text:
            text.check_utf8(self.data(array).bytes, offsets, array.mask())

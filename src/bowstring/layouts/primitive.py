r"""«Fixed-size Primitive Layout»: a validity bitmap, and a buffer of slots of one width.

>>> import bowstring as bs
>>> array = bs.array([1, None, 2, 4, 8], bs.int32())
>>> array.null_count
1
>>> array.buffers[0].to_bytes()  # 00011101
b'\x1d'
>>> array.values(1)[[0, 2, 3, 4]].tolist()
[1, 2, 4, 8]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bowstring.errors import DataTypeError, InvalidDataError, WouldCopyError
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
    fill_nulls,
    is_null_at,
    numbers_to_pylist,
    pack_validity,
    set_nulls,
    short_repr,
    take_validity,
    to_buffer,
)
from bowstring.layouts.concatenation import concat_validity, concat_values
from bowstring.layouts.equality import all_blocks, bytes_equal
from bowstring.layouts.python_conversion import (
    FEW_VALUES,
    drop_nulls,
    drop_nulls_of_numbers,
    fill_few_nulls,
    iter_blocks,
    put_valid,
)
from bowstring.memory import bitmap
from bowstring.memory.bitmap import Mask
from bowstring.memory.buffer import EMPTY, Buffer

if TYPE_CHECKING:
    from bowstring.datatypes.types import DataType
    from bowstring.layouts.interleave import SlotSelection
    from bowstring.layouts.value_codecs.base import ValueCodec


_BLOCK_VALUES = 1 << 13
"""The number of values to convert at a time, so that they stay in the processor's cache."""


class PrimitiveLayout(Layout):
    """Fixed-width slots, which `codec` converts to and from Python values."""

    __slots__ = ("codec", "dtype")

    HAS_CHEAP_SLICES: ClassVar[bool] = True

    def __init__(self, type: DataType, codec: ValueCodec) -> None:
        super().__init__(type, (VALIDITY, BufferSpec(Role.DATA, codec.dtype, is_opaque=codec.IS_OPAQUE)))
        self.codec = codec
        self.dtype = codec.dtype

    def of(self, slots: Values, mask: Values | None = None) -> Array:
        """Create an array over slots of the layout's NumPy type, without copying if they are contiguous."""
        return Array(self, len(slots), (pack_validity(mask), to_buffer(slots)))

    def fill(self, array: Array, valid: Mask, filler: Array) -> Array:
        slots = array.values(1).copy()
        slots[~valid] = filler.values(1)[0]
        return self.of(slots)

    def _of_few(self, values: Sequence[Any]) -> Array | None:
        """Create an array of a few numbers; None if there are other values."""
        data, validity = self.codec.try_encode_few(values), None
        if data is None:
            values, validity = fill_few_nulls(values, self.codec.fill)
            data = None if validity is None else self.codec.try_encode_few(values)
        return None if data is None else Array(self, len(values), (validity, Buffer.of(data)))

    def build_fast(self, values: Sequence[Any], is_exact: bool = False) -> Array | None:
        """As `Layout.build_fast`; with `is_exact`, also return None if a value's type is not exactly the usual one."""
        if len(values) <= FEW_VALUES:
            if not self.codec.IS_NUMBER:
                return None
            if (few := self._of_few(values)) is not None:
                return few
        encode = self.codec.try_encode_exact if is_exact else self.codec.try_encode
        slots: Values | None = None
        mask: Mask | None = None
        for selection, block in iter_blocks(values):
            encoded, valid = encode(block) if is_exact and mask is None else None, None
            if encoded is None:
                non_nulls = drop_nulls_of_numbers(block, self.codec.fill) if self.codec.IS_NUMBER else drop_nulls(block)
                if non_nulls is None or (encoded := encode(non_nulls[0])) is None:
                    return None
                valid = non_nulls[1]
            if slots is None:  # allocate after the first value is checked: the width may be untrusted
                slots = np.zeros(len(values), self.dtype)
            put_valid(encoded, valid, slots[selection])
            if valid is not None:
                mask = np.ones(len(values), np.bool_) if mask is None else mask
                mask[selection] = valid
        assert slots is not None
        return self.of(slots, mask)

    def build(self, values: Sequence[Any]) -> Array:
        array = self.build_fast(values)
        if array is not None:
            return array
        filled, mask = fill_nulls(values, self.codec.fill if len(values) else None)
        try:
            return self.of(self.codec.encode(filled), mask)
        except (TypeError, ValueError, OverflowError) as error:
            raise self._conversion_error(filled, error) from None

    def _conversion_error(self, values: Sequence[Any], error: Exception) -> DataTypeError:
        for index, value in enumerate(values):
            try:
                self.codec.encode([value])
            except (TypeError, ValueError, OverflowError) as reason:
                return DataTypeError(f"value {index}: {short_repr(value)} cannot be converted to {self.type}: {reason}")
        return DataTypeError(f"the values cannot be converted to {self.type}: {error}")

    def from_numpy(self, array: Values, mask: Values | None) -> Array:
        """Create an array of NumPy values of shape (n,), without copying if the types are equal."""
        if mask is None and self.codec.IS_NUMBER and array.dtype == self.dtype:
            return self.of(array)
        try:
            slots, own_mask = self.codec.from_numpy(array)
        except (TypeError, ValueError, OverflowError) as error:
            raise DataTypeError(f"NumPy type {array.dtype} cannot be converted to {self.type}: {error}") from None
        if mask is not None:
            own_mask = mask if own_mask is None else mask & own_mask
        return self.of(slots, own_mask)

    def numbers(self, array: Array) -> Values | None:
        return array.values(1) if self.codec.IS_NUMBER else None

    def value_at(self, array: Array, index: int) -> Any:
        if is_null_at(array, index):
            return None
        data = array.buffers[1]
        if data is None:
            return super().value_at(array, index)
        if self.codec.IS_NUMBER:
            return data.element(self.dtype, array.offset + index)
        return self.codec.decode(data.view(self.dtype, array.offset + index, 1))[0]

    def to_pylist(self, array: Array) -> list[Any]:
        slots, mask = array.values(1), array.mask()
        if self.codec.IS_NUMBER:
            return numbers_to_pylist(slots, mask)
        if mask is None:
            return self.codec.decode(slots)
        values: list[Any] = []
        for first in range(0, len(slots), _BLOCK_VALUES):
            block, valid = slots[first : first + _BLOCK_VALUES].copy(), mask[first : first + _BLOCK_VALUES]
            block[~valid] = np.zeros((), self.dtype)
            values += set_nulls(self.codec.decode(block), valid)
        return values

    def to_numpy(self, array: Array, allow_copy: bool) -> Values:
        slots = array.values(1)
        if array.null_count == 0:
            shared = self.codec.as_numpy(slots)
            if shared is not None:
                return shared
        if not allow_copy:
            reason = "with nulls " if array.null_count else ""
            raise WouldCopyError(
                f"an array of {self.type} {reason}cannot be converted to NumPy without copying; "
                "allow the copy with zero_copy_only=False"
            )
        return self.codec.as_numpy_copy(slots, array.mask())

    def compact(self, array: Array) -> Array:
        data = array.buffers[1]
        width = self.dtype.itemsize
        if data is None or (array.offset == 0 and data.size == array.length * width and array.null_count == 0):
            slots = data
        else:
            slots = data.slice(array.offset * width, array.length * width)
        return Array(self, array.length, (compact_validity(array), slots), null_count=array.null_count)

    def take(self, array: Array, indices: Indices) -> Array:
        return Array(self, len(indices), (take_validity(array, indices), to_buffer(array.values(1)[indices])))

    def interleave(self, slots: SlotSelection) -> Array:
        return Array(self, len(slots), (slots.validity(), to_buffer(slots.gather_elements(1))))

    def concat(self, arrays: Sequence[Array]) -> Array:
        arrays = batch_arrays(arrays)
        slots = concat_values(arrays, 1)
        return Array(self, len(slots), (concat_validity(arrays), to_buffer(slots)))

    def equal(self, left: Array, right: Array, nans_equal: bool) -> bool:
        left_slots, right_slots = left.values(1), right.values(1)
        if self.codec.EQUAL_BY_BYTES:
            return bytes_equal(left_slots, right_slots)
        not_equal = self.codec.not_equal
        return all_blocks(
            lambda first, last: not not_equal(left_slots[first:last], right_slots[first:last], nans_equal).any(),
            left.length,
            self.dtype.itemsize,
        )

    def equal_where_valid(self, left: Array, right: Array, nans_equal: bool) -> bool:
        left_slots, right_slots, validity = left.values(1), right.values(1), left.buffers[0] or EMPTY
        not_equal = self.codec.not_equal

        def is_equal(first: int, last: int) -> bool:
            bad = not_equal(left_slots[first:last], right_slots[first:last], nans_equal)
            return not bad.any() or not (bad & bitmap.unpack(validity, left.offset + first, last - first)).any()

        return all_blocks(is_equal, left.length, self.dtype.itemsize)

    def sort_keys(self, array: Array) -> tuple[Values, ...] | None:
        return self.codec.sort_keys(array.values(1))

    def identity_keys(self, array: Array) -> tuple[Values, ...]:
        return self.codec.identity_keys(array.values(1))

    def check_full(self, array: Array) -> None:
        slots, validity = array.values(1), array.validity
        for first in range(0, array.length if slots.itemsize else 0, _BLOCK_VALUES):
            block = slots[first : first + _BLOCK_VALUES]
            if self.codec.find_invalid(block) is None:
                continue
            valid = np.arange(len(block))
            if validity is not None:  # ignore invalid values under nulls
                valid = np.flatnonzero(bitmap.unpack(validity, array.offset + first, len(block)))
            fault = self.codec.find_invalid(block[valid])
            if fault is not None:
                raise InvalidDataError(f"values[{first + int(valid[fault[0]])}]: {fault[1]} ({self.type})")

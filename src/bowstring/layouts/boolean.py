r"""«Fixed-size Primitive Layout», bit-packed: boolean values of one bit.

>>> import bowstring as bs
>>> bs.array([True, False, None, True]).buffers[1].to_bytes()
b'\t'
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bowstring.errors import DataTypeError, WouldCopyError
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
    short_repr,
    take_validity,
)
from bowstring.layouts.concatenation import concat_bits, concat_validity
from bowstring.layouts.python_conversion import FEW_VALUES, fill_few_nulls, iter_blocks, parse_booleans
from bowstring.memory import bitmap

if TYPE_CHECKING:
    from bowstring.datatypes.types import DataType
    from bowstring.layouts.interleave import SlotSelection


class BooleanLayout(Layout):
    """A validity bitmap and a bitmap of values."""

    __slots__ = ()

    HAS_CHEAP_SLICES: ClassVar[bool] = True

    def __init__(self, type: DataType) -> None:
        super().__init__(type, (VALIDITY, BufferSpec(Role.DATA)))

    def of(self, values: Values, mask: Values | None = None) -> Array:
        """Create an array of NumPy booleans, packed."""
        return Array(self, len(values), (pack_validity(mask), bitmap.pack(values)))

    def bits(self, array: Array) -> Values:
        """Return the values as NumPy booleans, copied."""
        data = array.buffers[1]
        return np.zeros(array.length, np.bool_) if data is None else bitmap.unpack(data, array.offset, array.length)

    def build_fast(self, values: Sequence[Any]) -> Array | None:
        if len(values) <= FEW_VALUES:
            filled, validity = fill_few_nulls(values, False)
            if {bool}.issuperset(map(type, filled)):
                return Array(self, len(values), (validity, bitmap.pack_bools(filled)))
        bits, mask = np.empty(len(values), np.bool_), np.empty(len(values), np.bool_)
        for selection, block in iter_blocks(values):
            parsed = parse_booleans(block)
            if parsed is None:
                return None
            bits[selection], mask[selection] = parsed
        return self.of(bits, mask)

    def build(self, values: Sequence[Any]) -> Array:
        array = self.build_fast(values)
        if array is not None:
            return array
        filled, mask = fill_nulls(values, False)
        if not {bool, np.bool_}.issuperset(map(type, filled)):
            index, value = next((i, v) for i, v in enumerate(filled) if not isinstance(v, (bool, np.bool_)))
            raise DataTypeError(f"value {index}: {short_repr(value)} cannot be converted to bool")
        return self.of(np.fromiter(filled, np.bool_, len(filled)), mask)

    def numbers(self, array: Array) -> Values:
        return self.bits(array)

    def value_at(self, array: Array, index: int) -> Any:
        data = array.buffers[1]
        if data is None:
            return super().value_at(array, index)
        return None if is_null_at(array, index) else bitmap.get(data, array.offset + index)

    def to_pylist(self, array: Array) -> list[Any]:
        return numbers_to_pylist(self.bits(array), array.mask())

    def to_numpy(self, array: Array, allow_copy: bool) -> Values:
        if not allow_copy:
            raise WouldCopyError("booleans are bit-packed; allow the copy with zero_copy_only=False")
        return self.bits(array) if array.null_count == 0 else super().to_numpy(array, True)

    def compact(self, array: Array) -> Array:
        data = array.buffers[1]
        bits = data if data is None else bitmap.realign(data, array.offset, array.length)
        return Array(self, array.length, (compact_validity(array), bits), null_count=array.null_count)

    def take(self, array: Array, indices: Indices) -> Array:
        bits = bitmap.pack(self.bits(array)[indices])
        return Array(self, len(indices), (take_validity(array, indices), bits))

    def interleave(self, slots: SlotSelection) -> Array:
        return Array(self, len(slots), (slots.validity(), bitmap.pack(slots.bits(1))))

    def concat(self, arrays: Sequence[Array]) -> Array:
        arrays = batch_arrays(arrays)
        values = concat_bits(arrays, 1)
        return Array(self, len(values), (concat_validity(arrays), bitmap.pack(values)))

    def equal(self, left: Array, right: Array, nans_equal: bool) -> bool:
        return bool(np.array_equal(self.bits(left), self.bits(right)))

    def equal_where_valid(self, left: Array, right: Array, nans_equal: bool) -> bool:
        return not ((self.bits(left) != self.bits(right)) & left.mask()).any()

    def sort_keys(self, array: Array) -> tuple[Values, ...]:
        return (self.bits(array),)

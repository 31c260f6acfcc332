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
"""So many Python values are made before the next ones, while they are in the processor's cache."""


class PrimitiveLayout(Layout):
    """Slots of one width in bytes, whose meaning is `codec`'."""

    __slots__ = ("codec", "dtype")

    HAS_CHEAP_SLICES: ClassVar[bool] = True

    def __init__(self, type: DataType, codec: ValueCodec) -> None:
        super().__init__(type, (VALIDITY, BufferSpec(Role.DATA, codec.dtype, is_opaque=codec.IS_OPAQUE)))
        self.codec = codec
        self.dtype = codec.dtype

    def of(self, slots: Values, mask: Values | None = None) -> Array:
        """An array over slots of the layout's NumPy type, without copying where they are contiguous."""
        return Array(self, len(slots), (pack_validity(mask), to_buffer(slots)))

    def fill(self, array: Array, valid: Mask, filler: Array) -> Array:
        slots = array.values(1).copy()
        slots[~valid] = filler.values(1)[0]
        return self.of(slots)

    def _of_few(self, values: Sequence[Any]) -> Array | None:
        """An array of numbers, quickly where they are few; None where others are among them."""
        data, validity = self.codec.try_encode_few(values), None
        if data is None:
            values, validity = fill_few_nulls(values, self.codec.fill)
            data = None if validity is None else self.codec.try_encode_few(values)
        return None if data is None else Array(self, len(values), (validity, Buffer.of(data)))

    def build_fast(self, values: Sequence[Any], is_exact: bool = False) -> Array | None:
        """With `is_exact`, None also where values are not of exactly the one Python type of the data type: others give
        themselves as numbers, too.
        """
        if len(values) <= FEW_VALUES:
            if not self.codec.IS_NUMBER:
                return None
            if (few := self._of_few(values)) is not None:
                return few
        way = self.codec.try_encode_exact if is_exact else self.codec.try_encode
        slots: Values | None = None
        mask: Mask | None = None
        for where, some in iter_blocks(values):
            found, valid = way(some) if is_exact and mask is None else None, None
            if found is None:
                apart = drop_nulls_of_numbers(some, self.codec.fill) if self.codec.IS_NUMBER else drop_nulls(some)
                if apart is None or (found := way(apart[0])) is None:
                    return None
                valid = apart[1]
            if slots is None:  # not before a value was looked at: the width may come from outside
                slots = np.zeros(len(values), self.dtype)
            put_valid(found, valid, slots[where])
            if valid is not None:
                mask = np.ones(len(values), np.bool_) if mask is None else mask
                mask[where] = valid
        assert slots is not None
        return self.of(slots, mask)

    def build(self, values: Sequence[Any]) -> Array:
        plain = self.build_fast(values)
        if plain is not None:
            return plain
        filled, mask = fill_nulls(values, self.codec.fill if len(values) else None)
        try:
            return self.of(self.codec.encode(filled), mask)
        except (TypeError, ValueError, OverflowError) as error:
            raise self._misfit(filled, error) from None

    def _misfit(self, values: Sequence[Any], error: Exception) -> DataTypeError:
        for index, value in enumerate(values):
            try:
                self.codec.encode([value])
            except (TypeError, ValueError, OverflowError) as why:
                return DataTypeError(f"value {index}: {short_repr(value)} cannot be converted to {self.type}: {why}")
        return DataTypeError(f"the values cannot be converted to {self.type}: {error}")

    def from_numpy(self, array: Values, mask: Values | None) -> Array:
        """An array of NumPy values of shape (n,), without copying where the types are the same."""
        if mask is None and self.codec.IS_NUMBER and array.dtype == self.dtype:
            return self.of(array)
        try:
            slots, own_mask = self.codec.from_numpy(array)
        except (TypeError, ValueError, OverflowError) as error:
            raise DataTypeError(f"NumPy's {array.dtype} does not become {self.type}: {error}") from None
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
        found: list[Any] = []
        for first in range(0, len(slots), _BLOCK_VALUES):
            own, valid = slots[first : first + _BLOCK_VALUES].copy(), mask[first : first + _BLOCK_VALUES]
            own[~valid] = np.zeros((), self.dtype)
            found += set_nulls(self.codec.decode(own), valid)
        return found

    def to_numpy(self, array: Array, allow_copy: bool) -> Values:
        slots = array.values(1)
        if array.null_count == 0:
            shared = self.codec.as_numpy(slots)
            if shared is not None:
                return shared
        if not allow_copy:
            why = "has nulls" if array.null_count else "has no NumPy form that shares its memory"
            raise WouldCopyError(f"this array of {self.type} {why}: allow the copy with zero_copy_only=False")
        return self.codec.as_numpy_copy(slots, array.mask())

    def compact(self, array: Array) -> Array:
        data = array.buffers[1]
        width = self.dtype.itemsize
        if data is None or (array.offset == 0 and data.size == array.length * width and array.null_count == 0):
            own = data
        else:
            own = data.slice(array.offset * width, array.length * width)
        return Array(self, array.length, (compact_validity(array), own), null_count=array.null_count)

    def take(self, array: Array, indices: Indices) -> Array:
        return Array(self, len(indices), (take_validity(array, indices), to_buffer(array.values(1)[indices])))

    def interleave(self, slots: SlotSelection) -> Array:
        return Array(self, len(slots), (slots.validity(), to_buffer(slots.gather_elements(1))))

    def concat(self, arrays: Sequence[Array]) -> Array:
        arrays = batch_arrays(arrays)
        slots = concat_values(arrays, 1)
        return Array(self, len(slots), (concat_validity(arrays), to_buffer(slots)))

    def equal(self, left: Array, right: Array, nans_equal: bool) -> bool:
        mine, theirs = left.values(1), right.values(1)
        if self.codec.EQUAL_BY_BYTES:
            return bytes_equal(mine, theirs)
        not_equal = self.codec.not_equal
        return all_blocks(
            lambda first, last: not not_equal(mine[first:last], theirs[first:last], nans_equal).any(),
            left.length,
            self.dtype.itemsize,
        )

    def equal_where_valid(self, left: Array, right: Array, nans_equal: bool) -> bool:
        mine, theirs, validity = left.values(1), right.values(1), left.buffers[0] or EMPTY
        not_equal = self.codec.not_equal

        def holds(first: int, last: int) -> bool:
            bad = not_equal(mine[first:last], theirs[first:last], nans_equal)
            return not bad.any() or not (bad & bitmap.unpack(validity, left.offset + first, last - first)).any()

        return all_blocks(holds, left.length, self.dtype.itemsize)

    def sort_keys(self, array: Array) -> tuple[Values, ...] | None:
        return self.codec.sort_keys(array.values(1))

    def identity_keys(self, array: Array) -> tuple[Values, ...]:
        return self.codec.identity_keys(array.values(1))

    def check_full(self, array: Array) -> None:
        slots, validity = array.values(1), array.validity
        for first in range(0, array.length if slots.itemsize else 0, _BLOCK_VALUES):
            some = slots[first : first + _BLOCK_VALUES]
            if self.codec.find_invalid(some) is None:
                continue
            valid = np.arange(len(some))
            if validity is not None:  # what is wrong may lie under a null
                valid = np.flatnonzero(bitmap.unpack(validity, array.offset + first, len(some)))
            fault = self.codec.find_invalid(some[valid])
            if fault is not None:
                raise InvalidDataError(f"values[{first + int(valid[fault[0]])}]: {fault[1]} ({self.type})")

"""The data of an array: «a sequence of values with known length all having the same type».

Layouts, compute functions and interchange work on `ArrayData`. The public class, `bowstring.arrays.array.Array`, adds
the methods that call them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from bowstring.errors import InvalidDataError
from bowstring.layouts.base import Indices, Layout, Values, pack_validity
from bowstring.layouts.display import format_preview
from bowstring.layouts.expansion_limits import check_expanded_array
from bowstring.layouts.indexing import as_indices, clip_slice
from bowstring.layouts.validation import validate
from bowstring.memory import bitmap
from bowstring.memory.bitmap import Mask
from bowstring.memory.buffer import EMPTY, Buffer

if TYPE_CHECKING:
    from bowstring.datatypes.types import DataType


class ArrayData:
    """The layout, length, null count, offset, buffers, children and dictionary of an array; immutable.

    The slots are those from `offset` to `offset + length` of the buffers, so that slicing does not copy, as in the C
    data interface. The constructor checks nothing; call `validate` for that.
    """

    __slots__ = ("_null_count", "buffers", "children", "dictionary", "layout", "length", "offset")

    def __init__(  # noqa: PLR0913 -- an array has this many parts
        self,
        layout: Layout,
        length: int,
        buffers: tuple[Buffer | None, ...],
        children: tuple[Self, ...] = (),
        dictionary: Self | None = None,
        null_count: int = -1,
        offset: int = 0,
    ) -> None:
        self.layout = layout
        self.length = length
        self.buffers = buffers
        self.children = children
        self.dictionary = dictionary
        self.offset = offset
        self._null_count = null_count

    @property
    def type(self) -> DataType:
        """The data type."""
        return self.layout.type

    @property
    def null_count(self) -> int:
        """The number of null slots, counted on first use."""
        if self._null_count < 0:
            self._null_count = self.layout.count_nulls(self)
        return self._null_count

    @property
    def nbytes(self) -> int:
        """The size of the slots in bytes, including the dictionary, without padding and bytes outside the slice."""
        array = self.compact()
        size = sum(b.size for b in array.buffers if b is not None) + sum(child.nbytes for child in array.children)
        return size + (0 if array.dictionary is None else array.dictionary.nbytes)

    @property
    def storage(self) -> Self:
        """The array as the extension's storage type, sharing the memory; the array itself for any other type."""
        return self.with_layout(self.layout.storage)

    def with_layout(self, layout: Layout) -> Self:
        """Return the array under another layout with the same buffers and children, without copying."""
        if layout is self.layout:
            return self
        return self.__class__(
            layout, self.length, self.buffers, self.children, self.dictionary, self._null_count, self.offset
        )

    def buffer_values(self, index: int) -> Values:
        """Return the elements of buffer `index` for the slots of this array, as a read-only NumPy view."""
        spec = self.layout.buffers[index]
        buffer = self.buffers[index]
        assert spec.dtype is not None
        if buffer is None or (buffer.size == 0 and self.offset + self.length == 0):
            return np.zeros(self.length + spec.num_extra, spec.dtype)
        return buffer.view(spec.dtype, self.offset, self.length + spec.num_extra)

    def slice_buffer(self, index: int) -> Buffer:
        """Return the bytes of buffer `index` for the slots of this array, without copying. Raises `InvalidDataError` if
        it is too short.
        """
        spec, buffer, slots = self.layout.buffers[index], self.buffers[index] or EMPTY, self.offset + self.length
        assert spec.dtype is not None
        start, stop = self.offset * spec.dtype.itemsize, spec.size_bytes(slots)
        if stop > buffer.size:
            raise InvalidDataError(
                f"the {spec.role.value} buffer has {buffer.size} bytes, {slots} slots need {stop} ({self.type})"
            )
        return buffer.slice(start, stop - start)

    @property
    def validity(self) -> Buffer | None:
        """The validity bitmap, with the first slot at bit `offset`; None if no slot is null."""
        return None if not self.layout.has_validity or self.null_count == 0 else self.buffers[0]

    def require_dictionary(self) -> Self:
        """Return the dictionary of a dictionary-encoded array. Raises `InvalidDataError` if it is missing."""
        if self.dictionary is None:
            raise InvalidDataError(f"the array of {self.type} has no dictionary")
        return self.dictionary

    def validity_mask(self) -> Mask | None:
        """Return the validity bitmap as booleans of shape (length,), True for valid; None if no slot is null."""
        validity = self.validity
        return None if validity is None else bitmap.unpack(validity, self.offset, self.length)

    def is_null_at(self, index: int) -> bool:
        """Return whether a slot is null by the validity bitmap, which the layout must have."""
        validity = self.buffers[0]
        return validity is not None and self._null_count != 0 and not bitmap.get(validity, self.offset + index)

    def compact_validity(self) -> Buffer | None:
        """Return the validity bitmap with the first slot at bit 0; None if no slot is null."""
        validity = self.validity
        return None if validity is None else bitmap.realign_zero_padded(validity, self.offset, self.length)

    def take_validity(self, indices: Indices) -> Buffer | None:
        """Return the validity bitmap of the slots at `indices`; None if none of them is null."""
        mask = self.validity_mask()
        return None if mask is None else pack_validity(mask[indices])

    def slice(self, offset: int = 0, length: int | None = None) -> Self:
        """Return up to `length` slots from slot `offset` on (by default all remaining ones), without copying."""
        offset, length = clip_slice(offset, length, self.length)
        if length == self.length:
            return self
        null_count = 0 if self._null_count == 0 else (length if self._null_count == self.length else -1)
        return self.__class__(
            self.layout, length, self.buffers, self.children, self.dictionary, null_count, self.offset + offset
        )

    def compact(self) -> ArrayData:
        """Return an equal array with offset 0 and no elements outside its slots; copies only if necessary."""
        return self.layout.compact(self)

    def take(self, indices: Sequence[int] | Values | ArrayData) -> ArrayData:
        """Return the slots at `indices` (non-negative integers without nulls), copied.

        Raises `InvalidArgumentError` if an index is out of range or not an integer.
        """
        return self.layout.take(self, as_indices(indices, self.length))

    def to_pylist(self) -> list[Any]:
        """Return the values as Python objects, None for null.

        Timestamps, dates, times and durations become `datetime` objects if these represent them exactly, else NumPy's
        `datetime64` or `timedelta64`. Decimals become `Decimal`, structs dictionaries, maps lists of pairs. Raises
        `InvalidDataError` if the buffers are malformed, and `LimitError` if there are far more values than the array
        has bytes (`bowstring.layouts.expansion_limits`).
        """
        if self.length == 1:
            return [self.layout.value_at(self, 0)]
        check_expanded_array(self)
        return self.layout.to_pylist(self)

    def to_numpy(self, zero_copy_only: bool = True) -> Values:
        """Return the values as a NumPy array of shape (length,), or (length, list_size) for fixed-size lists.

        The result shares the memory, read-only, if the layout allows. Otherwise raises `WouldCopyError`, or copies with
        `zero_copy_only=False`: nulls become NaN, NaT or None, integers with nulls float64, and lists NumPy arrays.
        """
        if not zero_copy_only:
            check_expanded_array(self)
        return self.layout.to_numpy(self, not zero_copy_only)

    def validate(self, full: bool = False) -> None:
        """Check buffer sizes, counts and children; with `full` also every offset, index, string and run end.

        Raises `InvalidDataError`; the message names the array, the buffer and the element.
        """
        validate(self, full)

    def __len__(self) -> int:
        return self.length

    def __repr__(self) -> str:
        return f"<bowstring.{type(self).__name__} {self.type}[{self.length}]>\n{format_preview(self, self.length)}"

"""«Extension Types»: the storage type's layout, with the extension's `encode` and `decode` for values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bowstring.datatypes.extension import ExtensionType
from bowstring.errors import prefix_errors
from bowstring.layouts.base import ArrayData, Indices, Layout, Values
from bowstring.layouts.interleave import InterleavableLayout, SlotSelection
from bowstring.memory.bitmap import Mask


class ExtensionLayout(InterleavableLayout):
    """The buffers and children of the storage type."""

    __slots__ = ("VARIADIC", "_storage", "extension_type")

    CHECKS_CHILD_VALUES = True

    def __init__(self, type: ExtensionType, storage: Layout) -> None:
        super().__init__(type, storage.buffers, storage.children)
        self.extension_type = type
        self._storage = storage
        self.VARIADIC = storage.VARIADIC  # type: ignore[misc]

    @property
    def storage(self) -> Layout:
        return self._storage

    @property
    def dictionary(self) -> Layout | None:
        return self._storage.dictionary

    def child_name(self, index: int) -> str:
        return self._storage.child_name(index)

    def count_nulls(self, array: ArrayData) -> int:
        return self._storage.count_nulls(array)

    def logical_validity_mask(self, array: ArrayData, in_unions: bool = True) -> Mask | None:
        return self._storage.logical_validity_mask(array.storage, in_unions)

    def fill_null(self, array: ArrayData, valid: Mask, filler: ArrayData) -> ArrayData:
        return self._storage.fill_null(array.storage, valid, filler.storage).with_layout(self)

    def from_pylist(self, values: Sequence[Any]) -> ArrayData:
        encode = self.extension_type.encode
        return self._storage.from_pylist([None if v is None else encode(v) for v in values]).with_layout(self)

    def value_at(self, array: ArrayData, index: int, max_elements: int | None = None) -> Any:
        value = self._storage.value_at(array.storage, index)
        return None if value is None else self.extension_type.decode(value)

    def to_pylist(self, array: ArrayData) -> list[Any]:
        decode = self.extension_type.decode
        return [None if v is None else decode(v) for v in array.storage.to_pylist()]

    def view_as_numpy(self, array: ArrayData) -> Values | None:
        view: Values | None = self._storage.view_as_numpy(array.storage)
        if view is not None:
            view = self.extension_type.from_storage_numpy(view, allow_copy=False)
        return view

    def copy_to_numpy(self, array: ArrayData) -> Values:
        storage_values = array.storage.to_numpy(zero_copy_only=False)
        values: Values = self.extension_type.from_storage_numpy(storage_values, allow_copy=True)
        return values

    def compact(self, array: ArrayData) -> ArrayData:
        return array.storage.compact().with_layout(self)

    def take(self, array: ArrayData, indices: Indices) -> ArrayData:
        return self._storage.take(array.storage, indices).with_layout(self)

    def interleave(self, slots: SlotSelection) -> ArrayData | None:
        storage = slots.with_storage_arrays().interleave()
        return None if storage is None else storage.with_layout(self)

    def concat(self, arrays: Sequence[ArrayData]) -> ArrayData:
        return self._storage.concat([array.storage for array in arrays]).with_layout(self)

    def have_equal_values(self, left: ArrayData, right: ArrayData, nans_equal: bool) -> bool:
        return self._storage.have_equal_values(left.storage, right.storage, nans_equal)

    def have_equal_valid_values(self, left: ArrayData, right: ArrayData, nans_equal: bool) -> bool:
        return self._storage.have_equal_valid_values(left.storage, right.storage, nans_equal)

    def sort_keys(self, array: ArrayData) -> tuple[Values, ...] | None:
        return self._storage.sort_keys(array.storage)

    def identity_keys(self, array: ArrayData) -> tuple[Values, ...]:
        return self._storage.identity_keys(array.storage)

    def check(self, array: ArrayData) -> None:
        self._storage.check(array.storage)

    def check_full(self, array: ArrayData) -> None:
        self._storage.check_full(array.storage)
        if type(self.extension_type).check_storage_value is ExtensionType.check_storage_value:
            return
        for index, value in enumerate(array.storage.to_pylist()):
            if value is not None:
                with prefix_errors(f"value {index}"):
                    self.extension_type.check_storage_value(value)

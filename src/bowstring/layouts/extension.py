"""«Extension Types»: the storage type's layout, seen through the extension's `encode` and `decode`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bowstring.layouts.array import Array
from bowstring.layouts.base import Indices, Layout, Values

if TYPE_CHECKING:
    from bowstring.datatypes.extension import ExtensionType


class ExtensionLayout(Layout):
    """The same buffers and children as the storage."""

    __slots__ = ("VARIADIC", "_extension", "_storage")

    def __init__(self, type: ExtensionType, storage: Layout) -> None:
        super().__init__(type, storage.buffers, storage.children)
        self._extension = type
        self._storage = storage
        self.VARIADIC = storage.VARIADIC  # type: ignore[misc]

    @property
    def storage(self) -> Layout:
        return self._storage

    @property
    def dictionary(self) -> Layout | None:
        return self._storage.dictionary

    def null_count(self, array: Array) -> int:
        return self._storage.null_count(array)

    def build(self, values: Sequence[Any]) -> Array:
        encode = self._extension.encode
        return self._storage.build([None if v is None else encode(v) for v in values]).seen_as(self)

    def to_pylist(self, array: Array) -> list[Any]:
        decode = self._extension.decode
        return [None if v is None else decode(v) for v in array.storage.to_pylist()]

    def to_numpy(self, array: Array, allow_copy: bool) -> Values:
        return self._storage.to_numpy(array.storage, allow_copy)

    def rebase(self, array: Array) -> Array:
        return array.storage.rebased().seen_as(self)

    def take(self, array: Array, indices: Indices) -> Array:
        return self._storage.take(array.storage, indices).seen_as(self)

    def concat(self, arrays: Sequence[Array]) -> Array:
        return self._storage.concat([array.storage for array in arrays]).seen_as(self)

    def equal(self, left: Array, right: Array, nans_equal: bool) -> bool:
        return self._storage.equal(left.storage, right.storage, nans_equal)

    def check(self, array: Array) -> None:
        self._storage.check(array.storage)

    def check_full(self, array: Array) -> None:
        self._storage.check_full(array.storage)

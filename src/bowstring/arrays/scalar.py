"""A single value with a data type, such as the sum of an array."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Sequence
from typing import Any

from bowstring.arrays.arithmetic import Arithmetic
from bowstring.arrays.array import Array
from bowstring.datatypes.conversion import TypeLike
from bowstring.datatypes.extension import ExtensionType
from bowstring.datatypes.field import DataType
from bowstring.datatypes.types import (
    BaseBinary,
    BaseList,
    BaseString,
    BaseTemporal,
    Dictionary,
    FixedSizeBinary,
    Interval,
    Map,
    RunEndEncoded,
    Struct,
)
from bowstring.display.values import format_type, format_values
from bowstring.errors import TypeMismatchError
from bowstring.interop.pyarrow_arrays import array_to_pyarrow, is_pyarrow_scalar, scalar_from_pyarrow
from bowstring.layouts.indexing import normalize_index
from bowstring.layouts.union import UnionLayout
from bowstring.memory.buffer import Buffer


class Scalar(Arithmetic):
    """A value of one data type, or null; immutable. `as_py()` returns it as a Python object.

    Created by `bowstring.scalar` and by the functions of `bowstring.compute`. A scalar equals another of the same type
    and value, and the Python object itself. That of a list is a sequence of its elements, that of a struct a mapping,
    both of Python objects.

    >>> bs.scalar(5, "int8").as_py()
    5
    """

    __slots__ = ("__weakref__", "_array")  # of length 1, so that the functions for arrays apply to scalars

    def __init__(self, array: Array) -> None:
        self._array = array

    @property
    def type(self) -> DataType:
        """The data type."""
        return self._array.type

    @property
    def is_valid(self) -> bool:
        """Whether the value is not null."""
        return self.as_py() is not None

    def as_py(self) -> Any:
        """Return the value as a Python object, None for null.

        >>> bs.scalar([1, None]).as_py()
        [1, None]
        """
        return self._array[0]

    def to_array(self) -> Array:
        """Return an array of the value.

        >>> bs.scalar(5).to_array()
        <bowstring.Array int64[1]>
        [5]
        """
        return self._array

    def cast(self, target_type: TypeLike, safe: bool = True) -> Scalar:
        """Cast the value to another type, as `Array.cast`.

        >>> bs.scalar("5").cast("int64").as_py()
        5
        """
        return Scalar(self._array.cast(target_type, safe))

    def equals(self, other: Scalar) -> bool:
        """Return whether another scalar has the same type and value. Nulls of one type are equal.

        >>> bs.scalar(5).equals(bs.scalar(5)), bs.scalar(5).equals(bs.scalar(5, "int8"))
        (True, False)
        """
        return self._array.equals(other._array)

    def validate(self, full: bool = False) -> None:
        """Check the value, as `Array.validate`.

        >>> bs.scalar("a").validate(full=True)
        """
        self._array.validate(full)

    # Parts of a value; a scalar of another type does not have them

    @property
    def value(self) -> Any:
        """The number of units of a date, a time or a duration; the scalar of an encoded value, of the storage of an
        extension type, or of the child of a union.

        >>> import datetime
        >>> bs.scalar(datetime.date(1970, 1, 2)).value
        1
        """
        array, type_ = self._array, self.type
        if isinstance(type_, BaseTemporal):
            return None if array.null_count else array.buffer_values(1)[0].item()
        if isinstance(type_, Interval):
            return self.as_py()
        if isinstance(array.layout, UnionLayout):
            child = next(child for slots, child in array.layout.split_by_child(array) if len(slots))
            return Scalar(Array.from_array_data(child))
        self._require("value", Dictionary, RunEndEncoded, ExtensionType)
        return Scalar(array.storage.dictionary_decode().run_end_decode())

    def as_buffer(self) -> Buffer | None:
        """Return the bytes of a string or of a byte string, copied; None for null.

        >>> bytes(bs.scalar("abc").as_buffer())
        b'abc'
        """
        self._require("as_buffer", BaseString, BaseBinary, FixedSizeBinary)
        value = self.as_py()
        return None if value is None else Buffer.of(value.encode() if isinstance(value, str) else value)

    @property
    def values(self) -> Array | None:
        """The elements of a list, None for null."""
        self._require("values", BaseList, Map)
        return self._array.flatten() if self.is_valid else None

    def keys(self) -> list[str]:
        """Return the names of a struct's fields.

        >>> dict(bs.scalar({"x": 1, "y": None}))
        {'x': 1, 'y': None}
        """
        self._require("keys", Struct)
        return [field.name for field in self.type.fields]

    def __getitem__(self, key: int | str | builtins.slice) -> Any:
        """Return an element of a list, or the value of a struct's field, as a Python object.

        Raises `IndexError` or `NotFoundError` if there is none.
        """
        if isinstance(self.type, Struct):
            field = self._array.field(key)  # type: ignore[arg-type]
            return field[0] if self.is_valid else None
        elements = self._elements()
        return elements[key] if isinstance(key, builtins.slice) else elements[normalize_index(key, len(elements))]

    def __len__(self) -> int:
        return len(self._elements())

    def __iter__(self) -> Iterator[Any]:
        return iter(self._elements())

    def __contains__(self, element: object) -> bool:
        return element in self._elements()

    def _elements(self) -> Sequence[Any]:
        """Return the elements of a list, none of a null one, or the names of a struct's fields."""
        if isinstance(self.type, Struct):
            return self.keys()
        value = [] if self._array.null_count and isinstance(self.type, BaseList | Map) else self.as_py()
        if not isinstance(value, list):
            raise TypeMismatchError(f"a scalar of {self.type} has no elements")
        return value

    def _require(self, name: str, *types: builtins.type[DataType]) -> None:
        """Raise `AttributeError` unless the scalar has one of the types that have an attribute."""
        if not isinstance(self.type, types):
            raise AttributeError(f"a scalar of {self.type} has no attribute {name!r}")

    def _to_pyarrow(self) -> Any:
        return array_to_pyarrow(self._array)[0]

    def _from_pyarrow(self, value: Any) -> Scalar | Array:
        if is_pyarrow_scalar(value):
            return Scalar(Array.from_array_data(scalar_from_pyarrow(value)))
        return self._array._from_pyarrow(value)

    # Equal to the Python object, so it must have the hash of that; lists and structs have none.

    def __eq__(self, other: object) -> bool:
        return self.equals(other) if isinstance(other, Scalar) else bool(self.as_py() == other)

    def __hash__(self) -> int:
        return hash(self.as_py())

    def __bool__(self) -> bool:
        return bool(self.as_py())

    def __int__(self) -> int:
        return int(self.as_py())

    def __float__(self) -> float:
        return float(self.as_py())

    def __str__(self) -> str:
        return str(self.as_py())

    def __repr__(self) -> str:
        return f"<bowstring.Scalar {format_type(self.type)}: {format_values(self._array, 0, 1)[0]}>"

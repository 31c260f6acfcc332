"""A single value with a data type, such as the sum of an array."""

from __future__ import annotations

from typing import Any

from bowstring.arrays.array import Array
from bowstring.datatypes.base import DataType
from bowstring.datatypes.conversion import TypeLike
from bowstring.display.values import format_type, format_values


class Scalar:
    """A value of one data type, or null; immutable. `as_py()` returns it as a Python object.

    Created by `bowstring.scalar` and by the functions of `bowstring.compute`. A scalar equals another of the same type
    and value, and the Python object itself.

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

    def __getitem__(self, key: int | str) -> Any:
        """Return an element of a list, or the value of a struct's field, as a Python object."""
        return self.as_py()[key]

    def __len__(self) -> int:
        return len(self.as_py())

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

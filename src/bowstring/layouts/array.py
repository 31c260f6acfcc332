"""Arrays: «a sequence of values with known length all having the same type», over buffers that are never copied to be
shown.

An `Array` is what the specification's layouts describe: a type, a length, a null count, buffers, child arrays and, for
the dictionary-encoded layout, a dictionary. It adds an offset, as the C data interface does, so that slicing copies
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Unpack, overload

import numpy as np

from bowstring.datatypes.base import as_type
from bowstring.errors import DataTypeError, NotFoundError
from bowstring.layouts import array_methods
from bowstring.layouts.base import Layout, Values
from bowstring.layouts.gather import check_count, check_length
from bowstring.layouts.indexing import check_indices, clip_slice, normalize_index, to_integer
from bowstring.layouts.numpy_conversion import convert_dtype
from bowstring.memory import bitmap
from bowstring.memory.bitmap import Mask
from bowstring.memory.buffer import Buffer

if TYPE_CHECKING:
    from bowstring.datatypes.base import TypeLike
    from bowstring.datatypes.types import DataType
    from bowstring.interop.pandas.to_pandas import ToPandasOptions


class Array:
    """A sequence of `length` values of one data type; immutable.

    Made by `bowstring.array`, by readers, or from buffers by `Array.from_buffers`. Indexing gives Python values,
    slicing gives arrays over the same memory. Nothing is checked when an array is made: `validate` does that.
    """

    __slots__ = ("_null_count", "buffers", "children", "dictionary", "layout", "length", "offset")

    def __init__(  # noqa: PLR0913 -- these are what an array is
        self,
        layout: Layout,
        length: int,
        buffers: tuple[Buffer | None, ...],
        children: tuple[Array, ...] = (),
        dictionary: Array | None = None,
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

    @classmethod
    def from_buffers(  # noqa: PLR0913 -- these are what an array is
        cls,
        type: TypeLike,
        length: int,
        buffers: Sequence[Buffer | bytes | Values | None],
        children: Sequence[Array] = (),
        dictionary: Array | None = None,
        null_count: int = -1,
        offset: int = 0,
    ) -> Array:
        """An array over existing memory, without copying.

        `buffers` are as «Buffer Listing for Each Layout» lists them for the type, None for an absent validity bitmap;
        the slots are `offset` to `offset + length` of them. A negative null count is computed when it is asked for. The
        structure is checked (`validate()`), the values are not (`validate(full=True)`).
        """
        from bowstring.layouts import registry  # it imports every layout, and they import arrays

        held = tuple(b if b is None or isinstance(b, Buffer) else Buffer.of(b) for b in buffers)
        array = cls(
            registry.layout_of(as_type(type, "Array.from_buffers")),
            length,
            held,
            tuple(children),
            dictionary,
            null_count,
            offset,
        )
        array.validate()
        return array

    @property
    def type(self) -> DataType:
        """The data type."""
        return self.layout.type

    @property
    def null_count(self) -> int:
        """The number of null slots; counted on first use where it is not known."""
        if self._null_count < 0:
            self._null_count = self.layout.null_count(self)
        return self._null_count

    @property
    def nbytes(self) -> int:
        """The bytes that the slots of this array take up, dictionary included, padding and sliced-off parts not."""
        own = self.compact()
        total = sum(b.size for b in own.buffers if b is not None) + sum(child.nbytes for child in own.children)
        return total + (0 if own.dictionary is None else own.dictionary.nbytes)

    @property
    def storage(self) -> Array:
        """The same memory seen as the extension type's storage type (the array itself if it is no extension)."""
        return self.with_layout(self.layout.storage)

    def with_layout(self, layout: Layout) -> Array:
        """The same memory under another layout of the same buffers and children."""
        if layout is self.layout:
            return self
        return Array(layout, self.length, self.buffers, self.children, self.dictionary, self._null_count, self.offset)

    def values(self, index: int) -> Values:
        """The elements of buffer `index` that belong to the slots of this array, as a read-only NumPy view."""
        spec = self.layout.buffers[index]
        buffer = self.buffers[index]
        assert spec.dtype is not None
        if buffer is None or (buffer.size == 0 and self.offset + self.length == 0):
            return np.zeros(self.length + spec.extra, spec.dtype)
        return buffer.view(spec.dtype, self.offset, self.length + spec.extra)

    @property
    def validity(self) -> Buffer | None:
        """The array's own validity bitmap, whose bit `offset` belongs to the first slot; None where no slot is null."""
        return None if not self.layout.has_validity or self.null_count == 0 else self.buffers[0]

    def mask(self) -> Mask | None:
        """Which slots are valid, shape (length,), by the array's own bitmap; None where none is null."""
        validity = self.validity
        return None if validity is None else bitmap.unpack(validity, self.offset, self.length)

    @overload
    def is_valid(self, index: int) -> bool: ...
    @overload
    def is_valid(self) -> Array: ...
    def is_valid(self, index: int | None = None) -> bool | Array:
        """Whether slot `index` is not null, by the array's own bitmap; without an index, an array of booleans that
        says of each slot whether it holds a value (`bowstring.compute.nulls`). Raises `IndexError` outside the array.
        """
        if index is None:
            from bowstring.compute import nulls

            return nulls.is_valid(self)
        validity = self.buffers[0] if self.layout.has_validity else None
        index = normalize_index(index, self.length)
        if validity is None:
            return self.null_count == 0
        return bitmap.get(validity, self.offset + index)

    def field(self, key: int | str) -> Array:
        """A child array, by position or field name, cut to the slots of this array where both are in step."""
        names = [f.name for f in self.type.fields]
        if isinstance(key, str):
            if names.count(key) != 1:
                raise NotFoundError(f"{names.count(key)} children of {self.type} are called {key!r}; there are {names}")
            key = names.index(key)
        key = to_integer("a child's position", key)
        if not -len(names) <= key < len(names):
            raise NotFoundError(f"{self.type} has {len(names)} children, no child {key}")
        return self.compact().children[key]

    # Values

    def to_pylist(self) -> list[Any]:
        """The values as Python objects, None for null.

        Timestamps, dates, times and durations become `datetime` objects where these can hold them exactly, else NumPy's
        `datetime64` or `timedelta64`; decimals `Decimal`, structs dictionaries, maps lists of pairs. Raises
        `InvalidDataError` where the buffers do not hold such values, and `LimitError` where there would be many more
        values than the array has bytes (`bowstring.layouts.gather`).
        """
        if self.length == 1:
            return [self.layout.value_at(self, 0)]
        check_length(self)
        return self.layout.to_pylist(self)

    def to_numpy(self, zero_copy_only: bool = True) -> Values:
        """The values as a NumPy array of shape (length,), or (length, list_size) for fixed-size lists of plain numbers.

        Shares the memory, read-only, where the layout allows. Otherwise raises `WouldCopyError`, or with
        `zero_copy_only=False` copies: nulls become NaN, NaT or None, and integers with nulls become float64.
        """
        if not zero_copy_only:
            check_length(self)
        return self.layout.to_numpy(self, not zero_copy_only)

    def to_pandas(self, **options: Unpack[ToPandasOptions]) -> Any:
        """The values as a pandas series (`bowstring.interop.pandas.to_pandas`, where the options are).

        The series has memory of its own and can be edited; with `copy=False` or `zero_copy_only=True` it shares the
        memory, read-only, where there are no nulls and NumPy has the type. Raises `MissingExtraError` where pandas is
        not installed, `WouldCopyError` where `zero_copy_only` is impossible.
        """
        from bowstring.interop.pandas.to_pandas import to_series

        return to_series(self, options)

    @classmethod
    def from_pandas(cls, values: Any, type: TypeLike | None = None) -> Array:
        """The array of a pandas series, index or array; what pandas calls missing becomes null.

        Shares the memory of numbers and moments. Raises `DataTypeError` where values do not fit one type, or the one
        that is given, and for periods, intervals and sparse values.
        """
        from bowstring.interop.pandas.from_pandas import column_from_series

        return column_from_series(values, type).combine_chunks()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Values:
        """The values as `to_numpy` gives them, copied only where they have to be; `copy=False` raises `WouldCopyError`
        instead. Where there are nulls, raises `DataTypeError` for a `dtype` that has no way to show them.
        """
        return convert_dtype(self.to_numpy(zero_copy_only=copy is False), self, dtype, copy)

    def __buffer__(self, flags: int) -> memoryview:
        """The slots as `memoryview(array)` shows them, from Python 3.12 on (`bowstring.interop.dlpack`)."""
        from bowstring.interop import dlpack

        return dlpack.array_buffer(self)

    def __dlpack__(self, **options: Any) -> Any:
        """A copy of the values as a DLPack capsule, or with `copy=False` the values themselves, read-only; `options` as
        the array API standard lists them (`bowstring.interop.dlpack`).

        Raises `NotShareableError` (a `BufferError`) for nulls and for layouts without plain elements.
        """
        from bowstring.interop import dlpack

        return dlpack.array_capsule(self, options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Where the values are: the processor's memory."""
        from bowstring.interop import dlpack

        return dlpack.CPU_DEVICE

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Any]:
        return iter(self.to_pylist())

    @overload
    def __getitem__(self, key: int) -> Any: ...
    @overload
    def __getitem__(self, key: slice) -> Array: ...
    def __getitem__(self, key: int | slice) -> Any:
        if isinstance(key, slice):
            start, stop, step = key.indices(self.length)
            if step == 1:
                return self.slice(start, max(stop - start, 0))
            check_count(self, len(range(start, stop, step)))
            return self.take(np.arange(start, stop, step, dtype=np.int64))
        return self.layout.value_at(self, normalize_index(key, self.length))

    # Structure

    def slice(self, offset: int = 0, length: int | None = None) -> Array:
        """The `length` slots from slot `offset` on (to the end by default), without copying; cut to the array's own
        end.
        """
        offset, length = clip_slice(offset, length, self.length)
        if length == self.length:
            return self
        known = 0 if self._null_count == 0 else (length if self._null_count == self.length else -1)
        return Array(self.layout, length, self.buffers, self.children, self.dictionary, known, self.offset + offset)

    def compact(self) -> Array:
        """An equal array with offset 0 whose buffers hold nothing beyond its slots; copies as little as it can."""
        return self.layout.compact(self)

    def take(self, indices: Sequence[int] | Values | Array) -> Array:
        """The slots at `indices`, integers from 0 on and none of them null, copied.

        Raises `UsageError` for an index that is outside the array or no integer.
        """
        return self.layout.take(self, check_indices(indices, self.length))

    # Verbs (`bowstring.layouts.array_methods`)

    filter = array_methods.filter
    is_null = array_methods.is_null
    drop_null = array_methods.drop_null
    fill_null = array_methods.fill_null
    sort_indices = array_methods.sort_indices
    sort = array_methods.sort
    cast = array_methods.cast
    unique = array_methods.unique
    dictionary_encode = array_methods.dictionary_encode
    run_end_encode = array_methods.run_end_encode
    run_end_decode = array_methods.run_end_decode
    dictionary_decode = array_methods.dictionary_decode

    # Comparing, checking, showing

    def equals(self, other: Any, nans_equal: bool = False) -> bool:
        """Whether types, lengths, nulls and values are the same; what lies under a null does not count.

        The other may be an array of another library that has `__arrow_c_array__`.
        """
        from bowstring.layouts.equality import arrays_equal

        return arrays_equal(self, as_array(other), nans_equal)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Array):
            return NotImplemented
        return self.equals(other)

    __hash__ = None  # type: ignore[assignment]

    def validate(self, full: bool = False) -> None:
        """Check the structure: buffer sizes, counts, children; with `full` also every offset, index, string and run
        end.

        Raises `InvalidDataError`, whose message names the place.
        """
        from bowstring.layouts.validation import validate

        validate(self, full)

    def __repr__(self) -> str:
        from bowstring.layouts.display import array_repr

        return array_repr(self)

    # Exchange

    def __arrow_c_schema__(self) -> object:
        from bowstring.interop import c_data

        return c_data.export_type(self.type)

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        from bowstring.interop import c_data

        return c_data.export_array(self, requested_schema)

    def __arrow_c_device_array__(self, requested_schema: object = None, **options: object) -> tuple[object, object]:
        from bowstring.interop import c_data

        return c_data.export_device_array(self, requested_schema, options)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """The slots and no others; from protocol 5 on in buffers that travel beside the pickle, not copied (PEP 574).

        Unpickling shares the buffers that it is given, and checks the structure.
        """
        own = self.compact()
        buffers = tuple(None if b is None else b.pickled(protocol) for b in own.buffers)
        return _restore, (own.type, own.length, buffers, own.children, own.dictionary)


def _restore(*parts: Any) -> Array:
    return Array.from_buffers(*parts)


def as_array(values: object) -> Array:
    """An array, also of another library that has `__arrow_c_array__`; raises `DataTypeError` for anything else."""
    if isinstance(values, Array):
        return values
    if hasattr(values, "__arrow_c_array__"):
        from bowstring.interop import c_data

        return c_data.import_array(values)
    raise DataTypeError(f"expected an array, not {type(values).__name__}: make one with bowstring.array")

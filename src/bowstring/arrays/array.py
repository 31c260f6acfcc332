"""The public array: `ArrayData` with methods for users and the protocols of other libraries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Self, overload

import numpy as np

from bowstring.arrays.arithmetic import Arithmetic
from bowstring.datatypes.conversion import TypeLike, as_type
from bowstring.datatypes.field import DataType
from bowstring.datatypes.types import (
    BaseList,
    Dictionary,
    Int,
    LargeList,
    LargeListView,
    List,
    ListView,
    Map,
    RunEndEncoded,
    Struct,
    Union,
)
from bowstring.errors import InvalidArgumentError, NotFoundError, TypeMismatchError, suggest
from bowstring.interop import buffer_protocol, c_data, dlpack
from bowstring.interop.device_arrays import to_host
from bowstring.interop.pandas import series_to_column, to_series
from bowstring.interop.pyarrow_arrays import array_from_pyarrow, array_to_pyarrow
from bowstring.kernels import cast, encode, lists, nulls, sort
from bowstring.kernels.filter import MaskLike, NullSelection, mask_to_indices, mask_to_nullable_indices
from bowstring.kernels.sort import NullPlacement, Order
from bowstring.kernels.unify_dictionaries import concat_and_unify
from bowstring.layouts import validation
from bowstring.layouts.base import ArrayData, Indices, Values, check_expanded_arrays, total_buffer_size
from bowstring.layouts.dictionary import DictionaryLayout, decode_dictionary
from bowstring.layouts.dtype_conversion import convert_dtype
from bowstring.layouts.equality import arrays_equal
from bowstring.layouts.indexing import as_indices, chunk_starts, normalize_index, to_integer
from bowstring.layouts.registry import layout_of, primitive_layout
from bowstring.layouts.struct_ import StructLayout
from bowstring.memory import bitmap
from bowstring.memory.bitmap import Mask
from bowstring.memory.buffer import Buffer
from bowstring.pyarrow_names import explain_missing_attributes


@explain_missing_attributes
class Array(Arithmetic, ArrayData):
    """A sequence of `length` values of one data type; immutable.

    Created by `bowstring.array`, by readers, or from buffers by `Array.from_buffers`. Indexing returns Python values;
    slicing returns arrays that share the memory. The children and the dictionary are arrays, too.

    >>> array = bs.array([1, None, 3])
    >>> array.type, array.null_count, array[1:].to_pylist()
    (DataType(int64), 1, [None, 3])
    >>> array.take([2, 0])
    <bowstring.Array int64[2]>
    [3, 1]
    """

    __slots__ = ()

    @classmethod
    def from_array_data(cls, data: ArrayData, dictionaries: dict[int, Array] | None = None) -> Array:
        """Return the public array of an `ArrayData`, sharing its memory. An array is returned unchanged.

        `dictionaries` has the arrays of dictionaries by the `id` of their data, so that arrays share them, too. The
        caller keeps that data alive meanwhile, as an `id` may be used again.
        """
        if isinstance(data, Array):
            return data
        children: tuple[Array, ...] = ()
        dictionary = None
        if data.children or data.dictionary is not None:
            dictionaries = {} if dictionaries is None else dictionaries
            children = tuple([cls.from_array_data(child, dictionaries) for child in data.children])
            if data.dictionary is not None:
                dictionary = dictionaries.get(id(data.dictionary))
                if dictionary is None:
                    dictionary = dictionaries[id(data.dictionary)] = cls.from_array_data(data.dictionary, dictionaries)
        return cls(data.layout, data.length, data.own_buffers, children, dictionary, data.known_null_count, data.offset)

    def _to_pyarrow(self) -> Any:
        return array_to_pyarrow(self)

    def _from_pyarrow(self, value: Any) -> Array:
        return Array.from_array_data(array_from_pyarrow(value))

    @classmethod
    def from_buffers(  # noqa: PLR0913 -- an array has this many parts
        cls,
        type: TypeLike,
        length: int,
        buffers: Sequence[Buffer | bytes | Values | None],
        children: Sequence[ArrayData] = (),
        dictionary: ArrayData | None = None,
        null_count: int = -1,
        offset: int = 0,
    ) -> Array:
        """Create an array over existing memory, without copying.

        `buffers` follow «Buffer Listing for Each Layout», with None for an absent validity bitmap. The array consists
        of the slots from `offset` to `offset + length`. A negative null count is computed on first use. The structure
        is checked (`validate()`), the values are not (`validate(full=True)`). The arguments after `buffers` are best
        named: pyarrow has them in another order.

        >>> import numpy as np
        >>> bs.Array.from_buffers("int32", 3, [None, np.array([1, 2, 3], np.int32)])
        <bowstring.Array int32[3]>
        [1, 2, 3]
        """
        if not isinstance(children, Sequence):
            raise InvalidArgumentError(
                f"Array.from_buffers: expected a sequence of arrays as children, found {children!r:.100}: name the "
                "arguments after `buffers`, such as null_count=-1, offset=0, children=[…]"
            )
        array = cls(
            layout_of(as_type(type, "Array.from_buffers")),
            length,
            tuple(b if b is None or isinstance(b, Buffer) else Buffer.of(b) for b in buffers),
            tuple(map(as_array, children)),
            None if dictionary is None else as_array(dictionary),
            null_count,
            offset,
        )
        array.validate()
        return array

    # Structure

    def get_total_buffer_size(self) -> int:
        """Return the size of all buffers in bytes. A slice counts its whole buffers; shared buffers count once.

        >>> bs.array([1, 2, 3, 4])[:2].get_total_buffer_size()
        32
        """
        return total_buffer_size([self])

    def validate(self, full: bool = False) -> None:
        r"""Check buffer sizes, counts and children; with `full` also every offset, index, string and run end.

        Raises `InvalidDataError`; the message names the array, the buffer and the element.

        >>> import numpy as np
        >>> array = bs.Array.from_buffers("string", 1, [None, np.array([0, 1], np.int32), b"\xff"])
        >>> try:
        ...     array.validate(full=True)
        ... except bs.errors.InvalidDataError:
        ...     print("not valid UTF-8")
        not valid UTF-8
        """
        validation.validate(self, full)

    def buffers(self) -> list[Buffer | None]:
        r"""Return the buffers of the array and its children, depth first, whole ones also of a slice; not copied.

        They follow «Buffer Listing for Each Layout», with None for an absent validity bitmap, and as in pyarrow also
        for a layout without one: nulls, unions and runs. The buffers of a dictionary are not included.

        >>> validity, values = bs.array([1, 2], "int8").buffers()
        >>> validity is None, bytes(values)
        (True, b'\x01\x02')
        """
        missing = [] if self.layout.has_validity else [None]
        return [*missing, *self.own_buffers, *chain.from_iterable(child.buffers() for child in self.children)]

    def compact(self) -> Array:
        return Array.from_array_data(self.layout.compact(self))

    def field(self, key: int | str) -> Array:
        """Return a child array by index or field name, limited to the slots of this array.

        Raises `NotFoundError` if there is no such child or the name is ambiguous.

        >>> bs.array([{"x": 1, "y": "a"}, {"x": 2, "y": None}]).field("y")
        <bowstring.Array string[2]>
        ["a", null]
        """
        names = [f.name for f in self.type.fields]
        if isinstance(key, str):
            if names.count(key) != 1:
                raise NotFoundError(
                    f"{self.type} has {names.count(key)} children named {key!r}; its children are {names}"
                    f"{suggest(key, () if key in names else names)}"
                )
            key = names.index(key)
        key = to_integer("a child index", key)
        if not -len(names) <= key < len(names):
            raise NotFoundError(f"child index {key} is out of range for {self.type} with {len(names)} children")
        return self.compact().children[key]

    # Parts of nested and encoded arrays; an array of another type does not have them

    @property
    def values(self) -> Array:
        """The child of a list or map array, or the values of the runs of a run-end encoded array; a slice has all of
        them.

        >>> import bowstring as bs
        >>> bs.array([[1], [2, 3]]).values.to_pylist()
        [1, 2, 3]
        """
        self._require("values", BaseList, Map, RunEndEncoded)
        return self.children[-1]

    @property
    def offsets(self) -> Array:
        """The offsets of a list or map array, one more than there are lists, or of a list view or dense union array,
        one per slot. Shares the memory.
        """
        self._require("offsets", List, LargeList, ListView, LargeListView, Map, Union)
        if isinstance(self.type, Union) and self.type.mode == "sparse":
            self._require("offsets")  # raises
        return self._integers_of_buffer(1)

    @property
    def sizes(self) -> Array:
        """The sizes of a list view array, sharing the memory."""
        self._require("sizes", ListView, LargeListView)
        return self._integers_of_buffer(2)

    @property
    def type_codes(self) -> Array:
        """The type ids of a union array, sharing the memory."""
        self._require("type_codes", Union)
        return self._integers_of_buffer(0)

    @property
    def indices(self) -> Array:
        """The indices of a dictionary-encoded array, with its nulls, sharing the memory."""
        self._require("indices", Dictionary)
        layout = self.layout
        assert isinstance(layout, DictionaryLayout)
        return Array(layout.index_layout, self.length, self.own_buffers, (), None, self.known_null_count, self.offset)

    @property
    def run_ends(self) -> Array:
        """The run ends of a run-end encoded array; a slice has all of them."""
        self._require("run_ends", RunEndEncoded)
        return self.children[0]

    @property
    def keys(self) -> Array:
        """The keys of the maps of a map array; a slice has all of them."""
        self._require("keys", Map)
        return self.children[0].children[0]

    @property
    def items(self) -> Array:
        """The items of the maps of a map array; a slice has all of them."""
        self._require("items", Map)
        return self.children[0].children[1]

    def value_lengths(self) -> Array:
        """Return the number of elements of each list, null for null.

        >>> import bowstring as bs
        >>> bs.array([[1], None, [2, 3]]).value_lengths().to_pylist()
        [1, None, 2]
        """
        self._require("value_lengths", BaseList, Map)
        return Array.from_array_data(lists.value_lengths(self))

    def flatten(self) -> Any:
        """Return the elements of all lists that are not null, as one array.

        Of a struct array, return a list of its columns, which are null where the struct is null.

        >>> import bowstring as bs
        >>> bs.array([[1], None, [2, 3]]).flatten().to_pylist()
        [1, 2, 3]
        """
        self._require("flatten", BaseList, Map, Struct)
        if isinstance(self.layout, StructLayout):
            columns = self.layout.columns(self)
            return [Array.from_array_data(nulls.inherit_nulls(column, self)) for column in columns]
        return Array.from_array_data(lists.flatten(self))

    def _require(self, name: str, *types: type[DataType]) -> None:
        """Raise `AttributeError` unless the array has one of the types that have an attribute."""
        if not isinstance(self.type, types):
            raise AttributeError(f"an array of {self.type} has no attribute {name!r}")

    def _integers_of_buffer(self, index: int) -> Array:
        """Return a buffer of integers as an array that shares the memory."""
        slots = self.buffer_values(index)
        return Array.from_array_data(primitive_layout(Int(slots.itemsize * 8)).create_array(slots))

    @overload
    def is_valid(self, index: int) -> bool: ...
    @overload
    def is_valid(self) -> Array: ...
    def is_valid(self, index: int | None = None) -> bool | Array:
        """Return whether slot `index` is valid by the array's validity bitmap.

        Without an index, return a boolean array with one element per slot, which also considers nulls in dictionaries,
        runs and union children (`bowstring.kernels.nulls`). Raises `IndexError` if the index is out of range.

        >>> array = bs.array([1, None])
        >>> array.is_valid(1), array.is_valid().to_pylist()
        (False, [True, False])
        """
        if index is None:
            return Array.from_array_data(nulls.is_valid(self))
        validity = self.own_buffers[0] if self.layout.has_validity else None
        index = normalize_index(index, self.length)
        if validity is None:
            return self.null_count == 0
        return bitmap.get(validity, self.offset + index)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.to_pylist())

    @overload
    def __getitem__(self, key: int) -> Any: ...
    @overload
    def __getitem__(self, key: slice) -> Self: ...
    def __getitem__(self, key: int | slice) -> Any:
        if isinstance(key, slice):
            start, stop, step = key.indices(self.length)
            if step == 1:
                return self.slice(start, max(stop - start, 0))
            # The indices alone take 8 bytes a slot, and slots without memory, such as nulls, can be any number.
            check_expanded_arrays([self], len(range(start, stop, step)))
            return self.take(np.arange(start, stop, step, dtype=np.int64))
        return self.layout.value_at(self, normalize_index(key, self.length))

    # Compute

    def take(self, indices: Sequence[int | None] | Values | ArrayData) -> Array:
        """Return the slots at `indices` (non-negative integers), copied; null for null.

        Raises `InvalidArgumentError` if an index is out of range or not an integer.

        >>> bs.array(["a", "b", "c"]).take([2, None])
        <bowstring.Array string[2]>
        ["c", null]
        """
        checked_indices, is_null = as_nullable_indices(indices, self.length)
        if is_null is None:
            return Array.from_array_data(self.layout.take(self, checked_indices))
        values = self if self.length else self.layout.nulls(1)
        return Array.from_array_data(nulls.set_nulls(self.layout.take(values, checked_indices), is_null))

    def filter(self, mask: MaskLike, *, null_selection_behavior: NullSelection = "drop") -> Array:
        """Return the slots for which `mask` is true, copied; a null in the mask drops its slot, or with "emit_null"
        makes it null.

        Raises `InvalidArgumentError` if the mask is not boolean or its length differs from the array's.

        >>> bs.array([1, 2, 3]).filter([True, False, True])
        <bowstring.Array int64[2]>
        [1, 3]
        """
        indices = mask_to_nullable_indices(mask, self.length, null_selection_behavior)
        if indices is not None:
            return self.take(indices)
        return Array.from_array_data(self.layout.take(self, mask_to_indices(mask, self.length)))

    def is_null(self, nan_is_null: bool = False) -> Array:
        """Return a boolean array that is true for nulls, and with `nan_is_null` also for NaN.

        Nulls in a dictionary, a run or a union's child count as null.

        >>> bs.array([1.5, None, float("nan")]).is_null(nan_is_null=True)
        <bowstring.Array bool[3]>
        [false, true, true]
        """
        return Array.from_array_data(nulls.is_null(self, nan_is_null))

    def drop_null(self) -> Array:
        """Return the slots that are not null, copied if there are nulls.

        >>> bs.array([1, None, 3]).drop_null()
        <bowstring.Array int64[2]>
        [1, 3]
        """
        return Array.from_array_data(nulls.drop_null(self))

    def fill_null(self, fill_value: Any) -> Array:
        """Replace nulls by `fill_value`, a Python value or scalar of the array's type; copies if there are nulls.

        Raises `TypeMismatchError` if the value does not fit the type.

        >>> bs.array([1, None, 3]).fill_null(0)
        <bowstring.Array int64[3]>
        [1, 0, 3]
        """
        return Array.from_array_data(nulls.fill_null(self, fill_value))

    def sort_indices(self, order: Order = "ascending", null_placement: NullPlacement = "at_end") -> Array:
        """Return the uint64 indices that sort the array; the sort is stable (`bowstring.kernels.sort`).

        Nulls, and NaN next to them, come last or first. Raises `TypeMismatchError` if the type has no order.

        >>> bs.array([3, None, 1]).sort_indices()
        <bowstring.Array uint64[3]>
        [2, 0, 1]
        """
        return Array.from_array_data(sort.sort_indices(self, order, null_placement))

    def sort(self, order: Order = "ascending", null_placement: NullPlacement = "at_end") -> Array:
        """Return the sorted values, copied, in the order of `sort_indices`.

        >>> bs.array([3, None, 1]).sort("descending", null_placement="at_start")
        <bowstring.Array int64[3]>
        [null, 3, 1]
        """
        return self.take(self.sort_indices(order, null_placement))

    def cast(self, target_type: TypeLike, safe: bool = True) -> Array:
        """Cast the values to another type, copied if they change (`bowstring.kernels.cast`).

        The type is a Bowstring type, a type of another library, or a name such as "int64".

        Raises `TypeMismatchError` if there is no such cast or, naming the value, if a value overflows or loses
        information. With `safe=False` such a value wraps around or is truncated. Strings that cannot be parsed always
        raise.

        >>> bs.array(["1", None]).cast("int64")
        <bowstring.Array int64[2]>
        [1, null]
        >>> bs.array([300]).cast("int8", safe=False)
        <bowstring.Array int8[1]>
        [44]
        """
        return Array.from_array_data(cast.cast(self, target_type, safe))

    def unique(self) -> Array:
        """Return the distinct values in order of first appearance, copied.

        All NaNs are one value, and so are all nulls.

        >>> bs.array(["a", None, "a"]).unique()
        <bowstring.Array string[2]>
        ["a", null]
        """
        return Array.from_array_data(encode.unique(self))

    def dictionary_encode(self, index_type: TypeLike | None = None) -> Array:
        """Dictionary-encode the array, with int32 indices by default. Dictionary-encoded arrays are returned unchanged.

        Raises `TypeMismatchError` if there are too many distinct values for the index type.

        >>> bs.array(["a", "b", "a"]).dictionary_encode().dictionary
        <bowstring.Array string[2]>
        ["a", "b"]
        """
        return Array.from_array_data(encode.dictionary_encode(self, index_type))

    def dictionary_decode(self) -> Array:
        """Decode a dictionary-encoded array, copied. Any other array is returned unchanged.

        >>> bs.array(["a", "b", "a"]).dictionary_encode().dictionary_decode()
        <bowstring.Array string[3]>
        ["a", "b", "a"]
        """
        return Array.from_array_data(decode_dictionary(self))

    def run_end_encode(self, run_end_type: TypeLike | None = None) -> Array:
        """Run-end encode the array, with int32 run ends by default. Run-end encoded arrays are returned unchanged.

        >>> bs.array(["a", "a", "b"]).run_end_encode().type
        DataType(run_end_encoded<run_ends: int32, values: string>)
        """
        return Array.from_array_data(encode.run_end_encode(self, run_end_type))

    def run_end_decode(self) -> Array:
        """Decode a run-end encoded array, copied. Any other array is returned unchanged.

        >>> bs.array(["a", "a", "b"]).run_end_encode().run_end_decode()
        <bowstring.Array string[3]>
        ["a", "a", "b"]
        """
        return Array.from_array_data(encode.run_end_decode(self))

    # Comparison

    def equals(self, other: object, nans_equal: bool = False) -> bool:
        """Return whether types, lengths, nulls and values are equal. Memory under nulls is ignored.

        `other` may be an array of another library with `__arrow_c_array__`.

        >>> bs.array([1, None]).equals(bs.array([1, None]))
        True
        """
        return arrays_equal(self, as_array(other), nans_equal)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Array):
            return NotImplemented
        return self.equals(other)

    __hash__ = None  # type: ignore[assignment]

    # NumPy and pandas

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Values:
        """Return the values as `to_numpy` does, copied only if necessary.

        `copy=False` raises `WouldCopyError` instead of copying. Raises `TypeMismatchError` if there are nulls and
        `dtype` cannot represent them.
        """
        return convert_dtype(self.to_numpy(zero_copy_only=copy is False), self, dtype, copy)

    def to_pandas(self, **options: Any) -> Any:
        """Return the values as a pandas series. pyarrow converts them, with the options of its `to_pandas`.

        As there, numbers, timestamps and durations without nulls share the array's memory, read-only, and a
        `types_mapper` has pyarrow's types. The values are checked before. Raises `MissingExtraError` without pandas or
        pyarrow, `InvalidDataError` for invalid values, `UnsupportedTypeError` for types that pandas can't have, and
        `WouldCopyError` if `zero_copy_only` is not possible.

        >>> bs.array([1, 2]).to_pandas().sum().item()
        3
        """
        return to_series(self, options)

    @classmethod
    def from_pandas(cls, values: Any, type: TypeLike | None = None, **options: Any) -> Array:
        """Create an array from a pandas series, index or array. Missing values become null.

        pyarrow converts them, with the options of its `Array.from_pandas`, such as `safe=False`, and shares the memory
        of numbers, dates and times. Raises `TypeMismatchError` if the values do not fit one type or the requested one,
        and for intervals, sparse values and others without an Arrow type.

        >>> import pandas as pd
        >>> bs.Array.from_pandas(pd.Series([1.5, None]))
        <bowstring.Array double[2]>
        [1.5, null]
        """
        return cls.from_array_data(series_to_column(values, type, options).combine_chunks())

    # Protocols: DLPack, the buffer protocol, the Arrow C data interface, pickle

    def to_host(self) -> Array:
        """Copy memory of a GPU to the CPU, where Python can read it. Memory of the CPU is not copied."""
        return Array.from_array_data(to_host(self))

    def __buffer__(self, flags: int) -> memoryview:
        """Support `memoryview(array)` from Python 3.12 on (`bowstring.interop.buffer_protocol`)."""
        return buffer_protocol.to_memoryview(self)

    def __dlpack__(self, **options: Any) -> Any:
        """Return the values as a DLPack capsule: a copy, or with `copy=False` the read-only memory itself.

        `options` are as in the array API standard (`bowstring.interop.dlpack`). Raises `BufferExchangeError` (a
        `BufferError`) for nulls and for layouts without primitive elements.
        """
        return dlpack.array_to_dlpack(self, options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """The DLPack device of the values: the CPU, or a GPU whose memory a server shares."""
        return dlpack.dlpack_device_of(self)

    def __arrow_c_schema__(self) -> object:
        return self.type.__arrow_c_schema__()

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return c_data.export_array(self, requested_schema)

    def __arrow_c_device_array__(self, requested_schema: object = None, **options: object) -> tuple[object, object]:
        return c_data.export_array(self, requested_schema, options)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Pickle the slots of the array only; from protocol 5 on with out-of-band buffers, not copied (PEP 574).

        Unpickling shares the out-of-band buffers and checks the structure.
        """
        array = self.compact()
        buffers = tuple(None if b is None else b.as_picklable(protocol) for b in array.own_buffers)
        return _unpickle_array, (array.type, array.length, buffers, array.children, array.dictionary)


def _unpickle_array(*args: Any) -> Array:
    return Array.from_buffers(*args)


def as_array(values: object) -> Array:
    """Return an array unchanged, or import one of another library with `__arrow_c_array__`.

    Raises `TypeMismatchError` for any other object.
    """
    if isinstance(values, ArrayData):
        return Array.from_array_data(values)
    if hasattr(values, "__arrow_c_array__"):
        return import_array(values)
    raise TypeMismatchError(f"expected an array, found {type(values).__name__}; create one with bowstring.array")


def as_arrays(values: Sequence[object]) -> list[Array]:
    """Convert several arrays with `as_array`; dictionaries that they share stay shared."""
    dictionaries: dict[int, Array] = {}
    return [Array.from_array_data(v, dictionaries) if isinstance(v, ArrayData) else as_array(v) for v in values]


def import_array(source: object) -> Array:
    """Import an array of another library through the C data interface. Raises like `c_data.import_array`."""
    return Array.from_array_data(c_data.import_array(source))


def concat_arrays(arrays: Iterable[Array]) -> Array:
    """Concatenate arrays of one data type; copies.

    Dictionaries are unified. Raises `TypeMismatchError` if the union is too large for the indices.

    >>> bs.concat_arrays([bs.array([1, 2]), bs.array([None, 4])])
    <bowstring.Array int64[4]>
    [1, 2, null, 4]
    """
    if isinstance(arrays, ArrayData):
        raise InvalidArgumentError("expected a sequence of arrays to concatenate, found one: write [array]")
    arrays = [as_array(array) for array in arrays]
    if not arrays:
        raise InvalidArgumentError("there are no arrays to concatenate")
    for array in arrays:
        if array.type != arrays[0].type:
            raise InvalidArgumentError(f"arrays of {arrays[0].type} and {array.type} can't be concatenated")
    chunk_starts([array.length for array in arrays])  # raises if there are too many values
    return Array.from_array_data(concat_and_unify(arrays))


def as_nullable_indices(indices: Any, length: int) -> tuple[Indices, Mask | None]:
    """Return indices, 0 for null, and which of them are null; None if none is. Raises as `Array.take`."""
    if isinstance(indices, list | tuple) and None in indices:
        indices = Array.from_array_data(primitive_layout(Int(64)).from_pylist(indices))
    elif not isinstance(indices, ArrayData) and (c_data.has_c_array(indices) or c_data.has_c_stream(indices)):
        indices = import_array(indices)
    valid = indices.layout.logical_validity_mask(indices) if isinstance(indices, ArrayData) else None
    if valid is None or valid.all():
        return as_indices(indices, length), None
    values = np.zeros(indices.length, np.int64)
    values[valid] = as_indices(Array.from_array_data(nulls.drop_null(indices)), length)
    return values, ~valid

"""Nested and encoded arrays of their parts: classes with the names of pyarrow's, such as `ListArray.from_arrays`.

All arrays are `Array`s. `isinstance(array, ListArray)` is true for one of the corresponding type.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NoReturn

import numpy as np

from bowstring.arrays.array import Array
from bowstring.arrays.chunked_array import combine_if_chunked
from bowstring.arrays.construction import array, as_mask
from bowstring.arrays.record_batch import convert_columns
from bowstring.datatypes import factories, types as t
from bowstring.datatypes.conversion import TypeLike, as_type
from bowstring.datatypes.extension import ExtensionType
from bowstring.datatypes.field import Field
from bowstring.datatypes.schema import Schema
from bowstring.errors import InvalidArgumentError, InvalidDataError, TypeMismatchError
from bowstring.layouts.base import ArrayData, Values, pack_validity, to_buffer
from bowstring.layouts.dictionary import DictionaryLayout
from bowstring.layouts.registry import layout_of, layout_of_class
from bowstring.memory.buffer import Buffer


class _ArrayKind(type):
    """The metaclass of the classes below: their instances are arrays of `TYPE`.

    Arrays are not created as instances of these classes: the type of an `Array` determines its layout, so that readers
    and kernels create arrays of any type without choosing a class.
    """

    TYPE: ClassVar[type[t.DataType]]

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Array) and isinstance(instance.type, cls.TYPE)

    def __call__(cls, *_: object, **__: object) -> NoReturn:
        constructor = next(name for name in dir(cls) if name.startswith("from_"))
        raise TypeMismatchError(f"{cls.__name__} has no constructor of its own: use {cls.__name__}.{constructor}")


class _ListKind(metaclass=_ArrayKind):
    TYPE: ClassVar[type[t.BaseList]]

    @classmethod
    def from_arrays(cls, offsets: Any, values: Any, type: TypeLike | None = None, mask: Any = None) -> Array:
        """Create an array of lists of consecutive `values`; list i is from `offsets[i]` to `offsets[i + 1]`.

        A list is null if its offset is null, or `mask`, booleans of shape (lists,), is true. Shares the memory of
        `values`. Raises `TypeMismatchError` if the values do not have the type, `InvalidArgumentError` for an
        invalid offset.
        """
        elements = array(values)
        return _create_lists(_resolve_list_type(cls.TYPE, elements, type), offsets, elements, mask)


class ListArray(_ListKind):
    """Arrays of lists.

    >>> import bowstring as bs
    >>> bs.ListArray.from_arrays([0, 2, 3], [1, 2, 3]).to_pylist()
    [[1, 2], [3]]
    """

    TYPE = t.List


class LargeListArray(_ListKind):
    """Arrays of lists with 64-bit offsets.

    >>> bs.LargeListArray.from_arrays([0, 2, 3], bs.array(["a", "b", "c"]))
    <bowstring.Array large_list<item: string>[2]>
    [["a", "b"], ["c"]]
    """

    TYPE = t.LargeList


class _ListViewKind(metaclass=_ArrayKind):
    TYPE: ClassVar[type[t.BaseList]]

    @classmethod
    def from_arrays(
        cls, offsets: Any, sizes: Any, values: Any, type: TypeLike | None = None, mask: Any = None
    ) -> Array:
        """Create an array of lists; list i has `sizes[i]` values from `offsets[i]` on. As `ListArray.from_arrays`."""
        elements = array(values)
        list_type = _resolve_list_type(cls.TYPE, elements, type)
        dtype = _offset_dtype(list_type)
        offset_array = array(offsets)
        starts, lengths = _to_numpy(offset_array.fill_null(0), dtype, "offsets"), _to_numpy(sizes, dtype, "sizes")
        if len(starts) != len(lengths):
            raise InvalidArgumentError(f"expected as many offsets as sizes, found {len(starts)} and {len(lengths)}")
        if offset_array.null_count:
            _check_one_source_of_nulls(mask)
            mask = np.asarray(offset_array.is_null())
            lengths = np.where(mask, 0, lengths)
        buffers = (_pack_nulls(mask, len(starts)), to_buffer(starts), to_buffer(lengths))
        return _create(list_type, len(starts), buffers, [elements])


class ListViewArray(_ListViewKind):
    """Arrays of lists with an offset and a size each.

    >>> import bowstring as bs
    >>> bs.ListViewArray.from_arrays([1, 0], [2, 2], [1, 2, 3]).to_pylist()
    [[2, 3], [1, 2]]
    """

    TYPE = t.ListView


class LargeListViewArray(_ListViewKind):
    """Arrays of lists with a 64-bit offset and size each.

    >>> bs.LargeListViewArray.from_arrays([1, 0], [2, 1], bs.array(["a", "b", "c"]))
    <bowstring.Array large_list_view<item: string>[2]>
    [["b", "c"], ["a"]]
    """

    TYPE = t.LargeListView


class FixedSizeListArray(metaclass=_ArrayKind):
    """Arrays of lists of one size.

    >>> bs.FixedSizeListArray.from_arrays(bs.array([1, 2, 3, 4]), 2)
    <bowstring.Array fixed_size_list<item: int64>[2][2]>
    [[1, 2], [3, 4]]
    """

    TYPE = t.FixedSizeList

    @classmethod
    def from_arrays(
        cls, values: Any, list_size: int | None = None, type: TypeLike | None = None, mask: Any = None
    ) -> Array:
        """Create an array of lists of `list_size` consecutive values, or of the size of the type.

        As `ListArray.from_arrays`. Raises `InvalidArgumentError` for a size below 1, whose number of lists the values
        do not determine, and if the number of values is not a multiple of the size.
        """
        elements = array(values)
        if (list_size is None) == (type is None):
            raise InvalidArgumentError("FixedSizeListArray: expected either list_size or type")
        list_type = as_type(type) if list_size is None else factories.list_(elements.type, list_size)
        if not isinstance(list_type, t.FixedSizeList):
            raise TypeMismatchError(f"FixedSizeListArray: {list_type} is not a fixed-size list")
        if list_type.list_size < 1:
            raise InvalidArgumentError(
                f"FixedSizeListArray: expected a list size of 1 or more, not {list_type.list_size}"
            )
        length, remainder = divmod(len(elements), list_type.list_size)
        if remainder:
            raise InvalidArgumentError(
                f"FixedSizeListArray: {len(elements)} values are not a multiple of {list_type.list_size}"
            )
        return _create(list_type, length, (_pack_nulls(mask, length),), [elements])


class MapArray(metaclass=_ArrayKind):
    """Arrays of maps.

    >>> import bowstring as bs
    >>> bs.MapArray.from_arrays([0, 2], ["a", "b"], [1, 2]).to_pylist()
    [[('a', 1), ('b', 2)]]
    """

    TYPE = t.Map

    @classmethod
    def from_arrays(cls, offsets: Any, keys: Any, items: Any, type: TypeLike | None = None, mask: Any = None) -> Array:
        """Create an array of maps of consecutive keys and items, as `ListArray.from_arrays`."""
        columns = [array(keys), array(items)]
        map_type = factories.map_(columns[0].type, columns[1].type) if type is None else as_type(type)
        if not isinstance(map_type, t.Map):
            raise TypeMismatchError(f"MapArray: {map_type} is not a map")
        entries = StructArray.from_arrays(columns, type=map_type.entries_field.type)
        return _create_lists(map_type, offsets, entries, mask)


class StructArray(metaclass=_ArrayKind):
    """Arrays of structs.

    >>> import bowstring as bs
    >>> bs.StructArray.from_arrays([[1, 2], ["x", "y"]], ["a", "b"]).to_pylist()
    [{'a': 1, 'b': 'x'}, {'a': 2, 'b': 'y'}]
    """

    TYPE = t.Struct

    @classmethod
    def from_arrays(
        cls,
        arrays: Sequence[Any],
        names: Sequence[str] | None = None,
        fields: Sequence[Field] | None = None,
        mask: Any = None,
        type: TypeLike | None = None,
    ) -> Array:
        """Create an array of structs of columns of one length, with names, fields or a type.

        A struct is null where `mask` is true. Shares the memory of the columns.
        """
        if [names, fields, type].count(None) != 2:
            raise InvalidArgumentError("StructArray: expected one of names, fields and type")
        struct_type = None if names is not None else factories.struct(fields) if fields is not None else as_type(type)
        if not isinstance(struct_type, t.Struct | None):
            raise TypeMismatchError(f"StructArray: {struct_type} is not a struct")
        columns, schema = convert_columns(arrays, None if struct_type is None else Schema(struct_type.fields), names)
        length = len(columns[0]) if columns else 0
        children = [combine_if_chunked(column) for column in columns]
        return _create(t.Struct(schema.fields), length, (_pack_nulls(mask, length),), children)


class DictionaryArray(metaclass=_ArrayKind):
    """Dictionary-encoded arrays.

    >>> import bowstring as bs
    >>> bs.DictionaryArray.from_arrays([0, 1, None, 0], ["a", "b"]).to_pylist()
    ['a', 'b', None, 'a']
    """

    TYPE = t.Dictionary

    @classmethod
    def from_arrays(cls, indices: Any, dictionary: Any, mask: Any = None, ordered: bool = False) -> Array:
        """Create an array of the dictionary's values at `indices`, null where these are or `mask` is true.

        Raises `InvalidArgumentError` if an index is not within the dictionary.
        """
        index_array, values = array(indices, mask=mask), array(dictionary)
        if not isinstance(index_array.type, t.Int):
            raise TypeMismatchError(f"DictionaryArray: expected integers as indices, found {index_array.type}")
        layout = layout_of_class(factories.dictionary(index_array.type, values.type, ordered), DictionaryLayout)
        return _check(Array.from_array_data(layout.create_array(index_array, values)))


class RunEndEncodedArray(metaclass=_ArrayKind):
    """Run-end encoded arrays.

    >>> import bowstring as bs
    >>> bs.RunEndEncodedArray.from_arrays([2, 3], ["a", "b"]).to_pylist()
    ['a', 'a', 'b']
    """

    TYPE = t.RunEndEncoded

    @classmethod
    def from_arrays(cls, run_ends: Any, values: Any, type: TypeLike | None = None) -> Array:
        """Create an array of runs; run i has the value `values[i]` and ends before slot `run_ends[i]`.

        Raises `InvalidArgumentError` if the run ends do not ascend.
        """
        run_type = None if type is None else as_type(type)
        if run_type is not None and not isinstance(run_type, t.RunEndEncoded):
            raise TypeMismatchError(f"RunEndEncodedArray: {run_type} is not a run-end encoded type")
        ends = array(run_ends, None if run_type is None or isinstance(run_ends, ArrayData) else run_type.run_end_type)
        value_array = array(values)
        run_type = run_type or factories.run_end_encoded(ends.type, value_array.type)
        # A null as the last run end has no length; `_create` rejects it.
        length = ends[len(ends) - 1] or 0 if len(ends) else 0
        return _create(run_type, length, (), [ends, value_array])


class UnionArray(metaclass=_ArrayKind):
    """Arrays of unions.

    >>> array = bs.UnionArray.from_sparse(bs.array([0, 1], "int8"), [bs.array([1, 0]), bs.array(["", "b"])], ["n", "s"])
    >>> array.to_pylist(), array.field(1).to_pylist()
    ([1, 'b'], ['', 'b'])
    """

    TYPE = t.Union

    @classmethod
    def from_dense(
        cls,
        types: Any,
        value_offsets: Any,
        children: Sequence[Any],
        field_names: Sequence[str] | None = None,
        type_codes: Sequence[int] | None = None,
    ) -> Array:
        """Create an array whose slot i is the value at `value_offsets[i]` of the child with the code `types[i]`.

        The codes of the children are 0, 1, … by default, as are their names.
        """
        arrays = [array(child) for child in children]
        union_type = factories.dense_union(_name_children(arrays, field_names), type_codes)
        type_ids, offsets = _to_numpy(types, "i1", "types"), _to_numpy(value_offsets, "i4", "value_offsets")
        if len(type_ids) != len(offsets):
            raise InvalidArgumentError(f"UnionArray: {len(type_ids)} types and {len(offsets)} value_offsets")
        return _create(union_type, len(type_ids), (to_buffer(type_ids), to_buffer(offsets)), arrays)

    @classmethod
    def from_sparse(
        cls,
        types: Any,
        children: Sequence[Any],
        field_names: Sequence[str] | None = None,
        type_codes: Sequence[int] | None = None,
    ) -> Array:
        """Create an array whose slot i is slot i of the child with the code `types[i]`; as `from_dense`."""
        arrays = [array(child) for child in children]
        union_type = factories.sparse_union(_name_children(arrays, field_names), type_codes)
        type_ids = _to_numpy(types, "i1", "types")
        return _create(union_type, len(type_ids), (to_buffer(type_ids),), arrays)


class ExtensionArray(metaclass=_ArrayKind):
    """Arrays of extension types.

    >>> from uuid import UUID
    >>> ids = bs.array([UUID(int=1), None], bs.datatypes.uuid())
    >>> isinstance(ids, bs.ExtensionArray), ids.storage.type
    (True, DataType(fixed_size_binary[16]))
    """

    TYPE = ExtensionType

    @classmethod
    def from_storage(cls, typ: ExtensionType, storage: Any) -> Array:
        """Create an array of an extension type over an array of its storage type, without copying."""
        values = storage if isinstance(storage, ArrayData) else array(storage, typ.storage_type)
        if values.type != typ.storage_type:
            raise TypeMismatchError(f"ExtensionArray: expected {typ.storage_type}, found {values.type}")
        return _check(Array.from_array_data(values.with_layout(layout_of(typ))))


def _resolve_list_type(kind: type[t.BaseList], elements: Array, requested_type: TypeLike | None) -> t.DataType:
    """Return the requested list type, which must be of a kind, or the type of lists of the elements."""
    default = kind(factories.as_child_field(elements.type, "item"))
    list_type = default if requested_type is None else as_type(requested_type)
    if not isinstance(list_type, kind):
        raise TypeMismatchError(f"expected a type such as {default}, found {list_type}")
    return list_type


def _offset_dtype(type_: t.DataType) -> np.dtype[Any]:
    dtype = layout_of(type_).buffers[1].dtype
    assert dtype is not None
    return dtype


def _create_lists(list_type: t.DataType, offsets: Any, elements: Array, mask: Any) -> Array:
    numbers, valid = _split_offsets(offsets, _offset_dtype(list_type))
    if not numbers.size:
        raise InvalidArgumentError("expected one offset more than lists, found none")
    if valid is not None:
        _check_one_source_of_nulls(mask)
    length = len(numbers) - 1
    validity = _pack_nulls(mask, length) if valid is None else pack_validity(valid[:-1])
    return _create(list_type, length, (validity, to_buffer(numbers)), [elements])


def _split_offsets(offsets: Any, dtype: np.dtype[Any]) -> tuple[Values, Values | None]:
    """Return offsets, and which are valid (None if all are).

    A null offset is replaced by the next valid one, as in pyarrow: the null list is empty, and the list before it ends
    where the next valid list begins.
    """
    offset_array = array(offsets)
    if not offset_array.null_count:
        return _to_numpy(offset_array, dtype, "offsets"), None
    valid = np.asarray(offset_array.is_valid())
    if not valid[-1]:
        raise InvalidArgumentError("the last offset is null")
    indices = np.where(valid, np.arange(len(valid)), len(valid))
    following = np.minimum.accumulate(indices[::-1])[::-1]
    return _to_numpy(offset_array.take(following), dtype, "offsets"), valid


def _name_children(arrays: Sequence[Array], names: Sequence[str] | None) -> list[tuple[str, t.DataType]]:
    names = [str(index) for index in range(len(arrays))] if names is None else names
    if len(names) != len(arrays):
        raise InvalidArgumentError(f"UnionArray: {len(names)} field_names for {len(arrays)} children")
    return [(name, child.type) for name, child in zip(names, arrays, strict=True)]


def _to_numpy(values: Any, dtype: str | np.dtype[Any], name: str) -> Values:
    """Convert integers without nulls to a NumPy type. Raises `InvalidArgumentError` if one does not fit."""
    integers = array(values)
    if integers.null_count:
        raise InvalidArgumentError(f"{name}: expected no nulls, found {integers.null_count}")
    # An empty list has the type null, which NumPy does not have.
    numbers = np.asarray(integers if len(integers) else [], None if len(integers) else dtype)
    if numbers.dtype.kind not in "iu":
        raise TypeMismatchError(f"{name}: expected integers, found {integers.type}")
    limits = np.iinfo(dtype)
    if numbers.size and not limits.min <= int(numbers.min()) <= int(numbers.max()) <= limits.max:
        raise InvalidArgumentError(f"{name}: expected integers of {limits.bits} bits")
    return numbers.astype(dtype, copy=False)


def _check_one_source_of_nulls(mask: Any) -> None:
    """Raise `InvalidArgumentError` if there is a mask in addition to null offsets."""
    if mask is not None:
        raise InvalidArgumentError("expected either null offsets or a mask, found both")


def _pack_nulls(mask: Any, length: int) -> Buffer | None:
    """Return the validity bitmap of slots that are null where a mask is true. Raises as `as_mask`."""
    return None if mask is None else pack_validity(~as_mask(mask, (length,)))


def _create(type_: t.DataType, length: int, buffers: tuple[Buffer | None, ...], children: Sequence[Array]) -> Array:
    for child, field in zip(children, type_.fields, strict=True):
        if child.type != field.type:
            raise TypeMismatchError(f"field {field.name!r}: expected {field.type}, found {child.type}")
    return _check(Array(layout_of(type_), length, buffers, tuple(children)))


def _check(values: Array) -> Array:
    """Check an array, but not its children, which exist already; raises `InvalidArgumentError`."""
    try:
        # Not `validate`: it would read all values of the children. `check_full` is first because its messages name the
        # offset or the index; it reads nothing outside the buffers and children.
        values.layout.check_full(values)
        values.layout.check(values)
    except InvalidDataError as error:
        raise InvalidArgumentError(f"{values.type}: {error}") from None
    return values

"""«FieldData» of the JSON test data format: reading and writing arrays.

Both directions follow the layout's declaration: each buffer has a member, each child a «FieldData» object.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bowstring.datatypes.field import Field
from bowstring.errors import InvalidDataError, UnsupportedError, prefix_errors
from bowstring.layouts.base import ArrayData, BufferRole, BufferSpec, Layout, pack_validity
from bowstring.layouts.binary import BinaryLayout
from bowstring.layouts.binary_view import BinaryViewLayout
from bowstring.layouts.registry import layout_of
from bowstring.layouts.validation import validate
from bowstring.memory import bitmap
from bowstring.memory.buffer import Buffer
from tests.integration_json.buffer_values import (
    Validity,
    from_hex,
    read_booleans,
    read_integers,
    read_slots,
    read_strings,
    read_views,
    to_hex,
    write_integers,
    write_slots,
    write_views,
)
from tests.integration_json.json_access import Json, convert_values, expect_json_type, read_count, read_member
from tests.integration_json.schema import FieldTreeNode

MEMBER_NAMES = {
    BufferRole.VALIDITY: "VALIDITY",
    BufferRole.OFFSETS: "OFFSET",
    BufferRole.SIZES: "SIZE",
    BufferRole.TYPE_IDS: "TYPE_ID",
    BufferRole.VIEWS: "VIEWS",
    BufferRole.DATA: "DATA",
}
"""The name of the member for each buffer role."""

DictionaryLookup = Callable[[int], ArrayData]
"""Returns the dictionary with an ID."""


# Reading


def read_column(node: FieldTreeNode, column: Any, dictionaries: DictionaryLookup, check_name: bool = True) -> ArrayData:
    """Read the array of a «FieldData» object and check its structure, but not its values.

    Raises `InvalidDataError` naming the column, the child and the element.
    """
    with prefix_errors(f"column {node.field.name!r}"):
        array = _read_array(node, layout_of(node.field.type), column, dictionaries, check_name)
        validate(array, full=False)
        return array


def read_dictionary_values(
    node: FieldTreeNode, type_layout: Layout, column: Any, dictionaries: DictionaryLookup
) -> ArrayData:
    """Read the array of the «FieldData» in a «DictionaryBatch», ignoring its name. Raises as `read_column`."""
    values = FieldTreeNode(Field(node.field.name, type_layout.type), None, node.children)
    array = _read_array(values, type_layout, column, dictionaries, False)
    validate(array, full=False)
    return array


def _read_array(
    node: FieldTreeNode, layout: Layout, value: Any, dictionaries: DictionaryLookup, check_name: bool = True
) -> ArrayData:
    column = expect_json_type(value, dict, "a column")
    name = read_member(column, "name", str, "")
    if check_name and name != node.field.name:
        raise InvalidDataError(f"expected the column of field {node.field.name!r}, found {name[:60]!r}")
    length = read_count(column)
    storage = layout.storage
    valid = _read_validity(storage, column, length)
    buffers: list[Buffer | None] = []
    if isinstance(storage, BinaryLayout):
        buffers = _read_binary(storage, column, length, valid)
    else:
        for spec in storage.buffers:
            buffers.append(_read_buffer(storage, spec, column, length, valid))
    if storage.VARIADIC:
        variadic = read_member(column, "VARIADIC_DATA_BUFFERS", list, [])
        buffers += [Buffer.of(data) for data in convert_values(variadic, None, from_hex, b"", "VARIADIC_DATA_BUFFERS")]
    if storage.dictionary is not None:
        assert node.id is not None
        return ArrayData(storage, length, tuple(buffers), (), dictionaries(node.id)).with_layout(layout)
    return ArrayData(storage, length, tuple(buffers), _read_children(node, storage, column, dictionaries)).with_layout(
        layout
    )


def _read_children(
    node: FieldTreeNode, storage: Layout, column: Json, dictionaries: DictionaryLookup
) -> tuple[ArrayData, ...]:
    child_columns = read_member(column, "children", list, [])
    if len(child_columns) != len(node.children):
        raise InvalidDataError(f"{storage.type} has {len(node.children)} children, found {len(child_columns)}")
    children = []
    for child_node, layout, child in zip(node.children, storage.children, child_columns, strict=True):
        with prefix_errors(f"child {child_node.field.name!r}"):
            children.append(_read_array(child_node, layout, child, dictionaries))
    return tuple(children)


def _read_list_member(column: Json, key: str, length: int) -> list[Any]:
    default: tuple[list[Any], ...] = () if length else ([],)  # some writers omit empty members
    elements = read_member(column, key, list, *default)
    if len(elements) != length:
        raise InvalidDataError(f"expected {length} elements of {key!r}, found {len(elements)}")
    return elements


def _read_validity(storage: Layout, column: Json, length: int) -> Validity:
    if storage.has_validity:
        booleans = read_booleans(_read_list_member(column, "VALIDITY", length), "VALIDITY")
        return None if booleans.all() else booleans.tolist()
    has_legacy_validity = storage.buffers and "VALIDITY" in column  # unions before metadata version 5
    if has_legacy_validity and not read_booleans(_read_list_member(column, "VALIDITY", length), "VALIDITY").all():
        raise UnsupportedError("a union of metadata version 4 with top-level nulls is not supported")
    return None


def _read_buffer(storage: Layout, spec: BufferSpec, column: Json, length: int, valid: Validity) -> Buffer | None:
    key = MEMBER_NAMES[spec.role]
    if spec.is_validity:
        return None if valid is None else bitmap.pack(np.array(valid, np.bool_))
    if spec.num_extra and length == 0 and not read_member(column, key, list, []):
        elements: list[Any] = [0] * spec.num_extra  # some writers omit the single offset of an empty array
    else:
        elements = _read_list_member(column, key, length + spec.num_extra)
    if spec.dtype is None:
        return bitmap.pack(read_booleans(elements, key, valid))
    if isinstance(storage, BinaryViewLayout):
        return Buffer.of(read_views(elements, storage.is_text, valid))
    if spec.role is BufferRole.DATA:
        return Buffer.of(read_slots(storage.type, spec.dtype, elements, valid))
    return Buffer.of(read_integers(elements, spec.dtype, key))


def _read_binary(storage: BinaryLayout, column: Json, length: int, valid: Validity) -> list[Buffer | None]:
    """Build offsets and data from the strings. OFFSET must match the lengths of the valid strings."""
    strings = read_strings(_read_list_member(column, "DATA", length), storage.is_text, "DATA", valid)
    lengths = np.fromiter(map(len, strings), np.int64, length)
    stored_offsets = _read_buffer(storage, storage.buffers[1], column, length, valid)
    assert stored_offsets is not None
    differs = np.diff(stored_offsets.view(storage.offset_type).astype(np.int64)) != lengths
    if valid is not None:
        differs &= np.array(valid, np.bool_)
    if differs.any():
        index = int(np.argmax(differs))
        raise InvalidDataError(
            f"OFFSET[{index}] and OFFSET[{index + 1}] do not match the {lengths[index]} bytes of DATA[{index}]"
        )
    mask = None if valid is None else np.array(valid, np.bool_)
    data = np.frombuffer(b"".join(strings), np.uint8)
    return [*storage.create_array(lengths, data, pack_validity(mask)).own_buffers]


# Writing


def write_column(field: Field, array: ArrayData) -> Json:
    """Build the «FieldData» object of an array. Raises `InvalidDataError` for values that are invalid for its type."""
    with prefix_errors(f"column {field.name!r}"):
        return _write_array(field.name, array.storage.compact())


def _write_array(name: str, array: ArrayData) -> Json:
    """Build the «FieldData» object of a compact array."""
    storage = array.layout
    column: Json = {"name": name, "count": array.length}
    mask = array.validity_mask()
    if isinstance(storage, BinaryLayout):
        _write_binary(storage, array, column)
    else:
        for index, spec in enumerate(storage.buffers):
            column[MEMBER_NAMES[spec.role]] = _write_buffer(storage, spec, array, index, mask)
    if storage.VARIADIC:
        variadic = array.own_buffers[len(storage.buffers) :]
        column["VARIADIC_DATA_BUFFERS"] = ["" if data is None else to_hex(data.to_bytes()) for data in variadic]
    if array.children:
        children = []
        for field, child in zip(storage.type.fields, array.children, strict=True):
            with prefix_errors(f"child {field.name!r}"):
                children.append(_write_array(field.name, child.storage.compact()))
        column["children"] = children
    return column


def _write_validity(array: ArrayData) -> list[int]:
    mask = array.validity_mask()
    return [1] * array.length if mask is None else mask.view(np.uint8).tolist()


def _write_buffer(
    storage: Layout, spec: BufferSpec, array: ArrayData, index: int, mask: bitmap.Mask | None
) -> list[Any]:
    if spec.is_validity:
        return _write_validity(array)
    if spec.dtype is None:
        bits = array.own_buffers[index]
        booleans = np.zeros(array.length, np.bool_) if bits is None else bitmap.unpack(bits, 0, array.length)
        return (booleans if mask is None else booleans & mask).tolist()
    if isinstance(storage, BinaryViewLayout):
        return write_views(storage.views(array), storage.is_text)
    if spec.role is BufferRole.DATA:
        return write_slots(storage.type, array.buffer_values(index), mask)
    return write_integers(array.buffer_values(index))


def _write_binary(storage: BinaryLayout, array: ArrayData, column: Json) -> None:
    values = array.to_pylist()
    strings = [b"" if value is None else value.encode() if storage.is_text else value for value in values]
    column["VALIDITY"] = _write_validity(array)
    column["OFFSET"] = write_integers(storage.from_pylist(values).buffer_values(1))
    column["DATA"] = [data.decode() if storage.is_text else to_hex(data) for data in strings]

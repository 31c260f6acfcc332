"""«FieldData» of the JSON test data format: arrays and their buffers as JSON, both ways.

Both ways walk the layouts' declaration: each declared buffer has its member, each child its «FieldData».
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bowstring.datatypes.field import Field
from bowstring.errors import InvalidDataError, UnsupportedError
from bowstring.integration_json.buffer_values import (
    Valid,
    from_hex,
    read_integers,
    read_slots,
    read_strings,
    read_truths,
    read_views,
    to_hex,
    write_integers,
    write_slots,
    write_views,
)
from bowstring.integration_json.dataset import Json, converted, count_of, expect, member
from bowstring.integration_json.schema import Node
from bowstring.layouts.array import Array
from bowstring.layouts.base import BufferSpec, Layout, Role, error_context, pack_validity
from bowstring.layouts.binary import BinaryLayout, offsets_from_lengths
from bowstring.layouts.binary_view import BinaryViewLayout
from bowstring.layouts.registry import layout_of
from bowstring.memory import bitmap
from bowstring.memory.buffer import Buffer

KEYS = {
    Role.VALIDITY: "VALIDITY",
    Role.OFFSETS: "OFFSET",
    Role.SIZES: "SIZE",
    Role.TYPE_IDS: "TYPE_ID",
    Role.VIEWS: "VIEWS",
    Role.DATA: "DATA",
}
"""The member for each role of a buffer."""

Dictionaries = Callable[[int], Array]
"""Gives the dictionary of an id."""


# Reading


def read_column(node: Node, column: Any, dictionaries: Dictionaries, check_name: bool = True) -> Array:
    """The array of a «FieldData» object; its structure is checked, its values are as the document says.

    Raises `InvalidDataError` naming the column, the child and the element.
    """
    with error_context(f"column {node.field.name!r}"):
        array = _read(node, layout_of(node.field.type), column, dictionaries, check_name)
        array.validate()
        return array


def read_values(node: Node, type_layout: Layout, column: Any, dictionaries: Dictionaries) -> Array:
    """The array of the «FieldData» in a «DictionaryBatch», whose name does not count; errors as `read_column`."""
    values = Node(Field(node.field.name, type_layout.type), None, node.below)
    array = _read(values, type_layout, column, dictionaries, False)
    array.validate()
    return array


def _read(node: Node, layout: Layout, value: Any, dictionaries: Dictionaries, check_name: bool = True) -> Array:
    column = expect(value, dict, "a column")
    name = member(column, "name", str, "")
    if check_name and name != node.field.name:
        raise InvalidDataError(f"expected the column of field {node.field.name!r}, found {name[:60]!r}")
    count = count_of(column)
    storage = layout.storage
    valid = _read_validity(storage, column, count)
    buffers: list[Buffer | None] = []
    if isinstance(storage, BinaryLayout):
        buffers = _read_binary(storage, column, count, valid)
    else:
        for spec in storage.buffers:
            buffers.append(_read_buffer(storage, spec, column, count, valid))
    if storage.VARIADIC:
        held = member(column, "VARIADIC_DATA_BUFFERS", list, [])
        buffers += [Buffer.of(data) for data in converted(held, None, from_hex, b"", "VARIADIC_DATA_BUFFERS")]
    if storage.dictionary is not None:
        assert node.id is not None
        return Array(storage, count, tuple(buffers), (), dictionaries(node.id)).with_layout(layout)
    return Array(storage, count, tuple(buffers), _read_children(node, storage, column, dictionaries)).with_layout(
        layout
    )


def _read_children(node: Node, storage: Layout, column: Json, dictionaries: Dictionaries) -> tuple[Array, ...]:
    held = member(column, "children", list, [])
    if len(held) != len(node.below):
        raise InvalidDataError(f"{storage.type} has {len(node.below)} children, found {len(held)}")
    children = []
    for below, layout, child in zip(node.below, storage.children, held, strict=True):
        with error_context(f"child {below.field.name!r}"):
            children.append(_read(below, layout, child, dictionaries))
    return tuple(children)


def _items(column: Json, key: str, count: int) -> list[Any]:
    items = member(column, key, list) if count else member(column, key, list, [])  # some leave out what is empty
    if len(items) != count:
        raise InvalidDataError(f"expected {count} elements of {key!r}, found {len(items)}")
    return items


def _read_validity(storage: Layout, column: Json, count: int) -> Valid:
    if storage.has_validity:
        truths = read_truths(_items(column, "VALIDITY", count), "VALIDITY")
        return None if truths.all() else truths.tolist()
    legacy = storage.buffers and "VALIDITY" in column  # unions had one up to metadata version 4
    if legacy and not read_truths(_items(column, "VALIDITY", count), "VALIDITY").all():
        raise UnsupportedError("a union of metadata version 4 with nulls of its own")
    return None


def _read_buffer(storage: Layout, spec: BufferSpec, column: Json, count: int, valid: Valid) -> Buffer | None:
    key = KEYS[spec.role]
    if spec.role is Role.VALIDITY:
        return None if valid is None else bitmap.pack(np.array(valid, np.bool_))
    if spec.extra and count == 0 and not member(column, key, list, []):
        items: list[Any] = [0] * spec.extra  # some writers leave out the one offset of no slots
    else:
        items = _items(column, key, count + spec.extra)
    if spec.dtype is None:
        return bitmap.pack(read_truths(items, key, valid))
    if isinstance(storage, BinaryViewLayout):
        return Buffer.of(read_views(items, storage.is_text, valid))
    if spec.role is Role.DATA:
        return Buffer.of(read_slots(storage.type, spec.dtype, items, valid))
    return Buffer.of(read_integers(items, spec.dtype, key))


def _read_binary(storage: BinaryLayout, column: Json, count: int, valid: Valid) -> list[Buffer | None]:
    """Offsets and data out of one string a slot; what OFFSET says has to agree with the strings that are valid."""
    strings = read_strings(_items(column, "DATA", count), storage.is_text, "DATA", valid)
    lengths = np.fromiter(map(len, strings), np.int64, count)
    said = _read_buffer(storage, storage.buffers[1], column, count, valid)
    assert said is not None
    differs = np.diff(said.view(storage.offset_type).astype(np.int64)) != lengths
    if valid is not None:
        differs &= np.array(valid, np.bool_)
    if differs.any():
        at = int(np.argmax(differs))
        raise InvalidDataError(
            f"OFFSET[{at}] and OFFSET[{at + 1}] do not cut out the {lengths[at]} bytes of DATA[{at}]"
        )
    mask = None if valid is None else np.array(valid, np.bool_)
    offsets = offsets_from_lengths(lengths, storage.offset_type, storage.type)
    return [pack_validity(mask), Buffer.of(offsets), Buffer.of(b"".join(strings))]


# Writing


def write_column(field: Field, array: Array) -> Json:
    """The «FieldData» object of an array. Raises `InvalidDataError` where its buffers do not hold such values."""
    with error_context(f"column {field.name!r}"):
        return _write(field.name, array.storage.compact())


def _write(name: str, array: Array) -> Json:
    """Of an array that is rebased."""
    storage = array.layout
    column: Json = {"name": name, "count": array.length}
    mask = array.mask()
    if isinstance(storage, BinaryLayout):
        _write_binary(storage, array, column)
    else:
        for index, spec in enumerate(storage.buffers):
            column[KEYS[spec.role]] = _write_buffer(storage, spec, array, index, mask)
    if storage.VARIADIC:
        held = array.buffers[len(storage.buffers) :]
        column["VARIADIC_DATA_BUFFERS"] = ["" if data is None else to_hex(data.to_bytes()) for data in held]
    if array.children:
        children = []
        for field, child in zip(storage.type.fields, array.children, strict=True):
            with error_context(f"child {field.name!r}"):
                children.append(_write(field.name, child.storage.compact()))
        column["children"] = children
    return column


def _write_validity(array: Array) -> list[int]:
    mask = array.mask()
    return [1] * array.length if mask is None else mask.view(np.uint8).tolist()


def _write_buffer(storage: Layout, spec: BufferSpec, array: Array, index: int, mask: bitmap.Mask | None) -> list[Any]:
    if spec.role is Role.VALIDITY:
        return _write_validity(array)
    if spec.dtype is None:
        held = array.buffers[index]
        truths = np.zeros(array.length, np.bool_) if held is None else bitmap.unpack(held, 0, array.length)
        return (truths if mask is None else truths & mask).tolist()
    if isinstance(storage, BinaryViewLayout):
        return write_views(storage.views(array), storage.is_text)
    if spec.role is Role.DATA:
        return write_slots(storage.type, array.values(index), mask)
    return write_integers(array.values(index))


def _write_binary(storage: BinaryLayout, array: Array, column: Json) -> None:
    values = array.to_pylist()
    strings = [b"" if value is None else value.encode() if storage.is_text else value for value in values]
    offsets = offsets_from_lengths(
        np.fromiter(map(len, strings), np.int64, array.length), storage.offset_type, storage.type
    )
    column["VALIDITY"] = _write_validity(array)
    column["OFFSET"] = write_integers(offsets)
    column["DATA"] = [data.decode() if storage.is_text else to_hex(data) for data in strings]

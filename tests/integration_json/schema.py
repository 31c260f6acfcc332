"""«Schema», «Field», «Metadata» and «Type» of the JSON test data format: reading and writing.

A dictionary-encoded field has the type of its values and the ID of its dictionary. IDs are not part of a `Schema`; they
are kept in a parallel tree of `FieldTreeNode`s.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bowstring.datatypes import extension, types as t
from bowstring.datatypes.field import Field, Metadata
from bowstring.datatypes.schema import Schema
from bowstring.datatypes.type_specs import REQUIRED, TYPE_SPECS, TYPE_SPECS_BY_CLASS, Enumeration, TypeParameter
from bowstring.errors import InvalidArgumentError, InvalidDataError, LimitError, UnsupportedTypeError, prefix_errors
from tests.integration_json.json_access import DocumentLimits, Json, expect_json_type, read_member

_TYPE_SPECS_BY_JSON_NAME = {type_spec.json_name: type_spec for type_spec in TYPE_SPECS}
_DECIMAL_BITS = {"decimal": 128, "decimal32": 32, "decimal64": 64, "decimal128": 128, "decimal256": 256}
"""The bit width of a decimal that has no member for it, by the name of its type."""


@dataclass(frozen=True, slots=True)
class FieldTreeNode:
    """A field with its dictionary ID, if any, and the nodes of its children.

    The children of a dictionary-encoded field are those of its value type.
    """

    field: Field
    id: int | None
    children: tuple[FieldTreeNode, ...]


# Reading


def _read_type(json_object: Json, children: tuple[Field, ...]) -> t.DataType:
    name = read_member(json_object, "name", str)
    type_spec = _TYPE_SPECS_BY_JSON_NAME.get("decimal" if name in _DECIMAL_BITS else name)
    if type_spec is None:
        raise InvalidDataError(f"unknown type {name[:40]!r}")
    if name in _DECIMAL_BITS and json_object.get("bitWidth") is None:
        json_object = {**json_object, "bitWidth": _DECIMAL_BITS[name]}
    return type_spec.create_type(
        children, [_read_parameter(json_object, parameter) for parameter in type_spec.parameters]
    )


def _read_parameter(json_object: Json, parameter: TypeParameter) -> Any:
    key, value_type = parameter.json_name or parameter.name, parameter.value_type
    if isinstance(value_type, Enumeration):
        name = read_member(json_object, key, str)
        if name not in value_type.values:
            raise InvalidDataError(f"expected {key!r} to be one of {', '.join(value_type.values)}, found {name[:40]!r}")
        return value_type.values[name]
    arguments = () if parameter.default is REQUIRED else (parameter.default,)
    value = read_member(json_object, key, value_type, *arguments)
    return [expect_json_type(number, int, "a type id") for number in value] if isinstance(value, list) else value


def _read_metadata(json_object: Json) -> Metadata:
    pairs = []
    for pair in read_member(json_object, "metadata", list, []):
        entry = expect_json_type(pair, dict, "an entry of 'metadata'")
        try:
            pairs.append((read_member(entry, "key", str).encode(), read_member(entry, "value", str, "").encode()))
        except UnicodeEncodeError as error:
            raise InvalidDataError(f"text in 'metadata' can't be encoded as UTF-8: {error}") from None
    return tuple(pairs)


def read_schema(
    json_object: Json, limits: DocumentLimits
) -> tuple[Schema, tuple[FieldTreeNode, ...], dict[int, FieldTreeNode]]:
    """Read a «Schema» object. Return the schema, the node of each field, and a node for each dictionary ID.

    Registered extension types are resolved. Raises `InvalidDataError` naming the field, `LimitError` for types nested
    too deeply.
    """
    nodes = tuple(_read_node(field, limits.max_nesting, limits) for field in read_member(json_object, "fields", list))
    dictionary_nodes: dict[int, FieldTreeNode] = {}
    for node in _iter_nodes(nodes):
        if node.id is None:
            continue
        first_node = dictionary_nodes.setdefault(node.id, node)
        first_type, type_ = _dictionary_value_type(first_node), _dictionary_value_type(node)
        if first_type != type_:
            raise InvalidDataError(f"dictionary {node.id} has conflicting types {first_type} and {type_}")
    return Schema(tuple(node.field for node in nodes), _read_metadata(json_object)), nodes, dictionary_nodes


def _iter_nodes(nodes: tuple[FieldTreeNode, ...]) -> Iterator[FieldTreeNode]:
    for node in nodes:
        yield node
        yield from _iter_nodes(node.children)


def _storage_type(type: t.DataType) -> t.DataType:
    return type.storage_type if isinstance(type, extension.ExtensionType) else type


def _dictionary_value_type(node: FieldTreeNode) -> t.DataType:
    encoded = _storage_type(node.field.type)
    assert isinstance(encoded, t.Dictionary)
    return encoded.value_type


def _read_node(value: Any, depth: int, limits: DocumentLimits) -> FieldTreeNode:
    json_object = expect_json_type(value, dict, "a field")
    name = read_member(json_object, "name", str, "")
    with prefix_errors(f"field {name!r}"):
        if depth == 0:
            raise LimitError(f"types are nested deeper than the limit of {limits.max_nesting} (max_nesting)")
        children = tuple(
            _read_node(child, depth - 1, limits) for child in read_member(json_object, "children", list, [])
        )
        try:
            name.encode()
            type_ = _read_type(read_member(json_object, "type", dict), tuple(node.field for node in children))
            dictionary_id = None
            if json_object.get("dictionary") is not None:
                encoding = read_member(json_object, "dictionary", dict)
                dictionary_id = read_member(encoding, "id", int)
                index = read_member(encoding, "indexType", dict, {"name": "int", "bitWidth": 32, "isSigned": True})
                index_type = _read_type(index, ())
                if not isinstance(index_type, t.Int):
                    raise InvalidDataError(f"dictionary indices must be integers, found {index_type}")
                type_ = t.Dictionary(index_type, type_, read_member(encoding, "isOrdered", bool, False))
        except (InvalidArgumentError, UnicodeEncodeError) as error:  # raised by the constructors of types
            raise InvalidDataError(str(error)) from None
        field = Field(name, type_, read_member(json_object, "nullable", bool, True), _read_metadata(json_object))
        return FieldTreeNode(extension.resolve_extension_type(field), dictionary_id, children)


# Writing


def _write_type(type: t.DataType) -> Json:
    type_spec = TYPE_SPECS_BY_CLASS.get(type.__class__)
    if type_spec is None:
        raise UnsupportedTypeError(f"integration JSON has no type for {type}")
    json_object: Json = {"name": type_spec.json_name}
    for parameter in type_spec.parameters:
        value = _write_parameter(type, parameter)
        if value is not None:
            json_object[parameter.json_name or parameter.name] = value
    return json_object


def _write_parameter(type_: t.DataType, parameter: TypeParameter) -> Any:
    value, value_type = getattr(type_, parameter.attribute), parameter.value_type
    if isinstance(value_type, Enumeration):
        return next(name for name, candidate in value_type.values.items() if candidate == value)
    return list(value) if value_type is list else value


def write_schema(schema: Schema, ids: Iterator[int]) -> Json:
    """Build the «Schema» object. `ids` are the dictionary IDs, nested dictionaries before those that contain them.

    Raises `UnsupportedTypeError` naming the column path for types that JSON can't express.
    """
    json_object: Json = {"fields": [_write_field(field, ids, field.name) for field in schema]}
    if schema.pairs:
        json_object["metadata"] = _write_metadata(schema.pairs, "the schema")
    return json_object


def _write_field(field: Field, ids: Iterator[int], path: str) -> Json:
    field = extension.to_storage_field(field)
    values, encoding = field.type, None
    if isinstance(values, t.Dictionary):
        encoding, values = values, values.value_type
    try:
        json_type = _write_type(values)
    except UnsupportedTypeError as error:
        raise UnsupportedTypeError(f"column {path}: {error}") from None
    children = [_write_field(child, ids, f"{path}.{child.name}") for child in values.fields]
    json_object: Json = {"name": field.name, "type": json_type, "nullable": field.nullable, "children": children}
    if encoding is not None:
        index = _write_type(encoding.index_type)
        json_object["dictionary"] = {"id": next(ids), "indexType": index, "isOrdered": encoding.ordered}
    if field.pairs:
        json_object["metadata"] = _write_metadata(field.pairs, f"column {path}")
    return json_object


def _write_metadata(pairs: Metadata, location: str) -> list[Json]:
    try:
        return [{"key": key.decode(), "value": value.decode()} for key, value in pairs]
    except UnicodeDecodeError as error:
        raise UnsupportedTypeError(
            f"{location}: custom metadata that is not valid UTF-8 can't be written as JSON: {error}"
        ) from None

"""Layouts of message bodies: the role of each buffer («Buffer Listing for Each Layout», «RecordBatch message»)."""

from __future__ import annotations

from bowstring.datatypes.field import Field
from bowstring.inspection.anatomy.model import BodyBuffer, BodyField, BodyLayout
from bowstring.inspection.report_builder import type_text_without_children
from bowstring.ipc.metadata.field import DictionaryDeclaration
from bowstring.ipc.metadata.schema import V4, IpcSchema, has_legacy_validity
from bowstring.layouts.base import BufferRole, BufferSpec, Layout
from bowstring.layouts.registry import layout_of

_LEGACY_VALIDITY = "validity of metadata version 4"


def record_batch_layout(ipc_schema: IpcSchema, version: int) -> BodyLayout:
    """Return the layout of the bodies of record batches."""
    return _build_layout(list(ipc_schema.schema.fields), None, version)


def dictionary_layout(node: DictionaryDeclaration, version: int) -> BodyLayout:
    """Return the layout of the bodies of the batches of one dictionary."""
    return _build_layout([Field("values", node.value_type)], node.id, version)


def tensor_layout(roles: tuple[str, ...], type: str, version: int) -> BodyLayout:
    """Return the layout of a tensor's body."""
    return BodyLayout(
        None, version, (BodyField("tensor", -1, type, 0),), tuple(BodyBuffer(0, role, "") for role in roles)
    )


def _build_layout(columns: list[Field], dictionary_id: int | None, version: int) -> BodyLayout:
    """Return the fields of the columns and their buffers, depth first."""
    fields: list[BodyField] = []
    buffers: list[BodyBuffer] = []

    def add_field(field: Field, layout: Layout, parent: int, column: int) -> None:
        index = len(fields)
        fields.append(BodyField(field.name, parent, type_text_without_children(field.type), column))
        if version == V4 and has_legacy_validity(layout):
            buffers.append(BodyBuffer(index, _LEGACY_VALIDITY, "bit"))
        for spec in layout.buffers:
            is_last = spec is layout.buffers[-1]
            role = "indices" if layout.dictionary is not None and spec.role is BufferRole.DATA else spec.role.value
            buffers.append(BodyBuffer(index, role, _element_type_code(spec), layout.VARIADIC and is_last))
        for child, child_layout in zip(layout.storage.type.fields, layout.children, strict=True):
            add_field(child, child_layout, index, column)

    for column_index, field in enumerate(columns):
        add_field(field, layout_of(field.type), -1, column_index)
    return BodyLayout(dictionary_id, version, tuple(fields), tuple(buffers))


def _element_type_code(spec: BufferSpec) -> str:
    if spec.dtype is None:
        return "bit"
    if not spec.per_slot:
        return ""
    return f"{'o' if spec.is_opaque else spec.dtype.kind}{spec.dtype.itemsize}"

"""Plans of bodies: the role of each buffer («Buffer Listing for Each Layout», «RecordBatch message»)."""

from __future__ import annotations

from bowstring.datatypes.field import Field
from bowstring.inspection.anatomy.model import BodyBufferPlan, BufferDescription, PlanField
from bowstring.inspection.inspector import type_head
from bowstring.ipc.metadata.schema import V4, DictionaryDeclaration, WireSchema
from bowstring.ipc.write_options import has_legacy_validity
from bowstring.layouts.base import BufferRole, BufferSpec, Layout
from bowstring.layouts.registry import layout_of

_LEGACY_VALIDITY = "validity of metadata version 4"


def column_plan(wire: WireSchema, version: int) -> BodyBufferPlan:
    """Return the plan of record batches."""
    return _plan(list(wire.schema.fields), None, version)


def dictionary_plan(node: DictionaryDeclaration, version: int) -> BodyBufferPlan:
    """Return the plan of the batches of one dictionary."""
    return _plan([Field("values", node.value_type)], node.id, version)


def tensor_plan(roles: tuple[str, ...], type: str, version: int) -> BodyBufferPlan:
    """Return the plan of a tensor's body."""
    return BodyBufferPlan(
        None, version, (PlanField("tensor", -1, type, 0),), tuple(BufferDescription(0, role, "") for role in roles)
    )


def _plan(columns: list[Field], dictionary_id: int | None, version: int) -> BodyBufferPlan:
    """List the fields of the columns, and their buffers, depth first."""
    fields: list[PlanField] = []
    slots: list[BufferDescription] = []

    def add_field(field: Field, layout: Layout, parent: int, column: int) -> None:
        own = len(fields)
        fields.append(PlanField(field.name, parent, type_head(field.type), column))
        if version == V4 and has_legacy_validity(layout):
            slots.append(BufferDescription(own, _LEGACY_VALIDITY, "bit"))
        for spec in layout.buffers:
            is_last = spec is layout.buffers[-1]
            role = "indices" if layout.dictionary is not None and spec.role is BufferRole.DATA else spec.role.value
            slots.append(BufferDescription(own, role, _element(spec), layout.VARIADIC and is_last))
        for child, below in zip(layout.storage.type.fields, layout.children, strict=True):
            add_field(child, below, own, column)

    for index, field in enumerate(columns):
        add_field(field, layout_of(field.type), -1, index)
    return BodyBufferPlan(dictionary_id, version, tuple(fields), tuple(slots))


def _element(spec: BufferSpec) -> str:
    if spec.dtype is None:
        return "bit"
    if not spec.per_slot:
        return ""
    return f"{'o' if spec.is_opaque else spec.dtype.kind}{spec.dtype.itemsize}"

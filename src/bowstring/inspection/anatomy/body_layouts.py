"""The layouts of the bodies of batches: their fields and buffers («Buffer Listing for Each Layout»)."""

from __future__ import annotations

from bowstring.datatypes.field import Field
from bowstring.inspection.anatomy.model import BodyBuffer, BodyField, BodyLayout
from bowstring.inspection.header_inspection import BatchTotals, type_text_without_children
from bowstring.ipc.limits import ReadLimits
from bowstring.ipc.metadata.header import RECORD_BATCH
from bowstring.ipc.metadata.schema import V4, IpcSchema, has_legacy_validity
from bowstring.ipc.tools.scan import BatchMessage, LocatedSchema
from bowstring.layouts.base import BufferRole, BufferSpec, Layout
from bowstring.layouts.registry import layout_of

_LEGACY_VALIDITY = "validity of metadata version 4"


class BodyLayouts:
    """The layouts of the bodies of batches, and the totals of those batches that agree with the schema.

    Raises `InvalidDataError` if the schema is malformed.
    """

    def __init__(self, schema: LocatedSchema, limits: ReadLimits) -> None:
        self.layouts: list[BodyLayout] = []
        self._ipc_schema = IpcSchema.from_table(schema.table, limits)
        self.totals, self._unlisted_totals = BatchTotals(self._ipc_schema), BatchTotals(self._ipc_schema)
        self._indices: dict[tuple[int | None, int], int] = {}

    def add(self, message: BatchMessage, is_listed: bool) -> int:
        """Add a batch to the totals; return the index of the layout of its body.

        Raises `InvalidDataError` if it contradicts the schema.
        """
        (self.totals if is_listed else self._unlisted_totals).add(message)
        template = message.header.template
        dictionary_id = None if template.kind == RECORD_BATCH else template.dictionary_id
        index = self._indices.setdefault((dictionary_id, template.version), len(self.layouts))
        if index == len(self.layouts):
            fields = list(self._ipc_schema.schema.fields)
            if dictionary_id is not None:
                fields = [Field("values", self._ipc_schema.dictionaries_by_id[dictionary_id].value_type)]
            self.layouts.append(_build_layout(fields, dictionary_id, template.version))
        return index


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

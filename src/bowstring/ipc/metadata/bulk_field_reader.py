"""Read all `Field` tables of a schema at once («Schema message»): level by level, with NumPy.

Fields that a step can't handle (extensions, unions and similar, and anything that looks malformed) are left to be read
individually, which raises the errors.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from bowstring.datatypes import types
from bowstring.datatypes.base import DataType
from bowstring.datatypes.extension import NAME_KEY
from bowstring.datatypes.field import Field, Metadata, create_fields
from bowstring.datatypes.type_specs import TYPE_SPECS, TYPE_SPECS_BY_NAME
from bowstring.errors import BowstringError, InvalidDataError
from bowstring.flatbuf.reader import FlatTable
from bowstring.flatbuf.specs import ScalarSlot
from bowstring.flatbuf.tables import SPECS, TYPES
from bowstring.flatbuf.vectorized_reader import (
    BoolArray,
    IntArray,
    TableArray,
    VectorizedReader,
    VectorSpans,
    flatten_table_vectors,
)
from bowstring.ipc.metadata.field import DictionaryDeclaration
from bowstring.ipc.metadata.types import read_type
from bowstring.layouts import utf8_decoding
from bowstring.layouts.gather import gather_bytes
from bowstring.layouts.registry import layout_of

_U32 = struct.Struct("<I")
# A name occurs about once per field that has it. A short one can be found in other bytes any number of times, each of
# which compares all targets.
_MAX_MATCHES = 8
_MIN_FIELDS = 64
"""Fewer fields of mixed types are read faster one by one."""
# Each type is one round of comparing all fields that are left.
_MAX_TYPES = 256
"""The maximum number of distinct types; fields of further types are read individually."""

HeaderEntryCounts = npt.NDArray[np.int64]
"""The number of nodes, buffers and variadic counts of fields in a header, shape (fields, 3)."""
DictionariesByField: TypeAlias = dict[int, tuple[DictionaryDeclaration, ...]]
_TYPES_READ_INDIVIDUALLY = ("Union", "RunEndEncoded")
_DICTIONARY_ENCODED_COUNTS = (1, 2, 0)
"""Counts of a dictionary-encoded field of any value type: validity and indices."""


@lru_cache(1)
def _header_entry_counts_by_type() -> tuple[HeaderEntryCounts, HeaderEntryCounts, IntArray]:
    """Return by type number: nodes, buffers and variadic counts of a type without children, -1 for others; the same of
    a type with children, without theirs; and its number of children, -1 for any.
    """
    flat, nested = np.full((256, 3), -1, np.int64), np.full((256, 3), -1, np.int64)
    child_counts = np.zeros(256, np.int64)
    for type_spec in TYPE_SPECS:
        layout, number = layout_of(type_spec.example), TYPES.index(type_spec.name)
        if type_spec.num_children == 0:
            flat[number] = (1, len(layout.buffers), int(layout.VARIADIC))
        elif type_spec.name not in _TYPES_READ_INDIVIDUALLY:
            nested[number] = (1, len(layout.buffers), 0)
            child_counts[number] = -1 if type_spec.num_children is None else type_spec.num_children
    return flat, nested, child_counts


class FieldTables:
    """The `Field` tables of one level of a schema; each step is computed on access.

    `offsets` are the positions of the offsets of the tables. `depth` limits the levels, `tables_left` the tables below.
    """

    def __init__(
        self, schema: FlatTable, reader: VectorizedReader, offsets: IntArray, depth: int, tables_left: int
    ) -> None:
        self.schema = schema
        self.flatbuffer = schema.flatbuffer
        self.reader = reader
        self._offsets = offsets
        self._depth = depth
        self._tables_left = tables_left

    @classmethod
    def from_schema_table(cls, schema: FlatTable, max_depth: int = 64) -> FieldTables:
        """Return the fields of a `Schema` table. Raises `LimitError` if there are too many."""
        flatbuffer = schema.flatbuffer
        start, count = schema.locate_elements("fields")
        # Before arrays of this length exist: `count` is an untrusted 32-bit number, though its offsets are in the
        # flatbuffer.
        flatbuffer.check_table_limit(2 * count)  # a field and its type
        # int64 of shape (fields,); as everywhere here, positions are counted from the start of the flatbuffer.
        offsets = start + 4 * np.arange(count, dtype=np.int64)
        return cls(schema, VectorizedReader(flatbuffer), offsets, max_depth, flatbuffer.tables_left - 2 * count)

    def __len__(self) -> int:
        return len(self._offsets)

    @cached_property
    def tables(self) -> TableArray:
        """The tables themselves."""
        return TableArray(self.reader, SPECS["Field"], *self.reader.follow_offsets(self._offsets))

    @cached_property
    def _name_positions(self) -> tuple[IntArray, BoolArray]:
        return self.tables.follow_offsets("name")

    @cached_property
    def name_spans(self) -> VectorSpans:
        """The bytes of each name."""
        return self.reader.locate_elements(*self._name_positions, item_bytes=1)

    @cached_property
    def _child_counts_and_tables(self) -> tuple[IntArray, FieldTables | None]:
        children = self.tables.locate_elements("children")
        child_counts = np.where(children.is_valid, children.lengths, -1)
        # Each length is at most the flatbuffer's size, and so is their number: the sum is far below 2**63.
        total = int(children.lengths.sum())
        # Tables may be shared: each level could have as many children as the flatbuffer has bytes, for each field
        # above.
        if not total or self._depth <= 1 or 2 * total > self._tables_left:
            return child_counts, None
        _, offsets = flatten_table_vectors(children)
        tables_left = self._tables_left - 2 * total
        return child_counts, FieldTables(self.schema, self.reader, offsets, self._depth - 1, tables_left)

    @property
    def child_counts(self) -> IntArray:
        """The number of children of each field, -1 if unknown."""
        return self._child_counts_and_tables[0]

    @property
    def children(self) -> FieldTables | None:
        """The children of all fields, concatenated."""
        return self._child_counts_and_tables[1]

    @cached_property
    def type_numbers(self) -> IntArray:
        """The position of each field's type in the union Type, 0 if unknown."""
        numbers, is_valid = self.tables.read_numbers("type_type")
        return np.where(is_valid & (numbers < len(TYPES)), numbers, 0)

    @cached_property
    def header_entry_counts(self) -> HeaderEntryCounts:
        """Nodes, buffers and variadic counts of each field; -1 if unknown until the field is read."""
        dictionaries, is_valid = self.tables.locate_slot("dictionary")
        child_counts, below = self.child_counts, self.children
        flat, nested, expected_children = _header_entry_counts_by_type()
        numbers = np.where(is_valid, self.type_numbers, 0)
        # Number 0 is an unknown type, with counts of -1.
        # Shape (fields, 3).
        counts: HeaderEntryCounts = flat.take(np.where(child_counts == 0, numbers, 0), axis=0)
        if below is not None:
            parents = np.repeat(np.arange(len(self)), np.maximum(child_counts, 0))
            sums = np.zeros_like(counts)
            # Unlike `sums[parents] += …`, adds every child of a parent. Sums of -1 are wrong, and excluded by
            # `has_unknown_child`.
            np.add.at(sums, parents, below.header_entry_counts)
            has_unknown_child = np.bincount(parents[below.header_entry_counts[:, 0] < 0], minlength=len(self)) > 0
            fits = (child_counts > 0) & ~has_unknown_child & (nested[numbers, 0] > 0)
            fits &= (expected_children[numbers] < 0) | (expected_children[numbers] == child_counts)
            counts = np.where(fits[:, None], nested[numbers] + sums, counts)
        is_encoded = (dictionaries > 0) & (numbers > 0)
        if is_encoded.any():
            counts = np.where(is_encoded[:, None], np.array(_DICTIONARY_ENCODED_COUNTS), counts)
        return counts

    def names(self) -> list[str] | None:
        """Return the names; None if any is unknown."""
        if not self._has_valid_names():
            return None
        try:
            return _read_names(self.reader, self.name_spans.starts, self.name_spans.lengths)
        except InvalidDataError:
            return None

    def indices_of(self, name: bytes) -> IntArray | None:
        """Return the indices of the fields of this name; None if any name is unknown."""
        targets, is_valid = self._name_positions
        if not is_valid.all():
            return None
        # A string is its length and its bytes, so one search by C code through the flatbuffer replaces a comparison
        # with each name.
        encoded = _U32.pack(len(name)) + name
        matches: list[IntArray] = []
        # A match that no name refers to is in other bytes, and has no effect.
        position = self.reader.raw.find(encoded)
        while position >= 0 and len(matches) < _MAX_MATCHES:
            matches.append(np.flatnonzero(targets == position))
            position = self.reader.raw.find(encoded, position + 1)
        # The length of an empty name is four zeros, which occur anywhere.
        if position < 0 and name:
            return np.concatenate(matches) if matches else np.empty(0, np.int64)
        if not self._has_valid_names():
            return None
        return np.flatnonzero(self.reader.strings_equal(self.name_spans.starts, self.name_spans.lengths, name))

    def _has_valid_names(self) -> bool:
        """Whether all names are valid and, in total, not longer than the flatbuffer, as they do not share bytes."""
        return bool(self.name_spans.is_valid.all()) and int(self.name_spans.lengths.sum()) <= self.reader.size

    @cached_property
    def fields_read_at_once(self) -> tuple[list[Field | None], DictionariesByField]:
        """The fields with their children, None for those to be read individually, and the dictionaries of each field by
        its index, if any, in the order of a walk over its array.
        """
        return _FieldReader(self).read_fields() if len(self) >= _MIN_FIELDS else ([None] * len(self), {})


class _FieldReader:
    """Reads the fields of one level.

    `types`, `dictionaries` and `is_resolved` have an entry for each field so far; fields that are not resolved in the
    end are left to be read individually.
    """

    def __init__(self, fields: FieldTables) -> None:
        self._fields = fields
        self._reader = fields.reader
        self._flatbuffer = fields.flatbuffer
        # Arrays of objects, so that one type is assigned to all of its fields by one call.
        self._types: npt.NDArray[np.object_] = np.empty(len(fields), object)
        self._is_resolved = np.zeros(len(fields), bool)
        self._dictionaries: DictionariesByField = {}

    def read_fields(self) -> tuple[list[Field | None], DictionariesByField]:
        """Return what `FieldTables.fields_read_at_once` has."""
        all_fields: list[Field | None] = [None] * len(self._fields)
        names, flatbuffer = self._fields.name_spans, self._flatbuffer
        nullable, is_valid = self._fields.tables.read_numbers("nullable")
        is_valid = is_valid & names.is_valid
        pairs = self._read_metadata(is_valid)
        self._resolve_types(is_valid)
        # Last: until here, a type is the type of the values.
        encoded_count = self._resolve_dictionaries()
        rows = np.flatnonzero(self._is_resolved)
        text_bytes = int(names.lengths[rows].sum()) + sum(
            len(key) + len(value) for field_pairs in pairs.values() for key, value in field_pairs
        )
        table_count = 2 * len(rows) + 2 * encoded_count + sum(map(len, pairs.values()))
        # Before any text is copied, since names may share bytes. Reading the fields individually then raises the error.
        if table_count > flatbuffer.tables_left or text_bytes > flatbuffer.text_left:
            return all_fields, {}
        try:
            name_list = _read_names(self._reader, names.starts[rows], names.lengths[rows])
        except InvalidDataError:
            return all_fields, {}
        # Counted as if they had been read individually, so that both ways accept the same schemas.
        flatbuffer.tables_left -= table_count
        flatbuffer.text_left -= text_bytes
        indices = rows.tolist()
        metadata = [pairs.get(index, ()) for index in indices] if pairs else [()] * len(indices)
        fields = create_fields(name_list, self._types[rows].tolist(), (nullable[rows] != 0).tolist(), metadata)
        if len(fields) == len(all_fields):
            return list(fields), self._dictionaries
        for index, field in zip(indices, fields, strict=True):
            all_fields[index] = field
        return all_fields, self._dictionaries

    def _read_metadata(self, is_valid: BoolArray) -> dict[int, Metadata]:
        """Return the custom metadata of fields with any; clears `is_valid` for fields to be read individually."""
        reader = self._reader
        vectors = self._fields.tables.locate_elements("custom_metadata")
        is_valid &= vectors.is_valid
        counts = np.where(is_valid, vectors.lengths, 0)
        total = int(counts.sum())
        if total > self._flatbuffer.tables_left:
            is_valid &= counts == 0
            return {}
        if not total:
            return {}
        owners, offsets = flatten_table_vectors(VectorSpans(vectors.starts, counts, is_valid))
        tables = TableArray(reader, SPECS["KeyValue"], *reader.follow_offsets(offsets))
        keys, values = tables.locate_elements("key"), tables.locate_elements("value")
        is_pair_valid = keys.is_valid & values.is_valid & ~reader.strings_equal(keys.starts, keys.lengths, NAME_KEY)
        is_valid &= np.bincount(owners[~is_pair_valid], minlength=len(self._fields)) == 0
        selected = is_valid[owners]
        if int((keys.lengths + values.lengths)[selected].sum()) > self._flatbuffer.text_left:
            is_valid &= counts == 0
            return {}
        raw = reader.raw
        # Shape (pairs, 4), as Python integers in one conversion: slices of bytes are faster than NumPy's for short
        # texts.
        spans = np.stack((keys.starts, keys.starts + keys.lengths, values.starts, values.starts + values.lengths), 1)
        pairs = [(raw[a:b], raw[c:d]) for a, b, c, d in spans[selected].tolist()]
        pairs_of_field: dict[int, list[tuple[bytes, bytes]]] = {}
        for owner, pair in zip(owners[selected].tolist(), pairs, strict=True):
            pairs_of_field.setdefault(owner, []).append(pair)
        return {owner: tuple(field_pairs) for owner, field_pairs in pairs_of_field.items()}

    def _resolve_types(self, is_valid: BoolArray) -> None:
        """Resolve the types of the fields where `is_valid`, or of their values if dictionary-encoded, and the
        dictionaries inside them.
        """
        fields = self._fields
        tables = fields.tables.read_tables("type")
        numbers = np.where(tables.is_valid, fields.type_numbers, 0)
        rows = np.flatnonzero(is_valid & (numbers > 0) & (fields.header_entry_counts[:, 0] > 0))
        flat = rows[fields.child_counts[rows] == 0]
        for number in np.flatnonzero(np.bincount(numbers[flat])).tolist():
            self._resolve_flat_types(tables, number, flat[numbers[flat] == number])
        nested = rows[fields.child_counts[rows] > 0]
        if fields.children is not None and len(nested):
            self._resolve_nested_types(fields.children, nested, numbers)

    def _resolve_flat_types(self, tables: TableArray, number: int, rows: IntArray) -> None:
        """Resolve the types of the fields at `rows`, whose type has this number, by reading one of each group of equal
        type tables.
        """
        columns: list[IntArray | VectorSpans] = []
        spec = SPECS[TYPES[number]]
        if spec.slots:
            tables, is_valid = tables.take(rows, spec), np.ones(len(rows), bool)
            for name, slot in spec.slots.items():
                if isinstance(slot.type, ScalarSlot):
                    numbers, is_valid_slot = tables.read_numbers(name)
                    columns.append(numbers)
                else:
                    texts = tables.locate_elements(name)
                    is_valid_slot = texts.is_valid
                    columns.append(texts)
                    if int(texts.lengths.sum()) > self._reader.size:
                        return  # shared text, whose size is checked when the fields are read individually
                is_valid &= is_valid_slot
            indices = np.flatnonzero(is_valid)
        else:
            indices = np.arange(len(rows))
        for group in _group_by_equality(self._reader, indices, columns):
            try:
                # In an array of its own: NumPy would take a type that is a sequence apart.
                type_array = np.empty(1, object)
                type_array[0] = read_type(self._get_table(int(rows[group[0]])), [])
                self._types[rows[group]] = type_array
                self._is_resolved[rows[group]] = True
            except BowstringError:
                pass

    def _get_table(self, row: int) -> FlatTable:
        return FlatTable(self._flatbuffer, SPECS["Field"], int(self._fields.tables.positions[row]))

    def _resolve_nested_types(self, below: FieldTables, rows: IntArray, numbers: IntArray) -> None:
        """Resolve the types of the fields at `rows`, whose types have `numbers` and whose children are in `below`."""
        children, child_dictionaries = _FieldReader(below).read_fields()
        # The children of all fields are concatenated in `below`: a row's children end at its stop.
        stops = np.cumsum(np.maximum(self._fields.child_counts, 0)).tolist()
        for row, number in zip(rows.tolist(), numbers[rows].tolist(), strict=True):
            child_indices = range(stops[row] - int(self._fields.child_counts[row]), stops[row])
            nested_type = self._create_nested_type(row, number, [children[index] for index in child_indices])
            if nested_type is None:
                continue
            self._types[row], self._is_resolved[row] = nested_type, True
            if child_dictionaries:
                inside = tuple(
                    declaration for index in child_indices for declaration in child_dictionaries.get(index, ())
                )
                if inside:
                    self._dictionaries[row] = inside

    def _create_nested_type(self, row: int, number: int, children: Sequence[Field | None]) -> DataType | None:
        fields = [field for field in children if field is not None]
        if len(fields) < len(children):
            return None
        type_spec = TYPE_SPECS_BY_NAME[TYPES[number]]
        try:
            return (
                read_type(self._get_table(row), fields) if type_spec.parameters else type_spec.create_type(fields, ())
            )
        except BowstringError:
            return None

    def _resolve_dictionaries(self) -> int:
        """Replace value types by dictionary types; return the number of dictionary-encoded fields. Fields to be read
        individually become unresolved.
        """
        positions, is_valid = self._fields.tables.locate_slot("dictionary")
        rows = np.flatnonzero(self._is_resolved & ((positions > 0) | ~is_valid))
        if not len(rows):
            return 0
        encodings = self._fields.tables.take(rows).read_tables("dictionary")
        ids, are_ids_valid = encodings.read_numbers("id")
        ordered, are_ordered_valid = encodings.read_numbers("isOrdered")
        kinds, are_kinds_valid = encodings.read_numbers("dictionaryKind")
        is_default, index_types = encodings.is_absent("indexType"), encodings.read_tables("indexType")
        bit_widths, are_widths_valid = index_types.read_numbers("bitWidth")
        signs, are_signs_valid = index_types.read_numbers("is_signed")
        is_valid = are_ids_valid & are_ordered_valid & are_kinds_valid & (kinds == 0)
        is_valid &= is_default | (are_widths_valid & are_signs_valid)
        parts = (
            np.where(is_default, 32, bit_widths).tolist(),
            (is_default | (signs > 0)).tolist(),
            (ordered > 0).tolist(),
        )
        dictionary_types: dict[tuple[int, bool, bool, DataType], DataType | None] = {}
        for row, is_row_valid, id_, *parameters in zip(
            rows.tolist(), is_valid.tolist(), ids.tolist(), *parts, strict=True
        ):
            value_type, inside = self._types[row], self._dictionaries.pop(row, ())
            key = (*parameters, value_type)
            if is_row_valid and key not in dictionary_types:
                dictionary_types[key] = _create_dictionary_type(*key)
            dictionary_type = dictionary_types[key] if is_row_valid else None
            self._is_resolved[row] = dictionary_type is not None
            if dictionary_type is not None:
                self._types[row] = dictionary_type
                self._dictionaries[row] = (DictionaryDeclaration(id_, value_type, inside),)
        return len(rows)


def _group_by_equality(
    reader: VectorizedReader, indices: IntArray, columns: Sequence[IntArray | VectorSpans]
) -> Iterator[IntArray]:
    """Yield groups of indices at which all columns are equal, at most `_MAX_TYPES`."""
    # Each round compares all that are left: as many rounds as fields would take quadratic time.
    for _ in range(_MAX_TYPES):
        if not len(indices):
            return
        first = int(indices[0])
        is_equal = np.ones(len(indices), bool)
        for column in columns:
            if isinstance(column, VectorSpans):
                start, length = int(column.starts[first]), int(column.lengths[first])
                text_bytes = reader.raw[start : start + length]
                is_equal &= reader.strings_equal(column.starts[indices], column.lengths[indices], text_bytes)
            else:
                is_equal &= column[indices] == column[first]
        yield indices[is_equal]
        indices = indices[~is_equal]


def _read_names(reader: VectorizedReader, starts: IntArray, lengths: IntArray) -> list[str]:
    """Return the strings at these positions of a flatbuffer; raises `InvalidDataError` if one is not valid UTF-8."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return utf8_decoding.decode_values(gather_bytes(reader.bytes, starts, lengths), offsets, None, is_text=True)


def _create_dictionary_type(bit_width: int, is_signed: bool, is_ordered: bool, values: DataType) -> DataType | None:
    try:
        return types.Dictionary(types.Int(bit_width, is_signed), values, is_ordered)
    except BowstringError:
        return None

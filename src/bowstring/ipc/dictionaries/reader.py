"""Read dictionaries («Dictionary Messages»): initial ones, replacements and deltas.

A table of dictionaries does not change once a batch refers to it, so each batch keeps the dictionaries that were in
effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from bowstring.arrays.array import Array
from bowstring.compute.unify_dictionaries import iter_dictionary_arrays, replace_dictionary, replace_dictionary_arrays
from bowstring.datatypes.field import Field
from bowstring.datatypes.schema import Schema
from bowstring.errors import InvalidDataError
from bowstring.ipc.dictionaries.delta import DeltaDictionary, concat_parts
from bowstring.ipc.message import join_words
from bowstring.ipc.metadata.header import BatchHeader
from bowstring.ipc.metadata.schema import V4, DictionaryId, WireSchema
from bowstring.ipc.record_batch.plan import ReadSchema, SchemaPlan
from bowstring.ipc.record_batch.reader import DictionaryLookup
from bowstring.ipc.record_batch.remote import Body, open_columns
from bowstring.layouts.registry import layout_of


def read_values(
    wire: ReadSchema, header: BatchHeader, body: Body, lookup: DictionaryLookup, where: tuple[object, ...]
) -> Sequence[Array]:
    """Return the values of one dictionary batch as the only element, created on access; `lookup` returns the
    dictionaries inside them.
    """
    node = find_dictionary(wire, header, where)
    schema = Schema((Field("values", node.value_type),))
    values_schema = WireSchema(schema, (node.nested,), wire.is_big_endian, wire.limits)
    plan = SchemaPlan(values_schema, header.template.version == V4)
    return open_columns(plan, header, body, lookup, where)


class DictionarySnapshot:
    """One dictionary at a position of a stream: the first parts of a `DeltaDictionary`."""

    __slots__ = ("_array", "_count", "_deltas")

    def __init__(self, chain: DeltaDictionary, count: int) -> None:
        self._deltas = chain
        self._count = count
        self._array: Array | None = None

    def array(self) -> Array:
        """Return all values, with the inner dictionaries that their parts were read with."""
        if self._array is None:
            self._array = self._deltas.concat(self._count)
        return self._array

    def resolve(self, node: DictionaryId, lookup: DictionaryLookup) -> Array:
        """Return all values, with the inner dictionaries now in effect. Raises `InvalidDataError` if one in use is
        missing.
        """
        return self._deltas.concat(self._count, lambda values: _resolve_inner(values, node, lookup))

    def extend(self, delta: Sequence[Array]) -> DictionarySnapshot:
        """Return the dictionary with a delta appended."""
        chain = self._deltas
        if self._count < len(chain.parts):  # another snapshot was extended already
            chain = DeltaDictionary(chain.parts[: self._count])
        chain.parts.append(delta)
        return DictionarySnapshot(chain, self._count + 1)


def _resolve_inner(values: Array, node: DictionaryId, lookup: DictionaryLookup) -> Array:
    parts = []
    for inside, part in zip(node.nested, iter_dictionary_arrays(values), strict=True):
        inner_dictionary, layout = lookup(inside), part.layout.dictionary
        if inner_dictionary is None:
            if part.null_count < part.length:
                raise InvalidDataError(
                    f"dictionary {inside.id}, which is inside dictionary {node.id}, has not been defined"
                )
            parts.append(part)
        else:
            assert layout is not None
            parts.append(
                replace_dictionary(
                    part,
                    inner_dictionary if inner_dictionary.layout is layout else inner_dictionary.with_layout(layout),
                    None,
                )
            )
    return Array.from_array_data(replace_dictionary_arrays(values, iter(parts)))


def _empty_values(node: DictionaryId) -> Array:
    return Array.from_array_data(layout_of(node.value_type).from_pylist([]))


class StreamDictionaries:
    """The dictionaries in effect at a position of a stream; it does not change once a batch refers to it.

    Indices refer to the dictionaries in effect at the batch, and so do those of dictionaries that contain others.
    """

    __slots__ = ("_entries", "_is_shared", "_resolve_inner")

    def __init__(self, entries: dict[int, DictionarySnapshot] | None = None) -> None:
        self._entries = entries or {}
        self._resolve_inner: dict[int, Array] = {}
        self._is_shared = False

    def __call__(self, node: DictionaryId) -> Array | None:
        """Return the values of a dictionary, None if undefined. Raises `InvalidDataError` if malformed."""
        entry = self._entries.get(node.id)
        if entry is None:
            return None
        if not node.nested:
            return entry.array()
        values = self._resolve_inner.get(node.id)
        if values is None:
            values = self._resolve_inner[node.id] = entry.resolve(node, self)
        return values

    def share(self) -> StreamDictionaries:
        """Return this table for a batch, and copy it before the next change."""
        self._is_shared = True
        return self

    def with_batch(
        self, wire: ReadSchema, header: BatchHeader, body: Body, where: tuple[object, ...]
    ) -> StreamDictionaries:
        """Return the table after a dictionary batch: with a new, a replaced or an extended dictionary."""
        node = find_dictionary(wire, header, where)
        values = read_values(wire, header, body, _empty_values, where)
        entries = dict(self._entries) if self._is_shared else self._entries
        entry = entries.get(node.id)
        if not header.template.is_delta:
            entry = DictionarySnapshot(DeltaDictionary([values]), 1)
        elif entry is None:
            raise InvalidDataError(f"{join_words(where)}: a delta for dictionary {node.id}, which is not defined")
        else:
            entry = entry.extend(values)
        entries[node.id] = entry
        return StreamDictionaries(entries)


class FileDictionaries:
    """The dictionaries of a file, read on first access; deltas apply in the footer's order.

    `blocks` returns header and body of every dictionary block.
    """

    __slots__ = ("_batches_by_id", "_blocks", "_entries", "_wire")

    def __init__(
        self, wire: ReadSchema, blocks: Callable[[], Iterator[tuple[BatchHeader, Body, tuple[object, ...]]]]
    ) -> None:
        self._wire = wire
        self._blocks = blocks
        self._batches_by_id: dict[int, list[tuple[BatchHeader, Body, tuple[object, ...]]]] | None = None
        self._entries: dict[int, Array] = {}

    def __call__(self, node: DictionaryId) -> Array | None:
        """Return the values of a dictionary; None if the file does not define it."""
        values = self._entries.get(node.id)
        if values is None:
            if self._batches_by_id is None:
                self._batches_by_id = self._group_batches()
            parts = self._batches_by_id.get(node.id)
            if parts is None:
                return None
            values_of_parts = [read_values(self._wire, header, body, self, where)[0] for header, body, where in parts]
            values = self._entries[node.id] = concat_parts(values_of_parts)
        return values

    def _group_batches(self) -> dict[int, list[tuple[BatchHeader, Body, tuple[object, ...]]]]:
        batches_by_id: dict[int, list[tuple[BatchHeader, Body, tuple[object, ...]]]] = {}
        for header, body, where in self._blocks():
            node = find_dictionary(self._wire, header, where)
            parts = batches_by_id.setdefault(node.id, [])
            check_file_delta(header, bool(parts), where)
            parts.append((header, body, where))
        return batches_by_id


def find_dictionary(wire: ReadSchema, header: BatchHeader, where: tuple[object, ...]) -> DictionaryId:
    """Return the dictionary of a batch; raises `InvalidDataError` if its id is not in the schema."""
    node = wire.by_id.get(header.template.dictionary_id)
    if node is None:
        raise InvalidDataError(
            f"{join_words(where)}: dictionary {header.template.dictionary_id} is none of the schema's "
            f"{sorted(wire.by_id)[:8]}"
        )
    return node


def check_file_delta(header: BatchHeader, has_earlier_batch: bool, where: tuple[object, ...]) -> None:
    """Raise `InvalidDataError` for a dictionary batch of a file that is neither the only initial one nor a delta."""
    if header.template.is_delta != has_earlier_batch:
        problem = "a delta comes before" if header.template.is_delta else "a file has only one non-delta batch of"
        raise InvalidDataError(f"{join_words(where)}: {problem} dictionary {header.template.dictionary_id}")

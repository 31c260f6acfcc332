"""Dictionaries, read («Dictionary Messages»): initial ones, replacements and deltas.

A table of what is defined does not change once a batch has it, so that each keeps the dictionaries of its time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from bowstring.compute.unify_dictionaries import dictionary_arrays, replace_dictionary_arrays, with_dictionary
from bowstring.datatypes.field import Field, Schema
from bowstring.errors import InvalidDataError
from bowstring.ipc.dictionaries.delta import DeltaDictionary, concat_parts
from bowstring.ipc.metadata.header import BatchHeader
from bowstring.ipc.metadata.schema import V4, DictionaryId, WireSchema
from bowstring.ipc.record_batch.plan import ReadSchema, SchemaPlan
from bowstring.ipc.record_batch.reader import DictionaryLookup
from bowstring.ipc.record_batch.remote import Body, open_columns
from bowstring.layouts.array import Array
from bowstring.layouts.registry import layout_of


def read_values(
    wire: ReadSchema, header: BatchHeader, body: Body, lookup: DictionaryLookup, where: tuple[object, ...]
) -> Sequence[Array]:
    """The values in one dictionary batch, the only item, made when it is asked for; `lookup` gives the dictionaries
    inside them.
    """
    node = find_dictionary(wire, header, where)
    schema = Schema((Field("values", node.value_type),))
    own = WireSchema(schema, (node.inside,), wire.is_big_endian, wire.limits)
    plan = SchemaPlan(own, header.template.version == V4)
    return open_columns(plan, header, body, lookup, where)


class Entry:
    """One dictionary as of some place: the first parts of a chain."""

    __slots__ = ("_chain", "_count", "_made")

    def __init__(self, chain: DeltaDictionary, count: int) -> None:
        self._chain = chain
        self._count = count
        self._made: Array | None = None

    def array(self) -> Array:
        """All values, with the dictionaries inside them that their parts were read with."""
        if self._made is None:
            self._made = self._chain.joined(self._count)
        return self._made

    def resolved(self, node: DictionaryId, lookup: DictionaryLookup) -> Array:
        """All values, with the dictionaries that are inside them now. Raises `InvalidDataError` where one is missing
        that is used.
        """
        return self._chain.joined(self._count, lambda values: _resolved(values, node, lookup))

    def extended(self, delta: Sequence[Array]) -> Entry:
        """The dictionary with a delta at its end."""
        chain = self._chain
        if self._count < len(chain.parts):  # it was extended before, in another way
            chain = DeltaDictionary(chain.parts[: self._count])
        chain.parts.append(delta)
        return Entry(chain, self._count + 1)


def _resolved(values: Array, node: DictionaryId, lookup: DictionaryLookup) -> Array:
    parts = []
    for inside, part in zip(node.inside, dictionary_arrays(values), strict=True):
        found, layout = lookup(inside), part.layout.dictionary
        if found is None:
            if part.null_count < part.length:
                raise InvalidDataError(
                    f"dictionary {inside.id}, which is inside dictionary {node.id}, has not been defined"
                )
            parts.append(part)
        else:
            assert layout is not None
            parts.append(with_dictionary(part, found if found.layout is layout else found.with_layout(layout), None))
    return replace_dictionary_arrays(values, iter(parts))


def _not_yet(node: DictionaryId) -> Array:
    return layout_of(node.value_type).build([])


class StreamDictionaries:
    """The dictionaries that are defined at one place of a stream; it does not change once a batch holds it.

    Indices mean what is defined where the batch is, and so do those of dictionaries with others inside.
    """

    __slots__ = ("_entries", "_is_held", "_resolved")

    def __init__(self, entries: dict[int, Entry] | None = None) -> None:
        self._entries = entries or {}
        self._resolved: dict[int, Array] = {}
        self._is_held = False

    def __call__(self, node: DictionaryId) -> Array | None:
        """The values of a dictionary; None where it is not defined. Raises `InvalidDataError` for malformed ones."""
        entry = self._entries.get(node.id)
        if entry is None:
            return None
        if not node.inside:
            return entry.array()
        made = self._resolved.get(node.id)
        if made is None:
            made = self._resolved[node.id] = entry.resolved(node, self)
        return made

    def held(self) -> StreamDictionaries:
        """This table, for a batch to keep."""
        self._is_held = True
        return self

    def with_batch(
        self, wire: ReadSchema, header: BatchHeader, body: Body, where: tuple[object, ...]
    ) -> StreamDictionaries:
        """The table after a dictionary batch: a new dictionary, a replacement, or a longer one."""
        node = find_dictionary(wire, header, where)
        values = read_values(wire, header, body, _not_yet, where)
        entries = dict(self._entries) if self._is_held else self._entries
        entry = entries.get(node.id)
        if not header.template.is_delta:
            entry = Entry(DeltaDictionary([values]), 1)
        elif entry is None:
            raise InvalidDataError(
                f"{' '.join(map(str, where))}: a delta for dictionary {node.id}, which is not defined"
            )
        else:
            entry = entry.extended(values)
        entries[node.id] = entry
        return StreamDictionaries(entries)


class FileDictionaries:
    """The dictionaries of a file, read when one is first asked for; deltas apply in the footer's order.

    `blocks` gives the header and body of every dictionary block.
    """

    __slots__ = ("_blocks", "_entries", "_found", "_wire")

    def __init__(
        self, wire: ReadSchema, blocks: Callable[[], Iterator[tuple[BatchHeader, Body, tuple[object, ...]]]]
    ) -> None:
        self._wire = wire
        self._blocks = blocks
        self._found: dict[int, list[tuple[BatchHeader, Body, tuple[object, ...]]]] | None = None
        self._entries: dict[int, Array] = {}

    def __call__(self, node: DictionaryId) -> Array | None:
        """The values of a dictionary; None where the file does not define it."""
        values = self._entries.get(node.id)
        if values is None:
            if self._found is None:
                self._found = self._index()
            parts = self._found.get(node.id)
            if parts is None:
                return None
            read = [read_values(self._wire, header, body, self, where)[0] for header, body, where in parts]
            values = self._entries[node.id] = concat_parts(read)
        return values

    def _index(self) -> dict[int, list[tuple[BatchHeader, Body, tuple[object, ...]]]]:
        found: dict[int, list[tuple[BatchHeader, Body, tuple[object, ...]]]] = {}
        for header, body, where in self._blocks():
            node = find_dictionary(self._wire, header, where)
            parts = found.setdefault(node.id, [])
            if header.template.is_delta != bool(parts):
                problem = (
                    "a delta comes before" if header.template.is_delta else "a file has only one non-delta batch of"
                )
                raise InvalidDataError(f"{' '.join(map(str, where))}: {problem} dictionary {node.id}")
            parts.append((header, body, where))
        return found


def find_dictionary(wire: ReadSchema, header: BatchHeader, where: tuple[object, ...]) -> DictionaryId:
    """The dictionary that a batch is for; raises `InvalidDataError` if the schema knows no such id."""
    node = wire.by_id.get(header.template.dictionary_id)
    if node is None:
        raise InvalidDataError(
            f"{' '.join(map(str, where))}: dictionary {header.template.dictionary_id} is none of the schema's "
            f"{sorted(wire.by_id)[:8]}"
        )
    return node

"""Read dictionaries («Dictionary Messages»): initial ones, replacements and deltas.

`StreamDictionaries` do not change once a batch refers to them, so each batch keeps the dictionaries that were in
effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from bowstring.arrays.array import Array
from bowstring.errors import InvalidDataError
from bowstring.ipc.dictionaries.delta import DeltaDictionary, concat_parts
from bowstring.ipc.message import format_location
from bowstring.ipc.metadata.field import DictionaryDeclaration
from bowstring.ipc.metadata.header import BatchHeader
from bowstring.ipc.metadata.schema import IpcSchema
from bowstring.ipc.record_batch.reader import BatchColumns, DictionaryLookup
from bowstring.ipc.record_batch.remote import Body, RemoteColumns
from bowstring.kernels.unify_dictionaries import (
    iter_dictionary_arrays,
    replace_dictionary,
    replace_dictionary_encoded_arrays,
)
from bowstring.layouts.registry import layout_of
from bowstring.memory.buffer import Buffer


def read_dictionary_values(
    ipc_schema: IpcSchema, header: BatchHeader, body: Body, lookup: DictionaryLookup, location: tuple[object, ...]
) -> Sequence[Array]:
    """Return the values of one dictionary batch as the only element, created on access; `lookup` returns the
    dictionaries inside them.
    """
    declaration = get_dictionary_declaration(ipc_schema, header, location)
    values_schema = IpcSchema.of_dictionary_values(declaration, ipc_schema.is_big_endian, ipc_schema.limits)
    positions = values_schema.column_positions(header.template.version)
    columns_type = BatchColumns if isinstance(body, Buffer) else RemoteColumns
    return columns_type(positions, header, body, lookup, location)


class DictionarySnapshot:
    """One dictionary at a position of a stream: the first parts of a `DeltaDictionary`."""

    __slots__ = ("_array", "_deltas", "_part_count")

    def __init__(self, deltas: DeltaDictionary, part_count: int) -> None:
        self._deltas = deltas
        self._part_count = part_count
        self._array: Array | None = None

    def to_array(self) -> Array:
        """Return all values, with the inner dictionaries that their parts were read with."""
        if self._array is None:
            self._array = self._deltas.concat(self._part_count)
        return self._array

    def resolve_inner_dictionaries(self, declaration: DictionaryDeclaration, lookup: DictionaryLookup) -> Array:
        """Return all values, with the inner dictionaries now in effect. Raises `InvalidDataError` if one in use is
        missing.
        """
        return self._deltas.concat(
            self._part_count, lambda values: _replace_inner_dictionaries(values, declaration, lookup)
        )

    def extend(self, delta: Sequence[Array]) -> DictionarySnapshot:
        """Return the dictionary with a delta appended."""
        deltas = self._deltas
        if self._part_count < len(deltas.parts):  # another snapshot was extended already
            deltas = DeltaDictionary(deltas.parts[: self._part_count])
        deltas.parts.append(delta)
        return DictionarySnapshot(deltas, self._part_count + 1)


def _replace_inner_dictionaries(values: Array, declaration: DictionaryDeclaration, lookup: DictionaryLookup) -> Array:
    parts = []
    for inside, part in zip(declaration.nested, iter_dictionary_arrays(values), strict=True):
        inner_dictionary, layout = lookup(inside), part.layout.dictionary
        if inner_dictionary is None:
            if part.null_count < part.length:
                raise InvalidDataError(
                    f"dictionary {inside.id}, which is inside dictionary {declaration.id}, has not been defined"
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
    return Array.from_array_data(replace_dictionary_encoded_arrays(values, iter(parts)))


def create_empty_dictionary(declaration: DictionaryDeclaration) -> Array:
    """Return an array without values, in place of a dictionary that is resolved later."""
    return Array.from_array_data(layout_of(declaration.value_type).from_pylist([]))


class StreamDictionaries:
    """The dictionaries in effect at a position of a stream; it does not change once a batch refers to it.

    Indices refer to the dictionaries in effect at the batch, also indices inside of dictionaries that contain others.
    """

    __slots__ = ("_entries", "_is_frozen", "_resolved_arrays")

    def __init__(self, entries: dict[int, DictionarySnapshot] | None = None) -> None:
        self._entries = entries or {}
        # Not taken over by later dictionaries: an inner one may have been replaced meanwhile.
        self._resolved_arrays: dict[int, Array] = {}
        self._is_frozen = False

    def __contains__(self, id_: int) -> bool:
        return id_ in self._entries

    def __call__(self, declaration: DictionaryDeclaration) -> Array | None:
        """Return the values of a dictionary, None if undefined. Raises `InvalidDataError` if malformed."""
        entry = self._entries.get(declaration.id)
        if entry is None:
            return None
        if not declaration.nested:
            return entry.to_array()
        values = self._resolved_arrays.get(declaration.id)
        if values is None:
            values = self._resolved_arrays[declaration.id] = entry.resolve_inner_dictionaries(declaration, self)
        return values

    def freeze(self) -> StreamDictionaries:
        """Return these dictionaries for a batch; the next change copies them."""
        self._is_frozen = True
        return self

    def with_dictionary_batch(
        self, ipc_schema: IpcSchema, header: BatchHeader, body: Body, location: tuple[object, ...]
    ) -> StreamDictionaries:
        """Return the dictionaries after a dictionary batch: with a new, a replaced or an extended dictionary."""
        declaration = get_dictionary_declaration(ipc_schema, header, location)
        # Inner dictionaries may still be replaced before a batch uses the values: see `DictionarySnapshot`.
        values = read_dictionary_values(ipc_schema, header, body, create_empty_dictionary, location)
        if header.template.is_delta and declaration.id not in self:
            raise InvalidDataError(
                f"{format_location(location)}: a delta for dictionary {declaration.id}, which is not defined"
            )
        return self.with_values(declaration.id, values, is_delta=header.template.is_delta)

    def with_values(self, id_: int, values: Sequence[Array], *, is_delta: bool) -> StreamDictionaries:
        """Return the dictionaries with the values of one added or replaced, or extended if they are a delta."""
        entries = self._get_mutable_entries()
        entries[id_] = entries[id_].extend(values) if is_delta else DictionarySnapshot(DeltaDictionary([values]), 1)
        return StreamDictionaries(entries)

    def without_dictionary(self, id_: int) -> StreamDictionaries:
        """Return the dictionaries without one, if it is defined."""
        entries = self._get_mutable_entries()
        entries.pop(id_, None)
        return StreamDictionaries(entries)

    def _get_mutable_entries(self) -> dict[int, DictionarySnapshot]:
        # A stream with a thousand dictionaries before its first batch does not copy them a thousand times.
        return dict(self._entries) if self._is_frozen else self._entries


class FileDictionaries:
    """The dictionaries of a file, read on first access; deltas apply in the footer's order.

    `read_batches` returns header and body of every dictionary batch.
    """

    __slots__ = ("_batches_by_id", "_entries", "_ipc_schema", "_read_batches")

    def __init__(
        self,
        ipc_schema: IpcSchema,
        read_batches: Callable[[], Iterator[tuple[BatchHeader, Body, tuple[object, ...]]]],
    ) -> None:
        self._ipc_schema = ipc_schema
        self._read_batches = read_batches
        self._batches_by_id: dict[int, list[tuple[BatchHeader, Body, tuple[object, ...]]]] | None = None
        self._entries: dict[int, Array] = {}

    def __call__(self, declaration: DictionaryDeclaration) -> Array | None:
        """Return the values of a dictionary; None if the file does not define it."""
        values = self._entries.get(declaration.id)
        if values is None:
            if self._batches_by_id is None:
                self._batches_by_id = self._group_batches_by_id()
            parts = self._batches_by_id.get(declaration.id)
            if parts is None:
                return None
            values_of_parts = [
                read_dictionary_values(self._ipc_schema, header, body, self, location)[0]
                for header, body, location in parts
            ]
            # Without a lock: two threads may read it, and both results are equal.
            values = self._entries[declaration.id] = concat_parts(values_of_parts)
        return values

    def _group_batches_by_id(self) -> dict[int, list[tuple[BatchHeader, Body, tuple[object, ...]]]]:
        batches_by_id: dict[int, list[tuple[BatchHeader, Body, tuple[object, ...]]]] = {}
        for header, body, location in self._read_batches():
            declaration = get_dictionary_declaration(self._ipc_schema, header, location)
            parts = batches_by_id.setdefault(declaration.id, [])
            check_file_dictionary_order(header, bool(parts), location)
            parts.append((header, body, location))
        return batches_by_id


def get_dictionary_declaration(
    ipc_schema: IpcSchema, header: BatchHeader, location: tuple[object, ...]
) -> DictionaryDeclaration:
    """Return the dictionary of a batch; raises `InvalidDataError` if its id is not in the schema."""
    declaration = ipc_schema.dictionaries_by_id.get(header.template.dictionary_id)
    if declaration is None:
        raise InvalidDataError(
            f"{format_location(location)}: dictionary {header.template.dictionary_id} is not in the schema, which has "
            f"{sorted(ipc_schema.dictionaries_by_id)[:8]}"
        )
    return declaration


def check_file_dictionary_order(header: BatchHeader, has_earlier_batch: bool, location: tuple[object, ...]) -> None:
    """Raise `InvalidDataError` for a dictionary batch of a file that is neither the only initial one nor a delta."""
    if header.template.is_delta != has_earlier_batch:
        problem = "a delta comes before" if header.template.is_delta else "a file has only one non-delta batch of"
        raise InvalidDataError(f"{format_location(location)}: {problem} dictionary {header.template.dictionary_id}")

"""Track written dictionaries («Dictionary Messages»): the ids that fields share, and the dictionary batches due before
a batch.

The tracker registers the dictionaries that readers have. Nothing is written if the readers' dictionary equals the
batch's or begins with it, or if all of the batch's indices are null. If the batch's dictionary extends the readers',
the rest is written as a delta; otherwise all of it, as a replacement, which files do not allow.

Inner dictionaries are only examined if the outer one has to be written, in terms of the readers' inner ones. If an
inner one is replaced, the outer one is written again in full, because its indices have another meaning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

import numpy as np

from bowstring.errors import InvalidArgumentError, TypeMismatchError, format_count
from bowstring.ipc.metadata.field import DictionaryDeclaration
from bowstring.ipc.metadata.header import DictionaryHeader
from bowstring.ipc.metadata.schema import IpcSchema
from bowstring.ipc.write_options import IpcWriteOptions
from bowstring.kernels.unify_dictionaries import (
    iter_dictionary_arrays,
    merge_dictionaries,
    replace_dictionary,
    replace_dictionary_encoded_arrays,
)
from bowstring.layouts.base import ArrayData, Indices
from bowstring.layouts.dictionary import find_dictionary_extending_all
from bowstring.layouts.equality import has_prefix


@dataclass(slots=True)
class PreparedBatch:
    """A batch to write: the columns whose indices have to change, by index, the dictionary batches due before it, and
    the readers' dictionaries afterwards.
    """

    changed_columns: dict[int, ArrayData] = field(default_factory=dict)
    dictionary_batches: list[tuple[DictionaryHeader, ArrayData]] = field(default_factory=list)
    written_dictionaries: dict[int, ArrayData] = field(default_factory=dict)
    matching_dictionaries: dict[int, tuple[ArrayData, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _DictionaryUse:
    """A dictionary array in a column of a batch: the column's index and name, and the array's index in it."""

    column_index: int
    column_name: str
    array_index: int
    array: ArrayData
    dictionary: ArrayData


class DictionaryTracker:
    """Tracks the written dictionaries and determines the dictionary batches due before each batch.

    With `unify_dictionaries`, a batch must not have other values than the written ones, since the readers that need it
    read no deltas; if it `unifies_by_deltas`, other values are added.
    """

    __slots__ = (
        "_declarations",
        "_encoded_columns",
        "_index_map_cache",
        "_matching_dictionaries",
        "_may_replace",
        "_options",
        "_shared_ids",
        "_unifies_by_deltas",
        "_written_dictionaries",
    )

    def __init__(
        self, ipc_schema: IpcSchema, options: IpcWriteOptions, may_replace: bool, unifies_by_deltas: bool = False
    ) -> None:
        self._options = options
        self._unifies_by_deltas = unifies_by_deltas
        self._may_replace = may_replace
        self._encoded_columns = [
            (index, ipc_schema.schema.fields[index].name, declarations)
            for index, declarations in enumerate(ipc_schema.dictionaries)
            if declarations
        ]
        all_declarations = [declaration for _, _, declarations in self._encoded_columns for declaration in declarations]
        self._declarations = {declaration.id: declaration for declaration in all_declarations}
        self._shared_ids = {
            id_
            for id_, count_of_id in Counter(declaration.id for declaration in all_declarations).items()
            if count_of_id > 1
        }
        self._written_dictionaries: dict[int, ArrayData] = {}
        # Compared by identity, which is why these and `_index_map_cache` keep the arrays: an id is not used again
        # meanwhile.
        self._matching_dictionaries: dict[int, tuple[ArrayData, ...]] = {}
        self._index_map_cache: dict[int, tuple[ArrayData, ArrayData, list[Indices]]] = {}

    def prepare_batch(self, columns: Sequence[ArrayData] | Mapping[int, ArrayData]) -> PreparedBatch:
        """Return how columns are written, those with dictionaries at least; nothing counts as written before `commit`.

        Raises `InvalidArgumentError` with the column if a dictionary would have to be replaced but may not.
        """
        batch = PreparedBatch()
        uses: dict[int, list[_DictionaryUse]] = {}
        for index, name, declarations in self._encoded_columns:
            column, first = columns[index], declarations[0].id
            if column.dictionary is not None and first not in self._shared_ids:
                matching = self._matching_dictionaries.get(first)
                if matching and matching[0] is column.dictionary:
                    continue
            for array_index, (declaration, array) in enumerate(
                zip(declarations, iter_dictionary_arrays(column), strict=True)
            ):
                uses.setdefault(declaration.id, []).append(
                    _DictionaryUse(index, name, array_index, array, array.require_dictionary().storage)
                )
        changed_arrays: dict[int, dict[int, ArrayData]] = {}
        for id_, uses_of_id in uses.items():
            matching = self._matching_dictionaries.get(id_) or ()
            if not all(any(use.dictionary is dictionary for dictionary in matching) for use in uses_of_id):
                for use, array in self._prepare_dictionary(batch, self._declarations[id_], uses_of_id):
                    changed_arrays.setdefault(use.column_index, {})[use.array_index] = array
        for index, arrays in changed_arrays.items():
            column = columns[index]
            new_arrays = (
                arrays.get(array_index, array) for array_index, array in enumerate(iter_dictionary_arrays(column))
            )
            batch.changed_columns[index] = replace_dictionary_encoded_arrays(column, new_arrays)
        return batch

    def register_written(self, dictionaries: Mapping[int, ArrayData]) -> None:
        """Register dictionaries that readers already have, by id."""
        self._written_dictionaries.update(dictionaries)

    def commit(self, batch: PreparedBatch) -> None:
        """Register the dictionaries of a prepared batch as written."""
        self._written_dictionaries.update(batch.written_dictionaries)
        self._matching_dictionaries.update(batch.matching_dictionaries)

    def _prepare_dictionary(
        self, batch: PreparedBatch, declaration: DictionaryDeclaration, uses: Sequence[_DictionaryUse]
    ) -> Iterator[tuple[_DictionaryUse, ArrayData]]:
        """Prepare the batches of a dictionary; yield the parts whose indices have to change."""
        written = self._get_written_dictionary(batch, declaration)
        non_null_uses = [use for use in uses if use.array.null_count < use.array.length]
        # No index refers to a value, so readers may have any dictionary.
        if not non_null_uses and written is not None:
            return
        names = list(dict.fromkeys(repr(use.column_name) for use in uses))
        location = f"column{'s' if len(names) > 1 else ''} {' and '.join(names)}"
        dictionaries = list({id(use.dictionary): use.dictionary for use in non_null_uses or uses}.values())
        unified = find_dictionary_extending_all(dictionaries)
        is_fixed = written is not None and self._options.unify_dictionaries
        if unified is not None and not (is_fixed and written is not None and not has_prefix(written, unified)):
            batch.matching_dictionaries[declaration.id] = tuple(dictionaries)
        else:
            batch.matching_dictionaries[declaration.id] = ()
            if written is not None and not is_fixed:
                # One that extends the readers' dictionary is first, so that the merged one extends it, too, and a
                # delta is enough.
                dictionaries.sort(key=lambda dictionary: not has_prefix(dictionary, written))
            unified, index_maps = self._unify(declaration.id, written, dictionaries)
            num_new = unified.length - (0 if written is None else written.length)
            if is_fixed and num_new and not self._unifies_by_deltas:
                raise InvalidArgumentError(
                    f"{location}: the written dictionary lacks {format_count(num_new, 'value')}, and unify_dictionaries"
                    f" writes one for all batches: pass all batches to one call of write_table"
                )
            map_of = {id(dictionary): index_map for dictionary, index_map in zip(dictionaries, index_maps, strict=True)}
            yield from self._remap_indices(location, non_null_uses or uses, unified, map_of)
        self._prepare_batches_if_changed(batch, declaration, unified, location)

    def _unify(
        self, id_: int, written: ArrayData | None, dictionaries: list[ArrayData]
    ) -> tuple[ArrayData, list[Indices]]:
        """Return a dictionary for all parts of a batch; in a file it extends the written one."""
        can_extend = written is not None and (not self._may_replace or self._options.unify_dictionaries)
        if written is None or not can_extend:
            return merge_dictionaries(dictionaries)
        cached = self._index_map_cache.get(id_)
        if len(dictionaries) == 1 and cached is not None and cached[0] is dictionaries[0] and cached[1] is written:
            return written, cached[2]
        unified, (_, *index_maps) = merge_dictionaries([written, *dictionaries])
        if len(dictionaries) == 1 and unified is written:
            self._index_map_cache[id_] = dictionaries[0], written, index_maps
        return unified, index_maps

    def _remap_indices(
        self, location: str, uses: Sequence[_DictionaryUse], unified: ArrayData, index_maps: dict[int, Indices]
    ) -> Iterator[tuple[_DictionaryUse, ArrayData]]:
        for use in uses:
            index_map = index_maps[id(use.dictionary)]
            if np.array_equal(index_map, np.arange(len(index_map))):
                continue
            try:
                yield use, replace_dictionary(use.array, unified, index_map)
            except TypeMismatchError as error:
                if len(uses) == 1:
                    raise InvalidArgumentError(f"{location}: {error}") from None
                raise InvalidArgumentError(
                    f"{location}: {error}, because their dictionaries were equal in the first batch, are stored as one"
                    f", and differ now: write with share_dictionaries=False"
                ) from None

    def _prepare_batches_if_changed(
        self, batch: PreparedBatch, declaration: DictionaryDeclaration, values: ArrayData, location: str
    ) -> bool:
        """Prepare the batches that give readers a dictionary; return whether it is new or a replacement."""
        written = self._get_written_dictionary(batch, declaration)
        can_extend = False
        if written is not None:
            if has_prefix(written, values):
                return False
            can_extend = self._is_delta_allowed(declaration) and has_prefix(values, written)
            if not can_extend and not self._may_replace:
                raise InvalidArgumentError(f"{location}: {self._describe_conflict(values, written)}")
        is_inner_replaced = [
            self._prepare_batches_if_changed(batch, inner_declaration, array.require_dictionary().storage, location)
            for inner_declaration, array in zip(declaration.nested, iter_dictionary_arrays(values), strict=True)
        ]
        is_delta = written is not None and can_extend and not any(is_inner_replaced)
        new = values.slice(written.length) if is_delta and written is not None else values
        batch.dictionary_batches.append((DictionaryHeader(declaration.id, is_delta), new))
        batch.written_dictionaries[declaration.id] = values
        return not is_delta

    def _get_written_dictionary(self, batch: PreparedBatch, declaration: DictionaryDeclaration) -> ArrayData | None:
        """Return the readers' dictionary after the batch; an id may occur several times in a batch."""
        return batch.written_dictionaries.get(declaration.id, self._written_dictionaries.get(declaration.id))

    def _is_delta_allowed(self, declaration: DictionaryDeclaration) -> bool:
        deltas = self._options.dictionary_deltas
        return deltas == "always" or (deltas == "auto" and not (declaration.nested and self._may_replace))

    def _describe_conflict(self, values: ArrayData, written: ArrayData) -> str:
        if has_prefix(values, written):
            return (
                "its dictionary grows between batches, but a file without deltas has one for all of them: leave "
                "dictionary_deltas unset, write a stream, or write a table with unify_dictionaries"
            )
        return (
            "its dictionary changes between batches, but a file has one for all of them, which can only be "
            "extended: write a stream, or a table with unify_dictionaries"
        )


def assign_shared_ids(ipc_schema: IpcSchema, columns: Sequence[ArrayData]) -> list[int]:
    """Return ids for the dictionaries of a schema, in its order: one id for those in the same memory in these columns.

    Fields that share a dictionary share the ids of the dictionaries inside it, too.
    """
    numbers = count()
    ids_by_memory: dict[object, list[int]] = {}
    shared_ids: list[int] = []
    for declarations, column in zip(ipc_schema.dictionaries, columns, strict=True):
        if declarations:
            for declaration, array in zip(declarations, iter_dictionary_arrays(column), strict=True):
                dictionary = array.dictionary
                # `object()` equals nothing else: empty dictionaries have no memory that could be the same.
                memory = (
                    object()
                    if dictionary is None or dictionary.length == 0
                    else (declaration.value_type, _get_memory_key(dictionary))
                )
                ids = ids_by_memory.get(memory)
                if ids is None:
                    ids = ids_by_memory[memory] = [next(numbers) for _ in range(_count_declarations(declaration))]
                shared_ids += ids
    return shared_ids


def can_share_dictionaries(ipc_schema: IpcSchema) -> bool:
    """Whether two fields of a schema may have the same dictionary."""
    types = [declaration.value_type for declarations in ipc_schema.dictionaries for declaration in declarations]
    return len(set(types)) < len(types)


def _count_declarations(declaration: DictionaryDeclaration) -> int:
    return 1 + sum(map(_count_declarations, declaration.nested))


def _get_memory_key(array: ArrayData | None) -> object:
    """Return a key of an array's memory."""
    if array is None:
        return None
    buffers = tuple([(0, 0) if buffer is None else (buffer.address, buffer.size) for buffer in array.own_buffers])
    return (
        array.offset,
        array.length,
        buffers,
        tuple(map(_get_memory_key, array.children)),
        _get_memory_key(array.dictionary),
    )

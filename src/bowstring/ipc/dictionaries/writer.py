"""Dictionaries, written («Dictionary Messages»): which ids fields share, and what has to go out before a batch.

What readers hold of a dictionary is known here. Where it serves a batch as it is, nothing is written: where it is the
same, or goes on where the batch's ends, or where all of the batch's indices are null. Where the batch's dictionary goes
on, its end goes out as a delta; otherwise all of it, which replaces the one before and which files do not have.

Dictionaries inside another one are only looked at where that one has to be written: it is written in terms of theirs.
Where an inner one is replaced, the outer one is written again, whole, since its indices mean something else now.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

import numpy as np

from bowstring.compute.unify_dictionaries import (
    dictionary_arrays,
    dictionary_of,
    find_longest_dictionary,
    merge_dictionaries,
    replace_dictionary_arrays,
    with_dictionary,
)
from bowstring.errors import DataTypeError, UsageError
from bowstring.ipc.metadata.header import DictionaryHeader
from bowstring.ipc.metadata.schema import DictionaryId, WireSchema
from bowstring.ipc.options import IpcWriteOptions
from bowstring.layouts.array import Array
from bowstring.layouts.base import Indices
from bowstring.layouts.equality import has_prefix


@dataclass(slots=True)
class Plan:
    """How a batch is written: its columns, before them these dictionaries, and what readers hold then."""

    columns: list[Array]
    due: list[tuple[DictionaryHeader, Array]] = field(default_factory=list)
    written: dict[int, Array] = field(default_factory=dict)
    served: dict[int, tuple[Array, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Use:
    """A dictionary-encoded part of a column of a batch: the column's position and name, the part's number in it."""

    column: int
    name: str
    number: int
    part: Array
    dictionary: Array


class DictionaryWriter:
    """What is written of each dictionary, and so what has to be written before a batch."""

    __slots__ = ("_coded", "_may_replace", "_moves", "_nodes", "_options", "_served", "_shared", "_written")

    def __init__(self, wire: WireSchema, options: IpcWriteOptions, may_replace: bool) -> None:
        self._options = options
        self._may_replace = may_replace
        self._coded = [
            (position, wire.schema.fields[position].name, nodes)
            for position, nodes in enumerate(wire.dictionaries)
            if nodes
        ]
        listed = [node for _, _, nodes in self._coded for node in nodes]
        self._nodes = {node.id: node for node in listed}
        self._shared = {id_ for id_, times in Counter(node.id for node in listed).items() if times > 1}
        self._written: dict[int, Array] = {}
        self._served: dict[int, tuple[Array, ...]] = {}
        self._moves: dict[int, tuple[Array, Array, list[Indices]]] = {}

    def plan(self, columns: Sequence[Array]) -> Plan:
        """How to write a batch of these columns; nothing is taken as written before `commit`.

        Raises `UsageError`, naming the column, where a dictionary would have to be replaced but may not.
        """
        plan = Plan(list(columns))
        uses: dict[int, list[_Use]] = {}
        for position, name, nodes in self._coded:
            column, first = columns[position], nodes[0].id
            if column.dictionary is not None and first not in self._shared:
                served = self._served.get(first)
                if served and served[0] is column.dictionary:
                    continue
            for number, (node, part) in enumerate(zip(nodes, dictionary_arrays(column), strict=True)):
                uses.setdefault(node.id, []).append(_Use(position, name, number, part, dictionary_of(part).storage))
        changed: dict[int, dict[int, Array]] = {}
        for id_, own in uses.items():
            served = self._served.get(id_) or ()
            if not all(any(use.dictionary is one for one in served) for use in own):
                for use, part in self._settle(plan, self._nodes[id_], own):
                    changed.setdefault(use.column, {})[use.number] = part
        for position, parts in changed.items():
            column = columns[position]
            own_parts = (parts.get(number, part) for number, part in enumerate(dictionary_arrays(column)))
            plan.columns[position] = replace_dictionary_arrays(column, own_parts)
        return plan

    def mark_written(self, dictionaries: Mapping[int, Array]) -> None:
        """Readers hold these dictionaries, by id."""
        self._written.update(dictionaries)

    def commit(self, plan: Plan) -> None:
        """The messages of a plan have been made."""
        self._written.update(plan.written)
        self._served.update(plan.served)

    def _settle(self, plan: Plan, node: DictionaryId, uses: Sequence[_Use]) -> Iterator[tuple[_Use, Array]]:
        """Plan what a dictionary needs; gives the parts whose indices have to change."""
        written = self._held(plan, node)
        used = [use for use in uses if use.part.null_count < use.part.length]
        if not used and written is not None:
            return
        names = list(dict.fromkeys(repr(use.name) for use in uses))
        where = f"column{'s' if len(names) > 1 else ''} {' and '.join(names)}"
        distinct = list({id(use.dictionary): use.dictionary for use in used or uses}.values())
        whole = find_longest_dictionary(distinct)
        is_fixed = self._options.unify_dictionaries and written is not None
        if whole is not None and not (is_fixed and written is not None and not has_prefix(written, whole)):
            plan.served[node.id] = tuple(distinct)
        else:
            plan.served[node.id] = ()
            if written is not None and not is_fixed:
                distinct.sort(key=lambda one: not has_prefix(one, written))
            whole, places = self._merged(node.id, written, distinct)
            if is_fixed and written is not None and whole.length > written.length:
                raise UsageError(
                    f"{where}: {whole.length - written.length} values are not in the dictionary that is written, and "
                    f"with unify_dictionaries there is one for all batches: give write_table all of them at once"
                )
            place_of = {id(one): place for one, place in zip(distinct, places, strict=True)}
            yield from self._moved(where, used or uses, whole, place_of)
        self._visit(plan, node, whole, where)

    def _merged(self, id_: int, written: Array | None, distinct: list[Array]) -> tuple[Array, list[Indices]]:
        """A dictionary for all that a batch has; in a file it goes on where the one that is written ends."""
        may_go_on = written is not None and (not self._may_replace or self._options.unify_dictionaries)
        if written is None or not may_go_on:
            return merge_dictionaries(distinct)
        known = self._moves.get(id_)
        if len(distinct) == 1 and known is not None and known[0] is distinct[0] and known[1] is written:
            return written, known[2]
        whole, (_, *places) = merge_dictionaries([written, *distinct])
        if len(distinct) == 1 and whole is written:
            self._moves[id_] = distinct[0], written, places
        return whole, places

    def _moved(
        self, where: str, uses: Sequence[_Use], whole: Array, places: dict[int, Indices]
    ) -> Iterator[tuple[_Use, Array]]:
        for use in uses:
            place = places[id(use.dictionary)]
            stays = np.array_equal(place, np.arange(len(place)))
            try:
                yield use, with_dictionary(use.part, whole, None if stays else place)
            except DataTypeError as error:
                raise UsageError(
                    f"{where}: they had one dictionary in the first batch and share its id, but not any more, and "
                    f"{error}: write with share_dictionaries=False"
                ) from None

    def _visit(self, plan: Plan, node: DictionaryId, values: Array, where: str) -> bool:
        """Plan what makes readers hold a dictionary; whether the one before is replaced, or is the first."""
        written = self._held(plan, node)
        may_go_on = False
        if written is not None:
            if has_prefix(written, values):
                return False
            may_go_on = self._may_be_delta(node) and has_prefix(values, written)
            if not may_go_on and not self._may_replace:
                raise UsageError(f"{where}: {self._refusal(values, written)}")
        inner = [
            self._visit(plan, inside, dictionary_of(part).storage, where)
            for inside, part in zip(node.inside, dictionary_arrays(values), strict=True)
        ]
        is_delta = written is not None and may_go_on and not any(inner)
        new = values.slice(written.length) if is_delta and written is not None else values
        plan.due.append((DictionaryHeader(node.id, is_delta), new))
        plan.written[node.id] = values
        return not is_delta

    def _held(self, plan: Plan, node: DictionaryId) -> Array | None:
        """What readers hold of a dictionary once the plan is carried out; an id may come more than once in a batch."""
        return plan.written.get(node.id, self._written.get(node.id))

    def _may_be_delta(self, node: DictionaryId) -> bool:
        deltas = self._options.dictionary_deltas
        return deltas == "always" or (deltas == "auto" and not (node.inside and self._may_replace))

    def _refusal(self, values: Array, written: Array) -> str:
        if has_prefix(values, written):
            return (
                "its dictionary grows between batches, but a file without deltas holds one for all of them: let "
                "dictionary_deltas be, write a stream, or write a table with unify_dictionaries"
            )
        return (
            "its dictionary changes between batches, but a file holds one for all of them, which may only grow at its "
            "end: write a stream, or a table with unify_dictionaries"
        )


def assign_shared_ids(wire: WireSchema, columns: Sequence[Array]) -> list[int]:
    """Ids for the dictionaries of a schema, in the order in which it names them: one for those that lie in the same
    memory in these columns, others for the rest. Dictionaries inside another one go with it.
    """
    numbers = count()
    given: dict[object, list[int]] = {}
    out: list[int] = []
    for nodes, column in zip(wire.dictionaries, columns, strict=True):
        if nodes:
            for node, part in zip(nodes, dictionary_arrays(column), strict=True):
                held = part.dictionary
                place = object() if held is None or held.length == 0 else (node.value_type, _place(held))
                ids = given.get(place)
                if ids is None:
                    ids = given[place] = [next(numbers) for _ in range(_size(node))]
                out += ids
    return out


def can_share_dictionaries(wire: WireSchema) -> bool:
    """Whether two fields of a schema could have the same dictionary."""
    types = [node.value_type for nodes in wire.dictionaries for node in nodes]
    return len(set(types)) < len(types)


def _size(node: DictionaryId) -> int:
    return 1 + sum(map(_size, node.inside))


def _place(array: Array | None) -> object:
    """Where an array lies."""
    if array is None:
        return None
    buffers = tuple([(0, 0) if one is None else (one.address, one.size) for one in array.buffers])
    return array.offset, array.length, buffers, tuple(map(_place, array.children)), _place(array.dictionary)

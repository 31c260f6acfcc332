"""«Data file» of the JSON test data format: writing schema, dictionaries and record batches.

The format has one dictionary per ID for all batches, so dictionaries that differ between batches are unified first.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from bowstring.arrays.record_batch import RecordBatch
from bowstring.datatypes.field import Field
from bowstring.datatypes.schema import Schema
from bowstring.io.sinks import open_sink
from bowstring.kernels.unify_dictionaries import has_dictionary, unify_dictionaries
from bowstring.layouts.base import ArrayData, Layout
from bowstring.layouts.registry import layout_of
from bowstring.memory.closable import call_on_error
from tests.integration_json.columns import write_column
from tests.integration_json.json_access import Json
from tests.integration_json.schema import write_schema


def build_document(schema: Schema, batches: Iterable[RecordBatch]) -> Json:
    """Build the integration JSON document of record batches, as Python objects for `json.dumps`.

    Copies everything. Raises `UnsupportedTypeError` naming the column path for types that JSON can't express,
    `InvalidDataError` for values that are invalid for their type, and `TypeMismatchError` if a unified dictionary is
    too large for its index type.
    """
    batches = list(batches)
    id_of_object: dict[int, int] = {}
    dictionaries: list[ArrayData] = []
    ids: list[int] = []
    columns: list[list[ArrayData]] = []
    for index, field in enumerate(schema):
        layout = layout_of(field.type)
        chunks: list[ArrayData] = [batch.column(index) for batch in batches]
        if has_dictionary(layout):
            chunks, column_dictionaries = _unify_columns(layout, chunks)
            for dictionary in column_dictionaries:
                if id_of_object.setdefault(id(dictionary), len(dictionaries)) == len(dictionaries):
                    dictionaries.append(dictionary)
                ids.append(id_of_object[id(dictionary)])
        columns.append(chunks)
    document: Json = {"schema": write_schema(schema, iter(ids)), "batches": []}
    for index, batch in enumerate(batches):
        batch_columns = [write_column(field, chunks[index]) for field, chunks in zip(schema, columns, strict=True)]
        document["batches"].append({"count": batch.num_rows, "columns": batch_columns})
    if dictionaries:
        document["dictionaries"] = [_write_dictionary(index, array) for index, array in enumerate(dictionaries)]
    return document


def write(sink: Any, document: Json) -> None:
    """Write a document as text to a path, which gets the complete file or none, a URL or a binary file object.

    NaN and infinities, which JSON doesn't have, are written as `NaN`, `Infinity` and `-Infinity`. Raises
    `ResourceError` if the sink can't be written.
    """
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    opened = open_sink(sink)
    with call_on_error(opened.abandon):
        opened.write([text], len(text))
        opened.finish()


def _write_dictionary(id: int, array: ArrayData) -> Json:
    column = write_column(Field(f"DICT{id}", array.type), array)
    return {"id": id, "data": {"count": array.length, "columns": [column]}}


def _unify_columns(layout: Layout, columns: Sequence[ArrayData]) -> tuple[list[ArrayData], list[ArrayData]]:
    """Return the columns with unified dictionaries, and these dictionaries in depth-first order."""
    unified = unify_dictionaries(columns) or [layout.from_pylist([])]
    return unified[: len(columns)], list(_iter_dictionaries(unified[0]))


def _iter_dictionaries(array: ArrayData) -> Iterator[ArrayData]:
    """Yield the dictionaries of an array in depth-first order, nested ones before the dictionary that contains them."""
    dictionary_layout = array.layout.dictionary
    if dictionary_layout is None:
        for child in array.children:
            yield from _iter_dictionaries(child)
        return
    dictionary = dictionary_layout.from_pylist([]) if array.dictionary is None else array.dictionary
    yield from _iter_dictionaries(dictionary)
    yield dictionary

"""«Data file» of the JSON test data format: writing schema, dictionaries and record batches.

The format has one dictionary per ID for all batches, so dictionaries that differ between batches are unified first.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

from bowstring.arrays.record_batch import RecordBatch
from bowstring.compute.unify_dictionaries import has_dictionary
from bowstring.datatypes.field import Field, Schema
from bowstring.errors import ResourceError, translate_os_error
from bowstring.integration_json.columns import write_column
from bowstring.integration_json.dataset import Json
from bowstring.integration_json.dictionaries import unify_columns
from bowstring.integration_json.schema import write_schema
from bowstring.layouts.array import Array
from bowstring.layouts.registry import layout_of


def build_document(schema: Schema, batches: Iterable[RecordBatch]) -> Json:
    """Build the integration JSON document of record batches, as Python objects for `json.dumps`.

    Copies everything. Raises `UnsupportedTypeError` naming the column path for types that JSON can't express,
    `InvalidDataError` for values that are invalid for their type, and `DataTypeError` if a unified dictionary is too
    large for its index type.
    """
    batches = list(batches)
    id_of_object: dict[int, int] = {}
    dictionaries: list[Array] = []
    ids: list[int] = []
    columns: list[list[Array]] = []
    for index, field in enumerate(schema):
        layout = layout_of(field.type)
        chunks = [batch.column(index) for batch in batches]
        if has_dictionary(layout):
            chunks, column_dictionaries = unify_columns(layout, chunks)
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
    """Write a document as text to a path or a binary file object.

    NaN and infinities, which JSON doesn't have, are written as `NaN`, `Infinity` and `-Infinity`. Raises
    `ResourceError` if the path or object can't be written.
    """
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    if not isinstance(sink, (str, os.PathLike)):
        remaining = memoryview(text)
        while remaining.nbytes:  # unbuffered files may write only a part
            num_written = sink.write(remaining)
            if num_written == 0:
                raise ResourceError(f"{type(sink).__name__}: write returned 0 with {remaining.nbytes} bytes remaining")
            remaining = remaining[num_written:] if isinstance(num_written, int) else remaining[:0]
        return
    try:
        with open(sink, "wb") as file:
            file.write(text)
    except OSError as error:
        raise translate_os_error(error, f"{os.fspath(sink)}: can't be written: {error.strerror}") from None


def _write_dictionary(id: int, array: Array) -> Json:
    column = write_column(Field(f"DICT{id}", array.type), array)
    return {"id": id, "data": {"count": array.length, "columns": [column]}}

"""«Data file» of the JSON test data format, written: schema, dictionaries, record batches.

The format has one dictionary an id for all batches, so dictionaries that differ from batch to batch are brought
together first.
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
from bowstring.integration_json.dictionaries import with_common_dictionaries
from bowstring.integration_json.schema import write_schema
from bowstring.layouts.array import Array
from bowstring.layouts.registry import layout_of


def build_document(schema: Schema, batches: Iterable[RecordBatch]) -> Json:
    """The integration JSON document of these batches, as Python objects for `json.dumps`.

    Copies everything. Raises `UnsupportedTypeError` naming the column path for what JSON cannot say,
    `InvalidDataError` where an array's buffers do not hold values of its type, and `DataTypeError` where dictionaries
    that differ from batch to batch are together too large for their indices.
    """
    held = list(batches)
    numbers: dict[int, int] = {}
    found: list[Array] = []
    ids: list[int] = []
    columns: list[list[Array]] = []
    for index, field in enumerate(schema):
        layout = layout_of(field.type)
        own = [batch.column(index) for batch in held]
        if has_dictionary(layout):
            own, dictionaries = with_common_dictionaries(layout, own)
            for dictionary in dictionaries:
                if numbers.setdefault(id(dictionary), len(found)) == len(found):
                    found.append(dictionary)
                ids.append(numbers[id(dictionary)])
        columns.append(own)
    written: Json = {"schema": write_schema(schema, iter(ids)), "batches": []}
    for number, batch in enumerate(held):
        pairs = zip(schema, columns, strict=True)
        said = [write_column(field, arrays[number]) for field, arrays in pairs]
        written["batches"].append({"count": batch.num_rows, "columns": said})
    if found:
        written["dictionaries"] = [_write_dictionary(number, array) for number, array in enumerate(found)]
    return written


def write(sink: Any, document: Json) -> None:
    """Write a document as text to a path or a binary file object.

    A value that JSON has no word for (NaN, the infinities) is written as Python and JavaScript write it. Raises
    `ResourceError` where the path cannot be written, or the object takes no more.
    """
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    if not isinstance(sink, (str, os.PathLike)):
        left = memoryview(text)
        while left.nbytes:  # what has no buffer may take a part
            taken = sink.write(left)
            if taken == 0:
                raise ResourceError(f"{type(sink).__name__}: takes no more, {left.nbytes} bytes are left")
            left = left[taken:] if isinstance(taken, int) else left[:0]
        return
    try:
        with open(sink, "wb") as file:
            file.write(text)
    except OSError as error:
        raise translate_os_error(error, f"{os.fspath(sink)}: cannot be written: {error.strerror}") from None


def _write_dictionary(number: int, array: Array) -> Json:
    column = write_column(Field(f"DICT{number}", array.type), array)
    return {"id": number, "data": {"count": array.length, "columns": [column]}}

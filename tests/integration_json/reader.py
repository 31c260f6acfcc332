"""«Data file» of the JSON test data format: reading schema, dictionaries and record batches."""

from __future__ import annotations

import gzip
import io
import json
import zlib
from contextlib import closing
from typing import Any

from bowstring.arrays.array import Array
from bowstring.arrays.record_batch import RecordBatch
from bowstring.arrays.table import Table
from bowstring.datatypes.schema import Schema
from bowstring.errors import FormatMismatchError, InvalidDataError, LimitError, prefix_errors
from bowstring.io.sources import open_sequential
from bowstring.layouts.base import ArrayData
from bowstring.layouts.registry import layout_of
from tests.integration_json.columns import read_column, read_dictionary_values
from tests.integration_json.json_access import (
    DEFAULT_LIMITS,
    DocumentLimits,
    Json,
    expect_json_type,
    read_count,
    read_member,
)
from tests.integration_json.schema import FieldTreeNode, read_schema

_GZIP_MAGIC = b"\x1f\x8b"


def read(source: Any, limits: DocumentLimits = DEFAULT_LIMITS) -> Table:
    """Read an integration JSON document as a table, with the batches of the document.

    `source` is a path, a URL, bytes or a binary file object, which is read entirely; the document may be compressed
    with gzip. The structure is checked, but not the values: decimals may exceed their precision, for example, which
    `validate(full=True)` detects. Raises `InvalidDataError` naming the batch, the column and the element, `LimitError`
    if a limit is exceeded, `NotFoundError` if the file does not exist, `InvalidArgumentError` for a directory,
    `ResourceError` if the file can't be read.
    """
    name, content = _read_document(source, limits)
    with prefix_errors(name):
        document = expect_json_type(_parse_json(content), dict, "the document")
        schema, nodes, dictionary_nodes = read_schema(read_member(document, "schema", dict), limits)
        dictionaries = _DictionaryReader(dictionary_nodes, read_member(document, "dictionaries", list, []))
        batches = []
        for index, batch in enumerate(read_member(document, "batches", list)):
            with prefix_errors(f"batch {index}"):
                batches.append(_read_batch(schema, nodes, batch, dictionaries))
        return Table.from_batches(batches, schema)


def _read_document(source: Any, limits: DocumentLimits) -> tuple[str, bytes]:
    max_bytes = limits.max_bytes + 1  # one more, to detect that there are too many
    with closing(open_sequential(source)) as opened:
        name, content = opened.name, opened.read(max_bytes)
    if content[:2] == _GZIP_MAGIC:
        # Decompression stops at the limit, whatever the size of the document is.
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(content)) as gzip_file:
                content = gzip_file.read(max_bytes)
        except (OSError, EOFError, zlib.error) as error:
            raise InvalidDataError(f"{name}: malformed gzip: {error}") from None
    if len(content) > limits.max_bytes:
        raise LimitError(f"{name}: the document exceeds the limit of {limits.max_bytes} bytes (max_bytes)")
    return name, content


def _parse_json(content: bytes) -> Any:
    try:
        return json.loads(content)
    except RecursionError:
        raise LimitError("the document is nested too deeply") from None
    except ValueError as error:
        raise FormatMismatchError(f"expected JSON, found other bytes ({content[:20]!r}): {error}") from None


class _DictionaryReader:
    """Reads the dictionaries of a document on first use, because dictionaries can refer to other dictionaries."""

    def __init__(self, dictionary_nodes: dict[int, FieldTreeNode], entries: list[Any]) -> None:
        self._nodes = dictionary_nodes
        self._entries: dict[int, Json] = {}
        self._arrays: dict[int, ArrayData] = {}
        for value in entries:
            entry = expect_json_type(value, dict, "a dictionary")
            dictionary_id = read_member(entry, "id", int)
            if dictionary_id in self._entries:
                raise InvalidDataError(f"duplicate dictionary ID {dictionary_id}")
            self._entries[dictionary_id] = entry

    def __call__(self, id: int) -> ArrayData:
        """Return the dictionary with this ID. Raises `InvalidDataError` if it does not exist."""
        dictionary = self._arrays.get(id)
        if dictionary is None:
            if id not in self._entries:
                raise InvalidDataError(f"dictionary {id} is missing")
            with prefix_errors(f"dictionary {id}"):
                dictionary = self._arrays[id] = self._read_dictionary(id)
        return dictionary

    def _read_dictionary(self, id: int) -> ArrayData:
        node, data = self._nodes[id], self._entries[id].get("data")
        layout = layout_of(node.field.type).dictionary
        assert layout is not None
        arrays = []
        for batch in data if isinstance(data, list) else [data]:
            columns = read_member(expect_json_type(batch, dict, "'data'"), "columns", list)
            if len(columns) != 1:
                raise InvalidDataError(f"expected one column, found {len(columns)}")
            arrays.append(read_dictionary_values(node, layout, columns[0], self))
        if not arrays:
            raise InvalidDataError("expected a record batch, found none")
        return arrays[0] if len(arrays) == 1 else layout.concat(arrays)


def _read_batch(
    schema: Schema, nodes: tuple[FieldTreeNode, ...], value: Any, dictionaries: _DictionaryReader
) -> RecordBatch:
    batch = expect_json_type(value, dict, "a batch")
    count = read_count(batch)
    columns = read_member(batch, "columns", list)
    if len(columns) != len(nodes):
        raise InvalidDataError(f"the schema has {len(nodes)} fields, found {len(columns)} columns")
    arrays = [read_column(node, column, dictionaries) for node, column in zip(nodes, columns, strict=True)]
    for field, array in zip(schema, arrays, strict=True):
        if array.length != count:
            raise InvalidDataError(f"column {field.name!r} has {array.length} values, the batch {count}")
    return RecordBatch(schema, count, tuple(map(Array.from_array_data, arrays)))

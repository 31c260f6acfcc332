"""«Data file» of the JSON test data format, read: schema, dictionaries, record batches."""

from __future__ import annotations

import gzip
import io
import json
import os
import zlib
from typing import Any

from bowstring.arrays.record_batch import RecordBatch
from bowstring.datatypes.field import Schema
from bowstring.errors import (
    FormatMismatchError,
    InvalidDataError,
    IsDirectoryError,
    LimitError,
    MissingFileError,
    UsageError,
    translate_os_error,
)
from bowstring.integration_json.columns import read_column, read_values
from bowstring.integration_json.dataset import DEFAULT_LIMITS, Dataset, DocumentLimits, Json, count_of, expect, member
from bowstring.integration_json.schema import Node, read_schema
from bowstring.layouts.array import Array
from bowstring.layouts.base import error_context
from bowstring.layouts.registry import layout_of

_GZIP = b"\x1f\x8b"


def read(source: Any, limits: DocumentLimits = DEFAULT_LIMITS) -> Dataset:
    """The data set of an integration JSON document, with a structure that is checked and values as they are written.

    `source` is a path, bytes, or a binary file object (read whole); the document may be compressed with gzip. Values
    are not judged: decimals may exceed their precision, which only `validate(full=True)` tells. Raises
    `InvalidDataError` naming the batch, the column and the element, `LimitError` beyond a limit, `NotFoundError` where
    there is no such file, `UsageError` for a directory, `ResourceError` for a file that can't be read.
    """
    name, raw = _bytes_of(source, limits)
    with error_context(name):
        holder = expect(_parse(raw), dict, "the document")
        schema, nodes, by_id = read_schema(member(holder, "schema", dict), limits)
        dictionaries = _Dictionaries(by_id, member(holder, "dictionaries", list, []))
        batches = []
        for number, batch in enumerate(member(holder, "batches", list)):
            with error_context(f"batch {number}"):
                batches.append(_read_batch(schema, nodes, batch, dictionaries))
        return Dataset(schema, tuple(batches))


def _bytes_of(source: Any, limits: DocumentLimits) -> tuple[str, bytes]:
    name = "integration JSON"
    most = limits.max_bytes + 1
    if isinstance(source, (str, os.PathLike)):
        name = os.fspath(source)
        try:
            with open(source, "rb") as file:
                raw = file.read(most)
        except FileNotFoundError as error:
            raise MissingFileError(f"{name}: there is no such file", error) from None
        except IsADirectoryError as error:
            raise IsDirectoryError(f"{name}: is a directory", error) from None
        except OSError as error:
            raise translate_os_error(error, f"{name}: cannot be read: {error.strerror}") from None
    elif hasattr(source, "read"):
        name = str(getattr(source, "name", name))
        raw = getattr(source, "buffer", source).read(most)  # standard input as text has its bytes behind it
    else:
        raw = source
    if not isinstance(raw, (bytes, bytearray, memoryview)):
        raise UsageError(f"integration JSON is read from a path, bytes or a binary file, not {type(raw).__name__}")
    raw = bytes(raw)
    if raw[:2] == _GZIP:
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(raw)) as unpacked:
                raw = unpacked.read(most)
        except (OSError, EOFError, zlib.error) as error:
            raise InvalidDataError(f"{name}: malformed gzip: {error}") from None
    if len(raw) > limits.max_bytes:
        raise LimitError(f"{name}: the document is longer than {limits.max_bytes} bytes, the limit (max_bytes)")
    return name, raw


def _parse(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except RecursionError:
        raise LimitError("the document is nested too deep") from None
    except ValueError as error:
        raise FormatMismatchError(f"expected JSON, found other bytes ({raw[:20]!r}): {error}") from None


class _Dictionaries:
    """The dictionaries of a document, each read when it is first asked for: others may be inside it."""

    def __init__(self, by_id: dict[int, Node], held: list[Any]) -> None:
        self._nodes = by_id
        self._held: dict[int, Json] = {}
        self._read: dict[int, Array] = {}
        for entry in held:
            holder = expect(entry, dict, "a dictionary")
            number = member(holder, "id", int)
            if number in self._held:
                raise InvalidDataError(f"dictionary {number} comes twice")
            self._held[number] = holder

    def __call__(self, number: int) -> Array:
        """The dictionary of this id; raises `InvalidDataError` where there is none."""
        found = self._read.get(number)
        if found is None:
            if number not in self._held:
                raise InvalidDataError(f"there is no dictionary {number}")
            with error_context(f"dictionary {number}"):
                found = self._read[number] = self._make(number)
        return found

    def _make(self, number: int) -> Array:
        node, data = self._nodes[number], self._held[number].get("data")
        layout = layout_of(node.field.type).dictionary
        assert layout is not None
        parts = []
        for batch in data if isinstance(data, list) else [data]:
            columns = member(expect(batch, dict, "'data'"), "columns", list)
            if len(columns) != 1:
                raise InvalidDataError(f"expected one column, found {len(columns)}")
            parts.append(read_values(node, layout, columns[0], self))
        if not parts:
            raise InvalidDataError("expected a record batch, found none")
        return parts[0] if len(parts) == 1 else layout.concat(parts)


def _read_batch(schema: Schema, nodes: tuple[Node, ...], value: Any, dictionaries: _Dictionaries) -> RecordBatch:
    batch = expect(value, dict, "a batch")
    count = count_of(batch)
    columns = member(batch, "columns", list)
    if len(columns) != len(nodes):
        raise InvalidDataError(f"the schema has {len(nodes)} fields, found {len(columns)} columns")
    arrays = [read_column(node, column, dictionaries) for node, column in zip(nodes, columns, strict=True)]
    for field, array in zip(schema, arrays, strict=True):
        if array.length != count:
            raise InvalidDataError(f"column {field.name!r} has {array.length} values, the batch {count}")
    return RecordBatch(schema, count, tuple(arrays))

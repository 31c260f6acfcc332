"""Reading JSON lines and arrays of objects with pyarrow, and writing them without it."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from bowstring.arrays.record_batch import RecordBatch
from bowstring.cli.input_output import Advance
from bowstring.cli.pyarrow_files import (
    INFERENCE_NOTE,
    ReadableFile,
    import_pyarrow,
    read_batches,
    sequential_file,
    translate_errors,
    with_note,
)
from bowstring.datatypes.schema import Schema, import_schema
from bowstring.errors import FormatMismatchError, InvalidDataError, LimitError
from bowstring.inspection.values import check_unique_names, iterate_rows, join_lines, json_line
from bowstring.io.sinks import Sink
from bowstring.ipc.limits import DEFAULT_LIMITS
from bowstring.layouts import expansion_limits
from bowstring.layouts.base import prefix_errors

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_ERROR = re.compile(r"(?:JSON parse error: )?(.*?)(?: in row (\d+))?", re.DOTALL)
_ROOT = re.compile(r"Column\(\) changed from object to (\w+)")
_COLUMN = re.compile(r"Column\(/([^/)]*)(.*?)\) (.*)")


@contextmanager
def open_batches(
    source: Any, name: str, options: Mapping[str, Any], advance: Advance
) -> Iterator[tuple[Schema, Iterator[RecordBatch]]]:
    """Open a JSON file; yield its schema and an iterator of its batches.

    The file contains one object per line, or an array of objects, and is read in blocks. Columns and types that
    `options["column_types"]` does not name are inferred from the first block. Raises `InvalidDataError`, with the row,
    for an object that does not match, and `LimitError` for values nested too deep.
    """
    pa, pj = import_pyarrow(), import_pyarrow("pyarrow.json")
    explicit = pa.schema(list(options["column_types"].items()))
    with sequential_file(source, advance) as (file, report_position):
        start = file.peek(1024)[:1024].removeprefix(b"\xef\xbb\xbf").lstrip()
        _check_start(start, name)
        split = _array_chunks if start.startswith(b"[") else _line_chunks
        chunks = (_check_nesting(chunk, name) for chunk in split(file, name, options["block_size"]))
        first = next(chunks, None)
        if first is None:
            yield import_schema(explicit), iter(())
            return
        _check_keys(first, name)
        describe = partial(_parse_error, name)
        with translate_errors(describe):
            reader = pj.open_json(
                io.BufferedReader(ReadableFile(_chunk_reader(chain([first], chunks))), options["block_size"]),
                read_options=pj.ReadOptions(use_threads=False, block_size=options["block_size"]),
                parse_options=pj.ParseOptions(explicit_schema=explicit if len(explicit) else None),
            )
        schema, columns = import_schema(reader.schema), list(options["columns"])
        yield schema.select(columns) if columns else schema, read_batches(reader, describe, report_position, columns)


def _check_start(start: bytes, name: str) -> None:
    if start and start[:1] not in b"[{":
        error = FormatMismatchError(f"{name}: expected JSON objects or an array of objects, found {start[:20]!r}")
        raise with_note(error, "use --from csv for CSV")


def _chunk_reader(chunks: Iterator[bytes]) -> Callable[[int], memoryview]:
    """Return a function that reads from consecutive chunks."""
    rest = memoryview(b"")

    def read(size_bytes: int) -> memoryview:
        nonlocal rest
        rest = rest or memoryview(next(chunks, b""))
        part, rest = rest[:size_bytes], rest[size_bytes:]
        return part

    return read


def _line_chunks(file: Any, name: str, block_bytes: int) -> Iterator[bytes]:
    """Yield whole lines, about a block at a time."""
    rest = b""
    while part := file.read(block_bytes):
        end = part.rfind(b"\n") + 1
        if not end:
            rest += part
            if len(rest) > block_bytes:
                raise _too_large(name, "a line")
            continue
        chunk, rest = rest + part[:end], part[end:]
        if not chunk.isspace():
            yield chunk
    if rest and not rest.isspace():
        yield rest


def _array_chunks(file: Any, name: str, block_characters: int) -> Iterator[bytes]:
    """Yield the objects of an array as lines, about a block at a time."""
    text = io.TextIOWrapper(file, "utf-8-sig", newline="")
    try:
        objects = _ArrayScanner(text, name, block_characters).iter_objects()
        yield from join_lines(objects, max_lines=sys.maxsize, max_characters=block_characters)
    except UnicodeDecodeError as error:
        raise InvalidDataError(f"{name}: is not valid UTF-8: {error.reason}") from None
    finally:
        text.detach()


class _ArrayScanner:
    """Splits a JSON array of objects, which is read in blocks, into the texts of the objects."""

    def __init__(self, text: io.TextIOWrapper, name: str, block_characters: int) -> None:
        self._text = text
        self._name = name
        self._block_characters = block_characters
        self._buffer = ""
        self._offset = 0
        self._is_at_end = False

    def iter_objects(self) -> Iterator[str]:
        """Yield each object without line ends, which JSON allows only between values."""
        separator, count = self._next_character(), 0
        assert separator == "["
        self._offset += 1
        if self._next_character() == "]":
            separator = "]"
            self._offset += 1
        while separator != "]":
            count += 1
            yield self._object(count)
            separator = self._next_character()
            if not separator:
                raise self._unclosed_error(count)
            if separator not in ",]":
                raise InvalidDataError(f"{self._name}: expected ',' or ']' after object {count:,}, found {separator!r}")
            self._offset += 1
        if self._next_character():
            rest = self._buffer[self._offset : self._offset + 20]
            raise InvalidDataError(f"{self._name}: expected nothing after the array, found {rest!r}")

    def _object(self, number: int) -> str:
        character = self._next_character()
        if not character:
            raise self._unclosed_error(number - 1)
        if character != "{":
            raise InvalidDataError(
                f"{self._name}: element {number:,} of the array: expected an object, found {character!r}"
            )
        while True:
            try:
                _, end = _DECODER.raw_decode(self._buffer, self._offset)
            except RecursionError:
                raise _too_deep(self._name) from None
            except json.JSONDecodeError as error:
                if len(self._buffer) - self._offset < self._block_characters and self._read_more():
                    continue
                where = f"object {number:,} of the array"
                if not self._is_at_end:
                    raise _too_large(self._name, where) from None
                raise InvalidDataError(f"{self._name}: {where}: {error.msg}") from None
            value = self._buffer[self._offset : end].replace("\n", " ").replace("\r", " ")
            self._offset = end
            return value

    def _next_character(self) -> str:
        """Skip white space; return the next character, or empty text at the end."""
        while True:
            space = _SPACE.match(self._buffer, self._offset)
            self._offset = self._offset if space is None else space.end()
            if self._offset < len(self._buffer) or not self._read_more():
                return self._buffer[self._offset : self._offset + 1]

    def _read_more(self) -> bool:
        """Append a block to the buffer; return False at the end of the text."""
        part = "" if self._is_at_end else self._text.read(self._block_characters)
        self._is_at_end = not part
        self._buffer, self._offset = self._buffer[self._offset :] + part, 0
        return not self._is_at_end

    def _unclosed_error(self, count: int) -> InvalidDataError:
        return InvalidDataError(
            f"{self._name}: expected ']' at the end of the array, found nothing after {count:,} objects"
        )


def _too_large(name: str, what: str) -> LimitError:
    error = LimitError(f"{name}: {what} is larger than a block, or not valid JSON")
    return with_note(error, "--block-size sets a larger size")


def _too_deep(name: str) -> LimitError:
    return LimitError(f"{name}: values are nested deeper than {DEFAULT_LIMITS.max_nesting} levels")


def _check_nesting(chunk: bytes, name: str) -> bytes:
    """Return the chunk. Raise `LimitError` for values that are nested too deep: pyarrow overflows the stack.

    Only lines with many brackets are checked.
    """
    max_nesting = DEFAULT_LIMITS.max_nesting
    codes = np.frombuffer(chunk, np.uint8)
    openers = np.flatnonzero((codes == ord("[")) | (codes == ord("{")))
    ends = np.flatnonzero(codes == ord("\n"))
    counts = np.diff(np.searchsorted(openers, ends), prepend=0, append=len(openers))
    starts = np.concatenate([[0], ends + 1])
    stops = np.concatenate([ends, [len(codes)]])
    for line in np.flatnonzero(counts > max_nesting).tolist():
        bare = np.frombuffer(_STRING.sub(b"", chunk[starts[line] : stops[line]]), np.uint8)
        steps = ((bare == ord("[")) | (bare == ord("{"))).astype(np.int64)
        steps -= (bare == ord("]")) | (bare == ord("}"))
        if np.cumsum(steps).max() > max_nesting:
            raise _too_deep(name)
    return chunk


def _check_keys(chunk: bytes, name: str) -> None:
    """Raise `LimitError` for objects with so many different keys that most values would be nulls.

    pyarrow infers the columns from the first block only, so later blocks are not checked.
    """
    rows = chunk.count(b"\n") + 1
    parts = chunk.translate(None, b" \t\r").split(b'":')[:-1]
    if rows * len(parts) > expansion_limits.MAX_VALUES:
        keys = {part.rpartition(b'"')[2] for part in parts}
        quoted = sum(key.endswith(b"\\") and not key.endswith(b"\\\\") for key in keys)  # inside a string
        with prefix_errors(f"{name}: {rows:,} objects with {len(keys) - quoted:,} keys"):
            expansion_limits.check_expanded_values(rows * (len(keys) - quoted), len(parts))


def _parse_error(name: str, text: str, rows: int) -> InvalidDataError:
    """Convert an error message of pyarrow to an error with the option that helps, if any.

    pyarrow counts the rows from the start of the block; `rows` come before it.
    """
    matched = _ERROR.fullmatch(text)
    assert matched is not None
    reason, number = matched.groups()
    where = f"{name}: " + (f"after row {rows:,}: " if number is None else f"row {rows + int(number) + 1:,}: ")
    root, column = _ROOT.fullmatch(reason), _COLUMN.fullmatch(reason)
    if root is not None:
        return InvalidDataError(f"{where}expected a JSON object, found {root[1]}")
    if reason == "unexpected field":
        error = InvalidDataError(f"{where}an object has a key that those of the first block do not have")
        return with_note(error, "declare it with --column-type KEY=TYPE, or use a larger --block-size")
    if column is None:
        return InvalidDataError(f"{where}malformed JSON: {reason}")
    error = InvalidDataError(f"{where}column {column[1]!r}{' → '.join(column[2].split('/'))}: {column[3]}")
    return with_note(error, INFERENCE_NOTE.format(column=column[1])) if rows else error


def write(sink: Sink, schema: Schema, batches: Iterable[RecordBatch], is_array: bool) -> None:
    """Write one object per line, or an array of objects. Raises `UsageError` for duplicate column names."""
    names = schema.names
    check_unique_names(names, "convert to CSV instead")
    parts: Iterable[Iterable[str]] = ((json_line(names, row) for row in iterate_rows(batch)) for batch in batches)
    if is_array:
        parts = [_as_array(chain.from_iterable(parts))]
    for lines in parts:
        for chunk in join_lines(lines):
            sink.write([chunk], len(chunk))


def _as_array(lines: Iterable[str]) -> Iterator[str]:
    last = None
    yield "["
    for line in lines:
        if last is not None:
            yield last + ","
        last = line
    if last is not None:
        yield last
    yield "]"

"""Reading JSON lines and arrays of objects with pyarrow, and writing them without it."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from bowstring.arrays.record_batch import RecordBatch
from bowstring.cli.format_options import SourceOptions
from bowstring.cli.progress import ReportProgress
from bowstring.cli.pyarrow_adapters import (
    INFERENCE_NOTE,
    ReadableFile,
    add_hint,
    import_pyarrow,
    open_sequential_file,
    read_batches,
    translate_pyarrow_errors,
)
from bowstring.datatypes.schema import Schema, import_schema
from bowstring.errors import FormatMismatchError, InvalidDataError, LimitError
from bowstring.inspection.formatting import check_unique_names, encode_lines, format_json_line, iterate_rows
from bowstring.io.sinks import Sink
from bowstring.ipc.limits import DEFAULT_LIMITS
from bowstring.layouts import expansion_limits
from bowstring.layouts.base import prefix_errors

_DECODER = json.JSONDecoder()
_WHITESPACE = re.compile(r"[ \t\r\n]*")
_STRING_LITERAL = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_ERROR_MESSAGE = re.compile(r"(?:JSON parse error: )?(.*?)(?: in row (\d+))?", re.DOTALL)
_ROOT_TYPE_ERROR = re.compile(r"Column\(\) changed from object to (\w+)")
_UNSUPPORTED_TYPE = "JSON parsing of "
_COLUMN_ERROR = re.compile(r"Column\(/([^/)]*)(.*?)\) (.*)")


@contextmanager
def open_batches(
    source: Any, name: str, options: SourceOptions, report_progress: ReportProgress
) -> Iterator[tuple[Schema, Iterator[RecordBatch]]]:
    """Open a JSON file; yield its schema and an iterator of its batches.

    The file contains one object per line, or an array of objects, and is read in blocks. Columns and types that
    `options.column_types` does not name are inferred from the first block. Raises `InvalidDataError`, with the row,
    for an object that does not match, and `LimitError` for values nested too deep.
    """
    pa, pj = import_pyarrow(), import_pyarrow("pyarrow.json")
    explicit = pa.schema(list(options.column_types.items()))
    with open_sequential_file(source, report_progress) as (file, report_position):
        start = file.peek(1024)[:1024].removeprefix(b"\xef\xbb\xbf").lstrip()
        _check_json_start(start, name)
        split = _array_chunks if start.startswith(b"[") else _line_chunks
        chunks = _iter_checked_chunks(split(file, name, options.block_bytes), name)
        chunks = _unquote_special_floats(chunks, explicit)
        first = next(chunks, None)
        if first is None:
            yield import_schema(explicit), iter(())
            return
        _check_key_count(first, name)
        translated_error = partial(_pyarrow_error, name)
        objects = ReadableFile(_make_read_function(chain([first], chunks)))
        try:
            with translate_pyarrow_errors(translated_error):
                reader = pj.open_json(
                    io.BufferedReader(objects, options.block_bytes),
                    read_options=pj.ReadOptions(use_threads=False, block_size=options.block_bytes),
                    parse_options=pj.ParseOptions(explicit_schema=explicit if len(explicit) else None),
                )
            schema, columns = import_schema(reader.schema), options.columns
            yield (
                schema.select(columns) if columns else schema,
                read_batches(reader, translated_error, report_position, columns),
            )
        finally:
            objects.stop()


def _unquote_special_floats(chunks: Iterator[bytes], schema: Any) -> Iterator[bytes]:
    """Yield the chunks with NaN and infinities as pyarrow reads them: without quotes, if a column's type is a float."""
    import pyarrow as pa

    names = [field.name for field in schema if pa.types.is_floating(field.type)]
    keys = b"|".join(re.escape(json.dumps(name, ensure_ascii=False).encode()) for name in names)
    pattern = re.compile(rb'((?:%s)[ \t]*:[ \t]*)"(NaN|-?Infinity)"' % keys)
    return (pattern.sub(rb"\1\2", chunk) for chunk in chunks) if names else chunks


def _check_json_start(start: bytes, name: str) -> None:
    if start and start[:1] not in b"[{":
        error = FormatMismatchError(f"{name}: expected JSON objects or an array of objects, found {start[:20]!r}")
        raise add_hint(error, "use --from csv for CSV")


def _make_read_function(chunks: Iterator[bytes]) -> Callable[[int], memoryview]:
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
                raise _block_size_error(name, "a line")
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
        objects = _JsonArrayScanner(text, name, block_characters).iter_objects()
        yield from encode_lines(objects, max_lines=sys.maxsize, max_characters=block_characters)
    except UnicodeDecodeError as error:
        raise InvalidDataError(f"{name}: is not valid UTF-8: {error.reason}") from None
    finally:
        text.detach()


class _JsonArrayScanner:
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
        separator, count = self._peek_character(), 0
        assert separator == "["
        self._offset += 1
        if self._peek_character() == "]":
            separator = "]"
            self._offset += 1
        while separator != "]":
            count += 1
            yield self._read_object(count)
            separator = self._peek_character()
            if not separator:
                raise self._unclosed_error(count)
            if separator not in ",]":
                raise InvalidDataError(f"{self._name}: expected ',' or ']' after object {count:,}, found {separator!r}")
            self._offset += 1
        if self._peek_character():
            rest = self._buffer[self._offset : self._offset + 20]
            raise InvalidDataError(f"{self._name}: expected nothing after the array, found {rest!r}")

    def _read_object(self, number: int) -> str:
        character = self._peek_character()
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
                raise _nesting_error(self._name) from None
            except json.JSONDecodeError as error:
                # The object may be incomplete: decoded again with one more block, but not for larger ones than a block.
                if len(self._buffer) - self._offset < self._block_characters and self._append_block():
                    continue
                location = f"object {number:,} of the array"
                if not self._is_at_end:
                    raise _block_size_error(self._name, location) from None
                raise InvalidDataError(f"{self._name}: {location}: {error.msg}") from None
            value = self._buffer[self._offset : end].replace("\n", " ").replace("\r", " ")
            self._offset = end
            return value

    def _peek_character(self) -> str:
        """Skip white space; return the next character without consuming it, or empty text at the end."""
        while True:
            space = _WHITESPACE.match(self._buffer, self._offset)
            self._offset = self._offset if space is None else space.end()
            if self._offset < len(self._buffer) or not self._append_block():
                return self._buffer[self._offset : self._offset + 1]

    def _append_block(self) -> bool:
        """Append a block to the buffer; return False at the end of the text."""
        part = "" if self._is_at_end else self._text.read(self._block_characters)
        self._is_at_end = not part
        self._buffer, self._offset = self._buffer[self._offset :] + part, 0
        return not self._is_at_end

    def _unclosed_error(self, count: int) -> InvalidDataError:
        return InvalidDataError(
            f"{self._name}: expected ']' at the end of the array, found nothing after {count:,} objects"
        )


def _block_size_error(name: str, what: str) -> LimitError:
    error = LimitError(f"{name}: {what} is larger than a block, or not valid JSON")
    return add_hint(error, "--block-size sets a larger size")


def _nesting_error(name: str) -> LimitError:
    return LimitError(f"{name}: values are nested deeper than {DEFAULT_LIMITS.max_nesting} levels")


def _iter_checked_chunks(chunks: Iterable[bytes], name: str) -> Iterator[bytes]:
    """Yield the chunks. Raise `LimitError` for values that are nested too deep: pyarrow overflows the stack."""
    for chunk in chunks:
        _check_nesting(chunk, name)
        yield chunk


def _check_nesting(chunk: bytes, name: str) -> None:
    """Raise `LimitError` for values that are nested too deep. Only lines with many brackets are checked."""
    max_nesting = DEFAULT_LIMITS.max_nesting
    codes = np.frombuffer(chunk, np.uint8)
    opening_offsets = np.flatnonzero((codes == ord("[")) | (codes == ord("{")))
    line_ends = np.flatnonzero(codes == ord("\n"))
    counts = np.diff(np.searchsorted(opening_offsets, line_ends), prepend=0, append=len(opening_offsets))
    starts = np.concatenate([[0], line_ends + 1])
    stops = np.concatenate([line_ends, [len(codes)]])
    for line in np.flatnonzero(counts > max_nesting).tolist():
        outside_strings = np.frombuffer(_STRING_LITERAL.sub(b"", chunk[starts[line] : stops[line]]), np.uint8)
        depth_changes = ((outside_strings == ord("[")) | (outside_strings == ord("{"))).astype(np.int64)
        depth_changes -= (outside_strings == ord("]")) | (outside_strings == ord("}"))
        if np.cumsum(depth_changes).max() > max_nesting:
            raise _nesting_error(name)


def _check_key_count(chunk: bytes, name: str) -> None:
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


def _pyarrow_error(name: str, message: str, rows: int) -> InvalidDataError:
    """Convert an error message of pyarrow to an error with the option that helps, if any.

    pyarrow counts the rows from the start of the block; `rows` precede it.
    """
    match = _ERROR_MESSAGE.fullmatch(message)
    assert match is not None
    reason, number = match.groups()
    location = f"{name}: " + (f"after row {rows:,}: " if number is None else f"row {rows + int(number) + 1:,}: ")
    root, column = _ROOT_TYPE_ERROR.fullmatch(reason), _COLUMN_ERROR.fullmatch(reason)
    if root is not None:
        return InvalidDataError(f"{location}expected a JSON object, found {root[1]}")
    if reason == "unexpected field":
        error = InvalidDataError(f"{location}an object has a key that those of the first block do not have")
        return add_hint(error, "declare it with --column-type KEY=TYPE, or use a larger --block-size")
    if reason.startswith(_UNSUPPORTED_TYPE):
        return InvalidDataError(f"{name}: JSON can't be read as {reason.removeprefix(_UNSUPPORTED_TYPE)}")
    if column is None:
        return InvalidDataError(f"{location}malformed JSON: {reason}")
    error = InvalidDataError(f"{location}column {column[1]!r}{' → '.join(column[2].split('/'))}: {column[3]}")
    if rows:
        return add_hint(error, INFERENCE_NOTE.format(column=column[1]))
    if not column[2] and {"number", "string"}.issubset(column[3].split()):
        return add_hint(error, f'--column-type \'{column[1]}=double\' reads "NaN" and "Infinity" as numbers')
    return error


def write(sink: Sink, schema: Schema, batches: Iterable[RecordBatch], is_array: bool) -> None:
    """Write one object per line, or an array of objects. Raises `InvalidArgumentError` for duplicate column names."""
    names = schema.names
    check_unique_names(names, "convert to CSV instead")
    lines_by_batch: Iterable[Iterable[str]] = (
        (format_json_line(names, row) for row in iterate_rows(batch)) for batch in batches
    )
    if is_array:
        lines_by_batch = [_wrap_in_array(chain.from_iterable(lines_by_batch))]
    for lines in lines_by_batch:
        for chunk in encode_lines(lines):
            sink.write([chunk], len(chunk))


def _wrap_in_array(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a JSON array whose elements are these lines."""
    last = None
    yield "["
    for line in lines:
        if last is not None:
            yield last + ","
        last = line
    if last is not None:
        yield last
    yield "]"

"""Reading JSON lines and arrays of objects with pyarrow, and writing them without it."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any

import numpy as np

from bowstring.arrays.construction import record_batch
from bowstring.arrays.record_batch import RecordBatch
from bowstring.cli.input_output import Advance
from bowstring.cli.pyarrow_files import import_pyarrow, sequential_file
from bowstring.datatypes.field import Schema
from bowstring.errors import BowstringError, InvalidDataError, LimitError, UsageError
from bowstring.inspection.values import iterate_rows, join_lines, json_line
from bowstring.interop import c_data
from bowstring.io.sinks import Sink
from bowstring.ipc.limits import DEFAULT_LIMITS
from bowstring.layouts import gather
from bowstring.layouts.base import error_context

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
    with sequential_file(source) as (stored, file):
        is_array = file.peek(1024)[:1024].removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"[")
        chunks = (_array_chunks if is_array else _line_chunks)(file, name, options["block_size"])
        first = next(chunks, None)
        if first is None:
            yield c_data.import_schema(explicit), iter(())
            return
        _check_keys(first, name)
        read_options = pj.ReadOptions(use_threads=False, block_size=options["block_size"])
        with _translate_errors(name, 0):
            reader = pj.open_json(
                io.BufferedReader(_ChunkFile(chain([first], chunks)), options["block_size"]),
                read_options=read_options,
                parse_options=pj.ParseOptions(explicit_schema=explicit if len(explicit) else None),
            )
        schema, columns = c_data.import_schema(reader.schema), list(options["columns"])
        schema = schema.select(columns) if columns else schema

        def batches() -> Iterator[RecordBatch]:
            advance(0, stored.size)
            rows = 0
            while (batch := _next_batch(reader, name, rows)) is not None:
                rows += batch.num_rows
                yield record_batch(batch).select(columns) if columns else record_batch(batch)
                advance(stored.position, stored.size)

        yield schema, batches()


def _next_batch(reader: Any, name: str, rows: int) -> Any:
    with _translate_errors(name, rows):
        return next(reader, None)


class _ChunkFile(io.RawIOBase):
    """Chunks of bytes as a file object."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        super().__init__()
        self._chunks = chunks
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill `buffer` from the current or the next chunk; return the number of bytes."""
        if not self._rest:
            self._rest = memoryview(next(self._chunks, b""))
        part, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)


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
            _check_nesting(chunk, name)
            yield chunk
    if rest and not rest.isspace():
        _check_nesting(rest, name)
        yield rest


def _array_chunks(file: Any, name: str, block_characters: int) -> Iterator[bytes]:
    """Yield the objects of an array as lines, about a block at a time."""
    text = io.TextIOWrapper(file, "utf-8-sig", newline="")
    lines: list[str] = []
    characters = 0
    try:
        for line in _array_objects(text, name, block_characters):
            lines.append(line)
            characters += len(line)
            if characters >= block_characters:
                yield _join_lines(lines, name)
                lines, characters = [], 0
        if lines:
            yield _join_lines(lines, name)
    except UnicodeDecodeError as error:
        raise InvalidDataError(f"{name}: is not valid UTF-8: {error.reason}") from None
    finally:
        text.detach()


def _join_lines(lines: list[str], name: str) -> bytes:
    chunk = "\n".join((*lines, "")).encode()
    _check_nesting(chunk, name)
    return chunk


def _array_objects(text: io.TextIOWrapper, name: str, block_characters: int) -> Iterator[str]:
    """Yield each object of an array as text without line ends, which JSON allows only between values."""
    decode = json.JSONDecoder().raw_decode
    buffer, offset, count, is_over = text.read(block_characters), 0, 0, False

    def read_more() -> bool:
        nonlocal buffer, offset, is_over
        part = "" if is_over else text.read(block_characters)
        is_over = not part
        buffer, offset = buffer[offset:] + part, 0
        return not is_over

    def next_character() -> str:
        nonlocal offset
        while True:
            space = _SPACE.match(buffer, offset)
            offset = offset if space is None else space.end()
            if offset < len(buffer) or not read_more():
                return buffer[offset : offset + 1]

    assert next_character() == "["
    offset += 1
    is_separated = True
    while (character := next_character()) != "]" or (count and is_separated):
        if not character:
            raise InvalidDataError(
                f"{name}: expected ']' at the end of the array, found nothing after {count:,} objects"
            )
        if not is_separated:
            if character != ",":
                raise InvalidDataError(f"{name}: expected ',' or ']' after object {count:,}, found {character!r}")
            offset, is_separated = offset + 1, True
            continue
        if character != "{":
            raise InvalidDataError(
                f"{name}: element {count + 1:,} of the array: expected an object, found {character!r}"
            )
        try:
            _, end = decode(buffer, offset)
        except RecursionError:
            raise _too_deep(name) from None
        except json.JSONDecodeError as error:
            if len(buffer) - offset < block_characters and read_more():
                continue
            if not is_over:
                raise _too_large(name, f"object {count + 1:,} of the array") from None
            raise InvalidDataError(f"{name}: object {count + 1:,} of the array: {error.msg}") from None
        yield buffer[offset:end].replace("\n", " ").replace("\r", " ")
        offset, count, is_separated = end, count + 1, False
    offset += 1
    if next_character():
        raise InvalidDataError(f"{name}: expected nothing after the array, found {buffer[offset : offset + 20]!r}")


def _too_large(name: str, what: str) -> InvalidDataError:
    error = LimitError(f"{name}: {what} is larger than a block, or not valid JSON")
    error.add_note("--block-size sets a larger size")
    return error


def _too_deep(name: str) -> LimitError:
    return LimitError(f"{name}: values are nested deeper than {DEFAULT_LIMITS.max_nesting} levels")


def _check_nesting(chunk: bytes, name: str) -> None:
    """Raise `LimitError` for values that are nested too deep: pyarrow overflows the stack.

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


def _check_keys(chunk: bytes, name: str) -> None:
    """Raise `LimitError` for objects with so many different keys that most values would be nulls.

    pyarrow infers the columns from the first block only, so later blocks are not checked.
    """
    rows = chunk.count(b"\n") + 1
    parts = chunk.translate(None, b" \t\r").split(b'":')[:-1]
    if rows * len(parts) > gather.MAX_VALUES:
        keys = {part.rpartition(b'"')[2] for part in parts}
        quoted = sum(key.endswith(b"\\") and not key.endswith(b"\\\\") for key in keys)  # inside a string
        with error_context(f"{name}: {rows:,} objects with {len(keys) - quoted:,} keys"):
            gather.check_values(rows * (len(keys) - quoted), len(parts))


@contextmanager
def _translate_errors(name: str, rows: int) -> Iterator[None]:
    """Translate errors of pyarrow, which counts rows from the start of the block: `rows` precede it."""
    pa = import_pyarrow()
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, BowstringError):
            raise
        raise _parse_error(str(error), name, rows) from error


def _parse_error(text: str, name: str, rows: int) -> InvalidDataError:
    """Convert an error message of pyarrow to an error with the option that helps, if any."""
    matched = _ERROR.fullmatch(text)
    assert matched is not None
    reason, number = matched.groups()
    where = f"{name}: " + (f"after row {rows:,}: " if number is None else f"row {rows + int(number) + 1:,}: ")
    root, column = _ROOT.fullmatch(reason), _COLUMN.fullmatch(reason)
    if root is not None:
        return InvalidDataError(f"{where}expected a JSON object, found {root[1]}")
    if reason == "unexpected field":
        error = InvalidDataError(f"{where}an object has a key that those of the first block do not have")
        error.add_note("declare it with --column-type KEY=TYPE, or use a larger --block-size")
        return error
    if column is None:
        return InvalidDataError(f"{where}malformed JSON: {reason}")
    error = InvalidDataError(f"{where}column {column[1]!r}{' → '.join(column[2].split('/'))}: {column[3]}")
    if rows:
        error.add_note(
            f"types are inferred from the first block: --column-type '{column[1]}=TYPE' or a larger --block-size"
        )
    return error


def write(sink: Sink, schema: Schema, batches: Iterable[RecordBatch], is_array: bool) -> None:
    """Write one object per line, or an array of objects. Raises `UsageError` for duplicate column names."""
    names = schema.names
    if len(set(names)) < len(names):
        twin = next(name for name in names if names.count(name) > 1)
        raise UsageError(
            f"two columns have the name {twin!r}, but the keys of a JSON object are unique: convert to CSV instead"
        )
    parts: Iterable[Iterable[str]] = ((json_line(names, row) for row in iterate_rows(batch)) for batch in batches)
    if is_array:
        parts = [_as_array(chain.from_iterable(parts))]
    for lines in parts:
        for some in join_lines(lines):
            sink.write([some], len(some))


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

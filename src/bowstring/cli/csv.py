"""Reading and writing CSV files with pyarrow."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from difflib import get_close_matches
from itertools import islice
from typing import Any

from bowstring.arrays.array import Array
from bowstring.arrays.construction import array
from bowstring.arrays.record_batch import RecordBatch
from bowstring.cli.format_options import SourceOptions, TargetOptions
from bowstring.cli.progress import ReportProgress
from bowstring.cli.pyarrow_adapters import (
    INFERENCE_NOTE,
    WritableFile,
    add_hint,
    import_pyarrow,
    open_sequential_file,
    read_batches,
    translate_pyarrow_errors,
    write_batches,
)
from bowstring.datatypes.extension import ExtensionType
from bowstring.datatypes.field import Field
from bowstring.datatypes.schema import Schema, import_schema
from bowstring.datatypes.types import (
    BaseBinary,
    Binary,
    DataType,
    Dictionary,
    Duration,
    Interval,
    RunEndEncoded,
    Utf8View,
    string,
)
from bowstring.errors import (
    FormatMismatchError,
    InvalidDataError,
    NotFoundError,
    UnsupportedTypeError,
    format_count,
)
from bowstring.inspection.formatting import format_text
from bowstring.io.sinks import Sink

_MAX_HEADER_BYTES = 1 << 16
_DELIMITERS = ",;\t|"
"""The delimiters that are detected."""
_MAX_MESSAGE_CHARACTERS = 200
_CONVERSION_ERROR = re.compile(r"In CSV column #(\d+): (?:Row #(\d+): )?CSV conversion error to (.+?): (.*)", re.DOTALL)
_JSON_START = re.compile(r'\[\s*(?:\{\s*["}]|\])|\{\s*["}]')
"""The beginning of a JSON array of objects, or of an object."""
_ROW_ERROR = re.compile(r"(?:CSV parse error: )?Row #(\d+): (?:Expected (\d+) columns, got )?(.*)", re.DOTALL)
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+")
_DIGITS = re.compile(r"[-+]?[0-9]{19,}")
_TEXT_FORMATTED_TYPES = (BaseBinary, Duration, Utf8View)
"""Types that pyarrow does not write as text; they are written like in `bowstring cat`."""


@contextmanager
def open_batches(
    source: Any, name: str, options: SourceOptions, report_progress: ReportProgress
) -> Iterator[tuple[Schema, Iterator[RecordBatch]]]:
    """Open a CSV file; yield its schema and an iterator of its batches.

    The file is read in blocks, of which pyarrow reads up to 32 ahead. Types that `options.column_types` does not
    name are inferred from the first block. Raises `InvalidDataError`, with row and column, for a value that does not
    match its type, and `NotFoundError` for an unknown column.
    """
    pc = import_pyarrow("pyarrow.csv")
    with open_sequential_file(source, report_progress) as (file, report_position):
        lines, is_cut_off = _peek_lines(file, options)
        delimiter = options.delimiter or _detect_delimiter(lines, is_cut_off, name, options)
        options = replace(options, delimiter=delimiter)
        header = _read_header(lines, delimiter, name, options)
        _check_column_names((*options.columns, *options.column_types), header, name)
        explicit_types = options.column_types
        types = {**_find_text_columns(lines, header, options), **explicit_types}
        options = replace(options, column_types=types)

        def translated_error(message: str, _rows: int) -> InvalidDataError:
            return _pyarrow_error(message, name, header, explicit_types)

        with translate_pyarrow_errors(translated_error):
            reader = pc.open_csv(file, **_pyarrow_options(pc, options, header))
        schema = import_schema(reader.schema)
        _check_utf8_columns(name, schema, options.column_types)
        yield schema, read_batches(reader, translated_error, report_position)


def _pyarrow_options(pc: Any, options: SourceOptions, header: list[str]) -> dict[str, Any]:
    return {
        "read_options": pc.ReadOptions(
            use_threads=False,  # equally fast for one block at a time, and errors contain the row
            block_size=options.block_bytes,
            skip_rows=options.skip_rows,
            column_names=options.column_names or None,
            autogenerate_column_names=not options.has_header and not options.column_names,
            encoding=options.encoding,
        ),
        "parse_options": pc.ParseOptions(
            delimiter=options.delimiter,
            quote_char=options.quote or False,
            newlines_in_values=True,
            ignore_empty_lines=len(header) != 1,  # an empty line is a null in a file with a single column
        ),
        "convert_options": pc.ConvertOptions(
            column_types=options.column_types,
            include_columns=list(options.columns),
            null_values=list(options.null_values) or [""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            timestamp_parsers=[*options.timestamp_formats, pc.ISO8601],
        ),
    }


def _peek_lines(file: Any, options: SourceOptions) -> tuple[list[str], bool]:
    """Return the first lines of CSV with their line ends, and whether the last row may be cut off.

    The position of `file` does not move.
    """
    raw = file.peek(_MAX_HEADER_BYTES)[:_MAX_HEADER_BYTES]
    text = raw.decode(options.encoding, "ignore").removeprefix("\ufeff")
    return list(islice(io.StringIO(text, newline=""), options.skip_rows, None)), len(raw) == _MAX_HEADER_BYTES


def _parse_lines(lines: Iterable[str], delimiter: str, quote: str) -> Iterator[list[str]]:
    quoting: dict[str, Any] = {"quotechar": quote} if quote else {"quoting": csv.QUOTE_NONE}
    return csv.reader(lines, delimiter=delimiter, **quoting)


def _detect_delimiter(lines: list[str], is_cut_off: bool, name: str, options: SourceOptions) -> str:
    """Return the default delimiter, or another if the first line has only one value by the default.

    All complete lines must then have the same number of values. Raises `InvalidDataError` if only some of them do,
    because a wrong delimiter would silently make one column of many.
    """
    default = options.default_delimiter

    def count_values(delimiter: str) -> list[int]:
        counts = [len(row) for row in _parse_lines(lines, delimiter, options.quote) if row]
        return counts[:-1] if is_cut_off and len(counts) > 1 else counts

    if len(next(_parse_lines(lines, default, options.quote), [])) != 1 or len(options.column_names) == 1:
        return default
    detected: list[tuple[int, str]] = [(1, default)]
    for delimiter in _DELIMITERS.replace(default, ""):
        first, *others = count_values(delimiter)
        if first > 1 and all(count == first for count in others):
            detected.append((first, delimiter))
        elif first > 1 and first in others:
            error = InvalidDataError(f"{name}: some of the first lines have {first} values separated by {delimiter!r}")
            raise add_hint(error, f"--delimiter '{delimiter}' reads them, --delimiter '{default}' reads one column")
    return max(detected)[1]


def _read_header(lines: list[str], delimiter: str, name: str, options: SourceOptions) -> list[str]:
    """Return the column names."""
    first = next(_parse_lines(lines, delimiter, options.quote), [])
    if options.column_names:
        return list(options.column_names)
    if not options.has_header:
        return [f"f{index}" for index in range(len(first))]
    if not first:
        raise InvalidDataError(f"{name}: expected a header of column names, found an empty file")
    _check_not_json("".join(lines).lstrip(), name)
    return first


def _check_column_names(names: Iterable[str], header: list[str], source_name: str) -> None:
    """Raise `NotFoundError` for a name that is not in the header."""
    for name in names:
        if name not in header:
            matches = get_close_matches(name, header, 1)
            hint = f"; did you mean {matches[0]!r}?" if matches else ""
            raise NotFoundError(f"{source_name}: there is no column {name!r}{hint}")


def _check_not_json(text: str, name: str) -> None:
    """Raise `FormatMismatchError` for JSON, which would otherwise be read as a header of odd column names."""
    if _JSON_START.match(text):
        contents = "an array of objects" if text.startswith("[") else "an object on each line"
        error = FormatMismatchError(f"{name}: expected CSV with a header of column names, found JSON: {contents}")
        raise add_hint(error, "use --from json")


def _find_text_columns(lines: list[str], header: list[str], options: SourceOptions) -> dict[str, Any]:
    """Return the type of text for columns with numbers in the first lines that would lose digits: those with leading
    zeros, and integers beyond 64 bits.
    """
    rows = islice(
        _parse_lines(lines, str(options.delimiter), options.quote),
        int(options.has_header and not options.column_names),
        None,
    )
    columns = {
        header[index]
        for row in rows
        for index, value in enumerate(row[: len(header)])
        if _LEADING_ZERO.fullmatch(value) or (_DIGITS.fullmatch(value) and _is_beyond_int64(value))
    }
    return dict.fromkeys(columns, import_pyarrow().string())


def _is_beyond_int64(digits: str) -> bool:
    return len(digits.lstrip("+-")) > 19 or not -(1 << 63) <= int(digits) < 1 << 63


def _pyarrow_error(message: str, name: str, header: list[str], column_types: Mapping[str, Any]) -> InvalidDataError:
    """Convert an error message of pyarrow to an error with the option that helps, if any."""
    conversion, row = _CONVERSION_ERROR.fullmatch(message), _ROW_ERROR.fullmatch(message)
    if conversion is not None:
        index, number, kind, reason = conversion.groups()
        column = header[int(index)] if int(index) < len(header) else f"#{index}"
        error_prefix = f"{name}: " + (f"row {int(number):,}, " if number else "")
        error = InvalidDataError(f"{error_prefix}column {column!r}: {reason} for {kind}")
        return error if column in column_types else add_hint(error, INFERENCE_NOTE.format(column=column))
    if "straddl" in message:
        return add_hint(InvalidDataError(f"{name}: a row is larger than a block"), "--block-size sets a larger size")
    if row is not None:
        expected = "" if row[2] is None else f"expected {format_count(int(row[2]), 'value')}, found "
        return InvalidDataError(f"{name}: row {int(row[1]):,}: {expected}{row[3][:_MAX_MESSAGE_CHARACTERS]}")
    return InvalidDataError(f"{name}: {message.removeprefix('CSV parse error: ')}")


def _check_utf8_columns(name: str, schema: Schema, column_types: Mapping[str, Any]) -> None:
    """Raise `InvalidDataError` for text that is not valid UTF-8: pyarrow infers binary for it."""
    for field in schema:
        if isinstance(field.type, Binary) and field.name not in column_types:
            error = InvalidDataError(f"{name}: column {field.name!r} is not valid UTF-8")
            raise add_hint(error, "--encoding sets another encoding")


def write(sink: Sink, schema: Schema, batches: Iterable[RecordBatch], options: TargetOptions) -> None:
    """Write a header, if any, and a line per row (RFC 4180, UTF-8, line feeds).

    Raises `UnsupportedTypeError` for nested types and intervals, and what `check_row_count` raises.
    """
    pa, pc = import_pyarrow(), import_pyarrow("pyarrow.csv")
    csv_schema = Schema(tuple(Field(field.name, _pyarrow_csv_type(field), field.nullable) for field in schema))
    write_options = pc.WriteOptions(include_header=options.has_header, delimiter=options.delimiter)
    write_batches(
        lambda: pc.CSVWriter(WritableFile(sink), pa.schema(csv_schema), write_options=write_options),
        batches,
        "CSV",
        lambda batch: RecordBatch(csv_schema, batch.num_rows, list(map(_csv_column, batch.columns))),
    )


def _pyarrow_csv_type(field: Field) -> DataType:
    """Return the type to pass to pyarrow. Raises `UnsupportedTypeError` if its values have no text form."""
    decoded_type = _decoded_type(field.type)
    if isinstance(decoded_type, ExtensionType):
        storage = decoded_type.storage_type
        has_text = not storage.fields or decoded_type.extension_name == "arrow.timestamp_with_offset"
        decoded_type = string() if has_text else storage
    if decoded_type.fields or isinstance(decoded_type, Interval):
        raise UnsupportedTypeError(
            f"column {field.name!r}: {field.type} can't be written as CSV: convert to JSON lines or Parquet instead"
        )
    return string() if isinstance(decoded_type, _TEXT_FORMATTED_TYPES) else decoded_type


def _decoded_type(type: DataType) -> DataType:
    """Return the type of the values of a dictionary-encoded or run-end encoded type, else the type itself."""
    if isinstance(type, Dictionary):
        return _decoded_type(type.value_type)
    return _decoded_type(type.values_field.type) if isinstance(type, RunEndEncoded) else type


def _csv_column(column: Array) -> Array:
    if isinstance(column.type, Dictionary):
        return _csv_column(column.dictionary_decode())
    if isinstance(column.type, RunEndEncoded):
        return _csv_column(column.run_end_decode())
    if isinstance(column.type, (ExtensionType, *_TEXT_FORMATTED_TYPES)):
        return array(list(map(format_text, column.to_pylist())), string())
    return column

"""`bowstring convert`: convert between Arrow, Parquet, CSV and JSON, and between options of the Arrow formats."""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, get_args

import click
from click.core import ParameterSource

from bowstring.arrays.record_batch import RecordBatch
from bowstring.arrays.table import Table, has_dictionary_fields, unify_batch_dictionaries
from bowstring.cli import csv, json, parquet
from bowstring.cli.input_output import (
    ARROW_FORMATS,
    FORMATS_BY_EXTENSION,
    check_uncompressed,
    get_uncompressed_extension,
    open_output,
    prefix_errors_with_source,
    resolve_output,
    resolve_source,
    source_name,
)
from bowstring.cli.options import PATH, UTF8_TEXT, columns_option, max_piped_bytes_option
from bowstring.cli.progress import ReportProgress, iterate_with_progress, progress_bar
from bowstring.cli.pyarrow_adapters import import_pyarrow, open_sequential_file
from bowstring.datatypes.field import Metadata
from bowstring.datatypes.schema import Schema
from bowstring.datatypes.types import Dictionary
from bowstring.errors import FormatMismatchError, InvalidArgumentError, format_count
from bowstring.inspection.formatting import check_row_count
from bowstring.inspection.printable_text import to_printable
from bowstring.inspection.validation import iter_validated_batches
from bowstring.io.fsspec_store import is_url
from bowstring.ipc.api import new_file, new_stream, open_any
from bowstring.ipc.file import FileReader
from bowstring.ipc.file_statistics import replace_statistics
from bowstring.ipc.stream import StreamReader
from bowstring.ipc.write_options import DictionaryDeltas, IpcWriteOptions

SOURCE_FORMATS = ("arrow", "parquet", "csv", "json", "jsonl")
TARGET_FORMATS = ("file", "stream", "parquet", "csv", "json", "jsonl")
_DEFAULT_BLOCK_BYTES = 8 << 20
_MIN_BLOCK_BYTES = 1 << 10
_SOURCE_OPTIONS = {
    "column_names": ("csv",),
    "column_types": ("csv", "json", "jsonl"),
    "null_values": ("csv",),
    "timestamp_formats": ("csv",),
    "skip_rows": ("csv",),
    "encoding": ("csv",),
    "quote": ("csv",),
    "block_size": ("csv", "json", "jsonl"),
}
_TARGET_OPTIONS = {
    "compression": (*ARROW_FORMATS, "parquet"),
    "compression_level": (*ARROW_FORMATS, "parquet"),
    "alignment": ARROW_FORMATS,
    "byte_order": ARROW_FORMATS,
    "metadata_version": ARROW_FORMATS,
    "legacy_framing": ARROW_FORMATS,
    "unify_dictionaries": ARROW_FORMATS,
    "dictionary_deltas": ARROW_FORMATS,
}
_SHARED_OPTIONS = {"delimiter": ("csv",), "no_header": ("csv",)}
_CODECS = {
    **dict.fromkeys(ARROW_FORMATS, ("none", "lz4", "zstd")),
    "parquet": ("none", "snappy", "gzip", "brotli", "lz4", "zstd"),
}
_DEFAULT_CODECS = {"parquet": "snappy"}
_PARAMETRIC_TYPE = re.compile(
    r"decimal(32|64|128|256)?\((\d+)(?:, *(-?\d+))?\)|timestamp\[(s|ms|us|ns), *(?:tz=)?(.+)\]"
)


@dataclass(frozen=True, slots=True)
class _LazyTable:
    """A schema and batches that are read lazily.

    `has_fixed_dictionaries` is True if each column has the same dictionary in all batches, as in a file.
    `footer_metadata` is the custom metadata of a file, without the statistics of its batches.
    """

    schema: Schema
    batches: Iterable[RecordBatch]
    has_fixed_dictionaries: bool = False
    footer_metadata: Metadata = ()
    is_arrow: bool = False


def _parse_column_types(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, Any]:
    """Parse `NAME=TYPE` options to a dictionary of pyarrow data types."""
    types = {}
    for value in values:
        column, equals, text = value.rpartition("=")
        if "timestamp[" in value:  # a time zone may contain "="
            column, equals, text = value.partition("=")
        if not equals or not column:
            raise click.BadParameter(f"expected NAME=TYPE, such as price=float64, found {value!r}", ctx, param)
        try:
            types[column] = _parse_pyarrow_type(text.strip())
        except (ValueError, TypeError):
            expected = "int32, string, timestamp[us], decimal128(10, 2) …"
            raise click.BadParameter(f"expected a type such as {expected}, found {text!r}", ctx, param) from None
    return types


def _parse_pyarrow_type(text: str) -> Any:
    pa = import_pyarrow()
    match = _PARAMETRIC_TYPE.fullmatch(text)
    if match is None:
        return pa.type_for_alias(text)
    bits, precision, scale, unit, zone = match.groups()
    if unit is not None:
        return pa.timestamp(unit, zone)
    return getattr(pa, f"decimal{bits or 128}")(int(precision), int(scale or 0))


def _parse_character(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value in ("\\t", "tab"):
        return "\t"
    if value == "none" and param.name == "quote":
        return ""
    if value is not None and (len(value) != 1 or not value.isascii()):
        raise click.BadParameter(f"expected one ASCII character, found {value!r}", ctx, param)
    return value


def _parse_encoding(ctx: click.Context, param: click.Parameter, value: str) -> str:
    try:
        return codecs.lookup(value).name
    except LookupError:
        raise click.BadParameter(f"unknown encoding {value!r}", ctx, param) from None


@click.command()
@click.argument("source", type=PATH)
@click.argument("target", type=PATH)
@click.option(
    "--from",
    "source_format",
    type=click.Choice(SOURCE_FORMATS),
    help="Format of SOURCE.  [default: by content or extension]",
)
@click.option(
    "--to", "target_format", type=click.Choice(TARGET_FORMATS), help="Format of TARGET.  [default: by extension]"
)
@columns_option
@click.option(
    "--compression",
    type=click.Choice(sorted({codec for codecs in _CODECS.values() for codec in codecs})),
    help="Codec of TARGET.  [default: snappy for Parquet, else none]",
)
@click.option("--compression-level", type=int, help="Level of the codec.  [default: a fast one]")
@click.option(
    "--alignment", type=click.Choice(["8", "16", "32", "64"]), default="64", help="Buffer alignment in bytes."
)
@click.option("--byte-order", type=click.Choice(["little", "big"]), default="little", help="Byte order of TARGET.")
@click.option("--metadata-version", type=click.Choice(["V4", "V5"]), default="V5", help="Metadata version of TARGET.")
@click.option("--legacy-framing", is_flag=True, help="Write the framing of Arrow 0.14 and earlier.")
@click.option("--batch-rows", type=click.IntRange(min=1), help="Split and join batches to this number of rows.")
@click.option("--decode-dictionaries", is_flag=True, help="Write plain values instead of dictionary-encoded columns.")
@click.option(
    "--unify-dictionaries",
    is_flag=True,
    help="Write one dictionary per column, before the first batch; keeps all batches in memory.",
)
@click.option(
    "--dictionary-deltas",
    type=click.Choice(get_args(DictionaryDeltas)),
    default="auto",
    help="Whether to write dictionaries that grow as deltas.",
)
@click.option("--quick", is_flag=True, help="Do not validate values, except for Parquet and CSV as TARGET.")
@click.option(
    "--delimiter",
    callback=_parse_character,
    help="Delimiter of CSV: one character, or \\t.  [default: a comma, or a tab for .tsv; detected in SOURCE]",
)
@click.option("--quote", callback=_parse_character, default='"', help="Quote character of CSV, or none.")
@click.option("--no-header", is_flag=True, help="CSV has no header; the columns of SOURCE are named f0, f1, …")
@click.option(
    "--column-names",
    type=UTF8_TEXT,
    metavar="A,B,…",
    help="Column names for CSV without a header, separated by commas.",
)
@click.option(
    "--column-type",
    "column_types",
    type=UTF8_TEXT,
    callback=_parse_column_types,
    multiple=True,
    metavar="NAME=TYPE",
    help="Type of a column of CSV or JSON, such as int32 or timestamp[us, tz=UTC]; may be repeated.",
)
@click.option(
    "--null-value",
    "null_values",
    type=UTF8_TEXT,
    multiple=True,
    help="Text that is null in CSV; may be repeated.  [default: unquoted empty text]",
)
@click.option(
    "--timestamp-format",
    "timestamp_formats",
    type=UTF8_TEXT,
    multiple=True,
    help="A strptime format of timestamps in CSV, in addition to ISO 8601; may be repeated.",
)
@click.option("--skip-rows", type=click.IntRange(min=0), default=0, help="Lines of CSV to skip before the header.")
@click.option("--encoding", type=UTF8_TEXT, callback=_parse_encoding, default="utf-8", help="Encoding of CSV.")
@click.option(
    "--block-size",
    type=click.IntRange(min=_MIN_BLOCK_BYTES, max=(1 << 31) - 1),
    default=_DEFAULT_BLOCK_BYTES,
    help="Size of a block of CSV or JSON, in bytes; types are inferred from the first block.",
)
@max_piped_bytes_option
@click.pass_context
def convert(ctx: click.Context, /, source: str, target: str, **options: Any) -> None:
    """Convert between Arrow files and streams, Parquet, CSV and JSON.

    SOURCE and TARGET are paths or URLs, or - for standard input and output. Arrow data and Parquet are detected by
    content, CSV and JSON by the extension of the name; --from and --to override both. Every value is validated.
    TARGET is replaced atomically, when it is complete.
    """
    target_format = options["target_format"] or FORMATS_BY_EXTENSION.get(get_uncompressed_extension(target))
    if options["target_format"] is None:
        check_uncompressed(target)
    if target_format is None:
        raise click.UsageError(f"unknown format of {target!r}: give --to {'|'.join(TARGET_FORMATS)}")
    source_format = options["source_format"] or _detect_source_format(source)
    options = _complete_options(ctx, options, source_format, target_format)
    write_options = _ipc_write_options(target_format, options)
    rows = 0

    def count_rows(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        nonlocal rows
        for batch in batches:
            rows += batch.num_rows
            yield batch

    out = resolve_output(target, source)
    with (
        prefix_errors_with_source(source),
        progress_bar("converting", _progress_unit(source_format)) as report_progress,
        _open_input(source, source_format, options, report_progress) as source_table,
    ):
        table = _transform_table(source_table, target_format, options)
        table = replace(table, batches=count_rows(table.batches))
        if target_format in ARROW_FORMATS:
            _write_arrow(out, target_format, table, write_options, int(options["alignment"]))
        else:
            _write_non_arrow(out, target, target_format, table, options)
    if target != "-":
        click.echo(
            f"{to_printable(target)}: {format_count(rows, 'row')}, {format_count(len(table.schema), 'column')}",
            err=True,
        )


# Options


def _progress_unit(source_format: str) -> str:
    return {"arrow": "record batches", "parquet": "rows"}.get(source_format, "bytes")


def _complete_options(
    ctx: click.Context, options: dict[str, Any], source_format: str, target_format: str
) -> dict[str, Any]:
    """Fill in defaults that depend on the formats. Raises `click.UsageError` for options of other formats."""
    for formats_by_option, used_formats, what in (
        (_SOURCE_OPTIONS, {source_format}, source_format),
        (_TARGET_OPTIONS, {target_format}, target_format),
        (_SHARED_OPTIONS, {source_format, target_format}, f"{source_format} to {target_format}"),
    ):
        for name, formats in formats_by_option.items():
            if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE and not used_formats.intersection(formats):
                option = next(param.opts[-1] for param in ctx.command.params if param.name == name)
                raise click.UsageError(f"{option} does not apply to {what}, only to {', '.join(formats)}")
    compression = options["compression"] or _DEFAULT_CODECS.get(target_format, "none")
    codecs = _CODECS.get(target_format, ("none",))
    if compression not in codecs:
        raise click.UsageError(
            f"--compression {compression} does not apply to {target_format}: use {', '.join(codecs)}"
        )
    names = options["column_names"]
    return {
        **options,
        "compression": compression,
        "column_names": names.split(",") if names else None,
    }


def _default_delimiter(path: str) -> str:
    return "\t" if get_uncompressed_extension(path) == ".tsv" else ","


def _ipc_write_options(target_format: str, options: dict[str, Any]) -> IpcWriteOptions:
    """Return the options of the IPC writer. Raises `click.UsageError` for invalid combinations."""
    if target_format not in ARROW_FORMATS:
        return IpcWriteOptions()
    try:
        return IpcWriteOptions(
            options["byte_order"],
            options["metadata_version"],
            options["legacy_framing"],
            None if options["compression"] == "none" else options["compression"],
            options["compression_level"],
            options["dictionary_deltas"],
            unify_dictionaries=options["unify_dictionaries"],
        )
    except InvalidArgumentError as error:
        raise click.UsageError(str(error)) from None


# Reading


@contextmanager
def _open_input(
    path: str, source_format: str, options: dict[str, Any], report_progress: ReportProgress
) -> Iterator[_LazyTable]:
    source, name = resolve_source(path), source_name(path)
    if source_format == "arrow":
        with _open_arrow(source, options) as reader:
            is_file = isinstance(reader, FileReader)
            footer_metadata = (
                replace_statistics(tuple(reader.metadata.items()), None, ()) if isinstance(reader, FileReader) else ()
            )
            yield _LazyTable(
                reader.schema, iterate_with_progress(reader, report_progress), is_file, footer_metadata, is_arrow=True
            )
        return
    open_batches = {"csv": csv.open_batches, "parquet": parquet.open_batches}.get(source_format, json.open_batches)
    options = {**options, "default_delimiter": _default_delimiter(path)}
    with open_batches(source, name, options, report_progress) as (schema, batches):
        yield _LazyTable(schema, batches)


def _open_arrow(source: Any, options: Mapping[str, Any]) -> FileReader | StreamReader:
    try:
        return open_any(source, list(options["columns"]) or None, max_piped_bytes=options["max_piped_bytes"])
    except FormatMismatchError as error:
        error.add_note("use --from parquet, csv, json or jsonl for another format")
        raise


def _detect_source_format(path: str) -> str:
    """Detect the format of a source: CSV and JSON by extension, Parquet by content, or by the extension of a URL."""
    extension_format = FORMATS_BY_EXTENSION.get(get_uncompressed_extension(path), "file")
    if extension_format not in ARROW_FORMATS and (extension_format != "parquet" or path == "-" or is_url(path)):
        return extension_format
    if path != "-" and os.path.isfile(path):
        with open_sequential_file(path) as (file, _):
            return "parquet" if file.peek(4)[:4] == b"PAR1" else "arrow"
    return "arrow" if extension_format in ARROW_FORMATS else extension_format


# Transforming


def _transform_table(table: _LazyTable, target_format: str, options: dict[str, Any]) -> _LazyTable:
    schema, batches, has_fixed_dictionaries = table.schema, table.batches, table.has_fixed_dictionaries
    if not options["quick"] or target_format in ("parquet", "csv"):  # pyarrow crashes on invalid values
        batches = iter_validated_batches(batches, _validation_hint(table, target_format))
    if options["decode_dictionaries"]:
        schema, batches = _decode_dictionaries(schema, batches)
    elif target_format == "parquet":
        schema, batches = _decode_dictionaries(schema, batches, parquet.keeps_dictionary)
    if options["batch_rows"]:
        batches, has_fixed_dictionaries = _resize_batches(schema, batches, options["batch_rows"]), False
    if has_dictionary_fields(schema) and (
        options["unify_dictionaries"] or (target_format == "file" and not has_fixed_dictionaries)
    ):  # a file can't replace dictionaries
        batches = unify_batch_dictionaries(schema, list(batches))
    return _LazyTable(schema, batches, has_fixed_dictionaries, table.footer_metadata)


def _validation_hint(table: _LazyTable, target_format: str) -> str:
    hints = ["bowstring validate lists all errors"] if table.is_arrow else []
    if target_format not in ("parquet", "csv"):
        hints.append("--quick does not validate values")
    return ", ".join(hints)


def _decode_dictionaries(
    schema: Schema, batches: Iterable[RecordBatch], is_kept: Callable[[Dictionary], bool] = lambda _: False
) -> tuple[Schema, Iterator[RecordBatch]]:
    """Decode the dictionary-encoded columns, except those whose type is kept."""
    decoded = [isinstance(field.type, Dictionary) and not is_kept(field.type) for field in schema]
    fields = [
        field.with_type(field.type.value_type) if is_decoded else field  # type: ignore[attr-defined]
        for field, is_decoded in zip(schema, decoded, strict=True)
    ]
    decoded_schema = Schema(tuple(fields), schema.pairs)

    def decode(batch: RecordBatch) -> RecordBatch:
        columns = [
            column.dictionary_decode() if is_decoded else column
            for column, is_decoded in zip(batch.columns, decoded, strict=True)
        ]
        return RecordBatch(decoded_schema, batch.num_rows, columns, batch.pairs)

    return decoded_schema, map(decode, batches)


def _resize_batches(schema: Schema, batches: Iterable[RecordBatch], rows: int) -> Iterator[RecordBatch]:
    pending: list[RecordBatch] = []
    count = 0
    for batch in batches:
        check_row_count(batch)
        offset = 0
        while offset < batch.num_rows:
            part = batch.slice(offset, rows - count)
            pending.append(part)
            offset, count = offset + part.num_rows, count + part.num_rows
            if count == rows:
                yield from Table(schema, pending).combine_chunks().to_batches()
                pending, count = [], 0
    if pending:
        yield from Table(schema, pending).combine_chunks().to_batches()


# Writing


def _write_arrow(out: Any, target_format: str, table: _LazyTable, options: IpcWriteOptions, alignment: int) -> None:
    with (
        new_file(out, table.schema, table.footer_metadata, alignment, options=options)
        if target_format == "file"
        else new_stream(out, table.schema, alignment, options=options)
    ) as writer:
        for batch in table.batches:
            writer.write_batch(batch)


def _write_non_arrow(out: Any, path: str, target_format: str, table: _LazyTable, options: dict[str, Any]) -> None:
    with open_output(out) as sink:
        if target_format == "parquet":
            parquet.write(sink, table.schema, table.batches, options)
        elif target_format == "csv":
            delimiter = options["delimiter"] or _default_delimiter(path)
            csv.write(sink, table.schema, table.batches, delimiter, has_header=not options["no_header"])
        else:
            json.write(sink, table.schema, table.batches, is_array=target_format == "json")

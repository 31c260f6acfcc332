"""`bowstring convert`: convert between Arrow, Parquet, CSV and JSON, and between options of the Arrow formats."""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, get_args

import click
from click.core import ParameterSource

from bowstring.arrays.record_batch import RecordBatch
from bowstring.arrays.table import Table, schema_has_dictionaries, unify_batches
from bowstring.cli import csv, json, parquet
from bowstring.cli.input_output import (
    PATH,
    Advance,
    binary_output,
    max_piped_option,
    output_sink,
    progress,
    report_batches,
    report_errors,
    resolve_source,
    source_name,
)
from bowstring.cli.pyarrow_files import import_pyarrow, sequential_file
from bowstring.datatypes.field import Metadata, Schema
from bowstring.datatypes.types import Dictionary
from bowstring.errors import FormatMismatchError, UsageError
from bowstring.inspection.text import printable
from bowstring.inspection.validation import validate_batches
from bowstring.inspection.values import check_rows
from bowstring.io.fsspec_store import is_url
from bowstring.ipc.api import new_file, new_stream
from bowstring.ipc.file import FileReader
from bowstring.ipc.format_detection import open_any
from bowstring.ipc.options import DictionaryDeltas, IpcWriteOptions
from bowstring.ipc.statistics import with_statistics
from bowstring.ipc.stream import StreamReader
from bowstring.layouts.array import Array

SOURCES = ("arrow", "parquet", "csv", "json", "jsonl")
TARGETS = ("file", "stream", "parquet", "csv", "json", "jsonl")
_ENDINGS = {
    ".arrow": "file",
    ".feather": "file",
    ".ipc": "file",
    ".arrows": "stream",
    ".parquet": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
_COMPRESSED_ENDINGS = (".gz", ".bz2", ".zst", ".lz4")
_ARROW = ("file", "stream")
_BLOCK_BYTES = 8 << 20
_LEAST_BLOCK_BYTES = 1 << 10
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
    "compression": (*_ARROW, "parquet"),
    "compression_level": (*_ARROW, "parquet"),
    "alignment": _ARROW,
    "byte_order": _ARROW,
    "metadata_version": _ARROW,
    "legacy_framing": _ARROW,
    "unify_dictionaries": _ARROW,
    "dictionary_deltas": _ARROW,
}
_SHARED_OPTIONS = {"delimiter": ("csv",), "no_header": ("csv",)}
_CODECS = {
    **dict.fromkeys(_ARROW, ("none", "lz4", "zstd")),
    "parquet": ("none", "snappy", "gzip", "brotli", "lz4", "zstd"),
}
_DEFAULT_CODECS = {"parquet": "snappy"}
_PARAMETERS = re.compile(r"decimal(32|64|128|256)?\((\d+)(?:, *(-?\d+))?\)|timestamp\[(s|ms|us|ns), *(?:tz=)?(.+)\]")


@dataclass(frozen=True, slots=True)
class _Input:
    """The schema and the batches of the source, read lazily.

    `has_fixed_dictionaries` is True if each column has the same dictionary in all batches, as in a file. `footer` is
    the custom metadata of a file, without the statistics of its batches.
    """

    schema: Schema
    batches: Iterable[RecordBatch]
    has_fixed_dictionaries: bool = False
    footer: Metadata = ()
    is_arrow: bool = False


def _column_types(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, Any]:
    """Parse `NAME=TYPE` options to a dictionary of pyarrow data types."""
    types = {}
    for value in values:
        column, equals, text = value.rpartition("=")
        if "timestamp[" in value:  # a time zone may contain "="
            column, equals, text = value.partition("=")
        if not equals or not column:
            raise click.BadParameter(f"expected NAME=TYPE, such as price=float64, found {value!r}", ctx, param)
        try:
            types[column] = _data_type(text.strip())
        except (ValueError, TypeError):
            expected = "int32, string, timestamp[us], decimal128(10, 2) …"
            raise click.BadParameter(f"expected a type such as {expected}, found {text!r}", ctx, param) from None
    return types


def _data_type(text: str) -> Any:
    pa = import_pyarrow()
    matched = _PARAMETERS.fullmatch(text)
    if matched is None:
        return pa.type_for_alias(text)
    bits, precision, scale, unit, zone = matched.groups()
    if unit is not None:
        return pa.timestamp(unit, zone)
    return getattr(pa, f"decimal{bits or 128}")(int(precision), int(scale or 0))


def _character(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value in ("\\t", "tab"):
        return "\t"
    if value == "none" and param.name == "quote":
        return ""
    if value is not None and (len(value) != 1 or not value.isascii()):
        raise click.BadParameter(f"expected one ASCII character, found {value!r}", ctx, param)
    return value


def _encoding(ctx: click.Context, param: click.Parameter, value: str) -> str:
    try:
        return codecs.lookup(value).name
    except LookupError:
        raise click.BadParameter(f"unknown encoding {value!r}", ctx, param) from None


def _csv_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of CSV, some of which apply to JSON, too."""
    options = [
        click.option(
            "--delimiter", callback=_character, help="Delimiter of CSV.  [default: a comma, or a tab for .tsv]"
        ),
        click.option(
            "--quote", callback=_character, default='"', show_default=True, help="Quote character of CSV, or none."
        ),
        click.option("--no-header", is_flag=True, help="CSV has no header; columns are named f0, f1, …"),
        click.option("--column-names", help="Column names for CSV without a header, separated by commas."),
        click.option(
            "--column-type",
            "column_types",
            callback=_column_types,
            multiple=True,
            metavar="NAME=TYPE",
            help="Type of a column of CSV or JSON; may be repeated.",
        ),
        click.option(
            "--null-value",
            "null_values",
            multiple=True,
            help="Text that is null in CSV; may be repeated.  [default: empty text]",
        ),
        click.option(
            "--timestamp-format",
            "timestamp_formats",
            multiple=True,
            help="Format of strptime, in addition to ISO 8601; may be repeated.",
        ),
        click.option(
            "--skip-rows",
            type=click.IntRange(min=0),
            default=0,
            help="Number of lines to skip before the header of CSV.",
        ),
        click.option("--encoding", callback=_encoding, default="utf-8", show_default=True, help="Encoding of CSV."),
        click.option(
            "--block-size",
            type=click.IntRange(min=_LEAST_BLOCK_BYTES, max=(1 << 31) - 1),
            default=_BLOCK_BYTES,
            show_default=True,
            help="Size of a block of CSV or JSON, in bytes; types are inferred from the first block.",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@click.command()
@click.argument("source", type=PATH)
@click.argument("target", type=PATH)
@click.option(
    "--from", "source_kind", type=click.Choice(SOURCES), help="Format of SOURCE.  [default: by its name or content]"
)
@click.option("--to", "target_kind", type=click.Choice(TARGETS), help="Format of TARGET.  [default: by its name]")
@click.option("-c", "--column", "columns", multiple=True, help="Only this column; may be repeated.")
@click.option(
    "--compression",
    type=click.Choice(sorted({codec for codecs in _CODECS.values() for codec in codecs})),
    help="Codec of TARGET.  [default: snappy for Parquet, else none]",
)
@click.option("--compression-level", type=int, help="Level of the codec.")
@click.option("--alignment", type=click.Choice(["8", "16", "32", "64"]), default="64", show_default=True)
@click.option("--byte-order", type=click.Choice(["little", "big"]), default="little", show_default=True)
@click.option("--metadata-version", type=click.Choice(["V4", "V5"]), default="V5", show_default=True)
@click.option("--legacy-framing", is_flag=True, help="Frame messages like Arrow 0.14 and earlier.")
@click.option(
    "--batch-rows", type=click.IntRange(min=1), help="Number of rows per batch; batches are split and joined."
)
@click.option("--decode-dictionaries", is_flag=True, help="Write plain values instead of dictionary-encoded columns.")
@click.option("--unify-dictionaries", is_flag=True, help="Write one dictionary per column, before the first batch.")
@click.option("--dictionary-deltas", type=click.Choice(get_args(DictionaryDeltas)), default="auto", show_default=True)
@click.option("--quick", is_flag=True, help="Do not validate values; ignored for Parquet and CSV.")
@_csv_options
@max_piped_option
@click.pass_context
def convert(ctx: click.Context, /, source: str, target: str, **options: Any) -> None:
    """Convert between Arrow files and streams, Parquet, CSV and JSON.

    SOURCE and TARGET are paths or URLs, or - for standard input and output. Arrow data and Parquet are detected by
    content, CSV and JSON by the extension of the name; --from and --to override both. Every value is validated.
    TARGET is replaced atomically, when it is complete.
    """
    target_kind = options["target_kind"] or _ENDINGS.get(_suffix(target))
    if options["target_kind"] is None and PurePosixPath(target).suffix.lower() in _COMPRESSED_ENDINGS:
        raise click.UsageError(f"{target!r}: compressed files can be read, but not written: remove the extension")
    if target_kind is None:
        raise click.UsageError(f"unknown format of {target!r}: give --to {'|'.join(TARGETS)}")
    source_kind = options["source_kind"] or _source_kind(source)
    options = _check_options(ctx, options, source_kind, target_kind)
    write_options = _write_options(target_kind, options)
    totals = _Totals()
    with (
        report_errors(source),
        binary_output(target, source) as out,
        progress("converting", _units(source_kind)) as advance,
        _open_input(source, source_kind, options, advance) as read,
    ):
        prepared = _prepare(read, target_kind, options)
        prepared = replace(prepared, batches=totals.count(prepared.batches))
        if target_kind in _ARROW:
            _write_arrow(out, target_kind, prepared, write_options, int(options["alignment"]))
        else:
            _write_other(out, target, target_kind, prepared, options)
    if target != "-":
        click.echo(
            f"{printable(target)}: {_plural(totals.rows, 'row')}, {_plural(len(prepared.schema), 'column')}", err=True
        )


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


class _Totals:
    """Counts the rows of an iterator of batches."""

    def __init__(self) -> None:
        self.rows = 0

    def count(self, batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        """Yield the batches, and count their rows."""
        for batch in batches:
            self.rows += batch.num_rows
            yield batch


# Options


def _suffix(path: str) -> str:
    """Return the extension of a path or URL that names its format, without one of compressed data."""
    name = PurePosixPath(re.split(r"[?#]", path, maxsplit=1)[0] if is_url(path) else path)
    if name.suffix.lower() in _COMPRESSED_ENDINGS:
        name = name.with_suffix("")
    return name.suffix.lower()


def _units(source_kind: str) -> str:
    return {"arrow": "record batches", "parquet": "rows"}.get(source_kind, "bytes")


def _check_options(ctx: click.Context, options: dict[str, Any], source_kind: str, target_kind: str) -> dict[str, Any]:
    """Fill in defaults that depend on the formats. Raises `click.UsageError` for options of other formats."""
    for params, kinds, what in (
        (_SOURCE_OPTIONS, {source_kind}, source_kind),
        (_TARGET_OPTIONS, {target_kind}, target_kind),
        (_SHARED_OPTIONS, {source_kind, target_kind}, f"{source_kind} to {target_kind}"),
    ):
        for name, formats in params.items():
            if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE and not kinds.intersection(formats):
                option = next(param.opts[-1] for param in ctx.command.params if param.name == name)
                raise click.UsageError(f"{option} does not apply to {what}, only to {', '.join(formats)}")
    compression = options["compression"] or _DEFAULT_CODECS.get(target_kind, "none")
    codecs = _CODECS.get(target_kind, ("none",))
    if compression not in codecs:
        raise click.UsageError(f"--compression {compression} does not apply to {target_kind}: use {', '.join(codecs)}")
    names = options["column_names"]
    return {
        **options,
        "compression": compression,
        "column_names": names.split(",") if names else None,
    }


def _with_delimiter(options: Mapping[str, Any], path: str) -> dict[str, Any]:
    return {**options, "delimiter": options["delimiter"] or ("\t" if _suffix(path) == ".tsv" else ",")}


def _write_options(kind: str, options: dict[str, Any]) -> IpcWriteOptions:
    """Return the options of the IPC writer. Raises `click.UsageError` for invalid combinations."""
    if kind not in _ARROW:
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
    except UsageError as error:
        raise click.UsageError(str(error)) from None


# Reading


@contextmanager
def _open_input(path: str, kind: str, options: dict[str, Any], advance: Advance) -> Iterator[_Input]:
    source, name = resolve_source(path), source_name(path)
    if kind == "arrow":
        with _open_arrow(source, options) as reader:
            batches = report_batches(reader, advance)
            if isinstance(reader, FileReader):
                footer = with_statistics(tuple(reader.metadata.items()), None, ())
                yield _Input(reader.schema, batches, True, footer, is_arrow=True)
            else:
                yield _Input(reader.schema, batches, is_arrow=True)
        return
    if kind == "csv":
        open_batches = csv.open_batches(source, name, _with_delimiter(options, path), advance)
    else:
        open_batches = (parquet if kind == "parquet" else json).open_batches(source, name, options, advance)
    with open_batches as (schema, batches):
        yield _Input(schema, batches)


def _open_arrow(source: Any, options: Mapping[str, Any]) -> FileReader | StreamReader:
    try:
        return open_any(source, list(options["columns"]) or None, max_piped_bytes=options["max_piped_bytes"])
    except FormatMismatchError as error:
        error.add_note("use --from parquet, csv, json or jsonl for another format")
        raise


def _source_kind(path: str) -> str:
    """Detect the format of a source: CSV and JSON by extension, Parquet by content, or by the extension of a URL."""
    kind = _ENDINGS.get(_suffix(path), "file")
    if kind not in _ARROW and (kind != "parquet" or path == "-" or is_url(path)):
        return kind
    if path != "-" and os.path.isfile(path):
        with sequential_file(path) as (_, file):
            return "parquet" if file.peek(4)[:4] == b"PAR1" else "arrow"
    return "arrow" if kind in _ARROW else kind


# Between


def _prepare(read: _Input, kind: str, options: dict[str, Any]) -> _Input:
    schema, batches, has_fixed_dictionaries = read.schema, read.batches, read.has_fixed_dictionaries
    if not options["quick"] or kind in ("parquet", "csv"):  # pyarrow crashes on invalid values
        batches = validate_batches(batches, _hint(read, kind))
    if options["decode_dictionaries"]:
        schema, batches = _decode_dictionaries(schema, batches)
    if options["batch_rows"]:
        batches, has_fixed_dictionaries = _resize_batches(schema, batches, options["batch_rows"]), False
    if schema_has_dictionaries(schema) and (
        options["unify_dictionaries"] or (kind == "file" and not has_fixed_dictionaries)
    ):  # a file can't replace dictionaries
        batches = unify_batches(schema, list(batches))
    return _Input(schema, batches, has_fixed_dictionaries, read.footer)


def _hint(read: _Input, kind: str) -> str:
    hints = ["bowstring validate lists all errors"] if read.is_arrow else []
    if kind not in ("parquet", "csv"):
        hints.append("--quick does not validate values")
    return ", ".join(hints)


def _decode_dictionaries(schema: Schema, batches: Iterable[RecordBatch]) -> tuple[Schema, Iterator[RecordBatch]]:
    fields = [
        field.with_type(field.type.value_type) if isinstance(field.type, Dictionary) else field for field in schema
    ]
    plain = Schema(tuple(fields), schema.pairs)
    return plain, (
        RecordBatch(plain, batch.num_rows, list(map(_plain, batch.columns)), batch.pairs) for batch in batches
    )


def _plain(column: Array) -> Array:
    return column.dictionary_decode() if isinstance(column.type, Dictionary) else column


def _resize_batches(schema: Schema, batches: Iterable[RecordBatch], rows: int) -> Iterator[RecordBatch]:
    pending: list[RecordBatch] = []
    count = 0
    for batch in batches:
        check_rows(batch)
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


def _write_arrow(out: Any, kind: str, prepared: _Input, options: IpcWriteOptions, alignment: int) -> None:
    with (
        new_file(out, prepared.schema, prepared.footer, alignment, options=options)
        if kind == "file"
        else new_stream(out, prepared.schema, alignment, options=options)
    ) as writer:
        for batch in prepared.batches:
            writer.write_batch(batch)


def _write_other(out: Any, path: str, kind: str, prepared: _Input, options: dict[str, Any]) -> None:
    with output_sink(out) as sink:
        if kind == "parquet":
            parquet.write(sink, prepared.schema, prepared.batches, options)
        elif kind == "csv":
            csv.write(sink, prepared.schema, prepared.batches, _with_delimiter(options, path))
        else:
            json.write(sink, prepared.schema, prepared.batches, is_array=kind == "json")

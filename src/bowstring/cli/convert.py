"""`bowstring convert`: convert between Arrow, Parquet, CSV and JSON, and between options of the Arrow formats."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any, get_args

import click
from click.core import ParameterSource

from bowstring.arrays.record_batch import RecordBatch
from bowstring.arrays.table import Table
from bowstring.cli.help_text import examples
from bowstring.cli.input_output import (
    choose_target_format,
    echo_invalid_rows,
    echo_written,
    list_inputs,
    open_input,
    prefix_errors_with_source,
    resolve_output,
)
from bowstring.cli.options import (
    COUNT,
    PATH,
    POSITIVE_COUNT,
    UTF8_TEXT,
    Number,
    column_types_option,
    columns_option,
    from_option,
    invalid_rows_option,
    max_piped_bytes_option,
    parse_name_list,
    target_format_option,
)
from bowstring.cli.progress import open_with_progress, progress_bar
from bowstring.datatypes.schema import Schema
from bowstring.errors import InvalidArgumentError
from bowstring.file_formats import (
    ARROW_FORMATS,
    DEFAULT_BLOCK_BYTES,
    LazyTable,
    SourceOptions,
    decode_dictionaries,
    import_pyarrow,
    validate_table,
    write_batches,
)
from bowstring.inspection.formatting import check_row_count
from bowstring.ipc.codecs import CODECS
from bowstring.ipc.write_options import DictionaryDeltas, IpcWriteOptions

# A block has to contain a whole row, and the first one determines the types.
_MIN_BLOCK_BYTES = 1 << 10
_MAX_BATCH_ROWS, _MAX_BATCH_BYTES = 1 << 16, 64 << 20
"""Limits of batches that are written as Arrow, unless `--batch-rows` sets another."""
_CSV_OPTIONS = ("column_names", "null_values", "timestamp_parsers", "skip_rows", "encoding", "quote_char")
_IPC_OPTIONS = ("byte_order", "metadata_version", "legacy_framing", "unify_dictionaries", "dictionary_deltas")
_SOURCE_OPTIONS = {
    **dict.fromkeys(_CSV_OPTIONS, ("csv",)),
    **dict.fromkeys(("column_types", "invalid_rows", "block_bytes"), ("csv", "json", "jsonl")),
}
_TARGET_OPTIONS = {
    **dict.fromkeys(("compression", "compression_level"), (*ARROW_FORMATS, "parquet")),
    **dict.fromkeys(("alignment", *_IPC_OPTIONS), ARROW_FORMATS),
}
_SHARED_OPTIONS = {"delimiter": ("csv",), "no_header": ("csv",)}
_CODECS = {
    **dict.fromkeys(ARROW_FORMATS, ("none", *CODECS)),
    "parquet": ("none", "snappy", "gzip", "brotli", "lz4", "zstd"),
}
_DEFAULT_CODECS = {"parquet": "snappy"}


def _parse_character(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value in ("\\t", "tab"):
        return "\t"
    if value == "none" and param.name == "quote_char":
        return ""
    if value is not None and (len(value) != 1 or not value.isascii()):
        raise click.BadParameter(f"expected one ASCII character, found {value!r}", ctx, param)
    return value


def _parse_encoding(ctx: click.Context, param: click.Parameter, value: str) -> str:
    try:
        return codecs.lookup(value).name
    except LookupError:
        raise click.BadParameter(f"unknown encoding {value!r}", ctx, param) from None


@click.command(
    epilog=examples(
        "bowstring convert flights.csv flights.arrow",
        "bowstring convert flights.arrow flights.parquet --compression zstd",
        "bowstring convert zip.csv zip.arrow --column-type zip=string --null-value NA",
        "bowstring convert --from csv --to stream - - < flights.csv | bowstring head",
    )
)
@click.argument("source", type=PATH)
@click.argument("target", type=PATH)
@from_option
@target_format_option("by extension; stream for -")
@columns_option
@click.option(
    "--compression",
    type=click.Choice(sorted({codec for codecs in _CODECS.values() for codec in codecs})),
    help="Codec of TARGET.  [default: snappy for Parquet, else none]",
)
@click.option("--compression-level", type=int, help="Level of the codec.  [default: a fast one]")
@click.option(
    "--batch-rows",
    type=POSITIVE_COUNT,
    help="Split and join batches to this number of rows.  [default: split to 65,536 rows and 64 MiB]",
)
@column_types_option
@invalid_rows_option
@click.option(
    "--delimiter",
    callback=_parse_character,
    help="Delimiter of CSV: one character, or \\t.  [default: a comma, or a tab for .tsv]",
)
@click.option("--no-header", is_flag=True, help="CSV has no header; the columns of SOURCE are named f0, f1, …")
@click.option(
    "--null-value",
    "null_values",
    type=UTF8_TEXT,
    multiple=True,
    help="Text that is null in CSV; may be repeated.  [default: unquoted empty text]",
)
@click.option("--quick", is_flag=True, help="Do not validate values, except for Parquet and CSV as TARGET.")
@click.option("--quote", "quote_char", callback=_parse_character, default='"', help="Quote character of CSV, or none.")
@click.option(
    "--column-names",
    type=UTF8_TEXT,
    callback=parse_name_list,
    metavar="A,B,…",
    help="Column names for CSV without a header, separated by commas.",
)
@click.option(
    "--timestamp-format",
    "timestamp_parsers",
    type=UTF8_TEXT,
    multiple=True,
    help="A strptime format of timestamps in CSV, in addition to ISO 8601; may be repeated.",
)
@click.option("--skip-rows", type=COUNT, default=0, help="Lines of CSV to skip before the header.")
@click.option("--encoding", type=UTF8_TEXT, callback=_parse_encoding, default="utf-8", help="Encoding of CSV.")
@click.option(
    "--block-size",
    "block_bytes",
    type=Number(int, _MIN_BLOCK_BYTES, (1 << 31) - 1),
    default=DEFAULT_BLOCK_BYTES,
    help="Size of a block of CSV or JSON, in bytes; types are inferred from the first block.",
)
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
@click.option(
    "--alignment", type=click.Choice(["8", "16", "32", "64"]), default="64", help="Buffer alignment in bytes."
)
@click.option("--byte-order", type=click.Choice(["little", "big"]), default="little", help="Byte order of TARGET.")
@click.option("--metadata-version", type=click.Choice(["V4", "V5"]), default="V5", help="Metadata version of TARGET.")
@click.option("--legacy-framing", is_flag=True, help="Write the framing of Arrow 0.14 and earlier.")
@max_piped_bytes_option
@click.pass_context
def convert(ctx: click.Context, /, source: str, target: str, **options: Any) -> None:
    """Convert between Arrow files and streams, Parquet, CSV and JSON.

    SOURCE and TARGET are paths or URLs, or - for standard input and output. SOURCE may be a folder or a glob in quotes.
    Arrow data and Parquet are detected by content, CSV and JSON by the extension of the name; --from and --to override
    both. Every value is validated. TARGET is replaced atomically, when it is complete.
    """
    target_format = choose_target_format(target, options["target_format"], "stream" if target == "-" else None)
    with prefix_errors_with_source(source), open_input(source, options["source_format"]) as table_source:
        source_format = table_source.format
        options = _complete_options(ctx, options, source_format, target_format)
        write_options = _write_options(target_format, options)
        out = resolve_output(target, *list_inputs(source))
        with (
            progress_bar("converting", table_source.progress_unit) as report_progress,
            open_with_progress(table_source, _read_options(options, source_format), report_progress) as source_table,
        ):
            table = _transform_table(source_table, source_format, target_format, options)
            rows = write_batches(out, target_format, table, **write_options)
    echo_invalid_rows(table_source.invalid_rows)
    echo_written(target, rows, len(table.schema))


# Options


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
    return {**options, "compression": compression}


def _read_options(options: Mapping[str, Any], source_format: str) -> SourceOptions:
    names = {field.name for field in fields(SourceOptions)} & options.keys()
    csv_options: dict[str, Any] = {}
    if source_format == "csv":
        csv_options = {name: options[name] for name in ("skip_rows", "encoding")}
        csv_options["quote_char"] = options["quote_char"] or False
        csv_options |= {name: list(options[name]) for name in ("column_names", "null_values") if options[name]}
        if options["delimiter"]:
            csv_options["delimiter"] = options["delimiter"]
        if options["timestamp_parsers"]:
            csv_options["timestamp_parsers"] = [*options["timestamp_parsers"], import_pyarrow("pyarrow.csv").ISO8601]
        if options["no_header"] and not options["column_names"]:
            csv_options["autogenerate_column_names"] = True
    return SourceOptions(**{name: options[name] for name in names}, csv_options=csv_options)


def _write_options(target_format: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the writer of the format. Raises `click.UsageError` for invalid combinations."""
    if target_format == "csv":
        delimiter = {"delimiter": options["delimiter"]} if options["delimiter"] else {}
        return {"include_header": not options["no_header"], **delimiter}
    if target_format not in ARROW_FORMATS:
        return {name: options[name] for name in _TARGET_OPTIONS if target_format in _TARGET_OPTIONS[name]}
    compression = None if options["compression"] == "none" else options["compression"]
    try:
        ipc_options = IpcWriteOptions(
            compression=compression,
            compression_level=options["compression_level"],
            is_legacy_framing=options["legacy_framing"],
            **{name: options[name] for name in _IPC_OPTIONS if name != "legacy_framing"},
        )
    except InvalidArgumentError as error:
        raise click.UsageError(str(error)) from None
    return {"alignment": int(options["alignment"]), "options": ipc_options}


# Transforming


def _transform_table(table: LazyTable, source_format: str, target_format: str, options: Mapping[str, Any]) -> LazyTable:
    table = validate_table(table, target_format, _validation_hint(source_format, target_format), options["quick"])
    if options["decode_dictionaries"]:
        table = decode_dictionaries(table)
    if options["batch_rows"]:
        batches = _resize_batches(table.schema, table.batches, options["batch_rows"])
        table = replace(table, batches=batches, has_fixed_dictionaries=False)
    elif target_format in ARROW_FORMATS and not options["quick"]:  # batches can be split only if they are valid
        table = replace(table, batches=_split_large_batches(table.batches))
    return table


def _split_large_batches(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
    """Yield batches that can be read and recovered one by one."""
    for batch in batches:
        rows = max(1, min(_MAX_BATCH_ROWS, _MAX_BATCH_BYTES * batch.num_rows // max(1, batch.nbytes)))
        if batch.num_rows <= rows or batch.num_rows > 8 * batch.nbytes:  # nulls may be any number of rows
            yield batch
        else:
            yield from (batch.slice(start, rows) for start in range(0, batch.num_rows, rows))


def _validation_hint(source_format: str, target_format: str) -> str:
    hints = ["bowstring validate lists all errors"] if source_format == "arrow" else []
    if target_format not in ("parquet", "csv"):
        hints.append("--quick does not validate values")
    return ", ".join(hints)


def _resize_batches(schema: Schema, batches: Iterable[RecordBatch], num_rows: int) -> Iterator[RecordBatch]:
    pending: list[RecordBatch] = []
    missing_rows = num_rows
    for batch in batches:
        check_row_count(batch)
        rest = batch
        while rest.num_rows:
            pending.append(rest.slice(0, missing_rows))
            rest = rest.slice(pending[-1].num_rows)
            missing_rows -= pending[-1].num_rows
            if not missing_rows:
                yield from Table(schema, pending).combine_chunks().to_batches()
                pending, missing_rows = [], num_rows
    if pending:
        yield from Table(schema, pending).combine_chunks().to_batches()

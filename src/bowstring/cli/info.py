"""`bowstring info`, `schema` and `count`: show the contents of files, as tables or as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import click

from bowstring.cli.error_messages import EXIT_FAILURE
from bowstring.cli.help_text import examples
from bowstring.cli.input_output import echo_json, list_inputs, open_input, open_table, source_name
from bowstring.cli.main import format_error
from bowstring.cli.options import PATH, all_option, file_argument, from_option, json_option, max_piped_bytes_option
from bowstring.cli.table_report import TableReport, column_document, inspect_table
from bowstring.cli.terminal_tables import ColumnFit, print_table
from bowstring.datatypes.extension import NAME_KEY
from bowstring.datatypes.field import Metadata
from bowstring.display.printable_text import bytes_to_printable, format_percent, format_size, fraction, to_printable
from bowstring.errors import BowstringError, InvalidDataError, format_count
from bowstring.file_formats import SourceOptions
from bowstring.inspection.header_inspection import inspect
from bowstring.inspection.report import ColumnReport, Inspection, SchemaFieldReport, to_document

_INDENT = "  "
# What a terminal shows at a glance; `--json` has everything.
_COLUMNS_SHOWN, _SIZES_SHOWN = 20, 100
_FIELDS_SHOWN = 40
_PAIRS_SHOWN = 10
_NAME_CHARACTERS = 60
_TYPE_CHARACTERS = 60
_VALUE_CHARACTERS = 100


_Report: TypeAlias = Inspection | TableReport


@click.command(
    epilog=examples(
        "bowstring info flights.arrow",
        "bowstring info --json flights.parquet",
        "bowstring info *.arrow",
        "bowstring info --sizes --json flights.arrow",
        "curl https://example.org/flights.arrows | bowstring info",
    )
)
@click.argument("files", nargs=-1, type=PATH, metavar="[FILE]...")
@from_option
@json_option("Write everything as JSON, sizes in bytes.")
@click.option(
    "--sizes", "only_sizes", is_flag=True, help="Only the columns with encoding and size, of all files together."
)
@all_option("Show all columns and all metadata, without truncation.")
@max_piped_bytes_option
def info(
    files: tuple[str, ...],
    *,
    source_format: str | None,
    as_json: bool,
    only_sizes: bool,
    show_all: bool,
    max_piped_bytes: int,
) -> int:
    """Show the contents of files: schema, batches, column sizes, compression, alignment, metadata.

    FILE is a path, URL, folder or glob in quotes of Arrow, Parquet, CSV or JSON, or - for standard input. If FILE is
    omitted, standard input is read, unless it is a terminal. Several files are a table, with a line for each. Of Arrow
    and Parquet only headers are read, never the data; CSV and JSON are read completely.
    """
    inspect_file = partial(_inspect, source_format=source_format, max_piped_bytes=max_piped_bytes)
    inputs = [each for file in files for each in list_inputs(file)]
    if only_sizes:
        _show_sizes(list(map(inspect_file, inputs or [None])), as_json, show_all)
        return 0
    if len(inputs) > 1:
        return _show_files(inputs, inspect_file, as_json, show_all)
    report = inspect_file(inputs[0] if inputs else None)
    if as_json:
        echo_json(_to_document(report))
        return 0
    _show_report(report, show_all)
    return 0


def _file_command(example: str) -> Callable[[Callable[..., None]], click.Command]:
    def decorate(function: Callable[..., None]) -> click.Command:
        command = file_argument(from_option(max_piped_bytes_option(function)))
        return click.command(epilog=examples(example))(command)

    return decorate


@_file_command("bowstring schema flights.arrow")
def schema(file: str | None, source_format: str | None, max_piped_bytes: int) -> None:
    """Show the columns of a file and their types, a line for each.

    FILE is a path, a URL, a folder or a glob in quotes, or - for standard input.
    """
    with open_table(file, source_format, SourceOptions(max_piped_bytes=max_piped_bytes)) as table:
        for field in table.schema:
            click.echo(to_printable(f"{field.name}: {field.type}" + ("" if field.nullable else " not null")))


@_file_command("bowstring count flights.parquet")
def count(file: str | None, source_format: str | None, max_piped_bytes: int) -> None:
    """Write the number of rows of a file. CSV, JSON and streams are read completely.

    FILE is a path, a URL, a folder or a glob in quotes, or - for standard input.
    """
    with open_table(file, source_format, SourceOptions(max_piped_bytes=max_piped_bytes)) as table:
        rows = table.num_rows
        click.echo(sum(batch.num_rows for batch in table.batches) if rows is None else rows)


def _inspect(file: str | None, source_format: str | None, max_piped_bytes: int) -> _Report:
    with open_input(file, source_format) as source:
        if source.format == "arrow":
            return inspect(source.source, max_piped_bytes=max_piped_bytes)
        return inspect_table(source, SourceOptions(max_piped_bytes=max_piped_bytes))


def _to_document(report: _Report) -> dict[str, Any]:
    return to_document(report) if isinstance(report, Inspection) else report.to_document()


# Several files


def _show_files(
    files: Sequence[str | None], inspect_file: Callable[[str | None], _Report], as_json: bool, show_all: bool
) -> int:
    """Show a line for each file, and one for each that can't be read; return the exit status."""
    reports: list[_Report] = []
    documents: list[dict[str, Any]] = []
    for file in files:
        try:
            reports.append(inspect_file(file))
            documents.append(_to_document(reports[-1]))
        except BowstringError as error:
            documents.append({"source": source_name(file), "error": str(error)})
            click.echo(format_error(error), err=True)
    if as_json:
        echo_json({"files": documents})
    elif reports:
        titles = ("file", "format", "rows", "batches", "columns", "size", "compression")
        fit = None if show_all else ColumnFit(("file",), ("compression", "batches", "columns"))
        print_table(titles, list(map(_file_cells, reports)), ("rows", "batches", "columns", "size"), fit)
        schemas = {tuple((column.name, column.field.type) for column in report.columns) for report in reports}
        total_rows = format_count(sum(report.rows for report in reports), "row")
        total_bytes = format_size(sum(report.size_bytes or 0 for report in reports))
        same = "one schema" if len(schemas) == 1 else f"{len(schemas)} different schemas"
        click.echo(f"{format_count(len(reports), 'file')}: {total_rows}, {total_bytes}, {same}")
    return EXIT_FAILURE if len(reports) < len(files) else 0


def _file_cells(report: _Report) -> list[str]:
    return [
        to_printable(report.source),
        report.format_name,
        f"{report.rows:,}",
        "–" if report.num_batches is None else f"{report.num_batches:,}",
        f"{len(report.columns):,}",
        "–" if report.size_bytes is None else format_size(report.size_bytes),
        ", ".join(report.codecs) or "none",
    ]


# Columns


def _show_sizes(reports: Sequence[_Report], as_json: bool, show_all: bool) -> None:
    """Show the columns of all files, which have one schema, largest first."""
    if len({tuple(column.name for column in report.columns) for report in reports}) > 1:
        raise InvalidDataError("the files have different columns")
    columns = _add_sizes(reports)
    encodings = [_describe_encoding(column, reports[0]) for column in columns]
    if as_json:
        sizes = (
            sum(c.total_bytes for c in each.columns) if isinstance(each, TableReport) else each.bytes.buffers
            for each in reports
        )
        document = {"source": ", ".join(each.source for each in reports), "rows": sum(each.rows for each in reports)}
        documents = list(map(column_document, columns, encodings))
        echo_json({**document, "bytes": sum(sizes), "columns": documents})
        return
    limit = None if show_all else _SIZES_SHOWN
    rows = [
        [
            _printable_name(column.name, show_all),
            to_printable(column.field.type_without_children, None if show_all else _TYPE_CHARACTERS),
            encoding,
            f"{column.total_bytes:,}",
            format_size(column.total_bytes),
            format_percent(column.share),
        ]
        for column, encoding in zip(columns[:limit], encodings, strict=False)
    ]
    titles = ("column", "type", "encoding", "bytes", "size", "share")
    fit = None if show_all else ColumnFit(("column", "type"), ("bytes", "encoding"))
    print_table(titles, rows, titles[3:], fit)
    _show_hidden_count("columns", len(columns), limit, indent="")


def _add_sizes(reports: Sequence[_Report]) -> list[ColumnReport]:
    """Return the columns of several files, with the sums of their sizes, largest first."""
    total_bytes = sum(column.total_bytes for report in reports for column in report.columns)
    columns = []
    for same in zip(*(report.columns for report in reports), strict=True):
        nulls = [column.null_count for column in same]
        size_bytes = sum(column.total_bytes for column in same)
        null_count = None if None in nulls else sum(filter(None, nulls))
        share = fraction(size_bytes, total_bytes)
        columns.append(
            replace(same[0], buffer_bytes=size_bytes, dictionary_bytes=0, share=share, null_count=null_count)
        )
    return sorted(columns, key=lambda column: -column.total_bytes)


def _describe_encoding(column: ColumnReport, report: _Report) -> str:
    """Return the encoding of a column: plain, dictionary or run-end encoded, and the codecs of the bodies."""
    if isinstance(report, TableReport):
        return report.encodings[column.index]
    kind = column.field.type_without_children.partition("<")[0]
    is_plain = column.field.dictionary is None and not kind.startswith("run_end")
    return " + ".join(["plain" if is_plain else kind.replace("_", "-"), *report.codecs])


# One file


def _show_report(report: _Report, show_all: bool) -> None:
    size = report.size_bytes
    total = "" if size is None else f", {format_size(size)}" + (f" ({size:,} bytes)" if size >= 1024 else "")
    click.secho(f"{to_printable(report.source)}: {report.format_name}{total}", bold=True)
    click.echo()
    print_table(("", ""), list(report.properties()), fit=ColumnFit(wraps_last=True), indent=_INDENT)
    limit = None if show_all else _COLUMNS_SHOWN
    if isinstance(report, Inspection):
        _show_content_sizes(report)
    _show_columns(report, limit)
    if isinstance(report, Inspection) and report.dictionaries:
        _show_dictionaries(report, limit)
    _show_schema(report, show_all)
    for title, pairs in (("Schema metadata", report.schema_metadata), ("Footer metadata", report.footer_metadata)):
        if pairs:
            _show_metadata(title, pairs, show_all)


def _show_title(title: str) -> None:
    click.echo()
    click.secho(title, bold=True)


def _show_hidden_count(what: str, count: int, limit: int | None, indent: str = _INDENT) -> None:
    if limit is not None and count > limit:
        click.secho(f"{indent}… and {count - limit:,} more {what} (--all shows them)", dim=True)


def _show_content_sizes(inspection: Inspection) -> None:
    sizes = inspection.bytes
    rows = [("buffers", sizes.buffers), ("padding", sizes.padding), ("metadata", sizes.metadata_bytes)]
    rows += [("other", sizes.other)] if sizes.other else []
    titles = ("", "size", "bytes", "share")
    cells = [(name, format_size(size), f"{size:,}", format_percent(fraction(size, sizes.total))) for name, size in rows]
    _show_title("Size by content")
    print_table(titles, cells, titles[1:], indent=_INDENT)


def _show_columns(report: _Report, limit: int | None) -> None:
    titles = ("column", "type", "nulls", "size (compressed)" if report.codecs else "size", "share")
    rows = [
        [
            _printable_name(column.name, limit is None),
            to_printable(column.field.type_without_children, None if limit is None else _TYPE_CHARACTERS),
            "–" if column.null_count is None else f"{column.null_count:,}",
            format_size(column.total_bytes),
            format_percent(column.share),
        ]
        for column in report.columns_by_size()[:limit]
    ]
    fit = None if limit is None else ColumnFit(("column", "type"), ("type", "nulls"))
    _show_title("Columns by size")
    print_table(titles, rows, titles[2:], fit, indent=_INDENT)
    _show_hidden_count("columns", len(report.columns), limit)


def _show_dictionaries(inspection: Inspection, limit: int | None) -> None:
    rows = []
    for dictionary in inspection.dictionaries[:limit]:
        names = [_printable_name(inspection.columns[i].name, limit is None) for i in dictionary.columns[:limit]]
        more = len(dictionary.columns) - len(names)
        rows.append(
            (
                str(dictionary.id),
                to_printable(dictionary.value_type, _TYPE_CHARACTERS),
                f"{dictionary.values:,}",
                f"{dictionary.batches:,}",
                format_size(dictionary.total_bytes),
                ", ".join(names) + (f" and {more:,} more" if more else ""),
            )
        )
    fit = None if limit is None else ColumnFit(("values", "used by"), ("batches", "values"))
    _show_title("Dictionaries")
    titles = ("id", "values", "count", "batches", "size", "used by")
    print_table(titles, rows, ("id", "count", "batches", "size"), fit, indent=_INDENT)
    _show_hidden_count("dictionaries", len(inspection.dictionaries), limit)


def _show_schema(report: _Report, show_all: bool) -> None:
    rows: list[tuple[str, str, str]] = []
    column_count = 0
    for column in report.columns:
        if not show_all and (column_count == _COLUMNS_SHOWN or len(rows) >= _FIELDS_SHOWN):
            break
        column_count += 1
        for depth, field in _walk_fields(column.field, 0):
            if not show_all and len(rows) >= _FIELDS_SHOWN:
                rows.append(("  " * depth + "…", "", ""))
                break
            rows.append(_field_cells(depth, field, show_all))
    _show_title("Schema")
    fit = None if show_all else ColumnFit(("field", "type"), wraps_last=True)
    print_table(("field", "type", ""), rows, fit=fit, indent=_INDENT)
    _show_hidden_count("columns", len(report.columns), column_count)


def _printable_name(name: str, show_all: bool) -> str:
    return to_printable(name, None if show_all else _NAME_CHARACTERS) or "(no name)"


def _walk_fields(field: SchemaFieldReport, depth: int) -> Iterator[tuple[int, SchemaFieldReport]]:
    yield depth, field
    for child in field.children:
        yield from _walk_fields(child, depth + 1)


def _field_cells(depth: int, field: SchemaFieldReport, show_all: bool) -> tuple[str, str, str]:
    notes = [] if field.nullable else ["not null"]
    if field.dictionary is not None:
        notes.append(f"dictionary {field.dictionary.id}")
    if field.extension is not None:
        notes.append(f"extension {to_printable(field.extension, _NAME_CHARACTERS)}")
    metadata = [pair for pair in field.metadata if pair[0] != NAME_KEY]
    pairs = metadata if show_all else metadata[:3]
    max_characters = None if show_all else _NAME_CHARACTERS // 2
    notes += [
        f"{bytes_to_printable(key, max_characters)}={bytes_to_printable(value, max_characters)}" for key, value in pairs
    ]
    if len(metadata) > len(pairs):
        notes.append(f"and {len(metadata) - len(pairs):,} more")
    return (
        "  " * depth + _printable_name(field.name, show_all),
        to_printable(field.type_without_children, None if show_all else _TYPE_CHARACTERS),
        ", ".join(notes),
    )


def _show_metadata(title: str, pairs: Metadata, show_all: bool) -> None:
    _show_title(title)
    if show_all:  # values can be too long for a table
        for key, value in pairs:
            click.echo(f"{_INDENT}{bytes_to_printable(key)}  {bytes_to_printable(value)}")
        return
    rows = [
        (bytes_to_printable(key, _NAME_CHARACTERS), bytes_to_printable(value, _VALUE_CHARACTERS))
        for key, value in pairs[:_PAIRS_SHOWN]
    ]
    print_table(("key", "value"), rows, fit=ColumnFit(("key",), wraps_last=True), indent=_INDENT)
    _show_hidden_count("entries", len(pairs), _PAIRS_SHOWN)

"""`bowstring info`: show the contents of an Arrow file or stream, as tables or as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import click
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bowstring.cli.input_output import echo_json, resolve_source
from bowstring.cli.options import all_option, file_argument, json_option, max_piped_bytes_option
from bowstring.cli.terminal_tables import borderless_table, open_console
from bowstring.datatypes.extension import NAME_KEY
from bowstring.datatypes.field import Metadata
from bowstring.inspection.json_document import to_document
from bowstring.inspection.printable_text import bytes_to_printable, format_percent, format_size, fraction, to_printable
from bowstring.inspection.report import Inspection, SchemaFieldReport
from bowstring.inspection.report_builder import inspect

_COLUMNS_SHOWN = 20
_FIELDS_SHOWN = 40
_PAIRS_SHOWN = 10
_NAME_CHARACTERS = 60
_TYPE_CHARACTERS = 60
_VALUE_CHARACTERS = 100


@click.command()
@file_argument
@json_option("Write everything as JSON, sizes in bytes.")
@all_option("Show all columns and all metadata, without truncation.")
@max_piped_bytes_option
def info(file: str | None, *, as_json: bool, show_all: bool, max_piped_bytes: int) -> None:
    """Show the contents of an Arrow file or stream: schema, batches, column sizes, compression, alignment, metadata.

    FILE is a path or URL, or - for standard input. If FILE is omitted, standard input is read, unless it is a
    terminal. Only headers are read, never the data.
    """
    inspection = inspect(resolve_source(file), max_piped_bytes=max_piped_bytes)
    if as_json:
        echo_json(to_document(inspection))
        return
    with open_console() as console:
        _show_inspection(console, inspection, show_all)


def _show_inspection(console: Console, inspection: Inspection, show_all: bool) -> None:
    size = inspection.bytes.total
    total = f"{format_size(size)} ({size:,} bytes)" if size >= 1024 else format_size(size)
    console.print(
        Text(f"{to_printable(inspection.source)}: Arrow {inspection.format}, {total}", style="bold"), soft_wrap=True
    )
    _print_section(console, None, _properties_table(inspection))
    _print_section(console, "Size by content", _content_sizes_table(inspection))
    limit = None if show_all else _COLUMNS_SHOWN
    _print_section(
        console,
        "Columns by size",
        _columns_table(inspection, limit),
        _hidden_note("columns", len(inspection.columns), limit),
    )
    if inspection.dictionaries:
        _print_section(
            console,
            "Dictionaries",
            _dictionaries_table(inspection, limit),
            _hidden_note("dictionaries", len(inspection.dictionaries), limit),
        )
    _print_schema(console, inspection, show_all)
    for title, pairs in (
        ("Schema metadata", inspection.schema_metadata),
        ("Footer metadata", inspection.footer_metadata),
    ):
        if pairs:
            _print_metadata(console, title, pairs, show_all)


def _print_section(console: Console, title: str | None, table: Table, note: str | None = None) -> None:
    console.print()
    if title is not None:
        console.print(Text(title, style="bold"))
    console.print(table)
    if note is not None:
        console.print(Text(f"  {note}", style="dim"))


def _indented_table(
    titles: Sequence[tuple[str, bool]], rows: Iterable[Sequence[str]], has_header: bool = True
) -> Table:
    """Return an indented table; each column has a title and a flag for numbers, which are never truncated."""
    table = borderless_table(*titles, is_folded=True, has_header=has_header)
    for row in rows:
        table.add_row(*map(Text, row))
    for column, (_, is_number) in zip(table.columns, titles, strict=True):
        if is_number:
            column.min_width = max((cell_len(str(cell)) for cell in column.cells), default=0)
    return table


def _hidden_note(what: str, count: int, limit: int | None) -> str | None:
    return None if limit is None or count <= limit else f"… and {count - limit:,} more {what} (--all shows them)"


def _properties_table(inspection: Inspection) -> Table:
    rows = list(inspection.properties())
    table = _indented_table([("", False), ("", False)], rows, has_header=False)
    table.columns[0].no_wrap, table.columns[0].min_width = True, max(len(name) for name, _ in rows)
    return table


def _content_sizes_table(inspection: Inspection) -> Table:
    sizes = inspection.bytes
    names = ["buffers", "padding", "metadata", *(["other"] if sizes.other else [])]
    rows = [(name, getattr(sizes, name)) for name in names]
    return _indented_table(
        [("", False), ("size", True), ("bytes", True), ("share", True)],
        [(name, format_size(size), f"{size:,}", format_percent(fraction(size, sizes.total))) for name, size in rows],
    )


def _columns_table(inspection: Inspection, limit: int | None) -> Table:
    compressed = " (compressed)" if inspection.encoding.codecs else ""
    return _indented_table(
        [("column", False), ("type", False), ("nulls", True), (f"size{compressed}", True), ("share", True)],
        [
            (
                _printable_name(column.name, limit is None),
                to_printable(column.field.type_without_children, None if limit is None else _TYPE_CHARACTERS),
                f"{column.null_count:,}",
                format_size(column.total_bytes),
                format_percent(column.share),
            )
            for column in inspection.columns_by_size()[:limit]
        ],
    )


def _dictionaries_table(inspection: Inspection, limit: int | None) -> Table:
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
    titles = [("id", True), ("values", False), ("count", True), ("batches", True), ("size", True), ("used by", False)]
    return _indented_table(titles, rows)


def _print_schema(console: Console, inspection: Inspection, show_all: bool) -> None:
    rows: list[tuple[str, str, str]] = []
    column_count = 0
    for column in inspection.columns:
        if not show_all and (column_count == _COLUMNS_SHOWN or len(rows) >= _FIELDS_SHOWN):
            break
        column_count += 1
        for depth, field in _walk_fields(column.field, 0):
            if not show_all and len(rows) >= _FIELDS_SHOWN:
                rows.append(("  " * depth + "…", "", ""))
                break
            rows.append(_field_cells(depth, field, show_all))
    table = _indented_table([("field", False), ("type", False), ("", False)], rows)
    _print_section(console, "Schema", table, _hidden_note("columns", len(inspection.columns), column_count))


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


def _print_metadata(console: Console, title: str, pairs: Metadata, show_all: bool) -> None:
    if not show_all:
        rows = [
            (bytes_to_printable(key, _NAME_CHARACTERS), bytes_to_printable(value, _VALUE_CHARACTERS))
            for key, value in pairs[:_PAIRS_SHOWN]
        ]
        table = _indented_table([("key", False), ("value", False)], rows)
        _print_section(console, title, table, _hidden_note("entries", len(pairs), _PAIRS_SHOWN))
        return
    console.print()
    console.print(Text(title, style="bold"))
    for key, value in pairs:  # values can be too long for a table
        console.print(Text(f"  {bytes_to_printable(key)}  {bytes_to_printable(value)}"), soft_wrap=True)

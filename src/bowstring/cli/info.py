"""`bowstring info`: show what is in an Arrow file or stream, as tables or as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bowstring.cli.input_output import PATH, max_piped_option, resolve_source
from bowstring.cli.tables import open_console, plain_table
from bowstring.datatypes.extension import NAME_KEY
from bowstring.datatypes.field import Metadata
from bowstring.inspection.inspector import inspect
from bowstring.inspection.json_document import to_document
from bowstring.inspection.report import FieldReport, Inspection
from bowstring.inspection.text import human_bytes, percent, printable, printable_bytes, share_of

_COLUMNS_SHOWN = 20
_FIELDS_SHOWN = 40
_PAIRS_SHOWN = 10
_NAME_CHARACTERS = 60
_TYPE_CHARACTERS = 60
_VALUE_CHARACTERS = 100


@click.command()
@click.argument("file", required=False, type=PATH)
@click.option("--json", "as_json", is_flag=True, help="Write everything as JSON, sizes in bytes.")
@click.option("--all", "show_all", is_flag=True, help="Show all columns and all metadata, without truncation.")
@max_piped_option
def info(file: str | None, *, as_json: bool, show_all: bool, max_piped_bytes: int) -> None:
    """Show what is in an Arrow file or stream: schema, batches, bytes per column, compression, alignment, metadata.

    FILE is a path, a URL, or - for standard input, which is also read if FILE is omitted and input is piped. Only
    headers are read, never the data.
    """
    inspection = inspect(resolve_source(file), max_piped_bytes=max_piped_bytes)
    if as_json:
        click.echo(json.dumps(to_document(inspection), indent=2))
        return
    with open_console() as console:
        _write(console, inspection, show_all)


def _write(console: Console, inspection: Inspection, show_all: bool) -> None:
    size = inspection.bytes.total
    total = f"{human_bytes(size)} ({size:,} bytes)" if size >= 1024 else human_bytes(size)
    console.print(
        Text(f"{printable(inspection.source)}: Arrow {inspection.format}, {total}", style="bold"), soft_wrap=True
    )
    _section(console, None, _facts(inspection))
    _section(console, "Size by content", _places(inspection))
    limit = None if show_all else _COLUMNS_SHOWN
    _section(console, "Columns by size", _columns(inspection, limit), _more("columns", len(inspection.columns), limit))
    if inspection.dictionaries:
        _section(
            console,
            "Dictionaries",
            _dictionaries(inspection, limit),
            _more("dictionaries", len(inspection.dictionaries), limit),
        )
    _schema(console, inspection, show_all)
    for title, pairs in (
        ("Schema metadata", inspection.schema_metadata),
        ("Footer metadata", inspection.footer_metadata),
    ):
        if pairs:
            _metadata(console, title, pairs, show_all)


def _section(console: Console, title: str | None, table: Table, note: str | None = None) -> None:
    console.print()
    if title is not None:
        console.print(Text(title, style="bold"))
    console.print(table)
    if note is not None:
        console.print(Text(f"  {note}", style="dim"))


def _table(*columns: tuple[str, bool], header: bool = True) -> Table:
    return plain_table(*columns, folds=True, header=header)


def _row(table: Table, *cells: str) -> None:
    table.add_row(*map(Text, cells))
    for column, cell in zip(table.columns, cells, strict=True):
        if column.no_wrap:
            column.min_width = max(column.min_width or 0, len(cell))


def _more(what: str, count: int, limit: int | None) -> str | None:
    return None if limit is None or count <= limit else f"… and {count - limit:,} more {what} (--all shows them)"


def _count(number: int, what: str, plural: str | None = None) -> str:
    return f"{number:,} {what if number == 1 else plural or what + 's'}"


def _facts(inspection: Inspection) -> Table:
    table = _table(("", False), ("", False), header=False)
    table.columns[0].no_wrap = True
    for name, fact in _fact_lines(inspection):
        _row(table, name, fact)
    return table


def _fact_lines(inspection: Inspection) -> Iterator[tuple[str, str]]:
    batches, encoding = inspection.batches, inspection.encoding
    yield "rows", f"{inspection.rows:,} in {_count(batches.count, 'record batch', 'record batches')}"
    if batches.count > 1:
        yield "rows per batch", f"{batches.rows_min:,} to {batches.rows_max:,}, median {batches.rows_median:,.10g}"
    if batches.with_metadata:
        yield "batch metadata", f"on {_count(batches.with_metadata, 'record batch', 'record batches')}"
    if inspection.dictionaries:
        deltas = f", {_count(inspection.delta_batches, 'delta')} among them" if inspection.delta_batches else ""
        count = _count(inspection.dictionary_batches, "dictionary batch", "dictionary batches")
        yield "dictionaries", f"{len(inspection.dictionaries):,}, in {count}{deltas}"
    batch_count = batches.count + inspection.dictionary_batches
    codecs = ", ".join(encoding.codecs)
    yield "compression", f"{codecs} ({encoding.compressed_batches:,} of {batch_count:,} batches)" if codecs else "none"
    yield "alignment", "–" if encoding.alignment_bytes is None else _count(encoding.alignment_bytes, "byte")
    yield "endianness", encoding.endianness
    framing = ", legacy framing (before 0.15)" if encoding.legacy_framing else ""
    yield "metadata version", encoding.metadata_version + framing
    if encoding.end_marker is False:
        yield "end of stream", "no end marker"
    if encoding.features:
        yield "features", ", ".join(encoding.features)


def _places(inspection: Inspection) -> Table:
    sizes = inspection.bytes
    table = _table(("", False), ("size", True), ("bytes", True), ("share", True))
    for name, size in (
        ("buffers", sizes.buffers),
        ("padding", sizes.padding),
        ("metadata", sizes.metadata),
        ("other", sizes.other),
    ):
        if size or name != "other":
            _row(table, name, human_bytes(size), f"{size:,}", percent(share_of(size, sizes.total)))
    return table


def _columns(inspection: Inspection, limit: int | None) -> Table:
    compressed = " (compressed)" if inspection.encoding.codecs else ""
    table = _table(("column", False), ("type", False), ("nulls", True), (f"size{compressed}", True), ("share", True))
    for column in inspection.columns_by_size()[:limit]:
        _row(
            table,
            _name(column.name, limit is None),
            printable(column.field.head, None if limit is None else _TYPE_CHARACTERS),
            f"{column.null_count:,}",
            human_bytes(column.total_bytes),
            percent(column.share),
        )
    return table


def _dictionaries(inspection: Inspection, limit: int | None) -> Table:
    table = _table(
        ("id", True), ("values", False), ("count", True), ("batches", True), ("size", True), ("used by", False)
    )
    for dictionary in inspection.dictionaries[:limit]:
        names = [_name(inspection.columns[i].name, limit is None) for i in dictionary.columns[:limit]]
        more = len(dictionary.columns) - len(names)
        _row(
            table,
            str(dictionary.id),
            printable(dictionary.value_type, _TYPE_CHARACTERS),
            f"{dictionary.values:,}",
            f"{dictionary.batches:,}",
            human_bytes(dictionary.total_bytes),
            ", ".join(names) + (f" and {more:,} more" if more else ""),
        )
    return table


def _schema(console: Console, inspection: Inspection, show_all: bool) -> None:
    table = _table(("field", False), ("type", False), ("", False))
    column_count, field_count = 0, 0
    for column in inspection.columns:
        if not show_all and (column_count == _COLUMNS_SHOWN or field_count >= _FIELDS_SHOWN):
            break
        column_count += 1
        for depth, field in _walk(column.field, 0):
            field_count += 1
            if not show_all and field_count > _FIELDS_SHOWN:
                _row(table, "  " * depth + "…", "", "")
                break
            _row(table, *_field_cells(depth, field, show_all))
    _section(console, "Schema", table, _more("columns", len(inspection.columns), column_count))


def _name(name: str, whole: bool) -> str:
    return printable(name, None if whole else _NAME_CHARACTERS) or "(no name)"


def _walk(field: FieldReport, depth: int) -> Iterator[tuple[int, FieldReport]]:
    yield depth, field
    for child in field.children:
        yield from _walk(child, depth + 1)


def _field_cells(depth: int, field: FieldReport, show_all: bool) -> tuple[str, str, str]:
    notes = [] if field.nullable else ["not null"]
    if field.dictionary is not None:
        notes.append(f"dictionary {field.dictionary.id}")
    if field.extension is not None:
        notes.append(f"extension {printable(field.extension, _NAME_CHARACTERS)}")
    metadata = [pair for pair in field.metadata if pair[0] != NAME_KEY]
    pairs = metadata if show_all else metadata[:3]
    cut = None if show_all else _NAME_CHARACTERS // 2
    notes += [f"{printable_bytes(key, cut)}={printable_bytes(value, cut)}" for key, value in pairs]
    if len(metadata) > len(pairs):
        notes.append(f"and {len(metadata) - len(pairs):,} more")
    return (
        "  " * depth + _name(field.name, show_all),
        printable(field.head, None if show_all else _TYPE_CHARACTERS),
        ", ".join(notes),
    )


def _metadata(console: Console, title: str, pairs: Metadata, show_all: bool) -> None:
    if not show_all:
        table = _table(("key", False), ("value", False))
        for key, value in pairs[:_PAIRS_SHOWN]:
            _row(table, printable_bytes(key, _NAME_CHARACTERS), printable_bytes(value, _VALUE_CHARACTERS))
        _section(console, title, table, _more("entries", len(pairs), _PAIRS_SHOWN))
        return
    console.print()
    console.print(Text(title, style="bold"))
    for key, value in pairs:  # values can be too long for a table
        console.print(Text(f"  {printable_bytes(key)}  {printable_bytes(value)}"), soft_wrap=True)

"""Objects other than tables: the `repr` of options without the defaults; reports, schemas and sources as HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from bowstring.display.printable_text import bytes_to_printable
from bowstring.display.tables import to_html_table
from bowstring.errors import BowstringError


def repr_options(options: Any) -> str:
    """Return the `repr` of options: the class, and the fields that differ from their defaults."""
    # The `repr` of a dataclass has all fields, in each signature that `help` prints.
    changed = []
    for field in fields(options):
        value = getattr(options, field.name)
        default = field.default if field.default_factory is MISSING else field.default_factory()
        if field.repr and (default is MISSING or value != default):
            changed.append(f"{field.name}={value!r}")
    return f"{type(options).__qualname__}({', '.join(changed)})"


def report_to_html(report: Any) -> str:
    """Return a dataclass as an HTML table of names and values, and below it a table of each sequence of dataclasses."""
    rows, tables = [], []
    for field in (field for field in fields(report) if field.repr):
        value = getattr(report, field.name)
        if _are_dataclasses(value):
            titles = [column.name for column in fields(value[0]) if column.repr]
            cells = ([_format(getattr(element, title)) for title in titles] for element in value)
            tables.append(to_html_table(field.name, titles, cells))
        else:
            rows.append((field.name, _format(value)))
    return "".join([to_html_table(type(report).__name__, ("", ""), rows), *tables])


def _are_dataclasses(value: Any) -> bool:
    return isinstance(value, Sequence) and len(value) > 0 and all(map(is_dataclass, value))


def _format(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return ", ".join(map(_format, value)) or "none"
    return str(value)


def source_to_html(source: Any) -> str:
    """Return the first line of the `repr` of a reader or a handle and its schema as an HTML table.

    A schema that can't be read, for example from a closed handle, is left out.
    """
    caption = repr(source).partition("\n")[0].removeprefix("<").removesuffix(">")
    try:
        return schema_to_html(source.schema, caption)
    except BowstringError:
        return to_html_table(caption, (), ())


def schema_to_html(schema: Any, caption: str) -> str:
    """Return the fields of a schema as an HTML table: name, type, nullability and the custom metadata."""
    titles = ("column", "type", "nullable", "metadata")
    rows = (
        (field.name, str(field.type), "yes" if field.nullable else "no", _format_pairs(field.pairs))
        for field in schema.fields
    )
    return to_html_table(caption, titles, rows)


def _format_pairs(pairs: Sequence[tuple[bytes, bytes]]) -> str:
    return ", ".join(f"{bytes_to_printable(key, 40)}: {bytes_to_printable(value, 40)}" for key, value in pairs)

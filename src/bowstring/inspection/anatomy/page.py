"""`build_anatomy_page`: the anatomy as one self-contained HTML page.

The template escapes text from the file; the page's script inserts it as text, never as HTML. The content security
policy of the page allows no requests and no other scripts.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from bowstring.display.printable_text import bytes_to_printable, format_percent, format_size, fraction, to_printable
from bowstring.errors import format_count, require_package
from bowstring.inspection.anatomy.builder import (
    MAX_SECTIONS,
    build_anatomy_from_source,
    list_all_faults,
    open_seekable,
)
from bowstring.inspection.anatomy.encoder import PageLimits, encode_anatomy
from bowstring.inspection.anatomy.model import Anatomy, ByteRangeKind
from bowstring.inspection.report import ColumnReport
from bowstring.io.memory_source import MemorySource
from bowstring.ipc.format_detection import MAX_PIPED_BYTES
from bowstring.ipc.limits import DEFAULT_LIMITS, ReadLimits

if TYPE_CHECKING:
    from jinja2 import Template

EXTRA = "anatomy"
DEFAULT_PAGE_LIMITS = PageLimits()
# What the page lists as text, besides the map of everything.
_NAME_CHARACTERS = 120
_COLUMNS_SHOWN = 200
_FAULTS_SHOWN = 10
_CONTENT_SECURITY_POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'"
_SCRIPTS = ("data.js", "glossary.js", "drawing.js", "selection.js", "panel.js", "values.js", "pointer.js")
_ROLES = ("validity", "offsets", "sizes", "type ids", "views", "data", "indices")


def build_anatomy_page(
    source: Any,
    name: str | None = None,
    limits: ReadLimits = DEFAULT_LIMITS,
    max_piped_bytes: int = MAX_PIPED_BYTES,
    page_limits: PageLimits = DEFAULT_PAGE_LIMITS,
    report_progress: Callable[[int, int | None], None] | None = None,
) -> str:
    """Draw an Arrow file or stream to scale; return the text of one self-contained HTML page.

    See `build_page_and_count_faults`.

    >>> with bs.new_file("numbers.arrow", {"n": "int64"}) as writer:
    ...     writer.write(bs.record_batch({"n": [1, 2]}))
    >>> page = "".join(bs.inspection.build_anatomy_page("numbers.arrow"))
    >>> page[:15]
    '<!doctype html>'
    """
    return build_page_and_count_faults(source, name, limits, max_piped_bytes, page_limits, report_progress)[0]


def build_page_and_count_faults(  # noqa: PLR0913 - the parameters of `build_anatomy_page`, and one more
    source: Any,
    name: str | None = None,
    limits: ReadLimits = DEFAULT_LIMITS,
    max_piped_bytes: int = MAX_PIPED_BYTES,
    page_limits: PageLimits = DEFAULT_PAGE_LIMITS,
    report_progress: Callable[[int, int | None], None] | None = None,
    full: bool = True,
) -> tuple[str, int]:
    """Return the page of a file or stream, and the number of errors.

    `source`, `limits`, `max_piped_bytes` and the errors are as in `build_anatomy`; `name` is the page's name for the
    source. The page contains the offset of every message, buffer and padding byte, and a limited part of the data (see
    `PageLimits`): its size depends on the number of buffers, not on the size of the file. `report_progress` gets the
    numbers of done and of all bytes. The errors are those of `Validator`, with `full` also in values; of a URL,
    whose bodies are not fetched, only errors in the structure.

    Raises `MissingExtraError` if jinja2 is not installed.
    """
    template = _load_template()
    opened, is_file = open_seekable(source, max_piped_bytes)
    try:
        anatomy = build_anatomy_from_source(opened, is_file, limits, MAX_SECTIONS, report_progress)
        is_validated = full and isinstance(opened, MemorySource)
        if isinstance(opened, MemorySource):
            anatomy = list_all_faults(anatomy, opened, limits, full)
        title = to_printable(anatomy.source if name is None else name, _NAME_CHARACTERS)
        data = encode_anatomy(anatomy, opened, title, page_limits)
    finally:
        opened.close()
    style, script = _read_asset("page.css"), "\n".join(map(_read_asset, _SCRIPTS))
    inspection = anatomy.inspection
    columns = [] if inspection is None else inspection.columns_by_size()[:_COLUMNS_SHOWN]
    max_bytes = max((column.total_bytes for column in columns), default=0) or 1
    html = template.render(
        title=title,
        style=style,
        script=script,
        policy=f"{_CONTENT_SECURITY_POLICY}; style-src {hash_content(style)}; script-src {hash_content(script)}",
        data=data,
        anatomy=anatomy,
        inspection=inspection,
        summary=_summary_text(anatomy),
        properties=[*_properties(anatomy), *([] if is_validated else [("values", "not validated")])],
        faults=sorted(anatomy.faults, key=lambda fault: fault.offset)[:_FAULTS_SHOWN],
        columns=[(column, _column_bars(column, anatomy, max_bytes)) for column in columns],
    )
    return html, anatomy.fault_count


@cache
def _load_template() -> Template:
    with require_package("jinja2", EXTRA):
        from jinja2 import Environment, StrictUndefined
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        "human": format_size,
        "percent": format_percent,
        "printable": to_printable,
        "printable_bytes": bytes_to_printable,
        "count": lambda n: f"{n:,}",
        "slug": lambda t: t.replace(" ", "-"),
    }
    return environment.from_string(_read_asset("page.html.jinja"))


@cache
def _read_asset(name: str) -> str:
    return files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


def hash_content(text: str) -> str:
    """Return the source expression by which a content security policy permits a script or style of this text."""
    return f"'sha256-{b64encode(sha256(text.encode('utf-8')).digest()).decode('ascii')}'"


def _summary_text(anatomy: Anatomy) -> str:
    size, inspection = format_size(anatomy.total_bytes), anatomy.inspection
    source = f"{'A damaged' if anatomy.fault_count else 'An'} Arrow {anatomy.format} of {size}"
    if inspection is None:
        return f"{source} without a readable schema."
    batches, columns = inspection.batches.count, format_count(len(inspection.columns), "column")
    rows = f"{format_count(inspection.rows, 'row')} in {format_count(batches, 'record batch')}"
    if anatomy.is_shortened:
        return f"{source}, of which {rows} are drawn; {columns}."
    return f"{source}: {rows}, {columns}."


def _properties(anatomy: Anatomy) -> Iterator[tuple[str, str]]:
    yield "size", format_size(anatomy.total_bytes)
    if anatomy.inspection is None:
        yield "format", anatomy.format
        return
    yield from anatomy.inspection.properties()
    padding = sum(
        int(section.byte_ranges.lengths_bytes[section.byte_ranges.kinds == ByteRangeKind.PADDING].sum())
        for section in anatomy.sections
    )
    yield "padding", format_percent(fraction(padding, anatomy.total_bytes))


def _column_bars(column: ColumnReport, anatomy: Anatomy, max_bytes: int) -> list[tuple[str, float, float]]:
    """Return role, position and width of each bar of a column, in percent of the largest column."""
    sizes = [(role, anatomy.role_bytes.get((column.index, role), 0)) for role in _ROLES]
    bars, offset = [], 0.0
    for role, size in [*sizes, ("dictionary", column.dictionary_bytes)]:
        if size:
            width = 100 * size / max_bytes
            bars.append((role, round(offset, 3), round(width, 3)))
            offset += width
    return bars

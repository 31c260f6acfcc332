"""`anatomy_page`: the anatomy as one HTML page that needs nothing but itself.

The template escapes what comes from the file; the rest is data that the page's script puts in as text, never as HTML.
The page's own policy lets nothing be fetched, and no script run but its own.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from bowstring.datatypes.field import Metadata
from bowstring.errors import MissingExtraError
from bowstring.inspection.anatomy.builder import MAX_PARTS, dissect, open_random_access
from bowstring.inspection.anatomy.encoder import PageLimits, encode_anatomy
from bowstring.inspection.anatomy.model import Anatomy, Leaf, Segment
from bowstring.inspection.anatomy.value_errors import with_value_errors
from bowstring.inspection.report import ColumnReport, FieldReport, Inspection
from bowstring.inspection.text import human_bytes, percent, printable, printable_bytes, share_of
from bowstring.io.memory_source import MemorySource
from bowstring.ipc.format_detection import MAX_PIPED_BYTES
from bowstring.ipc.limits import DEFAULT_LIMITS, ReadLimits

if TYPE_CHECKING:
    from jinja2 import Template

EXTRA = "anatomy"
DEFAULT_PAGE_LIMITS = PageLimits()
_NAME_CHARACTERS = 120
_TYPE_CHARACTERS = 200
_VALUE_CHARACTERS = 400
_COLUMNS_SHOWN = 200
_FIELDS_SHOWN = 500
_PAIRS_SHOWN = 20
_DAMAGES_SHOWN = 10
_POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'"
_SCRIPTS = ("data.js", "glossary.js", "drawing.js", "selection.js", "panel.js", "values.js", "pointer.js")
_ROLES = ("validity", "offsets", "sizes", "type ids", "views", "data", "indices")


def anatomy_page(
    source: Any,
    name: str | None = None,
    limits: ReadLimits = DEFAULT_LIMITS,
    max_piped_bytes: int = MAX_PIPED_BYTES,
    page_limits: PageLimits = DEFAULT_PAGE_LIMITS,
    advance: Callable[[int, int | None], None] | None = None,
) -> str:
    """An Arrow file or stream drawn to scale, as the text of one HTML page that fetches nothing; see `render_page`."""
    return render_page(source, name, limits, max_piped_bytes, page_limits, advance)[0]


def render_page(  # noqa: PLR0913 -- as `anatomy_page`
    source: Any,
    name: str | None = None,
    limits: ReadLimits = DEFAULT_LIMITS,
    max_piped_bytes: int = MAX_PIPED_BYTES,
    page_limits: PageLimits = DEFAULT_PAGE_LIMITS,
    advance: Callable[[int, int | None], None] | None = None,
    full: bool = True,
) -> tuple[str, int]:
    """The page of a file or stream, and how many errors it lists.

    `source`, `limits` and `max_piped_bytes` are what `bowstring.anatomy` takes, and so are the errors; `name` is what
    the page calls the source. The page carries the place of every message, buffer and padding byte, and of the data
    itself a bounded part (see `PageLimits`): it grows with the number of buffers, not with the size of the file.
    `advance(done, of)` is called as messages are gone through. With `full` every value is validated, unless the source
    is a URL, of which bodies are not fetched.

    Raises `MissingExtraError` where jinja2 is not installed.
    """
    template = _template()
    opened, is_file = open_random_access(source, max_piped_bytes)
    try:
        anatomy = dissect(opened, is_file, limits, MAX_PARTS, advance)
        is_validated = full and isinstance(opened, MemorySource)
        if full and isinstance(opened, MemorySource):
            anatomy = with_value_errors(anatomy, opened, limits)
        title = printable(anatomy.source if name is None else name, _NAME_CHARACTERS)
        data = encode_anatomy(anatomy, opened, title, page_limits)
    finally:
        opened.close()
    style, script = _asset("page.css"), "\n".join(map(_asset, _SCRIPTS))
    html = template.render(
        title=title,
        form=anatomy.format,
        style=style,
        script=script,
        policy=f"{_POLICY}; style-src {_hash(style)}; script-src {_hash(script)}",
        data=data,
        summary=_summary(anatomy),
        facts=[*_facts(anatomy), *([] if is_validated else [("Values", "not validated")])],
        damages=[
            (d.at, printable(d.message, _VALUE_CHARACTERS))
            for d in sorted(anatomy.damages, key=lambda d: d.at)[:_DAMAGES_SHOWN]
        ],
        damage_count=anatomy.damage_count,
        is_shortened=anatomy.is_shortened,
        columns=_columns(anatomy),
        column_count=0 if anatomy.inspection is None else len(anatomy.inspection.columns),
        roles=_ROLES,
        schema=_schema(anatomy.inspection),
        pairs=_pairs(anatomy.inspection),
    )
    return html, anatomy.damage_count


@cache
def _template() -> Template:
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError:
        raise MissingExtraError.of("jinja2", EXTRA) from None
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        "human": human_bytes,
        "percent": percent,
        "count": lambda n: f"{n:,}",
        "slug": lambda t: t.replace(" ", "-"),
    }
    return environment.from_string(_asset("page.html.jinja"))


@cache
def _asset(name: str) -> str:
    return files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode('utf-8')).digest()).decode('ascii')}'"


@dataclass(frozen=True, slots=True)
class Row:
    """A column of the table: `shares` are position and width of each role's bar, in percent of the largest column."""

    index: int
    name: str
    type: str
    nulls: int
    total_bytes: int
    share: float
    shares: tuple[tuple[str, float, float], ...]


def _summary(anatomy: Anatomy) -> str:
    size, inspection = human_bytes(anatomy.total_bytes), anatomy.inspection
    article = "A damaged" if anatomy.damage_count else "An"
    if inspection is None:
        tensors = sum(part.kind in (Segment.TENSOR, Segment.SPARSE_TENSOR) for part in anatomy.parts)
        if tensors:
            return f"{article} Arrow {anatomy.format} of {size} with {_plural(tensors, 'tensor')}."
        return f"{article} Arrow {anatomy.format} of {size}, of which no schema can be read."
    batches, columns = _plural(inspection.batches.count, "record batch"), _plural(len(inspection.columns), "column")
    rows, what = _plural(inspection.rows, "row"), f"{article} Arrow {anatomy.format} of {size}"
    if anatomy.is_shortened:
        return f"{what}, of which {rows} in {batches} are drawn; {columns}."
    return f"{what}: {rows} in {batches}, {columns}."


def _plural(count: int, word: str) -> str:
    ending = "" if count == 1 else "es" if word.endswith("ch") else "s"
    return f"{count:,} {word}{ending}"


def _facts(anatomy: Anatomy) -> list[tuple[str, str]]:
    facts = [("Size", human_bytes(anatomy.total_bytes))]
    inspection = anatomy.inspection
    if inspection is None:
        return [("Format", anatomy.format), *facts]
    encoding, batches = inspection.encoding, inspection.batches
    suffix = " drawn" if anatomy.is_shortened else ""
    facts.append((f"Rows{suffix}", f"{inspection.rows:,}"))
    facts.append((f"Batches{suffix}" if suffix else "Record batches", f"{batches.count:,}"))
    if batches.count > 1:
        rows = f"{batches.rows_min:,}"
        facts.append(
            ("Rows a batch", rows if batches.rows_min == batches.rows_max else f"{rows} to {batches.rows_max:,}")
        )
    if inspection.dictionary_batches:
        deltas = f", {inspection.delta_batches:,} deltas" if inspection.delta_batches else ""
        facts.append(("Dictionaries", f"{inspection.dictionary_batches:,}{deltas}"))
    facts += [
        ("Compression", " and ".join(encoding.codecs).upper() or "none"),
        ("Alignment", "—" if encoding.alignment_bytes is None else f"{encoding.alignment_bytes} bytes"),
        ("Padding", percent(share_of(_padding_bytes(anatomy), anatomy.total_bytes))),
        ("Byte order", encoding.endianness),
        ("Metadata", encoding.metadata_version),
    ]
    if encoding.end_marker is False:
        facts.append(("End marker", "none"))
    if encoding.legacy_framing:
        facts.append(("Framing", "before 0.15"))
    return facts


def _padding_bytes(anatomy: Anatomy) -> int:
    return sum(int(part.leaves.lengths_bytes[part.leaves.kinds == Leaf.PADDING].sum()) for part in anatomy.parts)


def _columns(anatomy: Anatomy) -> list[Row]:
    if anatomy.inspection is None:
        return []
    columns = anatomy.inspection.columns_by_size()[:_COLUMNS_SHOWN]
    largest = max((column.total_bytes for column in columns), default=0) or 1
    return [_row(column, anatomy, largest) for column in columns]


def _row(column: ColumnReport, anatomy: Anatomy, largest: int) -> Row:
    sizes = [(role, anatomy.role_bytes.get((column.index, role), 0)) for role in _ROLES]
    shares, offset = [], 0.0
    for role, size in [*sizes, ("dictionary", column.dictionary_bytes)]:
        if size:
            width = 100 * size / largest
            shares.append((role, round(offset, 3), round(width, 3)))
            offset += width
    return Row(
        column.index,
        printable(column.name, _NAME_CHARACTERS),
        printable(column.field.head, _TYPE_CHARACTERS),
        column.null_count,
        column.total_bytes,
        column.share,
        tuple(shares),
    )


def _schema(inspection: Inspection | None) -> list[dict[str, Any]]:
    """The fields in the order of a walk, as nested values for the template; no more than some hundreds of them."""
    remaining = [_FIELDS_SHOWN]
    return [] if inspection is None else _fields([column.field for column in inspection.columns], remaining)


def _fields(reports: list[FieldReport], remaining: list[int]) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for report in reports:
        if remaining[0] <= 0:
            out.append({"omitted": len(reports) - len(out)})
            break
        remaining[0] -= 1
        use = report.dictionary
        out.append(
            {
                "omitted": 0,
                "name": printable(report.name, _NAME_CHARACTERS),
                "type": printable(report.head, _TYPE_CHARACTERS),
                "nullable": report.nullable,
                "dictionary": None if use is None else use.id,
                "extension": None if report.extension is None else printable(report.extension, _NAME_CHARACTERS),
                "pairs": _printable_pairs(report.metadata),
                "children": _fields(list(report.children), remaining),
            }
        )
    return out


def _pairs(inspection: Inspection | None) -> list[tuple[str, list[tuple[str, str]]]]:
    if inspection is None:
        return []
    every = (("Of the schema", inspection.schema_metadata), ("Of the footer", inspection.footer_metadata))
    return [(where, _printable_pairs(pairs)) for where, pairs in every if pairs]


def _printable_pairs(pairs: Metadata) -> list[tuple[str, str]]:
    some = [
        (printable_bytes(key, _NAME_CHARACTERS), printable_bytes(value, _VALUE_CHARACTERS))
        for key, value in pairs[:_PAIRS_SHOWN]
    ]
    return [*some, ("…", f"{len(pairs) - _PAIRS_SHOWN:,} more")] if len(pairs) > _PAIRS_SHOWN else some

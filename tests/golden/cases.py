"""The test cases of Arrow's harness, under its names, and unusual ones."""

from __future__ import annotations

from collections.abc import Callable

from tests.golden.documents import UNITS, Document, DocumentBuilder, FieldGenerator, document

INDICES = [(bits, signed) for bits in (8, 16, 32, 64) for signed in (True, False)]


def _with_and_without_nulls(*parts: FieldGenerator) -> list[FieldGenerator]:
    return [*parts, *(part.required() for part in parts)]


def _primitive(m: DocumentBuilder, *counts: int) -> Document:
    integers = [m.integer(f"{bits}{signed}", bits, signed) for bits, signed in INDICES]
    floats = [m.real("single", "SINGLE"), m.real("double")]
    strings = [m.binary("binary"), m.utf8("utf8"), m.fixed("fixed", 19), m.fixed("longer", 120)]
    return document(_with_and_without_nulls(m.boolean("bool"), *integers, *floats, *strings), counts)


def _decimals(m: DocumentBuilder) -> Document:
    widths = {32: (3, 9), 64: (3, 18), 128: (3, 38), 256: (37, 76)}
    parts = [m.decimal(f"{bits}, {p}", bits, p, 2) for bits, most in widths.items() for p in most]
    return document([*parts, m.decimal("negative", 128, 5, -3), m.decimal("small", 256, 76, 76)], [7, 0, 10])


def _times(m: DocumentBuilder) -> Document:
    parts = [m.date("day", "DAY"), m.date("ms", "MILLISECOND")]
    for unit in UNITS:
        parts += [m.time(f"t {unit}", unit), m.timestamp(unit, unit), m.duration(f"d {unit}", unit)]
        parts += [m.timestamp(f"{unit} {zone}", unit, zone) for zone in ("UTC", "US/Eastern", "+05:30")]
    return document(parts, [7, 10])


def _nested(m: DocumentBuilder) -> Document:
    pair = m.struct("inner", m.integer("f1"), m.utf8("f2"))
    parts = [
        m.list_("list", m.integer("item")),
        m.fixed_list("fixed", m.integer("item"), 4),
        pair,
        m.list_("structs", pair),
    ]
    parts += [
        m.list_("lists", m.list_("inner", m.integer("item", 16))),
        m.map_("map", m.utf8("key"), m.integer("value")),
    ]
    parts += [m.list_("large", m.list_("inner", m.integer("item", 16)), "largelist")]
    return document([*_with_and_without_nulls(*parts), m.map_("odd", m.utf8("k"), m.integer("v"), "e")], [7, 0, 10])


def _views(m: DocumentBuilder) -> Document:
    lists = [m.list_view("lv", m.real("item", "SINGLE")), m.list_view("llv", m.utf8("item"), "largelistview")]
    return document([m.view("bv"), m.view("sv", "utf8view"), *lists], [0, 7, 60])


def _unions(m: DocumentBuilder) -> Document:
    inner = m.union("inner", "SPARSE", {127: m.integer("a"), 0: m.null("b")})
    parts = [m.union("s", "SPARSE", {5: m.integer("f1"), 7: m.utf8("f2")})]
    parts += [m.union("d", "DENSE", {42: m.integer("f1", 8, False).required(), 10: m.binary("f2"), 44: m.null("f3")})]
    parts += [m.union("deep", "DENSE", {1: inner, 0: m.list_("l", m.utf8("item")), 64: m.struct("none")})]
    return document([*parts, m.union("no members", "SPARSE", {9: m.integer("only")}).required()], [0, 11, 1])


def _runs(m: DocumentBuilder) -> Document:
    parts = [
        m.runs("16", 16, m.integer("values")),
        m.runs("32", 32, m.utf8("values")),
        m.runs("64", 64, m.boolean("values")),
    ]
    return document([*parts, m.list_("inside", m.runs("item", 32, m.null("values")))], [0, 7, 10])


def _metadata(m: DocumentBuilder) -> Document:
    words = m.words(0, m.utf8("words"), 5)
    twice = FieldGenerator(
        "twice", {"name": "null"}, lambda _part, _count: {}, metadata=(("k", "v"), ("k", ""), ("", "é 值"))
    )
    parts = [m.fixed("uuids", 16).extended("arrow.uuid"), m.encoded("coded", words).extended("of nobody", "serialized")]
    parts += [m.list_("items", m.integer("item").extended("of nobody")), twice]
    return document(parts, [0, 13], [words], [("schema_custom_0", "{}"), ("", "x" * 3000)])


def _names(m: DocumentBuilder) -> Document:
    names = ["ints", "ints", "", "", "поле 字段 🏹", 'a\nb\t"\\', "n" * 5000]
    return document([*map(m.integer, names), m.struct("", m.integer("."), m.utf8("."))], [3, 0, 2])


def _dictionaries(m: DocumentBuilder) -> Document:
    words = [m.words(1 << 40, m.utf8("w"), 10), m.words(1, m.integer("n", 64), 50), m.words(7, m.utf8("none"), 0)]
    parts = [m.encoded(f"{bits}{signed}", words[0], bits, signed) for bits, signed in INDICES]
    parts += [m.encoded("ordered", words[0], ordered=True), m.encoded("n", words[1], 64), m.encoded("none", words[2])]
    return document([*parts, m.list_("l", m.encoded("item", words[0]))], [7, 0, 10], words)


def _dictionaries_of_all(m: DocumentBuilder) -> Document:
    values = [m.boolean("v"), m.null("v"), m.real("v"), m.decimal("v", 128, 9, 2), m.view("v", "utf8view")]
    values += [
        m.binary("v", "largeutf8"),
        m.list_("v", m.integer("item")),
        m.struct("v", m.integer("a"), m.binary("b")),
    ]
    values += [m.fixed_list("v", m.integer("item"), 2), m.map_("v", m.utf8("key"), m.integer("value"))]
    values += [m.union("v", "DENSE", {3: m.integer("a"), 9: m.boolean("b")}), m.runs("v", 32, m.integer("values"))]
    values += [m.list_view("v", m.integer("item")), m.interval("v", "MONTH_DAY_NANO"), m.fixed("v", 3)]
    words = [m.words(100 - number, part, 6) for number, part in enumerate(values)]
    parts = [m.encoded(f"f{words_.id}", words_, *INDICES[words_.id % 8]) for words_ in words]
    return document(parts, [5, 0, 9], words)


def _dictionaries_inside(m: DocumentBuilder) -> Document:
    inner = m.words(0, m.utf8("s"), 5)
    middle = m.words(1, m.struct("st", m.encoded("a", inner, 16), m.list_("l", m.encoded("item", inner))), 6)
    outer = m.words(2, m.map_("mp", m.encoded("key", inner), m.encoded("value", middle, 32)), 5)
    parts = [
        m.encoded("m", outer),
        m.list_("l", m.encoded("item", middle)),
        m.runs("r", 16, m.encoded("values", outer)),
    ]
    parts += [m.union("u", "SPARSE", {0: m.encoded("a", inner), 100: m.encoded("b", middle, 64)})]
    return document(parts, [4, 0, 6], [outer, inner, middle])


def _nothing_wide(m: DocumentBuilder) -> Document:
    parts = [m.fixed("fixed", 0), m.fixed_list("list", m.integer("item"), 0), m.struct("struct")]
    return document([*_with_and_without_nulls(*parts), m.list_("l", m.struct("item"))], [4, 0, 3])


def _odd_numbers(m: DocumentBuilder) -> Document:
    doubles = m.real("double", "DOUBLE", (0, -0.0, 1e308, 5e-324, 10**17))
    singles = m.real("single", "SINGLE", (1, 3.4028235e38, -3.4028234663852886e38, 1e-45, 0.1, 16777216))
    halves = m.real("half", "HALF", (0.5, 65504, 0.0999755859375, 6e-8))
    texts = [m.integer("8", 8, True, True), m.integer("64", 64, True, False), m.integer("u64", 64, False, False)]
    return document([doubles, singles, halves, *texts], [6, 11])


CASES: dict[str, Callable[[DocumentBuilder], Document]] = {
    "primitive": lambda m: _primitive(m, 17, 20),
    "primitive_no_batches": _primitive,
    "primitive_zerolength": lambda m: _primitive(m, 0, 0, 0),
    "large_offsets": lambda m: document([m.binary("b", "largebinary"), m.binary("u", "largeutf8").required()], [17, 0]),
    "null": lambda m: document([m.null("f0"), m.integer("f1"), m.null("f2"), m.real("f3"), m.null("f4")], [10, 0]),
    "null_trivial": lambda m: document([m.null("f0")], [0, 0]),
    "decimals": _decimals,
    "datetime": _times,
    "interval": lambda m: document([m.interval(unit, unit) for unit in ("YEAR_MONTH", "DAY_TIME")], [7, 10]),
    "interval_mdn": lambda m: document([m.interval("f1", "MONTH_DAY_NANO")], [7, 10]),
    "nested": _nested,
    "views": _views,
    "union": _unions,
    "run_end_encoded": _runs,
    "metadata": _metadata,
    "names": _names,
    "dictionary": _dictionaries,
    "dictionary_of_all": _dictionaries_of_all,
    "nested_dictionary": _dictionaries_inside,
    "nothing_wide": _nothing_wide,
    "odd_numbers": _odd_numbers,
    "garbage_under_nulls": lambda m: document(
        [m.binary("a", "utf8", True), m.binary("b", "largebinary", True)], [9, 3]
    ),
    "no_columns": lambda _: document([], []),
}

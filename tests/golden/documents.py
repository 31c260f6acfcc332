"""Random integration JSON documents for each case of Arrow's harness, and unusual ones.

The builder follows the description of the format and uses nothing of Bowstring. Documents have garbage under nulls,
several and empty batches, empty, duplicate and non-ASCII names, 64-bit integers as strings, and dictionaries that are
shared, nested, empty and of every value and index type.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

Document = dict[str, Any]

LETTERS = 'abc123µ£€éñô矢羽🏹\n"\\\u2028'
UNITS = {"SECOND": 1, "MILLISECOND": 10**3, "MICROSECOND": 10**6, "NANOSECOND": 10**9}
DAY_S = 86400
INLINE_BYTES = 12


@dataclass(frozen=True, slots=True)
class FieldGenerator:
    """A field and a function that generates its buffers and children for a number of slots."""

    name: str
    type: Document
    make: Callable[[FieldGenerator, int], Document]
    children: tuple[FieldGenerator, ...] = ()
    nullable: bool = True
    metadata: tuple[tuple[str, str], ...] = ()
    encoding: Document | None = None

    def field(self) -> Document:
        field = {"name": self.name, "type": self.type, "nullable": self.nullable}
        field["children"] = [child.field() for child in self.children]
        if self.encoding is not None:
            field["dictionary"] = self.encoding
        if self.metadata:
            field["metadata"] = pairs(self.metadata)
        return field

    def column(self, count: int, name: str | None = None) -> Document:
        return {"name": self.name if name is None else name, "count": count, **self.make(self, count)}

    def required(self) -> FieldGenerator:
        return replace(self, nullable=False)

    def extended(self, name: str, serialized: str = "") -> FieldGenerator:
        metadata = (("ARROW:extension:name", name), ("ARROW:extension:metadata", serialized))
        return replace(self, metadata=(*self.metadata, *metadata))


@dataclass(frozen=True, slots=True)
class DictionaryContent:
    """A dictionary: its id, the field of its values, their number and the values."""

    id: int
    part: FieldGenerator
    count: int
    column: Document

    def batch(self) -> Document:
        return {"id": self.id, "data": {"count": self.count, "columns": [self.column]}}


def pairs(metadata: Sequence[tuple[str, str]]) -> list[Document]:
    return [{"key": key, "value": value} for key, value in metadata]


def document(
    parts: Sequence[FieldGenerator],
    counts: Sequence[int],
    dictionaries: Sequence[DictionaryContent] = (),
    metadata: Sequence[tuple[str, str]] = (),
) -> Document:
    """Return a document with batches of these row counts."""
    contents: Document = {"schema": {"fields": [part.field() for part in parts]}}
    if metadata:
        contents["schema"]["metadata"] = pairs(metadata)
    if dictionaries:
        contents["dictionaries"] = [words.batch() for words in dictionaries]
    contents["batches"] = [{"count": count, "columns": [part.column(count) for part in parts]} for count in counts]
    return contents


class DocumentBuilder:
    """Generates fields of every type with random slots, reproducible by seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    # Slots

    def valid(self, part: FieldGenerator, count: int) -> list[int]:
        return [int(not part.nullable or self.random.random() > 0.4) for _ in range(count)]

    def slots(self, value: Callable[[], Any]) -> Callable[[FieldGenerator, int], Document]:
        return lambda part, count: {
            "VALIDITY": self.valid(part, count),
            "DATA": [value() for _ in range(count)],
        }

    def numbers(self, low: int, high: int, as_text: bool) -> Callable[[FieldGenerator, int], Document]:
        def value() -> int | str:
            number = self.random.choice((low, high, self.random.randint(low, high)))
            return str(number) if as_text else number

        return self.slots(value)

    def offsets(self, valid: list[int], most: int = 4) -> list[int]:
        ends = [0]
        for is_valid in valid:
            ends.append(ends[-1] + (self.random.randint(0, most) if is_valid else 0))
        return ends

    def text(self, most: int) -> str:
        return "".join(self.random.choices(LETTERS, k=self.random.randint(0, most)))

    # Types without children

    def null(self, name: str) -> FieldGenerator:
        return FieldGenerator(name, {"name": "null"}, lambda _part, _count: {})

    def boolean(self, name: str) -> FieldGenerator:
        return FieldGenerator(name, {"name": "bool"}, self.slots(lambda: self.random.random() > 0.5))

    def integer(self, name: str, bits: int = 32, signed: bool = True, as_text: bool | None = None) -> FieldGenerator:
        low, high = (-1 << bits - 1, (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        type_ = {"name": "int", "isSigned": signed, "bitWidth": bits}
        return FieldGenerator(name, type_, self.numbers(low, high, bits == 64 if as_text is None else as_text))

    def real(self, name: str, precision: str = "DOUBLE", odd: Sequence[float] = ()) -> FieldGenerator:
        type_ = {"name": "floatingpoint", "precision": precision}
        return FieldGenerator(
            name,
            type_,
            self.slots(lambda: self.random.choice(odd) if odd else round(self.random.gauss(0, 1000), 3)),
        )

    def binary(self, name: str, kind: str = "binary", is_garbage_kept: bool = False) -> FieldGenerator:
        def make(part: FieldGenerator, count: int) -> Document:
            valid = self.valid(part, count)
            data, offsets = [], [0]
            for is_valid in valid:
                raw = self.text(7).encode() if "utf8" in kind else self.random.randbytes(self.random.randint(0, 9))
                raw = raw if is_valid or is_garbage_kept else b""
                data.append(raw.decode() if "utf8" in kind else raw.hex().upper())
                offsets.append(offsets[-1] + len(raw))
            offset_values = list(map(str, offsets)) if kind.startswith("large") else offsets
            return {"VALIDITY": valid, "OFFSET": offset_values, "DATA": data}

        return FieldGenerator(name, {"name": kind}, make)

    def utf8(self, name: str) -> FieldGenerator:
        return self.binary(name, "utf8")

    def view(self, name: str, kind: str = "binaryview") -> FieldGenerator:
        def make(part: FieldGenerator, count: int) -> Document:
            valid, views, buffers = self.valid(part, count), [], [b""]
            for is_valid in valid:
                raw = (
                    self.text(20).encode() if kind == "utf8view" else self.random.randbytes(self.random.randint(0, 40))
                )
                raw = raw if is_valid else b""
                view: Document = {"SIZE": len(raw)}
                if len(raw) <= INLINE_BYTES:
                    view["INLINED"] = raw.decode() if kind == "utf8view" else raw.hex().upper()
                else:
                    if len(buffers[-1]) + len(raw) > 64:
                        buffers.append(b"")
                    at = {"BUFFER_INDEX": len(buffers) - 1, "OFFSET": len(buffers[-1])}
                    view |= {"PREFIX_HEX": raw[:4].hex().upper(), **at}
                    buffers[-1] += raw
                views.append(view)
            return {"VALIDITY": valid, "VIEWS": views, "VARIADIC_DATA_BUFFERS": [raw.hex().upper() for raw in buffers]}

        return FieldGenerator(name, {"name": kind}, make)

    def fixed(self, name: str, width: int) -> FieldGenerator:
        type_ = {"name": "fixedsizebinary", "byteWidth": width}
        return FieldGenerator(name, type_, self.slots(lambda: self.random.randbytes(width).hex().upper()))

    def decimal(self, name: str, bits: int, precision: int, scale: int) -> FieldGenerator:
        type_ = {"name": "decimal", "precision": precision, "scale": scale, "bitWidth": bits}
        return FieldGenerator(name, type_, self.numbers(1 - 10**precision, 10**precision - 1, True))

    def date(self, name: str, unit: str) -> FieldGenerator:
        days = (-719162, 2932896)
        whole = self.slots(lambda: str(self.random.randint(*days) * DAY_S * 1000))
        return FieldGenerator(
            name, {"name": "date", "unit": unit}, whole if unit != "DAY" else self.numbers(*days, False)
        )

    def time(self, name: str, unit: str) -> FieldGenerator:
        bits = 32 if UNITS[unit] <= 1000 else 64
        type_ = {"name": "time", "unit": unit, "bitWidth": bits}
        return FieldGenerator(name, type_, self.numbers(0, DAY_S * UNITS[unit] - 1, bits == 64))

    def timestamp(self, name: str, unit: str, timezone: str | None = None) -> FieldGenerator:
        low, high = (max(-(1 << 63), -62135596800 * UNITS[unit]), min((1 << 63) - 1, 253402214400 * UNITS[unit]))
        type_ = {"name": "timestamp", "unit": unit} | ({} if timezone is None else {"timezone": timezone})
        return FieldGenerator(name, type_, self.numbers(low, high, True))

    def duration(self, name: str, unit: str) -> FieldGenerator:
        return FieldGenerator(name, {"name": "duration", "unit": unit}, self.numbers(-(1 << 63), (1 << 63) - 1, True))

    def interval(self, name: str, unit: str) -> FieldGenerator:
        def small() -> int:
            return self.random.randint(-(1 << 31), (1 << 31) - 1)

        def month_day_nano() -> Document:
            return {"months": small(), "days": small(), "nanoseconds": self.random.randint(-(1 << 63), (1 << 63) - 1)}

        value = {
            "YEAR_MONTH": small,
            "DAY_TIME": lambda: {"days": small(), "milliseconds": small()},
            "MONTH_DAY_NANO": month_day_nano,
        }[unit]
        return FieldGenerator(name, {"name": "interval", "unit": unit}, self.slots(value))

    # Nested types

    def list_(self, name: str, child: FieldGenerator, kind: str = "list") -> FieldGenerator:
        def make(part: FieldGenerator, count: int) -> Document:
            valid = self.valid(part, count)
            offsets = self.offsets(valid)
            offset_values = list(map(str, offsets)) if kind == "largelist" else offsets
            return {"VALIDITY": valid, "OFFSET": offset_values, "children": [child.column(offsets[-1])]}

        type_ = {"name": "map", "keysSorted": False} if kind == "map" else {"name": kind}
        return FieldGenerator(name, type_, make, (child,))

    def map_(self, name: str, key: FieldGenerator, item: FieldGenerator, entries: str = "entries") -> FieldGenerator:
        return self.list_(name, self.struct(entries, key.required(), item).required(), "map")

    def list_view(self, name: str, child: FieldGenerator, kind: str = "listview") -> FieldGenerator:
        def make(part: FieldGenerator, count: int) -> Document:
            most = 4 * count
            offsets = [self.random.randint(0, max(0, most - 4)) for _ in range(count)]
            sizes = [self.random.randint(0, 4) for _ in range(count)]
            positions: dict[str, Any] = {"OFFSET": offsets, "SIZE": sizes}
            if kind.startswith("large"):
                positions = {key: list(map(str, numbers)) for key, numbers in positions.items()}
            return {"VALIDITY": self.valid(part, count), **positions, "children": [child.column(most)]}

        return FieldGenerator(name, {"name": kind}, make, (child,))

    def fixed_list(self, name: str, child: FieldGenerator, size: int) -> FieldGenerator:
        def make(part: FieldGenerator, count: int) -> Document:
            return {"VALIDITY": self.valid(part, count), "children": [child.column(count * size)]}

        return FieldGenerator(name, {"name": "fixedsizelist", "listSize": size}, make, (child,))

    def struct(self, name: str, *children: FieldGenerator) -> FieldGenerator:
        def make(part: FieldGenerator, count: int) -> Document:
            contents = {"children": [child.column(count) for child in children]} if children else {}
            return {"VALIDITY": self.valid(part, count), **contents}

        return FieldGenerator(name, {"name": "struct"}, make, children)

    def union(self, name: str, mode: str, members: dict[int, FieldGenerator]) -> FieldGenerator:
        def make(_part: FieldGenerator, count: int) -> Document:
            ids = self.random.choices(list(members), k=count)
            if mode == "SPARSE":
                return {"TYPE_ID": ids, "children": [child.column(count) for child in members.values()]}
            counts, offsets = dict.fromkeys(members, 0), []
            for number in ids:
                offsets.append(counts[number])
                counts[number] += 1
            children = [child.column(counts[number]) for number, child in members.items()]
            return {"TYPE_ID": ids, "OFFSET": offsets, "children": children}

        type_ = {"name": "union", "mode": mode, "typeIds": list(members)}
        return FieldGenerator(name, type_, make, tuple(members.values()))

    def runs(self, name: str, bits: int, values: FieldGenerator) -> FieldGenerator:
        def make(_part: FieldGenerator, count: int) -> Document:
            ends = sorted(self.random.sample(range(1, 30_000), count))
            if ends:
                ends[-1] = max(ends[-1], count)
            end_values = list(map(str, ends)) if bits == 64 else ends
            column = {"name": "run_ends", "count": count, "VALIDITY": [1] * count, "DATA": end_values}
            return {"children": [column, values.column(count)]}

        return FieldGenerator(
            name, {"name": "runendencoded"}, make, (self.integer("run_ends", bits).required(), values)
        )

    # Dictionaries

    def words(self, number: int, part: FieldGenerator, count: int) -> DictionaryContent:
        return DictionaryContent(number, part, count, part.column(count, f"DICT{number}"))

    def encoded(
        self, name: str, words: DictionaryContent, bits: int = 8, signed: bool = True, ordered: bool = False
    ) -> FieldGenerator:
        def make(part: FieldGenerator, count: int) -> Document:
            valid = self.valid(part, count) if words.count else [0] * count
            numbers = [self.random.randrange(words.count) if is_valid else 99 for is_valid in valid]
            return {"VALIDITY": valid, "DATA": list(map(str, numbers)) if bits == 64 else numbers}

        index = {"name": "int", "isSigned": signed, "bitWidth": bits}
        encoding = {"id": words.id, "indexType": index, "isOrdered": ordered}
        return FieldGenerator(name, words.part.type, make, words.part.children, encoding=encoding)

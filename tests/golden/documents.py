"""Integration JSON as Arrow's harness makes it, and odder: each kind of case that the golden files are of.

Written by the description of the format, without anything of the library: garbage under nulls, several batches and
empty ones, names that are empty, the same or in any letters, 64-bit integers as strings, and dictionaries that are
shared, nested, empty, of every kind of values and with every kind of indices.
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
class Part:
    """A field, and what makes the buffers and children of so many slots of it."""

    name: str
    type: Document
    make: Callable[[Part, int], Document]
    children: tuple[Part, ...] = ()
    nullable: bool = True
    metadata: tuple[tuple[str, str], ...] = ()
    encoding: Document | None = None

    def field(self) -> Document:
        held = {"name": self.name, "type": self.type, "nullable": self.nullable}
        held["children"] = [child.field() for child in self.children]
        if self.encoding is not None:
            held["dictionary"] = self.encoding
        if self.metadata:
            held["metadata"] = pairs(self.metadata)
        return held

    def column(self, count: int, name: str | None = None) -> Document:
        return {"name": self.name if name is None else name, "count": count, **self.make(self, count)}

    def required(self) -> Part:
        return replace(self, nullable=False)

    def extended(self, name: str, serialized: str = "") -> Part:
        said = (("ARROW:extension:name", name), ("ARROW:extension:metadata", serialized))
        return replace(self, metadata=(*self.metadata, *said))


@dataclass(frozen=True, slots=True)
class Words:
    """A dictionary: its id, the field of its values, how many there are, and they."""

    id: int
    part: Part
    count: int
    column: Document

    def batch(self) -> Document:
        return {"id": self.id, "data": {"count": self.count, "columns": [self.column]}}


def pairs(metadata: Sequence[tuple[str, str]]) -> list[Document]:
    return [{"key": key, "value": value} for key, value in metadata]


def document(
    parts: Sequence[Part],
    counts: Sequence[int],
    dictionaries: Sequence[Words] = (),
    metadata: Sequence[tuple[str, str]] = (),
) -> Document:
    """Batches of so many rows each."""
    made: Document = {"schema": {"fields": [part.field() for part in parts]}}
    if metadata:
        made["schema"]["metadata"] = pairs(metadata)
    if dictionaries:
        made["dictionaries"] = [words.batch() for words in dictionaries]
    made["batches"] = [{"count": count, "columns": [part.column(count) for part in parts]} for count in counts]
    return made


class Maker:
    """Fields of every type with random slots; the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    # Slots

    def valid(self, part: Part, count: int) -> list[int]:
        return [int(not part.nullable or self.random.random() > 0.4) for _ in range(count)]

    def slots(self, value: Callable[[], Any]) -> Callable[[Part, int], Document]:
        return lambda part, count: {
            "VALIDITY": self.valid(part, count),
            "DATA": [value() for _ in range(count)],
        }

    def numbers(self, low: int, high: int, as_text: bool) -> Callable[[Part, int], Document]:
        def value() -> int | str:
            number = self.random.choice((low, high, self.random.randint(low, high)))
            return str(number) if as_text else number

        return self.slots(value)

    def offsets(self, valid: list[int], most: int = 4) -> list[int]:
        found = [0]
        for is_valid in valid:
            found.append(found[-1] + (self.random.randint(0, most) if is_valid else 0))
        return found

    def text(self, most: int) -> str:
        return "".join(self.random.choices(LETTERS, k=self.random.randint(0, most)))

    # Types without children

    def null(self, name: str) -> Part:
        return Part(name, {"name": "null"}, lambda _part, _count: {})

    def boolean(self, name: str) -> Part:
        return Part(name, {"name": "bool"}, self.slots(lambda: self.random.random() > 0.5))

    def integer(self, name: str, bits: int = 32, signed: bool = True, as_text: bool | None = None) -> Part:
        low, high = (-1 << bits - 1, (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        said = {"name": "int", "isSigned": signed, "bitWidth": bits}
        return Part(name, said, self.numbers(low, high, bits == 64 if as_text is None else as_text))

    def real(self, name: str, precision: str = "DOUBLE", odd: Sequence[float] = ()) -> Part:
        said = {"name": "floatingpoint", "precision": precision}
        return Part(
            name,
            said,
            self.slots(lambda: self.random.choice(odd) if odd else round(self.random.gauss(0, 1000), 3)),
        )

    def binary(self, name: str, kind: str = "binary", is_garbage_kept: bool = False) -> Part:
        def make(part: Part, count: int) -> Document:
            valid = self.valid(part, count)
            data, offsets = [], [0]
            for is_valid in valid:
                raw = self.text(7).encode() if "utf8" in kind else self.random.randbytes(self.random.randint(0, 9))
                raw = raw if is_valid or is_garbage_kept else b""
                data.append(raw.decode() if "utf8" in kind else raw.hex().upper())
                offsets.append(offsets[-1] + len(raw))
            said = list(map(str, offsets)) if kind.startswith("large") else offsets
            return {"VALIDITY": valid, "OFFSET": said, "DATA": data}

        return Part(name, {"name": kind}, make)

    def utf8(self, name: str) -> Part:
        return self.binary(name, "utf8")

    def view(self, name: str, kind: str = "binaryview") -> Part:
        def make(part: Part, count: int) -> Document:
            valid, views, held = self.valid(part, count), [], [b""]
            for is_valid in valid:
                raw = (
                    self.text(20).encode() if kind == "utf8view" else self.random.randbytes(self.random.randint(0, 40))
                )
                raw = raw if is_valid else b""
                view: Document = {"SIZE": len(raw)}
                if len(raw) <= INLINE_BYTES:
                    view["INLINED"] = raw.decode() if kind == "utf8view" else raw.hex().upper()
                else:
                    if len(held[-1]) + len(raw) > 64:
                        held.append(b"")
                    at = {"BUFFER_INDEX": len(held) - 1, "OFFSET": len(held[-1])}
                    view |= {"PREFIX_HEX": raw[:4].hex().upper(), **at}
                    held[-1] += raw
                views.append(view)
            return {"VALIDITY": valid, "VIEWS": views, "VARIADIC_DATA_BUFFERS": [raw.hex().upper() for raw in held]}

        return Part(name, {"name": kind}, make)

    def fixed(self, name: str, width: int) -> Part:
        said = {"name": "fixedsizebinary", "byteWidth": width}
        return Part(name, said, self.slots(lambda: self.random.randbytes(width).hex().upper()))

    def decimal(self, name: str, bits: int, precision: int, scale: int) -> Part:
        said = {"name": "decimal", "precision": precision, "scale": scale, "bitWidth": bits}
        return Part(name, said, self.numbers(1 - 10**precision, 10**precision - 1, True))

    def date(self, name: str, unit: str) -> Part:
        days = (-719162, 2932896)
        whole = self.slots(lambda: str(self.random.randint(*days) * DAY_S * 1000))
        return Part(name, {"name": "date", "unit": unit}, whole if unit != "DAY" else self.numbers(*days, False))

    def time(self, name: str, unit: str) -> Part:
        bits = 32 if UNITS[unit] <= 1000 else 64
        said = {"name": "time", "unit": unit, "bitWidth": bits}
        return Part(name, said, self.numbers(0, DAY_S * UNITS[unit] - 1, bits == 64))

    def timestamp(self, name: str, unit: str, timezone: str | None = None) -> Part:
        low, high = (max(-(1 << 63), -62135596800 * UNITS[unit]), min((1 << 63) - 1, 253402214400 * UNITS[unit]))
        said = {"name": "timestamp", "unit": unit} | ({} if timezone is None else {"timezone": timezone})
        return Part(name, said, self.numbers(low, high, True))

    def duration(self, name: str, unit: str) -> Part:
        return Part(name, {"name": "duration", "unit": unit}, self.numbers(-(1 << 63), (1 << 63) - 1, True))

    def interval(self, name: str, unit: str) -> Part:
        def small() -> int:
            return self.random.randint(-(1 << 31), (1 << 31) - 1)

        def month_day_nano() -> Document:
            return {"months": small(), "days": small(), "nanoseconds": self.random.randint(-(1 << 63), (1 << 63) - 1)}

        value = {
            "YEAR_MONTH": small,
            "DAY_TIME": lambda: {"days": small(), "milliseconds": small()},
            "MONTH_DAY_NANO": month_day_nano,
        }[unit]
        return Part(name, {"name": "interval", "unit": unit}, self.slots(value))

    # Nested types

    def list_(self, name: str, child: Part, kind: str = "list") -> Part:
        def make(part: Part, count: int) -> Document:
            valid = self.valid(part, count)
            offsets = self.offsets(valid)
            said = list(map(str, offsets)) if kind == "largelist" else offsets
            return {"VALIDITY": valid, "OFFSET": said, "children": [child.column(offsets[-1])]}

        said = {"name": "map", "keysSorted": False} if kind == "map" else {"name": kind}
        return Part(name, said, make, (child,))

    def map_(self, name: str, key: Part, item: Part, entries: str = "entries") -> Part:
        return self.list_(name, self.struct(entries, key.required(), item).required(), "map")

    def list_view(self, name: str, child: Part, kind: str = "listview") -> Part:
        def make(part: Part, count: int) -> Document:
            most = 4 * count
            offsets = [self.random.randint(0, max(0, most - 4)) for _ in range(count)]
            sizes = [self.random.randint(0, 4) for _ in range(count)]
            said: dict[str, Any] = {"OFFSET": offsets, "SIZE": sizes}
            if kind.startswith("large"):
                said = {key: list(map(str, held)) for key, held in said.items()}
            return {"VALIDITY": self.valid(part, count), **said, "children": [child.column(most)]}

        return Part(name, {"name": kind}, make, (child,))

    def fixed_list(self, name: str, child: Part, size: int) -> Part:
        def make(part: Part, count: int) -> Document:
            return {"VALIDITY": self.valid(part, count), "children": [child.column(count * size)]}

        return Part(name, {"name": "fixedsizelist", "listSize": size}, make, (child,))

    def struct(self, name: str, *children: Part) -> Part:
        def make(part: Part, count: int) -> Document:
            held = {"children": [child.column(count) for child in children]} if children else {}
            return {"VALIDITY": self.valid(part, count), **held}

        return Part(name, {"name": "struct"}, make, children)

    def union(self, name: str, mode: str, members: dict[int, Part]) -> Part:
        def make(_part: Part, count: int) -> Document:
            ids = self.random.choices(list(members), k=count)
            if mode == "SPARSE":
                return {"TYPE_ID": ids, "children": [child.column(count) for child in members.values()]}
            counts, offsets = dict.fromkeys(members, 0), []
            for number in ids:
                offsets.append(counts[number])
                counts[number] += 1
            children = [child.column(counts[number]) for number, child in members.items()]
            return {"TYPE_ID": ids, "OFFSET": offsets, "children": children}

        said = {"name": "union", "mode": mode, "typeIds": list(members)}
        return Part(name, said, make, tuple(members.values()))

    def runs(self, name: str, bits: int, values: Part) -> Part:
        def make(_part: Part, count: int) -> Document:
            ends = sorted(self.random.sample(range(1, 30_000), count))
            if ends:
                ends[-1] = max(ends[-1], count)
            said = list(map(str, ends)) if bits == 64 else ends
            column = {"name": "run_ends", "count": count, "VALIDITY": [1] * count, "DATA": said}
            return {"children": [column, values.column(count)]}

        return Part(name, {"name": "runendencoded"}, make, (self.integer("run_ends", bits).required(), values))

    # Dictionaries

    def words(self, number: int, part: Part, count: int) -> Words:
        return Words(number, part, count, part.column(count, f"DICT{number}"))

    def encoded(self, name: str, words: Words, bits: int = 8, signed: bool = True, ordered: bool = False) -> Part:
        def make(part: Part, count: int) -> Document:
            valid = self.valid(part, count) if words.count else [0] * count
            numbers = [self.random.randrange(words.count) if is_valid else 99 for is_valid in valid]
            return {"VALIDITY": valid, "DATA": list(map(str, numbers)) if bits == 64 else numbers}

        index = {"name": "int", "isSigned": signed, "bitWidth": bits}
        said = {"id": words.id, "indexType": index, "isOrdered": ordered}
        return Part(name, words.part.type, make, words.part.children, encoding=said)

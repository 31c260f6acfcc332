"""Random valid arrays with unusual buffers.

They have offsets, arbitrary bytes under nulls and after the end, too long children, overlapping and unreferenced
lists, duplicate and unreferenced dictionary values, and adjacent runs of equal values.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

import bowstring as bs
from bowstring.datatypes import types as t
from bowstring.datatypes.canonical.opaque import OpaqueType
from bowstring.layouts.base import Layout
from bowstring.layouts.binary import BinaryLayout
from bowstring.layouts.binary_view import BinaryViewLayout
from bowstring.layouts.binary_view_validation import INLINE_BYTES
from bowstring.layouts.boolean import BooleanLayout
from bowstring.layouts.dictionary import DictionaryLayout
from bowstring.layouts.fixed_size_list import FixedSizeListLayout
from bowstring.layouts.list_ import ListLayout, MapLayout
from bowstring.layouts.list_view import ListViewLayout
from bowstring.layouts.null import NullLayout
from bowstring.layouts.primitive import PrimitiveLayout
from bowstring.layouts.registry import layout_of
from bowstring.layouts.run_end_encoded import RunEndEncodedLayout
from bowstring.layouts.struct_ import StructLayout
from bowstring.layouts.union import UnionLayout

Mask = npt.NDArray[np.bool_]

FLAT: tuple[t.DataType, ...] = (
    bs.null(), bs.bool_(), *(t.Int(bits, signed) for bits in (8, 16, 32, 64) for signed in (True, False)),
    *(t.FloatingPoint(bits) for bits in (16, 32, 64)), t.Decimal(5, 2, 32), t.Decimal(12, 2, 64),
    t.Decimal(20, -3, 128), t.Decimal(50, 4, 256), bs.date32(), bs.date64(), *map(t.Time, t.TIME_UNITS),
    *(t.Timestamp(unit, zone) for unit in t.TIME_UNITS for zone in (None, "UTC", "Europe/Paris")),
    *map(t.Duration, t.TIME_UNITS), bs.month_interval(), bs.day_time_interval(), bs.month_day_nano_interval(),
    *(t.FixedSizeBinary(width) for width in (0, 1, 3, 16)), bs.binary(), bs.large_binary(), bs.binary_view(),
    bs.string(), bs.large_string(), bs.string_view(),
)  # fmt: skip
_WORDS = ("", "a", "b", "ab", "ü", "\0", "\0\0", "longer than a view", "longer than a viev", "x" * 70, "x" * 70 + "y")
_OFFSETS = (0, 0, 0, 1, 3, 8, 9)


def any_type(random: Random, depth: int = 2) -> t.DataType:
    """Return a random type of at most `depth` levels."""
    if depth == 0 or random.random() < 0.25:
        return random.choice(FLAT)

    def inner() -> t.DataType:
        return any_type(random, depth - 1)

    def fields(least: int) -> list[tuple[str, t.DataType]]:
        return [(f"f{number}", inner()) for number in range(random.randrange(least, 4))]

    def ids(children: list[tuple[str, t.DataType]]) -> list[int]:
        return random.sample(range(128), len(children))

    makers: list[Callable[[], t.DataType]] = [
        lambda: bs.list_(inner()),
        lambda: bs.large_list(inner()),
        lambda: bs.list_view(inner()),
        lambda: bs.large_list_view(inner()),
        lambda: bs.list_(inner(), random.randrange(4)),
        lambda: bs.struct(fields(0)),
        lambda: bs.map_(random.choice([bs.string(), bs.int32(), bs.binary_view()]), inner()),
        lambda: bs.sparse_union(children := fields(1), ids(children)),
        lambda: bs.dense_union(children := fields(1), ids(children)),
        lambda: bs.dictionary(t.Int(random.choice([8, 16, 32, 64]), random.random() < 0.5), inner()),
        lambda: bs.run_end_encoded(random.choice([bs.int16(), bs.int32(), bs.int64()]), inner()),
        lambda: OpaqueType(inner(), "a", "b"),
        lambda: random.choice(
            [bs.datatypes.uuid(), bs.datatypes.bool8(), bs.datatypes.fixed_shape_tensor(bs.int16(), (2, 2))]
        ),
    ]
    return random.choice(makers)()


def random_array(random: Random, type_: t.DataType, length: int, nullable: bool = True) -> bs.Array:
    """Return a random array of this type and length."""
    layout = layout_of(type_)
    if layout.storage is not layout:
        return random_array(random, layout.storage.type, length, nullable).with_layout(layout)
    offset = random.choice(_OFFSETS)
    total = offset + length + random.choice([0, 0, 1, 5])
    mask, buffers = np.ones(total, np.bool_), []
    if layout.has_validity:
        mode = random.randrange(4) if nullable else 0
        if mode >= 2:
            share = random.choice([0.1, 0.5, 1.0])
            mask = np.array([random.random() >= share for _ in range(total)], np.bool_)
        buffers = [np.packbits(mask, bitorder="little") if mode else None]
    own, children, dictionary = _MAKERS[type(layout)](random, layout, mask)
    return bs.Array.from_buffers(type_, length, [*buffers, *own], children, dictionary, -1, offset)


_Parts = tuple[list[Any], list[bs.Array], bs.Array | None]


def _bits(random: Random, _: Any, mask: Mask) -> _Parts:
    return [np.packbits(np.array([random.random() < 0.5 for _ in mask], np.bool_), bitorder="little")], [], None


def _slots(random: Random, layout: Any, mask: Mask) -> _Parts:
    kind, dtype = layout.type, layout.dtype
    if isinstance(kind, t.FloatingPoint):
        floats = (0.0, -0.0, 1.0, 1.5, float("nan"), float("inf"), -2.5)
        return [np.array([random.choice(floats) for _ in mask], dtype)], [], None
    if isinstance(kind, t.Decimal):
        most = 10**kind.precision - 1
        values = [random.choice([0, 1, -1, most, -most, 100]) for _ in mask]
        wild = (1 << dtype.itemsize * 8 - 1) - 1
    elif isinstance(kind, t.Int):
        low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
        values, wild = [random.choice([0, 1, 2, 3, 5, low, high]) for _ in mask], low
    elif dtype.kind == "i":
        day = 86_400_000 if kind == bs.date64() else 1
        values, wild = [random.choice([0, 1, 7, 20_000]) * day for _ in mask], int(np.iinfo(dtype).min)
    else:
        parts = b"".join(bytes(random.choice([0, 0, 1, 255]) for _ in range(dtype.itemsize)) for _ in mask)
        return [parts], [], None
    values = [value if valid or random.random() < 0.5 else wild for value, valid in zip(values, mask, strict=True)]
    signed = not (isinstance(kind, t.Int) and not kind.is_signed)
    return [b"".join(value.to_bytes(dtype.itemsize, "little", signed=signed) for value in values)], [], None


def _strings(random: Random, layout: Any, mask: Mask) -> _Parts:
    tail = b"" if layout.is_text else b"\xff"
    words = [random.choice(_WORDS).encode() + tail for _ in mask]
    words = [w if valid or random.random() < 0.5 else b"\xff\xfe" for w, valid in zip(words, mask, strict=True)]
    lead = b"\xffabc"[: random.choice([0, 0, 3])]
    offsets = np.cumsum([len(lead), *map(len, words)]).astype(layout.offset_type)
    return [offsets, lead + b"".join(words) + b"\xff" * random.choice([0, 2])], [], None


def _views(random: Random, _: Any, mask: Mask) -> _Parts:
    data = [bytearray(b"\xff" * random.randrange(3)) for _ in range(random.choice([1, 1, 2, 3]))]
    views = []
    for valid in mask.tolist():
        word = random.choice(_WORDS).encode()
        numbers = [100_000, 99, 5]
        if valid or random.random() < 0.5:
            number = random.randrange(len(data))
            at = data[number].find(word) if random.random() < 0.5 else -1
            if at < 0 and len(word) > INLINE_BYTES:
                at = len(data[number])
                data[number] += word
            numbers = [len(word), number, at]
            if len(word) <= INLINE_BYTES:
                views.append(len(word).to_bytes(4, "little") + word.ljust(INLINE_BYTES, b"\0"))
                continue
        size, *place = (number.to_bytes(4, "little", signed=True) for number in numbers)
        views.append(size + word[:4].ljust(4, b"\xff") + b"".join(place))
    return [b"".join(views), *map(bytes, data)], [], None


def _lists(random: Random, layout: Any, mask: Mask) -> _Parts:
    sizes = [random.choice([0, 0, 1, 2, 3]) for _ in mask]
    offsets = np.cumsum([random.choice([0, 0, 2]), *sizes]).astype(layout.offset_type)
    count = int(offsets[-1]) + random.choice([0, 2])
    (field,) = layout.type.fields
    if not isinstance(layout, MapLayout):
        return [offsets], [random_array(random, field.type, count)], None
    offset = random.choice([0, 2])
    pair = [random_array(random, part.type, count + offset, part.nullable) for part in field.type.fields]
    return [offsets], [bs.Array.from_buffers(field.type, count, [None], pair, None, -1, offset)], None


def _list_views(random: Random, layout: Any, mask: Mask) -> _Parts:
    count = random.randrange(9)
    starts = [random.randrange(count + 1) for _ in mask]
    sizes = [min(random.choice([0, 1, 2, 3]), count - start) for start in starts]
    buffers = [np.array(part, layout.offset_type) for part in (starts, sizes)]
    return buffers, [random_array(random, layout.type.value_type, count)], None


def _fixed_size_parts(random: Random, layout: Any, mask: Mask) -> _Parts:
    each = layout.size if isinstance(layout, FixedSizeListLayout) else 1
    count = len(mask) * each + random.choice([0, 0, 3])
    return [], [random_array(random, field.type, count) for field in layout.type.fields], None


def _union_parts(random: Random, layout: Any, mask: Mask) -> _Parts:
    members = [random.randrange(len(layout.ids)) for _ in mask]
    ids = np.array([layout.ids[member] for member in members], np.int8)
    if not layout.is_dense:
        return [ids], _fixed_size_parts(random, layout, mask)[1], None
    used = [random.choice([0, 2]) for _ in layout.ids]
    offsets = []
    for member in members:
        offsets.append(used[member])
        used[member] += random.choice([0, 1, 1, 2])
    children = [random_array(random, f.type, n + 3) for f, n in zip(layout.type.fields, used, strict=True)]
    return [ids, np.array(offsets, np.int32)], children, None


def _dictionary_parts(random: Random, layout: Any, mask: Mask) -> _Parts:
    count, dtype = random.randrange(1, 6), layout.index_layout.dtype
    keys = [random.randrange(count) if valid or random.random() < 0.5 else np.iinfo(dtype).max for valid in mask]
    return [np.array(keys, dtype)], [], random_array(random, layout.type.value_type, count)


def _runs(random: Random, layout: Any, mask: Mask) -> _Parts:
    ends: list[int] = []
    while (ends[-1] if ends else 0) < len(mask):
        ends.append((ends[-1] if ends else 0) + random.choice([1, 1, 2, 4]))
    lead = [-7] * random.choice([0, 2])
    run_ends = np.array([*lead, *ends], layout.children[0].dtype)
    of_ends = bs.Array.from_buffers(layout.type.run_end_type, len(ends), [None, run_ends], (), None, -1, len(lead))
    return [], [of_ends, random_array(random, layout.type.value_type, len(ends) + random.choice([0, 2]))], None


_MAKERS: dict[type[Layout], Callable[[Random, Any, Mask], _Parts]] = {
    NullLayout: lambda *_: ([], [], None),
    BooleanLayout: _bits,
    PrimitiveLayout: _slots,
    BinaryLayout: _strings,
    BinaryViewLayout: _views,
    ListLayout: _lists,
    MapLayout: _lists,
    ListViewLayout: _list_views,
    FixedSizeListLayout: _fixed_size_parts,
    StructLayout: _fixed_size_parts,
    UnionLayout: _union_parts,
    DictionaryLayout: _dictionary_parts,
    RunEndEncodedLayout: _runs,
}

"""Many small arrays whose buffers already lie end to end, so that joining them needs no step for each.

Every array, tuple and buffer lies somewhere else in memory, where nobody has looked for a while. So some of them at a
time are looked at in the order in which they were made, one thing after the other: the processor fetches the next ones
meanwhile, and has them in its cache for as long as they are needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from bowstring.layouts.array import Array
from bowstring.memory.buffer import UINT8, Buffer, Bytes

if TYPE_CHECKING:
    from bowstring.layouts.base import Indices, Layout

BLOCK_ARRAYS = 5120
"""So many arrays, with what they are made of, are in the processor's cache at a time."""
_SLACK_BYTES = 128
"""What buffers may hold beyond the slots, one more offset and padding; those of a slice hold what it was cut from."""
MANY = 32
"""From so many arrays on it is cheaper to look at what they are made of than to make a view of each."""


class Packed(Sequence[Array]):
    """Arrays of one layout, in lists of what each of them has; as arrays they are made anew where somebody asks."""

    __slots__ = (
        "_joined",
        "_parts",
        "_slots",
        "children",
        "dictionaries",
        "layout",
        "lengths",
        "numbers",
        "sizes",
        "words",
    )

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.lengths: list[int] = []
        self.sizes: list[list[int]] = [[] for _ in layout.buffers]
        """The size of each array's buffer, at each position of the declaration; 0 for None."""
        self._parts: list[list[bytes]] = [[] for _ in layout.buffers]
        self._joined: list[Bytes] = []
        self._slots: Indices | None = None
        self.children = [Packed(child) for child in layout.children]
        self.dictionaries: dict[int, Array] = {}
        """All that are different objects, by their `id`."""
        self.numbers: list[int] = []
        """Which of these each array has."""
        self.words = None if layout.dictionary is None else Packed(layout.dictionary)
        """The dictionaries, packed as well."""

    def slots(self) -> Indices:
        """The lengths, shape (arrays,)."""
        if self._slots is None:
            self._slots = np.fromiter(self.lengths, np.int64, len(self.lengths))
        return self._slots

    def held(self, index: int) -> Indices:
        """The sizes of the buffers at a position, shape (arrays,); 0 for None."""
        return np.fromiter(self.sizes[index], np.int64, len(self.lengths))

    def joined(self, index: int) -> Bytes:
        """The buffers at a position, end to end."""
        if not self._joined:
            self._joined = [np.frombuffer(bytearray().join(parts), UINT8) for parts in self._parts]
        return self._joined[index]

    def _add(self, taken: _Taken) -> None:
        self.lengths += taken.lengths
        for index, (sizes, data) in enumerate(taken.buffers):
            self.sizes[index] += sizes
            self._parts[index].append(data)
        for child, own in zip(self.children, taken.children, strict=True):
            child._add(own)
        if self.words is not None:
            self.dictionaries.update(taken.fresh)
            number_of = dict(zip(self.dictionaries, range(len(self.dictionaries)), strict=True))
            self.numbers += map(number_of.__getitem__, taken.names)
            for own in taken.words:
                self.words._add(own)
        self._joined, self._slots = [], None

    def seen_as(self, layout: Layout) -> Packed:
        """The same under another layout of the same buffers and children."""
        seen = copy(self)
        seen.layout = layout
        return seen

    def __iter__(self) -> Iterator[Array]:
        return iter(self[:])

    def __len__(self) -> int:
        return len(self.lengths)

    @overload
    def __getitem__(self, index: int) -> Array: ...
    @overload
    def __getitem__(self, index: slice) -> list[Array]: ...
    def __getitem__(self, index: int | slice) -> Any:
        places = range(len(self))[index]
        return self._made([places])[0] if isinstance(places, int) else self._made(places)

    def _made(self, places: Sequence[int]) -> list[Array]:
        starts = [list(accumulate(sizes, initial=0)) for sizes in self.sizes]
        wholes = [Buffer.of(self.joined(at)) for at in range(len(self.sizes))]
        children = [child._made(places) for child in self.children]
        dictionaries: list[Array | None] = [*self.dictionaries.values()]
        found = []
        for at, place in enumerate(places):
            buffers = tuple(
                [
                    whole.slice(first[place], sizes[place]) if sizes[place] else None
                    for whole, first, sizes in zip(wholes, starts, self.sizes, strict=True)
                ]
            )
            own = tuple([column[at] for column in children])
            dictionary = dictionaries[self.numbers[place]] if dictionaries else None
            found.append(Array(self.layout, self.lengths[place], buffers, own, dictionary))
        return found


class _Taken:
    """What was found in some arrays of one layout, all of them."""

    __slots__ = ("buffers", "children", "fresh", "lengths", "names", "words")

    def __init__(self, lengths: list[int], buffers: list[tuple[list[int], bytes]]) -> None:
        self.lengths = lengths
        self.buffers = buffers
        self.children: list[_Taken] = []
        self.names: list[int] = []
        self.fresh: dict[int, Array] = {}
        self.words: list[_Taken] = []

    @property
    def size_bytes(self) -> int:
        """The bytes of all buffers."""
        own = sum([len(data) for _, data in self.buffers])
        return own + sum([part.size_bytes for part in chain(self.children, self.words)])


def packed(arrays: Sequence[Array]) -> Sequence[Array]:
    """Many arrays of one layout packed; as they are where they are few, or stretches of what they lie in."""
    if len(arrays) < MANY or isinstance(arrays, Packed):
        return arrays
    columns = [Packed(arrays[0].layout)]
    for first in range(0, len(arrays), BLOCK_ARRAYS):
        if pack(columns, arrays[first : first + BLOCK_ARRAYS]) is None:
            return arrays
    return columns[0]


def pack(columns: Sequence[Packed], arrays: Sequence[Array]) -> int | None:
    """Pack arrays behind those that are there: the first ones are one of each of the columns, in order, then the next.
    How many bytes they have.

    None, and nothing is taken, where one is no whole: it begins at an offset, or one of its buffers is a stretch of
    another, or much longer than its slots; or where it has not the buffers and children that its layout declares, as
    those with any number of them.
    """
    taken = _taken(columns, arrays)
    if taken is None:
        return None
    for column, own in zip(columns, taken, strict=True):
        column._add(own)
    return sum([own.size_bytes for own in taken])


def _taken(columns: Sequence[Packed], arrays: Sequence[Array]) -> list[_Taken] | None:
    layouts = [column.layout for column in columns]
    width, held = len(layouts), [array.buffers for array in arrays]
    if list(map(len, held)) != [len(layout.buffers) for layout in layouts] * (len(arrays) // width):
        return None
    if any([array.offset for array in arrays]):  # noqa: C419 -- a generator takes longer
        return None
    lengths, buffers = [array.length for array in arrays], list(chain.from_iterable(held))
    sizes = [0 if buffer is None else buffer.size for buffer in buffers]
    wholes = [b"" if buffer is None else buffer.whole for buffer in buffers]
    found, stride, end = [], len(buffers) * width // len(arrays), 0
    for at, layout in enumerate(layouts):
        first, end = end, end + len(layout.buffers)
        own_sizes, slots = [sizes[own::stride] for own in range(first, end)], sum(lengths[at::width])
        slack = _SLACK_BYTES * len(arrays) // width
        for spec, some in zip(layout.buffers, own_sizes, strict=True):
            if spec.per_slot and sum(some) > spec.size_bytes(slots) + slack:
                return None
        try:
            parts = [(some, b"".join(wholes[first + own :: stride])) for own, some in enumerate(own_sizes)]
        except (TypeError, ValueError):  # a stretch, or what is no buffer for once
            return None
        taken = _Taken(lengths[at::width], parts)
        if layout.children:
            children = [array.children for array in arrays[at::width]]
            if set(map(len, children)) != {len(layout.children)}:
                return None
            below = _taken(columns[at].children, list(chain.from_iterable(children)))
            if below is None:
                return None
            taken.children = below
        if (words := columns[at].words) is not None:
            dictionaries = [array.dictionary for array in arrays[at::width]]
            taken.names = list(map(id, dictionaries))
            fresh = dict(zip(taken.names, dictionaries, strict=True))
            known = columns[at].dictionaries
            taken.fresh = {name: own for name, own in fresh.items() if name not in known and own is not None}
            if id(None) in fresh:
                return None
            if taken.fresh:
                inside = _taken([words], list(taken.fresh.values()))
                if inside is None:
                    return None
                taken.words = inside
        found.append(taken)
    return found

"""One input: bytes, and what they are given as."""

from __future__ import annotations

import random
from dataclasses import dataclass
from hashlib import sha256
from typing import Self

from fuzz.anatomy import dissect
from fuzz.documents import changed_document
from fuzz.mutations import flip, mutate
from fuzz.texts import KNOWN, changed_text

KINDS = (
    "stream", "file", "tensors", "json", "format", "uri", "upkeep", "pieces", "command", "capsule", "protocol",
    "extension", "statistics", "served",
)  # fmt: skip
"""What bytes can be given as; the position stands for it where an input is nothing but bytes."""
WITH_ANATOMY = ("stream", "file", "tensors", "upkeep", "pieces", "command", "statistics", "served")
"""The kinds that are streams and files."""


@dataclass(frozen=True, slots=True)
class Input:
    """Bytes, and the kind of data that a reader is told they are."""

    kind: str
    data: bytes

    @classmethod
    def unpack(cls, raw: bytes) -> Self:
        """The input of a fuzzing engine, which knows bytes only: the first one says the kind."""
        return cls(KINDS[raw[0] % len(KINDS)] if raw else KINDS[0], raw[1:])

    def pack(self) -> bytes:
        """The bytes that `unpack` takes."""
        return bytes([KINDS.index(self.kind)]) + self.data

    @property
    def name(self) -> str:
        """A file name that says the kind, and that no other input has."""
        return f"{sha256(self.data).hexdigest()[:12]}.{self.kind}"

    def mutated(self, chance: random.Random) -> Input | None:
        """The input with changes that know its structure; None where it shows none."""
        if self.kind == "json":
            document = changed_document(chance, self.data)
            return None if document is None else type(self)(self.kind, document)
        if self.kind in KNOWN:
            return type(self)(self.kind, changed_text(chance, self.kind, self.data))
        if self.kind not in WITH_ANATOMY:
            return None
        anatomy = dissect(self.data)
        if anatomy is None:
            return None
        try:
            mutate(chance, anatomy)
            raw = anatomy.render()
        except (IndexError, KeyError, ValueError, OverflowError):  # changed beyond what can be written
            return None
        if chance.random() < 0.05:
            held = bytearray(raw)
            flip(chance, held)
            raw = bytes(held)
        return type(self)(self.kind, raw)

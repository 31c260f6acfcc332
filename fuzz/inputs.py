"""A fuzz input: bytes and the kind of data that a reader takes them for."""

from __future__ import annotations

import random
from dataclasses import dataclass
from hashlib import sha256
from typing import Self

from fuzz.editable_stream import parse_stream
from fuzz.frames import mutate_frames
from fuzz.json_mutations import mutate_json
from fuzz.mutations import flip_bits, mutate_stream
from fuzz.text_mutations import KNOWN_TEXTS, mutate_text

KINDS = (
    "stream", "file", "tensors", "json", "format", "uri", "tools", "partial", "command", "c_data", "protocol",
    "extension", "statistics", "served", "frames", "requests", "replies", "ticket",
    "recording", "agent_requests", "agent_replies",
)  # fmt: skip
"""The kinds of inputs. A packed input starts with the index of its kind."""
STRUCTURED_KINDS = ("stream", "file", "tensors", "tools", "partial", "command", "statistics", "served", "recording")
"""The kinds whose inputs are streams and files."""
WIRE_KINDS = ("frames", "requests", "replies", "agent_requests", "agent_replies")
"""The kinds whose inputs are frames."""


@dataclass(frozen=True, slots=True)
class FuzzInput:
    """Bytes and their kind."""

    kind: str
    data: bytes

    @classmethod
    def unpack(cls, raw: bytes) -> Self:
        """The input of a fuzzing engine: the first byte is the kind."""
        return cls(KINDS[raw[0] % len(KINDS)] if raw else KINDS[0], raw[1:])

    def pack(self) -> bytes:
        """The bytes that `unpack` takes."""
        return bytes([KINDS.index(self.kind)]) + self.data

    @property
    def name(self) -> str:
        """A unique file name whose suffix is the kind."""
        return f"{sha256(self.data).hexdigest()[:12]}.{self.kind}"

    def mutate(self, rng: random.Random) -> FuzzInput | None:
        """The input with structural changes; None if it has no structure that can be parsed."""
        if self.kind == "json":
            document = mutate_json(rng, self.data)
            return None if document is None else type(self)(self.kind, document)
        if self.kind in WIRE_KINDS:
            raw_frames = mutate_frames(rng, self.data)
            return None if raw_frames is None else type(self)(self.kind, raw_frames)
        if self.kind in KNOWN_TEXTS:
            return type(self)(self.kind, mutate_text(rng, self.kind, self.data))
        if self.kind not in STRUCTURED_KINDS:
            return None
        stream = parse_stream(self.data)
        if stream is None:
            return None
        try:
            mutate_stream(rng, stream)
            raw = stream.encode()
        except (IndexError, KeyError, ValueError, OverflowError):  # the mutated structure can't be encoded
            return None
        if rng.random() < 0.05:
            flipped = bytearray(raw)
            flip_bits(rng, flipped)
            raw = bytes(flipped)
        return type(self)(self.kind, raw)

"""Frames of the wire format (docs/explanation/dissociated.md): parse recorded bytes, change and encode frames.

An input of these kinds is a byte of options, for its oracle, and the bytes that one end of a connection receives.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace

from bowstring.dissociated.messages import UINT64_MODULUS
from bowstring.sharing.uris import ERROR_DATA, FREE_DATA, ROLES
from bowstring.transports.sockets.frames import FRAME_HEADER, HELLO_BODY, MAGIC, REGION_BODY, FrameKind
from fuzz.json_mutations import mutate_json
from fuzz.mutations import flip_bits, mutate_number

_TAGS = (0, *ROLES, FREE_DATA, ERROR_DATA, 1 << 56, 1 << 56 | 1, 2 << 56, 1 << 40, (1 << 32) - 1, (1 << 64) - 1)
_MAX_FRAMES = 200
_JSON_PROBABILITY = 0.7
"""How often the nodes of a JSON document change, and not its bytes."""


@dataclass(slots=True)
class EditableFrame:
    """A frame; `false_length` replaces the length of the payload in its header."""

    kind: int
    descriptors: int
    reserved: int
    tag: int
    payload: bytearray
    false_length: int | None = None
    magic: bytes = MAGIC

    def copy(self) -> EditableFrame:
        """A copy that can be changed independently."""
        return replace(self, payload=bytearray(self.payload))

    def encode(self) -> bytes:
        """The bytes of the header and the payload."""
        length = len(self.payload) if self.false_length is None else self.false_length
        return (
            FRAME_HEADER.pack(self.magic, self.kind, self.descriptors, self.reserved, self.tag, length) + self.payload
        )


def build_frame(kind: FrameKind, tag: int, payload: bytes) -> EditableFrame:
    """A correct frame."""
    return EditableFrame(kind, int(kind is FrameKind.REGION), 0, tag, bytearray(payload))


def encode_frames(frames: Iterable[EditableFrame]) -> bytes:
    """The bytes of the frames."""
    return b"".join(each.encode() for each in frames)


def parse_frames(raw: bytes) -> list[EditableFrame]:
    """Parse frames to the end, or to bytes that are not a frame. The last frame may be incomplete."""
    frames: list[EditableFrame] = []
    offset = 0
    while len(raw) - offset >= FRAME_HEADER.size and raw[offset : offset + 4] == MAGIC and len(frames) < _MAX_FRAMES:
        magic, kind, descriptors, reserved, tag, length = FRAME_HEADER.unpack_from(raw, offset)
        payload = bytearray(raw[offset + FRAME_HEADER.size : offset + FRAME_HEADER.size + length])
        false_length = None if len(payload) == length else length
        frames.append(EditableFrame(kind, descriptors, reserved, tag, payload, false_length, magic))
        offset += FRAME_HEADER.size + len(payload)
    return frames


def mutate_frames(rng: random.Random, data: bytes) -> bytes | None:
    """An input with one to three changes of its frames; None if it has no frames."""
    frames = parse_frames(data[1:])
    if not frames:
        return None
    options = data[0] if rng.random() < 0.7 else rng.randrange(256)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        pick = rng.randrange(8)
        if pick < 2:
            _change_order(rng, frames)
        elif pick < 4:
            _change_header(rng, rng.choice(frames))
        elif pick == 4:
            frames.insert(rng.randrange(len(frames) + 1), _new_frame(rng))
        else:
            _change_payload(rng, rng.choice(frames))
        if not frames:
            break
    raw = bytearray(encode_frames(frames))
    if rng.random() < 0.1:
        flip_bits(rng, raw)
    if rng.random() < 0.1:
        del raw[rng.randrange(len(raw) + 1) :]
    return bytes([options]) + raw


def _change_order(rng: random.Random, frames: list[EditableFrame]) -> None:
    """Delete, repeat or move a frame."""
    index, pick = rng.randrange(len(frames)), rng.randrange(4)
    if pick == 0:
        del frames[index]
    elif pick == 1:
        frames.insert(rng.randrange(len(frames) + 1), frames[index].copy())
    elif pick == 2:
        frames.insert(rng.randrange(len(frames)), frames.pop(index))
    else:
        del frames[index + 1 :]


def _change_header(rng: random.Random, target: EditableFrame) -> None:
    pick = rng.randrange(10)
    if pick < 3:
        target.tag = rng.choice(_TAGS)
    elif pick < 5:
        target.tag = mutate_number(rng, target.tag) % UINT64_MODULUS
    elif pick < 7:
        target.false_length = mutate_number(rng, len(target.payload)) % UINT64_MODULUS
    elif pick == 7:
        target.kind = rng.choice((*FrameKind, 255))
    elif pick == 8:
        target.descriptors = rng.choice((0, 1, 2, 255))
    else:
        target.reserved = rng.choice((1, 0xFFFF))


def _change_payload(rng: random.Random, target: EditableFrame) -> None:
    """Change a node of a JSON document or an integer, or flip bits, or make the payload shorter or longer."""
    if target.payload[:1] == b"{" and rng.random() < _JSON_PROBABILITY:
        document = mutate_json(rng, bytes(target.payload))
        if document is not None:
            target.payload[:] = document
            return
    payload, pick = target.payload, rng.randrange(6)
    width = rng.choice((1, 2, 4, 8, 8))
    if pick < 3 and len(payload) >= width:
        # The integers of a metadata message follow a prefix of five bytes.
        first = rng.choice((0, 0, 1, 5)) % (len(payload) - width + 1)
        start = first + width * rng.randrange((len(payload) - first) // width)
        value = mutate_number(rng, int.from_bytes(payload[start : start + width], "little")) % (1 << 8 * width)
        payload[start : start + width] = value.to_bytes(width, "little")
    elif pick == 3:
        flip_bits(rng, payload)
    elif pick == 4:
        del payload[rng.randrange(len(payload) + 1) :]
    else:
        payload += rng.randbytes(rng.choice((1, 8, 16, 64)))


def _new_frame(rng: random.Random) -> EditableFrame:
    """A frame that a peer could send, with any values."""
    number = mutate_number(rng, rng.choice(_TAGS)) % UINT64_MODULUS
    pick = rng.randrange(7)
    if pick == 0:
        return build_frame(FrameKind.HELLO, 0, HELLO_BODY.pack(rng.randrange(3), rng.randrange(3)))
    if pick == 1:
        return build_frame(FrameKind.RETIRE, rng.randrange(3), b"")
    if pick == 2:
        return build_frame(FrameKind.REGION, rng.randrange(3), REGION_BODY.pack(number, rng.randrange(3)))
    if pick == 3:
        return build_frame(
            FrameKind.TAGGED,
            rng.choice(list(ROLES)),
            rng.choice((b"numbers", b"\0numbers\0numbers\0", b"", b"\xff", b"absent")),
        )
    if pick == 4:
        return build_frame(FrameKind.TAGGED, FREE_DATA, struct.pack("<2Q", number, 64))
    if pick == 5:
        return build_frame(FrameKind.PLAIN, 0, struct.pack("<BI", rng.randrange(3), rng.randrange(5)))
    return build_frame(FrameKind.TAGGED, ERROR_DATA, b"not-found\ntext")

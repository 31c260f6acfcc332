"""Changes that a hostile writer would make to sound data: to what it says, and to what lies in its bodies.

Each mutation takes the chance and the anatomy, and changes it in place. `MUTATIONS` names them all, with how often each
is tried.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bowstring.datatypes.extension import METADATA_KEY, NAME_KEY
from bowstring.flatbuf.reader import Child, Children, Scalar, Structs
from bowstring.flatbuf.tables import SPECS, TYPES
from fuzz.anatomy import Anatomy, Piece
from fuzz.frames import frame, unpacked
from fuzz.records import UNIONS, Node

Mutation = Callable[[random.Random, Anatomy], None]

EXTREMES = (
    0, 1, -1, 2, 3, 7, 8, 9, 12, 13, 63, 64, 65, 127, 128, 255, 256, 32767, 32768, 65535, 65536, 2**31 - 1, 2**31,
    -(2**31), 2**32 - 1, 2**32, 2**40, 2**61, 2**62, 2**63 - 8, 2**63 - 1, -(2**63), -2, -8,
)  # fmt: skip
EXTENSIONS = (
    b"arrow.bool8", b"arrow.fixed_shape_tensor", b"arrow.json", b"arrow.opaque", b"arrow.parquet.variant",
    b"arrow.timestamp_with_offset", b"arrow.uuid", b"arrow.variable_shape_tensor", b"bowstring:unknown", b"",
)  # fmt: skip
PARAMETERS = (
    b"", b"{}", b"[]", b"null", b"0", b'{"shape":[2]}', b'{"shape":[2,-1]}', b'{"shape":[1e999]}', b"{" * 3000,
    b'{"shape":[4611686018427387904,4611686018427387904]}', b'{"shape":[2,2],"permutation":[1,1]}',
    b'{"shape":["2"],"dim_names":[1]}', b'{"permutation":[0],"uniform_shape":[null]}', b"[" * 3000, b"\xff\xfe",
    b'{"type_name":"x","vendor_name":"y"}', b'{"type_name":7}', b'{"shape":[2,2],"dim_names":["x","y"]}',
    b'{"dim_names":["x","y"],"permutation":[1,0]}', b'{"uniform_shape":[9999999999999999999999]}',
)  # fmt: skip


def number_near(chance: random.Random, value: int) -> int:
    """A number that is likely to hurt in the place of `value`."""
    pick = chance.randrange(6)
    if pick == 0:
        return value + chance.choice((-1, 1, -8, 8, 4, -4))
    if pick == 1:
        return value * chance.choice((2, -1, 8, 1 << 32)) + chance.randrange(2)
    if pick == 2:
        return value ^ (1 << chance.randrange(64))
    if pick == 3:
        return chance.randrange(0, 70)
    return chance.choice(EXTREMES)


# What is said


def _slots(anatomy: Anatomy, kind: type) -> list[tuple[Node, str]]:
    return [
        (node, name)
        for tree in anatomy.trees()
        for node in tree.nodes()
        for name in node.slots
        if isinstance(SPECS[node.spec].slots[name].kind, kind)
    ]


def change_number(chance: random.Random, anatomy: Anatomy) -> None:
    """A number in a table: a version, a length, a width, an id, an enumeration."""
    node, name = chance.choice(_slots(anatomy, Scalar))
    node.slots[name] = number_near(chance, int(node.slots[name]))


def set_absent(chance: random.Random, anatomy: Anatomy) -> None:
    """A number that was left at its default, or one that is taken away."""
    nodes = [node for tree in anatomy.trees() for node in tree.nodes()]
    node = chance.choice(nodes)
    names = [name for name, slot in SPECS[node.spec].slots.items() if isinstance(slot.kind, Scalar)]
    if names:
        name = chance.choice(names)
        if chance.random() < 0.5:
            node.slots[name] = chance.choice(EXTREMES)
        else:
            node.slots.pop(name, None)


def change_vector(chance: random.Random, anatomy: Anatomy) -> None:
    """Nodes, buffers, variadic counts, type ids, strides: one number, one item, or how many there are."""
    places = [(node, name) for node, name in _slots(anatomy, Structs) if len(node.slots[name])]
    if places:
        node, name = chance.choice(places)
        node.slots[name] = changed_items(chance, node.slots[name])


def changed_items(chance: random.Random, items: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A vector of structs or numbers with one thing changed."""
    out = items.copy()
    if not len(out):
        return out
    at, other = chance.randrange(len(out)), chance.randrange(len(out))
    pick = chance.randrange(8)
    if pick == 0:
        return np.delete(out, at)
    if pick == 1:
        return np.insert(out, at, out[other])
    if pick == 2:
        out[at] = items[other]
    elif pick == 3:
        out[at], out[other] = items[other], items[at]
    elif out.dtype.names:
        name = chance.choice([n for n in out.dtype.names if n != "padding"])
        column = out[name]
        value = int(column[other]) if chance.random() < 0.2 else number_near(chance, int(column[at]))
        column[at] = _fitting(value, column.dtype)
    else:
        out[at] = _fitting(number_near(chance, int(out[at])), out.dtype)
    return out


def _fitting(value: int, dtype: np.dtype[Any]) -> Any:
    bits = 8 * dtype.itemsize
    return ((value + (1 << bits - 1)) & ((1 << bits) - 1)) - (1 << bits - 1)


def change_children(chance: random.Random, anatomy: Anatomy) -> None:
    """A vector of tables (fields, children, pairs, dimensions): one gone, doubled, moved, or come from elsewhere."""
    places = [(node, name) for node, name in _slots(anatomy, Children) if node.slots[name]]
    if not places:
        return
    node, name = chance.choice(places)
    held: list[Node] = node.slots[name]
    at = chance.randrange(len(held))
    pick = chance.randrange(5)
    if pick == 0:
        del held[at]
    elif pick == 1:
        held.insert(at, held[at].copy())
    elif pick == 2:
        held.append(held.pop(at))
    else:
        same = [n for tree in anatomy.trees() for n in tree.nodes() if n.spec == held[at].spec]
        held[at] = chance.choice(same).copy()


def change_table(chance: random.Random, anatomy: Anatomy) -> None:
    """A table in a slot: gone, or one of another kind."""
    node, name = chance.choice(_slots(anatomy, Child))
    if chance.random() < 0.3:
        del node.slots[name]
        return
    held = node.slots[name]
    same = [n for tree in anatomy.trees() for n in tree.nodes() if n.spec == held.spec]
    node.slots[name] = chance.choice(same).copy()


def change_type(chance: random.Random, anatomy: Anatomy) -> None:
    """The type of a field or a tensor, with parameters that may or may not make sense."""
    nodes = [n for tree in anatomy.trees() for n in tree.nodes() if (n.spec, "type") in UNIONS]
    if nodes:
        node = chance.choice(nodes)
        set_type(chance, node, chance.randrange(1, len(TYPES)))


def set_type(chance: random.Random, node: Node, number: int) -> None:
    """Make the field `node` one of type `number`."""
    made = Node(TYPES[number])
    for name, slot in SPECS[made.spec].slots.items():
        if isinstance(slot.kind, Scalar) and chance.random() < 0.9:
            made.slots[name] = chance.choice((0, 1, 2, 3, 8, 16, 32, 64, 128, 256))
    node.slots["type_type"], node.slots["type"] = number, made


def wrap_field(chance: random.Random, anatomy: Anatomy) -> None:
    """A field one level deeper: a list, a struct, a union, a map, runs; or encoded by a dictionary."""
    fields = [n for tree in anatomy.trees() for n in tree.nodes() if n.spec == "Field"]
    if not fields:
        return
    field = chance.choice(fields)
    if chance.random() < 0.3:
        index = Node("Int", {"bitWidth": chance.choice((8, 16, 32, 64)), "is_signed": chance.random() < 0.7})
        field.slots["dictionary"] = Node("DictionaryEncoding", {"id": chance.randrange(3), "indexType": index})
        return
    inner = field.copy()
    field.slots = {"name": b"outer", "nullable": True, "children": [inner]}
    nested = ("List", "LargeList", "ListView", "LargeListView", "FixedSizeList", "Struct_", "Union", "Map", "Int")
    set_type(chance, field, TYPES.index(chance.choice((*nested, "RunEndEncoded"))))
    for piece in anatomy.pieces:
        if piece.batch is not None and "nodes" in piece.batch.slots and chance.random() < 0.8:
            nodes, buffers = piece.batch.slots["nodes"], piece.batch.slots.get("buffers")
            if len(nodes):
                piece.batch.slots["nodes"] = np.insert(nodes, chance.randrange(len(nodes)), nodes[0])
            if buffers is not None and len(buffers) and chance.random() < 0.7:
                piece.batch.slots["buffers"] = np.insert(buffers, chance.randrange(len(buffers)), buffers[0])


def name_extension(chance: random.Random, anatomy: Anatomy) -> None:
    """A field that claims an extension type, with parameters of any kind."""
    fields = [n for tree in anatomy.trees() for n in tree.nodes() if n.spec in ("Field", "Schema", "Footer", "Message")]
    pairs = [(NAME_KEY, chance.choice(EXTENSIONS)), (METADATA_KEY, chance.choice(PARAMETERS))]
    chance.shuffle(pairs)
    if chance.random() < 0.2:
        pairs = [(b"bowstring:statistics", chance.choice(PARAMETERS))]
    chance.choice(fields).slots["custom_metadata"] = [Node("KeyValue", {"key": k, "value": v}) for k, v in pairs]


def change_text(chance: random.Random, anatomy: Anatomy) -> None:
    """A name, a time zone, a key or a value."""
    texts = [
        (n, name) for tree in anatomy.trees() for n in tree.nodes() for name, v in n.slots.items() if type(v) is bytes
    ]
    if texts:
        node, name = chance.choice(texts)
        held = bytearray(node.slots[name])
        flip(chance, held)
        others = (b"", b"\xff\xfe", b"\0", b"UTC", b"+99:99", b"Europe/Paris", "é\u202e".encode(), bytes(held))
        node.slots[name] = chance.choice(others)


def change_all_lengths(chance: random.Random, anatomy: Anatomy) -> None:
    """The rows of a batch and the slots of all its nodes, together."""
    batches = [piece.batch for piece in anatomy.pieces if piece.batch is not None and "nodes" in piece.batch.slots]
    if batches:
        batch = chance.choice(batches)
        was = int(batch.slots.get("length", 0))
        new = number_near(chance, was) & (2**63 - 1)
        batch.slots["length"] = new
        lengths = batch.slots["nodes"]["length"]
        lengths[lengths == was] = new
        if chance.random() < 0.5:
            batch.slots["nodes"]["null_count"] = 0


def say_no_nulls(chance: random.Random, anatomy: Anatomy) -> None:
    """Null counts of nothing, of everything, or of something."""
    batches = [piece.batch for piece in anatomy.pieces if piece.batch is not None and "nodes" in piece.batch.slots]
    if batches:
        nodes = chance.choice(batches).slots["nodes"]
        value = chance.randrange(3)
        nodes["null_count"] = 0 if value == 0 else nodes["length"] if value == 1 else 1


def change_blocks(chance: random.Random, anatomy: Anatomy) -> None:
    """Where a footer says that messages are."""
    if anatomy.footer is not None:
        seed = chance.random()
        anatomy.edits[chance.choice(("dictionaries", "recordBatches"))] = lambda made: changed_items(
            random.Random(seed), made
        )


def lie(chance: random.Random, anatomy: Anatomy) -> None:
    """A length of metadata or of a body that is not the truth; the older framing; another alignment."""
    piece = chance.choice(anatomy.pieces)
    pick = chance.randrange(4)
    if pick == 0:
        piece.lies["body"] = number_near(chance, len(piece.body))
    elif pick == 1:
        piece.lies["metadata"] = number_near(chance, 200)
    elif pick == 2:
        piece.is_legacy = not piece.is_legacy
    else:
        piece.alignment = chance.choice((8, 16, 64))


def change_schema_twice(chance: random.Random, anatomy: Anatomy) -> None:
    """A footer whose schema is not that of the schema message."""
    if anatomy.footer is not None and isinstance(anatomy.footer.slots.get("schema"), Node):
        anatomy.footer.slots["schema"] = anatomy.footer.slots["schema"].copy()
        change_number(chance, anatomy)


def change_order(chance: random.Random, anatomy: Anatomy) -> None:
    """Messages that are gone, doubled, or in another order; a dictionary that is a delta."""
    pieces = anatomy.pieces
    at = chance.randrange(len(pieces))
    pick = chance.randrange(5)
    if pick == 0 and len(pieces) > 1:
        del pieces[at]
    elif pick == 1:
        pieces.insert(chance.randrange(len(pieces) + 1), pieces[at].copy())
    elif pick == 2:
        pieces.insert(chance.randrange(len(pieces)), pieces.pop(at))
    else:
        headers = [piece.header for piece in pieces if piece.header and piece.header.spec == "DictionaryBatch"]
        if headers:
            chance.choice(headers).slots[chance.choice(("isDelta", "id"))] = chance.randrange(2)


# What lies in bodies


def _spans(piece: Piece) -> list[tuple[int, int]]:
    batch = piece.batch
    if batch is None or "buffers" not in batch.slots:
        return [(0, len(piece.body))]
    spans = [(int(b["offset"]), int(b["length"])) for b in batch.slots["buffers"]]
    return [(at, size) for at, size in spans if size > 0 and at >= 0 and at + size <= len(piece.body)]


def _some_span(chance: random.Random, anatomy: Anatomy) -> tuple[Piece, int, int] | None:
    spans = [(piece, at, size) for piece in anatomy.pieces if piece.body for at, size in _spans(piece)]
    return chance.choice(spans) if spans else None


def change_integer(chance: random.Random, anatomy: Anatomy) -> None:
    """An offset, a size, an index, a run end: an integer in a buffer."""
    found = _some_span(chance, anatomy)
    if found is not None:
        piece, at, size = found
        width = chance.choice((1, 2, 4, 4, 4, 8, 8))
        if size >= width:
            place = at + width * chance.randrange(size // width)
            was = int.from_bytes(piece.body[place : place + width], "little", signed=True)
            new = number_near(chance, was) & ((1 << 8 * width) - 1)
            piece.body[place : place + width] = new.to_bytes(width, "little")


def change_start(chance: random.Random, anatomy: Anatomy) -> None:
    """The length that a compressed buffer begins with, or the first bytes behind it."""
    found = _some_span(chance, anatomy)
    if found is not None and found[2] >= 8:
        piece, at, _ = found
        value = number_near(chance, int.from_bytes(piece.body[at : at + 8], "little", signed=True))
        piece.body[at : at + 8] = (value & (2**64 - 1)).to_bytes(8, "little")


def change_bytes(chance: random.Random, anatomy: Anatomy) -> None:
    """A few bits of a buffer, or all of it: zeros, ones, chance, or what lies in another one."""
    found = _some_span(chance, anatomy)
    if found is None:
        return
    piece, at, size = found
    pick = chance.randrange(6)
    if pick == 0:
        piece.body[at : at + size] = bytes(size)
    elif pick == 1:
        piece.body[at : at + size] = b"\xff" * size
    elif pick == 2:
        piece.body[at : at + size] = chance.randbytes(size)
    elif pick == 3:
        other, start, length = _some_span(chance, anatomy) or found
        held = bytes(other.body[start : start + min(length, size)])
        piece.body[at : at + len(held)] = held
    else:
        held_bytes = bytearray(piece.body[at : at + size])
        flip(chance, held_bytes)
        piece.body[at : at + size] = held_bytes


def pack_again(chance: random.Random, anatomy: Anatomy) -> None:
    """A compressed buffer with other content, or the same content in a frame of another kind, behind all others."""
    packed = [piece for piece in anatomy.pieces if piece.batch is not None and "compression" in piece.batch.slots]
    if not packed:
        return
    piece = chance.choice(packed)
    assert piece.batch is not None
    buffers = piece.batch.slots.get("buffers")
    if buffers is None or not len(buffers):
        return
    number, codec = chance.randrange(len(buffers)), piece.batch.slots["compression"].slots.get("codec", 0)
    at, size = int(buffers[number]["offset"]), int(buffers[number]["length"])
    content = unpacked(bytes(piece.body[at : at + size]) if at >= 0 else b"", codec)
    if content and chance.random() < 0.7:
        held = bytearray(content)
        place = 4 * chance.randrange((len(held) + 3) // 4)
        value = number_near(chance, int.from_bytes(held[place : place + 4], "little", signed=True))
        held[place : place + 4] = (value & 0xFFFFFFFF).to_bytes(4, "little")
        content = bytes(held)
    piece.body += bytes(-len(piece.body) % 8)
    made = frame(chance, content, codec)
    buffers[number] = (len(piece.body), len(made))
    piece.body += made + bytes(-len(made) % 8)


def resize_body(chance: random.Random, anatomy: Anatomy) -> None:
    """A body that is shorter or longer than what its header needs."""
    piece = chance.choice(anatomy.pieces)
    if piece.body and chance.random() < 0.5:
        del piece.body[chance.randrange(len(piece.body)) :]
    else:
        piece.body += bytes(chance.choice((1, 8, 64, 512)))


def flip(chance: random.Random, held: bytearray) -> None:
    """Flip some bits in place."""
    for _ in range(chance.choice((1, 1, 2, 4))):
        if held:
            held[chance.randrange(len(held))] ^= 1 << chance.randrange(8)


MUTATIONS: dict[Mutation, int] = {
    change_number: 8,
    set_absent: 2,
    change_vector: 10,
    change_children: 4,
    change_table: 3,
    change_type: 4,
    wrap_field: 3,
    name_extension: 3,
    change_text: 2,
    change_all_lengths: 5,
    say_no_nulls: 2,
    change_blocks: 3,
    lie: 2,
    change_schema_twice: 1,
    change_order: 4,
    change_integer: 14,
    change_start: 3,
    pack_again: 4,
    change_bytes: 6,
    resize_body: 2,
}


def mutate(chance: random.Random, anatomy: Anatomy) -> None:
    """One to five mutations, mostly few."""
    every: Sequence[Mutation] = list(MUTATIONS)
    for mutation in chance.choices(every, list(MUTATIONS.values()), k=chance.choice((1, 1, 1, 2, 2, 3, 5))):
        if anatomy.pieces:
            mutation(chance, anatomy)

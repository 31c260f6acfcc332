"""Mutations of valid streams and files: of metadata and of message bodies.

Each mutation takes a random generator and a structure, which it changes in place. `MUTATIONS` lists all with their
weights.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bowstring.datatypes.extension import METADATA_KEY, NAME_KEY
from bowstring.flatbuf.definitions import ScalarSlot, SubTable, TableVector, UnionSlot, Vector
from bowstring.flatbuf.tables import DEFINITIONS, TYPES
from fuzz.compressed_frames import compress, decompress
from fuzz.editable_stream import EditableMessage, EditableStream
from fuzz.flatbuffers import UNIONS, TableNode

Mutation = Callable[[random.Random, EditableStream], None]

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


def mutate_number(rng: random.Random, value: int) -> int:
    """A number near `value`, or an extreme one."""
    pick = rng.randrange(6)
    if pick == 0:
        return value + rng.choice((-1, 1, -8, 8, 4, -4))
    if pick == 1:
        return value * rng.choice((2, -1, 8, 1 << 32)) + rng.randrange(2)
    if pick == 2:
        return value ^ (1 << rng.randrange(64))
    if pick == 3:
        return rng.randrange(0, 70)
    return rng.choice(EXTREMES)


# Metadata


def _slots(stream: EditableStream, *types: type) -> list[tuple[TableNode, str]]:
    return [
        (node, name)
        for root in stream.roots()
        for node in root.nodes()
        for name in node.slots
        if isinstance(DEFINITIONS[node.definition].slots[name].type, types)
    ]


def change_number(rng: random.Random, stream: EditableStream) -> None:
    """Change a number in a table: a version, a length, a width, an id, an enumeration."""
    node, name = rng.choice(_slots(stream, ScalarSlot))
    node.slots[name] = mutate_number(rng, int(node.slots[name]))


def set_or_remove_number(rng: random.Random, stream: EditableStream) -> None:
    """Set a number of a table that may have its default, or remove it."""
    nodes = [node for root in stream.roots() for node in root.nodes()]
    node = rng.choice(nodes)
    names = [name for name, slot in DEFINITIONS[node.definition].slots.items() if isinstance(slot.type, ScalarSlot)]
    if names:
        name = rng.choice(names)
        if rng.random() < 0.5:
            node.slots[name] = rng.choice(EXTREMES)
        else:
            node.slots.pop(name, None)


def change_vector(rng: random.Random, stream: EditableStream) -> None:
    """Change a vector of nodes, buffers, variadic counts, type ids or strides."""
    locations = [(node, name) for node, name in _slots(stream, Vector) if len(node.slots[name])]
    if locations:
        node, name = rng.choice(locations)
        node.slots[name] = mutate_vector(rng, node.slots[name])


def mutate_vector(rng: random.Random, vector: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A copy of a vector of structs or numbers with one change: a number, an element, or the length."""
    mutated = vector.copy()
    if not len(mutated):
        return mutated
    index, other_index = rng.randrange(len(mutated)), rng.randrange(len(mutated))
    pick = rng.randrange(8)
    if pick == 0:
        return np.delete(mutated, index)
    if pick == 1:
        return np.insert(mutated, index, mutated[other_index])
    if pick == 2:
        mutated[index] = vector[other_index]
    elif pick == 3:
        mutated[index], mutated[other_index] = vector[other_index], vector[index]
    elif mutated.dtype.names:
        name = rng.choice([n for n in mutated.dtype.names if n != "padding"])
        column = mutated[name]
        value = int(column[other_index]) if rng.random() < 0.2 else mutate_number(rng, int(column[index]))
        column[index] = _wrap_to_width(value, column.dtype)
    else:
        mutated[index] = _wrap_to_width(mutate_number(rng, int(mutated[index])), mutated.dtype)
    return mutated


def _wrap_to_width(value: int, dtype: np.dtype[Any]) -> Any:
    bits = 8 * dtype.itemsize
    return ((value + (1 << bits - 1)) & ((1 << bits) - 1)) - (1 << bits - 1)


def change_children(rng: random.Random, stream: EditableStream) -> None:
    """Delete, repeat, move or replace a table in a vector (fields, children, pairs, dimensions)."""
    locations = [(node, name) for node, name in _slots(stream, TableVector) if node.slots[name]]
    if not locations:
        return
    node, name = rng.choice(locations)
    children: list[TableNode] = node.slots[name]
    index = rng.randrange(len(children))
    pick = rng.randrange(5)
    if pick == 0:
        del children[index]
    elif pick == 1:
        children.insert(index, children[index].copy())
    elif pick == 2:
        children.append(children.pop(index))
    else:
        candidates = [n for root in stream.roots() for n in root.nodes() if n.definition == children[index].definition]
        children[index] = rng.choice(candidates).copy()


def change_table(rng: random.Random, stream: EditableStream) -> None:
    """Delete the table of a slot, or replace it with another one of its kind."""
    node, name = rng.choice(_slots(stream, SubTable, UnionSlot))
    if rng.random() < 0.3:
        del node.slots[name]
        return
    table = node.slots[name]
    candidates = [n for root in stream.roots() for n in root.nodes() if n.definition == table.definition]
    node.slots[name] = rng.choice(candidates).copy()


def change_type(rng: random.Random, stream: EditableStream) -> None:
    """Change the type of a field or a tensor; its parameters may be invalid."""
    nodes = [n for root in stream.roots() for n in root.nodes() if (n.definition, "type") in UNIONS]
    if nodes:
        node = rng.choice(nodes)
        set_type(rng, node, rng.randrange(1, len(TYPES)))


def set_type(rng: random.Random, node: TableNode, type_id: int) -> None:
    """Set the type of the field `node`."""
    type_node = TableNode(TYPES[type_id])
    for name, slot in DEFINITIONS[type_node.definition].slots.items():
        if isinstance(slot.type, ScalarSlot) and rng.random() < 0.9:
            type_node.slots[name] = rng.choice((0, 1, 2, 3, 8, 16, 32, 64, 128, 256))
    node.slots["type_type"], node.slots["type"] = type_id, type_node


def wrap_field(rng: random.Random, stream: EditableStream) -> None:
    """Wrap a field in a list, struct, union, map or run-end encoded field, or encode it with a dictionary."""
    fields = [n for root in stream.roots() for n in root.nodes() if n.definition == "Field"]
    if not fields:
        return
    field = rng.choice(fields)
    if rng.random() < 0.3:
        index = TableNode("Int", {"bitWidth": rng.choice((8, 16, 32, 64)), "is_signed": rng.random() < 0.7})
        field.slots["dictionary"] = TableNode("DictionaryEncoding", {"id": rng.randrange(3), "indexType": index})
        return
    inner = field.copy()
    field.slots = {"name": b"outer", "nullable": True, "children": [inner]}
    nested = ("List", "LargeList", "ListView", "LargeListView", "FixedSizeList", "Struct_", "Union", "Map", "Int")
    set_type(rng, field, TYPES.index(rng.choice((*nested, "RunEndEncoded"))))
    for message in stream.messages:
        if message.batch is not None and "nodes" in message.batch.slots and rng.random() < 0.8:
            nodes, buffers = message.batch.slots["nodes"], message.batch.slots.get("buffers")
            if len(nodes):
                message.batch.slots["nodes"] = np.insert(nodes, rng.randrange(len(nodes)), nodes[0])
            if buffers is not None and len(buffers) and rng.random() < 0.7:
                message.batch.slots["buffers"] = np.insert(buffers, rng.randrange(len(buffers)), buffers[0])


def name_extension(rng: random.Random, stream: EditableStream) -> None:
    """Give a field an extension type with any parameters."""
    fields = [
        n for root in stream.roots() for n in root.nodes() if n.definition in ("Field", "Schema", "Footer", "Message")
    ]
    pairs = [(NAME_KEY, rng.choice(EXTENSIONS)), (METADATA_KEY, rng.choice(PARAMETERS))]
    rng.shuffle(pairs)
    if rng.random() < 0.2:
        pairs = [(b"bowstring:statistics", rng.choice(PARAMETERS))]
    rng.choice(fields).slots["custom_metadata"] = [TableNode("KeyValue", {"key": k, "value": v}) for k, v in pairs]


def change_text(rng: random.Random, stream: EditableStream) -> None:
    """Change a name, a time zone, a key or a value."""
    texts = [
        (n, name) for root in stream.roots() for n in root.nodes() for name, v in n.slots.items() if type(v) is bytes
    ]
    if texts:
        node, name = rng.choice(texts)
        text = bytearray(node.slots[name])
        flip_bits(rng, text)
        replacements = (b"", b"\xff\xfe", b"\0", b"UTC", b"+99:99", b"Europe/Paris", "é\u202e".encode(), bytes(text))
        node.slots[name] = rng.choice(replacements)


def change_all_lengths(rng: random.Random, stream: EditableStream) -> None:
    """Change the number of rows of a batch and the lengths of its nodes together."""
    batches = [
        message.batch for message in stream.messages if message.batch is not None and "nodes" in message.batch.slots
    ]
    if batches:
        batch = rng.choice(batches)
        length = int(batch.slots.get("length", 0))
        new_length = mutate_number(rng, length) & (2**63 - 1)
        batch.slots["length"] = new_length
        lengths = batch.slots["nodes"]["length"]
        lengths[lengths == length] = new_length
        if rng.random() < 0.5:
            batch.slots["nodes"]["null_count"] = 0


def change_null_counts(rng: random.Random, stream: EditableStream) -> None:
    """Set the null counts of a batch to 0, to its length, or to 1."""
    batches = [
        message.batch for message in stream.messages if message.batch is not None and "nodes" in message.batch.slots
    ]
    if batches:
        nodes = rng.choice(batches).slots["nodes"]
        value = rng.randrange(3)
        nodes["null_count"] = 0 if value == 0 else nodes["length"] if value == 1 else 1


def change_footer_blocks(rng: random.Random, stream: EditableStream) -> None:
    """Change the footer's blocks."""
    if stream.footer is not None:
        seed = rng.random()
        stream.block_edits[rng.choice(("dictionaries", "recordBatches"))] = lambda blocks: mutate_vector(
            random.Random(seed), blocks
        )


def falsify_length(rng: random.Random, stream: EditableStream) -> None:
    """Falsify the length of metadata or of a body, switch to the legacy framing, or change the alignment."""
    message = rng.choice(stream.messages)
    pick = rng.randrange(4)
    if pick == 0:
        message.false_lengths["body"] = mutate_number(rng, len(message.body))
    elif pick == 1:
        message.false_lengths["metadata"] = mutate_number(rng, 200)
    elif pick == 2:
        message.is_legacy = not message.is_legacy
    else:
        message.alignment = rng.choice((8, 16, 64))


def change_footer_schema(rng: random.Random, stream: EditableStream) -> None:
    """Make the footer's schema differ from that of the schema message."""
    if stream.footer is not None and isinstance(stream.footer.slots.get("schema"), TableNode):
        stream.footer.slots["schema"] = stream.footer.slots["schema"].copy()
        change_number(rng, stream)


def change_message_order(rng: random.Random, stream: EditableStream) -> None:
    """Delete, repeat or move a message, or change whether a dictionary is a delta."""
    messages = stream.messages
    index = rng.randrange(len(messages))
    pick = rng.randrange(5)
    if pick == 0 and len(messages) > 1:
        del messages[index]
    elif pick == 1:
        messages.insert(rng.randrange(len(messages) + 1), messages[index].copy())
    elif pick == 2:
        messages.insert(rng.randrange(len(messages)), messages.pop(index))
    else:
        headers = [
            message.header for message in messages if message.header and message.header.definition == "DictionaryBatch"
        ]
        if headers:
            rng.choice(headers).slots[rng.choice(("isDelta", "id"))] = rng.randrange(2)


# Message bodies


def _buffer_ranges(message: EditableMessage) -> list[tuple[int, int]]:
    batch = message.batch
    if batch is None or "buffers" not in batch.slots:
        return [(0, len(message.body))]
    ranges = [(int(b["offset"]), int(b["length"])) for b in batch.slots["buffers"]]
    return [
        (offset, size) for offset, size in ranges if size > 0 and offset >= 0 and offset + size <= len(message.body)
    ]


def _choose_buffer_range(rng: random.Random, stream: EditableStream) -> tuple[EditableMessage, int, int] | None:
    ranges = [
        (message, offset, size)
        for message in stream.messages
        if message.body
        for offset, size in _buffer_ranges(message)
    ]
    return rng.choice(ranges) if ranges else None


def change_integer(rng: random.Random, stream: EditableStream) -> None:
    """Change an integer in a buffer: an offset, a size, an index, a run end."""
    buffer_range = _choose_buffer_range(rng, stream)
    if buffer_range is not None:
        message, start, size = buffer_range
        width = rng.choice((1, 2, 4, 4, 4, 8, 8))
        if size >= width:
            offset = start + width * rng.randrange(size // width)
            value = int.from_bytes(message.body[offset : offset + width], "little", signed=True)
            new_value = mutate_number(rng, value) & ((1 << 8 * width) - 1)
            message.body[offset : offset + width] = new_value.to_bytes(width, "little")


def change_buffer_prefix(rng: random.Random, stream: EditableStream) -> None:
    """Change the first eight bytes of a buffer, which are the length prefix if it is compressed."""
    buffer_range = _choose_buffer_range(rng, stream)
    if buffer_range is not None and buffer_range[2] >= 8:
        message, start, _ = buffer_range
        value = mutate_number(rng, int.from_bytes(message.body[start : start + 8], "little", signed=True))
        message.body[start : start + 8] = (value & (2**64 - 1)).to_bytes(8, "little")


def change_bytes(rng: random.Random, stream: EditableStream) -> None:
    """Flip bits of a buffer, or overwrite it with zeros, ones, random bytes or the bytes of another buffer."""
    buffer_range = _choose_buffer_range(rng, stream)
    if buffer_range is None:
        return
    message, at, size = buffer_range
    pick = rng.randrange(6)
    if pick == 0:
        message.body[at : at + size] = bytes(size)
    elif pick == 1:
        message.body[at : at + size] = b"\xff" * size
    elif pick == 2:
        message.body[at : at + size] = rng.randbytes(size)
    elif pick == 3:
        other, other_start, length = _choose_buffer_range(rng, stream) or buffer_range
        content = bytes(other.body[other_start : other_start + min(length, size)])
        message.body[at : at + len(content)] = content
    else:
        flipped = bytearray(message.body[at : at + size])
        flip_bits(rng, flipped)
        message.body[at : at + size] = flipped


def recompress_buffer(rng: random.Random, stream: EditableStream) -> None:
    """Append a compressed buffer to the body, with other content or another kind of frame, and use it."""
    compressed_messages = [
        message for message in stream.messages if message.batch is not None and "compression" in message.batch.slots
    ]
    if not compressed_messages:
        return
    message = rng.choice(compressed_messages)
    assert message.batch is not None
    buffers = message.batch.slots.get("buffers")
    if buffers is None or not len(buffers):
        return
    buffer_index, codec = rng.randrange(len(buffers)), message.batch.slots["compression"].slots.get("codec", 0)
    offset, size = int(buffers[buffer_index]["offset"]), int(buffers[buffer_index]["length"])
    content = decompress(bytes(message.body[offset : offset + size]) if offset >= 0 else b"", codec)
    if content and rng.random() < 0.7:
        edited = bytearray(content)
        start = 4 * rng.randrange((len(edited) + 3) // 4)
        value = mutate_number(rng, int.from_bytes(edited[start : start + 4], "little", signed=True))
        edited[start : start + 4] = (value & 0xFFFFFFFF).to_bytes(4, "little")
        content = bytes(edited)
    message.body += bytes(-len(message.body) % 8)
    compressed = compress(rng, content, codec)
    buffers[buffer_index] = (len(message.body), len(compressed))
    message.body += compressed + bytes(-len(compressed) % 8)


def resize_body(rng: random.Random, stream: EditableStream) -> None:
    """Make a body shorter or longer."""
    message = rng.choice(stream.messages)
    if message.body and rng.random() < 0.5:
        del message.body[rng.randrange(len(message.body)) :]
    else:
        message.body += bytes(rng.choice((1, 8, 64, 512)))


def flip_bits(rng: random.Random, buffer: bytearray) -> None:
    """Flip some bits in place."""
    for _ in range(rng.choice((1, 1, 2, 4))):
        if buffer:
            buffer[rng.randrange(len(buffer))] ^= 1 << rng.randrange(8)


MUTATIONS: dict[Mutation, int] = {
    change_number: 8,
    set_or_remove_number: 2,
    change_vector: 10,
    change_children: 4,
    change_table: 3,
    change_type: 4,
    wrap_field: 3,
    name_extension: 3,
    change_text: 2,
    change_all_lengths: 5,
    change_null_counts: 2,
    change_footer_blocks: 3,
    falsify_length: 2,
    change_footer_schema: 1,
    change_message_order: 4,
    change_integer: 14,
    change_buffer_prefix: 3,
    recompress_buffer: 4,
    change_bytes: 6,
    resize_body: 2,
}


def mutate_stream(rng: random.Random, stream: EditableStream) -> None:
    """Apply one to five mutations, usually one or two."""
    mutations: Sequence[Mutation] = list(MUTATIONS)
    for mutation in rng.choices(mutations, list(MUTATIONS.values()), k=rng.choice((1, 1, 1, 2, 2, 3, 5))):
        if stream.messages:
            mutation(rng, stream)

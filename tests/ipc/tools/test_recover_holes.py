"""Recovering data with one hole: what is recovered can be read by pyarrow, and a file stays a file."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from functools import cache

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bs
from bowstring import errors
from fuzz.editable_stream import EditableStream, parse_stream
from fuzz.flatbuffers import TableNode
from tests.ipc.samples import as_file, as_stream, batch, dictionary_batch

HOLES_PER_INPUT = 40


def recover(raw: bytes) -> tuple[bs.ipc.RecoveryReport, pa.Table]:
    """Return the report and the recovered table, read by pyarrow."""
    sink = io.BytesIO()
    report = bs.ipc.recover(raw, sink)
    open_reader = pa.ipc.open_file if report.format == "file" else pa.ipc.open_stream
    table = open_reader(sink.getvalue()).read_all()
    table.validate(full=True)
    assert table.num_rows == report.rows
    return report, table


def edit(raw: bytes, change: Callable[[EditableStream], object]) -> bytes:
    """Return the data after a change of its messages or its footer."""
    stream = parse_stream(raw)
    assert stream is not None
    if stream.footer is not None:
        stream.footer.slots["schema"] = stream.footer.slots["schema"].copy()  # a footer has its own schema
    change(stream)
    return stream.encode()


def find_tables(root: TableNode, definition: str) -> list[TableNode]:
    return [node for node in root.nodes() if node.definition == definition]


# Files


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: bytes(4) + raw[4:],
        lambda raw: b"\xff" * 4 + raw[4:],
        lambda raw: bytes(8) + raw[8:],
        lambda raw: bytes(100) + raw[100:],
        lambda raw: raw[3:],
        lambda raw: raw[8:],
        lambda raw: b"HTTP/1.1 200 OK\r\n\r\n" + raw,
        lambda raw: raw[:8] + b"junk" + raw[8:],
    ],
    ids=[
        "zeros",
        "ones",
        "no magic",
        "no schema message",
        "3 bytes lost",
        "8 bytes lost",
        "junk before",
        "junk inside",
    ],
)
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_a_file_with_a_damaged_beginning_is_recovered_as_a_file(
    damage: Callable[[bytes], bytes], compression: str | None
) -> None:
    rows = batch()
    raw = as_file(rows, rows.slice(1), compression=compression)
    report, table = recover(damage(raw))
    assert report.format == "file"
    assert report.dropped
    assert not report.is_intact
    assert table.to_pylist() == pa.ipc.open_file(raw).read_all().to_pylist()


def test_a_remote_file_with_a_damaged_magic_is_recovered_as_a_file() -> None:
    import fsspec

    raw = as_file(batch("int", "text"), batch("int", "text"))
    with fsspec.open("memory://damaged-magic.arrow", "wb") as target:
        target.write(bytes(4) + raw[4:])
    report, table = recover("memory://damaged-magic.arrow")  # type: ignore[arg-type]
    assert report.format == "file"
    assert table.num_rows == 6


@pytest.mark.parametrize(
    "damage",
    [
        lambda schema: find_tables(schema, "DictionaryEncoding")[0].slots.update(id=-1),
        lambda schema: find_tables(schema, "DictionaryEncoding")[0].slots.update(id=77),
        lambda schema: find_tables(schema, "Field")[0].slots.pop("dictionary"),
        lambda schema: schema.slots.update(fields=[]),
        lambda schema: schema.slots.pop("fields"),
    ],
    ids=["id -1", "another id", "no dictionary", "empty", "no fields"],
)
def test_a_damaged_schema_in_the_footer_does_not_replace_the_schema_message(
    damage: Callable[[TableNode], object],
) -> None:
    rows = dictionary_batch("a", None, keys=["a", "b"])
    raw = as_file(rows, rows)
    report, table = recover(edit(raw, lambda stream: damage(stream.footer.slots["schema"])))  # type: ignore[union-attr]
    assert table.to_pylist() == [{"w": "a"}, {"w": None}] * 2
    assert report.format == "file"
    assert report.footer_problem is not None
    assert not report.is_intact


def test_a_schema_message_that_differs_from_the_footer_is_reported() -> None:
    def rename(stream: EditableStream) -> None:
        assert stream.messages[0].header is not None
        find_tables(stream.messages[0].header, "Field")[0].slots["name"] = "other"

    report, table = recover(edit(as_file(batch("int")), rename))
    assert table.column_names == ["int"]
    assert [span.reason for span in report.dropped] == [
        "the footer's schema has column 0 as 'int: int32', the schema message 'other: int32'"
    ]


# Messages


def test_a_batch_with_an_unaligned_buffer_is_dropped() -> None:
    def shift(stream: EditableStream) -> None:
        last = stream.messages[-1].batch
        assert last is not None
        last.slots["buffers"]["offset"][1] -= 4

    report, table = recover(edit(as_stream(batch("int"), batch("int")), shift))
    assert table.num_rows == 3
    assert "a buffer does not begin at a multiple of 8 bytes" in report.dropped[0].reason


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_an_empty_batch_with_a_damaged_compressed_buffer_is_dropped(compression: str) -> None:
    rows = batch("text")
    raw = as_stream(rows, rows.slice(0, 0), compression=compression)

    def damage(stream: EditableStream, length_bytes: int) -> None:
        empty = stream.messages[-1]
        assert empty.batch is not None
        at = int(empty.batch.slots["buffers"]["offset"][1])
        empty.body[at : at + 8] = length_bytes.to_bytes(8, "little", signed=True)
        empty.body[at + 8 : at + 12] = b"\xfb\xff\xff\xff"

    for length_bytes in (-1, 0):  # offsets that are not compressed, and no offsets
        report, table = recover(edit(raw, lambda stream, size=length_bytes: damage(stream, size)))  # type: ignore[misc]
        assert table.num_rows == 3
        assert [span.rows for span in report.dropped] == [0]


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_frame_that_is_shorter_than_its_buffer_is_invalid(compression: str) -> None:
    rows = bs.record_batch({"n": np.zeros(1000, np.int64)})

    def enlarge(stream: EditableStream) -> None:
        last = stream.messages[-1].batch
        assert last is not None
        last.slots["buffers"]["length"][1] += 1

    raw = edit(as_stream(rows, rows, compression=compression), enlarge)
    assert recover(raw)[0].record_batches == 1
    with pytest.raises(errors.InvalidDataError, match="a buffer has 1 bytes after its"):
        bs.open_stream(raw).read_all().validate(full=True)


@pytest.mark.parametrize("name", ["runs", "dense", "sparse"])
def test_a_batch_with_nulls_in_the_node_of_a_layout_without_validity_is_dropped(name: str) -> None:
    def count_nulls(stream: EditableStream) -> None:
        last = stream.messages[-1].batch
        assert last is not None
        last.slots["nodes"]["null_count"][0] = 2

    report, table = recover(edit(as_stream(batch(name), batch(name)), count_nulls))
    assert table.num_rows == 3
    assert "the null count is 2" in report.dropped[0].reason


def test_parts_of_a_schema_that_other_readers_require_are_restored() -> None:
    rows = batch("map")
    encoded = bs.record_batch({"map": rows["map"], "d": bs.array(["u", None, "u"]).dictionary_encode()})

    def loosen(stream: EditableStream) -> None:
        schema = stream.messages[0].header
        assert schema is not None
        for field in find_tables(schema, "Field"):
            field.slots["nullable"] = True
        find_tables(schema, "DictionaryEncoding")[0].slots.pop("indexType")

    report, table = recover(edit(as_stream(encoded), loosen))
    assert report.is_intact
    assert table.to_pylist() == pa.table(encoded).to_pylist()


def test_a_stream_whose_schema_has_a_dictionary_without_id_is_rejected() -> None:
    rows = dictionary_batch(None, keys=["a"])

    def damage(stream: EditableStream) -> None:
        assert stream.messages[0].header is not None
        find_tables(stream.messages[0].header, "DictionaryEncoding")[0].slots["id"] = -1

    with pytest.raises(errors.InvalidDataError, match="-1 is not the id of a dictionary"):
        recover(edit(as_stream(rows), damage))


# Random holes


@cache
def make_inputs() -> dict[str, bytes]:
    """Return files and streams of all types, small and large, in all compressions."""
    size = 300
    small = batch()
    large = bs.record_batch(
        {
            "n": np.arange(size),
            "s": [f"value {number}" for number in range(size)],
            "v": bs.array([f"a long value {number}" for number in range(size)], bs.string_view()),
            "d": bs.array([f"word {number % 7}" for number in range(size)]).dictionary_encode(),
            "l": bs.array([[number] * (number % 3) for number in range(size)], bs.list_(bs.int64())),
            "e": bs.array([[]] * size, bs.list_(bs.string())),
        }
    )
    inputs = {}
    for compression in (None, "lz4", "zstd"):
        for name, rows in (("small", small), ("large", large)):
            batches = (rows, rows.slice(1), rows.slice(0, 0), rows)
            inputs[f"file of {name} batches, {compression}"] = as_file(*batches, compression=compression)
            inputs[f"stream of {name} batches, {compression}"] = as_stream(*batches, compression=compression)
    return inputs


def punch_hole(raw: bytes, rng: random.Random) -> bytes:
    """Damage one place: half of them in the first and last bytes, where the structure is."""
    position, size = rng.random(), rng.choice((1, 2, 4, 8, 64, 200))
    at = rng.randrange(400) if position < 0.25 else len(raw) - rng.randint(1, 1500) if position < 0.5 else 0
    at = max(at, 0) or rng.randrange(len(raw))
    size = min(size, len(raw) - at)
    end = at + size
    kind = rng.choice(("zeros", "ones", "random", "flip", "cut", "insert", "truncate"))
    if kind == "truncate":
        return raw[:at]
    if kind == "flip":
        return raw[:at] + bytes([raw[at] ^ 1 << rng.randrange(8)]) + raw[at + 1 :]
    filling = {"zeros": bytes(size), "ones": b"\xff" * size, "cut": b""}.get(kind) or rng.randbytes(size)
    return raw[:at] + (b"" if kind == "cut" else filling) + raw[at if kind == "insert" else end :]


@pytest.mark.parametrize("name", list(make_inputs()))
def test_what_is_recovered_after_a_hole_is_readable_by_pyarrow(name: str) -> None:
    raw, rng, recovered = make_inputs()[name], random.Random(name), 0
    for _ in range(HOLES_PER_INPUT):
        damaged = punch_hole(raw, rng)
        try:
            report, _ = recover(damaged)
        except errors.InvalidDataError:
            continue
        assert report.format == name.split(maxsplit=1)[0]
        recovered += 1
    assert recovered > HOLES_PER_INPUT // 2

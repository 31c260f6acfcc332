"""`bowstring.anatomy`: every byte of a file or a stream belongs to exactly one leaf, and to the right one."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bs
from bowstring.errors import BowstringError, FormatMismatchError, LimitError, NotFoundError
from bowstring.inspection.anatomy.glossary import MEANINGS
from bowstring.inspection.anatomy.model import Anatomy, Leaf, Part, Segment
from bowstring.ipc.options import IpcWriteOptions
from tests.inspection.test_inspect import written_by_bowstring, written_by_pyarrow

FORMATS = ("file", "stream")
TABLE = pa.table(
    {
        "id": pa.array(range(100), pa.int64()),
        "name": pa.array(["Ada", None, "Grace", "李明"] * 25),
        "coded": pa.array(["x", "y"] * 50).dictionary_encode(),
        "lists": pa.array([[1, 2], [], None, [3]] * 25),
        "nothing": pa.nulls(100),
    }
)


def assert_tiled(found: Anatomy) -> None:
    """The leaves lie end to end, from the first byte to the last."""
    at = 0
    for part in found.parts:
        assert part.start == at
        assert (part.leaves.lengths_bytes > 0).all()
        assert len(part.leaves.kinds) == len(part.leaves.buffers) == len(part.leaves)
        at = part.stop
    assert at == found.total_bytes


def kinds(found: Anatomy) -> list[str]:
    return [part.kind.value for part in found.parts]


def buffers_of(found: Anatomy, part: Part) -> dict[tuple[str, str], tuple[int, int]]:
    """Field and role of each buffer of a part that is on the map -> its bytes in the file."""
    plan, out, at = found.plans[part.plan], {}, part.start
    slots = plan.slots_of(() if part.span is None or not plan.is_variadic else part.span.header.variadic_counts())
    for size, number in zip(part.leaves.lengths_bytes.tolist(), part.leaves.buffers.tolist(), strict=True):
        if number >= 0:
            slot = int(slots[number])
            spec = plan.slots[slot if slot >= 0 else ~slot]
            role = spec.role if slot >= 0 else "data"
            out[plan.fields[spec.field].name, role] = (at, at + size)
        at += size
    return out


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("options", [{}, {"compression": "lz4"}, {"compression": "zstd"}, {"use_legacy_format": True}])
def test_what_pyarrow_writes_is_tiled_message_by_message(form: str, options: dict[str, Any]) -> None:
    if options.pop("use_legacy_format", False):
        options = {"use_legacy_format": True, "metadata_version": pa.ipc.MetadataVersion.V4}
    raw = written_by_pyarrow(TABLE, form, 40, **options)
    found = bs.anatomy(raw)
    assert_tiled(found)
    messages = ["schema", "dictionary batch", "record batch", "record batch", "record batch", "end of stream"]
    assert kinds(found) == (["start", *messages, "footer"] if form == "file" else messages)
    assert not found.damages
    assert found.inspection == bs.inspect(raw)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    ("alignment", "wire_form"),
    [
        (64, IpcWriteOptions()),
        (8, IpcWriteOptions()),
        (64, IpcWriteOptions("big")),
        (64, IpcWriteOptions(metadata_version="V4")),
        (16, IpcWriteOptions(metadata_version="V4", is_legacy_framing=True)),
        (8, IpcWriteOptions(compression="zstd")),
    ],
)
def test_what_bowstring_writes_in_each_form_is_tiled(form: str, alignment: int, wire_form: IpcWriteOptions) -> None:
    table = bs.table(
        {
            "union": bs.array([1, "x", None], bs.dense_union([("i", bs.int32()), ("s", bs.string())])),
            "views": bs.array(["short", "longer than twelve bytes", None], bs.string_view()),
            "runs": bs.array([7, 7, 8], bs.run_end_encoded(bs.int32(), bs.int64())),
            "coded": bs.array(["a", "b", "a"], bs.dictionary(bs.int8(), bs.string())),
            "structs": [{"a": 1, "b": [True]}, None, {"a": None, "b": []}],
        }
    )
    sink = io.BytesIO()
    new = bs.new_file if form == "file" else bs.new_stream
    with new(sink, table.schema, alignment=alignment, options=wire_form) as writer:
        writer.write(table)
    found = bs.anatomy(sink.getvalue())
    assert_tiled(found)
    assert not found.damages
    batch = next(part for part in found.parts if part.kind is Segment.RECORD_BATCH)
    assert {("views", "views"), ("views", "data"), ("coded", "indices"), ("union", "type ids")} <= {
        *buffers_of(found, batch)
    }


def test_each_buffer_is_where_its_bytes_are() -> None:
    table = bs.table({"n": np.arange(1000, 1010), "s": ["one", None, "three"] + ["x"] * 7})
    raw = written_by_bowstring(table, "file")
    found = bs.anatomy(raw)
    batch = next(part for part in found.parts if part.kind is Segment.RECORD_BATCH)
    places = {key: raw[start:stop] for key, (start, stop) in buffers_of(found, batch).items()}
    assert places["n", "data"] == np.arange(1000, 1010).tobytes()
    assert places["s", "validity"] == b"\xfd\x03"
    assert places["s", "data"] == b"onethree" + b"x" * 7
    assert np.frombuffer(places["s", "offsets"], "<i4").tolist() == [0, 3, 3, 8, 9, 10, 11, 12, 13, 14, 15]
    assert ("n", "validity") not in places


def test_the_small_parts_of_a_file_are_what_they_are_called() -> None:
    raw = written_by_bowstring(bs.table({"n": [1, 2, 3]}), "file")
    found = bs.anatomy(raw)
    by_kind: dict[Leaf, list[bytes]] = {}
    for part in found.parts:
        at = part.start
        for size, kind in zip(part.leaves.lengths_bytes.tolist(), part.leaves.kinds.tolist(), strict=True):
            by_kind.setdefault(Leaf(kind), []).append(raw[at : at + size])
            at += size
    assert by_kind[Leaf.MAGIC] == [b"ARROW1", b"ARROW1"]
    assert by_kind[Leaf.CONTINUATION] == [b"\xff" * 4] * 3
    assert by_kind[Leaf.LENGTH][-1] == bytes(4)
    assert int.from_bytes(by_kind[Leaf.FOOTER_LENGTH][0], "little") > 100
    assert not any(b"".join(by_kind[Leaf.PADDING]))
    assert by_kind[Leaf.BUFFER] == [np.array([1, 2, 3]).tobytes()]
    assert len(by_kind[Leaf.METADATA]) == 3


def test_a_byte_is_found_by_its_place() -> None:
    raw = written_by_bowstring(bs.table({"n": [1, 2, 3]}), "file")
    found = bs.anatomy(raw)
    for at in range(len(raw)):
        part, start, stop, kind, number = found.leaf_at(at)
        assert part.start <= start <= at < stop <= part.stop
        assert (number >= 0) == (kind is Leaf.BUFFER)
    assert found.leaf_at(0)[1:4] == (0, 6, Leaf.MAGIC)
    assert found.leaf_at(len(raw) - 1)[3] is Leaf.MAGIC


def test_role_bytes_add_up_to_what_the_columns_take() -> None:
    raw = written_by_pyarrow(TABLE, "file", 30)
    found = bs.anatomy(raw)
    assert found.inspection is not None
    for column in found.inspection.columns:
        own = {role: size for (index, role), size in found.role_bytes.items() if index == column.index}
        assert sum(own.values()) == column.buffer_bytes
    assert found.role_bytes[1, "offsets"] == 4 * (100 + 4)


def test_bytes_after_a_stream_belong_to_nothing() -> None:
    raw = written_by_pyarrow(TABLE, "stream")
    found = bs.anatomy(raw + b"something else")
    assert_tiled(found)
    assert found.parts[-1].kind is Segment.UNCLAIMED
    assert found.parts[-1].leaves.total_bytes == len(b"something else")
    assert not found.damages


def test_tensors_are_messages_with_buffers() -> None:
    raw = pa.BufferOutputStream()
    pa.ipc.write_tensor(pa.Tensor.from_numpy(np.arange(12.0).reshape(3, 4)), raw)
    found = bs.anatomy(bytes(raw.getvalue()))
    assert_tiled(found)
    assert kinds(found) == ["tensor"]
    assert [Leaf(kind) for kind in found.parts[0].leaves.kinds].count(Leaf.BUFFER) == 1
    assert found.inspection is None
    assert not found.damages


def test_two_buffers_over_the_same_bytes_are_drawn_once() -> None:
    from bowstring.inspection.anatomy.leaves import body_leaves

    offsets, lengths = np.array([0, 8, 0, 64]), np.array([16, 16, 4, 8])
    leaves = body_leaves(offsets, lengths, 80)
    assert leaves.lengths_bytes.tolist() == [16, 8, 40, 8, 8]
    assert leaves.buffers.tolist() == [0, 1, -1, 3, -1]


# Damage


def test_a_body_that_is_cut_off_is_told_once() -> None:
    raw = written_by_pyarrow(TABLE, "stream", 40)
    whole = bs.anatomy(raw)
    last = [part for part in whole.parts if part.kind is Segment.RECORD_BATCH][-1]
    (damage,) = bs.anatomy(raw[: last.stop - 1]).damages
    assert damage.message.startswith(f"message at byte {last.start}: expected ")


def test_a_file_that_is_cut_off_is_drawn_up_to_there() -> None:
    raw = written_by_pyarrow(TABLE, "file", 40)
    whole = bs.anatomy(raw)
    for size in range(9, len(raw), 97):
        found = bs.anatomy(raw[:size])
        assert_tiled(found)
        assert found.damages
        there = [part for part in whole.parts if part.stop <= size and part.kind is Segment.RECORD_BATCH]
        drawn = [p for p in found.parts if p.kind is Segment.RECORD_BATCH]
        assert [p.start for p in drawn][: len(there)] == [p.start for p in there]


@pytest.mark.parametrize("form", FORMATS)
def test_a_broken_header_is_a_damage_with_its_place(form: str) -> None:
    raw = bytearray(written_by_pyarrow(TABLE, form, 40))
    second = [part for part in bs.anatomy(bytes(raw)).parts if part.kind is Segment.RECORD_BATCH][1]
    raw[second.start + 8 : second.start + 40] = b"\xab" * 32
    found = bs.anatomy(bytes(raw))
    assert_tiled(found)
    assert [damage.at for damage in found.damages] == [second.start]
    rows = None if found.inspection is None else found.inspection.rows
    assert rows == (60 if form == "file" else 40)  # a file's footer knows where the next one begins
    assert Segment.UNREAD in {part.kind for part in found.parts}


@pytest.mark.parametrize("form", FORMATS)
def test_whatever_single_byte_is_wrong_the_leaves_are_end_to_end(form: str) -> None:
    raw = written_by_pyarrow(TABLE.slice(0, 10), form, 5)
    for at in range(0, len(raw), 7):
        for value in (0x00, 0xFF, raw[at] ^ 0x80):
            changed = bytearray(raw)
            changed[at] = value
            try:
                found = bs.anatomy(bytes(changed))
            except FormatMismatchError:
                assert at < 12
                continue
            assert_tiled(found)


def test_too_many_messages_become_one_part() -> None:
    raw = written_by_pyarrow(TABLE, "file", 1)
    found = bs.anatomy(raw, max_parts=20)
    assert_tiled(found)
    assert found.is_shortened
    assert len(found.parts) < 30
    assert found.parts[-2].kind is Segment.OMITTED
    assert not found.damages


def test_a_message_that_the_footer_does_not_list_is_told_apart() -> None:
    stream = written_by_pyarrow(TABLE.select(["id"]), "stream", 50)
    parts = bs.anatomy(stream).parts
    batch = stream[parts[1].start : parts[1].stop]
    raw = written_by_pyarrow(TABLE.select(["id"]), "file")
    footer = bs.anatomy(raw).parts[-2]  # the end of stream before it
    found = bs.anatomy(raw[: footer.start] + batch + raw[footer.start :])
    assert_tiled(found)
    assert [part.is_listed for part in found.parts if part.kind is Segment.RECORD_BATCH] == [True, False]
    assert found.inspection is not None
    assert found.inspection.rows == 100


def test_what_is_no_arrow_data_is_refused() -> None:
    with pytest.raises(FormatMismatchError):
        bs.anatomy(b"a,b\n1,2\n")
    with pytest.raises(NotFoundError):
        bs.anatomy("no/such/file.arrow")


def test_a_stream_on_a_pipe_is_kept_up_to_the_limit() -> None:
    raw = written_by_pyarrow(TABLE, "stream")

    class Pipe(io.RawIOBase):
        def __init__(self) -> None:
            self.held = io.BytesIO(raw)

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            return self.held.readinto(memoryview(buffer)[:100])

    found = bs.anatomy(Pipe())
    assert_tiled(found)
    assert found.total_bytes == len(raw)
    with pytest.raises(LimitError, match="max_piped_bytes"):
        bs.anatomy(Pipe(), max_piped_bytes=1000)


# The corpus


def test_the_golden_files_are_tiled_without_damage(shared_folder: Path) -> None:
    paths = [
        p for p in sorted((shared_folder / "corpus" / "golden").rglob("*")) if p.suffix in (".stream", ".arrow_file")
    ]
    assert paths
    for path in paths:
        found = bs.anatomy(path)
        assert_tiled(found)
        assert (path.name, found.damages) == (path.name, ())
        assert found.inspection == bs.inspect(path)
        assert all(part.plan >= 0 for part in found.parts if part.lengths is not None)


def test_the_fuzzers_files_are_tiled_or_refused(shared_folder: Path) -> None:
    tiled = 0
    for path in sorted(p for p in (shared_folder / "corpus" / "fuzz").rglob("*") if p.is_file()):
        try:
            found = bs.anatomy(path)
        except BowstringError:
            continue
        assert_tiled(found)
        tiled += 1
    assert tiled > 20


def test_the_headings_that_the_page_names_are_in_the_specification(shared_folder: Path) -> None:
    text = "".join(
        (shared_folder / "spec" / name).read_text("utf-8") for name in ("columnar-1.4.rst", "ipc-0.14-legacy.rst")
    )
    lines = set(text.splitlines())
    assert [h for meaning in MEANINGS.values() for h in meaning.headings if h not in lines] == []

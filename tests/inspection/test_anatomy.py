"""`build_anatomy`: every byte of a file or a stream belongs to exactly one leaf, and to the right one."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bs
from bowstring.errors import BowstringError, FormatMismatchError, LimitError, NotFoundError
from bowstring.inspection.anatomy.encoder import MEANINGS
from bowstring.inspection.anatomy.model import Anatomy, ByteRangeKind, FileSection, FileSectionKind
from bowstring.ipc.write_options import IpcWriteOptions
from tests.inspection.test_header_inspection import written_by_bowstring, written_by_pyarrow

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


def assert_contiguous(anatomy: Anatomy) -> None:
    """The leaves are contiguous, from the first byte to the last."""
    at = 0
    for section in anatomy.sections:
        assert section.start == at
        assert (section.byte_ranges.lengths_bytes > 0).all()
        assert len(section.byte_ranges.kinds) == len(section.byte_ranges.buffers) == len(section.byte_ranges)
        at = section.stop
    assert at == anatomy.total_bytes


def section_kinds(anatomy: Anatomy) -> list[str]:
    return [section.kind.value for section in anatomy.sections]


def buffer_ranges(anatomy: Anatomy, section: FileSection) -> dict[tuple[str, str], tuple[int, int]]:
    """Field and role of each buffer of a section that is on the map -> its bytes in the file."""
    layout, out, at = anatomy.layouts[section.layout_index], {}, section.start
    indices = layout.buffer_indices(
        () if section.message is None or not layout.is_variadic else section.message.header.variadic_counts()
    )
    for size, number in zip(
        section.byte_ranges.lengths_bytes.tolist(), section.byte_ranges.buffers.tolist(), strict=True
    ):
        if number >= 0:
            index = int(indices[number])
            spec = layout.buffers[index if index >= 0 else ~index]
            role = spec.role if index >= 0 else "data"
            out[layout.fields[spec.field].name, role] = (at, at + size)
        at += size
    return out


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("options", [{}, {"compression": "lz4"}, {"compression": "zstd"}, {"use_legacy_format": True}])
def test_the_sections_of_pyarrow_files_cover_all_bytes(form: str, options: dict[str, Any]) -> None:
    if options.pop("use_legacy_format", False):
        options = {"use_legacy_format": True, "metadata_version": pa.ipc.MetadataVersion.V4}
    raw = written_by_pyarrow(TABLE, form, 40, **options)
    anatomy = bs.inspection.build_anatomy(raw)
    assert_contiguous(anatomy)
    messages = ["schema", "dictionary batch", "record batch", "record batch", "record batch", "end of stream"]
    assert section_kinds(anatomy) == (["start", *messages, "footer"] if form == "file" else messages)
    assert not anatomy.faults
    assert anatomy.inspection == bs.inspection.inspect(raw)


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
def test_the_sections_cover_all_bytes_of_every_encoding(form: str, alignment: int, wire_form: IpcWriteOptions) -> None:
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
    anatomy = bs.inspection.build_anatomy(sink.getvalue())
    assert_contiguous(anatomy)
    assert not anatomy.faults
    batch = next(section for section in anatomy.sections if section.kind is FileSectionKind.RECORD_BATCH)
    assert {("views", "views"), ("views", "data"), ("coded", "indices"), ("union", "type ids")} <= {
        *buffer_ranges(anatomy, batch)
    }


def test_the_ranges_of_buffers_have_their_bytes() -> None:
    table = bs.table({"n": np.arange(1000, 1010), "s": ["one", None, "three"] + ["x"] * 7})
    raw = written_by_bowstring(table, "file")
    anatomy = bs.inspection.build_anatomy(raw)
    batch = next(section for section in anatomy.sections if section.kind is FileSectionKind.RECORD_BATCH)
    places = {key: raw[start:stop] for key, (start, stop) in buffer_ranges(anatomy, batch).items()}
    assert places["n", "data"] == np.arange(1000, 1010).tobytes()
    assert places["s", "validity"] == b"\xfd\x03"
    assert places["s", "data"] == b"onethree" + b"x" * 7
    assert np.frombuffer(places["s", "offsets"], "<i4").tolist() == [0, 3, 3, 8, 9, 10, 11, 12, 13, 14, 15]
    assert ("n", "validity") not in places


def test_leaves_have_the_bytes_of_their_kind() -> None:
    raw = written_by_bowstring(bs.table({"n": [1, 2, 3]}), "file")
    anatomy = bs.inspection.build_anatomy(raw)
    by_kind: dict[ByteRangeKind, list[bytes]] = {}
    for section in anatomy.sections:
        at = section.start
        for size, kind in zip(
            section.byte_ranges.lengths_bytes.tolist(), section.byte_ranges.kinds.tolist(), strict=True
        ):
            by_kind.setdefault(ByteRangeKind(kind), []).append(raw[at : at + size])
            at += size
    assert by_kind[ByteRangeKind.MAGIC] == [b"ARROW1", b"ARROW1"]
    assert by_kind[ByteRangeKind.CONTINUATION] == [b"\xff" * 4] * 3
    assert by_kind[ByteRangeKind.LENGTH][-1] == bytes(4)
    assert int.from_bytes(by_kind[ByteRangeKind.FOOTER_LENGTH][0], "little") > 100
    assert not any(b"".join(by_kind[ByteRangeKind.PADDING]))
    assert by_kind[ByteRangeKind.BUFFER] == [np.array([1, 2, 3]).tobytes()]
    assert len(by_kind[ByteRangeKind.METADATA]) == 3


def test_role_bytes_sum_to_the_size_of_the_columns() -> None:
    raw = written_by_pyarrow(TABLE, "file", 30)
    anatomy = bs.inspection.build_anatomy(raw)
    assert anatomy.inspection is not None
    for column in anatomy.inspection.columns:
        own = {role: size for (index, role), size in anatomy.role_bytes.items() if index == column.index}
        assert sum(own.values()) == column.buffer_bytes
    assert anatomy.role_bytes[1, "offsets"] == 4 * (100 + 4)


def test_bytes_after_a_stream_are_an_unclaimed_section() -> None:
    raw = written_by_pyarrow(TABLE, "stream")
    anatomy = bs.inspection.build_anatomy(raw + b"something else")
    assert_contiguous(anatomy)
    assert anatomy.sections[-1].kind is FileSectionKind.UNCLAIMED
    assert anatomy.sections[-1].byte_ranges.total_bytes == len(b"something else")
    assert not anatomy.faults


def test_two_buffers_with_the_same_bytes_have_one_leaf() -> None:
    from bowstring.inspection.anatomy.message_byte_ranges import body_byte_ranges

    offsets, lengths = np.array([0, 8, 0, 64]), np.array([16, 16, 4, 8])
    leaves = body_byte_ranges(offsets, lengths, 80)
    assert leaves.lengths_bytes.tolist() == [16, 8, 40, 8, 8]
    assert leaves.buffers.tolist() == [0, 1, -1, 3, -1]


# Errors


def test_a_truncated_body_is_one_error() -> None:
    raw = written_by_pyarrow(TABLE, "stream", 40)
    whole = bs.inspection.build_anatomy(raw)
    last = [section for section in whole.sections if section.kind is FileSectionKind.RECORD_BATCH][-1]
    (fault,) = bs.inspection.build_anatomy(raw[: last.stop - 1]).faults
    assert fault.message.startswith(f"message at byte {last.start}: expected ")


def test_a_truncated_file_has_sections_up_to_its_end() -> None:
    raw = written_by_pyarrow(TABLE, "file", 40)
    whole = bs.inspection.build_anatomy(raw)
    for size in range(9, len(raw), 97):
        anatomy = bs.inspection.build_anatomy(raw[:size])
        assert_contiguous(anatomy)
        assert anatomy.faults
        there = [
            section
            for section in whole.sections
            if section.stop <= size and section.kind is FileSectionKind.RECORD_BATCH
        ]
        drawn = [p for p in anatomy.sections if p.kind is FileSectionKind.RECORD_BATCH]
        assert [p.start for p in drawn][: len(there)] == [p.start for p in there]


def damage_second_header(raw: bytes) -> tuple[bytes, int]:
    """Return a file or stream whose second record batch has a damaged header, and the offset of that batch."""
    sections = bs.inspection.build_anatomy(raw).sections
    start = [section.start for section in sections if section.kind is FileSectionKind.RECORD_BATCH][1]
    return raw[: start + 8] + b"\xab" * 32 + raw[start + 40 :], start


@pytest.mark.parametrize("form", FORMATS)
def test_a_damaged_header_is_an_error_with_its_offset(form: str) -> None:
    raw, offset = damage_second_header(written_by_pyarrow(TABLE, form, 40))
    anatomy = bs.inspection.build_anatomy(raw)
    assert_contiguous(anatomy)
    assert [fault.offset for fault in anatomy.faults] == [offset]
    rows = None if anatomy.inspection is None else anatomy.inspection.rows
    assert rows == (60 if form == "file" else 40)  # the footer of a file has the offset of the next one
    assert FileSectionKind.UNREAD in {section.kind for section in anatomy.sections}


@pytest.mark.parametrize("form", FORMATS)
def test_leaves_are_contiguous_whichever_byte_is_damaged(form: str) -> None:
    raw = written_by_pyarrow(TABLE.slice(0, 10), form, 5)
    for at in range(0, len(raw), 17):
        for value in (0x00, 0xFF, raw[at] ^ 0x80):
            changed = bytearray(raw)
            changed[at] = value
            try:
                anatomy = bs.inspection.build_anatomy(bytes(changed))
            except FormatMismatchError:
                assert at < 12
                continue
            assert_contiguous(anatomy)


def test_messages_beyond_the_limit_are_one_section() -> None:
    raw = written_by_pyarrow(TABLE, "file", 1)
    anatomy = bs.inspection.build_anatomy(raw, max_sections=20)
    assert_contiguous(anatomy)
    assert anatomy.is_shortened
    assert len(anatomy.sections) < 30
    assert anatomy.sections[-2].kind is FileSectionKind.OMITTED
    assert not anatomy.faults


def test_a_message_that_the_footer_does_not_list_is_marked() -> None:
    stream = written_by_pyarrow(TABLE.select(["id"]), "stream", 50)
    sections = bs.inspection.build_anatomy(stream).sections
    batch = stream[sections[1].start : sections[1].stop]
    raw = written_by_pyarrow(TABLE.select(["id"]), "file")
    footer = bs.inspection.build_anatomy(raw).sections[-2]  # the end of stream before it
    anatomy = bs.inspection.build_anatomy(raw[: footer.start] + batch + raw[footer.start :])
    assert_contiguous(anatomy)
    assert [section.is_listed for section in anatomy.sections if section.kind is FileSectionKind.RECORD_BATCH] == [
        True,
        False,
    ]
    assert anatomy.inspection is not None
    assert anatomy.inspection.rows == 100


def test_data_that_is_not_arrow_is_rejected() -> None:
    with pytest.raises(FormatMismatchError):
        bs.inspection.build_anatomy(b"a,b\n1,2\n")
    with pytest.raises(NotFoundError):
        bs.inspection.build_anatomy("no/such/file.arrow")


def test_a_stream_on_a_pipe_is_buffered_up_to_the_limit() -> None:
    raw = written_by_pyarrow(TABLE, "stream")

    class Pipe(io.RawIOBase):
        def __init__(self) -> None:
            self.file = io.BytesIO(raw)

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            return self.file.readinto(memoryview(buffer)[:100])

    anatomy = bs.inspection.build_anatomy(Pipe())
    assert_contiguous(anatomy)
    assert anatomy.total_bytes == len(raw)
    with pytest.raises(LimitError, match="max_piped_bytes"):
        bs.inspection.build_anatomy(Pipe(), max_piped_bytes=1000)


# The corpus


def test_the_sections_of_golden_files_cover_all_bytes_without_errors(shared_folder: Path) -> None:
    paths = [
        p for p in sorted((shared_folder / "corpus" / "golden").rglob("*")) if p.suffix in (".stream", ".arrow_file")
    ]
    assert paths
    for path in paths:
        anatomy = bs.inspection.build_anatomy(path)
        assert_contiguous(anatomy)
        assert (path.name, anatomy.faults) == (path.name, ())
        assert anatomy.inspection == bs.inspection.inspect(path)
        assert all(section.layout_index >= 0 for section in anatomy.sections if section.message is not None)


def test_the_sections_of_fuzzed_files_cover_all_bytes_or_the_file_is_rejected(shared_folder: Path) -> None:
    tiled = 0
    for path in sorted(p for p in (shared_folder / "corpus" / "fuzz").rglob("*") if p.is_file()):
        try:
            anatomy = bs.inspection.build_anatomy(path)
        except BowstringError:
            continue
        assert_contiguous(anatomy)
        tiled += 1
    assert tiled > 20


def test_headings_on_the_page_exist_in_the_specification(shared_folder: Path) -> None:
    text = "".join(
        (shared_folder / "spec" / name).read_text("utf-8") for name in ("columnar-1.4.rst", "ipc-0.14-legacy.rst")
    )
    lines = set(text.splitlines())
    assert [h for meaning in MEANINGS.values() for h in meaning["headings"] if h not in lines] == []

"""Appending to a file that exists: complete, or as it was."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bs
from bowstring import errors
from bowstring.flatbuf.tables import SPECS
from bowstring.flatbuf.writer import SerializedTable, build
from bowstring.ipc.metadata import header as headers
from tests.ipc.samples import as_file, batch


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with one batch of every type."""
    made = tmp_path / "data.arrow"
    made.write_bytes(as_file(batch(), metadata={"by": "test"}))
    return made


def words(*values: str, keys: list[str]) -> bs.RecordBatch:
    """A batch of one dictionary-encoded column with this dictionary."""
    indices = np.array([keys.index(value) for value in values], np.int8)
    type_ = bs.dictionary(bs.int8(), bs.string())
    return bs.record_batch({"w": bs.Array.from_buffers(type_, len(values), [None, indices], dictionary=bs.array(keys))})


def test_batches_are_appended_behind_those_that_are_there(path: Path) -> None:
    for _ in range(3):
        with bs.append_file(path) as writer:
            writer.write(batch().slice(1))
            writer.write(bs.Table.from_batches([batch()]))
    expected = bs.Table.from_batches([batch(), *[batch().slice(1), batch()] * 3])
    assert bs.open_file(path).read_all().equals(expected)
    assert bs.open_file(path).metadata == {b"by": b"test"}
    assert bs.open_stream(path.read_bytes()[8:]).read_all().equals(expected), "a file is a stream inside"
    assert os.listdir(path.parent) == [path.name]


def test_pyarrow_reads_what_was_appended_to_its_own_file(tmp_path: Path) -> None:
    table = pa.table({"n": [1, None], "s": ["a", "b"], "d": pa.array(["x", "y"]).dictionary_encode()})
    path = str(tmp_path / "theirs.arrow")
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    with bs.append_file(path) as writer:
        for held in bs.open_file(path):
            writer.write(held)
    with pa.memory_map(path) as source:
        assert pa.ipc.open_file(source).read_all().to_pydict() == pa.concat_tables([table, table]).to_pydict()


def test_the_bytes_that_are_there_stay_where_they_are(path: Path) -> None:
    before = path.read_bytes()
    blocks = bs.open_file(path).blocks[0]
    with bs.append_file(path) as writer:
        writer.write(batch())
    end = int(blocks["offset"] + blocks["metaDataLength"] + blocks["bodyLength"])
    assert path.read_bytes()[:end] == before[:end]


def test_readers_of_the_old_file_keep_it(path: Path) -> None:
    with bs.open_file(path) as reader:
        with bs.append_file(path) as writer:
            writer.write(batch())
        assert reader.read_all().num_rows == 3
    assert bs.open_file(path).read_all().num_rows == 6


def test_an_error_in_the_block_leaves_the_file_as_it_was(path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(ZeroDivisionError), bs.append_file(path) as writer:
        writer.write(batch())
        _ = 1 / 0
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_a_process_that_is_killed_in_between_leaves_the_file_as_it_was(path: Path) -> None:
    before = path.read_bytes()
    script = (
        "import sys, bowstring as bs\n"
        "held = bs.open_file(sys.argv[1])[0]\n"
        "with bs.append_file(sys.argv[1]) as writer:\n"
        "    for number in range(1000): writer.write(held)\n"
        "    print('ready', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        with pytest.raises(errors.ResourceError, match="another process"):
            bs.append_file(path)
        process.send_signal(signal.SIGKILL)
        process.wait(30)
    assert path.read_bytes() == before
    with bs.append_file(path) as writer:
        writer.write(batch())
    assert bs.open_file(path).read_all().num_rows == 6


def test_two_who_append_at_once_do_not_lose_a_batch(path: Path) -> None:
    with bs.append_file(path) as first:
        with pytest.raises(errors.ResourceError, match="another process is appending"):
            bs.append_file(path)
        first.write(batch())
    with bs.append_file(path) as second:
        second.write(batch())
    assert bs.open_file(path).num_record_batches == 3


def test_a_failure_lets_go_of_the_file_whoever_keeps_the_error(path: Path) -> None:
    kept = []
    for _ in range(2):
        try:
            with bs.append_file(path) as writer:
                held = bs.open_file(path)[0]
                writer.write(batch("int"))
        except errors.UsageError as error:
            kept.append((error, held))
    with bs.append_file(path) as writer:
        writer.write(batch())
    assert len(kept) == 2


def test_a_file_that_was_replaced_meanwhile_is_not_overwritten(path: Path) -> None:
    other = as_file(batch("int"))
    with pytest.raises(errors.ResourceError, match="replaced"), bs.append_file(path) as writer:
        writer.write(batch())
        (path.parent / "new").write_bytes(other)
        os.replace(path.parent / "new", path)
    assert path.read_bytes() == other
    assert os.listdir(path.parent) == [path.name]


def test_permissions_stay(path: Path) -> None:
    path.chmod(0o640)
    with bs.append_file(path) as writer:
        writer.write(batch())
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_symbolic_link_stays_one(path: Path) -> None:
    link = path.parent / "link.arrow"
    link.symlink_to(path)
    with bs.append_file(link) as writer:
        writer.write(batch())
    assert link.is_symlink()
    assert bs.open_file(path).num_record_batches == 2


@pytest.mark.parametrize(
    "form",
    [
        bs.IpcWriteOptions(byte_order="big"),
        bs.IpcWriteOptions(metadata_version="V4"),
        bs.IpcWriteOptions(is_legacy_framing=True),
        bs.IpcWriteOptions(compression="zstd"),
        bs.IpcWriteOptions(compression="lz4", byte_order="big"),
    ],
)
@pytest.mark.parametrize("alignment", [8, 64])
def test_the_form_is_that_of_the_file(tmp_path: Path, form: bs.IpcWriteOptions, alignment: int) -> None:
    path = tmp_path / "formed.arrow"
    path.write_bytes(as_file(batch(), options=form, alignment=alignment))
    before = bs.inspect(path).encoding
    with bs.append_file(path) as writer:
        writer.write(batch())
    after = bs.inspect(path).encoding
    assert replace(after, compressed_batches=0) == replace(before, compressed_batches=0)
    assert after.compressed_batches == (0 if form.compression is None else before.compressed_batches + 1)
    assert bs.open_file(path).read_all().equals(bs.Table.from_batches([batch(), batch()]))


def said_inside(path: Path) -> tuple[str, ...]:
    """The features that the stream that is in a file says."""
    return bs.inspect(path.read_bytes()[8:]).encoding.features


@pytest.mark.parametrize(
    "form", [bs.IpcWriteOptions(), bs.IpcWriteOptions(is_legacy_framing=True), bs.IpcWriteOptions(byte_order="big")]
)
def test_the_schema_says_that_bodies_are_compressed_once_some_are(form: bs.IpcWriteOptions, tmp_path: Path) -> None:
    path = tmp_path / "plain.arrow"
    path.write_bytes(as_file(batch("int", "text"), options=form))
    with bs.append_file(path, compression="lz4"):
        pass
    assert bs.inspect(path).encoding.features == ()
    with bs.append_file(path) as writer:
        writer.write(batch("int", "text"))
    assert bs.inspect(path).encoding.features == ()
    before = bs.open_file(path).blocks.tolist()
    with bs.append_file(path, compression="lz4") as writer:
        writer.write(batch("int", "text"))
    assert bs.inspect(path).encoding.features == ("COMPRESSED_BODY",)
    assert said_inside(path) == ("COMPRESSED_BODY",)
    assert bs.open_file(path).blocks.tolist()[:2] == before
    assert bs.open_file(path).read_all().equals(bs.Table.from_batches([batch("int", "text")] * 3))
    assert bs.open_stream(path.read_bytes()[8:]).read_all().num_rows == 9
    with bs.append_file(path, compression=None) as writer:
        writer.write(batch("int", "text"))
    assert bs.inspect(path).encoding.features == ("COMPRESSED_BODY",)


def test_where_the_schema_message_has_no_room_the_footer_alone_says_it(tmp_path: Path) -> None:
    table, path = pa.table({"n": [1, 2], "s": ["a", None]}, metadata={"k": "v"}), tmp_path / "theirs.arrow"
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    start = path.read_bytes()[: int(bs.open_file(path).blocks["offset"][0])]
    with bs.append_file(path, compression="zstd") as appending:
        appending.write(bs.open_file(path)[0])
    assert bs.inspect(path).encoding.features == ("COMPRESSED_BODY",)
    assert bs.open_file(path).schema.metadata == {b"k": b"v"}
    assert path.read_bytes().startswith(start)
    assert pa.ipc.open_file(path).read_all().equals(pa.concat_tables([table] * 2))


def test_a_damaged_schema_message_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "damaged.arrow"
    raw = bytearray(as_file(batch("int")))
    raw[20:60] = bytes(range(40))
    path.write_bytes(raw)
    with bs.append_file(path, compression="lz4") as writer:
        writer.write(batch("int"))
    assert bs.inspect(path).encoding.features == ("COMPRESSED_BODY",)
    assert path.read_bytes()[:60] == raw[:60]


def test_a_schema_message_that_says_it_already_is_not_touched(tmp_path: Path) -> None:
    path, raw = tmp_path / "packed.arrow", bytearray(as_file(batch("int"), compression="lz4"))
    start = int(bs.open_file(bytes(raw)).blocks["offset"][0])
    raw[start - 1] = 7  # in the padding, where we would put zeros
    path.write_bytes(raw)
    with bs.append_file(path) as writer:
        writer.write(batch("int"))
    assert bs.inspect(path).encoding.features == ("COMPRESSED_BODY",)
    assert path.read_bytes()[:start] == raw[:start]


def test_a_schema_message_with_metadata_of_its_own_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "plain.arrow"
    with monkeypatch.context() as patched:
        patched.setattr(headers, "schema_message", with_metadata)
        path.write_bytes(as_file(batch("int")))
    raw, start = path.read_bytes(), int(bs.open_file(path).blocks["offset"][0])
    assert b"of the message" in raw[:start]
    with bs.append_file(path, compression="lz4") as writer:
        writer.write(batch("int"))
    assert bs.inspect(path).encoding.features == ("COMPRESSED_BODY",)
    assert path.read_bytes()[:start] == raw[:start]


def with_metadata(schema: SerializedTable, version: int = 4) -> bytes:
    """A schema message that has custom metadata beside the schema's."""
    return build(SPECS, "Message", headers._message(headers.SCHEMA, schema, version, ((b"is", b"of the message"),)))


def test_compression_may_be_another(path: Path) -> None:
    with bs.append_file(path, compression="zstd") as writer:
        writer.write(batch())
    assert bs.inspect(path).encoding.compressed_batches == 1
    with bs.append_file(path, compression=None) as writer:
        writer.write(batch())
    assert bs.inspect(path).encoding.compressed_batches == 1
    assert bs.open_file(path).read_all().num_rows == 9


def test_a_footer_alone_may_be_new(path: Path) -> None:
    with bs.append_file(path, metadata={"by": "me", "and": "you"}):
        pass
    assert bs.open_file(path).metadata == {b"by": b"me", b"and": b"you"}
    assert bs.open_file(path).read_all().num_rows == 3


def test_a_file_without_batches_gets_its_first_one(tmp_path: Path) -> None:
    path = tmp_path / "empty.arrow"
    with bs.new_file(path, batch().schema):
        pass
    with bs.append_file(path) as writer:
        writer.write(batch())
    assert bs.open_file(path).read_all().equals(bs.Table.from_batches([batch()]))


def test_a_dictionary_of_the_file_counts_as_written_and_may_go_on(tmp_path: Path) -> None:
    path = tmp_path / "words.arrow"
    path.write_bytes(as_file(words("a", "b", keys=["a", "b"])))
    with bs.append_file(path) as writer:
        writer.write(words("b", keys=["a", "b"]))
        writer.write(words("c", keys=["a", "b", "c"]))
    reader = bs.open_file(path)
    assert reader.num_dictionary_batches == 2
    assert reader.read_all()["w"].to_pylist() == ["a", "b", "b", "c"]
    before = path.read_bytes()
    with pytest.raises(errors.UsageError, match="'w'"), bs.append_file(path) as writer:
        writer.write(words("z", keys=["z"]))
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (bs.record_batch({"n": bs.array([1], bs.int64())}), "expected 15 columns, found 1"),
        (batch("bool", "int", *[f.name for f in batch().schema][2:]), "expected column 0 as 'int: int32'"),
    ],
)
def test_another_schema_is_refused_and_the_difference_named(path: Path, other: bs.RecordBatch, message: str) -> None:
    with pytest.raises(errors.UsageError, match=message), bs.append_file(path) as writer:
        writer.write(other)
    assert bs.open_file(path).num_record_batches == 1


def test_what_is_no_file_is_refused(tmp_path: Path, path: Path) -> None:
    with pytest.raises(errors.NotFoundError):
        bs.append_file(tmp_path / "none")
    with pytest.raises(errors.UsageError, match="is a directory"):
        bs.append_file(tmp_path)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(errors.TruncatedError):
        bs.append_file(path)
    with pytest.raises(errors.UsageError, match="expected a path"):
        bs.append_file(io.BytesIO(bs_stream()))  # type: ignore[arg-type]
    (tmp_path / "s").write_bytes(bs_stream())
    with pytest.raises(errors.FormatMismatchError, match="stream"):
        bs.append_file(tmp_path / "s")


def bs_stream() -> bytes:
    """A stream of one batch."""
    sink = io.BytesIO()
    with bs.new_stream(sink, batch("int").schema) as writer:
        writer.write(batch("int"))
    return sink.getvalue()


def test_a_footer_with_blocks_outside_the_file_is_refused(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    block = bs.open_file(bytes(raw)).blocks.tobytes()
    at = raw.rindex(block)
    raw[at : at + 8] = (1 << 40).to_bytes(8, "little")
    path.write_bytes(bytes(raw))
    with pytest.raises(errors.InvalidDataError, match="outside the file"):
        bs.append_file(path)


def test_the_file_of_another_writer_grows(shared_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "flights.arrow"
    path.write_bytes((shared_folder / "data" / "flights-200k.arrow").read_bytes())
    first = bs.open_file(path)[0]
    with bs.append_file(path) as writer:
        writer.write(first.slice(0, 5))
    assert bs.open_file(path).read_all().num_rows == 200_005
    with pa.memory_map(str(path)) as source:
        assert pa.ipc.open_file(source).read_all().num_rows == 200_005


def test_a_path_that_leads_nowhere_is_told(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "plain").write_bytes(b"")
    for path in (tmp_path / "loop", tmp_path / "plain" / "within", tmp_path / ("x" * 300)):
        with pytest.raises((errors.ResourceError, errors.NotFoundError)):
            bs.append_file(path)


def test_what_is_no_regular_file_is_not_even_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # to open it would wait for a writer
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(errors.UsageError, match="not a regular file"):
            bs.append_file(path)

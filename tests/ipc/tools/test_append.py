"""Append to an existing file: either all batches are added or the file stays unchanged."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bowstring as bs
from bowstring import errors
from fuzz.editable_stream import parse_stream
from tests.ipc.samples import as_file, batch, dictionary_batch


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of a file with one batch of every type."""
    path = tmp_path / "data.arrow"
    path.write_bytes(as_file(batch(), metadata={"by": "test"}))
    return path


def test_batches_are_appended_after_the_existing_ones(path: Path) -> None:
    for _ in range(3):
        with bs.ipc.append_to_file(path) as writer:
            writer.write(batch().slice(1))
            writer.write(bs.Table.from_batches([batch()]))
    expected = bs.Table.from_batches([batch(), *[batch().slice(1), batch()] * 3])
    assert bs.open_file(path).read_all().equals(expected)
    assert bs.open_file(path).metadata == {b"by": b"test"}
    assert bs.open_stream(path.read_bytes()[8:]).read_all().equals(expected), "a file contains a stream"
    assert os.listdir(path.parent) == [path.name]


_ONE = bs.record_batch({"n": [1, 2]})


@pytest.mark.parametrize(
    "data",
    [
        _ONE,
        bs.Table.from_batches([_ONE.slice(0, 1), _ONE.slice(1)]),
        bs.open_file(as_file(_ONE)),
        iter([_ONE.slice(0, 1), pa.record_batch(_ONE.slice(1))]),
        pa.table(_ONE),
        pa.record_batch(_ONE),
    ],
    ids=["batch", "table", "reader", "iterator", "pyarrow's table", "pyarrow's batch"],
)
def test_batches_are_appended_in_one_call(data: Any, tmp_path: Path) -> None:
    path = tmp_path / "data.arrow"
    bs.write_table(bs.table({"n": [0]}), path)
    bs.ipc.append_to_file(path, data, metadata={"by": "test"})
    with bs.open_file(path) as reader:
        assert reader.read_all().to_pydict() == {"n": [0, 1, 2]}
        assert reader.metadata == {b"by": b"test"}


def test_data_of_another_schema_leaves_the_file_unchanged(path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(errors.InvalidArgumentError, match="the batch's schema differs"):
        bs.ipc.append_to_file(path, [batch(), _ONE])
    with pytest.raises(errors.InvalidArgumentError, match="expected a table, record batches or a reader, not int"):
        bs.ipc.append_to_file(path, 7)  # type: ignore[arg-type]
    assert path.read_bytes() == before
    bs.ipc.append_to_file(path, batch())  # it is not locked


def test_a_file_system_without_locks_is_named_and_the_file_closed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)  # no file system of a test machine refuses it
    descriptors = os.listdir("/proc/self/fd")
    with pytest.raises(errors.ResourceError, match=r"data\.arrow: cannot be locked for appending: No locks available"):
        bs.ipc.append_to_file(path)
    assert os.listdir("/proc/self/fd") == descriptors


def test_pyarrow_reads_its_own_file_after_an_append(tmp_path: Path) -> None:
    table = pa.table({"n": [1, None], "s": ["a", "b"], "d": pa.array(["x", "y"]).dictionary_encode()})
    path = str(tmp_path / "theirs.arrow")
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    with bs.ipc.append_to_file(path) as writer:
        for batch in bs.open_file(path):
            writer.write(batch)
    with pa.memory_map(path) as source:
        assert pa.ipc.open_file(source).read_all().to_pydict() == pa.concat_tables([table, table]).to_pydict()


def test_existing_bytes_do_not_move(path: Path) -> None:
    before = path.read_bytes()
    blocks = bs.open_file(path).blocks[0]
    with bs.ipc.append_to_file(path) as writer:
        writer.write(batch())
    end = int(blocks["offset"] + blocks["metaDataLength"] + blocks["bodyLength"])
    assert path.read_bytes()[:end] == before[:end]


def test_open_readers_keep_the_old_file(path: Path) -> None:
    with bs.open_file(path) as reader:
        with bs.ipc.append_to_file(path) as writer:
            writer.write(batch())
        assert reader.read_all().num_rows == 3
    assert bs.open_file(path).read_all().num_rows == 6


def test_an_exception_in_the_with_block_leaves_the_file_unchanged(path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(ZeroDivisionError), bs.ipc.append_to_file(path) as writer:
        writer.write(batch())
        _ = 1 / 0
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_a_killed_process_leaves_the_file_unchanged(path: Path) -> None:
    before = path.read_bytes()
    script = (
        "import sys, bowstring as bs\n"
        "held = bs.open_file(sys.argv[1])[0]\n"
        "with bs.ipc.append_to_file(sys.argv[1]) as writer:\n"
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
            bs.ipc.append_to_file(path)
        process.send_signal(signal.SIGKILL)
        process.wait(30)
    assert path.read_bytes() == before
    with bs.ipc.append_to_file(path) as writer:
        writer.write(batch())
    assert bs.open_file(path).read_all().num_rows == 6


def test_concurrent_appends_do_not_lose_batches(path: Path) -> None:
    with bs.ipc.append_to_file(path) as first:
        with pytest.raises(errors.ResourceError, match="another process is appending"):
            bs.ipc.append_to_file(path)
        first.write(batch())
    with bs.ipc.append_to_file(path) as second:
        second.write(batch())
    assert bs.open_file(path).num_record_batches == 3


def test_a_failed_append_closes_the_file_even_if_the_error_is_kept(path: Path) -> None:
    failures = []
    for _ in range(2):
        try:
            with bs.ipc.append_to_file(path) as writer:
                record_batch = bs.open_file(path)[0]
                writer.write(batch("int"))
        except errors.InvalidArgumentError as error:
            failures.append((error, record_batch))
    with bs.ipc.append_to_file(path) as writer:
        writer.write(batch())
    assert len(failures) == 2


def test_a_file_replaced_during_the_append_is_not_overwritten(path: Path) -> None:
    other = as_file(batch("int"))
    with pytest.raises(errors.ResourceError, match="replaced"), bs.ipc.append_to_file(path) as writer:
        writer.write(batch())
        (path.parent / "new").write_bytes(other)
        os.replace(path.parent / "new", path)
    assert path.read_bytes() == other
    assert os.listdir(path.parent) == [path.name]


def test_permissions_are_preserved(path: Path) -> None:
    path.chmod(0o640)
    with bs.ipc.append_to_file(path) as writer:
        writer.write(batch())
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_symbolic_link_stays_a_symbolic_link(path: Path) -> None:
    link = path.parent / "link.arrow"
    link.symlink_to(path)
    with bs.ipc.append_to_file(link) as writer:
        writer.write(batch())
    assert link.is_symlink()
    assert bs.open_file(path).num_record_batches == 2


@pytest.mark.parametrize(
    "write_options",
    [
        bs.ipc.IpcWriteOptions(byte_order="big"),
        bs.ipc.IpcWriteOptions(metadata_version="V4"),
        bs.ipc.IpcWriteOptions(is_legacy_framing=True),
        bs.ipc.IpcWriteOptions(compression="zstd"),
        bs.ipc.IpcWriteOptions(compression="lz4", byte_order="big"),
    ],
)
@pytest.mark.parametrize("alignment", [8, 64])
def test_batches_are_appended_in_the_encoding_of_the_file(
    tmp_path: Path, write_options: bs.ipc.IpcWriteOptions, alignment: int
) -> None:
    path = tmp_path / "formed.arrow"
    path.write_bytes(as_file(batch(), options=write_options, alignment=alignment))
    before = bs.inspection.inspect(path).encoding
    with bs.ipc.append_to_file(path) as writer:
        writer.write(batch())
    after = bs.inspection.inspect(path).encoding
    assert replace(after, compressed_batches=0) == replace(before, compressed_batches=0)
    assert after.compressed_batches == (0 if write_options.compression is None else before.compressed_batches + 1)
    assert bs.open_file(path).read_all().equals(bs.Table.from_batches([batch(), batch()]))


@pytest.mark.parametrize("is_damaged", [False, True])
def test_the_schema_message_is_not_changed(is_damaged: bool, tmp_path: Path) -> None:
    path, raw = tmp_path / "plain.arrow", bytearray(as_file(batch("int")))
    start = int(bs.open_file(bytes(raw)).blocks["offset"][0])
    if is_damaged:
        raw[20:60] = bytes(range(40))
    path.write_bytes(raw)
    with bs.ipc.append_to_file(path, compression="lz4") as writer:
        writer.write(batch("int"))
    assert path.read_bytes()[:start] == raw[:start]
    assert bs.open_file(path).read_all().num_rows == 6


def test_appended_batches_may_use_another_codec(path: Path) -> None:
    with bs.ipc.append_to_file(path, compression="zstd") as writer:
        writer.write(batch())
    assert bs.inspection.inspect(path).encoding.compressed_batches == 1
    with bs.ipc.append_to_file(path, compression=None) as writer:
        writer.write(batch())
    assert bs.inspection.inspect(path).encoding.compressed_batches == 1
    assert bs.open_file(path).read_all().num_rows == 9


def test_an_append_without_batches_may_replace_the_footer(path: Path) -> None:
    with bs.ipc.append_to_file(path, metadata={"by": "me", "and": "you"}):
        pass
    assert bs.open_file(path).metadata == {b"by": b"me", b"and": b"you"}
    assert bs.open_file(path).read_all().num_rows == 3


def test_a_batch_is_appended_to_a_file_without_batches(tmp_path: Path) -> None:
    path = tmp_path / "empty.arrow"
    with bs.new_file(path, batch().schema):
        pass
    with bs.ipc.append_to_file(path) as writer:
        writer.write(batch())
    assert bs.open_file(path).read_all().equals(bs.Table.from_batches([batch()]))


def test_dictionaries_of_the_file_are_not_written_again_but_may_grow(tmp_path: Path) -> None:
    path = tmp_path / "words.arrow"
    path.write_bytes(as_file(dictionary_batch("a", "b", keys=["a", "b"])))
    with bs.ipc.append_to_file(path) as writer:
        writer.write(dictionary_batch("b", keys=["a", "b"]))
        writer.write(dictionary_batch("c", keys=["a", "b", "c"]))
    reader = bs.open_file(path)
    assert reader.num_dictionary_batches == 2
    assert reader.read_all()["w"].to_pylist() == ["a", "b", "b", "c"]
    before = path.read_bytes()
    with pytest.raises(errors.InvalidArgumentError, match="'w'"), bs.ipc.append_to_file(path) as writer:
        writer.write(dictionary_batch("z", keys=["z"]))
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (bs.record_batch({"n": bs.array([1], bs.int64())}), "expected 15 columns, found 1"),
        (batch("bool", "int", *[f.name for f in batch().schema][2:]), "expected column 0 as 'int: int32'"),
    ],
)
def test_another_schema_is_rejected_with_the_difference(path: Path, other: bs.RecordBatch, message: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=message), bs.ipc.append_to_file(path) as writer:
        writer.write(other)
    assert bs.open_file(path).num_record_batches == 1


def test_other_formats_are_rejected(tmp_path: Path, path: Path) -> None:
    with pytest.raises(errors.NotFoundError):
        bs.ipc.append_to_file(tmp_path / "none")
    with pytest.raises(errors.InvalidArgumentError, match="is a directory"):
        bs.ipc.append_to_file(tmp_path)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(errors.TruncatedError):
        bs.ipc.append_to_file(path)
    with pytest.raises(errors.InvalidArgumentError, match="expected a path"):
        bs.ipc.append_to_file(io.BytesIO(int_stream()))  # type: ignore[arg-type]
    (tmp_path / "s").write_bytes(int_stream())
    with pytest.raises(errors.FormatMismatchError, match="stream"):
        bs.ipc.append_to_file(tmp_path / "s")


def int_stream() -> bytes:
    """A stream of one batch."""
    sink = io.BytesIO()
    with bs.new_stream(sink, batch("int").schema) as writer:
        writer.write(batch("int"))
    return sink.getvalue()


def test_a_footer_with_blocks_outside_the_file_is_rejected(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    block = bs.open_file(bytes(raw)).blocks.tobytes()
    at = raw.rindex(block)
    raw[at : at + 8] = (1 << 40).to_bytes(8, "little")
    path.write_bytes(bytes(raw))
    with pytest.raises(errors.InvalidDataError, match="outside the file"):
        bs.ipc.append_to_file(path)


def test_a_batch_that_the_footer_does_not_list_is_not_overwritten(path: Path) -> None:
    stream = parse_stream(as_file(batch(), batch()))
    assert stream is not None
    stream.block_edits["recordBatches"] = lambda blocks: blocks[:1]
    path.write_bytes(stream.encode())
    before = path.read_bytes()
    with pytest.raises(errors.InvalidDataError, match=r"record batch at byte \d+ is not listed: `recover` saves it"):
        bs.ipc.append_to_file(path, batch())
    assert path.read_bytes() == before


def test_batches_are_appended_to_files_of_other_writers(shared_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "flights.arrow"
    path.write_bytes((shared_folder / "data" / "flights-200k.arrow").read_bytes())
    first = bs.open_file(path)[0]
    with bs.ipc.append_to_file(path) as writer:
        writer.write(first.slice(0, 5))
    assert bs.open_file(path).read_all().num_rows == 200_005
    with pa.memory_map(str(path)) as source:
        assert pa.ipc.open_file(source).read_all().num_rows == 200_005


def test_a_missing_path_raises_not_found(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "plain").write_bytes(b"")
    for path in (tmp_path / "loop", tmp_path / "plain" / "within", tmp_path / ("x" * 300)):
        with pytest.raises((errors.ResourceError, errors.NotFoundError)):
            bs.ipc.append_to_file(path)


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # opening it would wait for a writer
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(errors.InvalidArgumentError, match="not a regular file"):
            bs.ipc.append_to_file(path)


def test_appending_to_a_stream_names_the_call_that_makes_a_file_of_it(tmp_path: Path) -> None:
    path = tmp_path / "s.arrows"
    with bs.new_stream(path, batch().schema) as writer:
        writer.write(batch())
    before = path.read_bytes()
    with pytest.raises(errors.FormatMismatchError, match="an Arrow stream, which can't be appended to: concat_files"):
        bs.ipc.append_to_file(path)
    assert path.read_bytes() == before


def test_a_url_cannot_be_appended_to(path: Path) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"^s3://bucket/a\.arrow: only local files can be"):
        bs.ipc.append_to_file("s3://bucket/a.arrow", batch())
    with pytest.raises(errors.InvalidArgumentError, match="only local files can be appended to"):
        bs.ipc.append_to_file(path.as_uri(), batch())

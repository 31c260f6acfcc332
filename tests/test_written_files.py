"""`--keep-written` keeps all valid data and excludes readers known to misread it."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import bowstring as bs
from tests import written_files
from tests.ipc.record_batch.test_version_4_compression import compressed_stream as compressed_under_v4
from tests.ipc.samples import as_file, as_stream

BIG = bs.ipc.IpcWriteOptions(byte_order="big")
V4 = bs.ipc.IpcWriteOptions(metadata_version="V4")
NUMBERS = bs.record_batch({"n": [1, None, 3]})
VIEWS = bs.record_batch({"v": bs.array(["a", None], bs.string_view())})
UUIDS = bs.array([uuid.UUID(int=1)], bs.datatypes.uuid())
TWINS = bs.RecordBatch.from_arrays([bs.array([1]), bs.array([2])], ["a", "a"])
WORDS = bs.dictionary(bs.int8(), bs.list_(bs.dictionary(bs.int8(), bs.string())))
BEYOND_PYARROW = ("polars", "nanoarrow", "arro3")


def nested(*rows: list[str]) -> bs.RecordBatch:
    return bs.RecordBatch.from_arrays([bs.array(list(rows), WORDS)], ["w"])


def as_file_without_batches(schema: bs.Schema, options: bs.ipc.IpcWriteOptions | None = None) -> bytes:
    sink = io.BytesIO()
    with bs.new_file(sink, schema, options=options or bs.ipc.IpcWriteOptions()):
        pass
    return sink.getvalue()


def runs_without_slots(*ends: int) -> bs.RecordBatch:
    children = [bs.array(list(ends), bs.int32()), bs.array(["a"] * len(ends))]
    runs = bs.Array.from_buffers(bs.run_end_encoded(bs.int32(), bs.string()), 0, [], children)
    return bs.RecordBatch.from_arrays([runs], ["r"])


WRITTEN: dict[str, tuple[Callable[[], bytes], tuple[str, ...]]] = {
    "stream": (lambda: as_stream(NUMBERS), written_files.READERS),
    "file": (lambda: as_file(NUMBERS), written_files.READERS),
    "names twice": (lambda: as_file(TWINS), written_files.READERS),
    "V4": (lambda: as_stream(NUMBERS, options=V4), written_files.READERS),
    "big-endian file": (lambda: as_file(NUMBERS, options=BIG), written_files.READERS),
    "big-endian stream": (lambda: as_stream(NUMBERS, options=BIG), ("pyarrow", "polars", "nanoarrow")),
    "big-endian views": (lambda: as_file(VIEWS, options=BIG), BEYOND_PYARROW),
    "no big-endian views": (lambda: as_file_without_batches(VIEWS.schema, BIG), written_files.READERS),
    "views": (lambda: as_file(VIEWS), written_files.READERS),
    "V4 with metadata": (lambda: as_stream(NUMBERS.with_metadata({"k": "v"}), options=V4), BEYOND_PYARROW),
    "V4 with metadata, as Arrow 0.17 compressed it": (
        lambda: compressed_under_v4("zstd", None, b"ZSTD"),
        written_files.READERS,
    ),
    "metadata": (lambda: as_stream(NUMBERS.with_metadata({"k": "v"})), written_files.READERS),
    "nested dictionaries": (lambda: as_file(nested(["a"], ["b"])), written_files.READERS),
    "deltas on them": (lambda: as_file(nested(["a"]), nested(["a"], ["a", "b"])), BEYOND_PYARROW),
    "dictionary of uuids": (
        lambda: as_file(bs.record_batch({"u": UUIDS.dictionary_encode()})),
        ("nanoarrow", "arro3"),
    ),
    "runs without slots": (lambda: as_stream(runs_without_slots(1, 3)), written_files.READERS),
    "odd runs without slots": (lambda: as_stream(runs_without_slots(0, 3, 3)), written_files.READERS),
    "a NUL deep in a name": (
        lambda: as_stream(bs.record_batch({"s": bs.array([{"a\0b": 1}], bs.struct({"a\0b": bs.int8()}))})),
        ("pyarrow",),
    ),
    "names twice without batches": (lambda: as_file_without_batches(TWINS.schema), ("pyarrow", "nanoarrow", "arro3")),
    "uuids": (lambda: as_stream(bs.record_batch({"u": UUIDS})), ("pyarrow", "nanoarrow", "arro3")),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_a_reader_is_excluded_only_for_data_that_it_misreads(name: str) -> None:
    write, readers = WRITTEN[name]
    data = write()
    assert written_files.readers_of(data) == readers
    if "pyarrow" in readers:
        assert is_read_by_pyarrow(data)
    else:
        with pytest.raises((pa.ArrowInvalid, pa.ArrowNotImplementedError)):
            is_read_by_pyarrow(data)


def is_read_by_pyarrow(data: bytes) -> bool:
    opened = pa.ipc.open_file if data.startswith(b"ARROW1") else pa.ipc.open_stream
    opened(data).read_all().validate(full=True)
    return True


def test_invalid_data_has_no_readers() -> None:
    data = as_file(bs.record_batch({"s": ["é"]}))
    assert written_files.readers_of(data.replace("é".encode(), b"\xff\xff")) is None
    assert written_files.readers_of(data[:-4]) is None


TESTS = """
import io
import subprocess
import sys
import bowstring as bs

def write(values, **options):
    batch = bs.record_batch({"c": values})
    sink = io.BytesIO()
    with bs.new_stream(sink, batch.schema, options=bs.ipc.IpcWriteOptions(**options)) as writer:
        writer.write(batch)

def test_all():
    write([1, 2])
    write([1, 2])
    write([3])

def test_some():
    write([1, 2], byte_order="big")
    write(bs.array(["a"], bs.string_view()), byte_order="big")

def test_child_process():
    subprocess.run([sys.executable, "-c", "import test_sample; test_sample.write([4])"], check=True, cwd=FOLDER)
"""


@pytest.mark.thorough
def test_data_for_some_readers_is_kept_in_adjacent_folders(tmp_path: Path, repository: Path) -> None:
    (tmp_path / "test_sample.py").write_text(f"FOLDER = {str(tmp_path)!r}\n{TESTS}")
    folder = tmp_path / "kept"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.written_files", "-p", "no:cacheprovider"]
    command += [
        "-c",
        "/dev/null",
        f"--rootdir={tmp_path}",
        f"--keep-written={folder}",
        str(tmp_path / "test_sample.py"),
    ]
    outer = ("PYTEST_", written_files.CHILDREN_KEY)
    env = {key: value for key, value in os.environ.items() if not key.startswith(outer)}
    for workers in ("-n1", "-n0"):  # the second run uses the existing folder
        process = subprocess.run(
            [*command, workers], capture_output=True, text=True, timeout=120, check=False, cwd=repository, env=env
        )
        assert process.returncode == 0, process.stdout + process.stderr
    folders = {path.name: len(list(path.iterdir())) for path in tmp_path.iterdir() if path.name.startswith("kept")}
    assert folders == {"kept": 3, "kept.pyarrow,polars,nanoarrow": 1, "kept.not-pyarrow": 1}
    names = sorted(path.name.rpartition("-")[0] for path in folder.iterdir())
    assert names == ["test_sample-py-test_all", "test_sample-py-test_all", "test_sample-py-test_child_process"]
    lines = [line.split() for line in process.stdout.splitlines()]
    assert ["3", "peer_check.py", str(folder)] in lines
    some = "pyarrow,polars,nanoarrow"
    assert ["1", "peer_check.py", "--peers", some, f"{folder}.{some}"] in lines

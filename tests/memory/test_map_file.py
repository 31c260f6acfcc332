"""File mappings without a descriptor are released with their last view, also at exit, fork and garbage collection."""

from __future__ import annotations

import errno
import gc
import mmap
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bowstring.memory.descriptors import map_file
from bowstring_testing.descriptors import assert_descriptors_closed

SIZE_BYTES = 3 * mmap.PAGESIZE + 5

PREAMBLE = f"""
import gc, os
import numpy as np
from bowstring.memory.region import Region
from bowstring.memory.descriptors import map_file
def view():
    with Region.copy_of([b"x" * {SIZE_BYTES}]) as region:
        return np.frombuffer(map_file(region.descriptor, {SIZE_BYTES}), np.uint8)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mapped without a descriptor"
    path.write_bytes(bytes(range(256)) * 49)
    return path


def open_mapping(path: Path, size_bytes: int = SIZE_BYTES) -> mmap.mmap:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return map_file(descriptor, size_bytes)
    finally:
        os.close(descriptor)


def run_python(code: str) -> str:
    process = subprocess.run(
        [sys.executable, "-c", PREAMBLE + code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (process.returncode, process.stderr) == (0, "")
    return process.stdout


def test_a_mapping_has_the_file_s_bytes_and_no_descriptor(file: Path) -> None:
    with assert_descriptors_closed():
        view = memoryview(open_mapping(file))
    assert view == file.read_bytes()[:SIZE_BYTES]
    assert view.readonly


def test_a_mapping_is_released_with_its_last_view(file: Path) -> None:
    view = memoryview(open_mapping(file))[SIZE_BYTES - 2 :]
    assert str(file) in Path("/proc/self/maps").read_text()
    assert bytes(view) == file.read_bytes()[SIZE_BYTES - 2 : SIZE_BYTES]
    del view
    gc.collect()
    assert str(file) not in Path("/proc/self/maps").read_text()


def test_a_failed_mapping_is_an_error_and_keeps_other_mappings(file: Path) -> None:
    others = [open_mapping(file) for _ in range(10)]
    folder = os.open(file.parent, os.O_RDONLY)
    for _ in range(10):
        with pytest.raises(OSError) as caught:
            map_file(folder, SIZE_BYTES)
        assert caught.value.errno in (errno.ENODEV, errno.EACCES)
        others.append(open_mapping(file))
    os.close(folder)
    gc.collect()
    assert {bytes(other) for other in others} == {file.read_bytes()[:SIZE_BYTES]}


def test_finalizers_in_a_garbage_cycle_can_read_views() -> None:
    code = """
class Reader:
    def __del__(self):
        print(int(self.view.sum()))
for _ in range(3):
    reader = Reader()
    reader.view, reader.cycle = view(), reader
    del reader
    gc.collect()
"""
    assert run_python(code).split() == [str(SIZE_BYTES * ord("x"))] * 3


def test_views_can_be_read_at_interpreter_exit() -> None:
    code = """
import atexit, sys
class Reader:
    def __init__(self):
        self.view = view()
    def __del__(self):
        os.write(1, b"%d " % bytes(self.view)[-1])
readers = [Reader() for _ in range(3)]
sys.modules["kept to the end"] = Reader()
atexit.register(lambda: os.write(1, b"%d " % readers[0].view[-1]))
"""
    assert run_python(code).split() == [str(ord("x"))] * 5


def test_a_forked_process_has_its_own_mapping() -> None:
    code = """
ours = view()
child = os.fork()
if child == 0:
    assert bytes(ours) == b"x" * ours.size
    del ours
    gc.collect()
    os._exit(0 if "memfd" not in open("/proc/self/maps").read() else 1)
assert os.waitpid(child, 0)[1] == 0
assert bytes(ours) == b"x" * ours.size
child = os.fork()
if child:
    del ours
    gc.collect()
    assert os.waitpid(child, 0)[1] == 0
else:
    os._exit(0 if bytes(ours) == b"x" * ours.size else 1)
"""
    run_python(code)

"""Paths that can't exist: too long, a loop of links, with a zero byte, empty."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import bowstring as bs
from bowstring.errors import BowstringError
from bowstring.sharing import Recorder

PATHS = ["x" * 300, f"{'x' * 300}.arrow", f"{'x' * 300}/*.arrow", "d/" * 3000, "loop", "loop/a.arrow", "good/a.arrow"]
CALLS: dict[str, Callable[[str], object]] = {
    "read_table": bs.read_table,
    "read_table of several": lambda path: bs.read_table([path, path]),
    "dataset": bs.dataset,
    "dataset of a Path": lambda path: bs.dataset(Path(path)),
    "open_file": bs.open_file,
    "open_stream": bs.open_stream,
    "new_file": lambda path: bs.new_file(path, {"n": "int64"}).close(),
    "new_stream": lambda path: bs.new_stream(path, {"n": "int64"}).close(),
    "write_table": lambda path: bs.write_table(bs.table({"n": [1]}), path),
    "connect": lambda path: bs.connect(Path(path)),
    "append_to_file": bs.ipc.append_to_file,
    "read_schema": bs.ipc.read_schema,
    "recover": lambda path: bs.ipc.recover(path, "recovered.arrow"),
    "concat_files": lambda path: bs.ipc.concat_files([path], "joined.arrow"),
    "inspect": bs.inspection.inspect,
    "build_anatomy": bs.inspection.build_anatomy,
    "read_recording": lambda path: list(bs.sharing.read_recording(path)),
    "Recorder": lambda path: Recorder(path).close(),
    "open_tensor_stream": bs.tensors.open_tensor_stream,
    "serve": lambda path: bs.serve({"a": path}),
    "publish": bs.publish,
    "vacuum": bs.spark.vacuum,
}


@pytest.mark.parametrize("name", CALLS)
def test_an_impossible_path_is_an_error_of_bowstring(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    Path("good").touch()
    Path("d").mkdir()
    for path in PATHS:
        with pytest.raises(BowstringError) as caught:
            CALLS[name](path)
        # A pattern, and the extension of a file to write, are examined before the file system.
        is_of_system = isinstance(caught.value, OSError) or "*" in path or "extension" in str(caught.value)
        assert is_of_system, (path, caught.value)
    for path in ("a\0b", "a\0b.arrow", ""):
        with pytest.raises(BowstringError):
            CALLS[name](path)

"""docs/explanation/folder-format.md describes the folders: its reader reads them without Bowstring."""

from __future__ import annotations

import re
import subprocess
import sys
import zlib
from ast import literal_eval
from pathlib import Path
from typing import Any

import pytest

import bowstring as bs
from bowstring.datasets.manifest import Manifest, ManifestEntry, data_file_name, try_create_manifest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "folder-format.md"
SCHEMA: dict[str, Any] = {
    "type": "struct",
    "fields": [{"name": "x", "type": "long", "nullable": True, "metadata": {}}],
}


def read_with_documented_reader(folder: Path, script: Path) -> list[dict[str, Any]]:
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert code.count("\n") < 40
    assert "bowstring" not in code.replace('"bowstring-manifest"', "")
    script.write_text(code)
    process = subprocess.run([sys.executable, script, folder], capture_output=True, text=True, timeout=60, check=True)
    return [literal_eval(line) for line in process.stdout.splitlines()]


def add_file(folder: Path, name: str, values: list[int]) -> ManifestEntry:
    path = folder / name
    path.parent.mkdir(exist_ok=True, parents=True)
    with bs.new_file(path, [("x", "int64")]) as writer:
        writer.write_table(bs.table({"x": values}))
    content = path.read_bytes()
    return ManifestEntry(name, len(content), len(values), 1, f"crc32:{zlib.crc32(content):08x}")


@pytest.mark.parametrize("num_appends", [0, 1, 99, 101])
def test_the_documented_reader_reads_the_rows_of_the_newest_commit(tmp_path: Path, num_appends: int) -> None:
    job = "0123456789abcdef" * 2
    folder = tmp_path / "data"
    add_file(folder, data_file_name(job, 9, 9), [-1])  # not committed
    manifest = Manifest(0, {}, ()).replace_all(SCHEMA, [add_file(folder, data_file_name(job, 0, 0), [0])])
    assert try_create_manifest(folder, manifest)
    manifest = manifest.replace_all(SCHEMA, [add_file(folder, f"k=a%2Fb/{data_file_name(job, 0, 1)}", [1, 2])])
    assert try_create_manifest(folder, manifest)
    for index in range(num_appends):
        manifest = manifest.append([add_file(folder, f"k={index}/{data_file_name(job, 1, index)}", [index])])
        assert try_create_manifest(folder, manifest)
    rows = read_with_documented_reader(folder, tmp_path / "reader.py")
    assert rows[:2] == [{"x": 1, "k": "a/b"}, {"x": 2, "k": "a/b"}]
    assert rows[2:] == [{"x": index, "k": str(index)} for index in range(num_appends)]

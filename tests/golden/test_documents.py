"""Documents like those of Arrow's harness, converted by the commands that it calls and compared with pyarrow."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pytest

import bowstring as bs
from bowstring.ipc.write_options import IpcWriteOptions
from tests import integration_json
from tests.golden.cases import CASES
from tests.golden.documents import Document, DocumentBuilder
from tests.golden.pyarrow_reference import TOOL, peer, read_by_pyarrow
from tests.integration_json.__main__ import main

WRITE_OPTIONS = {
    "big-endian": IpcWriteOptions(byte_order="big"),
    "V4, legacy": IpcWriteOptions(metadata_version="V4", is_legacy_framing=True),
    "lz4": IpcWriteOptions(compression="lz4"),
    "big-endian zstd": IpcWriteOptions(byte_order="big", compression="zstd"),
}

cases = pytest.mark.parametrize("case", CASES)


@lru_cache(maxsize=1)
def document_of(case: str) -> Document:
    return CASES[case](DocumentBuilder(len(case)))


@cases
def test_a_document_passes_the_commands_of_the_harness(tmp_path: Path, case: str) -> None:
    source, file, stream, again, back = (str(tmp_path / name) for name in ("said", "file", "stream", "again", "back"))
    Path(source).write_text(json.dumps(document_of(case)), "utf-8")

    def call(mode: str, json_path: str, arrow: str, *options: str) -> None:
        assert main(["--integration", f"--mode={mode}", f"--json={json_path}", f"--arrow={arrow}", *options]) == 0

    def read_standard_input(mode: str, path: str, target: str) -> None:
        with open(path, encoding="ascii") as standard_input, pytest.MonkeyPatch.context() as patch:
            patch.setattr("sys.stdin", standard_input)
            call(mode, "", target)

    call("JSON_TO_ARROW", source, file)
    call("VALIDATE", source, file, "--validate_decimals=true")
    read_standard_input("FILE_TO_STREAM", file, stream)
    read_standard_input("STREAM_TO_FILE", stream, again)
    call("VALIDATE", source, again)
    call("ARROW_TO_JSON", back, stream)
    call("VALIDATE", back, again)
    if TOOL.exists():
        for path, kind in ((file, ".arrow_file"), (stream, ".stream"), (again, ".arrow_file")):
            assert peer().validate(document_of(case), *read_by_pyarrow(Path(path).read_bytes(), kind)) == []


@cases
@pytest.mark.parametrize("write_options", WRITE_OPTIONS)
def test_a_document_is_the_same_in_every_encoding(tmp_path: Path, case: str, write_options: str) -> None:
    table = integration_json.read(json.dumps(document_of(case)).encode())
    for new, read, kind in ((bs.new_stream, bs.open_stream, ".stream"), (bs.new_file, bs.open_file, ".arrow_file")):
        path = tmp_path / kind
        with new(path, table.schema, options=WRITE_OPTIONS[write_options]) as writer:
            for batch in table.to_batches():
                writer.write_batch(batch)
        with read(path) as reader:
            assert (
                list(integration_json.find_differences(table.schema, table.to_batches(), reader.schema, list(reader)))
                == []
            )
        if TOOL.exists():
            try:
                peer_data = read_by_pyarrow(path.read_bytes(), kind)
            except pa.ArrowNotImplementedError:  # pyarrow swaps neither views nor runs
                continue
            assert peer().validate(document_of(case), *peer_data) == []


@cases
@pytest.mark.skipif(not TOOL.exists(), reason="requires the pyarrow script of ../shared")
def test_files_written_by_pyarrow_equal_the_document(tmp_path: Path, case: str) -> None:
    (tmp_path / "said").write_text(json.dumps(document_of(case)), "utf-8")
    for kind in (".stream", ".arrow_file"):
        peer().main(["to-ipc", str(tmp_path / "said"), str(tmp_path / kind)])
        assert main(["--json", str(tmp_path / "said"), "--arrow", str(tmp_path / kind)]) == 0

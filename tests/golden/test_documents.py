"""Documents of the kinds that Arrow's harness makes go its way: by the commands that it calls, and pyarrow agrees."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pytest

import bowstring as bs
from bowstring import integration_json
from bowstring.cli.main import main
from bowstring.ipc.options import IpcWriteOptions
from tests.golden.cases import CASES
from tests.golden.documents import Document, Maker
from tests.golden.judge import TOOL, peer, read_by_pyarrow

FORMS = {
    "big-endian": IpcWriteOptions(byte_order="big"),
    "V4, legacy": IpcWriteOptions(metadata_version="V4", is_legacy_framing=True),
    "lz4": IpcWriteOptions(compression="lz4"),
    "big-endian zstd": IpcWriteOptions(byte_order="big", compression="zstd"),
}

cases = pytest.mark.parametrize("case", CASES)


@lru_cache(maxsize=1)
def made(case: str) -> Document:
    return CASES[case](Maker(len(case)))


@cases
def test_a_case_goes_the_way_that_the_harness_sends_it(tmp_path: Path, case: str) -> None:
    said, file, stream, again, back = (str(tmp_path / name) for name in ("said", "file", "stream", "again", "back"))
    Path(said).write_text(json.dumps(made(case)), "utf-8")

    def call(*arguments: str) -> None:
        assert main(["integration", *arguments]) == 0

    call("--integration", f"--arrow={file}", f"--json={said}", "--mode=JSON_TO_ARROW")
    call("--integration", f"--arrow={file}", f"--json={said}", "--mode=VALIDATE", "--validate_decimals=true")
    call("file-to-stream", file, stream)
    call("stream-to-file", stream, again)
    call("-j", said, "-a", again, "-c", "VALIDATE")
    call("arrow-to-json", stream, back)
    call("validate", back, again)
    if TOOL.exists():
        for path, kind in ((file, ".arrow_file"), (stream, ".stream"), (again, ".arrow_file")):
            assert peer().validate(made(case), *read_by_pyarrow(Path(path).read_bytes(), kind)) == []


@cases
@pytest.mark.parametrize("form", FORMS)
def test_a_case_is_the_same_in_every_form(tmp_path: Path, case: str, form: str) -> None:
    held = integration_json.read(json.dumps(made(case)).encode())
    for new, read, kind in ((bs.new_stream, bs.open_stream, ".stream"), (bs.new_file, bs.open_file, ".arrow_file")):
        path = tmp_path / kind
        with new(path, held.schema, options=FORMS[form]) as writer:
            for batch in held.batches:
                writer.write_batch(batch)
        with read(path) as found:
            assert list(integration_json.find_differences(held.schema, held.batches, found.schema, list(found))) == []
        if TOOL.exists():
            try:
                theirs = read_by_pyarrow(path.read_bytes(), kind)
            except pa.ArrowNotImplementedError:  # it swaps neither views nor runs
                continue
            assert peer().validate(made(case), *theirs) == []


@cases
@pytest.mark.skipif(not TOOL.exists(), reason="the folder ../shared with pyarrow's tool is not on this machine")
def test_what_pyarrow_makes_of_a_case_is_what_it_says(tmp_path: Path, case: str) -> None:
    (tmp_path / "said").write_text(json.dumps(made(case)), "utf-8")
    for kind in (".stream", ".arrow_file"):
        peer().main(["to-ipc", str(tmp_path / "said"), str(tmp_path / kind)])
        assert main(["integration", "validate", str(tmp_path / "said"), str(tmp_path / kind)]) == 0

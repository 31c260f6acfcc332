"""Every golden file of Arrow equals its integration JSON, read and rewritten by Bowstring and by pyarrow.

All files in the folder are tested, so that new ones need no change here.
"""

from __future__ import annotations

import io
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bowstring as bs
from bowstring.ipc.write_options import DEFAULT_WRITE_OPTIONS, IpcWriteOptions
from tests import integration_json
from tests.golden.pyarrow_reference import SHARED, peer, read_by_pyarrow

GOLDEN = SHARED / "corpus" / "golden"
JSON_FILES = sorted(GOLDEN.glob("*/*.json.gz"))
SUFFIXES = (".arrow_file", ".stream")
OPENERS: dict[str, Any] = {".arrow_file": bs.open_file, ".stream": bs.open_stream}
WRITERS: dict[str, Any] = {".arrow_file": bs.new_file, ".stream": bs.new_stream}
WRITE_OPTIONS = (
    IpcWriteOptions(byte_order="big"),
    IpcWriteOptions(metadata_version="V4", is_legacy_framing=True),
    IpcWriteOptions(compression="lz4"),
    IpcWriteOptions(compression="zstd"),
)

pytestmark = pytest.mark.skipif(not JSON_FILES, reason="requires the golden files of ../shared")


def case_name(json_file: Path) -> str:
    return f"{json_file.parent.name}/{json_file.name.removesuffix('.json.gz').removeprefix('generated_')}"


cases = pytest.mark.parametrize("json_file", JSON_FILES, ids=case_name)
suffixes = pytest.mark.parametrize("suffix", SUFFIXES)


@lru_cache(maxsize=4)
def read_expected(json_file: Path) -> bs.Table:
    return integration_json.read(json_file)


def read_golden(json_file: Path, suffix: str) -> tuple[bs.Schema, list[bs.RecordBatch]]:
    with OPENERS[suffix](golden_path(json_file, suffix)) as reader:
        return reader.schema, list(reader)


def golden_path(json_file: Path, suffix: str) -> Path:
    return json_file.with_name(json_file.name.removesuffix(".json.gz") + suffix)


def encode(
    schema: bs.Schema,
    batches: list[bs.RecordBatch],
    suffix: str,
    write_options: IpcWriteOptions = DEFAULT_WRITE_OPTIONS,
) -> bytes:
    sink = io.BytesIO()
    with WRITERS[suffix](sink, schema, options=write_options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def find_differences(json_file: Path, schema: bs.Schema, batches: list[bs.RecordBatch]) -> list[str]:
    want = read_expected(json_file)
    return list(integration_json.find_differences(want.schema, want.to_batches(), schema, batches))


@cases
@suffixes
def test_a_golden_file_equals_its_json(json_file: Path, suffix: str) -> None:
    assert find_differences(json_file, *read_golden(json_file, suffix)) == []


@cases
@suffixes
def test_a_rewritten_golden_file_equals_its_json(json_file: Path, suffix: str) -> None:
    schema, batches = read_golden(json_file, suffix)
    for other in SUFFIXES:
        with OPENERS[other](encode(schema, batches, other)) as reader:
            assert find_differences(json_file, reader.schema, list(reader)) == []


@cases
@pytest.mark.parametrize("write_options", WRITE_OPTIONS, ids=["big-endian", "V4, legacy", "lz4", "zstd"])
def test_a_golden_file_rewritten_in_another_encoding_equals_its_json(
    json_file: Path, write_options: IpcWriteOptions
) -> None:
    raw = encode(*read_golden(json_file, ".stream"), ".stream", write_options)
    with bs.open_stream(raw) as reader:
        assert find_differences(json_file, reader.schema, list(reader)) == []
    try:
        peer_data = read_by_pyarrow(raw, ".stream")
    except pa.ArrowNotImplementedError as error:
        pytest.skip(f"pyarrow cannot read this file; it was compared with the JSON only: {error}")
    assert peer().validate(peer().load(str(json_file)), *peer_data) == []


@cases
def test_rewritten_json_equals_the_original(json_file: Path, tmp_path: Path) -> None:
    schema, batches = read_golden(json_file, ".arrow_file")
    integration_json.write(tmp_path / "again.json", integration_json.build_document(schema, batches))
    again = integration_json.read(tmp_path / "again.json")
    assert find_differences(json_file, again.schema, again.to_batches()) == []


@cases
@suffixes
def test_pyarrow_reads_rewritten_golden_files(json_file: Path, suffix: str) -> None:
    for schema, batches in (
        read_golden(json_file, suffix),
        (read_expected(json_file).schema, read_expected(json_file).to_batches()),
    ):
        peer_data = read_by_pyarrow(encode(schema, batches, suffix), suffix)
        assert peer().validate(peer().load(str(json_file)), *peer_data) == []


@cases
def test_pyarrow_reads_rewritten_json(json_file: Path, tmp_path: Path) -> None:
    schema, batches = read_golden(json_file, ".stream")
    path = tmp_path / "ours.json"
    integration_json.write(path, integration_json.build_document(schema, batches))
    peer_data = read_by_pyarrow(golden_path(json_file, ".stream").read_bytes(), ".stream")
    assert peer().validate(json.loads(path.read_bytes()), *peer_data) == []


@cases
@suffixes
def test_golden_files_are_valid_except_for_values_that_old_versions_accepted(json_file: Path, suffix: str) -> None:
    _, batches = read_golden(json_file, suffix)
    full = json_file.parent.name.startswith("cpp-") or not any(
        word in json_file.name for word in ("decimal", "datetime")
    )
    for batch in batches:
        batch.validate(full=full)

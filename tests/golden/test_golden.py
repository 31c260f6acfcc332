"""Every case of Arrow's golden files is what its integration JSON says, read and written again, by us and by pyarrow.

The cases are found where they lie, so that others of the same kinds are tested by putting them there.
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
from bowstring import integration_json
from bowstring.ipc.options import DEFAULT_WRITE_OPTIONS, IpcWriteOptions
from tests.golden.judge import SHARED, peer, read_by_pyarrow

GOLDEN = SHARED / "corpus" / "golden"
TRUTHS = sorted(GOLDEN.glob("*/*.json.gz"))
KINDS = (".arrow_file", ".stream")
OPEN: dict[str, Any] = {".arrow_file": bs.open_file, ".stream": bs.open_stream}
NEW: dict[str, Any] = {".arrow_file": bs.new_file, ".stream": bs.new_stream}
FORMS = (
    IpcWriteOptions(byte_order="big"),
    IpcWriteOptions(metadata_version="V4", is_legacy_framing=True),
    IpcWriteOptions(compression="lz4"),
    IpcWriteOptions(compression="zstd"),
)

pytestmark = pytest.mark.skipif(not TRUTHS, reason="the folder ../shared with the golden files is not on this machine")


def name_of(truth: Path) -> str:
    return f"{truth.parent.name}/{truth.name.removesuffix('.json.gz').removeprefix('generated_')}"


cases = pytest.mark.parametrize("truth", TRUTHS, ids=name_of)
kinds = pytest.mark.parametrize("kind", KINDS)


@lru_cache(maxsize=4)
def expected(truth: Path) -> integration_json.Dataset:
    return integration_json.read(truth)


def golden(truth: Path, kind: str) -> tuple[bs.Schema, list[bs.RecordBatch]]:
    with OPEN[kind](path_of(truth, kind)) as reader:
        return reader.schema, list(reader)


def path_of(truth: Path, kind: str) -> Path:
    return truth.with_name(truth.name.removesuffix(".json.gz") + kind)


def written(
    schema: bs.Schema, batches: list[bs.RecordBatch], kind: str, form: IpcWriteOptions = DEFAULT_WRITE_OPTIONS
) -> bytes:
    sink = io.BytesIO()
    with NEW[kind](sink, schema, options=form) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def differences(truth: Path, schema: bs.Schema, batches: list[bs.RecordBatch]) -> list[str]:
    want = expected(truth)
    return list(integration_json.find_differences(want.schema, want.batches, schema, batches))


@cases
@kinds
def test_a_golden_file_is_what_its_json_says(truth: Path, kind: str) -> None:
    assert differences(truth, *golden(truth, kind)) == []


@cases
@kinds
def test_a_golden_file_that_is_written_again_is_still_what_its_json_says(truth: Path, kind: str) -> None:
    schema, batches = golden(truth, kind)
    for other in KINDS:
        with OPEN[other](written(schema, batches, other)) as reader:
            assert differences(truth, reader.schema, list(reader)) == []


@cases
@pytest.mark.parametrize("form", FORMS, ids=["big-endian", "V4, legacy", "lz4", "zstd"])
def test_a_golden_file_that_is_written_in_another_form_is_still_what_its_json_says(
    truth: Path, form: IpcWriteOptions
) -> None:
    raw = written(*golden(truth, ".stream"), ".stream", form)
    with bs.open_stream(raw) as reader:
        assert differences(truth, reader.schema, list(reader)) == []
    try:
        theirs = read_by_pyarrow(raw, ".stream")
    except pa.ArrowNotImplementedError as error:
        pytest.skip(f"we agree with the JSON, and pyarrow cannot read this: {error}")
    assert peer().validate(peer().load(str(truth)), *theirs) == []


@cases
def test_the_json_that_we_write_is_what_the_json_says(truth: Path, tmp_path: Path) -> None:
    schema, batches = golden(truth, ".arrow_file")
    integration_json.write(tmp_path / "again.json", integration_json.build_document(schema, batches))
    again = integration_json.read(tmp_path / "again.json")
    assert differences(truth, again.schema, list(again.batches)) == []


@cases
@kinds
def test_pyarrow_agrees_with_what_we_write(truth: Path, kind: str) -> None:
    for schema, batches in (golden(truth, kind), (expected(truth).schema, list(expected(truth).batches))):
        theirs = read_by_pyarrow(written(schema, batches, kind), kind)
        assert peer().validate(peer().load(str(truth)), *theirs) == []


@cases
def test_pyarrow_agrees_with_the_json_that_we_write(truth: Path, tmp_path: Path) -> None:
    schema, batches = golden(truth, ".stream")
    path = tmp_path / "ours.json"
    integration_json.write(path, integration_json.build_document(schema, batches))
    theirs = read_by_pyarrow(path_of(truth, ".stream").read_bytes(), ".stream")
    assert peer().validate(json.loads(path.read_bytes()), *theirs) == []


@cases
@kinds
def test_a_golden_file_validates_but_for_values_that_old_versions_let_through(truth: Path, kind: str) -> None:
    _, batches = golden(truth, kind)
    judged = truth.parent.name.startswith("cpp-") or not any(word in truth.name for word in ("decimal", "datetime"))
    for batch in batches:
        batch.validate(full=judged)

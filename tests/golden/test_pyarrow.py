"""Integration JSON of our own, of kinds that no golden file has: pyarrow reads it as we do, both ways."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa
import pytest

import bowstring as bs
from bowstring import integration_json
from bowstring.testing.cases import CASES, Case
from tests.golden.judge import TOOL, peer, read_by_pyarrow

pytestmark = pytest.mark.skipif(
    not TOOL.exists(), reason="the folder ../shared with pyarrow's tool is not on this machine"
)

Document = dict[str, Any]


def written(schema: bs.Schema, batches: list[bs.RecordBatch]) -> bytes:
    sink = io.BytesIO()
    with bs.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def written_by_pyarrow(document: Document) -> bytes:
    batches = list(peer().Conv(document).batches())
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def agree(document: Document) -> None:
    """Both read the document alike: what either writes as a stream is to the other what the document says."""
    document = json.loads(json.dumps(document))
    held = integration_json.read(json.dumps(document).encode())
    theirs = read_by_pyarrow(written(held.schema, list(held.batches)), ".stream")
    assert peer().validate(document, *theirs) == []
    with bs.open_stream(written_by_pyarrow(document)) as ours:
        assert list(integration_json.find_differences(held.schema, held.batches, ours.schema, list(ours))) == []


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pyarrow_reads_the_json_of_every_type_as_we_do(case: Case) -> None:
    whole = bs.record_batch({"x": case.array()})
    agree(integration_json.build_document(whole.schema, [whole, whole.slice(1), whole.slice(0, 0)]))


def column(type_: Document, data: Document, children: list[Document]) -> Document:
    field = {"name": "x", "type": type_, "nullable": True, "children": children}
    batch = {"count": data["count"], "columns": [{"name": "x", **data}]}
    return {"schema": {"fields": [field]}, "batches": [batch]}


def child(name: str, type_: Document, nullable: bool = True) -> Document:
    return {"name": name, "type": type_, "nullable": nullable, "children": []}


INT16 = {"name": "int", "isSigned": True, "bitWidth": 16}


def numbers(name: str, values: list[int]) -> Document:
    return {"name": name, "count": len(values), "VALIDITY": [1] * len(values), "DATA": values}


def test_runs_that_end_beyond_the_array_are_cut_off_as_pyarrow_does() -> None:
    data = {"count": 3, "children": [numbers("run_ends", [2, 90, 400]), numbers("values", [7, 8, 9])]}
    document = column({"name": "runendencoded"}, data, [child("run_ends", INT16, False), child("values", INT16)])
    agree(document)
    assert integration_json.read(json.dumps(document).encode()).batches[0].column("x").to_pylist() == [7, 7, 8]


@pytest.mark.parametrize("name", ["listview", "largelistview"])
def test_list_views_that_overlap_and_go_back_are_read_as_pyarrow_does(name: str) -> None:
    wide = name.startswith("large")
    offsets, sizes = [3, 0, 1, 2], [1, 3, 2, 0]
    data = {
        "count": 4,
        "VALIDITY": [1, 1, 0, 1],
        "OFFSET": list(map(str, offsets)) if wide else offsets,
        "SIZE": list(map(str, sizes)) if wide else sizes,
        "children": [numbers("item", [10, 11, 12, 13, 14])],
    }
    document = column({"name": name}, data, [child("item", INT16)])
    agree(document)
    column_x = integration_json.read(json.dumps(document).encode()).batches[0].column("x")
    assert column_x.to_pylist() == [[13], [10, 11, 12], None, []]

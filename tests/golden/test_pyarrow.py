"""Integration JSON of types without a golden file, exchanged with pyarrow in both directions."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa
import pytest

import bowstring as bs
from tests import integration_json
from tests.cases import CASES, Case
from tests.golden.pyarrow_reference import TOOL, peer, read_by_pyarrow

pytestmark = pytest.mark.skipif(not TOOL.exists(), reason="requires the pyarrow script of ../shared")

Document = dict[str, Any]


def encode_stream(schema: bs.Schema, batches: list[bs.RecordBatch]) -> bytes:
    sink = io.BytesIO()
    with bs.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def encode_stream_with_pyarrow(document: Document) -> bytes:
    batches = list(peer().Conv(document).batches())
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def check_agreement(document: Document) -> None:
    """Check that Bowstring and pyarrow read the document alike, and each other's streams of it."""
    document = json.loads(json.dumps(document))
    table = integration_json.read(json.dumps(document).encode())
    peer_data = read_by_pyarrow(encode_stream(table.schema, table.to_batches()), ".stream")
    assert peer().validate(document, *peer_data) == []
    with bs.open_stream(encode_stream_with_pyarrow(document)) as reader:
        assert (
            list(integration_json.find_differences(table.schema, table.to_batches(), reader.schema, list(reader))) == []
        )


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pyarrow_reads_the_json_of_every_type_alike(case: Case) -> None:
    whole = bs.record_batch({"x": case.array()})
    check_agreement(integration_json.build_document(whole.schema, [whole, whole.slice(1), whole.slice(0, 0)]))


def column_document(type_: Document, data: Document, children: list[Document]) -> Document:
    field = {"name": "x", "type": type_, "nullable": True, "children": children}
    batch = {"count": data["count"], "columns": [{"name": "x", **data}]}
    return {"schema": {"fields": [field]}, "batches": [batch]}


def child_field(name: str, type_: Document, nullable: bool = True) -> Document:
    return {"name": name, "type": type_, "nullable": nullable, "children": []}


INT16 = {"name": "int", "isSigned": True, "bitWidth": 16}


def int_column(name: str, values: list[int]) -> Document:
    return {"name": name, "count": len(values), "VALIDITY": [1] * len(values), "DATA": values}


def test_runs_beyond_the_end_of_the_array_are_truncated_like_in_pyarrow() -> None:
    data = {"count": 3, "children": [int_column("run_ends", [2, 90, 400]), int_column("values", [7, 8, 9])]}
    document = column_document(
        {"name": "runendencoded"}, data, [child_field("run_ends", INT16, False), child_field("values", INT16)]
    )
    check_agreement(document)
    assert integration_json.read(json.dumps(document).encode()).to_batches()[0].column("x").to_pylist() == [7, 7, 8]


@pytest.mark.parametrize("name", ["listview", "largelistview"])
def test_overlapping_and_unordered_list_views_are_read_like_in_pyarrow(name: str) -> None:
    wide = name.startswith("large")
    offsets, sizes = [3, 0, 1, 2], [1, 3, 2, 0]
    data = {
        "count": 4,
        "VALIDITY": [1, 1, 0, 1],
        "OFFSET": list(map(str, offsets)) if wide else offsets,
        "SIZE": list(map(str, sizes)) if wide else sizes,
        "children": [int_column("item", [10, 11, 12, 13, 14])],
    }
    document = column_document({"name": name}, data, [child_field("item", INT16)])
    check_agreement(document)
    column_x = integration_json.read(json.dumps(document).encode()).to_batches()[0].column("x")
    assert column_x.to_pylist() == [[13], [10, 11, 12], None, []]

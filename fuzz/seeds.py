"""The seeds: small valid data of every type in every encoding, and an external corpus if there is one."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np

import bowstring as bs
from fuzz.inputs import FuzzInput
from fuzz.mutations import EXTENSIONS, PARAMETERS
from fuzz.oracles.agents import agent_session
from fuzz.oracles.recordings import encoded_recording
from fuzz.oracles.sessions import record_session
from fuzz.oracles.tools import encoded_statistics, file_with_statistics
from fuzz.text_mutations import FORMATS, TICKETS, URIS
from tests import integration_json
from tests.cases import CASES, Case

SHARED = Path(__file__).resolve().parent.parent.parent / "shared" / "corpus"
_MAX_SEED_BYTES = 16 << 10
_OPTIONS: tuple[dict[str, Any], ...] = (
    {"byte_order": "big"},
    {"metadata_version": "V4", "is_legacy_framing": True},
    {"metadata_version": "V4", "byte_order": "big"},
    {"compression": "lz4"},
    {"compression": "zstd"},
    {"compression": "zstd", "byte_order": "big"},
)


def build_seeds(with_shared: bool = True) -> Iterator[FuzzInput]:
    """All seeds, always in the same order."""
    yield from _batch_seeds()
    yield from _tensor_seeds()
    yield from _text_seeds()
    yield from _script_seeds()
    yield from _session_seeds()
    yield from _agent_session_seeds()
    small = [seed_input for seed_input in _batch_seeds() if len(seed_input.data) < 6000]
    for number, kind in enumerate(("tools", "partial", "command")):
        for seed_input in small[number::3]:
            yield FuzzInput(kind, seed_input.data)
    yield from (FuzzInput("served", seed_input.data) for seed_input in small[::2] if seed_input.kind == "stream")
    yield FuzzInput("recording", encoded_recording())
    yield FuzzInput("statistics", encoded_statistics(file_with_statistics()))
    if with_shared and SHARED.is_dir():
        yield from _shared_seeds()


def stream_and_file_inputs(batches: list[bs.RecordBatch], **options: Any) -> Iterator[FuzzInput]:
    """A stream and a file of the batches."""
    for kind, open_writer in (("stream", bs.new_stream), ("file", bs.new_file)):
        sink = io.BytesIO()
        try:
            with open_writer(sink, batches[0].schema, options=bs.ipc.IpcWriteOptions(**options)) as writer:
                for batch in batches:
                    writer.write(batch)
        except bs.errors.InvalidArgumentError:
            continue  # a file's dictionaries cannot be replaced
        yield FuzzInput(kind, sink.getvalue())


def _column_batch(case: Case) -> bs.RecordBatch:
    return bs.RecordBatch.from_arrays([case.array()], ["c"])


def _batch_seeds() -> Iterator[FuzzInput]:
    for case in CASES:
        yield from stream_and_file_inputs([_column_batch(case)])
    flat = [case for case in CASES if len(case.values) == 2]
    wide = bs.RecordBatch.from_arrays([case.array() for case in flat], [f"c{i}" for i in range(len(flat))])
    yield from stream_and_file_inputs([wide, wide.slice(1)])
    for number, options in enumerate(_OPTIONS):
        yield from stream_and_file_inputs([wide], **options)
        for case in CASES[number :: len(_OPTIONS)]:
            yield from stream_and_file_inputs([_column_batch(case)], **options)
    for options in _OPTIONS[3:5]:
        compressible = bs.RecordBatch.from_arrays(
            [bs.array([7] * 4000), bs.array(["abc"] * 1000 + [None] * 3000)], ["n", "s"]
        )
        yield from stream_and_file_inputs([compressible], **options)
    type_ = bs.dictionary(bs.int8(), bs.string())
    columns = [bs.array(values, type_) for values in (["a", "b"], ["a", "b", "c"], ["z", None])]
    yield from stream_and_file_inputs([bs.RecordBatch.from_arrays([column], ["d"]) for column in columns[:2]])
    yield from stream_and_file_inputs([bs.RecordBatch.from_arrays([column], ["d"]) for column in columns])
    yield FuzzInput("file", file_with_statistics())
    yield from _nested_dictionary_seeds()
    extension_batch = _extension_batch()
    for name in extension_batch.column_names:
        yield from stream_and_file_inputs([extension_batch.select([name])])
    yield from stream_and_file_inputs([extension_batch])


def _nested_dictionary_seeds() -> Iterator[FuzzInput]:
    inner = bs.dictionary(bs.int8(), bs.string())
    dictionary_column = bs.array(["a", "b", "a"], inner)
    for type_ in (bs.dictionary(bs.int16(), bs.list_(inner)), bs.list_(inner), bs.struct({"a": inner, "b": inner})):
        values: list[list[Any]] = [[["a"], ["a", "b"]], [["a"], ["c"], None]]
        if type_.num_fields == 2:
            values = [[{"a": "x", "b": "y"}], [{"a": "x", "b": "z"}, None]]
        batches = [bs.RecordBatch.from_arrays([bs.array(values_of_batch, type_)], ["n"]) for values_of_batch in values]
        for deltas in ("auto", "never"):
            yield from stream_and_file_inputs(batches, dictionary_deltas=deltas)
    yield from stream_and_file_inputs(
        [bs.RecordBatch.from_arrays([dictionary_column, dictionary_column], ["x", "y"])], share_dictionaries=True
    )


def _extension_batch() -> bs.RecordBatch:
    moment = datetime(2025, 1, 1, 12, tzinfo=UTC)
    columns: dict[str, tuple[bs.DataType, Any]] = {
        "uuid": (bs.datatypes.uuid(), UUID(int=1)),
        "json": (bs.datatypes.json_(), '{"a": 1}'),
        "bool8": (bs.datatypes.bool8(), True),
        "opaque": (bs.datatypes.opaque(bs.binary(), "geometry", "PostGIS"), b"x"),
        "variant": (bs.datatypes.parquet_variant(), {"metadata": b"\x01\0\0", "value": b"\x0c\x07"}),
        "moment": (bs.datatypes.timestamp_with_offset(), moment),
        "fixed": (bs.datatypes.fixed_shape_tensor(bs.int16(), (2, 2)), np.eye(2, dtype=np.int16)),
        "variable": (
            bs.datatypes.variable_shape_tensor(bs.float32(), 2, ["x", "y"], [1, 0]),
            np.ones((2, 3), np.float32),
        ),
    }
    return bs.RecordBatch.from_arrays([bs.array([v, None], type_) for type_, v in columns.values()], list(columns))


def _tensor_seeds() -> Iterator[FuzzInput]:
    dense = np.array([[0, 1, 2, 0], [0, 0, 3, 0]], np.int16)
    all_tensors: list[Any] = [
        bs.tensors.Tensor.from_numpy(dense, ["rows", "columns"]),
        bs.tensors.Tensor.from_numpy(dense.T.astype("f4")),
    ]
    for kind in (
        bs.tensors.SparseCOOTensor,
        bs.tensors.SparseCSRMatrix,
        bs.tensors.SparseCSCMatrix,
        bs.tensors.SparseCSFTensor,
    ):
        all_tensors.append(kind.from_dense_numpy(dense))  # noqa: PERF401 -- the list has other members before
    for tensors in (*([tensor] for tensor in all_tensors), all_tensors):
        sink = io.BytesIO()
        for tensor in tensors:
            bs.tensors.write_tensor(tensor, sink)
        yield FuzzInput("tensors", sink.getvalue())


def _text_seeds() -> Iterator[FuzzInput]:
    for case in CASES:
        document = integration_json.build_document(_column_batch(case).schema, [_column_batch(case)])
        yield FuzzInput("json", json.dumps(document).encode())
    for kind, texts in (("format", FORMATS), ("uri", URIS), ("ticket", TICKETS)):
        yield from (FuzzInput(kind, text) for text in texts)


def _script_seeds() -> Iterator[FuzzInput]:
    for number in range(len(CASES)):
        for import_mode in (number % 2, 12):
            yield FuzzInput("c_data", bytes([number, import_mode]))
    names = [(name, b"") for name in EXTENSIONS] + [(EXTENSIONS[1], text) for text in PARAMETERS[5:]]
    for name, parameters in names + [(b"arrow.variable_shape_tensor", text) for text in PARAMETERS[5:]]:
        yield FuzzInput("extension", name + b"\0" + parameters)
    schema, batch, end = b"\0\x21\0", b"\1\x21\0", b"\4\x21"
    for flags in (3, 7, 11, 19, 1):
        # Bodies before and after their headers, packed and as two addresses, which are freed.
        packed, addresses = b"\2\x21\4data", b"\3\x21\2\7\1\x09\1\1\1\1"
        yield FuzzInput("protocol", bytes([flags]) + schema + batch + packed + end)
        yield FuzzInput("protocol", bytes([flags]) + schema + b"\3\x21\2\7\1\x09\1\1\1\1" + batch + b"\6\0\1" + end)
        yield FuzzInput("protocol", bytes([flags]) + schema + batch + addresses + end + b"\6\0\1")
    for flags in (2, 6, 18, 34):
        yield FuzzInput(
            "protocol", bytes([flags]) + b"\0\2ti" + b"\3\0" + b"\3\2\2\7\x09" + b"\3\1" + b"\4" + b"\1\2\7\x09\1"
        )


def _session_seeds() -> Iterator[FuzzInput]:
    """What both ends of recorded sessions receive: addresses and bytes, one request and two, over unix and tcp."""
    tickets = (b"numbers", b"numbers\0packed", b"\0numbers\0numbers\0")
    for options in range(4):  # unix and tcp, in pieces of two sizes
        for request_tickets in ((tickets[0],), (tickets[1],), tickets):
            requests, replies = record_session(options, request_tickets)
            yield FuzzInput("requests", bytes([options]) + requests)
            yield FuzzInput("frames", bytes([options]) + requests)
            yield FuzzInput("frames", bytes([options]) + replies)
        for ticket in tickets:
            yield FuzzInput("replies", bytes([options]) + record_session(options, (ticket,))[1])


def _agent_session_seeds() -> Iterator[FuzzInput]:
    """What a host agent and a task receive."""
    requests, replies = agent_session()
    yield FuzzInput("agent_requests", b"\0" + requests)
    yield FuzzInput("agent_replies", b"\0" + replies)


def _shared_seeds() -> Iterator[FuzzInput]:
    kinds = {".stream": "stream", ".arrow_file": "file"}
    for path in sorted(SHARED.glob("golden/*/*")):
        if path.suffix in kinds and path.stat().st_size <= _MAX_SEED_BYTES:
            yield FuzzInput(kinds[path.suffix], path.read_bytes())
    for folder, kind in (("stream", "stream"), ("file", "file"), ("tensor-stream", "tensors")):
        for path in sorted((SHARED / "fuzz" / folder).glob("*")):
            if path.stat().st_size <= _MAX_SEED_BYTES:
                data = path.read_bytes()
                yield FuzzInput(kind, data)
                if kind != "tensors":
                    yield from (FuzzInput(other, data) for other in ("tools", "partial", "command"))

"""Resource limits: small inputs that expand to huge data are refused, or read in little memory and time."""

from __future__ import annotations

import dataclasses
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bowstring as bs
from bowstring.datatypes.extension import METADATA_KEY, NAME_KEY
from bowstring.errors import LimitError
from bowstring.flatbuf.tables import BUFFER, DEFINITIONS, FIELD_NODE, HEADERS, TYPES
from bowstring.flatbuf.writer import UnionValue, build_flatbuffer
from bowstring.ipc import schema_cache
from bowstring.ipc.message import END_OF_STREAM, frame_message
from fuzz.editable_stream import parse_stream
from tests.ipc import samples
from tests.ipc.flatbuffer_assembler import FlatbufferAssembler, number

HUGE = 1 << 62
END = END_OF_STREAM


def message(kind: str, record: dict[str, Any], body: bytes = b"", body_bytes: int | None = None) -> bytes:
    declared_bytes = len(body) if body_bytes is None else body_bytes
    header = {
        "version": 4,
        "header_type": HEADERS.index(kind),
        "header": UnionValue(kind, record),
        "bodyLength": declared_bytes,
    }
    return frame_message(build_flatbuffer(DEFINITIONS, "Message", header)) + body


def field(type_: str, *children: dict[str, Any], pairs: Any = None, **parameters: Any) -> dict[str, Any]:
    slots = {"type_type": TYPES.index(type_), "type": UnionValue(type_, parameters), "children": list(children)}
    return {"name": "x", "nullable": True, "custom_metadata": pairs, **slots}


INT = field("Int", bitWidth=32, is_signed=True)


def batch_stream(
    schema: dict[str, Any], length: int, nodes: Any, buffers: Any = (), body: bytes = b"", **more: Any
) -> bytes:
    """Return a stream of one batch; nodes are (length, null count), buffers are (offset, length)."""
    body_bytes = more.pop("body_bytes", None)
    record = {"length": length, "nodes": np.array(nodes, FIELD_NODE), "buffers": np.array([*buffers], BUFFER), **more}
    return message("Schema", {"fields": [schema]}) + message("RecordBatch", record, body, body_bytes) + END


def int32(*values: int) -> bytes:
    return np.array(values, np.int32).tobytes()


def int64(*values: int) -> bytes:
    return np.array(values, np.int64).tobytes()


# Bombs


def nested_lists(depth: int) -> bytes:
    assembly = FlatbufferAssembler()
    assembly.schema_message("fields 0")
    for level in range(depth):
        assembly.offsets(f"fields {level}", f"field {level}")
        assembly.table(
            f"field {level}", "Field", type_type=number("List"), type=f"type {level}", children=f"fields {level + 1}"
        )
        assembly.table(f"type {level}", "List")
    assembly.offsets(f"fields {depth}", "last")
    assembly.table("last", "Field", type_type=number("Null"), type="null")
    assembly.table("null", "Null")
    return assembly.to_message()


def shared_structs(depth: int) -> bytes:
    """Nest structs whose two children are the same table: 2**depth paths to walk."""
    assembly = FlatbufferAssembler()
    assembly.schema_message("fields 0")
    for level in range(depth):
        assembly.offsets(f"fields {level}", *[f"field {level}"] * 2)
        children = f"fields {level + 1}"
        assembly.table(f"field {level}", "Field", type_type=number("Struct_"), type=f"type {level}", children=children)
        assembly.table(f"type {level}", "Struct_")
    assembly.offsets(f"fields {depth}")
    return assembly.to_message()


def one_field_many_times(count: int) -> bytes:
    assembly = FlatbufferAssembler()
    assembly.schema_message("fields")
    assembly.repeated("fields", "field", count)
    assembly.table("field", "Field", type_type=number("Null"), type="null")
    assembly.table("null", "Null")
    return assembly.to_message()


def one_long_name_many_times(count: int) -> bytes:
    assembly = FlatbufferAssembler()
    assembly.schema_message("fields")
    names = [f"field {i}" for i in range(count)]
    assembly.offsets("fields", *names)
    for name in names:
        assembly.table(name, "Field", type_type=number("Null"), type="null", name="name")
    assembly.table("null", "Null")
    assembly.text("name", b"x" * (64 << 10))
    return assembly.to_message()


def table_that_is_its_own_vtable() -> bytes:
    assembly = FlatbufferAssembler()
    assembly.schema_message("fields")
    assembly.offsets("fields", "field")
    assembly.table("field", "Field", type_type=number("Null"), type="null")
    assembly.table("null", "Null")
    return assembly.to_message()[:-8] + bytes(8)  # the offset to its vtable is 0


def vector_of_the_whole_message() -> bytes:
    assembly = FlatbufferAssembler()
    assembly.schema_message("fields")
    assembly.text("fields", bytes(64), 0xFFFFFFFF)
    return assembly.to_message()


def compressed_zeros(codec: str, size_bytes: int) -> bytes:
    values = np.zeros(size_bytes, np.int8)
    return samples.as_stream(bs.RecordBatch.from_arrays([bs.array(values)], ["x"]), compression=codec)


def compressed_claim(codec: int, claimed: int) -> bytes:
    body = int64(claimed) + bytes(56)
    compression = {"codec": codec, "method": 0}
    return batch_stream(INT, 1 << 20, [(1 << 20, 0)], [(0, 0), (0, 64)], body, compression=compression)


def deltas(count: int) -> bytes:
    """Return a stream whose dictionary grows by one value before each batch."""
    word = int32(0, 1, 0, 0) + b"b".ljust(16, b"\0")
    buffers = np.array([(0, 0), (0, 8), (16, 1)], BUFFER)
    data = {"length": 1, "nodes": np.array([(1, 0)], FIELD_NODE), "buffers": buffers}
    encoding = {"id": 0, "indexType": {"bitWidth": 32, "is_signed": True}}
    first, delta = (message("DictionaryBatch", {"data": data, "isDelta": it}, word) for it in (False, True))
    use = {"length": 1, "nodes": np.array([(1, 0)], FIELD_NODE), "buffers": np.array([(0, 0), (0, 4)], BUFFER)}
    batch = message("RecordBatch", use, bytes(8))
    return message("Schema", {"fields": [{**field("Utf8"), "dictionary": encoding}]}) + first + (batch + delta) * count


def blocks_that_overlap(count: int) -> bytes:
    """Return a file whose footer lists one batch many times."""
    values = bs.array(np.zeros(100_000, np.int8))
    structure = parse_stream(samples.as_file(bs.RecordBatch.from_arrays([values], ["x"])))
    assert structure is not None
    structure.block_edits["recordBatches"] = lambda blocks: np.repeat(blocks, count)
    return structure.encode()


def extension(name: bytes, parameters: bytes) -> bytes:
    pairs = [{"key": NAME_KEY, "value": name}, {"key": METADATA_KEY, "value": parameters}]
    storage = field("FixedSizeList", INT, listSize=4, pairs=pairs)
    return message("Schema", {"fields": [storage]}) + END


def pairs(count: int) -> bytes:
    return message("Schema", {"fields": [], "custom_metadata": [{"key": b"k", "value": b"v"}] * count}) + END


VIEWS = field("Utf8View")
RUNS = field("RunEndEncoded", field("Int", bitWidth=64, is_signed=True), INT)
NULLS = field("Null")
BOMBS: dict[str, tuple[Callable[[], bytes], str]] = {
    "10,000 levels": (lambda: nested_lists(10_000), "LimitError.*deeper than 64"),
    "a struct of two of the same, 40 levels down": (lambda: shared_structs(40), "LimitError.*max_tables"),
    "a million times the same field": (lambda: one_field_many_times(1_000_000), "LimitError.*max_tables"),
    "five million times the same field": (lambda: one_field_many_times(5_000_000), "LimitError.*max_tables"),
    "a long name ten thousand times": (lambda: one_long_name_many_times(10_000), "LimitError.*text of more than"),
    "a table without a way to its vtable": (table_that_is_its_own_vtable, "InvalidDataError"),
    "a vector of 2**32 - 1 items": (
        vector_of_the_whole_message,
        "InvalidDataError.*fields has 4294967295 elements",
    ),
    "custom metadata of 100,000 pairs": (lambda: pairs(100_000), "read"),
    "2**62 rows of nulls": (
        lambda: batch_stream(NULLS, HUGE, [(HUGE, HUGE)]),
        "LimitError.*4611686018427387904 values",
    ),
    "2**62 rows of integers": (
        lambda: batch_stream(INT, HUGE, [(HUGE, 0)], [(0, 0), (0, 0)]),
        "InvalidDataError.*needs? ",
    ),
    "2**63 - 1 rows of integers": (
        lambda: batch_stream(INT, 2 * HUGE - 1, [(2 * HUGE - 1, 0)], [(0, 0), (0, 64)], bytes(64)),
        "InvalidDataError.*need ",
    ),
    "a body of 2**62 bytes": (
        lambda: batch_stream(INT, 1, [(1, 0)], [(0, 0), (0, 4)], bytes(8), body_bytes=HUGE),
        "(TruncatedError|LimitError).*4611686018427387904",
    ),
    "a buffer of 2**62 bytes": (
        lambda: batch_stream(INT, 1, [(1, 0)], [(0, 0), (0, HUGE)], bytes(8)),
        "InvalidDataError.*4611686018427387904",
    ),
    "a buffer at byte 2**62": (
        lambda: batch_stream(INT, 1, [(1, 0)], [(0, 0), (HUGE, 4)], bytes(8)),
        "InvalidDataError.*4611686018427387904",
    ),
    "a buffer from byte 2**62 on that wraps around": (
        lambda: batch_stream(INT, 1, [(1, 0)], [(0, 0), (2 * HUGE - 4, 8)], bytes(8)),
        "InvalidDataError",
    ),
    "a negative offset": (lambda: batch_stream(INT, 1, [(1, 0)], [(0, 0), (-8, 8)], bytes(8)), "InvalidDataError"),
    "metadata of 2**31 - 1 bytes": (lambda: b"\xff\xff\xff\xff\xff\xff\xff\x7f", "LimitError.*2147483647"),
    "one run of 2**62": (
        lambda: batch_stream(RUNS, HUGE, [(HUGE, 0), (1, 0), (1, 0)], [(0, 0), (0, 8), (0, 0), (8, 4)], int64(HUGE, 7)),
        "LimitError.*4611686018427387904 values",
    ),
    "a million lists over one child": (
        lambda: batch_stream(
            field("ListView", NULLS),
            1 << 16,
            [(1 << 16, 0), (1 << 30, 1 << 30)],
            [(0, 0), (0, 1 << 18), (1 << 18, 1 << 18)],
            bytes(1 << 18) + int32(1 << 30) * (1 << 16),
        ),
        "LimitError.*values",
    ),
    "a million views of one text": (
        lambda: batch_stream(
            VIEWS,
            1 << 16,
            [(1 << 16, 0)],
            [(0, 0), (0, 1 << 20), (1 << 20, 1 << 20)],
            (int32(1 << 20) + b"xxxx" + int32(0, 0)) * (1 << 16) + b"x" * (1 << 20),
            variadicBufferCounts=np.array([1]),
        ),
        "read",
    ),
    "2**62 variadic buffers": (
        lambda: batch_stream(VIEWS, 0, [(0, 0)], [(0, 0), (0, 0)], variadicBufferCounts=np.array([HUGE])),
        "InvalidDataError.*variadic",
    ),
    "-1 variadic buffers": (
        lambda: batch_stream(VIEWS, 0, [(0, 0)], [(0, 0), (0, 0)], variadicBufferCounts=np.array([-1])),
        "InvalidDataError.*variadic",
    ),
    "a gibibyte of zeros under Zstandard": (lambda: compressed_zeros("zstd", 1 << 29), "LimitError.*ratio|times"),
    "a claim of 2**62 bytes under LZ4": (lambda: compressed_claim(0, HUGE), "InvalidDataError|LimitError"),
    "a claim of 2**62 bytes under Zstandard": (lambda: compressed_claim(1, HUGE), "InvalidDataError|LimitError"),
    "a claim of -2 bytes": (lambda: compressed_claim(1, -2), "InvalidDataError"),
    "a dictionary that grows 4,000 times": (lambda: deltas(4000), "read"),
    "a batch that a footer names 100,000 times": (lambda: blocks_that_overlap(100_000), "InvalidDataError.*overlap"),
    "extension parameters of 100,000 levels": (
        lambda: extension(b"arrow.fixed_shape_tensor", b'{"shape":' + b"[" * 100_000),
        "InvalidDataError",
    ),
    "extension parameters with a number of 100,000 digits": (
        lambda: extension(b"arrow.fixed_shape_tensor", b'{"shape":[' + b"9" * 100_000 + b"]}"),
        "InvalidDataError",
    ),
    "extension parameters with a product of 2**1000": (
        lambda: extension(b"arrow.fixed_shape_tensor", b'{"shape":[' + b",".join([b"1024"] * 100) + b"]}"),
        "InvalidDataError",
    ),
}

READ_WITH_ALL_READERS = """
import json, os, resource, signal, sys, time
import numpy
import bowstring as bs
from bowstring.ipc.api import open_any
from bowstring.inspection.validation import Validator
from bowstring.errors import BowstringError
bs.open_file, bs.open_stream, bs.inspection.inspect, bs.Table, bs.dictionary

def tried(what):
    started = time.process_time()
    try:
        done = what() or "read"
    except BowstringError as error:
        done = f"{type(error).__name__}: {error}"
    return [done[:2000], time.process_time() - started]

def read():
    with open_any(path) as reader:
        for batch in reader.read_all().to_batches():
            batch.validate(full=True)
            for column in batch.columns:
                column.to_pylist()

def validate():
    return "; ".join(f"{fault.error}: {fault.message}" for fault in Validator(path).faults())

for line in sys.stdin:
    path, memory_bytes = json.loads(line)
    child = os.fork()
    if not child:
        held = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (held + memory_bytes,) * 2)
        resource.setrlimit(resource.RLIMIT_CPU, (30, 30))
        signal.alarm(60)
        results = [tried(read), tried(validate), tried(lambda: bs.inspection.inspect(path) and None)]
        print(json.dumps(results), flush=True)
        os._exit(0)
    if status := os.waitpid(child, 0)[1]:
        print(json.dumps([[f"wait status {status}", 0]]), flush=True)
"""


@pytest.fixture(scope="module")
def reader_process() -> Iterator[subprocess.Popen[str]]:
    """A process that reads each file in a child with limits: imports take longer than most files."""
    command = [sys.executable, "-c", READ_WITH_ALL_READERS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        assert process.communicate(timeout=60)[0] == ""


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_rejected_or_read_in_little_memory_and_time(
    name: str, tmp_path: Path, reader_process: subprocess.Popen[str]
) -> None:
    assert reader_process.stdin is not None
    assert reader_process.stdout is not None
    make, pattern = BOMBS[name]
    data = make()
    path = tmp_path / "bomb"
    path.write_bytes(data)
    memory_bytes = (256 << 20) + 12 * len(data)
    print(json.dumps([str(path), memory_bytes]), file=reader_process.stdin, flush=True)
    (read, took_s), *others = json.loads(reader_process.stdout.readline())
    assert re.match(pattern, read, re.DOTALL), read[:500]
    assert took_s < 4, f"reading took {took_s} s"
    assert all(took_s < 8 for _, took_s in others), others


# Each limit has a default and an option; raising it admits the data below.


def wide_stream(columns: int) -> bytes:
    return samples.as_stream(bs.RecordBatch.from_arrays([bs.array([1])] * columns, [f"c{i}" for i in range(columns)]))


def stream_of_zeros(size_bytes: int) -> bytes:
    return compressed_zeros("zstd", size_bytes)


DATA_BY_LIMIT: dict[str, tuple[Callable[[], bytes], int, int]] = {
    "max_metadata_bytes": (lambda: wide_stream(10), 500, 5000),
    "max_body_bytes": (lambda: wide_stream(10), 300, 3000),
    "max_decompressed_bytes": (lambda: stream_of_zeros(100_000), 99_999, 100_000),
    "max_decompression_ratio": (lambda: stream_of_zeros((256 << 20) + 1), 1000, 1 << 20),
    "max_nesting": (lambda: nested_lists(40), 32, 64),
    "max_tables": (lambda: wide_stream(10), 15, 100),
}


def test_every_limit_has_a_case() -> None:
    assert {slot.name for slot in dataclasses.fields(bs.ipc.ReadLimits)} == set(DATA_BY_LIMIT)


@pytest.mark.parametrize("name", DATA_BY_LIMIT)
def test_data_beyond_a_limit_is_rejected_until_the_limit_is_raised(name: str) -> None:
    make, low, high = DATA_BY_LIMIT[name]
    data = make()

    def columns(limit: int) -> list[bs.Array]:
        limits = bs.ipc.ReadLimits(**{name: limit})
        return [column for batch in bs.open_stream(io.BytesIO(data), limits=limits) for column in batch.columns]

    with pytest.raises(LimitError, match=name):
        columns(low)
    assert all(column.length for column in columns(high))


def test_the_default_limits_admit_ordinary_data() -> None:
    batch = bs.RecordBatch.from_arrays([bs.array([1])] * 20_000, [f"c{i}" for i in range(20_000)])
    (read,) = bs.open_stream(samples.as_stream(batch))
    assert read.num_columns == 20_000
    (read,) = bs.open_stream(stream_of_zeros(64 << 20))
    assert read.column(0).length == 64 << 20


def test_the_schema_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_cache, "_cache", {})
    monkeypatch.setattr(schema_cache, "_MAX_CACHED_BYTES", 20_000)
    for count in range(50, 100):
        assert len(bs.open_stream(wide_stream(count)).schema) == count
        assert sum(entry.size_bytes for entry in schema_cache._cache.values()) <= 20_000
    assert len(schema_cache._cache) > 1

"""pyarrow reads data with several dictionaries recovered from truncated and damaged files and streams."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import bowstring as bs
from bowstring.errors import InvalidDataError

_ABC, _ABCD = pa.array(["a", "b", "c"]), pa.array(["a", "b", "c", "d"])
_XY, _XYZ = pa.array(["x", "y"]), pa.array(["x", "y", "z"])


def _dictionary_array(indices: list[int | None], values: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int8()), values)


def _two_columns(a: list[int | None], b: list[int | None], values_a: pa.Array = _ABC, values_b: pa.Array = _XY) -> Any:
    return pa.record_batch(
        {
            "a": _dictionary_array(a, values_a),
            "b": _dictionary_array(b, values_b),
            "n": pa.array(range(len(a)), pa.int64()),
        }
    )


def _nested() -> Any:
    values = pa.StructArray.from_arrays([_dictionary_array([0, 1, 0], _XY)], ["inside"])
    return pa.record_batch({"outer": _dictionary_array([0, 1], values), "b": _dictionary_array([0, 1], _ABC)})


def _lists() -> Any:
    return pa.record_batch(
        {"a": pa.ListArray.from_arrays([0, 1, 2], _dictionary_array([0, 1], _XY)), "b": _dictionary_array([0, 1], _ABC)}
    )


_CASES: dict[str, list[Any]] = {
    "two": [_two_columns([0, 1, 2], [1, 0, 1])] * 2,
    "delta": [_two_columns([0, 1, 2], [1, 0, 1]), _two_columns([0, 1, 3], [1, 2, 1], _ABCD, _XYZ)],
    "nulls": [_two_columns([None] * 3, [None] * 3), _two_columns([0, 1, 2], [1, 0, 1])],
    "nulls in one": [_two_columns([None] * 3, [0, 1, 0])] * 2,
    "no rows": [_two_columns([], []), _two_columns([0, 1, 2], [1, 0, 1])],
    "nested": [_nested()] * 2,
    "in a list": [_lists()] * 2,
}


def _write_with_pyarrow(batches: list[Any], is_file: bool) -> bytes:
    sink = io.BytesIO()
    make = pa.ipc.new_file if is_file else pa.ipc.new_stream
    with make(sink, batches[0].schema, options=pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def _message_offsets(data: bytes, is_file: bool) -> Iterator[tuple[int, int, int]]:
    """Yield the offsets of each message, of its body and of its end."""
    at = 8 if is_file else 0
    while length := int.from_bytes(data[at + 4 : at + 8], "little"):
        body = at + 8 + length
        message = pa.ipc.read_message(pa.py_buffer(data[at:]))
        stop = body + (0 if message.body is None else message.body.size)
        yield at, body, stop
        at = stop


def _damaged_forms(data: bytes, is_file: bool) -> Iterator[tuple[str, bytes]]:
    for number, (start, body, stop) in enumerate(_message_offsets(data, is_file)):
        yield f"cut behind message {number}", data[:stop]
        yield f"cut in message {number}", data[: (start + stop) // 2]
        if number:
            yield f"zeros for message {number}", data[:start] + bytes(stop - start) + data[stop:]
            yield f"without message {number}", data[:start] + data[stop:]
            yield f"damaged body of message {number}", data[:body] + b"\xff" * (stop - body) + data[stop:]


@pytest.mark.parametrize("is_file", [False, True], ids=["stream", "file"])
@pytest.mark.parametrize("case", _CASES)
def test_pyarrow_reads_recovered_data(case: str, is_file: bool) -> None:
    checked = 0
    for what, damaged in _damaged_forms(_write_with_pyarrow(_CASES[case], is_file), is_file):
        sink = io.BytesIO()
        try:
            report = bs.ipc.recover(damaged, sink)
        except InvalidDataError:
            assert "message 0" in what, what
            continue
        reader = (pa.ipc.open_file if is_file else pa.ipc.open_stream)(sink.getvalue())
        table = reader.read_all()
        table.validate(full=True)
        assert table.num_rows == report.rows, what
        own = (bs.open_file if is_file else bs.open_stream)(sink.getvalue())
        assert own.read_all().num_rows == report.rows, what
        checked += 1
    assert checked > 12


def test_a_column_of_nulls_survives_the_loss_of_its_dictionary() -> None:
    data = _write_with_pyarrow(_CASES["nulls in one"], is_file=False)
    _, (start, _, stop), *_ = _message_offsets(data, is_file=False)
    sink = io.BytesIO()
    report = bs.ipc.recover(data[:start] + data[stop:], sink)
    assert (report.rows, report.record_batches) == (6, 2)
    table = pa.ipc.open_stream(sink.getvalue()).read_all()
    assert table.column("a").null_count == 6
    assert table.column("b").to_pylist() == ["x", "y", "x"] * 2


@pytest.mark.parametrize("as_stream", [False, True])
def test_pyarrow_reads_concatenated_streams_that_end_early(as_stream: bool) -> None:
    data = _write_with_pyarrow(_CASES["nulls in one"], is_file=False)
    messages = list(_message_offsets(data, is_file=False))
    early, without = data[: messages[1][2]], data[: messages[1][0]] + data[messages[1][2] :]
    for sources, rows in (([early], 0), ([without], 6), ([early, data], 6), ([without, data], 12)):
        sink = io.BytesIO()
        bs.ipc.concat_files(sources, sink, as_stream)
        table = (pa.ipc.open_stream if as_stream else pa.ipc.open_file)(sink.getvalue()).read_all()
        table.validate(full=True)
        assert table.num_rows == rows


def _nested_messages(values: list[str]) -> list[bytes]:
    """The messages of a stream of two rows: schema, inner dictionary, outer dictionary, record batch."""
    inner = _dictionary_array([0, len(values) - 1], pa.array(values))
    batch = pa.record_batch({"outer": _dictionary_array([0, 1], pa.StructArray.from_arrays([inner], ["inside"]))})
    stream = _write_with_pyarrow([batch], is_file=False)
    return [message.serialize().to_pybytes() for message in pa.ipc.MessageReader.open_stream(stream)]


@pytest.mark.parametrize(
    ("replacement", "reason"),
    [
        (_nested_messages(["x"])[1], r"indices\[1\] = 1 is not within the dictionary of 1 values"),
        (_nested_messages(["p", "q"])[1].replace(b"pq", b"\xff\xff"), "dictionary 1, which is inside dictionary 0"),
    ],
    ids=["shorter", "malformed"],
)
def test_a_batch_is_dropped_if_a_replaced_dictionary_inside_its_own_does_not_fit(
    replacement: bytes, reason: str
) -> None:
    messages = _nested_messages(["x", "y"])
    sink = io.BytesIO()
    report = bs.ipc.recover(b"".join([*messages, replacement, messages[-1], b"\xff" * 4 + bytes(4)]), sink)
    assert (report.record_batches, report.rows) == (1, 2)
    assert re.search(reason, report.dropped[-1].reason)
    assert pa.ipc.open_stream(sink.getvalue()).read_all().to_pylist() == [
        {"outer": {"inside": "x"}},
        {"outer": {"inside": "y"}},
    ]


def test_a_dictionary_may_precede_those_inside_it() -> None:
    schema, inner, outer, batch = _nested_messages(["x", "y"])
    sink = io.BytesIO()
    report = bs.ipc.recover(b"".join([schema, outer, inner, batch, b"\xff" * 4 + bytes(4)]), sink)
    assert report.is_intact
    assert bs.open_stream(sink.getvalue()).read_all().to_pylist() == [
        {"outer": {"inside": "x"}},
        {"outer": {"inside": "y"}},
    ]

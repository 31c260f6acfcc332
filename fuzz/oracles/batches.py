"""Record batches of streams and files: valid data or an `InvalidDataError`.

Data that passes full validation is converted to Python values, sliced, taken, concatenated, compared and passed to
every array method. It survives a round trip through IPC, the C data interface and integration JSON, and pyarrow reads
the same values.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from itertools import islice
from typing import Any
from zlib import crc32

import bowstring as bs
from bowstring.arrays.record_batch import import_batch
from bowstring.datatypes.extension import NAME_KEY
from bowstring.errors import FormatMismatchError, InvalidDataError, LimitError, UnsupportedError
from bowstring.flatbuf.reader import FlatTable
from bowstring.flatbuf.tables import read_root
from bowstring.inspection.validation import Validator
from bowstring.ipc.message import CONTINUATION, is_file_start
from bowstring.ipc.metadata.field import read_custom_metadata, read_field
from bowstring.layouts import expansion_limits
from fuzz.expectations import ALLOWED_ERRORS, LIMITS, MAX_ROWS, SAMPLE_ROWS, expect
from fuzz.oracles.array_methods import check_array_methods
from fuzz.oracles.pyarrow_peer import compare_with_pyarrow
from tests import integration_json

WRITE_OPTIONS = (
    bs.ipc.IpcWriteOptions(),
    bs.ipc.IpcWriteOptions(byte_order="big"),
    bs.ipc.IpcWriteOptions(metadata_version="V4", is_legacy_framing=True),
    bs.ipc.IpcWriteOptions(compression="lz4"),
    bs.ipc.IpcWriteOptions(compression="zstd"),
)
expansion_limits.MAX_VALUES, expansion_limits.MAX_BYTES = 1 << 22, 1 << 27
_PYARROW_INTERVAL = 16


def check_stream(data: bytes) -> bool:
    """Check a stream."""
    return _check_batches(bs.open_stream, data)


def check_file(data: bytes) -> bool:
    """Check a file."""
    return _check_batches(bs.open_file, data)


def _check_batches(open_reader: Callable[..., Any], data: bytes) -> bool:
    checksum = crc32(data)
    message = None
    batches: list[bs.RecordBatch] = []
    try:
        reader = open_reader(data, limits=LIMITS)
        schema = reader.schema
        for batch in reader:
            batch.validate(full=True)
            batches.append(batch)
    except FormatMismatchError:
        return False  # validation detects the format, readers do not
    except InvalidDataError as error:
        message = str(error)
        expect(bool(message), "the error has no message")
    if checksum % 4 == 0:
        _inspect(data, message)
    if batches and checksum % 4 == 1:
        schema_table = _schema_table(data)
        fields = tuple(read_field(child, LIMITS.max_nesting)[0] for child in schema_table["fields"])  # one at a time
        expected_schema = bs.Schema(fields, read_custom_metadata(schema_table))
        expect(
            schema.equals(expected_schema, check_metadata=True),
            f"two decoders return {schema!r:.200} and {expected_schema!r:.200}",
        )
    for batch in batches:
        check_batch_statistics(batch, WRITE_OPTIONS[checksum // 4 % len(WRITE_OPTIONS)])
    if message is None and sum(batch.num_rows for batch in batches) <= MAX_ROWS:
        table = bs.Table.from_batches(batches, schema)
        try:
            expect(
                table.num_rows == sum(batch.num_rows for batch in batches), "the table has a different number of rows"
            )
            table.combine_chunks().validate(full=True)
        except (LimitError, UnsupportedError):
            pass
        if checksum % _PYARROW_INTERVAL == 2:
            compare_with_pyarrow(data, table)
    return message is None


def _schema_table(data: bytes) -> FlatTable:
    if is_file_start(data):
        length = int.from_bytes(data[-10:-6], "little")
        schema = read_root("Footer", data[len(data) - 10 - length : -10], "footer")["schema"]
    else:
        start = 8 if data[:4] == CONTINUATION else 4
        schema = read_root("Message", data[start:], "message")["header"]
    assert isinstance(schema, FlatTable)
    return schema


def _inspect(data: bytes, read_error: str | None) -> None:
    """Validation reports every error that a reader raises, and in files also errors in unread parts."""
    errors = list(islice(Validator(data, True, LIMITS).faults(), 20))
    messages = [error.message for error in errors]
    expect(bool(messages) or read_error is None, f"validation reports no error, reading raises: {read_error}")
    is_unread = is_file_start(data) or all(
        error.record_batch is None for error in errors
    )  # no batch needs the invalid part
    expect(
        not messages or read_error is not None or is_unread, f"the data can be read, but validation reports {messages}"
    )
    try:
        bs.inspection.inspect(data, LIMITS)
    except InvalidDataError:
        pass  # inspect reads more headers than a reader


def check_batch_statistics(batch: bs.RecordBatch, form: bs.ipc.IpcWriteOptions = WRITE_OPTIONS[0]) -> None:
    """Check a batch that passed full validation; of a long one, the first and last rows."""
    try:
        if batch.num_rows > MAX_ROWS:
            _ = [column.to_pylist() for column in batch.slice(batch.num_rows - SAMPLE_ROWS).columns]
            batch = batch.slice(0, SAMPLE_ROWS)
        _check_whole(batch, form)
    except ALLOWED_ERRORS:
        pass


def _check_whole(batch: bs.RecordBatch, form: bs.ipc.IpcWriteOptions) -> None:
    repr(batch)
    batch.validate(full=True)
    rows = batch.num_rows
    column_values = [column.to_pylist() for column in batch.columns]
    expect(all(len(values) == rows for values in column_values), "a column has a different number of values")
    for column, values in zip(batch.columns, column_values, strict=True):
        expect(column.null_count <= rows, "more nulls than slots")
        if rows:
            expect(repr(column.slice(1).to_pylist()) == repr(values[1:]), "a slice has different values")
            expect(
                repr(column.take([rows - 1, 0]).to_pylist()) == repr([values[-1], values[0]]),
                "take returns different values",
            )
            concatenated = bs.concat_arrays([column, column.slice(0, 1)])
            concatenated.validate(full=True)
            expect(
                repr(concatenated.to_pylist()) == repr([*values, values[0]]), "concat_arrays returns different values"
            )
        check_array_methods(column, values)
    expect(batch.equals(batch.slice(0), nans_equal=True), "a batch does not equal itself")
    round_trips: dict[str, Callable[[], bs.RecordBatch]] = {"IPC": lambda: _round_trip_ipc(batch, form)}
    if NAME_KEY not in dict(batch.schema.pairs):  # there, a schema is a field, which may have an extension type
        round_trips["C data"] = lambda: import_batch(batch.__arrow_c_array__())
    for name, round_trip in round_trips.items():
        copy = round_trip()
        copy.validate(full=True)
        expect(batch.equals(copy, nans_equal=True), f"{name} returns different data")
        expect([f.type for f in copy.schema] == [f.type for f in batch.schema], f"{name} returns different types")
        expect(repr([c.to_pylist() for c in copy.columns]) == repr(column_values), f"{name} returns different values")
    _round_trip_json(batch)


def _round_trip_ipc(batch: bs.RecordBatch, form: bs.ipc.IpcWriteOptions) -> bs.RecordBatch:
    sink = io.BytesIO()
    with bs.new_stream(sink, batch.schema, options=form) as writer:
        writer.write(batch)
    (copy,) = bs.open_stream(sink.getvalue())
    return copy


def _round_trip_json(batch: bs.RecordBatch) -> None:
    text = json.dumps(integration_json.build_document(batch.schema, [batch])).encode()
    document = integration_json.read(text)
    difference = next(
        integration_json.find_differences(batch.schema, [batch], document.schema, document.to_batches()), None
    )
    expect(difference is None, f"integration JSON: {difference}")

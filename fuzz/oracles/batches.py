"""Record batches: sound data or an `InvalidDataError`; and sound data is whole in every way.

After full validation, values are spelled out, sliced, taken, joined, compared, and go through every verb; they go out
through each door (IPC in one of its forms, the C data interface, integration JSON) and come in again, equal; and
pyarrow, where it reads them, reads the same.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from itertools import islice
from typing import Any
from zlib import crc32

import bowstring as bs
from bowstring import integration_json
from bowstring.datatypes.extension import NAME_KEY
from bowstring.errors import FormatMismatchError, InvalidDataError, LimitError, UnsupportedError
from bowstring.flatbuf.reader import Message, Table
from bowstring.flatbuf.tables import SPECS
from bowstring.inspection.validation import Validator
from bowstring.interop import c_data
from bowstring.ipc.message import CONTINUATION, is_file_start
from bowstring.ipc.metadata import field_tables
from bowstring.ipc.metadata.schema import read_fields
from bowstring.layouts import gather
from fuzz.oracles.peers import compare_with_peer
from fuzz.oracles.verbs import check_verbs
from fuzz.promises import LIMITS, MOST_ROWS, SOME_ROWS, TOO_MUCH, promise

FORMS = (
    bs.IpcWriteOptions(),
    bs.IpcWriteOptions(byte_order="big"),
    bs.IpcWriteOptions(metadata_version="V4", is_legacy_framing=True),
    bs.IpcWriteOptions(compression="lz4"),
    bs.IpcWriteOptions(compression="zstd"),
)
field_tables._MIN_FIELDS = 1  # what is read at once is always read so here
gather.MAX_VALUES, gather.MAX_BYTES = 1 << 22, 1 << 27
_PEER_EVERY = 16


def check_stream(data: bytes) -> bool:
    """The oracle of streams."""
    return _check_batches(bs.open_stream, data)


def check_file(data: bytes) -> bool:
    """The oracle of files."""
    return _check_batches(bs.open_file, data)


def _check_batches(opened: Callable[..., Any], data: bytes) -> bool:
    chosen = crc32(data)
    problem = None
    batches: list[bs.RecordBatch] = []
    try:
        reader = opened(data, limits=LIMITS)
        schema = reader.schema
        for batch in reader:
            batch.validate(full=True)
            batches.append(batch)
    except FormatMismatchError:
        return False  # the other format, which validation takes for what it is
    except InvalidDataError as error:
        problem = str(error)
        promise(bool(problem), "an error without words")
    if chosen % 4 == 0:
        _inspect(data, problem)
    if batches and chosen % 4 == 1:
        again = read_fields(_schema_table(data), LIMITS).schema  # field by field, not all at once
        promise(schema.equals(again, check_metadata=True), f"a schema is {schema!r:.200} or {again!r:.200}")
    for batch in batches:
        check_batch(batch, FORMS[chosen // 4 % len(FORMS)])
    if problem is None and sum(batch.num_rows for batch in batches) <= MOST_ROWS:
        table = bs.Table.from_batches(batches, schema)
        try:
            promise(table.num_rows == sum(batch.num_rows for batch in batches), "a table has other rows")
            table.combine_chunks().validate(full=True)
        except (LimitError, UnsupportedError):
            pass
        if chosen % _PEER_EVERY == 2:
            compare_with_peer(data, table)
    return problem is None


def _schema_table(data: bytes) -> Table:
    if is_file_start(data):
        length = int.from_bytes(data[-10:-6], "little")
        held = Message(data[len(data) - 10 - length : -10], SPECS, "footer").root("Footer")["schema"]
    else:
        start = 8 if data[:4] == CONTINUATION else 4
        held = Message(data[start:], SPECS, "message").root("Message").union("header", "Schema")
    assert isinstance(held, Table)
    return held


def _inspect(data: bytes, problem: str | None) -> None:
    """Validation tells whatever stops a reader, and of a file also what no reader needed."""
    found = list(islice(Validator(data, True, LIMITS).faults(), 20))
    faults = [fault.message for fault in found]
    promise(bool(faults) or problem is None, f"no fault, but reading says: {problem}")
    idle = is_file_start(data) or all(fault.record_batch is None for fault in found)  # no batch needs what is at fault
    promise(not faults or problem is not None or idle, f"it can be read, but has faults: {faults}")
    try:
        bs.inspect(data, LIMITS)
    except InvalidDataError:
        pass  # it reads headers that no reader needs


def check_batch(batch: bs.RecordBatch, form: bs.IpcWriteOptions = FORMS[0]) -> None:
    """What has to hold of a batch that passed full validation; of a long one, of its first and last rows."""
    try:
        if batch.num_rows > MOST_ROWS:
            _ = [column.to_pylist() for column in batch.slice(batch.num_rows - SOME_ROWS).columns]
            batch = batch.slice(0, SOME_ROWS)
        _check_whole(batch, form)
    except TOO_MUCH:
        pass


def _check_whole(batch: bs.RecordBatch, form: bs.IpcWriteOptions) -> None:
    repr(batch)
    batch.validate(full=True)
    rows = batch.num_rows
    spelled = [column.to_pylist() for column in batch.columns]
    promise(all(len(values) == rows for values in spelled), "a column has other values than rows")
    for column, values in zip(batch.columns, spelled, strict=True):
        promise(column.null_count <= rows, "more nulls than slots")
        if rows:
            promise(repr(column.slice(1).to_pylist()) == repr(values[1:]), "a slice has other values")
            promise(repr(column.take([rows - 1, 0]).to_pylist()) == repr([values[-1], values[0]]), "taken otherwise")
            joined = bs.concat_arrays([column, column.slice(0, 1)])
            joined.validate(full=True)
            promise(repr(joined.to_pylist()) == repr([*values, values[0]]), "joined values differ")
        check_verbs(column, values)
    promise(batch.equals(batch.slice(0), nans_equal=True), "a batch does not equal itself")
    ways: dict[str, Callable[[], bs.RecordBatch]] = {"IPC": lambda: _by_ipc(batch, form)}
    if NAME_KEY not in dict(batch.schema.pairs):  # there, a schema is a field, and may be of an extension type
        ways["C data"] = lambda: c_data.import_batch(c_data.export_batch(batch))
    for way, gone in ways.items():
        again = gone()
        again.validate(full=True)
        promise(batch.equals(again, nans_equal=True), f"{way} gives other data")
        promise([f.type for f in again.schema] == [f.type for f in batch.schema], f"{way} gives other types")
        promise(repr([c.to_pylist() for c in again.columns]) == repr(spelled), f"{way} gives other values")
    _by_json(batch)


def _by_ipc(batch: bs.RecordBatch, form: bs.IpcWriteOptions) -> bs.RecordBatch:
    sink = io.BytesIO()
    with bs.new_stream(sink, batch.schema, options=form) as writer:
        writer.write(batch)
    (again,) = bs.open_stream(sink.getvalue())
    return again


def _by_json(batch: bs.RecordBatch) -> None:
    text = json.dumps(integration_json.build_document(batch.schema, [batch])).encode()
    again = integration_json.read(text)
    found = next(integration_json.find_differences(batch.schema, [batch], again.schema, again.batches), None)
    promise(found is None, f"integration JSON: {found}")

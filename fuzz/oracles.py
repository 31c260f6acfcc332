"""What has to hold of any bytes: sound data or an `InvalidDataError`; and sound data is whole in every way.

After full validation, values are spelled out, sliced, taken, joined and compared; they go out through each door (IPC in
one of its forms, the C data interface, integration JSON) and come in again, equal. Whatever else happens is a finding.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any
from zlib import crc32

import bowstring as bs
from bowstring.datatypes.extension import NAME_KEY
from bowstring.dissociated.uri import parse_uri
from bowstring.errors import (
    FormatMismatchError,
    InvalidDataError,
    LimitError,
    ProtocolError,
    UnsupportedError,
    UnsupportedTypeError,
)
from bowstring.exchange import cdata, formats, integration
from bowstring.flatbuf.codec import Message, Table
from bowstring.flatbuf.tables import SPECS
from bowstring.inspection.validating import Validator
from bowstring.ipc import framing
from bowstring.ipc.metadata import field_tables
from bowstring.ipc.metadata.schema_tables import read_fields
from bowstring.layouts import gather
from bowstring.tensors.sparse import SparseTensor
from fuzz.inputs import Input

LIMITS = bs.Limits(max_metadata_bytes=1 << 20, max_body_bytes=1 << 26, max_decompressed_bytes=1 << 26)
FORMS = (
    bs.WireForm(),
    bs.WireForm(byte_order="big"),
    bs.WireForm(metadata_version="V4", is_legacy_framing=True),
    bs.WireForm(compression="lz4"),
    bs.WireForm(compression="zstd"),
)
field_tables._WORTH_FIELDS = 1  # what is read at once is always read so here
gather.MAX_VALUES, gather.MAX_BYTES = 1 << 22, 1 << 27
_MOST_ROWS = 2000
_SOME_ROWS = 40


class BrokenPromiseError(Exception):
    """Something that has to hold of sound data does not."""


def promise(holds: bool, what: str) -> None:
    """Raise unless it holds."""
    if not holds:
        raise BrokenPromiseError(what)


def check(given: Input) -> bool:
    """Give the bytes to the reader of their kind; whether they were sound. Raises what should not have happened."""
    return _ORACLES[given.kind](given.data)


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
        _check_batch(batch, FORMS[chosen // 4 % len(FORMS)])
    if problem is None and sum(batch.num_rows for batch in batches) <= _MOST_ROWS:
        table = bs.Table.from_batches(batches, schema)
        try:
            promise(table.num_rows == sum(batch.num_rows for batch in batches), "a table has other rows")
            table.combine_chunks().validate(full=True)
        except (LimitError, UnsupportedError):
            pass
    return problem is None


def _schema_table(data: bytes) -> Table:
    if framing.is_file(data):
        length = int.from_bytes(data[-10:-6], "little")
        held = Message(data[len(data) - 10 - length : -10], SPECS, "footer").root("Footer")["schema"]
    else:
        start = 8 if data[:4] == framing.CONTINUATION else 4
        held = Message(data[start:], SPECS, "message").root("Message").union("header", "Schema")
    assert isinstance(held, Table)
    return held


def _inspect(data: bytes, problem: str | None) -> None:
    """Validation tells whatever stops a reader, and of a file also what no reader needed."""
    faults = [fault.message for _, fault in zip(range(20), Validator(data, True, LIMITS).faults(), strict=False)]
    promise(bool(faults) or problem is None, f"no fault, but reading says: {problem}")
    promise(not faults or problem is not None or framing.is_file(data), f"it can be read, but has faults: {faults}")
    try:
        bs.inspect(data, LIMITS)
    except InvalidDataError:
        pass  # it reads headers that no reader needs


def _check_batch(batch: bs.RecordBatch, form: bs.WireForm) -> None:
    try:
        if batch.num_rows > _MOST_ROWS:
            _ = [column.to_pylist() for column in batch.slice(batch.num_rows - _SOME_ROWS).columns]
            batch = batch.slice(0, _SOME_ROWS)
        _check_whole(batch, form)
    except (LimitError, UnsupportedError, UnsupportedTypeError):
        pass  # few bytes may stand for many values, and a time zone need not be known here


def _check_whole(batch: bs.RecordBatch, form: bs.WireForm) -> None:
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
    promise(batch.equals(batch.slice(0), nans_equal=True), "a batch does not equal itself")
    ways: dict[str, Callable[[], bs.RecordBatch]] = {"IPC": lambda: _by_ipc(batch, form)}
    if NAME_KEY not in dict(batch.schema.pairs):  # there, a schema is a field, and may be of an extension type
        ways["C data"] = lambda: cdata.import_batch(cdata.export_batch(batch))
    for way, gone in ways.items():
        again = gone()
        again.validate(full=True)
        promise(batch.equals(again, nans_equal=True), f"{way} gives other data")
        promise([f.type for f in again.schema] == [f.type for f in batch.schema], f"{way} gives other types")
        promise(repr([c.to_pylist() for c in again.columns]) == repr(spelled), f"{way} gives other values")
    _by_json(batch)


def _by_ipc(batch: bs.RecordBatch, form: bs.WireForm) -> bs.RecordBatch:
    sink = io.BytesIO()
    with bs.new_stream(sink, batch.schema, form=form) as writer:
        writer.write(batch)
    (again,) = bs.open_stream(sink.getvalue())
    return again


def _by_json(batch: bs.RecordBatch) -> None:
    text = json.dumps(integration.document(batch.schema, [batch])).encode()
    again = integration.read(text)
    found = next(integration.differences(batch.schema, [batch], again.schema, again.batches), None)
    promise(found is None, f"integration JSON: {found}")


def _check_tensors(data: bytes) -> bool:
    try:
        tensors = []
        for tensor in bs.open_tensors(data, LIMITS):
            tensor.validate(full=True)
            tensors.append(tensor)
    except InvalidDataError:
        return False
    for tensor in tensors:
        repr(tensor)
        sink = io.BytesIO()
        bs.write_tensor(tensor, sink)
        promise(bs.read_tensor(sink.getvalue()).equals(tensor, nans_equal=True), "a tensor comes back otherwise")
        try:
            dense = tensor.to_tensor(1 << 20) if isinstance(tensor, SparseTensor) else tensor
            promise(dense.to_numpy().shape == tensor.shape, "a tensor has another shape")
        except InvalidDataError:
            pass  # too large, or coordinates that come more than once
    return True


def _check_json(data: bytes) -> bool:
    try:
        held = integration.read(data, integration.Limits(max_bytes=1 << 20))
        for batch in held.batches:
            batch.validate(full=True)
    except InvalidDataError:
        return False
    for batch in held.batches:
        _check_batch(batch, FORMS[0])
    return True


def _check_format(data: bytes) -> bool:
    inner = bs.field("x", bs.int32())
    pairs = bs.field("x", bs.struct({"k": bs.int8(), "v": bs.int8()}), nullable=False)
    sound = False
    for children in ((), (inner,), (inner, inner), (pairs,)):
        try:
            made = formats.type_of(data, children, 0)
        except InvalidDataError:
            continue
        sound = True
        str(made), hash(made)
        try:
            cdata.export_type(made)
        except UnsupportedTypeError:
            pass  # a time zone with a NUL in it
    return sound


def _check_uri(data: bytes) -> bool:
    try:
        parse_uri(data.decode("latin-1"))
    except ProtocolError:
        return False
    return True


_ORACLES: dict[str, Callable[[bytes], bool]] = {
    "stream": lambda data: _check_batches(bs.open_stream, data),
    "file": lambda data: _check_batches(bs.open_file, data),
    "tensors": _check_tensors,
    "json": _check_json,
    "format": _check_format,
    "uri": _check_uri,
}

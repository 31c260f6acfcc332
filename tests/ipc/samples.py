"""A small batch with columns of many types, and how to write it."""

from __future__ import annotations

import io
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import bowstring as bs

_COLUMNS: dict[str, tuple[bs.DataType, list[Any]]] = {
    "int": (bs.int32(), [1, None, 3]),
    "bool": (bs.bool_(), [True, False, None]),
    "text": (bs.string(), ["a", "", None]),
    "view": (bs.string_view(), ["short", "a string of more than twelve bytes", None]),
    "decimal": (bs.decimal128(5, 2), [Decimal("1.25"), None, Decimal("-3.00")]),
    "list": (bs.list_(bs.int16()), [[1, 2], None, []]),
    "list_view": (bs.list_view(bs.string()), [["x"], [], ["y", None]]),
    "fixed": (bs.list_(bs.float32(), 2), [[1.0, 2.0], None, [3.0, 4.0]]),
    "struct": (bs.struct({"p": bs.int8(), "q": bs.binary()}), [{"p": 1, "q": b"b"}, None, {"p": None, "q": b""}]),
    "map": (bs.map_(bs.string(), bs.int64()), [[("k", 1)], [], None]),
    "dictionary": (bs.dictionary(bs.int8(), bs.string()), ["u", None, "u"]),
    "runs": (bs.run_end_encoded(bs.int16(), bs.int32()), [7, 7, None]),
    "dense": (bs.dense_union({"i": bs.int32(), "s": bs.string()}), [1, "s", 2]),
    "sparse": (bs.sparse_union({"i": bs.int32(), "s": bs.string()}), ["t", 5, 6]),
    "null": (bs.null(), [None, None, None]),
}


def batch(*names: str) -> bs.RecordBatch:
    """Return three rows with these columns, or with all of them."""
    chosen = {name: _COLUMNS[name] for name in names or _COLUMNS}
    return bs.RecordBatch.from_arrays([bs.array(values, type_) for type_, values in chosen.values()], list(chosen))


def dictionary_batch(*values: str | None, keys: list[str]) -> bs.RecordBatch:
    """Return a batch with one column "w" that is encoded with this dictionary."""
    type_ = bs.dictionary(bs.int8(), bs.string())
    indices = bs.array([None if value is None else keys.index(value) for value in values], bs.int8())
    column = bs.Array.from_buffers(type_, len(values), indices.own_buffers, dictionary=bs.array(keys, bs.string()))
    return bs.record_batch({"w": column})


def as_file(*batches: bs.RecordBatch, **options: Any) -> bytes:
    """Return a file with the batches."""
    sink = io.BytesIO()
    with bs.new_file(sink, batches[0].schema, **options) as writer:
        for batch in batches:
            writer.write(batch)
    return sink.getvalue()


def as_stream(*batches: bs.RecordBatch, **options: Any) -> bytes:
    """Return a stream with the batches."""
    sink = io.BytesIO()
    with bs.new_stream(sink, batches[0].schema, **options) as writer:
        for batch in batches:
            writer.write(batch)
    return sink.getvalue()


class UnrecordedSink:
    """A sink that `--keep-written` does not record, for messages in an order on which readers disagree."""

    def __init__(self) -> None:
        self.content = bytearray()

    @property
    def position(self) -> int:
        """The number of bytes written."""
        return len(self.content)

    def write(self, parts: Sequence[Any], _: int) -> None:
        """Append the parts."""
        self.content += b"".join(map(bytes, parts))

    def write_message(self, head: bytes, body: Sequence[Any], body_bytes: int) -> None:
        """Append a message."""
        self.write([head, *body], body_bytes)

    def finish(self) -> None:
        """Do nothing."""

    flush = abandon = finish

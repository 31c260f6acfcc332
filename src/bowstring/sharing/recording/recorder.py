"""Record the messages of servers and clients in a file, and read it.

A recording is an Arrow stream with one batch of one row per entry, an `ObservedEvent` of
`bowstring.transports.observer`. An entry is written before its message leaves the process or is processed, so
a recording of a process that was killed is complete except for its end marker. Every Arrow implementation can read it:

| column | type | content |
|---|---|---|
| `time_ns` | uint64 | nanoseconds since the beginning of the recording |
| `connection` | uint32 | index of the connection |
| `direction` | string | `sent` or `received` |
| `kind` | string | `connection`, `message`, `offer`, `region`, `retirement`, `loss` or `close` |
| `tag` | uint64 | tag of a message; null for a plain one |
| `address` | uint64 | address of the first byte of a region |
| `length_bytes` | uint64 | length of a message or region |
| `body` | large_binary | bytes of a message or region; null if they are not recorded |
| `text` | string | URI of a connection (without a ticket), kind of a region, error of a loss |

The key `bowstring.recording` of the schema's metadata has the version of the format, 1.
"""

from __future__ import annotations

import os
import threading
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from time import monotonic_ns
from typing import Any, TypeAlias

import numpy as np

from bowstring.arrays.array import Array
from bowstring.arrays.construction import array
from bowstring.arrays.record_batch import RecordBatch
from bowstring.datatypes.schema import schema
from bowstring.dissociated.uri import StreamURI
from bowstring.errors import BowstringError, FormatMismatchError, InvalidArgumentError, InvalidDataError, TruncatedError
from bowstring.io.io_errors import translate_io_error
from bowstring.io.sinks import VectoredSink
from bowstring.io.sources import open_sequential
from bowstring.ipc.format_detection import detect_format
from bowstring.ipc.stream import Encoder, StreamReader
from bowstring.ipc.writers import StreamWriter
from bowstring.layouts.binary import BinaryLayout
from bowstring.memory.buffer import Buffer
from bowstring.memory.closable import Closable, call_on_error
from bowstring.memory.forks import process_token
from bowstring.transports.observer import ConnectionObserver, EventDirection, ObservedEvent, ObservedEventKind

VERSION_KEY, VERSION = b"bowstring.recording", b"1"
SCHEMA = schema(
    {
        "time_ns": "uint64",
        "connection": "uint32",
        "direction": "string",
        "kind": "string",
        "tag": "uint64",
        "address": "uint64",
        "length_bytes": "uint64",
        "body": "large_binary",
        "text": "string",
    },
    {VERSION_KEY: VERSION},
)
"""The schema of a recording."""
_NULLABLE_COLUMNS = ("tag", "address", "body")


class Recorder(Closable):
    """Writes the entries of observed connections to a file, which it creates or replaces; only this user can read it.

    The file contains tickets and all data. Without `has_region_contents`, the bytes of shared memory are left out: such
    a recording can be shown, but not played. Several threads may use one recorder. Raises errors of `open`. Later, an
    error of the file, such as a full disk, ends the recording, and the connection whose entry can't be written.

    >>> with bs.serve({"visits": bs.table({"n": [1]})}) as server:
    ...     with bs.sharing.Recorder("session.arrows") as recorder:
    ...         with bs.connect(server.uri("visits"), record=recorder) as reader:
    ...             _ = reader.read_all()
    >>> len(bs.sharing.read_recording("session.arrows")) > 5
    True
    """

    def __init__(self, path: str | os.PathLike[str], *, has_region_contents: bool = True) -> None:
        self.path = os.fspath(path)
        self.has_region_contents = has_region_contents
        self.is_shared = True
        """Whether it may be used after the server or data set that records is closed."""
        self._descriptor = -1
        # Reentrant, since a finalizer in the middle of `write_event` may write an event of its own.
        self._lock = threading.RLock()
        self._is_writing = self._has_failed = False
        self._pending: deque[ObservedEvent] = deque()
        self._connection_indices = count()
        self._process = process_token()
        self._started_ns = monotonic_ns()
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        except ValueError as error:
            raise InvalidArgumentError(f"{self.path!r} is not a valid path: {error}") from None
        except OSError as error:
            raise translate_io_error(error, self.path, "opened") from None
        with call_on_error(os.close, descriptor):
            self._writer = StreamWriter(VectoredSink(partial(os.writev, descriptor), self.path), Encoder(SCHEMA))
        self._descriptor = descriptor

    def observe(self, uri: StreamURI, direction: EventDirection) -> ConnectionObserver:
        """Record a new connection to the server of `uri`, dialed (sent) or accepted (received); return its observer."""
        parameters = tuple((key, value) for key, value in uri.parameters if key not in ("ticket", "bodies"))
        observer = ConnectionObserver(self.write_event, next(self._connection_indices))
        observer.notify(direction, ObservedEventKind.CONNECTION, text=str(replace(uri, parameters=parameters)))
        return observer

    def write_event(self, event: ObservedEvent) -> None:
        """Write an entry, unless the recorder is closed."""
        # A forked child must not write, or wait for locks of its parent's threads.
        if self._process is not process_token():
            return
        with self._lock:
            if self._is_writing:  # a finalizer frees addresses while this thread writes another entry
                self._pending.append(replace(event, parts=(event.to_bytes(),)))
                return
            self._is_writing = True
            try:
                self._write_entry(event)
                while self._pending:
                    self._write_entry(self._pending.popleft())
            finally:
                self._is_writing = False

    def close(self) -> None:
        """Write the end of the stream, and close the file. Idempotent."""
        if self._process is not process_token():
            return
        with self._lock:
            descriptor, self._descriptor = self._descriptor, -1
            if descriptor >= 0:
                try:
                    self._writer.close()
                finally:
                    os.close(descriptor)

    def close_unless_shared(self) -> None:
        """Close the file, unless the recorder is shared: the server or data set that records is closed."""
        if not self.is_shared:
            self.close()

    def _write_entry(self, event: ObservedEvent) -> None:
        if self._descriptor < 0 or self._has_failed:
            return
        try:
            self._writer.write_batch(self._encode(event))
        except BowstringError:
            # The file has an incomplete entry at its end: another one after it could not be read.
            self._has_failed = True
            if event.kind is not ObservedEventKind.CLOSE:
                raise

    def _encode(self, event: ObservedEvent) -> RecordBatch:
        values = {name: getattr(event, name, None) for name in SCHEMA.names}
        values |= {"time_ns": event.time_ns - self._started_ns, "direction": event.direction.value}
        values["kind"] = event.kind.value
        columns = {name: array([value], SCHEMA.field(name).type) for name, value in values.items()}
        has_body = self.has_region_contents if event.kind is ObservedEventKind.REGION else bool(event.parts)
        if has_body:  # a single part is not copied
            view = event.view()
            buffers = [None, np.array([0, view.nbytes], "<i8"), Buffer.of(view)]
            columns["body"] = Array.from_buffers("large_binary", 1, buffers)
        return RecordBatch(SCHEMA, 1, tuple(columns.values()))

    def __del__(self) -> None:
        if getattr(self, "_descriptor", -1) >= 0:
            self.close()

    def __repr__(self) -> str:
        return f"<bowstring.sharing.Recorder {self.path!r}{'' if self._descriptor >= 0 else ', closed'}>"


RecorderOrPath: TypeAlias = str | os.PathLike[str] | Recorder
"""The path of a new recording, or a recorder."""


def open_recorder(record: RecorderOrPath | None) -> Recorder | None:
    """Return the recorder of an option `record`, which creates the file of a path."""
    if record is None or isinstance(record, Recorder):
        return record
    recorder = Recorder(record)
    recorder.is_shared = False
    return recorder


def read_entries(source: Any) -> Iterator[ObservedEvent]:
    """Yield the entries of a recording, a source as for `open_stream`; the bytes of a mapped file are not copied.

    Raises `InvalidDataError` if it is not a recording, and `TruncatedError` after the last complete entry of one that
    is cut off.

    >>> with bs.serve({"visits": bs.table({"n": [1]})}) as server:
    ...     with bs.connect(server.uri("visits"), record="session.arrows") as reader:
    ...         _ = reader.read_all()
    >>> str(next(bs.sharing.read_entries("session.arrows")).kind)
    'connection'
    """
    indices: Counter[tuple[int, str, str]] = Counter()
    with _open_recording(source) as reader:
        for batch in reader:
            batch.validate(full=True)
            for name, column in zip(SCHEMA.names, batch.columns, strict=True):
                if column.null_count and name not in _NULLABLE_COLUMNS:
                    raise InvalidDataError(f"recording, column {name!r}: expected no nulls, found {column.null_count}")
            for row, values in enumerate(batch.drop_columns(["body"]).to_pylist()):
                key = values["connection"], values["direction"], values["kind"]
                try:
                    values |= {"direction": EventDirection(key[1]), "kind": ObservedEventKind(key[2])}
                except ValueError as error:
                    raise InvalidDataError(f"recording, entry {indices.total()}: {error}") from None
                yield ObservedEvent(index=indices[key], parts=_view_body(batch["body"].slice(row, 1)), **values)
                indices[key] += 1


def _open_recording(source: Any) -> StreamReader:
    opened = open_sequential(source)
    with call_on_error(opened.close):
        try:
            if detect_format(opened, "a recording") == "file":
                raise FormatMismatchError(f"{opened.name}: expected a recording, found an Arrow file")
            reader = StreamReader(opened)
            version = reader.schema.metadata.get(VERSION_KEY)
            if version != VERSION or reader.schema != SCHEMA:
                actual = "an Arrow stream without it" if version is None else repr(version)
                raise FormatMismatchError(f"expected a recording with {VERSION_KEY.decode()} = 1, found {actual}")
        except FormatMismatchError as error:
            error.add_note("bowstring serve --record and bowstring fetch --record write recordings")
            raise
        return reader


def _view_body(body: Array) -> tuple[memoryview, ...]:
    """Return the bytes of an entry, without a copy, or nothing if they are not recorded."""
    assert isinstance(body.layout, BinaryLayout)
    return () if body.null_count else (memoryview(body.layout.bytes_and_offsets(body)[0]),)  # type: ignore[arg-type]


def read_recording(source: Any) -> list[ObservedEvent]:
    """Return the entries of a recording, up to the last complete one if it is cut off. Raises `InvalidDataError`.

    >>> with bs.serve({"visits": bs.table({"n": [1]})}) as server:
    ...     with bs.connect(server.uri("visits"), record="session.arrows") as reader:
    ...         _ = reader.read_all()
    >>> str(bs.sharing.read_recording("session.arrows")[-1].kind)
    'close'
    """
    entries = []
    try:
        for entry in read_entries(source):
            entries.append(entry)  # noqa: PERF402 - those before an error count
    except TruncatedError:
        pass
    return entries

"""Every fault of a file or a stream, with its place: what a reader would refuse, and what it would not have noticed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from bowstring.arrays.record_batch import RecordBatch
from bowstring.errors import InvalidDataError, UnsupportedError
from bowstring.flatbuf.tables import VERSIONS
from bowstring.ipc.dictionaries import reader as reading
from bowstring.ipc.file import FileReader
from bowstring.ipc.format_detection import MAX_PIPED_BYTES, detect_format, make_file_reader, open_source
from bowstring.ipc.limits import DEFAULT_LIMITS, ReadLimits
from bowstring.ipc.metadata.schema import V4, V5, DictionaryId
from bowstring.ipc.statistics import FileStatistics, check_batch
from bowstring.ipc.stream import StreamReader
from bowstring.layouts.array import Array
from bowstring.layouts.base import error_context
from bowstring.layouts.validation import find_faults
from bowstring.memory.closable import close_on_error

_MAX_KNOWN, _MAX_MESSAGES = 256, 4096


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong: in which record batch and column (None where it is in none), where in a nested column
    from the outside in, the class of the error and its message. Names in path and message are not escaped.
    """

    record_batch: int | None
    column: int | None
    column_name: str | None
    error: str
    message: str
    path: tuple[str, ...] = ()


@dataclass(slots=True)
class Validation:
    """What has been looked at so far; complete when the faults have been taken from `faults`."""

    source: str
    format: Literal["file", "stream"] | None = None
    columns: int | None = None
    record_batches: int = 0
    rows: int = 0
    fault_count: int = 0


class _PatientReader(StreamReader):
    """A stream reader that goes on after a malformed batch, as long as it is clear where the next message begins."""

    @property
    def taken(self) -> int:
        """How many record batches have been there as a whole."""
        return self._decoder.batches

    @property
    def nodes(self) -> list[DictionaryId]:
        """The dictionaries that the schema names."""
        known = self._decoder._known
        return [] if known is None else list(known.wire.by_id.values())

    def dictionary(self, node: DictionaryId) -> Array | None:
        """The values of a dictionary as they are now; None where it is not defined."""
        return self._decoder._dictionaries(node)

    def walk(self) -> Iterator[tuple[int | None, RecordBatch | InvalidDataError]]:
        """Each batch, or what is wrong with it, and its number (None for a dictionary)."""
        decoder = self._decoder
        while True:
            messages, batches = decoder.messages, decoder.batches
            try:
                found = self._message()
            except InvalidDataError as error:
                is_over = decoder.messages == messages  # it has not got as far as a body
                yield batches if is_over or decoder.batches > batches else None, error
                if is_over:
                    return
                continue
            if isinstance(found, RecordBatch):
                yield batches, found
            elif found is not None:
                return


class Validator:
    """Goes through a source, batch by batch and column by column, and on after each fault.

    `source` is what `bowstring.inspect` takes. With `full` every value is looked at, else only the structure. Nested
    columns are gone through down to their leaves; of the values of one array the first that is wrong counts. A
    dictionary is told once, at its first use (in the end, where a stream does not use it) or, in a file, before all
    batches. What a footer says of its batches is compared with them. Where a stream's framing is broken, what comes
    after it can't be read.
    `faults` raises nothing for malformed data, but `NotFoundError`, `ResourceError` and the like where there is none.
    `advance(done, of)` is called before the first batch of a file and after each batch, with `of` None for a stream.
    """

    def __init__(
        self,
        source: Any,
        full: bool = True,
        limits: ReadLimits = DEFAULT_LIMITS,
        max_piped_bytes: int = MAX_PIPED_BYTES,
        advance: Callable[[int, int | None], None] | None = None,
    ) -> None:
        self.result = Validation(source if isinstance(source, str) else getattr(source, "name", "memory"))
        self._source = source
        self._full = full
        self._limits = limits
        self._max_piped_bytes = max_piped_bytes
        self._advance = advance
        self._known: dict[int, Array] = {}
        self._messages: set[str] = set()
        self._statistics: FileStatistics | None = None

    def faults(self) -> Iterator[Fault]:
        """The faults, in the order of the data; `result` counts along."""
        for fault in self._walk():
            self.result.fault_count += 1
            if len(self._messages) < _MAX_MESSAGES:
                self._messages.add(fault.message)
            yield fault

    def _walk(self) -> Iterator[Fault]:
        result = self.result
        try:
            reader = self._open()
        except InvalidDataError as error:
            yield _fault(error)
            return
        with reader:
            result.format = "file" if isinstance(reader, FileReader) else "stream"
            try:
                result.columns = len(list(reader.schema))
            except InvalidDataError as error:
                yield _fault(error)
                return
            if isinstance(reader, FileReader):
                yield from self._file(reader)
            else:
                yield from self._stream(reader)

    def _open(self) -> FileReader | _PatientReader:
        opened = open_source(self._source)
        with close_on_error(opened):
            is_file, ready = detect_format(opened, self._max_piped_bytes)
            if is_file:
                return make_file_reader(ready, None, self._limits)
            return _PatientReader(ready, None, self._limits)

    def _file(self, reader: FileReader) -> Iterator[Fault]:
        self._report(reader.num_record_batches)
        yield from self._footer(reader)
        try:
            dictionaries = list(reader.known.wire.by_id.values())
            for header, _body, where in reader.read_dictionary_messages():
                if not dictionaries:  # else they are gone through below
                    reading.find_dictionary(reader.known.wire, header, where)
        except InvalidDataError as error:
            yield _fault(error)
            dictionaries = []
        for node in dictionaries:
            yield from self._dictionary(reader, node)
        for index in range(reader.num_record_batches):
            try:
                batch = reader.read_whole_batch(index)
            except InvalidDataError as error:
                yield _fault(error, (index, None, None))
            else:
                before = self.result.fault_count
                yield from self._batch(index, batch)
                if self._statistics is not None and self.result.fault_count == before:
                    try:
                        check_batch(self._statistics, index, batch.columns)
                    except InvalidDataError as error:
                        yield _fault(error, (index, None, None))
            self.result.record_batches += 1
            self._report(reader.num_record_batches)

    def _footer(self, reader: FileReader) -> Iterator[Fault]:
        """What no reader of columns needs: the version, custom metadata, and what it says of the batches."""
        try:
            version: int = reader.footer["version"]
            if version not in (V4, V5):
                name = VERSIONS[version] if 0 <= version < len(VERSIONS) else str(version)
                raise UnsupportedError(f"footer: metadata version {name} is not supported: only V4 and V5 are")
        except InvalidDataError as error:
            yield _fault(error)
        try:
            statistics = reader.statistics
        except InvalidDataError as error:
            yield _fault(error)
        else:
            self._statistics = statistics if self._full else None

    def _stream(self, reader: _PatientReader) -> Iterator[Fault]:
        for index, found in reader.walk():
            if isinstance(found, InvalidDataError):
                yield _fault(found, (index, None, None))
            else:
                assert index is not None
                yield from self._batch(index, found)
            if index is not None and reader.taken > index:
                self.result.record_batches += 1
                self._report(None)
        for node in reader.nodes:
            for fault in self._dictionary(reader, node):
                if fault.message not in self._messages:  # where it is used, it was told already
                    yield fault

    def _report(self, of: int | None) -> None:
        if self._advance is not None:
            self._advance(self.result.record_batches, of)

    def _dictionary(self, reader: FileReader | _PatientReader, node: DictionaryId) -> Iterator[Fault]:
        try:
            values = reader.dictionary(node)
        except InvalidDataError as error:
            yield _fault(error)
            return
        if values is not None and id(values) not in self._known:
            self._known[id(values)] = values
            for path, problem in find_faults(values, self._full, self._known):
                yield _fault(problem, path=(f"dictionary {node.id}", *path))

    def _batch(self, number: int, batch: RecordBatch) -> Iterator[Fault]:
        self.result.rows += batch.num_rows
        if len(self._known) > _MAX_KNOWN:  # each is kept in memory
            self._known.clear()
        for index, field in enumerate(batch.schema):
            try:
                column = batch.column(index)
                if column.length != batch.num_rows:
                    raise InvalidDataError(f"it has {column.length} slots in a batch of {batch.num_rows} rows")
            except InvalidDataError as error:
                yield _fault(error, (number, index, field.name))
                continue
            for path, problem in find_faults(column, self._full, self._known):
                yield _fault(problem, (number, index, field.name), path)


def sound(batches: Iterable[RecordBatch], hint: str) -> Iterator[RecordBatch]:
    """The batches, each after all of its values were looked at; of a dictionary that several of them share, once.

    Raises `InvalidDataError` at the first fault, naming record batch, column, the way into a nested one, and the slot;
    `hint` is its note.
    """
    known: dict[int, Array] = {}
    for number, batch in enumerate(batches):
        if len(known) > _MAX_KNOWN:  # each is kept in memory
            known.clear()
        for index, field in enumerate(batch.schema):
            where = f"record batch {number}, column {field.name!r}"
            with error_context(where):
                column = batch.column(index)
            for fault in find_faults(column, True, known):
                error = type(fault.problem)(f"{where}: {fault}")
                error.add_note(hint)
                raise error
        yield batch


def _fault(
    error: InvalidDataError,
    place: tuple[int | None, int | None, str | None] = (None, None, None),
    path: tuple[str, ...] = (),
) -> Fault:
    batch, column, name = place
    message = str(error)
    for known in (f"record batch {batch}, column {name!r}: ", f"record batch {batch}: ", f"column {name!r}: "):
        message = message.removeprefix(known)
    return Fault(batch, column, name, type(error).__name__, message, path)

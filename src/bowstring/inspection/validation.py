"""Validation of files and streams: all errors with their location."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Literal

from bowstring.arrays.record_batch import RecordBatch
from bowstring.display.objects import report_to_html
from bowstring.errors import InvalidDataError, add_location, format_count, prefix_errors
from bowstring.io.stream_source import StreamSource
from bowstring.ipc.dictionaries.reader import StreamDictionaries, get_dictionary_declaration
from bowstring.ipc.file import FileReader
from bowstring.ipc.file_statistics import FileStatistics, check_batch_statistics
from bowstring.ipc.format_detection import MAX_PIPED_BYTES, open_and_detect_format
from bowstring.ipc.limits import DEFAULT_LIMITS, ReadLimits
from bowstring.ipc.message import FILE_START, format_location
from bowstring.ipc.metadata.field import DictionaryDeclaration
from bowstring.ipc.metadata.header import RECORD_BATCH, BatchHeader, check_metadata_version
from bowstring.ipc.metadata.schema import ColumnSelection, IpcSchema
from bowstring.ipc.record_batch.reader import BatchColumns, BodyLocation, DictionaryLookup, create_batch
from bowstring.ipc.tools.scan import FileScan, FramingSizes, StreamScan, find_unlisted_messages
from bowstring.ipc.tools.schema_difference import describe_schema_difference
from bowstring.layouts.base import ArrayData
from bowstring.layouts.validation import find_faults

# Both are kept in memory: dictionaries that were validated, and messages, so that equal ones count once.
_MAX_VALIDATED, _MAX_MESSAGES = 256, 4096


@dataclass(frozen=True, slots=True)
class Fault:
    """An error: indices of record batch and column, if any, path inside a nested column from the outside in, class and
    message. Names in path and message are not escaped.
    """

    record_batch: int | None
    column: int | None
    column_name: str | None
    error: str
    message: str
    path: tuple[str, ...] = ()


@dataclass(slots=True)
class ValidationSummary:
    """The totals of a validation, complete after iterating over `Validator.faults`.

    `warnings` are violations of the specification in parts that no reader of this format needs, and bytes after the end
    of a stream.
    """

    source: str
    format: Literal["file", "stream"] | None = None
    columns: int | None = None
    record_batches: int = 0
    rows: int = 0
    fault_count: int = 0
    warnings: list[str] = field(default_factory=list)

    _repr_html_ = report_to_html


class Validator:
    """Validates a source, batch by batch and column by column, and continues after each error.

    `source` is anything that `inspect` accepts. With `full` all values are checked, else only the structure.
    Nested columns are checked down to their leaves; for each array the first invalid value is reported. A dictionary
    is reported once: in a file before all batches, in a stream at its first use, or at the end if it is not used.
    Messages that a footer does not list are errors, and its statistics are compared with the batches. In a stream
    nothing is read after broken framing. A file whose footer can't be read is validated as a stream, too.

    `faults` does not raise for malformed data, but raises `NotFoundError`, `ResourceError` and so on.
    `report_progress(done, total)` is called before the first batch of a file and after each batch; `total` is None for
    a stream.
    """

    def __init__(
        self,
        source: Any,
        full: bool = True,
        limits: ReadLimits = DEFAULT_LIMITS,
        max_piped_bytes: int = MAX_PIPED_BYTES,
        report_progress: Callable[[int, int | None], None] | None = None,
    ) -> None:
        self.validation = ValidationSummary(source if isinstance(source, str) else getattr(source, "name", "memory"))
        self._source = source
        self._full = full
        self._limits = limits
        self._max_piped_bytes = max_piped_bytes
        self._report_progress = report_progress
        self._validated: dict[int, ArrayData] = {}
        self._messages: set[str] = set()
        self._statistics: FileStatistics | None = None

    def faults(self) -> Iterator[Fault]:
        """Yield the errors in the order of the data, and update `validation`."""
        for fault in self._find_faults():
            self.validation.fault_count += 1
            if len(self._messages) < _MAX_MESSAGES:
                self._messages.add(fault.message)
            yield fault

    def _find_faults(self) -> Iterator[Fault]:
        validation = self.validation
        try:
            opened, validation.format = open_and_detect_format(self._source, self._max_piped_bytes)
            with closing(opened):
                if validation.format == "file":
                    try:
                        file_scan = FileScan(opened, self._limits, keeps_bodies=True)
                        validation.columns = len(list(file_scan.ipc_schema.schema))
                    except InvalidDataError as error:  # in the footer: the messages are validated as those of a stream
                        yield _create_fault(error)
                        assert not isinstance(opened, StreamSource)
                        if opened.size <= len(FILE_START):
                            return
                        opened.position = len(FILE_START)
                    else:
                        yield from self._find_file_faults(file_scan.reader)
                        return
                scan = StreamScan(opened, self._limits, keeps_bodies=True)
                validation.columns = len(list(scan.ipc_schema.schema))
                yield from self._find_stream_faults(scan)
                if validation.format == "stream" and not isinstance(opened, StreamSource):
                    self._warn_of_rest(scan.get_framing_sizes(), opened.size - opened.position)
        except InvalidDataError as error:
            yield _create_fault(error)

    def _find_file_faults(self, reader: FileReader) -> Iterator[Fault]:
        self._call_report_progress(reader.num_record_batches)
        yield from self._find_footer_faults(reader)
        yield from self._find_schema_message_faults(reader)
        for kind, offset in find_unlisted_messages(reader, self._limits):
            yield _create_fault(InvalidDataError(f"footer: the {kind} at byte {offset} is not listed"))
        try:
            dictionaries = list(reader.ipc_schema.dictionaries_by_id.values())
            for header, body, location in reader.read_dictionary_messages():
                yield from _find_body_length_fault(header, body, None, f"{format_location(location)}: ")
                if not dictionaries:  # else they are checked below
                    get_dictionary_declaration(reader.ipc_schema, header, location)
        except InvalidDataError as error:
            yield _create_fault(error)
            dictionaries = []
        for node in dictionaries:
            yield from self._find_dictionary_faults(reader.get_dictionary, node)
        for index in range(reader.num_record_batches):
            try:
                batch = reader.read_whole_batch(index)
            except InvalidDataError as error:
                yield _create_fault(error, (index, None, None))
            else:
                assert isinstance(batch.lazy_columns, BatchColumns)
                yield from _find_body_length_fault(batch.lazy_columns.header, batch.lazy_columns.body, index)
                fault_count = self.validation.fault_count
                yield from self._find_batch_faults(index, batch)
                if self._statistics is not None and self.validation.fault_count == fault_count:
                    try:
                        check_batch_statistics(self._statistics, index, batch.columns)
                    except InvalidDataError as error:
                        yield _create_fault(error, (index, None, None))
            self.validation.record_batches += 1
            self._call_report_progress(reader.num_record_batches)

    def _find_footer_faults(self, reader: FileReader) -> Iterator[Fault]:
        """Check the parts of the footer that readers don't need: version, custom metadata and statistics."""
        try:
            check_metadata_version(reader.footer["version"], "footer")
        except InvalidDataError as error:
            yield _create_fault(error)
        try:
            statistics = reader.statistics
        except InvalidDataError as error:
            yield _create_fault(error)
        else:
            self._statistics = statistics if self._full else None

    def _find_schema_message_faults(self, reader: FileReader) -> Iterator[Fault]:
        """Compare the schema message with the footer's schema.

        Readers of a file use the footer's, so a message that can't be read is a warning: Polars 2.1 writes it without a
        prefix. A different schema is an error: readers of the stream in the file, and `recover`, may use it.
        """
        try:
            schema = IpcSchema.from_table(reader.messages.read_schema_message(), self._limits).schema
            tuple(schema)  # raises errors of malformed fields now
        except InvalidDataError as error:
            self.validation.warnings.append(f"{error}: readers of files use the schema in the footer")
            return
        if not reader.schema.equals(schema, check_metadata=True):
            in_footer, in_message = describe_schema_difference(reader.schema, schema, check_metadata=True) or (
                f"metadata {reader.schema.pairs}",
                f"{schema.pairs}",
            )
            problem = f"schema message: expected {in_footer}, as in the footer, found {in_message}"
            yield _create_fault(InvalidDataError(problem))

    def _find_stream_faults(self, scan: StreamScan) -> Iterator[Fault]:
        validation, ipc_schema, dictionaries = self.validation, scan.ipc_schema, StreamDictionaries()
        all_columns = ColumnSelection(ipc_schema, None)
        while True:
            index = validation.record_batches
            try:
                message = next(scan, None)
            except InvalidDataError as error:  # the start of the next message is unknown
                yield _create_fault(error, (index, None, None))
                break
            if message is None:
                break
            header, body, location = message.header, message.body, message.location_words
            is_batch = header.template.kind == RECORD_BATCH
            assert body is not None
            try:
                if is_batch:
                    batch = create_batch(all_columns, header, body, dictionaries.freeze(), ("record batch", index))
                else:
                    dictionaries = dictionaries.with_dictionary_batch(ipc_schema, header, body, location)
            except InvalidDataError as error:
                yield _create_fault(error, (index if is_batch else None, None, None))
            else:
                if is_batch:
                    yield from self._find_batch_faults(index, batch)
            if is_batch:
                validation.record_batches += 1
                self._call_report_progress(None)
        for node in ipc_schema.dictionaries_by_id.values():
            for fault in self._find_dictionary_faults(dictionaries, node):
                if fault.message not in self._messages:  # else reported at its use
                    yield fault

    def _warn_of_rest(self, sizes: FramingSizes, rest_bytes: int) -> None:
        """Warn of bytes after an end marker, which may be a damaged length: readers stop there."""
        if sizes.has_end_marker and rest_bytes:
            self.validation.warnings.append(
                f"{format_count(rest_bytes, 'byte')} after the end of the stream, which readers ignore and `recover` "
                "searches"
            )

    def _call_report_progress(self, total: int | None) -> None:
        if self._report_progress is not None:
            self._report_progress(self.validation.record_batches, total)

    def _find_dictionary_faults(self, lookup: DictionaryLookup, node: DictionaryDeclaration) -> Iterator[Fault]:
        try:
            values = lookup(node)
        except InvalidDataError as error:
            yield _create_fault(error, path=(f"dictionary {node.id}",))
            return
        if values is not None and id(values) not in self._validated:
            self._validated[id(values)] = values
            for path, problem in find_faults(values, self._full, self._validated):
                yield _create_fault(problem, path=(f"dictionary {node.id}", *path))

    def _find_batch_faults(self, number: int, batch: RecordBatch) -> Iterator[Fault]:
        self.validation.rows += batch.num_rows
        if len(self._validated) > _MAX_VALIDATED:  # each is kept in memory
            self._validated.clear()
        for index, name in enumerate(batch.schema.names):
            try:
                column = batch.column(index)
                if column.length != batch.num_rows:
                    raise InvalidDataError(
                        f"expected {batch.num_rows} values, one per row of the batch, found {column.length}"
                    )
            except InvalidDataError as error:
                yield _create_fault(error, (number, index, name))
                continue
            for path, problem in find_faults(column, self._full, self._validated):
                yield _create_fault(problem, (number, index, name), path)


def _find_body_length_fault(
    header: BatchHeader, body: BodyLocation, record_batch: int | None, prefix: str = ""
) -> Iterator[Fault]:
    """Compare the length of a body in the footer, which is that of `body`, with the one in its header.

    Our readers need only the header's, but others reject the file.
    """
    if header.body_bytes < body.size:  # if it is greater, reading the message is an error
        problem = f"{prefix}expected a body of {body.size} bytes, as in the footer, found {header.body_bytes}"
        yield _create_fault(InvalidDataError(problem), (record_batch, None, None))


def iter_validated_batches(batches: Iterable[RecordBatch], hint: str) -> Iterator[RecordBatch]:
    """Yield the batches after validating all their values; a shared dictionary is validated once.

    Raises `InvalidDataError` for the first error, with record batch, column, path and index. `hint` is added as a note.
    """
    validated: dict[int, ArrayData] = {}
    for number, batch in enumerate(batches):
        if len(validated) > _MAX_VALIDATED:  # each is kept in memory
            validated.clear()
        for index, name in enumerate(batch.schema.names):
            location = f"record batch {number}, column {name!r}"
            with prefix_errors(location):
                column = batch.column(index)
            for fault in find_faults(column, True, validated):
                error = add_location(fault.error, " → ".join((location, *fault.path)))
                error.add_note(hint)
                raise error
        yield batch


def _create_fault(
    error: InvalidDataError,
    location: tuple[int | None, int | None, str | None] = (None, None, None),
    path: tuple[str, ...] = (),
) -> Fault:
    batch, column, name = location
    message = str(error)
    for prefix in (f"record batch {batch}, column {name!r}: ", f"record batch {batch}: ", f"column {name!r}: "):
        message = message.removeprefix(prefix)
    return Fault(batch, column, name, type(error).__name__, message, path)

"""`bowstring convert`: one format into another, and one form of Arrow data into another."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, get_args

import click

from bowstring.cli import parquet, text_input
from bowstring.cli.streams import (
    PATH,
    Bounded,
    binary_output,
    counted,
    given,
    max_piped_option,
    named,
    progress,
    sink_to,
    telling,
)
from bowstring.datatypes.field import Metadata, Schema
from bowstring.datatypes.types import Dictionary
from bowstring.errors import FormatMismatchError, UsageError
from bowstring.inspection.validating import sound
from bowstring.inspection.values import check_rows, csv_line, json_line, rows_of, text_of, together
from bowstring.ipc.api import new_file, new_stream
from bowstring.ipc.file import FileReader
from bowstring.ipc.form import DictionaryDeltas, WireForm
from bowstring.ipc.opening import open_any
from bowstring.ipc.places.faults import fault
from bowstring.ipc.places.sinks import Sink
from bowstring.ipc.statistics import with_statistics
from bowstring.ipc.stream import StreamReader
from bowstring.layouts.array import Array
from bowstring.tabular.batch import RecordBatch
from bowstring.tabular.table import Table, has_dictionaries, unified_batches

SOURCES = ("arrow", "parquet", "csv", "jsonl")
TARGETS = ("file", "stream", "parquet", "csv", "jsonl")
_ENDINGS = {
    ".arrow": "file",
    ".feather": "file",
    ".ipc": "file",
    ".arrows": "stream",
    ".parquet": "parquet",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
_ARROW = ("file", "stream")
_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True)
class _Input:
    """What is read: the schema, the batches as they come, and how many there are where that is known.

    `is_steady` where all batches have one dictionary a column, as a file's have. `footer` is a file's custom metadata,
    without what is said of its batches: they will lie elsewhere.
    """

    schema: Schema
    batches: Iterable[RecordBatch]
    count: int | None = None
    is_steady: bool = True
    footer: Metadata = ()
    is_arrow: bool = False


@click.command()
@click.argument("source", type=PATH)
@click.argument("target", type=PATH)
@click.option("--from", "source_kind", type=click.Choice(SOURCES), help="What SOURCE is, where its name does not say.")
@click.option(
    "--to", "target_kind", type=click.Choice(TARGETS), help="What to write, where TARGET's name does not say."
)
@click.option("--compression", type=click.Choice(["none", "lz4", "zstd"]), default="none", show_default=True)
@click.option("--compression-level", type=int, help="The codec's own scale.")
@click.option("--alignment", type=click.Choice(["8", "16", "32", "64"]), default="64", show_default=True)
@click.option("--byte-order", type=click.Choice(["little", "big"]), default="little", show_default=True)
@click.option("--metadata-version", type=click.Choice(["V4", "V5"]), default="V5", show_default=True)
@click.option("--legacy-framing", is_flag=True, help="Frame messages as Arrow up to 0.14 did.")
@click.option("--batch-rows", type=click.IntRange(min=1), help="Cut and join batches to so many rows each.")
@click.option("--decode-dictionaries", is_flag=True, help="Write plain values in place of dictionary-encoded columns.")
@click.option("--unify-dictionaries", is_flag=True, help="Write one dictionary a column, before the first batch.")
@click.option("--dictionary-deltas", type=click.Choice(get_args(DictionaryDeltas)), default="auto", show_default=True)
@click.option("--quick", is_flag=True, help="Pass values on without looking at every one; never to Parquet.")
@max_piped_option
def convert(source: str, target: str, **options: Any) -> None:
    """Convert between Arrow files and streams, Parquet, CSV and JSON lines, and between the forms of Arrow data.

    SOURCE and TARGET may be - for standard input and output. Arrow data and Parquet are told by content, the rest by
    the name's ending, or by --from and --to. Every value is looked at: a malformed one is refused with its place. A
    TARGET appears under its name when it is complete.
    """
    kind = options["target_kind"] or _ENDINGS.get(Path(target).suffix.lower())
    if kind is None:
        raise click.UsageError(f"what is {target!r} to be? Give --to {'|'.join(TARGETS)}")
    form = _form(kind, options)
    with (
        telling(source),
        binary_output(target, source) as out,
        _reading(source, options) as found,
        progress("converting") as advance,
    ):
        ready = _prepared(found, kind, options)
        batches = counted(ready.batches, advance, ready.count)
        if kind in _ARROW:
            _write_arrow(out, kind, replace(ready, batches=batches), form, int(options["alignment"]))
        else:
            _write_other(out, kind, ready.schema, batches, options)


def _form(kind: str, options: dict[str, Any]) -> WireForm:
    """How Arrow data is to be written. Raises `click.UsageError` for what can't be written so."""
    if kind not in _ARROW:
        given_forms = {
            "--alignment": options["alignment"] != "64",
            "--byte-order": options["byte_order"] != "little",
            "--metadata-version": options["metadata_version"] != "V5",
            "--legacy-framing": options["legacy_framing"],
            "--unify-dictionaries": options["unify_dictionaries"],
            "--dictionary-deltas": options["dictionary_deltas"] != "auto",
            "--compression-level": options["compression_level"] is not None,
            "--compression": options["compression"] != "none" and kind != "parquet",
        }
        odd = [name for name, is_given in given_forms.items() if is_given]
        if odd:
            raise click.UsageError(f"{', '.join(odd)}: {kind} has no such form")
        return WireForm()
    try:
        return WireForm(
            options["byte_order"],
            options["metadata_version"],
            options["legacy_framing"],
            None if options["compression"] == "none" else options["compression"],
            options["compression_level"],
            options["dictionary_deltas"],
            unify_dictionaries=options["unify_dictionaries"],
        )
    except UsageError as error:
        raise click.UsageError(str(error)) from None


# Reading


@contextmanager
def _reading(path: str, options: dict[str, Any]) -> Iterator[_Input]:
    kind = options["source_kind"] or _source_kind(path)
    name = named(path)
    if kind == "arrow":
        with _opened_as_arrow(path, options["max_piped_bytes"]) as reader:
            if isinstance(reader, FileReader):
                footer = with_statistics(tuple(reader.metadata.items()), None, ())
                yield _Input(reader.schema, reader, len(reader), True, footer, is_arrow=True)
            else:
                yield _Input(reader.schema, reader, is_steady=False, is_arrow=True)
        return
    with _opened(path, options["max_piped_bytes"]) as opened:
        if kind == "parquet":
            held = opened if opened.seekable() else opened.read()
            with parquet.reading(held, name, options["batch_rows"]) as (schema, batches):
                yield _Input(schema, batches, is_steady=False)
            return
        batch = (text_input.read_csv if kind == "csv" else text_input.read_json_lines)(opened, name)
    cuts = range(0, max(batch.num_rows, 1), _AT_ONCE)
    yield _Input(batch.schema, (batch.slice(start, _AT_ONCE) for start in cuts), len(cuts))


def _opened_as_arrow(path: str, max_piped_bytes: int) -> FileReader | StreamReader:
    try:
        return open_any(given(path), max_piped_bytes=max_piped_bytes)
    except FormatMismatchError as error:
        error.add_note("--from parquet, csv or jsonl says what else it is")
        raise


@contextmanager
def _opened(path: str, max_piped_bytes: int = 0) -> Iterator[BinaryIO]:
    """What a path, or standard input, gives; where it is no regular file, not more than the limit."""
    source = given(path)
    try:
        opened = open(source if isinstance(source, str) else os.dup(source.fileno()), "rb")  # noqa: SIM115 -- below
    except OSError as error:
        raise fault(error, named(path)) from None
    with opened:
        is_file = stat.S_ISREG(os.fstat(opened.fileno()).st_mode)
        yield opened if is_file else io.BufferedReader(Bounded(opened, named(path), max_piped_bytes))


def _source_kind(path: str) -> str:
    ending = _ENDINGS.get(Path(path).suffix.lower())
    if ending in ("csv", "jsonl"):
        return ending
    if path != "-" and Path(path).is_file():
        with _opened(path) as opened:
            if opened.read(4) == b"PAR1":
                return "parquet"
    return "arrow"


# Between


def _prepared(found: _Input, kind: str, options: dict[str, Any]) -> _Input:
    schema, batches, count, is_steady = found.schema, found.batches, found.count, found.is_steady
    if not options["quick"] or kind == "parquet":  # pyarrow takes our word for values, and crashes where it is wrong
        batches = sound(batches, _hint(found, kind))
    if options["decode_dictionaries"]:
        schema, batches = _decoded(schema, batches)
    if options["batch_rows"]:
        batches, count, is_steady = _recut(schema, batches, options["batch_rows"]), None, False
    if has_dictionaries(schema) and (
        options["unify_dictionaries"] or (kind == "file" and not is_steady)
    ):  # a file replaces none
        held = list(batches)
        batches, count = unified_batches(schema, held), len(held)
    return _Input(schema, batches, count, is_steady, found.footer)


def _hint(found: _Input, kind: str) -> str:
    hints = ["bowstring validate tells every fault"] if found.is_arrow else []
    if kind != "parquet":
        hints.append("--quick passes values on as they are")
    return ", ".join(hints)


def _decoded(schema: Schema, batches: Iterable[RecordBatch]) -> tuple[Schema, Iterator[RecordBatch]]:
    fields = [
        field.with_type(field.type.value_type) if isinstance(field.type, Dictionary) else field for field in schema
    ]
    plain = Schema(tuple(fields), schema.pairs)
    return plain, (
        RecordBatch(plain, batch.num_rows, list(map(_plain, batch.columns)), batch.pairs) for batch in batches
    )


def _plain(column: Array) -> Array:
    return column.dictionary_decode() if isinstance(column.type, Dictionary) else column


def _recut(schema: Schema, batches: Iterable[RecordBatch], rows: int) -> Iterator[RecordBatch]:
    held: list[RecordBatch] = []
    count = 0
    for batch in batches:
        check_rows(batch)
        at = 0
        while at < batch.num_rows:
            part = batch.slice(at, rows - count)
            held.append(part)
            at, count = at + part.num_rows, count + part.num_rows
            if count == rows:
                yield from Table(schema, held).combine_chunks().to_batches()
                held, count = [], 0
    if held:
        yield from Table(schema, held).combine_chunks().to_batches()


# Writing


def _write_arrow(out: Any, kind: str, ready: _Input, form: WireForm, alignment: int) -> None:
    with (
        new_file(out, ready.schema, ready.footer, alignment, form=form)
        if kind == "file"
        else new_stream(out, ready.schema, alignment, form=form)
    ) as writer:
        for batch in ready.batches:
            writer.write_batch(batch)


def _write_other(out: Any, kind: str, schema: Schema, batches: Iterable[RecordBatch], options: dict[str, Any]) -> None:
    with sink_to(out) as sink:
        if kind == "parquet":
            compression = None if options["compression"] == "none" else options["compression"]
            parquet.write(sink, schema, batches, compression)
        else:
            _write_text(sink, kind, schema, batches)


def _write_text(sink: Sink, kind: str, schema: Schema, batches: Iterable[RecordBatch]) -> None:
    names = schema.names
    if kind == "jsonl" and len(set(names)) < len(names):
        raise UsageError("two columns have one name: a JSON object has one of them only; convert to CSV")
    if kind == "csv":
        head = [[csv_line(names)]]
        parts: Iterable[Iterable[str]] = ((csv_line(list(map(text_of, row))) for row in rows_of(b)) for b in batches)
    else:
        head = []
        parts = ((json_line(names, row) for row in rows_of(batch)) for batch in batches)
    for lines in chain(head, parts):
        for some in together(lines):
            sink.write([some], len(some))

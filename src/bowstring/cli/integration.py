"""`bowstring integration`: the part of a tester in Arrow's integration harness, by the arguments that its testers take.

The commands have names of their own; the harness calls one executable with `--mode`, `--json` and `--arrow`, and the
group takes that, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

import click

from bowstring import integration_json as exchange
from bowstring.arrays.record_batch import RecordBatch
from bowstring.arrays.table import schema_has_dictionaries, unify_batches
from bowstring.cli.input_output import SinkFile, binary_output, given, sink_to
from bowstring.cli.settings import FAILED
from bowstring.datatypes.types import DataType, Date, Decimal, Dictionary, Time
from bowstring.inspection.text import printable
from bowstring.ipc.api import new_file, new_stream, open_file, open_stream
from bowstring.ipc.format_detection import open_any
from bowstring.layouts.base import error_context

_DIFFERENCES_SHOWN = 20
_Command = TypeVar("_Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class _Quirks:
    """What a full validation judges beside the structure: older versions wrote decimals, dates and times that are out
    of range, and a reader has to take them.
    """

    decimals: bool = False
    date64: bool = False
    times: bool = False

    def allow(self, kind: DataType) -> bool:
        """Whether the values of this type are to be judged, those of its children included."""
        if isinstance(kind, Decimal):
            return self.decimals
        if isinstance(kind, Date):
            return self.date64 or kind.bit_width != 64
        if isinstance(kind, Time):
            return self.times
        if isinstance(kind, Dictionary):
            return self.allow(kind.value_type)
        return all(self.allow(field.type) for field in kind.fields)


def _options(*which: str) -> Callable[[_Command], _Command]:
    """The options of these names."""
    known = {
        "json": click.option(
            "-j", "-json", "--json", "json_path", metavar="FILE", help="The integration JSON (- for a pipe)."
        ),
        "arrow": click.option(
            "-a", "-arrow", "--arrow", "arrow_path", metavar="FILE", help="The Arrow file (- for a pipe)."
        ),
        "decimals": _quirk("decimals", "decimals keep to their precision"),
        "date64": _quirk("date64", "64-bit dates are whole days"),
        "times": _quirk("times", "times of day are less than a day"),
        "format": click.option(
            "--format",
            "kind",
            type=click.Choice(["file", "stream"]),
            default="file",
            show_default=True,
            help="What to write.",
        ),
    }

    def decorate(command: _Command) -> _Command:
        for name in reversed(which):
            command = known[name](command)
        return command

    return decorate


def _quirk(name: str, what: str) -> Callable[[_Command], _Command]:
    return click.option(
        f"--validate_{name}",
        f"--validate-{name}",
        f"validate_{name}",
        type=click.BOOL,
        default=False,
        help=f"Whether to check that {what} (older versions of Arrow wrote others).",
    )


def _both(paths: Sequence[str], given: dict[str, str | None]) -> tuple[str, str]:
    """A path for each of two names: those given as options, the others in order."""
    left = iter(paths)
    found = {name: path if path is not None else next(left, None) for name, path in given.items()}
    missing = [name for name, path in found.items() if path is None]
    if missing:
        raise click.UsageError(f"give a path for {' and '.join(missing)}")
    if next(left, None) is not None:
        raise click.UsageError(f"expected a path each for {' and '.join(given)}, found more")
    first, second = (path or "" for path in found.values())
    return first, second


def _one(path: str | None) -> str:
    if path is None:
        raise click.UsageError("give a path for --arrow")
    return path


@click.group(invoke_without_command=True)
@click.option("--integration", "in_harness", is_flag=True, help="Taken as a sign of the harness; changes nothing.")
@click.option(
    "-c", "-mode", "--mode", "mode", default="VALIDATE", show_default=True, help="The command, for calls without one."
)
@_options("json", "arrow", "decimals", "date64", "times")
@click.pass_context
def integration(
    ctx: click.Context,
    /,
    *,
    mode: str,
    in_harness: bool,  # noqa: ARG001 -- the harness passes it
    json_path: str | None,
    arrow_path: str | None,
    **quirks: bool,
) -> int | None:
    """Convert between Arrow and its integration JSON, and compare: what a tester does in Arrow's integration harness.

    Without a command, --mode names it as the harness does (JSON_TO_ARROW, ARROW_TO_JSON, VALIDATE, STREAM_TO_FILE,
    FILE_TO_STREAM), with --json and --arrow.
    """
    if ctx.invoked_subcommand is not None:
        return None
    command = mode.lower().replace("_", "-")
    if command == "stream-to-file":
        return _stream_to_file("-", _one(arrow_path))
    if command == "file-to-stream":
        return _file_to_stream(_one(arrow_path), "-")
    json_file, arrow_file = _both((), {"--json": json_path, "--arrow": arrow_path})
    if command == "json-to-arrow":
        return _json_to_arrow(json_file, arrow_file, "file")
    if command == "arrow-to-json":
        return _arrow_to_json(arrow_file, json_file)
    if command == "validate":
        return _validate(json_file, arrow_file, _quirks(quirks))
    raise click.UsageError(f"there is no mode {mode!r}")


def _quirks(given: dict[str, bool]) -> _Quirks:
    return _Quirks(**{name.removeprefix("validate_"): judged for name, judged in given.items()})


@integration.command("json-to-arrow")
@click.argument("paths", nargs=-1, metavar="[JSON] [ARROW]")
@_options("json", "arrow", "format")
def json_to_arrow(paths: tuple[str, ...], *, json_path: str | None, arrow_path: str | None, kind: str) -> int:
    """Write the data of an integration JSON document (gzip or not) as an Arrow file."""
    return _json_to_arrow(*_both(paths, {"JSON": json_path, "ARROW": arrow_path}), kind)


@integration.command("arrow-to-json")
@click.argument("paths", nargs=-1, metavar="[ARROW] [JSON]")
@_options("json", "arrow")
def arrow_to_json(paths: tuple[str, ...], *, json_path: str | None, arrow_path: str | None) -> int:
    """Write the data of an Arrow file or stream as integration JSON."""
    return _arrow_to_json(*_both(paths, {"ARROW": arrow_path, "JSON": json_path}))


@integration.command()
@click.argument("paths", nargs=-1, metavar="[JSON] [ARROW]")
@_options("json", "arrow", "decimals", "date64", "times")
def validate(paths: tuple[str, ...], *, json_path: str | None, arrow_path: str | None, **quirks: bool) -> int:
    """Tell whether an Arrow file or stream holds what an integration JSON document says; exit status 1 where not.

    Both are validated first, and every difference in schema, metadata and values is a line.
    """
    return _validate(*_both(paths, {"JSON": json_path, "ARROW": arrow_path}), _quirks(quirks))


@integration.command("stream-to-file")
@click.argument("stream", default="-")
@click.argument("file", default="-")
def stream_to_file(stream: str, file: str) -> int:
    """Write an Arrow stream as a file; standard input and output by default."""
    return _stream_to_file(stream, file)


@integration.command("file-to-stream")
@click.argument("file", default="-")
@click.argument("stream", default="-")
def file_to_stream(file: str, stream: str) -> int:
    """Write an Arrow file as a stream; standard input and output by default."""
    return _file_to_stream(file, stream)


# What the commands do


def _json_to_arrow(json_path: str, arrow_path: str, kind: str) -> int:
    with binary_output(arrow_path, json_path) as sink:
        held = exchange.read(given(json_path))
        with (new_file if kind == "file" else new_stream)(sink, held.schema) as writer:
            for batch in held.batches:
                writer.write_batch(batch)
    return 0


def _arrow_to_json(arrow_path: str, json_path: str) -> int:
    with open_any(given(arrow_path)) as reader:
        document = exchange.build_document(reader.schema, reader)
    with binary_output(json_path, arrow_path) as out, sink_to(out) as sink:
        exchange.write(SinkFile(sink), document)
    return 0


def _stream_to_file(stream_path: str, file_path: str) -> int:
    with (
        binary_output(file_path, stream_path) as sink,
        open_stream(given(stream_path)) as reader,
        new_file(sink, reader.schema) as writer,
    ):
        # A file holds one dictionary for all batches, a stream may change it.
        for batch in unify_batches(reader.schema, list(reader)) if schema_has_dictionaries(reader.schema) else reader:
            writer.write_batch(batch)
    return 0


def _file_to_stream(file_path: str, stream_path: str) -> int:
    with (
        binary_output(stream_path, file_path) as sink,
        open_file(given(file_path)) as reader,
        new_stream(sink, reader.schema) as writer,
    ):
        for batch in reader:
            writer.write_batch(batch)
    return 0


def _validate(json_path: str, arrow_path: str, quirks: _Quirks) -> int:
    expected = exchange.read(given(json_path))
    with open_any(given(arrow_path)) as reader:
        batches = list(reader)
        for name, data in ((json_path, expected.batches), (arrow_path, batches)):
            with error_context(name):
                _validate_batches(data, quirks)
        found = exchange.find_differences(expected.schema, expected.batches, reader.schema, batches)
        shown = list(islice(found, _DIFFERENCES_SHOWN + 1))
    for difference in shown[:_DIFFERENCES_SHOWN]:
        click.echo(f"{arrow_path}: {printable(difference)}", err=True)
    if len(shown) > _DIFFERENCES_SHOWN:
        click.echo(f"{arrow_path}: and more", err=True)
    if not shown:
        rows = sum(batch.num_rows for batch in batches)
        click.echo(f"{arrow_path}: {len(batches)} record batches of {rows} rows are as {json_path} says")
    return FAILED if shown else 0


def _validate_batches(batches: Sequence[RecordBatch], quirks: _Quirks) -> None:
    for number, batch in enumerate(batches):
        for index, field in enumerate(batch.schema):
            with error_context(f"record batch {number}: column {field.name!r}"):
                batch.column(index).validate(full=quirks.allow(field.type))

"""`bowstring integration`: a tester for Arrow's integration harness.

Each operation is a subcommand. The harness calls testers with `--mode`, `--json` and `--arrow` instead, which the group
accepts, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

import click

from bowstring import integration_json
from bowstring.arrays.record_batch import RecordBatch
from bowstring.arrays.table import schema_has_dictionaries, unify_batches
from bowstring.cli.input_output import SinkFile, binary_output, output_sink, resolve_source
from bowstring.cli.settings import FAILED
from bowstring.datatypes.types import DataType, Date, Decimal, Dictionary, Time
from bowstring.inspection.text import printable
from bowstring.ipc.api import new_file, new_stream, open_file, open_stream
from bowstring.ipc.format_detection import open_any
from bowstring.layouts.base import error_context

_DIFFERENCES_SHOWN = 20
_Command = TypeVar("_Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class _ValueChecks:
    """Types whose values are validated, in addition to the structure.

    Older versions of Arrow wrote decimals, dates and times out of range, which readers must accept.
    """

    decimals: bool = False
    date64: bool = False
    times: bool = False

    def applies_to(self, kind: DataType) -> bool:
        """Return whether to validate the values of this type and its children."""
        if isinstance(kind, Decimal):
            return self.decimals
        if isinstance(kind, Date):
            return self.date64 or kind.bit_width != 64
        if isinstance(kind, Time):
            return self.times
        if isinstance(kind, Dictionary):
            return self.applies_to(kind.value_type)
        return all(self.applies_to(field.type) for field in kind.fields)


def _options(*which: str) -> Callable[[_Command], _Command]:
    """Add the options of these names."""
    options = {
        "json": click.option(
            "-j",
            "-json",
            "--json",
            "json_path",
            metavar="FILE",
            help="Integration JSON, or - for standard input or output.",
        ),
        "arrow": click.option(
            "-a",
            "-arrow",
            "--arrow",
            "arrow_path",
            metavar="FILE",
            help="Arrow file, or - for standard input or output.",
        ),
        "decimals": _check_option("decimals", "decimals fit their precision"),
        "date64": _check_option("date64", "64-bit dates are whole days"),
        "times": _check_option("times", "times of day are less than a day"),
        "format": click.option(
            "--format",
            "kind",
            type=click.Choice(["file", "stream"]),
            default="file",
            show_default=True,
            help="Format to write.",
        ),
    }

    def decorate(command: _Command) -> _Command:
        for name in reversed(which):
            command = options[name](command)
        return command

    return decorate


def _check_option(name: str, what: str) -> Callable[[_Command], _Command]:
    return click.option(
        f"--validate_{name}",
        f"--validate-{name}",
        f"validate_{name}",
        type=click.BOOL,
        default=False,
        help=f"Check that {what}; older versions of Arrow wrote others.",
    )


def _two_paths(paths: Sequence[str], paths_by_name: dict[str, str | None]) -> tuple[str, str]:
    """Return two paths: from options where set, else from the arguments in order."""
    remaining = iter(paths)
    resolved = {name: path if path is not None else next(remaining, None) for name, path in paths_by_name.items()}
    missing = [name for name, path in resolved.items() if path is None]
    if missing:
        raise click.UsageError(f"give a path for {' and '.join(missing)}")
    if next(remaining, None) is not None:
        raise click.UsageError(f"expected one path each for {' and '.join(paths_by_name)}, found more")
    first, second = (path or "" for path in resolved.values())
    return first, second


def _required_path(path: str | None) -> str:
    if path is None:
        raise click.UsageError("give a path for --arrow")
    return path


@click.group(invoke_without_command=True)
@click.option("--integration", "in_harness", is_flag=True, help="Ignored; the harness passes it.")
@click.option(
    "-c",
    "-mode",
    "--mode",
    "mode",
    default="VALIDATE",
    show_default=True,
    help="Command, if none is given as a subcommand.",
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
    **checks: bool,
) -> int | None:
    """Convert between Arrow and its integration JSON, and compare the two.

    Without a command, --mode selects one like in the harness (JSON_TO_ARROW, ARROW_TO_JSON, VALIDATE, STREAM_TO_FILE,
    FILE_TO_STREAM), with --json and --arrow.
    """
    if ctx.invoked_subcommand is not None:
        return None
    command = mode.lower().replace("_", "-")
    if command == "stream-to-file":
        return _stream_to_file("-", _required_path(arrow_path))
    if command == "file-to-stream":
        return _file_to_stream(_required_path(arrow_path), "-")
    json_file, arrow_file = _two_paths((), {"--json": json_path, "--arrow": arrow_path})
    if command == "json-to-arrow":
        return _json_to_arrow(json_file, arrow_file, "file")
    if command == "arrow-to-json":
        return _arrow_to_json(arrow_file, json_file)
    if command == "validate":
        return _validate(json_file, arrow_file, _value_checks(checks))
    raise click.UsageError(f"unknown mode {mode!r}")


def _value_checks(flags: dict[str, bool]) -> _ValueChecks:
    return _ValueChecks(**{name.removeprefix("validate_"): judged for name, judged in flags.items()})


@integration.command("json-to-arrow")
@click.argument("paths", nargs=-1, metavar="[JSON] [ARROW]")
@_options("json", "arrow", "format")
def json_to_arrow(paths: tuple[str, ...], *, json_path: str | None, arrow_path: str | None, kind: str) -> int:
    """Write the data of an integration JSON document (gzip or not) as an Arrow file."""
    return _json_to_arrow(*_two_paths(paths, {"JSON": json_path, "ARROW": arrow_path}), kind)


@integration.command("arrow-to-json")
@click.argument("paths", nargs=-1, metavar="[ARROW] [JSON]")
@_options("json", "arrow")
def arrow_to_json(paths: tuple[str, ...], *, json_path: str | None, arrow_path: str | None) -> int:
    """Write the data of an Arrow file or stream as integration JSON."""
    return _arrow_to_json(*_two_paths(paths, {"ARROW": arrow_path, "JSON": json_path}))


@integration.command()
@click.argument("paths", nargs=-1, metavar="[JSON] [ARROW]")
@_options("json", "arrow", "decimals", "date64", "times")
def validate(paths: tuple[str, ...], *, json_path: str | None, arrow_path: str | None, **checks: bool) -> int:
    """Compare an Arrow file or stream with an integration JSON document.

    Both are validated first. Each difference in schema, metadata or values is a line. The exit status is 1 if there
    are differences.
    """
    return _validate(*_two_paths(paths, {"JSON": json_path, "ARROW": arrow_path}), _value_checks(checks))


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


# Implementation of the commands


def _json_to_arrow(json_path: str, arrow_path: str, kind: str) -> int:
    with binary_output(arrow_path, json_path) as sink:
        document = integration_json.read(resolve_source(json_path))
        with (new_file if kind == "file" else new_stream)(sink, document.schema) as writer:
            for batch in document.batches:
                writer.write_batch(batch)
    return 0


def _arrow_to_json(arrow_path: str, json_path: str) -> int:
    with open_any(resolve_source(arrow_path)) as reader:
        document = integration_json.build_document(reader.schema, reader)
    with binary_output(json_path, arrow_path) as out, output_sink(out) as sink:
        integration_json.write(SinkFile(sink), document)
    return 0


def _stream_to_file(stream_path: str, file_path: str) -> int:
    with (
        binary_output(file_path, stream_path) as sink,
        open_stream(resolve_source(stream_path)) as reader,
        new_file(sink, reader.schema) as writer,
    ):
        # A file has one dictionary for all batches, a stream can replace it.
        for batch in unify_batches(reader.schema, list(reader)) if schema_has_dictionaries(reader.schema) else reader:
            writer.write_batch(batch)
    return 0


def _file_to_stream(file_path: str, stream_path: str) -> int:
    with (
        binary_output(stream_path, file_path) as sink,
        open_file(resolve_source(file_path)) as reader,
        new_stream(sink, reader.schema) as writer,
    ):
        for batch in reader:
            writer.write_batch(batch)
    return 0


def _validate(json_path: str, arrow_path: str, checks: _ValueChecks) -> int:
    expected = integration_json.read(resolve_source(json_path))
    with open_any(resolve_source(arrow_path)) as reader:
        batches = list(reader)
        for name, data in ((json_path, expected.batches), (arrow_path, batches)):
            with error_context(name):
                _validate_batches(data, checks)
        differences = integration_json.find_differences(expected.schema, expected.batches, reader.schema, batches)
        shown = list(islice(differences, _DIFFERENCES_SHOWN + 1))
    for difference in shown[:_DIFFERENCES_SHOWN]:
        click.echo(f"{arrow_path}: {printable(difference)}", err=True)
    if len(shown) > _DIFFERENCES_SHOWN:
        click.echo(f"{arrow_path}: and more", err=True)
    if not shown:
        rows = sum(batch.num_rows for batch in batches)
        click.echo(f"{arrow_path}: {rows:,} rows in {len(batches):,} record batches match {json_path}")
    return FAILED if shown else 0


def _validate_batches(batches: Sequence[RecordBatch], checks: _ValueChecks) -> None:
    for number, batch in enumerate(batches):
        for index, field in enumerate(batch.schema):
            with error_context(f"record batch {number}: column {field.name!r}"):
                batch.column(index).validate(full=checks.applies_to(field.type))

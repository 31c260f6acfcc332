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
from bowstring.cli.error_messages import EXIT_FAILURE
from bowstring.cli.formats import LazyTable, fit_to_format, write_table
from bowstring.cli.help_text import examples
from bowstring.cli.input_output import echo_written, resolve_output, resolve_source
from bowstring.datatypes.types import DataType, Date, Decimal, Dictionary, Time
from bowstring.display.printable_text import to_printable
from bowstring.ipc.api import open_any, open_file, open_stream
from bowstring.layouts.base import prefix_errors

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

    def is_enabled_for(self, type: DataType) -> bool:
        """Return whether to validate the values of this type and its children."""
        if isinstance(type, Decimal):
            return self.decimals
        if isinstance(type, Date):
            return self.date64 or type.bit_width != 64
        if isinstance(type, Time):
            return self.times
        if isinstance(type, Dictionary):
            return self.is_enabled_for(type.value_type)
        return all(self.is_enabled_for(field.type) for field in type.fields)


_json_option = click.option(
    "-j", "-json", "--json", "json_path", metavar="FILE", help="Integration JSON, or - for standard input or output."
)
_arrow_option = click.option(
    "-a", "-arrow", "--arrow", "arrow_path", metavar="FILE", help="Arrow file, or - for standard input or output."
)


def _value_check_option(name: str, what: str) -> Callable[[_Command], _Command]:
    return click.option(
        f"--validate_{name}",
        f"--validate-{name}",
        f"validate_{name}",
        type=click.BOOL,
        default=False,
        help=f"Check that {what}; old versions of Arrow wrote others.",
    )


def _value_check_options(command: _Command) -> _Command:
    """Add the options that set the fields of `_ValueChecks`."""
    for name, what in (
        ("times", "times of day are less than a day"),
        ("date64", "64-bit dates are whole days"),
        ("decimals", "decimals fit their precision"),
    ):
        command = _value_check_option(name, what)(command)
    return command


def _resolve_paths(paths: Sequence[str], paths_by_name: dict[str, str | None]) -> tuple[str, str]:
    """Return two paths: from options if set, else from the arguments in order."""
    remaining = iter(paths)
    resolved = {name: path if path is not None else next(remaining, None) for name, path in paths_by_name.items()}
    missing = [name for name, path in resolved.items() if path is None]
    if missing:
        raise click.UsageError(f"give a path for {' and '.join(missing)}")
    if next(remaining, None) is not None:
        raise click.UsageError(f"expected one path each for {' and '.join(paths_by_name)}, found more")
    first, second = (path or "" for path in resolved.values())
    return first, second


@click.group(
    invoke_without_command=True,
    epilog=examples(
        "bowstring integration json-to-arrow data.json data.arrow",
        "bowstring integration validate data.json data.arrow",
    ),
)
@click.option("--integration", "in_harness", is_flag=True, help="Ignored; the harness passes it.")
@click.option("-c", "-mode", "--mode", "mode", default="VALIDATE", help="Operation, if there is no subcommand.")
@_json_option
@_arrow_option
@_value_check_options
@click.pass_context
def integration(ctx: click.Context, /, *, mode: str, **options: Any) -> Any:
    """Convert between Arrow and its integration JSON, and compare the two.

    Without a subcommand, --mode selects the operation, as Arrow's test harness does: JSON_TO_ARROW, ARROW_TO_JSON,
    VALIDATE, STREAM_TO_FILE or FILE_TO_STREAM. The paths are then --json and --arrow.
    """
    if ctx.invoked_subcommand is not None:
        return None
    name = mode.lower().replace("_", "-")
    command = integration.commands.get(name)
    if command is None:
        raise click.UsageError(f"unknown mode {mode!r}")
    if command in (stream_to_file, file_to_stream):
        if options["arrow_path"] is None:
            raise click.UsageError("give a path for --arrow")
        return ctx.invoke(command, **{name.rpartition("-")[2]: options["arrow_path"]})
    names = {param.name for param in command.params}
    return ctx.invoke(command, paths=(), **{key: value for key, value in options.items() if key in names})


@integration.command(
    "json-to-arrow",
    epilog=examples(
        "bowstring integration json-to-arrow data.json data.arrow",
        "bowstring integration json-to-arrow data.json.gz data.arrows --format stream",
    ),
)
@click.argument("paths", nargs=-1, metavar="[JSON] [ARROW]")
@_json_option
@_arrow_option
@click.option(
    "--format", "arrow_format", type=click.Choice(["file", "stream"]), default="file", help="Format to write."
)
def json_to_arrow(paths: tuple[str, ...], *, json_path: str | None, arrow_path: str | None, arrow_format: str) -> None:
    """Write integration JSON (gzip or not) as Arrow."""
    source, target = _resolve_paths(paths, {"JSON": json_path, "ARROW": arrow_path})
    sink = resolve_output(target, source)
    table = integration_json.read(resolve_source(source))
    _write_arrow(target, sink, arrow_format, LazyTable(table.schema, table.to_batches()))


@integration.command("arrow-to-json", epilog=examples("bowstring integration arrow-to-json flights.arrow flights.json"))
@click.argument("paths", nargs=-1, metavar="[ARROW] [JSON]")
@_json_option
@_arrow_option
def arrow_to_json(paths: tuple[str, ...], *, json_path: str | None, arrow_path: str | None) -> None:
    """Write an Arrow file or stream as integration JSON."""
    source, target = _resolve_paths(paths, {"ARROW": arrow_path, "JSON": json_path})
    with open_any(resolve_source(source)) as reader:
        document = integration_json.build_document(reader.schema, reader)
        sink = resolve_output(target, source)
        integration_json.write(sink, document)
    echo_written(target, sum(batch["count"] for batch in document["batches"]), len(reader.schema))


@integration.command(epilog=examples("bowstring integration validate data.json data.arrow"))
@click.argument("paths", nargs=-1, metavar="[JSON] [ARROW]")
@_json_option
@_arrow_option
@_value_check_options
def validate(paths: tuple[str, ...], *, json_path: str | None, arrow_path: str | None, **checks: bool) -> int:
    """Compare Arrow data with integration JSON.

    Both are validated first. Each difference in schema, metadata or values is a line. The exit status is 1 if there
    are differences.
    """
    json_file, arrow_file = _resolve_paths(paths, {"JSON": json_path, "ARROW": arrow_path})
    value_checks = _ValueChecks(**{name.removeprefix("validate_"): is_set for name, is_set in checks.items()})
    expected = integration_json.read(resolve_source(json_file))
    with open_any(resolve_source(arrow_file)) as reader:
        actual = list(reader)
        for name, batches in ((json_file, expected.to_batches()), (arrow_file, actual)):
            with prefix_errors(name):
                _validate_batches(batches, value_checks)
        all_differences = integration_json.find_differences(
            expected.schema, expected.to_batches(), reader.schema, actual
        )
        differences = list(islice(all_differences, _DIFFERENCES_SHOWN + 1))
    for difference in differences[:_DIFFERENCES_SHOWN]:
        click.echo(f"{arrow_file}: {to_printable(difference)}", err=True)
    if len(differences) > _DIFFERENCES_SHOWN:
        click.echo(f"{arrow_file}: and more", err=True)
    if not differences:
        rows = sum(batch.num_rows for batch in actual)
        click.echo(f"{arrow_file}: {rows:,} rows in {len(actual):,} record batches match {json_file}")
    return EXIT_FAILURE if differences else 0


def _validate_batches(batches: Sequence[RecordBatch], checks: _ValueChecks) -> None:
    for number, batch in enumerate(batches):
        for index, field in enumerate(batch.schema):
            with prefix_errors(f"record batch {number}: column {field.name!r}"):
                batch.column(index).validate(full=checks.is_enabled_for(field.type))


@integration.command(
    "stream-to-file", epilog=examples("bowstring integration stream-to-file flights.arrows flights.arrow")
)
@click.argument("stream", default="-")
@click.argument("file", default="-")
def stream_to_file(stream: str, file: str) -> None:
    """Write an Arrow stream as a file.

    STREAM and FILE are standard input and output by default.
    """
    sink = resolve_output(file, stream)
    with open_stream(resolve_source(stream)) as reader:
        _write_arrow(file, sink, "file", LazyTable(reader.schema, reader))


@integration.command(
    "file-to-stream", epilog=examples("bowstring integration file-to-stream flights.arrow flights.arrows")
)
@click.argument("file", default="-")
@click.argument("stream", default="-")
def file_to_stream(file: str, stream: str) -> None:
    """Write an Arrow file as a stream.

    FILE and STREAM are standard input and output by default.
    """
    sink = resolve_output(stream, file)
    with open_file(resolve_source(file)) as reader:
        _write_arrow(stream, sink, "stream", LazyTable(reader.schema, reader))


def _write_arrow(target: str, sink: Any, arrow_format: str, table: LazyTable) -> None:
    rows = write_table(sink, arrow_format, fit_to_format(table, arrow_format))
    echo_written(target, rows, len(table.schema))

"""Arguments and options that several commands have."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, get_args

import click

from bowstring.datasets.published_dataset import published
from bowstring.file_formats import SOURCE_FORMATS, TARGET_FORMATS, InvalidRowsAction, import_pyarrow
from bowstring.ipc.format_detection import MAX_PIPED_BYTES

_Command = TypeVar("_Command", bound=Callable[..., Any])

PATH = click.Path(allow_dash=True, readable=False)
"""A path or "-", not checked before it is opened."""


class Utf8Text(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.4
    """Text of the command line that is valid UTF-8; other bytes become surrogates in Python."""

    name = "text"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text. Raise `click.BadParameter` if it has surrogates."""
        try:
            value.encode()
        except UnicodeEncodeError:
            self.fail(f"{value!r} is not valid UTF-8", param, ctx)
        return value


UTF8_TEXT = Utf8Text()


class Number(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.4
    """A number within bounds; unlike click's ranges, errors and help have them in words."""

    def __init__(
        self, kind: type[int | float], minimum: float, maximum: float = math.inf, *, excludes_minimum: bool = False
    ) -> None:
        self.name = "integer" if kind is int else "number"
        self._kind = kind
        self._minimum, self._maximum = minimum, maximum
        self._excludes_minimum = excludes_minimum

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number. Raise `click.BadParameter` for other text, and for a number out of bounds."""
        try:
            number = self._kind(value)
        except ValueError:
            number = math.nan
        if not self._minimum <= number <= self._maximum or (self._excludes_minimum and number == self._minimum):
            self.fail(f"expected {self._describe()}, found {value}", param, ctx)
        return number

    def _describe(self) -> str:
        name = f"{'an' if self._kind is int else 'a'} {self.name}"
        if self._maximum != math.inf:
            return f"{name} from {self._minimum} to {self._maximum}"
        return f"{name} above {self._minimum}" if self._excludes_minimum else f"{name} of at least {self._minimum}"


COUNT = Number(int, 0)
POSITIVE_COUNT = Number(int, 1)
SECONDS = Number(float, 0)
POSITIVE_SECONDS = Number(float, 0, excludes_minimum=True)

file_argument = click.argument("file", required=False, type=PATH)

max_piped_bytes_option = click.option(
    "--max-piped-bytes",
    type=COUNT,
    default=MAX_PIPED_BYTES,
    show_default=False,
    help="Maximum size of a file that is read from a pipe into memory; streams have none.  [default: 1 GiB]",
)
from_option = click.option(
    "--from",
    "source_format",
    type=click.Choice(SOURCE_FORMATS),
    help="Format to read.  [default: by content or extension]",
)


def parse_name_list(ctx: click.Context, param: click.Parameter, value: str | Sequence[str] | None) -> tuple[str, ...]:
    """Parse one or more lists of names, separated by commas; a name that contains commas is in double quotes."""
    texts = [value] if isinstance(value, str) else value or ()
    try:
        return tuple(name for text in texts for name in next(csv.reader([text], strict=True), None) or [""])
    except csv.Error as error:
        raise click.BadParameter(f"expected names separated by commas: {error}", ctx, param) from None


columns_option = click.option(
    "-c",
    "--columns",
    "--column",
    "columns",
    multiple=True,
    callback=parse_name_list,
    metavar="A,B,…",
    help="Select these columns, in this order; may be repeated.",
)
_PARAMETRIC_TYPE = re.compile(
    r"decimal(32|64|128|256)?\((\d+)(?:, *(-?\d+))?\)|timestamp\[(s|ms|us|ns), *(?:tz=)?(.+)\]"
)


def _parse_column_types(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, Any]:
    """Parse `NAME=TYPE` options to a dictionary of pyarrow data types."""
    types = {}
    for value in values:
        column, equals, text = value.rpartition("=")
        if "timestamp[" in value:  # a time zone may contain "="
            column, equals, text = value.partition("=")
        if not equals or not column:
            raise click.BadParameter(f"expected NAME=TYPE, such as price=float64, found {value!r}", ctx, param)
        try:
            types[column] = _parse_pyarrow_type(text.strip())
        except (ValueError, TypeError):
            expected = "int32, string, timestamp[us], decimal128(10, 2) …"
            raise click.BadParameter(f"expected a type such as {expected}, found {text!r}", ctx, param) from None
    return types


def _parse_pyarrow_type(text: str) -> Any:
    pa = import_pyarrow()
    match = _PARAMETRIC_TYPE.fullmatch(text)
    if match is None:
        return pa.type_for_alias(text)
    bits, precision, scale, unit, zone = match.groups()
    if unit is not None:
        return pa.timestamp(unit, zone)
    return getattr(pa, f"decimal{bits or 128}")(int(precision), int(scale or 0))


column_types_option = click.option(
    "--column-type",
    "column_types",
    type=UTF8_TEXT,
    callback=_parse_column_types,
    multiple=True,
    metavar="NAME=TYPE",
    help="Type of a column of CSV or JSON, such as int32 or timestamp[us, tz=UTC]; may be repeated.",
)
invalid_rows_option = click.option(
    "--invalid-rows",
    type=click.Choice(get_args(InvalidRowsAction)),
    default="error",
    help="Rows of CSV or JSON with other columns or types: end with an error, or skip and list them.",
)
record_option = click.option(
    "--record",
    type=click.Path(dir_okay=False),
    metavar="PATH",
    help="Record all messages and data in a new file, for bowstring trace.",
)
quick_option = click.option("--quick", is_flag=True, help="Check the structure only, not every value.")


def json_option(help_text: str) -> Callable[[_Command], _Command]:
    """Return the option for JSON as output, with this help text."""
    return click.option("--json", "as_json", is_flag=True, help=help_text)


def all_option(help_text: str) -> Callable[[_Command], _Command]:
    """Return the option that shows everything, with this help text."""
    return click.option("--all", "show_all", is_flag=True, help=help_text)


def rows_option(help_text: str) -> Callable[[_Command], _Command]:
    """Return the option for a number of rows, with this help text."""
    return click.option("-n", "--rows", "count", type=COUNT, default=10, help=help_text)


def row_format_option(help_text: str, default: str | None = None) -> Callable[[_Command], _Command]:
    """Return the option for the format of rows, with this help text."""
    formats = click.Choice(["table", "jsonl", "csv"])
    return click.option("--format", "row_format", type=formats, default=default, help=help_text)


def target_format_option(default: str) -> Callable[[_Command], _Command]:
    """Return the option for the format to write, with this text for the default."""
    formats = click.Choice(TARGET_FORMATS)
    return click.option("--to", "target_format", type=formats, help=f"Format to write.  [default: {default}]")


def arrow_format_option(default: str) -> Callable[[_Command], _Command]:
    """Return the option for the Arrow format to write, with this text for the default."""
    formats = click.Choice(["file", "stream"])
    return click.option("--to", "arrow_format", type=formats, help=f"Format to write.  [default: {default}]")


def complete_dataset_names(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the names and IDs of published data sets that begin with a text, for completion in a shell."""
    names = {name for summary in published(timeout_s=1.0) for name in (summary.name, summary.id)}
    return sorted(name for name in names if name.startswith(incomplete))

"""A tester for Arrow's integration harness (Archery's `integration` command).

    python -m tests.integration_json --mode JSON_TO_ARROW --json CASE.json --arrow CASE.arrow

ARROW_TO_JSON is the reverse, VALIDATE compares the two. STREAM_TO_FILE and FILE_TO_STREAM read standard input and write
`--arrow`. The exit status is 1 for differences and errors.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import bowstring as bs
from bowstring.datatypes.types import DataType, Date, Decimal, Dictionary, Time
from bowstring.display.printable_text import to_printable
from bowstring.errors import prefix_errors
from bowstring.ipc.api import open_any
from tests import integration_json


@dataclass(frozen=True, slots=True)
class ValueChecks:
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


def write_file(sink: str, schema: bs.Schema, batches: Iterable[bs.RecordBatch]) -> None:
    """Write a file, whose batches share their dictionaries."""
    table = bs.Table.from_batches(batches, schema).unify_dictionaries()
    with bs.new_file(sink, schema) as writer:
        for batch in table.to_batches():
            writer.write(batch)


def write_stream(sink: str, schema: bs.Schema, batches: Iterable[bs.RecordBatch]) -> None:
    """Write a stream."""
    with bs.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write(batch)


def find_differences(json: str, arrow: str, checks: ValueChecks) -> list[str]:
    """Return the differences between Arrow data and integration JSON, both of which are validated first."""
    expected = integration_json.read(json)
    with open_any(arrow) as reader:
        actual = list(reader)
        for name, batches in ((json, expected.to_batches()), (arrow, actual)):
            for number, batch in enumerate(batches):
                for column, field in zip(batch.columns, batch.schema, strict=True):
                    with prefix_errors(f"{name}: record batch {number}: column {field.name!r}"):
                        column.validate(full=checks.is_enabled_for(field.type))
        return list(integration_json.find_differences(expected.schema, expected.to_batches(), reader.schema, actual))


def run(options: argparse.Namespace) -> Sequence[str]:
    """Run one mode and return the differences that it finds."""
    if options.mode == "VALIDATE":
        checks = ValueChecks(options.validate_decimals, options.validate_date64, options.validate_times)
        return find_differences(options.json, options.arrow, checks)
    if options.mode == "JSON_TO_ARROW":
        table = integration_json.read(options.json)
        write_file(options.arrow, table.schema, table.to_batches())
    elif options.mode == "ARROW_TO_JSON":
        with open_any(options.arrow) as reader:
            integration_json.write(options.json, integration_json.build_document(reader.schema, reader))
    elif options.mode == "STREAM_TO_FILE":
        with bs.open_stream(sys.stdin.buffer) as reader:
            write_file(options.arrow, reader.schema, reader)
    else:
        with bs.open_file(sys.stdin.buffer) as reader:
            write_stream(options.arrow, reader.schema, reader)
    return ()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tester and return its exit status. Other testers' short options are accepted, too."""
    parser = argparse.ArgumentParser(prog="python -m tests.integration_json")
    modes = ("JSON_TO_ARROW", "ARROW_TO_JSON", "VALIDATE", "STREAM_TO_FILE", "FILE_TO_STREAM")
    parser.add_argument("--integration", action="store_true", help="ignored; the harness passes it")
    parser.add_argument("-c", "-mode", "--mode", choices=modes, default="VALIDATE")
    parser.add_argument("-j", "-json", "--json")
    parser.add_argument("-a", "-arrow", "--arrow", required=True)
    for kind in ("decimals", "date64", "times"):
        parser.add_argument(f"--validate_{kind}", type="true".__eq__, default=False, metavar="true|false")
    options = parser.parse_args(arguments)
    if options.json is None and "JSON" in options.mode.replace("VALIDATE", "JSON"):
        parser.error("--json is required")
    try:
        lines = [f"{options.arrow}: {to_printable(difference)}" for difference in run(options)]
    except bs.BowstringError as error:
        lines = [str(error)]
    print(*lines, sep="\n", end="\n" if lines else "", file=sys.stderr)  # noqa: T201
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())

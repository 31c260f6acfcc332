"""The commands on files with any bytes: they exit with 0 or 1, and with 1 they print an error line or a report."""

from __future__ import annotations

import io
import warnings
from contextlib import redirect_stderr, redirect_stdout
from zlib import crc32

from bowstring.cli.main import main
from bowstring.errors import InvalidDataError
from bowstring.ipc.api import open_any
from fuzz.expectations import LIMITS, MAX_ROWS, expect
from fuzz.temporary_files import folder, write_file

_COMMANDS = (
    "validate FILE", "validate --json FILE", "validate --quick FILE",
    "info --sizes FILE", "info --sizes --json --all FILE", "info FILE",
    "info --json FILE", "head FILE", "head --all -n 3 FILE", "head --format jsonl FILE",
    "head --format csv FILE", "anatomy FILE -o OUT.html", "recover FILE OUT.arrow",
    "recover --quick --json FILE OUT.arrow",
    "diff FILE OTHER", "diff --json FILE FILE", "concat FILE FILE -o OUT.arrow", "concat --to stream FILE OTHER -o OUT",
    "cat FILE", "cat --format csv FILE", "convert FILE OUT.arrow", "convert --compression zstd --to stream FILE OUT",
    "convert --byte-order big --to file FILE OUT", "convert --decode-dictionaries --to stream FILE OUT",
    "convert --unify-dictionaries --to file --batch-rows 2 FILE OUT", "convert --to csv FILE OUT",
    "convert --to jsonl FILE OUT", "convert --metadata-version V4 --legacy-framing --to stream FILE OUT",
)  # fmt: skip
_ROW_WRITERS = ("cat", "convert")


def check_command(data: bytes) -> bool:
    """Run one command on a file with these bytes."""
    command = _COMMANDS[crc32(data) % len(_COMMANDS)]
    name = command.partition(" ")[0]
    if name in _ROW_WRITERS and _rows(data) > MAX_ROWS:
        return False  # these commands write all rows
    write_file("input.arrow", data)
    write_file("other.arrow", data[: len(data) // 2] + data[len(data) // 2 + 8 :])
    file_names = {"FILE": "input.arrow", "OTHER": "other.arrow", "OUT": "out"}
    parts = [word.partition(".") for word in command.split()]
    arguments = [
        f"{folder() / file_names[name_part]}{dot}{rest}" if name_part in file_names else f"{name_part}{dot}{rest}"
        for name_part, dot, rest in parts
    ]
    output, error_output = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    with redirect_stdout(output), redirect_stderr(error_output), warnings.catch_warnings():
        warnings.simplefilter("error")
        status = main(arguments)
    output.flush()
    errors = error_output.getvalue()
    expect(status in (0, 1), f"{name} exits with {status}: {errors}")
    expect(errors.count("\n") <= 1 or not errors.startswith("bowstring:"), f"{name} prints more than one error line")
    expect("Traceback" not in errors, f"{name} prints a traceback")
    expect(status == 0 or bool(errors) or output.buffer.tell() > 0, f"{name} fails without output")
    is_summary = name == "convert" and errors.count("\n") == 1
    expect(status != 0 or not errors or is_summary, f"{name} succeeds, but prints the error {errors:.200}")
    return status == 0


def _rows(data: bytes) -> int:
    """The number of rows up to the first error."""
    rows = 0
    try:
        with open_any(data, limits=LIMITS) as reader:
            for batch in reader:
                rows += batch.num_rows
    except InvalidDataError:
        pass
    return rows

"""Convert a column of every type, alone and nested, to Parquet and back: `-m tests.cli.parquet_types FOLDER`.

This runs in its own process, because pyarrow aborts if it can't write a type. Each line of the output has the type, the
exit status, the text of standard error, and whether the rows are equal.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import bowstring as bs
from bowstring.cli.main import main
from bowstring.datatypes.types import DataType
from tests.cases import CASES


def columns() -> Iterator[tuple[DataType, list[Any]]]:
    """Types with values."""
    for case in CASES:
        yield case.type, case.values
        yield bs.list_(bs.list_(case.type, 0)), [[[], None], None, []]
        yield bs.struct({"f": bs.list_(case.type)}), [{"f": []}, None, {"f": None}]
        yield bs.list_(case.type, 0), [[], [], []]


def convert(source: Path, target: Path) -> tuple[int, str]:
    """Convert a file; return the exit status and the line on standard error."""
    with redirect_stderr(io.StringIO()) as error_output:
        status = main(["convert", str(source), str(target)])
    return status, error_output.getvalue()


def run(folder: Path) -> None:
    for type_, values in columns():
        source, middle, target = (folder / name for name in ("in.arrow", "x.parquet", "out.arrow"))
        batch = bs.RecordBatch.from_arrays([bs.array(values, type_)], ["c"])
        with bs.new_file(source, batch.schema) as writer:
            writer.write(batch)
        status, error_line = convert(source, middle)
        is_same = False
        if status == 0:
            status, error_line = convert(middle, target)
            is_same = (
                status == 0
                and bs.open_file(target).read_all().to_pylist() == bs.open_file(source).read_all().to_pylist()
            )
        print(json.dumps([str(type_), status, error_line, is_same]), flush=True)  # noqa: T201


if __name__ == "__main__":
    run(Path(sys.argv[1]))

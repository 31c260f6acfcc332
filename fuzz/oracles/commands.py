"""The commands, over files of any bytes: an exit status, and where it is not 0, one line or what the command found."""

from __future__ import annotations

import io
import warnings
from contextlib import redirect_stderr, redirect_stdout
from zlib import crc32

from bowstring.cli.main import main
from bowstring.errors import InvalidDataError
from bowstring.ipc.format_detection import open_any
from fuzz.places import folder, put
from fuzz.promises import LIMITS, MOST_ROWS, promise

_COMMANDS = (
    "validate FILE", "validate --json FILE", "validate --quick FILE", "sizes FILE", "sizes --json --all FILE",
    "info FILE", "info --json FILE", "head FILE", "head --all -n 3 FILE", "head --format jsonl FILE",
    "head --format csv FILE", "anatomy FILE -o OUT.html", "recover FILE OUT.arrow",
    "recover --quick --json FILE OUT.arrow",
    "diff FILE OTHER", "diff --json FILE FILE", "concat FILE FILE -o OUT.arrow", "concat --to stream FILE OTHER -o OUT",
    "cat FILE", "cat --format csv FILE", "convert FILE OUT.arrow", "convert --compression zstd --to stream FILE OUT",
    "convert --byte-order big --to file FILE OUT", "convert --decode-dictionaries --to stream FILE OUT",
    "convert --unify-dictionaries --to file --batch-rows 2 FILE OUT", "convert --to csv FILE OUT",
    "convert --to jsonl FILE OUT", "convert --metadata-version V4 --legacy-framing --to stream FILE OUT",
    "integration arrow-to-json FILE OUT.json", "integration file-to-stream FILE OUT",
    "integration stream-to-file FILE OUT",
)  # fmt: skip
_SPELLS_OUT = ("cat", "convert", "integration")


def check_command(data: bytes) -> bool:
    """Run one command over a file with these bytes."""
    command = _COMMANDS[crc32(data) % len(_COMMANDS)]
    name = command.partition(" ")[0]
    if name in _SPELLS_OUT and _rows(data) > MOST_ROWS:
        return False  # all rows are what they are there to write
    put("given.arrow", data)
    put("other.arrow", data[: len(data) // 2] + data[len(data) // 2 + 8 :])
    places = {"FILE": "given.arrow", "OTHER": "other.arrow", "OUT": "out"}
    words = [word.partition(".") for word in command.split()]
    arguments = [f"{folder() / places[w]}{dot}{rest}" if w in places else f"{w}{dot}{rest}" for w, dot, rest in words]
    out, problems = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    with redirect_stdout(out), redirect_stderr(problems), warnings.catch_warnings():
        warnings.simplefilter("error")
        status = main(arguments)
    out.flush()
    said = problems.getvalue()
    promise(status in (0, 1), f"{name} ends with {status}: {said}")
    promise(said.count("\n") <= 1 or not said.startswith("bowstring:"), f"{name} says more than one line")
    promise("Traceback" not in said, f"{name} shows a traceback")
    promise(status == 0 or bool(said) or out.buffer.tell() > 0, f"{name} fails without a word")
    is_summary = name == "convert" and said.count("\n") == 1
    promise(status != 0 or not said or is_summary, f"{name} succeeds, and prints {said:.200}")
    return status == 0


def _rows(data: bytes) -> int:
    """How many rows a reader gets, before it meets an error."""
    rows = 0
    try:
        with open_any(data, limits=LIMITS) as reader:
            for batch in reader:
                rows += batch.num_rows
    except InvalidDataError:
        pass
    return rows

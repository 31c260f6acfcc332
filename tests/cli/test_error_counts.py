"""`bowstring validate` and `bowstring anatomy` find the same errors, and `bowstring recover` saves what has none."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path

import pytest

import bowstring as bs
from bowstring.cli.main import main
from bowstring.inspection.anatomy.page import build_page_and_count_faults
from bowstring.inspection.validation import Validator


def create(format_: str, has_dictionary: bool) -> bytearray:
    """A file or a stream of four record batches."""
    words = bs.array([f"word{index % 5}" for index in range(50)])
    columns = {
        "n": list(range(50)),
        "s": words.dictionary_encode() if has_dictionary else words,
        "l": [[1, 2]] * 50,
    }
    batch, sink = bs.record_batch(columns), io.BytesIO()
    with (bs.new_file if format_ == "file" else bs.new_stream)(sink, batch.schema) as writer:
        for _ in range(4):
            writer.write(batch)
    return bytearray(sink.getvalue())


def damage(data: bytearray, what: str, rng: random.Random) -> bytes:
    size = len(data)
    if what == "cut off":
        return bytes(data[: rng.randrange(10, size)])
    if what == "changed bits":
        for _ in range(3):
            data[rng.randrange(8, size)] ^= 1 << rng.randrange(8)
    else:
        start = rng.randrange(size - 700 if what == "a damaged end" else 8, size - 64)
        data[start : start + 64] = bytes(64) if what == "zeros" else rng.randbytes(64)
    return bytes(data)


@pytest.mark.parametrize("what", ["cut off", "changed bits", "zeros", "a damaged end"])
@pytest.mark.parametrize("format_", ["file", "stream"])
@pytest.mark.parametrize("has_dictionary", [False, True])
@pytest.mark.parametrize("full", [True, False])
def test_the_page_has_the_errors_of_validate(what: str, format_: str, has_dictionary: bool, full: bool) -> None:
    rng = random.Random(f"{what} {format_} {has_dictionary}")
    for _ in range(12):
        data = damage(create(format_, has_dictionary), what, rng)
        faults = list(Validator(data, full).faults())
        page, count = build_page_and_count_faults(data, full=full)
        assert count == len(faults)
        assert f"{count} error" in page or not count


def test_the_errors_of_a_file_without_a_footer_are_those_of_its_messages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = create("file", has_dictionary=False)
    data[data.index(b"word1") : data.index(b"word1") + 3] = b"\xff\xff\xff"
    path = tmp_path / "cut.arrow"
    path.write_bytes(data[: len(data) // 2])
    assert main(["validate", str(path), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["format"], document["columns"], document["record_batches"]) == ("file", 3, 2)
    messages = [fault["message"] for fault in document["faults"]]
    for message, expected in zip(
        messages, ("the file is cut off", "is not valid UTF-8", "bytes of metadata"), strict=True
    ):
        assert expected in message
    assert main(["anatomy", str(path), "-o", str(tmp_path / "page.html")]) == 0
    assert "; 3 errors in cut.arrow" in capsys.readouterr().out
    assert main(["recover", str(path), str(tmp_path / "saved.arrow"), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    reasons = [report["footer_problem"]]
    reasons += [loss["reason"] for loss in (*report["damaged_columns"], *report["dropped"])]
    assert [reason[:50] in message for reason, message in zip(reasons, messages, strict=True)] == [True] * 3


def test_a_malformed_schema_is_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = create("file", has_dictionary=False)
    data[-400:-330] = bytes(70)
    path = tmp_path / "x.arrow"
    path.write_bytes(data)
    assert main(["validate", str(path)]) == 1
    count = capsys.readouterr().out.count("\n")
    assert main(["anatomy", str(path), "-o", str(tmp_path / "page.html")]) == 0
    assert f"; {count} error" in capsys.readouterr().out
    assert count == 1

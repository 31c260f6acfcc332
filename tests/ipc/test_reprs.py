"""Readers and writers say what they are at."""

from __future__ import annotations

import io
from pathlib import Path

import bowstring as bs

BATCH = bs.record_batch({"a": [1, 2], "s": ["x", "y"]})


def test_a_file_reader_says_which_file_and_how_many_batches(tmp_path: Path) -> None:
    path = tmp_path / "x.arrow"
    with bs.new_file(path, BATCH.schema) as writer:
        assert repr(writer) == "<bowstring.FileWriter: 2 columns>"
        writer.write(BATCH)
        writer.write(BATCH)
    assert repr(writer) == "<bowstring.FileWriter: closed>"
    reader = bs.open_file(path)
    assert repr(reader) == f"<bowstring.FileReader {path}: 2 record batches>"
    reader.close()
    assert repr(reader) == f"<bowstring.FileReader {path}: closed>"


def test_a_stream_reader_says_how_far_it_is() -> None:
    written = io.BytesIO()
    with bs.new_stream(written, BATCH.schema) as writer:
        assert repr(writer) == "<bowstring.StreamWriter: 2 columns>"
        writer.write(BATCH)
    reader = bs.open_stream(written.getvalue())
    before = repr(reader)
    reader.read_next_batch()
    assert "StreamReader" in before
    assert "at byte" in before
    assert before != repr(reader)
    reader.close()
    assert repr(reader).endswith("closed>")

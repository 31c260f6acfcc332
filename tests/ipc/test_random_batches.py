"""Random batches of any type with unusual buffers, in every encoding, read by every reader.

Dictionaries change from batch to batch, columns share names, and some batches have no rows or no columns.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

import bowstring as bs
from bowstring.errors import InvalidArgumentError, UnsupportedTypeError
from tests import integration_json
from tests.layouts.random_arrays import any_type, random_array

BLOCKS = pytest.mark.parametrize("block", range(8))
SEEDS_PER_BLOCK = 10
ColumnTexts = list[list[str]]


def column_texts(batch: bs.RecordBatch) -> ColumnTexts:
    """Return the columns as text, which distinguishes zeros of both signs and equates NaNs."""
    return [[repr(value) for value in column.to_pylist()] for column in batch.columns]


def random_column(random: Random, type_: bs.DataType, rows: int, earlier: Sequence[bs.Array]) -> bs.Array:
    """Return a new array or a part of an earlier one, so that dictionaries recur."""
    old = random.choice(earlier) if earlier and random.random() < 0.5 else None
    if old is None or len(old) < rows:
        return random_array(random, type_, rows)
    start = random.randrange(len(old) - rows + 1)
    return old.slice(start, rows) if random.random() < 0.6 else old.take(range(start, start + rows))


def random_batches(random: Random) -> tuple[bs.Schema, list[bs.RecordBatch]]:
    count = random.choice([0, 1, 1, 2, 3])
    fields = [
        bs.field(random.choice(["", "a", "ü"]), any_type(random, random.choice([0, 1, 2, 3])), metadata={"k": "v"})
        for _ in range(count)
    ]
    schema = bs.schema(fields, metadata=random.choice([None, {"x": "y"}]))
    batches: list[bs.RecordBatch] = []
    for _ in range(random.choice([0, 1, 2, 3])):
        rows = random.choice([0, 1, 2, 5, 13])
        columns = [
            random_column(random, field.type, rows, [batch.column(at) for batch in batches])
            for at, field in enumerate(fields)
        ]
        batches.append(bs.RecordBatch(schema, rows, columns).with_metadata({"rows": str(rows)}))
    return schema, batches


def random_options(random: Random) -> bs.ipc.IpcWriteOptions:
    compression: Any = random.choice([None, None, "lz4", "zstd"])
    return bs.ipc.IpcWriteOptions(
        byte_order=random.choice(["little", "big"]),
        metadata_version="V5" if compression else random.choice(["V4", "V5"]),
        is_legacy_framing=random.random() < 0.3,
        compression=compression,
        dictionary_deltas=random.choice(["auto", "always", "never"]),
        share_dictionaries=random.random() < 0.5,
    )


class WrittenFile:
    """A file or stream of the batches that could be written: a file refuses replaced dictionaries."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.schema, self.batches = random_batches(random)
        self.is_file = random.random() < 0.5
        self.write_options = random_options(random)
        self.new: Any = bs.new_file if self.is_file else bs.new_stream
        self.open: Any = bs.open_file if self.is_file else bs.open_stream
        sink = io.BytesIO()
        writer: Any
        with self.new(sink, self.schema, alignment=random.choice([8, 64]), options=self.write_options) as writer:
            if self.is_file:
                writer.enable_statistics(distinct=True)
            self.written_batches = self.write_batches(writer)
        self.data = sink.getvalue()

    def write_batches(self, writer: Any) -> list[bs.RecordBatch]:
        accepted_batches = []
        for batch in self.batches:
            try:
                writer.write(batch)
            except InvalidArgumentError:
                if not self.is_file:
                    raise
                continue
            accepted_batches.append(batch)
        return accepted_batches

    def check_read(self, reader: Any, expected: list[bs.RecordBatch] | None = None) -> None:
        expected_ = self.written_batches if expected is None else expected
        assert reader.schema.equals(self.schema, check_metadata=True)
        batches = list(reader)
        for batch in batches:
            batch.validate(full=True)
        assert [(batch.num_rows, column_texts(batch)) for batch in batches] == [
            (b.num_rows, column_texts(b)) for b in expected_
        ]


def written_files(block: int) -> list[WrittenFile]:
    written_files = []
    for seed in range(block * SEEDS_PER_BLOCK, block * SEEDS_PER_BLOCK + SEEDS_PER_BLOCK):
        try:
            written_files.append(WrittenFile(seed))
        except UnsupportedTypeError:  # IPC cannot represent extensions of extensions
            continue
    assert len(written_files) > SEEDS_PER_BLOCK // 2
    return written_files


@BLOCKS
def test_written_batches_are_read_unchanged(block: int) -> None:
    for one in written_files(block):
        one.check_read(one.open(one.data))
        one.check_read(one.open(io.BufferedReader(io.BytesIO(one.data))))
        assert [b.custom_metadata for b in one.open(one.data)] == [b.custom_metadata for b in one.written_batches]
        if one.is_file and one.written_batches:
            with bs.open_file(one.data) as reader:
                assert reader.row_counts.tolist() == [batch.num_rows for batch in one.written_batches]
                reader.check_statistics()
        if columns := one.random.sample(range(len(one.schema)), one.random.randrange(len(one.schema) + 1)):
            chosen = [column_texts(batch) for batch in one.open(one.data, columns=columns)]
            assert chosen == [[column_texts(batch)[at] for at in columns] for batch in one.written_batches]


@BLOCKS
def test_files_are_recovered_concatenated_and_appended_to(block: int, tmp_path: Path) -> None:
    for one in written_files(block):
        sink = io.BytesIO()
        assert bs.ipc.recover(one.data, sink).is_intact
        one.check_read(one.open(sink.getvalue()))
        for as_stream in (True, False):
            sink = io.BytesIO()
            try:
                bs.ipc.concat_files([one.data, one.data], sink, as_stream=as_stream)
            except InvalidArgumentError:  # a file has no replacements, and not all dictionaries can be merged
                assert not as_stream
                continue
            joined: Any = bs.open_stream(sink.getvalue()) if as_stream else bs.open_file(sink.getvalue())
            one.check_read(joined, one.written_batches * 2)
        if one.is_file:
            path = tmp_path / "grown.arrow"
            path.write_bytes(one.data)
            with bs.ipc.append_to_file(path) as writer:
                added = one.write_batches(writer)
            with bs.open_file(path) as reader:
                one.check_read(reader, one.written_batches + added)


@BLOCKS
def test_coalesced_batches_and_json_documents_have_the_same_rows(block: int) -> None:
    for one in written_files(block):
        sink = io.BytesIO()
        with bs.ipc.CoalescingWriter(bs.new_stream(sink, one.schema, options=one.write_options), min_rows=8) as writer:
            for batch in one.batches:
                writer.write(batch.with_metadata(None))
        whole = bs.Table.from_batches([b.with_metadata(None) for b in one.batches], one.schema)
        rows = bs.open_stream(sink.getvalue()).read_all()
        assert rows.num_rows == whole.num_rows
        assert column_texts(rows.combine_chunks().to_batches()[0]) == column_texts(
            whole.combine_chunks().to_batches()[0]
        )
        document = json.dumps(integration_json.build_document(one.schema, one.batches)).encode()
        table = integration_json.read(document)
        assert [column_texts(batch) for batch in table.to_batches()] == [column_texts(batch) for batch in one.batches]
        assert list(integration_json.find_differences(one.schema, one.batches, table.schema, table.to_batches())) == []

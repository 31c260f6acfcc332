from __future__ import annotations

import pydoc
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import bowstring as bs
from bowstring.display.objects import report_to_html, repr_options
from bowstring.inspection import build_anatomy_page, inspect
from bowstring.inspection.validation import Validator
from bowstring.ipc import IpcWriteOptions, ReadLimits, append_to_file, concat_files, recover
from bowstring.sharing import ServerOptions
from bowstring.transports.base import TransportOptions


@dataclass(frozen=True, slots=True)
class Options:
    required: int
    size: int = 3
    names: list[str] = field(default_factory=list)
    secret: bytes = field(default=b"", repr=False)

    __repr__ = repr_options


def test_the_repr_of_options_shows_what_differs_from_the_defaults() -> None:
    assert repr(Options(3)) == "Options(required=3)"
    assert repr(Options(3, 4, ["a"], b"secret")) == "Options(required=3, size=4, names=['a'])"
    assert repr(ReadLimits()) == "ReadLimits()"
    assert repr(IpcWriteOptions(compression="zstd")) == "IpcWriteOptions(compression='zstd')"
    assert eval(repr(replace(ReadLimits(), max_nesting=9))) == ReadLimits(max_nesting=9)
    assert repr(ServerOptions()) == "ServerOptions()"
    assert repr(TransportOptions()) == "TransportOptions()"


FUNCTIONS_WITH_OPTIONS = [
    *(bs.open_file, bs.open_stream, bs.read_table, bs.new_file, bs.new_stream, bs.ipc.FileReader, append_to_file),
    *(concat_files, recover, build_anatomy_page),
]


@pytest.mark.parametrize("function", FUNCTIONS_WITH_OPTIONS)
def test_help_shows_short_defaults(function: Any) -> None:
    text = pydoc.render_doc(function, renderer=pydoc._PlainTextDoc())  # type: ignore[attr-defined]
    assert "= ReadLimits()" in text or "= IpcWriteOptions()" in text
    assert not re.search(r"max_metadata_bytes=|byte_order=|max_byte_ranges=", text)


def test_notebooks_show_the_columns_of_a_schema() -> None:
    schema = bs.schema([bs.field("<a>", "int64", metadata={"<k>": "v\x00"}), bs.field("b", "string", nullable=False)])
    text = schema._repr_html_()
    assert "<caption>2 columns</caption>" in text
    assert "<td>&lt;a&gt;</td><td>int64</td><td>yes</td><td>&lt;k&gt;: v\\x00</td>" in text
    assert "<td>b</td><td>string</td><td>no</td><td></td>" in text


def test_notebooks_show_the_columns_of_readers_and_handles(tmp_path: Path) -> None:
    path = tmp_path / "<a>.arrow"
    table = bs.table({"<n>": [1, 2]})
    with bs.new_file(path, table.schema) as writer:
        writer.write(table)
    with bs.open_file(path) as reader:
        text = reader._repr_html_()
        assert f"bowstring.ipc.FileReader {tmp_path}/&lt;a&gt;.arrow: 1 record batch" in text
        assert "<td>&lt;n&gt;</td><td>int64</td>" in text
    with bs.share(table) as handle:
        assert "<td>&lt;n&gt;</td><td>int64</td>" in handle._repr_html_()
    assert "SharedTableHandle" in handle._repr_html_()
    assert "<td>" not in handle._repr_html_(), "a closed handle has no schema"
    with bs.connect(path.as_uri()) as dataset_reader:
        assert "<td>&lt;n&gt;</td><td>int64</td>" in dataset_reader._repr_html_()


def test_notebooks_show_the_position_of_a_reader_of_epochs() -> None:
    reader = bs.datasets.EpochReader(bs.table({"x": range(1000)}), batch_rows=30, seed=7, rank=1, world_size=2)
    next(iter(reader))
    text = reader._repr_html_()
    assert "1,000 rows shuffled with seed 7, in batches of 30: rank 1 of 2, at batch 2 of epoch 0" in text
    assert "<td>x</td><td>int64</td>" in text


def test_notebooks_show_servers_by_their_numbers_and_connections_by_their_schema() -> None:
    with bs.serve({"numbers": bs.table({"<n>": [1]})}) as server:
        assert "<td>num_datasets</td><td>1</td>" in server.stats()._repr_html_()
        with bs.connect(server.uri("numbers")) as reader:
            assert "<td>&lt;n&gt;</td><td>int64</td>" in reader._repr_html_()
    assert "closed" in reader._repr_html_()


def test_notebooks_show_reports(tmp_path: Path) -> None:
    path, damaged = tmp_path / "a.arrow", tmp_path / "damaged.arrow"
    with bs.new_file(path, {"<n>": "int64"}) as writer:
        for _ in range(3):
            writer.write(bs.record_batch({"<n>": [1, None]}))
    content = path.read_bytes()
    damaged.write_bytes(content[: len(content) // 2])
    text = recover(damaged, tmp_path / "recovered.arrow")._repr_html_()
    assert "<caption>RecoveryReport</caption>" in text
    assert "<td>is_intact</td><td>False</td>" in text
    assert "<caption>dropped</caption>" in text
    text = concat_files([path, path], tmp_path / "both.arrow")._repr_html_()
    assert "<td>rows</td><td>12</td>" in text
    text = inspect(path)._repr_html_()
    assert f"<caption>{path} (file)</caption>" in text
    assert "<td>rows</td><td>6 in 3 record batches</td>" in text
    assert "<td>&lt;n&gt;</td><td>int64</td>" in text
    validator = Validator(str(path))
    assert list(validator.faults()) == []
    assert "<td>record_batches</td><td>3</td>" in validator.validation._repr_html_()


def test_sequences_and_missing_values_of_reports_are_named() -> None:
    @dataclass
    class Report:
        missing: None = None
        empty: tuple[int, ...] = ()
        names: tuple[str, ...] = ("a", "<b>")
        parts: tuple[Options, ...] = (Options(1), Options(2))

    text = report_to_html(Report())
    assert "<td>missing</td><td>–</td>" in text
    assert "<td>empty</td><td>none</td>" in text
    assert "<td>a, &lt;b&gt;</td>" in text
    assert "<caption>parts</caption>" in text
    assert "<td>2</td><td>3</td>" in text

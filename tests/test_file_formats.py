"""`read_table`, `write_table`, `dataset`, `publish` and `share` with files of every format."""

from __future__ import annotations

import csv
import gzip
import io
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bowstring as bs
from bowstring.errors import InvalidArgumentError, InvalidDataError, NotFoundError, UnsupportedTypeError, WouldCopyError

TABLE = bs.table({"n": [1, None, 3], "text, with comma": ["a", "b", None], "x": [0.5, 1.5, 2.5]})
NAMES = ["t.arrow", "t.feather", "t.ipc", "t.arrows", "t.parquet", "t.csv", "t.tsv", "t.json", "t.jsonl", "t.ndjson"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("formats")
    for name in NAMES:
        bs.write_table(TABLE, folder / name)
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_the_extension_names_the_format(folder: Path, name: str) -> None:
    content = (folder / name).read_bytes()
    starts = {".arrows": b"\xff\xff\xff\xff", ".parquet": b"PAR1", ".csv": b'"n","text', ".tsv": b'"n"\t"text'}
    json_starts = {".json": b"[\n{", ".jsonl": b'{"n": 1', ".ndjson": b'{"n": 1'}
    assert content.startswith({**starts, **json_starts}.get(Path(name).suffix, b"ARROW1"))
    assert bs.read_table(folder / name) == TABLE
    assert bs.read_table(str(folder / name), columns=["x", 0], filters=[("x", ">", 1)]).to_pydict() == {
        "x": [1.5, 2.5],
        "n": [None, 3],
    }
    with pytest.raises(NotFoundError, match="'y'"):
        bs.read_table(folder / name, columns=["y"])


@pytest.mark.parametrize("name", NAMES)
def test_data_sets_and_shared_memory_are_read_from_files_of_every_format(folder: Path, name: str) -> None:
    data = bs.dataset(folder / name)
    assert (data.num_rows, data.read_all()) == (3, TABLE)
    with bs.publish(folder / name, ttl_s=60) as published, bs.share(folder / name) as handle:
        assert published.read_all() == bs.attach(handle) == TABLE


def test_sharing_a_text_file_without_a_copy_is_an_error(folder: Path) -> None:
    with pytest.raises(WouldCopyError):
        bs.share(folder / "t.csv", copy=False)


@pytest.mark.parametrize("name", ["t", "t.txt", "t.xlsx", "t.csv.gz"])
def test_an_unknown_extension_is_an_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="compressed files" if name.endswith("gz") else r"\.parquet, \.csv"):
        bs.write_table(TABLE, tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_file_objects_get_an_arrow_file() -> None:
    sink = io.BytesIO()
    bs.write_table(TABLE, sink)
    assert bs.open_file(sink.getvalue()).read_all() == TABLE


@pytest.mark.parametrize("options", [{"compression": "zstd"}, {"options": bs.ipc.IpcWriteOptions(byte_order="big")}])
def test_options_that_the_format_lacks_are_errors(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match="do not apply to csv"):
        bs.write_table(TABLE, tmp_path / "t.csv", **options)


def test_parquet_has_row_groups_and_a_codec(tmp_path: Path) -> None:
    bs.write_table(TABLE, tmp_path / "t.parquet", compression="zstd", max_chunksize=2)
    metadata = pq.read_metadata(tmp_path / "t.parquet")
    assert [metadata.num_row_groups, metadata.row_group(0).column(0).compression] == [2, "ZSTD"]


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_rows_without_columns_are_not_lost(tmp_path: Path, name: str) -> None:
    rows = bs.table({"n": [1, 2, 3]}).select([])
    with pytest.raises(
        UnsupportedTypeError, match="can't have rows without columns: write JSON lines or Arrow instead"
    ):
        bs.write_table(rows, tmp_path / name)
    assert not (tmp_path / name).exists()
    bs.write_table(rows, tmp_path / "t.jsonl")
    assert bs.read_table(tmp_path / "t.jsonl").num_rows == 3


def test_a_type_that_a_format_lacks_is_an_error_with_the_column(tmp_path: Path) -> None:
    for name in ("t.csv", "t.parquet"):
        kind = bs.list_(bs.month_interval())
        with pytest.raises(UnsupportedTypeError, match="column 'c'"):
            bs.write_table(bs.table({"c": bs.array([None], kind)}), tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["x.csv", "x.parquet"])
def test_malformed_metadata_of_an_extension_type_is_an_error(tmp_path: Path, name: str) -> None:
    metadata = {"ARROW:extension:name": "arrow.opaque", "ARROW:extension:metadata": "{}"}
    table = bs.table({"c": ["a"]}, schema=bs.schema([bs.field("c", bs.string(), metadata=metadata)]))
    with pytest.raises(UnsupportedTypeError, match=r"pyarrow can't write this as \w+: Key 'type_name' does not exist$"):
        bs.write_table(table, tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_types_are_inferred_from_all_rows(tmp_path: Path) -> None:
    rows = 1_000_000  # more than a block of pyarrow
    (tmp_path / "t.csv").write_text("a,zip\n" + "1,01067\n" * rows + "x,2\n")
    table = bs.read_table(tmp_path / "t.csv")
    assert table["a"].type == table["zip"].type == bs.string()
    assert table.slice(rows - 1).to_pylist() == [{"a": "1", "zip": "01067"}, {"a": "x", "zip": "2"}]
    (tmp_path / "t.jsonl").write_text('{"a": 1}\n' * rows + '{"a": 1.5, "late": true}\n')
    assert bs.read_table(tmp_path / "t.jsonl").slice(rows - 1).to_pylist() == [
        {"a": 1.0, "late": None},
        {"a": 1.5, "late": True},
    ]


def test_the_types_of_csv_do_not_depend_on_where_its_head_ends(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    for width in range(1, 10):  # one byte of a line after the other is the last of the head
        path.write_text("x" * width + "\n" + "08:30:00\n" * 9000)
        assert bs.read_table(path).schema.types == ["time32[s]"]
    path.write_text("zip\n" + "1234567\n" * 8190 + "01067\n" + "1234567\n")  # in the last whole line of the head
    assert bs.read_table(path).schema.types == ["string"]


def test_a_header_of_csv_may_be_longer_than_its_head(tmp_path: Path) -> None:
    names = [f"column_{index}" for index in range(10_000)]
    (tmp_path / "t.csv").write_text(",".join(names) + "\n" + ",".join(["007"] * 10_000) + "\n")
    assert bs.read_table(tmp_path / "t.csv", columns=["column_9999"]).to_pydict() == {"column_9999": ["007"]}


def test_values_of_csv_may_be_longer_than_pythons_own_reader_permits(tmp_path: Path) -> None:
    text = "x" * (csv.field_size_limit() + 1)
    (tmp_path / "t.csv").write_text(f'n,text\n1,"{text}"\n2,short\n')
    assert bs.read_table(tmp_path / "t.csv").to_pydict() == {"n": [1, 2], "text": [text, "short"]}


@pytest.mark.parametrize(
    ("name", "content"),
    [("t.csv", b"a,b\n1\n"), ("t.jsonl", b'{"a": 1}\n{"a": "x"}\n'), ("t.parquet", b"PAR1 and no more")],
)
def test_a_malformed_file_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidDataError, match=f"{tmp_path}/{name}: .*(Row #2: Expected 2 columns|line 2|Parquet)"):
        bs.read_table(tmp_path / name)


def test_compressed_text_and_open_files_are_read(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress((folder / "t.csv").read_bytes()))
    assert bs.read_table(tmp_path / "t.csv.gz") == TABLE
    for name in ("t.parquet", "t.jsonl", "t.csv"):
        with open(folder / name, "rb") as file:
            assert bs.read_table(file) == TABLE


def test_parquet_of_pyarrow_with_all_its_columns_is_read(tmp_path: Path) -> None:
    table = pa.table({"a.b": [1], "a": [{"b": 2}], "z": [3]})
    pq.write_table(table, tmp_path / "t.parquet")
    assert bs.read_table(tmp_path / "t.parquet", columns=["z", "a"]).to_pydict() == {"z": [3], "a": [{"b": 2}]}


def test_without_pyarrow_the_error_names_the_extra(folder: Path) -> None:
    program = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "import bowstring as bs\n"
        "print(bs.read_table(sys.argv[1] + '/t.arrow').num_rows)\n"
        "for call in (lambda: bs.read_table(sys.argv[1] + '/t.csv'), lambda: bs.write_table({}, 'x.parquet')):\n"
        "    try:\n        call()\n"
        "    except bs.errors.MissingExtraError as error:\n        print(error)\n"
    ).replace("bs.write_table({}", "bs.write_table(bs.table({'a': [1]})")
    process = subprocess.run(
        [sys.executable, "-c", program, str(folder)], capture_output=True, text=True, timeout=60, check=True
    )
    assert process.stdout.splitlines()[0] == "3"
    assert process.stdout.count("bowstring[convert]") == 2


def test_read_table_passes_the_options_of_csv_to_pyarrow(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes("Stadt;n;Tag\nKöln;NA;24.12.2026\n".encode("latin-1"))
    table = bs.read_table(
        path,
        delimiter=";",
        encoding="latin-1",
        null_values=["NA"],
        timestamp_parsers=["%d.%m.%Y"],
        column_names=["city", "n", "day"],
        skip_rows=1,
    )
    assert table.to_pydict() == {"city": ["Köln"], "n": [None], "day": [datetime(2026, 12, 24)]}
    with pytest.raises(InvalidArgumentError, match="CSV has no option 'delimeter'; did you mean 'delimiter'"):
        bs.read_table(path, delimeter=";")
    invalid_options: list[dict[str, Any]] = [
        {"delimiter": ";;"},
        {"delimiter": "\n"},
        {"skip_rows": -1},
        {"encoding": "latin-0"},
        {"encoding": "base64"},
        {"encoding": "idna"},
    ]
    for options in invalid_options:
        with pytest.raises(InvalidArgumentError, match="options of CSV: "):
            bs.read_table(path, **options)
    bs.write_table(table, tmp_path / "x.parquet")
    with pytest.raises(InvalidArgumentError, match="delimiter is for CSV, not for parquet"):
        bs.read_table(tmp_path / "x.parquet", delimiter=";")

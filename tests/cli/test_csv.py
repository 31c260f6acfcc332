"""CSV in `bowstring convert`."""

from __future__ import annotations

import bz2
import gzip
import re
import subprocess
import sys
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import bowstring as bs
from bowstring.cli.main import main
from bowstring.errors import InvalidDataError
from tests.cli.command_line import run_with_pipe, write
from tests.cli.test_convert import convert
from tests.ipc.remote_stores import serve_files


def read(path: Path) -> pa.Table:
    return pa.ipc.open_file(path).read_all()


def convert_text(folder: Path, text: str | bytes, *options: object) -> pa.Table:
    (folder / "x.csv").write_bytes(text.encode() if isinstance(text, str) else text)
    convert(folder / "x.csv", folder / "x.arrow", *options)
    return read(folder / "x.arrow")


def test_csv_becomes_typed_columns(tmp_path: Path) -> None:
    table = convert_text(
        tmp_path,
        "n,f,b,d,t,z,s\n"
        "1,1,true,2024-05-06,2024-05-06 07:08:09,2024-05-06T07:08:09Z,x\n"
        ",2.5,,,,,\n"
        '-3,1e3,false,2024-02-29,2024-05-06T07:08:10,2024-05-06T09:08:09+02:00,"a, ""b"""\n',
    )
    assert list(map(str, table.schema.types)) == [
        "int64",
        "double",
        "bool",
        "date32[day]",
        "timestamp[s]",
        "timestamp[s, tz=UTC]",
        "string",
    ]
    assert table.column("n").to_pylist() == [1, None, -3]
    assert table.column("s").to_pylist() == ["x", None, 'a, "b"']
    assert len(set(table.column("z").to_pylist())) == 2


@pytest.mark.parametrize("options", [[], ["--no-header"], ["--column-names", "a,b,c"]], ids=" ".join)
def test_numbers_that_would_lose_digits_remain_text(tmp_path: Path, options: list[str]) -> None:
    text = "" if options else "zip,id,n\n"
    text += f"007,9223372036854775808,0\n12345,{'9' * 5000},-1\n"
    table = convert_text(tmp_path, text, *options)
    assert list(map(str, table.schema.types)) == ["string", "string", "int64"]
    assert table.column(0).to_pylist() == ["007", "12345"]
    assert table.column(1).to_pylist() == ["9223372036854775808", "9" * 5000]
    names = table.column_names
    types = ["--column-type", f"{names[0]}=int32", "--column-type", f"{names[1]}=double"]
    assert list(map(str, convert_text(tmp_path, text, *options, *types).schema.types)) == ["int32", "double", "int64"]


def test_the_largest_integers_remain_numbers(tmp_path: Path) -> None:
    table = convert_text(tmp_path, "a,b\n9223372036854775807,-9223372036854775808\n0,-0\n")
    assert list(map(str, table.schema.types)) == ["int64", "int64"]


def test_text_nulls_and_empty_strings_survive_a_round_trip(tmp_path: Path) -> None:
    table = pa.table({"s": ["", None, "a,b", 'say "x"', "two\nlines", "ü", "NA", "null"], "n": [1, None] * 4})
    convert(write(tmp_path / "in.arrow", table), tmp_path / "x.csv")
    convert(tmp_path / "x.csv", tmp_path / "out.arrow")
    assert read(tmp_path / "out.arrow").equals(table)


def test_an_empty_line_is_a_null_of_a_single_column_and_otherwise_ignored(tmp_path: Path) -> None:
    assert convert_text(tmp_path, "a,b\n1,2\n\n3,4\n\n").to_pydict() == {"a": [1, 3], "b": [2, 4]}
    assert convert_text(tmp_path, "a\n1\n\n3\n").to_pydict() == {"a": [1, None, 3]}
    assert convert_text(tmp_path, '"a,b"\n1\n\n3\n').to_pydict() == {"a,b": [1, None, 3]}


def test_the_delimiter_is_a_comma_or_the_given_one(tmp_path: Path) -> None:
    text = '"a,b";n\n"x;y";1,5\n'
    assert convert_text(tmp_path, text, "--delimiter", ";").to_pydict() == {"a,b": ["x;y"], "n": ["1,5"]}
    assert convert_text(tmp_path, "city;n\nRiga;1\n", "--delimiter", ",").to_pydict() == {"city;n": ["Riga;1"]}
    assert convert_text(tmp_path, "city|x,n\nRiga,1\n").to_pydict() == {"city|x": ["Riga"], "n": [1]}
    assert convert_text(tmp_path, '"city;n"\n1\n').to_pydict() == {"city;n": [1]}
    assert convert_text(tmp_path, "city;n\n", "--no-header").to_pydict() == {"f0": ["city;n"]}


@pytest.mark.parametrize(
    ("name", "header", "expected", "found"),
    [
        ("x.csv", '"city";"n"', ",", ";"),
        ("x.csv", "city;n", ",", ";"),
        ("x.csv", "city\tn", ",", "\t"),
        ("x.csv", "c|n", ",", "|"),
        ("x.tsv", "c,n", "\t", ","),
    ],
)
def test_another_delimiter_in_the_header_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, header: str, expected: str, found: str
) -> None:
    (tmp_path / name).write_text(f"{header}\n1{found}2\n")
    message = f"{name}: expected {expected!r} between the names of columns, found {found!r}"
    for command in ("cat", "info", "count"):
        assert main([command, str(tmp_path / name)]) == 1
        assert message in capsys.readouterr().err
    with pytest.raises(InvalidDataError, match=re.escape(message)):
        bs.read_table(tmp_path / name)
    assert bs.read_table(tmp_path / name, delimiter=found).num_columns == 2


OPTIONS: dict[str, tuple[str | bytes, dict[str, list[object]]]] = {
    "--delimiter ;": ("a;b\n1;2,5\n", {"a": [1], "b": ["2,5"]}),
    "--delimiter \\t": ("a\tb\n1\t2\n", {"a": [1], "b": [2]}),
    "--quote '": ("a,b\n'1,2',3\n", {"a": ["1,2"], "b": [3]}),
    "--quote none": ('a,b\n"1,2"\n', {"a": ['"1'], "b": ['2"']}),
    "--no-header": ("1,x\n2,y\n", {"f0": [1, 2], "f1": ["x", "y"]}),
    "--column-names n,s": ("1,x\n2,y\n", {"n": [1, 2], "s": ["x", "y"]}),
    "--skip-rows 2": ("# made by\n# hand, today\na,b\n1,2\n", {"a": [1], "b": [2]}),
    "--null-value NA --null-value -": ("a,b\nNA,-\n1,x\n", {"a": [None, 1], "b": [None, "x"]}),
    "--column-type zip=string": ("zip,n\n007,1\n", {"zip": ["007"], "n": [1]}),
    "--column-type p=decimal128(5,2)": ("p\n1.5\n", {"p": [Decimal("1.50")]}),
    "--column-type t=timestamp[ms,tz=UTC] -c t": (
        "t,u\n2020-01-02T00:00:00Z,1\n",
        {"t": [datetime.fromisoformat("2020-01-02T00:00:00+00:00")]},
    ),
    "--timestamp-format %d/%m/%Y": (
        "t,u\n02/01/2020,2020-01-02 00:00:00\n",
        {"t": [datetime(2020, 1, 2)], "u": [datetime(2020, 1, 2)]},
    ),
    "-c b -c a": ("a,b,c\n1,2,3\n", {"b": [2], "a": [1]}),
    "--encoding latin-1": ("a\nü\n".encode("latin-1"), {"a": ["ü"]}),
    "--encoding utf-16": ("a\nü\n".encode("utf-16"), {"a": ["ü"]}),
}


@pytest.mark.parametrize("options", OPTIONS)
def test_options_describe_the_csv_dialect(tmp_path: Path, options: str) -> None:
    text, expected = OPTIONS[options]
    assert convert_text(tmp_path, text, *options.split()).to_pydict() == expected


def test_a_file_with_the_suffix_tsv_has_tabs(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("a\tb\n1\tx,y\n")
    convert(tmp_path / "x.tsv", tmp_path / "y.csv")
    assert (tmp_path / "y.csv").read_text() == '"a","b"\n1,"x,y"\n'
    convert(tmp_path / "y.csv", tmp_path / "z.tsv")
    assert (tmp_path / "z.tsv").read_text() == '"a"\t"b"\n1\t"x,y"\n'


@pytest.mark.parametrize("name", ["x.csv.gz", "x.csv.bz2", "x.csv"])
def test_compressed_csv_is_detected_from_its_first_bytes(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    compress = bz2.compress if name.endswith("bz2") else gzip.compress
    (tmp_path / name).write_bytes(compress(b"a,b\n" + b"1,2\n" * 50_000))
    convert(tmp_path / name, tmp_path / "x.arrow")
    assert read(tmp_path / "x.arrow").num_rows == 50_000
    (tmp_path / name).write_bytes(compress(b"a,b\n" + b"1,2\n" * 50_000)[:-30])
    assert main(["convert", str(tmp_path / name), str(tmp_path / "y.arrow")]) == 1
    assert f"{name}: Truncated compressed stream" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["y.csv.gz", "y.parquet.zst", "y.arrow.lz4"])
def test_a_csv_target_with_a_compression_suffix_is_rejected(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.csv").write_text("a\n1\n")
    assert main(["convert", str(tmp_path / "x.csv"), str(tmp_path / name)]) == 2
    assert f"/{name}': compressed files can be read, but not written" in capsys.readouterr().err
    assert not (tmp_path / name).exists()


INVALID_CSV: dict[str, tuple[str | bytes, list[str], str]] = {
    "a row with too few values": ("a,b\n1,2\n3\n", [], "x.csv: CSV parse error: Row #3: Expected 2 columns, got 1: 3"),
    "bytes that are not UTF-8": (b"a,b\n1,\xff\n", [], "x.csv: column 'b' is not valid UTF-8"),
    "nothing": ("", [], "x.csv: Empty CSV file"),
    "an unknown column": ("price,n\n1,2\n", ["-c", "prise"], "x.csv: there is no column 'prise'"),
    "a type of an unknown column": ("a\n1\n", ["--column-type", "b=int8"], "x.csv: there is no column 'b'"),
    "a value of another type": (
        "a,b\n1,2\n3,x\n",
        ["--column-type", "b=int8"],
        "x.csv: In CSV column #1: Row #3: CSV conversion error to int8: invalid value 'x'",
    ),
    "a value of another type in a later block": (
        "a,b\n" + "1,2\n" * 1000 + "3,x\n",
        ["--block-size", "1024"],
        "x.csv: after 767 rows: In CSV column #1: Row #1002: CSV conversion error to int64: invalid value 'x'",
    ),
    "a row that is larger than a block": (
        "a\n" + "x" * 5000 + "\n",
        ["--block-size", "1024"],
        "x.csv: straddling object straddles two block boundaries (try to increase block size?)",
    ),
}


@pytest.mark.parametrize("what", INVALID_CSV)
def test_invalid_csv_is_one_error_line_with_its_location(
    tmp_path: Path, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text, options, message = INVALID_CSV[what]
    (tmp_path / "x.csv").write_bytes(text.encode() if isinstance(text, str) else text)
    assert main(["convert", str(tmp_path / "x.csv"), str(tmp_path / "target.arrow"), *options]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"bowstring: {tmp_path}/{message}")
    assert error.count("\n") == 1
    assert "no column" in message or error.endswith("such as delimiter)\n")
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv"]


@pytest.mark.parametrize(
    "text", ['[{"a": 1}, {"a": 2}]\n', '[\n  {"a": 1},\n  {"a": 2}\n]\n', "[]\n", '{"a": 1}\n{"a": 2}\n']
)
def test_json_in_a_csv_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    (tmp_path / "x.csv").write_text(text)
    assert main(["convert", str(tmp_path / "x.csv"), str(tmp_path / "x.arrow")]) == 1
    assert "x.csv: expected CSV with a header of column names, found JSON (use --from" in capsys.readouterr().err
    assert not (tmp_path / "x.arrow").exists()
    assert main(["convert", str(tmp_path / "x.csv"), str(tmp_path / "x.arrow"), "--from", "json"]) == 0
    assert read(tmp_path / "x.arrow").num_rows == text.count("{")


def test_csv_values_that_look_like_json_are_text(tmp_path: Path) -> None:
    table = convert_text(tmp_path, '{"a": 1}\n[]\n', "--no-header", "--quote", "none", "--delimiter", ";")
    assert table.column("f0").to_pylist() == ['{"a": 1}', "[]"]
    assert convert_text(tmp_path, "[a],{b}\n1,2\n").column_names == ["[a]", "{b}"]


def test_an_explicit_type_applies_to_all_blocks(tmp_path: Path) -> None:
    table = convert_text(tmp_path, "a\n" + "1\n" * 1000 + "x\n", "--block-size", 1024, "--column-type", "a=string")
    assert table["a"].to_pylist() == ["1"] * 1000 + ["x"]


def test_values_with_a_standard_text_form_are_written_as_text(tmp_path: Path) -> None:
    columns = {
        "bytes": bs.array([b"\x00\xff", None]),
        "fixed": bs.array([b"ab", None], bs.binary(2)),
        "view": bs.array(["long enough for a view", None], bs.string_view()),
        "duration": bs.array([timedelta(seconds=-1.5), None]),
        "decimal": bs.array([Decimal("1.50"), None]),
        "date": bs.array([date(2020, 2, 29), None]),
        "moment": bs.array([datetime(2020, 2, 29, 1, 2, 3), None], bs.timestamp("ms")),
        "zoned": bs.array(
            [datetime.fromisoformat("2020-02-29T01:02:03+00:00"), None], bs.timestamp("s", "Europe/Paris")
        ),
        "words": bs.array(["a", None], bs.dictionary(bs.int8(), bs.string())),
        "runs": bs.array([1.5, None], bs.run_end_encoded(bs.int16(), bs.float64())),
        "flag": bs.array([True, None]),
        "none": bs.array([None, None]),
    }
    batch = bs.RecordBatch.from_arrays(list(columns.values()), list(columns))
    with bs.new_file(tmp_path / "x.arrow", batch.schema) as writer:
        writer.write(batch)
    convert(tmp_path / "x.arrow", tmp_path / "x.csv")
    names, values, nulls = (tmp_path / "x.csv").read_text().splitlines()
    assert names == ",".join(f'"{name}"' for name in columns)
    assert values == (
        '"00ff","6162","long enough for a view","-PT1.5S",1.50,2020-02-29,2020-02-29 01:02:03.000,'
        '2020-02-29 02:02:03+0100,"a",1.5,true,'
    )
    assert nulls == "," * (len(columns) - 1)


@pytest.mark.parametrize(
    "kind",
    [bs.list_(bs.int8()), bs.struct({"a": bs.int8()}), bs.month_interval(), bs.map_(bs.int8(), bs.int8())],
    ids=str,
)
def test_nested_columns_are_rejected_by_name(
    tmp_path: Path, kind: bs.DataType, capsys: pytest.CaptureFixture[str]
) -> None:
    batch = bs.RecordBatch.from_arrays([bs.array([None], kind)], ["c"])
    with bs.new_file(tmp_path / "x.arrow", batch.schema) as writer:
        writer.write(batch)
    assert main(["convert", str(tmp_path / "x.arrow"), str(tmp_path / "x.csv")]) == 1
    message = f"x.arrow: column 'c': {kind} can't be written as CSV: write JSON lines or Arrow instead\n"
    assert capsys.readouterr().err.replace("bowstring: column", "x.arrow: column").endswith(message)
    assert not (tmp_path / "x.csv").exists()


def test_csv_is_written_without_a_header_and_with_another_delimiter(tmp_path: Path) -> None:
    source = write(tmp_path / "x.arrow", pa.table({"n": [1, 2], "s": ["a;b", None]}))
    convert(source, tmp_path / "x.csv", "--no-header", "--delimiter", ";")
    assert (tmp_path / "x.csv").read_text() == '1;"a;b"\n2;\n'


@pytest.mark.parametrize("supports_ranges", [True, False], ids=["with ranges", "without"])
def test_csv_is_read_from_a_url(tmp_path: Path, supports_ranges: bool, capsys: pytest.CaptureFixture[str]) -> None:
    with serve_files(**{"x.csv": b"a,b\n1,x\n", "x.csv.gz": gzip.compress(b"a,b\n1,x\n")}) as site:
        site.supports_ranges = supports_ranges
        convert(f"{site.url}/x.csv", tmp_path / "x.arrow")
        convert(f"{site.url}/x.csv.gz", tmp_path / "y.arrow")
        assert main(["convert", f"{site.url}/gone.csv", str(tmp_path / "z.arrow")]) == 1
    assert read(tmp_path / "x.arrow").to_pydict() == {"a": [1], "b": ["x"]}
    assert read(tmp_path / "y.arrow").to_pydict() == {"a": [1], "b": ["x"]}
    assert "gone.csv: there is no such file" in capsys.readouterr().err


def test_csv_is_read_from_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a\n1\n")
    process = run_with_pipe(tmp_path / "x.csv", "convert", "--from", "csv", "--to", "stream", "-", "-")
    assert (process.returncode, process.stderr) == (0, b"")
    assert pa.ipc.open_stream(process.stdout).read_all().to_pydict() == {"a": [1]}


def test_memory_is_bounded_by_blocks(tmp_path: Path) -> None:
    line, count = b"1,some text of a row that is long enough,2.5\n", 3_000_000
    with open(tmp_path / "x.csv", "wb") as file:
        file.write(b"a,b,c\n")
        file.writelines(line * 10_000 for _ in range(count // 10_000))
    code = (
        "import sys; from bowstring.cli.main import main; from tests.peak_memory import peak_bytes; "
        "status = main(sys.argv[1:]); print(status, peak_bytes())"
    )
    arguments = ["convert", str(tmp_path / "x.csv"), "/dev/null", "--to", "stream", "--block-size", str(1 << 20)]
    process = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        timeout=120,
        check=True,
    )
    status, size_bytes = map(int, process.stdout.split())
    assert status == 0
    assert (tmp_path / "x.csv").stat().st_size > 120 << 20
    assert size_bytes < 220 << 20

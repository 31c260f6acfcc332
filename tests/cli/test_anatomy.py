"""`bowstring anatomy`: the page is written where it is wanted, and never over the file that it is about."""

from __future__ import annotations

from pathlib import Path

import fsspec
import pyarrow as pa
import pytest

from bowstring.cli.main import main
from tests.cli.command_line import run_command, run_with_pipe, write

TABLE = pa.table({"n": range(100), "s": ["x"] * 100})


def test_the_page_is_written_to_the_current_folder_under_the_name_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "flights.arrow", TABLE)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    assert main(["anatomy", str(path)]) == 0
    page = (work / "flights.anatomy.html").read_text("utf-8")
    assert page.startswith("<!doctype html>")
    assert "Anatomy of flights.arrow" in page
    assert str(tmp_path) not in page
    assert capsys.readouterr().out.startswith("flights.anatomy.html: ")


def test_a_stream_on_a_pipe_becomes_a_page_on_a_pipe(tmp_path: Path) -> None:
    process = run_with_pipe(write(tmp_path / "x.arrows", TABLE), "anatomy", "-", "-o", "-")
    assert (process.returncode, process.stderr) == (0, b"")
    assert process.stdout.startswith(b"<!doctype html>")
    assert b"Anatomy of standard input" in process.stdout


def test_a_damaged_file_has_a_page_and_status_0(tmp_path: Path) -> None:
    path = write(tmp_path / "x.arrow", TABLE)
    path.write_bytes(path.read_bytes()[:-20])
    page = tmp_path / "page.html"
    process = run_command("anatomy", path, "-o", page)
    assert (process.returncode, process.stderr) == (0, b"")
    assert b"the file is cut off" in page.read_bytes()


@pytest.mark.parametrize(("quick", "ending"), [([], "; 1 error in x.arrow\n"), (["--quick"], "KiB\n")])
def test_errors_in_values_are_counted_when_the_page_is_written(
    tmp_path: Path, quick: list[str], ending: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "x.arrow", pa.table({"s": ["alpha", "bravo"]}))
    path.write_bytes(path.read_bytes().replace(b"bravo", b"br\xffvo"))
    assert main(["anatomy", str(path), "-o", str(tmp_path / "page.html"), *quick]) == 0
    assert capsys.readouterr().out.endswith(ending)


def test_the_page_does_not_overwrite_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "x.arrow", TABLE)
    before = path.read_bytes()
    assert main(["anatomy", str(path), "-o", str(path)]) == 1
    assert "is both input and output" in capsys.readouterr().err
    assert path.read_bytes() == before


def test_a_page_replaces_an_older_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    page.write_text("older")
    store = fsspec.filesystem("memory")
    store.pipe("/anatomy/x.arrow", write(tmp_path / "x.arrow", TABLE).read_bytes())
    assert main(["anatomy", str(tmp_path / "missing.arrow"), "-o", str(page)]) == 1
    assert "missing.arrow: there is no such file" in capsys.readouterr().err
    assert page.read_text() == "older"
    assert main(["anatomy", "memory://anatomy/x.arrow", "-o", str(page)]) == 0
    assert "x.arrow" in page.read_text()


def test_data_that_is_not_arrow_is_one_error_line_and_no_page(tmp_path: Path) -> None:
    path, page = tmp_path / "x.csv", tmp_path / "page.html"
    path.write_text("a,b\n1,2\n")
    process = run_command("anatomy", path, "-o", page)
    assert process.returncode == 1
    assert process.stderr.count(b"\n") == 1
    assert not page.exists()


def test_each_file_of_a_folder_has_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a/x.arrow", "a/y.arrow", "b/x.arrow"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write(tmp_path / name, TABLE)
    assert main(["anatomy", "a"]) == 0
    assert sorted(path.name for path in tmp_path.glob("*.html")) == ["x.anatomy.html", "y.anatomy.html"]
    assert main(["anatomy", "a", "-o", "page.html"]) == 2
    assert main(["anatomy", "*/x.arrow"]) == 2
    assert "several files of one name" in capsys.readouterr().err

"""The options of ``format("arrow")``."""

from __future__ import annotations

import math
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from bowstring.errors import ConnectionLostError, InvalidArgumentError
from bowstring.io.store_path import StorePath
from bowstring.spark.options import ReadOptions, WriteOptions, check_options, encode_options, parse_path

READING = {
    "splitbyte": "did you mean 'splitBytes'",
    "mergeschemas": "did you mean 'mergeSchema'",
    "compression": "compressed files are recognized without it",
    "pathglobfilters": "did you mean 'pathGlobFilter'",
    "fsync": "the options for reading are 'columns', 'filters', 'splitBytes', 'truncate', 'mergeSchema'",
    "header": "the options for reading are 'columns', 'filters', 'splitBytes', 'truncate', 'mergeSchema'",
}
WRITING = {
    "fsyn": "did you mean 'fsync'",
    "mode": r"set \.mode\(\"append\"\) or",
    "compresion": "did you mean 'compression'",
    "mergeschema": "an append needs the columns that the folder has",
    "splitbytes": "the options for writing are 'fsync'",
}


@pytest.mark.parametrize(("name", "advice"), READING.items())
def test_an_option_that_reading_does_not_support_is_named(name: str, advice: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"does not support the option '{name}' for reading: {advice}"):
        check_options({"path": "/data", name: "true"}, "reading")


@pytest.mark.parametrize(("name", "advice"), WRITING.items())
def test_an_option_that_writing_does_not_support_is_named(name: str, advice: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"does not support the option '{name}' for writing: {advice}"):
        check_options({"path": "/data", name: "true"}, "writing")


def test_supported_options_and_those_that_spark_adds_are_accepted() -> None:
    check_options({"paths": "[]", "splitbytes": "1", "truncate": "true", "mergeschema": "true"}, "reading")
    check_options({"path": "/data", "fsync": "true"}, "writing")


def test_an_invalid_option_value_is_named() -> None:
    with pytest.raises(InvalidArgumentError, match="option truncate: expected true or false, found 'yes'"):
        ReadOptions.parse({"truncate": "yes"})
    for value in ("0", "-1", "64m", ""):
        with pytest.raises(
            InvalidArgumentError, match=f"option maxFilesPerTrigger: expected a positive integer, found '{value}'"
        ):
            ReadOptions.parse({"maxfilespertrigger": value})
    for value in ("0", "0k", "-1", "64x", ""):
        with pytest.raises(InvalidArgumentError, match="option splitBytes: expected "):
            ReadOptions.parse({"splitbytes": value})
    assert ReadOptions.parse({"splitbytes": "64m"}).split_bytes == 64 << 20


def test_a_field_has_the_value_of_its_option_or_of_the_session() -> None:
    options = {
        "columns": "a, b",
        "mode": "permissive",
        "session.timezone": "UTC",
        "modifiedafter": "1970-01-01 00:00:01",
    }
    parsed = ReadOptions.parse(options)
    assert (parsed.columns, parsed.mode, parsed.modified_after) == (("a", "b"), "PERMISSIVE", 1_000_000)
    assert ReadOptions.parse({**options, "timezone": "+01:00"}).modified_after == -3_599_000_000
    assert not ReadOptions.parse({"session.partitioncolumntypeinference": "false"}).partition_column_type_inference
    written = WriteOptions.parse({"compression": "ZSTD", "compressionlevel": "-3", "partitionby": "['a,b']"})
    assert written == WriteOptions(compression="zstd", compression_level=-3, partition_by=["a,b"])


def test_filters_of_python_values_are_literals() -> None:
    filters = [("span", "<", timedelta(days=-1)), ("n", "in", [np.float32(2.5), np.int64(3), None, math.inf])]
    assert encode_options({"filters": filters}) == {
        "filters": "[('span', '<', -86400000000), ('n', 'in', [2.5, '3', None, 'inf'])]"
    }


def test_a_path_is_local_or_the_url_of_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_path("a b") == tmp_path / "a b"
    for uri in ("file:///data/a%20b", "file://localhost/data/a%20b", "file:/data/a%20b"):
        assert parse_path(uri) == Path("/data/a b")
    for uri in ("file://host/data", "file:///data?x=1", "file:///data#x"):
        with pytest.raises((ConnectionLostError, InvalidArgumentError), match=r"of another host|expected file:///PATH"):
            parse_path(uri)
    for path in ("/a\0b", "file:///a%00b"):
        with pytest.raises(InvalidArgumentError, match=r"b': a path can't have the character U\+0000"):
            parse_path(path)
    assert parse_path("s3://bucket/key", {"anon": True}) == StorePath("s3://bucket/key", {"anon": True})
    for path, message in (("dbfs:/key", "not dbfs:"), ("zip://a::s3://bucket/key", "chained URLs")):
        with pytest.raises(InvalidArgumentError, match=message):
            parse_path(path)
    with pytest.raises(InvalidArgumentError, match="missing path"):
        parse_path("")
    with pytest.raises(InvalidArgumentError, match="not a URI"):
        parse_path("file://[host/data")

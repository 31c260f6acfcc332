"""The rows of the demo: lines of installed Python files, or a Parquet, CSV, JSON or Arrow path, read by Spark."""

from __future__ import annotations

import gzip
import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from bowstring.errors import InvalidArgumentError, MissingFileError, NotFoundError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BYTES_PER_LINE = 36
"""The average size of a line of Python, to estimate how many files to read."""
_PARTITION_BYTES = 4 << 20
_SKIPPED_FOLDERS = frozenset(("__pycache__", "site-packages", "dist-packages", "test", "tests"))
_SPARK_FORMATS = {
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), "json"),
    **dict.fromkeys((".arrow", ".arrows", ".feather", ".ipc"), "arrow"),
    ".parquet": "parquet",
    ".csv": "csv",
}
_LINES_QUERY = r"""
SELECT regexp_replace(path, '^file:/+', '/') AS path, position + 1 AS line, text,
       CASE WHEN text RLIKE '^\\s*$' THEN 'blank'
            WHEN text RLIKE '^\\s*#' THEN 'comment'
            WHEN text RLIKE '^\\s*(from\\s+\\S+\\s+)?import\\s' THEN 'import'
            WHEN text RLIKE '^\\s*(async\\s+)?def\\s' THEN 'function'
            WHEN text RLIKE '^\\s*class\\s' THEN 'class'
            ELSE 'code' END AS kind
FROM (SELECT path, posexplode(split(value, '\n')) AS (position, text) FROM sources WHERE is_valid_utf8(value))
"""
_JOINED_LINES_QUERY = r"""
SELECT lines.path, line, kind, text, CAST(length(text) - length(ltrim(text)) AS SMALLINT) AS indent,
       nullif(regexp_extract(text, '^\\s*(?:async\\s+)?(?:def|class)\\s+([A-Za-z_][A-Za-z_0-9]*)', 1), '') AS name,
       length(text) / 80.0D AS width, named_struct('lines', files.lines, 'comments', files.comments) AS file
FROM lines JOIN (SELECT path, count(*) AS lines,
                        CAST(avg(CASE WHEN kind = 'comment' THEN 1 ELSE 0 END) AS DECIMAL(5, 4)) AS comments
                 FROM lines GROUP BY path) AS files ON lines.path = files.path
"""


def find_python_files(lines: int) -> list[str]:
    """Return the paths of Python files of installed packages and the standard library with about `lines` lines, in a
    fixed order. Raises `NotFoundError` if there are none.
    """
    paths: list[str] = []
    remaining_bytes = lines * _BYTES_PER_LINE
    for path in _walk_python_files():
        if remaining_bytes <= 0:
            break
        remaining_bytes -= os.path.getsize(path)
        paths.append(path)
    if not paths:
        raise NotFoundError("found no installed Python source files: give a path with --input")
    return paths


def _walk_python_files() -> Iterator[str]:
    keys = ("purelib", "platlib", "stdlib", "platstdlib")
    paths: set[str] = set()
    for root in dict.fromkeys(Path(sysconfig.get_path(key)).resolve() for key in keys):
        for folder, names, files in os.walk(root):
            names[:] = sorted(set(names) - _SKIPPED_FOLDERS)
            for name in sorted(files):
                path = os.path.join(folder, name)
                # Spark skips names with a leading underscore, and quotes the paths that it returns.
                is_source = name.endswith(".py") and not name.startswith("_") and quote(path) == path
                if is_source and not os.path.islink(path) and path not in paths:
                    paths.add(path)
                    yield path


def create_line_frame(spark: SparkSession, paths: list[str]) -> DataFrame:
    """Return a row for each line, with its kind, the name it defines, and statistics of its file."""
    spark.conf.set("spark.sql.files.openCostInBytes", 16 << 10)
    spark.conf.set("spark.sql.files.maxPartitionBytes", _PARTITION_BYTES)
    # The driver lists the files: a job for it would have a task for each.
    spark.conf.set("spark.sql.sources.parallelPartitionDiscovery.threshold", len(paths))
    sources = spark.read.text(paths, wholetext=True).selectExpr("_metadata.file_path AS path", "value")
    sources.createOrReplaceTempView("sources")
    spark.sql(_LINES_QUERY).cache().createOrReplaceTempView("lines")
    return spark.sql(_JOINED_LINES_QUERY)


def infer_input_format(path: str) -> str:
    """Return Spark's format for a local or remote file or folder, by extension.

    Raises `MissingFileError` if a local path does not exist, `InvalidArgumentError` for an unknown extension.
    """
    if "://" not in path and not os.path.exists(path):
        raise MissingFileError(f"{path}: there is no such file or folder", filename=path)
    names = [path, *(sorted(os.listdir(path)) if os.path.isdir(path) else ())]
    for name in names:
        for extension in reversed(Path(name.lower()).suffixes[-2:]):  # .csv.gz, too
            if extension in _SPARK_FORMATS and not os.path.basename(name).startswith(("_", ".")):
                return _SPARK_FORMATS[extension]
    raise InvalidArgumentError(
        f"{path}: expected a name that ends in {', '.join(_SPARK_FORMATS)}, or a folder of such files"
    )


def read_dataframe(spark: SparkSession, path: str) -> DataFrame:
    """Read a local or remote path with Spark. Raises the errors of `infer_input_format`."""
    format_ = infer_input_format(path)
    options: dict[str, bool | str] = {}
    if format_ == "csv":
        options = {"header": True, "inferSchema": True, "quote": '"', "escape": '"', "multiLine": True}
    if format_ == "json":
        options = {"multiLine": not _is_json_lines(path)}
    return spark.read.format(format_).options(**options).load(path)


def _is_json_lines(path: str) -> bool:
    """Return whether a JSON file contains one document per line, judged by its name or its first two lines."""
    if not os.path.isfile(path) or ".json" not in Path(path.lower()).suffixes:
        return True
    with gzip.open(path) if path.lower().endswith(".gz") else open(path, "rb") as file:
        first, second = (file.readline(1 << 20).strip() for _ in range(2))
    return first.startswith(b"{") and first.endswith(b"}") and (not second or second.startswith(b"{"))

"""The default data of the demo: lines of installed Python files, parsed, joined and aggregated."""

from __future__ import annotations

import os
import sysconfig
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from bowstring.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

BYTES_PER_LINE = 36
"""The average size of a line of Python, to estimate how many files to read."""
_PARTITION_BYTES = 4 << 20
_SKIPPED_FOLDERS = frozenset(("__pycache__", "site-packages", "dist-packages", "test", "tests"))


class PythonFile(NamedTuple):
    """A row of the catalogue of Python files."""

    path: str
    package: str
    module: str
    size: int
    modified: datetime


def list_installed_python_files(lines: int) -> list[PythonFile]:
    """Return Python files of installed packages and the standard library with about `lines` lines, in a fixed order.

    Raises `NotFoundError` if there are none.
    """
    files: list[PythonFile] = []
    remaining_bytes = lines * BYTES_PER_LINE
    for file in _walk_python_files():
        if remaining_bytes <= 0:
            break
        remaining_bytes -= file.size
        files.append(file)
    if not files:
        raise NotFoundError("found no installed Python source files: give a path with --input")
    return files


def _walk_python_files() -> Iterator[PythonFile]:
    roots = dict.fromkeys(
        Path(sysconfig.get_path(key)).resolve() for key in ("purelib", "platlib", "stdlib", "platstdlib")
    )
    paths: set[str] = set()
    for root in roots:
        for folder, names, files in os.walk(root):
            names[:] = sorted(set(names) - _SKIPPED_FOLDERS)
            for name in sorted(files):
                path = os.path.join(folder, name)
                if _is_python_file(name, path) and path not in paths:
                    paths.add(path)
                    yield _describe_python_file(path, root)


def _is_python_file(name: str, path: str) -> bool:
    """Return whether a file is Python, and not ignored by Spark, which skips names with a leading underscore."""
    # Spark quotes the paths that it returns, which are joined with these.
    return name.endswith(".py") and not name.startswith("_") and not os.path.islink(path) and quote(path) == path


def _describe_python_file(path: str, root: Path) -> PythonFile:
    status = os.stat(path)
    module = os.path.relpath(path, root)[:-3].replace(os.sep, ".")
    modified = datetime.fromtimestamp(int(status.st_mtime), UTC)
    return PythonFile(path, module.partition(".")[0], module, status.st_size, modified)


_LINES_QUERY = r"""
SELECT catalogue.package, catalogue.module, catalogue.size, catalogue.modified, position + 1 AS line, text,
       CASE WHEN text RLIKE '^\\s*$' THEN 'blank'
            WHEN text RLIKE '^\\s*#' THEN 'comment'
            WHEN text RLIKE '^\\s*(from\\s+\\S+\\s+)?import\\s' THEN 'import'
            WHEN text RLIKE '^\\s*(async\\s+)?def\\s' THEN 'function'
            WHEN text RLIKE '^\\s*class\\s' THEN 'class'
            ELSE 'code' END AS kind
FROM (SELECT regexp_replace(path, '^file:/+', '/') AS path, posexplode(split(value, '\n')) AS (position, text)
      FROM sources WHERE is_valid_utf8(value)) JOIN catalogue USING (path)
"""

_USES_QUERY = r"""
SELECT imports AS package, count(DISTINCT module) AS used_by
FROM (SELECT module, regexp_extract(text, '^\\s*(?:from|import)\\s+([A-Za-z_][A-Za-z_0-9]*)', 1) AS imports
      FROM lines WHERE kind = 'import') WHERE imports != '' GROUP BY imports
"""

_MODULES_QUERY = """
SELECT module, count(*) AS lines, CAST(avg(CASE WHEN kind = 'comment' THEN 1 ELSE 0 END) AS DECIMAL(5, 4)) AS comments
FROM lines GROUP BY module
"""

_JOINED_LINES_QUERY = r"""
SELECT lines.package, lines.module, lines.line, lines.kind, text,
       CAST(length(text) - length(ltrim(text)) AS SMALLINT) AS indent,
       nullif(regexp_extract(text, '^\\s*(?:async\\s+)?(?:def|class)\\s+([A-Za-z_][A-Za-z_0-9]*)', 1), '') AS name,
       length(text) / 80.0D AS width, uses.used_by, lines.modified,
       named_struct('lines', modules.lines, 'bytes', lines.size, 'comments', modules.comments) AS of
FROM lines JOIN modules ON lines.module = modules.module LEFT JOIN uses ON lines.package = uses.package
"""


def create_line_frame(spark: SparkSession, files: list[PythonFile]) -> DataFrame:
    """Return a row for each line, with its kind, the name it defines and the number of modules that use its package."""
    spark.conf.set("spark.sql.files.openCostInBytes", 16 << 10)
    spark.conf.set("spark.sql.files.maxPartitionBytes", _PARTITION_BYTES)
    # The driver lists the files: a job for it would have a task for each.
    spark.conf.set("spark.sql.sources.parallelPartitionDiscovery.threshold", len(files))
    sources = spark.read.text([file.path for file in files], wholetext=True)
    sources.selectExpr("_metadata.file_path AS path", "value").createOrReplaceTempView("sources")
    types = "path string, package string, module string, size bigint, modified timestamp"
    spark.createDataFrame(files, types).createOrReplaceTempView("catalogue")
    spark.sql(_LINES_QUERY).cache().createOrReplaceTempView("lines")
    for name, query in (("uses", _USES_QUERY), ("modules", _MODULES_QUERY)):
        spark.sql(query).createOrReplaceTempView(name)
    return spark.sql(_JOINED_LINES_QUERY)
